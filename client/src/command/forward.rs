//! `kubebridge forward …`: has a session listen on ports, and waits for Ctrl-C.

use tokio::signal::unix::{SignalKind, signal};

use super::which::{Reach, chosen};
use super::{no_session, print_line};
use crate::cli::{ForwardArgs, Global, Output};
use crate::failure::{Exit, Failure};
use crate::progress::Reporter;
use crate::status::forward_document;

/// Forwards until interrupted.
pub(super) async fn run(arguments: &ForwardArgs, global: &Global) -> Result<(), Failure> {
    let mut found = chosen(global, Reach::One).await?;
    let session = found.pop().ok_or_else(no_session)?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let reporter = Reporter::stderr(global.progress);
    let mut forwarding = session.forward(&arguments.ports).await?;
    match global.output {
        Output::Json => print_line(&forward_document(std::slice::from_ref(&forwarding.report))),
        Output::Text => {
            for port in &forwarding.report.forwards {
                print_line(&format!("{} leads to {}", port.address, port.to));
            }
        }
    }
    loop {
        tokio::select! {
            // The session ends what it does for us when we are gone.
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
            trouble = forwarding.next() => match trouble? {
                Some(trouble) => reporter.warn(&trouble),
                None => {
                    return Err(Failure::message(Exit::Other, "the session has ended"));
                }
            },
        }
    }
}
