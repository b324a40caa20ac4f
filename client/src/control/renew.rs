//! Renews a session before its tokens expire, on the channel that is open (R3), and changes its
//! namespaces when somebody asks for it (W12).
//!
//! Names and routes go on meanwhile: the session stays the same one. A namespace whose token cannot
//! be made any longer is lost alone; it comes back when it can.

use std::time::Duration;

use kubebridge_proto::session::{SessionInfo, SessionRequest};
use kubebridge_proto::token::Reason;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Code;

use super::namespaces::{self, Asked, Change, Namespaces};
use super::{Client, OpenError, Shared, open_once, tokens};
use crate::failure::Failure;

/// The wait after a renewal that failed: some twenty of them fit into what is left of an hour, and
/// an exec plugin that asks somebody is not run all the time.
const RETRY: Duration = Duration::from_secs(30);

/// Returns how long after it was opened a session is renewed: at 80 % of what its tokens last.
pub(super) fn due(expires_in: Duration) -> Duration {
    expires_in.mul_f64(0.8)
}

/// Renews for ever, changes namespaces when asked to, and returns why the session cannot go on.
pub(super) async fn renew(
    shared: &Shared,
    mut client: Client,
    asked: &mut mpsc::Receiver<Asked>,
) -> anyhow::Error {
    let mut look = shared.clock.now() + RETRY;
    loop {
        let opened = *shared.opened.borrow();
        let due = opened.life().map(|(_, renewal)| renewal);
        let is_due = || due.is_some_and(|due| due <= shared.clock.now());
        let is_whole = shared.namespaces.borrow().lost().is_empty();
        // What was due and failed, and what is lost, is tried again now and then.
        let next = match due {
            Some(_) if is_due() => Some(look),
            Some(due) if !is_whole => Some(look.min(due)),
            due => due,
        };
        let outcome = tokio::select! {
            Some(Asked { change, reply }) = asked.recv() => {
                let outcome = make(shared, &mut client, &change).await;
                // Whoever asked may have given up.
                let _ = reply.send(outcome);
                continue;
            }
            () = at(shared, next) => {
                look = shared.clock.now() + RETRY;
                if is_due() {
                    once(shared, &mut client, None).await
                } else {
                    regain(shared, &mut client).await
                }
            }
        };
        match outcome {
            Ok(()) => {}
            Err(error) if is_final(&error) => return error.into(),
            Err(error) => {
                tracing::warn!("session not renewed");
                tracing::debug!(error = %format!("{error:#}"), "session not renewed because");
            }
        }
    }
}

async fn at(shared: &Shared, time: Option<Instant>) {
    match time {
        Some(time) => shared.clock.sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Takes lost namespaces up again that have a token now.
async fn regain(shared: &Shared, client: &mut Client) -> Result<(), OpenError> {
    let lost: Vec<_> = shared.namespaces.borrow().lost().keys().cloned().collect();
    if tokens(&shared.reach, &lost).await?.made.is_empty() {
        return Ok(());
    }
    once(shared, client, None).await
}

/// Changes the namespaces; where that cannot be, all stays as it was.
async fn make(
    shared: &Shared,
    client: &mut Client,
    change: &Change,
) -> Result<Vec<String>, Failure> {
    let wanted = change.apply(shared.namespaces.borrow().wanted())?;
    once(shared, client, Some((wanted.clone(), change.needs())))
        .await
        .map_err(namespaces::refused)?;
    tracing::info!("namespaces changed");
    Ok(wanted)
}

/// Other namespaces than now, and the one that they must not do without.
pub(super) type Other<'a> = Option<(Vec<String>, Option<&'a str>)>;

async fn once(shared: &Shared, client: &mut Client, other: Other<'_>) -> Result<(), OpenError> {
    let id = Some(shared.session.borrow().id.clone());
    let (request, namespaces) = request(shared, other).await?;
    let request = SessionRequest { id, ..request };
    let asked = shared.clock.now();
    let session: SessionInfo = open_once(client, request).await?;
    shared.note_opened(session, namespaces, asked);
    tracing::info!("session renewed");
    Ok(())
}

/// Makes a request with fresh tokens, for the namespaces that have one where the manager wants them.
pub(super) async fn request(
    shared: &Shared,
    other: Other<'_>,
) -> Result<(SessionRequest, Namespaces), OpenError> {
    let now = || (shared.namespaces.borrow().wanted().to_vec(), None);
    let (wanted, needed) = other.unwrap_or_else(now);
    let tokens = tokens(&shared.reach, &wanted).await?;
    let needs_tokens = shared.opened.borrow().expires_in.is_some();
    let mut lacking = tokens.lacking.iter().filter(|_| needs_tokens);
    if let Some(lacking) = lacking.find(|lacking| needed == Some(&lacking.namespace)) {
        return Err(OpenError::Lacking(lacking.clone()));
    }
    let namespaces = if needs_tokens {
        Namespaces::with(wanted, &tokens).map_err(OpenError::Lacking)?
    } else {
        Namespaces::new(wanted)
    };
    for namespace in namespaces.lost().keys() {
        tracing::warn!(%namespace, "no token any longer");
    }
    let request = SessionRequest {
        namespaces: namespaces.held(),
        tokens: tokens.made,
        ..shared.request.clone()
    };
    Ok((request, namespaces))
}

/// Whether another session has to be opened; anything else may pass.
fn is_final(error: &OpenError) -> bool {
    match error {
        OpenError::Tokens(_) | OpenError::Lacking(_) => false,
        OpenError::Refused(status) => match Reason::of(status) {
            Some(Reason::SessionUnknown | Reason::SessionExpired) => true,
            Some(_) => false,
            None => status.code() == Code::FailedPrecondition,
        },
    }
}

#[cfg(test)]
mod tests;
