//! `kubebridge namespace …`: changes the namespaces of a session that runs.

use super::which::{Reach, chosen};
use super::{no_session, print};
use crate::cli::{Global, NamespaceArgs, NamespaceCommand, Output};
use crate::control::namespaces::Change;
use crate::failure::Failure;
use crate::output::print_line;
use crate::progress::Reporter;
use crate::status::{namespace_document, namespaces_text};

/// Makes the change.
pub(super) async fn run(arguments: &NamespaceArgs, global: &Global) -> Result<(), Failure> {
    let change = match &arguments.change {
        NamespaceCommand::Use { name } => Change::Use(name.to_string()),
        NamespaceCommand::Add { name } => Change::Add(name.to_string()),
        NamespaceCommand::Remove { name } => Change::Remove(name.to_string()),
    };
    // Nobody wants a change in all of them by mistake.
    let mut found = chosen(global, Reach::One).await?;
    let session = found.pop().ok_or_else(no_session)?;
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
