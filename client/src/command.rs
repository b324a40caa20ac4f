//! Runs the command that was asked for.
//!
//! `connect` and `demo` have modules of their own; here are the short ones, and `dns …` in its file.

mod dns;
mod doctor;
mod env;
mod forward;
mod install_recovery;
mod namespace;
mod trace;
mod which;

use std::future::Future;

use kubebridge_platform::Recovered;

use crate::certs;
use crate::cli::{Cli, Command, DisconnectArgs, Global, HostsCommand, Output};
use crate::connect;
use crate::demo;
use crate::failure::{Exit, Failure};
use crate::install;
use crate::output::{print, print_line};
use crate::progress::Reporter;
use crate::session::os::{Os, ThisMachine};
use crate::skew::CLIENT;
use crate::status::client::Session;
use crate::status::server;
use crate::status::text::{leftover_lines, recovered_lines};
use crate::status::{
    LeftoverReport, Leftovers, hosts_document, hosts_text, recover_document, routes_document,
    routes_text, status_document, status_text, version_document,
};

use which::{Reach, chosen};

/// What repairs the machine, for those who are told that something is left.
const REPAIR: &str = "sudo kubebridge recover";

/// Runs a command to its end, and returns the exit code.
///
/// # Errors
///
/// The command failed; the failure has the exit code.
pub async fn run(cli: &Cli) -> Result<u8, Failure> {
    let done: Result<(), Failure> = match &cli.command {
        // A session is a big future, and the compiler asks how big.
        Command::Connect(arguments) => {
            return Box::pin(connect::connect(arguments, &cli.global)).await;
        }
        Command::Disconnect(arguments) => disconnect(arguments, &cli.global).await,
        Command::Recover => recover(&cli.global).await,
        Command::InstallRecovery(arguments) => install_recovery::run(arguments, &cli.global),
        Command::Status => status(&cli.global).await,
        Command::Routes => routes(&cli.global).await,
        Command::Hosts(HostsCommand::List) => hosts(&cli.global).await,
        Command::Install(arguments) => install::install(arguments, &cli.global).await,
        Command::Upgrade(arguments) => install::upgrade(arguments, &cli.global).await,
        Command::Uninstall(arguments) => install::uninstall(arguments, &cli.global).await,
        Command::Manifest(arguments) => install::manifest(arguments, &cli.global),
        Command::Certs(arguments) => certs::certs(arguments, &cli.global),
        Command::Trace(arguments) => return trace::run(arguments, &cli.global).await,
        Command::Doctor(arguments) => return Ok(doctor::run(arguments, &cli.global).await),
        Command::Env => env::run(&cli.global).await,
        Command::Forward(arguments) => forward::run(arguments, &cli.global).await,
        Command::Namespace(arguments) => namespace::run(arguments, &cli.global).await,
        Command::Dns(asked) => dns::run(asked, &cli.global).await,
        Command::Demo(arguments) => demo::demo(arguments, &cli.global).await,
        Command::Version => {
            match cli.global.output {
                Output::Text => print_line(&format!("kubebridge {CLIENT}")),
                Output::Json => print_line(&version_document()),
            }
            Ok(())
        }
    };
    done.map(|()| 0)
}

async fn disconnect(arguments: &DisconnectArgs, global: &Global) -> Result<(), Failure> {
    let reporter = Reporter::stderr(global.progress);
    let mut which = global.clone();
    if arguments.id.is_some() {
        which.session.clone_from(&arguments.id);
    }
    let reach = if arguments.all {
        Reach::All
    } else {
        Reach::One
    };
    let found = chosen(&which, reach).await?;
    let none = found.is_empty();
    let reporting = &reporter;
    // The resolvers of all answer on meanwhile: one after the other would take that often as long.
    let ended = futures::future::join_all(found.into_iter().map(|session| async move {
        let id = session.id.clone();
        let progress = |text: &str| reporting.say(&format!("session {id}: {text}"));
        let ended = session.disconnect(progress).await;
        if ended.is_ok() {
            reporting.say(&format!("session {id}: disconnected"));
        }
        ended.map_err(|error| Failure::new(Exit::HostOs, error).context(format!("session {id}")))
    }));
    let failure = ended.await.into_iter().find_map(Result::err);
    if none {
        reporter.say("no session");
    }
    match (repair(&reporter).await, failure) {
        (Err(_), Some(failure)) => Err(failure),
        (Ok(()), Some(failure)) => {
            // What it could not undo, or did not live to undo, is undone now.
            reporter.warn(&format!("{:#}; repaired since", failure.error));
            Ok(())
        }
        // Somebody connects again already.
        (Err(error), None) if error.exit == Exit::Busy && !none => Ok(()),
        (outcome, None) => outcome,
    }
}

