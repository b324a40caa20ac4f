//! `kubebridge namespace …`: changes the namespaces of a session that runs.

use super::{no_session, print};
use crate::cli::{Global, NamespaceArgs, NamespaceCommand, Output};
use crate::control::namespaces::Change;
use crate::failure::Failure;
use crate::output::print_line;
use crate::progress::Reporter;
use crate::session::os::runtime;
use crate::status::client::{Session, sessions};
use crate::status::{namespace_document, namespaces_text};

/// Makes the change.
pub(super) async fn run(arguments: &NamespaceArgs, global: &Global) -> Result<(), Failure> {
    let change = match &arguments.change {
        NamespaceCommand::Use { name } => Change::Use(name.to_string()),
        NamespaceCommand::Add { name } => Change::Add(name.to_string()),
        NamespaceCommand::Remove { name } => Change::Remove(name.to_string()),
    };
    let session = the_one(sessions(&runtime()).await?, arguments.session.as_deref())?;
    let report = session.change(change).await.map_err(|failure| Failure {
        error: failure.error.context("the namespaces are as they were"),
        ..failure
    })?;
    if let Some(trouble) = &report.trouble {
        Reporter::stderr(global.progress).warn(trouble);
    }
    match global.output {
        Output::Json => print_line(&namespace_document(&[report])),
        Output::Text => print(&namespaces_text(&report)),
    }
    Ok(())
}

/// Finds the session that is meant: nobody wants a change in all of them by mistake.
fn the_one(mut found: Vec<Session>, wanted: Option<&str>) -> Result<Session, Failure> {
    let ids: Vec<_> = found.iter().map(|session| session.id.clone()).collect();
    if let Some(wanted) = wanted {
        found.retain(|session| session.id == wanted);
        return found.pop().ok_or_else(|| {
            Failure::usage(format!("--session {wanted}: there is no such session"))
                .with_hint(format!("there are: {}", ids.join(", ")))
        });
    }
    if found.len() > 1 {
        let text = "several sessions run, and this is about one";
        return Err(
            Failure::usage(text).with_hint(format!("--session ID; there are: {}", ids.join(", ")))
        );
    }
    found.pop().ok_or_else(no_session)
}
