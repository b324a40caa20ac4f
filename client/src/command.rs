//! Runs the command that was asked for.
//!
//! `connect` and `demo` have modules of their own; here are the short ones.

use crate::cli::{Cli, Command, Global, Output};
use crate::connect;
use crate::demo;
use crate::failure::{Exit, Failure};
use crate::output::{print, print_line};
use crate::progress::Reporter;
use crate::session::os::{Os, ThisMachine, runtime};
use crate::status::client::sessions;
use crate::status::server;
use crate::status::{RoutesReport, SCHEMA, StatusReport, document, routes_text, status_text};

/// Runs a command to its end.
///
/// # Errors
///
/// The command failed; the failure has the exit code.
pub async fn run(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        Command::Connect(arguments) => connect::connect(arguments, &cli.global).await,
        Command::Disconnect => disconnect(&cli.global).await,
        Command::Status => status(&cli.global).await,
        Command::Routes => routes(&cli.global).await,
        Command::Demo(arguments) => demo::demo(arguments, &cli.global).await,
        Command::Version => {
            version(&cli.global);
            Ok(())
        }
    }
}

async fn disconnect(global: &Global) -> Result<(), Failure> {
    let reporter = Reporter::stderr(global.progress);
    let found = sessions(&runtime()).await?;
    let none = found.is_empty();
    for session in found {
        let id = session.id.clone();
        let progress = |text: &str| reporter.say(&format!("session {id}: {text}"));
        session
            .disconnect(progress)
            .await
            .map_err(|error| Failure::new(Exit::HostOs, error))?;
        reporter.say(&format!("session {id}: disconnected"));
    }
    if none {
        reporter.say("no session");
    }
    repair(&reporter).await
}

/// What dead sessions left is repaired by root, and only told to others.
async fn repair(reporter: &Reporter) -> Result<(), Failure> {
    let machine = ThisMachine::default();
    if rustix::process::geteuid().is_root() {
        server::remove_dead(&runtime());
        for repaired in machine.recover().await? {
            reporter.say(&format!("repaired: {repaired}"));
        }
        return Ok(());
    }
    let left = machine.leftovers().await.unwrap_or_default();
    if !left.is_empty() {
        reporter.warn(&format!(
            "a dead session left {}; sudo kubebridge disconnect repairs it",
            left.join(", ")
        ));
    }
    Ok(())
}

async fn status(global: &Global) -> Result<(), Failure> {
    let mut reports: Vec<StatusReport> = Vec::new();
    for session in sessions(&runtime()).await? {
        reports.push(session.status().await?);
    }
    let leftovers = ThisMachine::default().leftovers().await.unwrap_or_default();
    match global.output {
        Output::Json => {
            print_line(&document(&reports, Some(&leftovers)));
            Ok(())
        }
        Output::Text => {
            let shown: Vec<_> = reports.iter().map(status_text).collect();
            print(&shown.join("\n"));
            if shown.is_empty() {
                print_line("no session");
            }
            for left in &leftovers {
                print_line(&format!(
                    "a dead session left {left}; sudo kubebridge disconnect repairs it"
                ));
            }
            Ok(())
        }
    }
}

async fn routes(global: &Global) -> Result<(), Failure> {
    let mut reports: Vec<RoutesReport> = Vec::new();
    for session in sessions(&runtime()).await? {
        reports.push(session.routes().await?);
    }
    match global.output {
        Output::Json => {
            print_line(&document(&reports, None));
            Ok(())
        }
        Output::Text if reports.is_empty() => {
            Err(Failure::message(Exit::Other, "no session").with_hint("kubebridge connect"))
        }
        Output::Text => {
            let shown: Vec<_> = reports.iter().map(routes_text).collect();
            print(&shown.join("\n"));
            Ok(())
        }
    }
}

fn version(global: &Global) {
    let version = env!("CARGO_PKG_VERSION");
    match global.output {
        Output::Text => print_line(&format!("kubebridge {version}")),
        Output::Json => {
            print_line(&serde_json::json!({ "schema": SCHEMA, "version": version }).to_string());
        }
    }
}