/// What dead sessions left is repaired by root, and only told to others.
async fn repair(reporter: &Reporter) -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        for line in recovered_lines(&recover_machine(&ThisMachine::default()).await?) {
            reporter.say(&format!("repaired: {line}"));
        }
        return Ok(());
    }
    let left = leftovers().await;
    for line in leftover_lines(&left) {
        reporter.warn(&line);
    }
    Ok(())
}

async fn recover(global: &Global) -> Result<(), Failure> {
    let recovered = recover_machine(&ThisMachine::default()).await?;
    match global.output {
        Output::Json => print_line(&recover_document(&recovered)),
        Output::Text => {
            for line in recovered_lines(&recovered) {
                print_line(&line);
            }
            if recovered.is_empty() {
                Reporter::stderr(global.progress).say("nothing left over");
            }
        }
    }
    Ok(())
}

/// Repairs what dead sessions left.
async fn recover_machine(machine: &ThisMachine) -> Result<Vec<Recovered>, Failure> {
    let mut recovered = machine.recover().await?;
    for session in server::remove_dead(machine.runtime()) {
        let socket = "control socket removed".to_owned();
        let known = |one: &&mut Recovered| one.session.as_str() == session;
        match (recovered.iter_mut().find(known), session.parse()) {
            (Some(one), _) => one.changes.push(socket),
            (None, Ok(session)) => recovered.push(Recovered {
                session,
                changes: vec![socket],
            }),
            // Not a folder of ours.
            (None, Err(_)) => {}
        }
    }
    Ok(recovered)
}

/// What dead sessions left, as far as this user may know.
pub(crate) async fn leftovers() -> Leftovers {
    let machine = ThisMachine::default();
    match machine.leftovers().await {
        Ok(found) => {
            let mut reports: Vec<_> = found.into_iter().map(LeftoverReport::from).collect();
            for session in server::dead(machine.runtime()) {
                let socket = "control socket".to_owned();
                match reports.iter_mut().find(|one| one.session == session) {
                    Some(report) => report.changes.push(socket),
                    None => reports.push(LeftoverReport {
                        session,
                        pid: 0,
                        changes: vec![socket],
                    }),
                }
            }
            Leftovers {
                leftovers_hint: (!reports.is_empty()).then_some(REPAIR),
                leftovers: reports,
                leftovers_error: None,
            }
        }
        Err(failure) => Leftovers {
            leftovers: Vec::new(),
            leftovers_error: Some(format!("{:#}", failure.error)),
            leftovers_hint: None,
        },
    }
}

/// Asks the sessions that are meant; one that dies meanwhile or hangs is told of and passed over.
async fn ask_all<T, F: Future<Output = anyhow::Result<T>>>(
    global: &Global,
    reach: Reach,
    ask: impl Fn(Session) -> F,
) -> Result<Vec<T>, Failure> {
    let reporter = Reporter::stderr(global.progress);
    let mut reports = Vec::new();
    for session in chosen(global, reach).await? {
        let id = session.id.clone();
        match ask(session).await {
            Ok(report) => reports.push(report),
            Err(error) => reporter.warn(&format!("session {id}: {error:#}")),
        }
    }
    Ok(reports)
}

async fn status(global: &Global) -> Result<(), Failure> {
    let reports = ask_all(global, Reach::All, Session::status).await?;
    let left = leftovers().await;
    match global.output {
        Output::Json => print_line(&status_document(&reports, &left)),
        Output::Text => {
            let shown: Vec<_> = reports.iter().map(status_text).collect();
            print(&shown.join("\n"));
            if shown.is_empty() {
                print_line("no session");
            }
            print_leftovers(&left);
        }
    }
    Ok(())
}

async fn routes(global: &Global) -> Result<(), Failure> {
    let reports = ask_all(global, Reach::One, Session::routes).await?;
    let left = leftovers().await;
    match global.output {
        Output::Json => print_line(&routes_document(&reports, &left)),
        Output::Text => {
            let shown: Vec<_> = reports.iter().map(routes_text).collect();
            print(&shown.join("\n"));
            print_leftovers(&left);
            if reports.is_empty() {
                return Err(no_session());
            }
        }
    }
    Ok(())
}

async fn hosts(global: &Global) -> Result<(), Failure> {
    let reports = ask_all(global, Reach::One, Session::hosts).await?;
    let left = leftovers().await;
    match global.output {
        Output::Json => print_line(&hosts_document(&reports, &left)),
        Output::Text => {
            let shown: Vec<_> = reports.iter().map(hosts_text).collect();
            print(&shown.join("\n"));
            print_leftovers(&left);
            if reports.is_empty() {
                return Err(no_session());
            }
        }
    }
    Ok(())
}

fn print_leftovers(left: &Leftovers) {
    for line in leftover_lines(left) {
        print_line(&line);
    }
}

fn no_session() -> Failure {
    Failure::message(Exit::Other, "no session").with_hint("sudo kubebridge connect …")
}
