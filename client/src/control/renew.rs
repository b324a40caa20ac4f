//! Renews a session before its tokens expire, on the channel that is open (R3).
//!
//! Names and routes go on meanwhile: the session stays the same one.

use std::time::Duration;

use kubebridge_proto::session::{SessionInfo, SessionRequest};
use kubebridge_proto::token::Reason;
use tokio::time::sleep;
use tonic::Code;

use super::{Client, OpenError, Shared, open_once, with_tokens};

/// The wait after a renewal that failed: some twenty of them fit into what is left of an hour, and
/// an exec plugin that asks somebody is not run all the time.
const RETRY: Duration = Duration::from_secs(30);

/// Returns how long after it was opened a session is renewed: at 80 % of what its tokens last.
pub(super) fn due(expires_in: Duration) -> Duration {
    expires_in.mul_f64(0.8)
}

/// Renews for ever, and returns why the session cannot go on.
pub(super) async fn renew(shared: &Shared, mut client: Client) -> anyhow::Error {
    loop {
        let opened = *shared.opened.lock();
        let Some(lasts) = opened.expires_in else {
            return std::future::pending().await;
        };
        shared.clock.sleep_until(opened.at + due(lasts)).await;
        while let Err(error) = once(shared, &mut client).await {
            if is_final(&error) {
                return error.into();
            }
            tracing::warn!("session not renewed");
            tracing::debug!(error = %format!("{error:#}"), "session not renewed because");
            sleep(RETRY).await;
        }
        tracing::info!("session renewed");
    }
}

async fn once(shared: &Shared, client: &mut Client) -> Result<(), OpenError> {
    let request = SessionRequest {
        id: Some(shared.session.borrow().id.clone()),
        ..shared.request.clone()
    };
    let request = with_tokens(&shared.reach, request).await?;
    let asked = shared.clock.now();
    let session: SessionInfo = open_once(client, request).await?;
    shared.note_opened(session, asked);
    Ok(())
}

/// Whether another session has to be opened; anything else may pass.
fn is_final(error: &OpenError) -> bool {
    match error {
        OpenError::Tokens(_) => false,
        OpenError::Refused(status) => match Reason::of(status) {
            Some(Reason::SessionUnknown | Reason::SessionExpired) => true,
            Some(_) => false,
            None => status.code() == Code::FailedPrecondition,
        },
    }
}

#[cfg(test)]
mod tests;
