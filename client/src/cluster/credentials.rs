//! What proves who we are, held as long as it is good: one plugin run for all who need it.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::config::ExecConfig;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::exec::{self, Issued};
use super::problem::{Kind, Problem};

/// A credential is renewed this long before it ends, so that no request is on its way with one
/// that does.
const MARGIN: SignedDuration = SignedDuration::from_secs(10);
/// How long a plugin that failed is left alone: reconnecting tries every two seconds, and a plugin
/// may open a browser window each time.
const PAUSE: Duration = Duration::from_secs(10);

type Run = Shared<BoxFuture<'static, Result<Arc<Issued>, Problem>>>;

/// The credentials of one exec plugin.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    #[default]
    Nothing,
    Running(Run),
    Held(Arc<Issued>),
    Failed(Problem, Instant),
}

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => formatter.write_str("nothing"),
            Self::Running(_) => formatter.write_str("running"),
            Self::Held(issued) => issued.fmt(formatter),
            Self::Failed(problem, _) => problem.fmt(formatter),
        }
    }
}

impl Credentials {
    /// Returns what is held while it is good, else what the plugin gives. Whoever asks while it
    /// runs gets the same; it runs on when nobody waits for it any longer.
    pub(super) async fn current(
        &self,
        exec: &ExecConfig,
        user: &str,
    ) -> Result<Arc<Issued>, Problem> {
        let run = {
            let mut state = self.state.lock();
            match &*state {
                State::Held(issued) if is_good(issued, Timestamp::now()) => {
                    return Ok(Arc::clone(issued));
                }
                State::Failed(problem, at) if at.elapsed() < PAUSE => return Err(problem.clone()),
                State::Running(run) => run.clone(),
                State::Nothing | State::Held(_) | State::Failed(..) => {
                    let run = start(exec.clone(), user.to_owned());
                    *state = State::Running(run.clone());
                    run
                }
            }
        };
        let outcome = run.clone().await;
        let mut state = self.state.lock();
        // Another who waited may have settled it, and somebody else begun again.
        if matches!(&*state, State::Running(current) if current.ptr_eq(&run)) {
            *state = match &outcome {
                Ok(issued) => State::Held(Arc::clone(issued)),
                Err(problem) => State::Failed(problem.clone(), Instant::now()),
            };
        }
        outcome
    }

    /// Forgets what the API server does not accept.
    pub(super) fn reject(&self, refused: &Arc<Issued>) {
        let mut state = self.state.lock();
        if matches!(&*state, State::Held(held) if Arc::ptr_eq(held, refused)) {
            *state = State::Nothing;
        }
    }
}

/// Whether it can be used for some time yet.
pub(super) fn is_good(issued: &Issued, now: Timestamp) -> bool {
    issued.expiry.is_none_or(|expiry| now + MARGIN < expiry)
}

/// The task is owned by the future that the state holds: it ends with the state.
fn start(exec: ExecConfig, user: String) -> Run {
    let running = async move { exec::run(&exec, &user).await.map(Arc::new) };
    let span = tracing::info_span!("exec plugin");
    let task = AbortOnDropHandle::new(tokio::spawn(running.instrument(span)));
    async move {
        task.await.unwrap_or_else(|_| {
            Err(Problem::new(
                Kind::Unauthorized,
                "the exec plugin was interrupted",
            ))
        })
    }
    .boxed()
    .shared()
}

#[cfg(test)]
mod tests;
