//! `/livez` and `/readyz` for the probes of the pod, `/metrics` for Prometheus. All else is 404.
//!
//! Alive means that the process answers: an essential task that ends takes the process with it.
//! Ready says in words what is missing.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::access::keeper::Held;
use crate::kubernetes::watch::Health;
use crate::limit::Limited;
use crate::metrics::Exposition;

/// The most connections: the probes of one pod and a few people.
const MAX_CONNECTIONS: usize = 64;

/// How long a connection may last: the port is open to the cluster, and whoever keeps connections
/// open must not keep the probes out until the pod is killed for it.
const LIFETIME: Duration = Duration::from_secs(5);

/// What readiness depends on.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// How each watch does, by the name of what it watches.
    pub watches: Vec<(String, watch::Receiver<Health>)>,
    /// The keys of tokens, where they are fetched.
    pub token_keys: Option<watch::Receiver<Held>>,
    /// Set when the process drains.
    pub shutdown: CancellationToken,
}

impl Readiness {
    /// Returns whether we are ready, and what there is to say.
    fn check(&self) -> (bool, String) {
        if self.shutdown.is_cancelled() {
            return (false, "shutting down\n".to_owned());
        }
        let mut ready = true;
        let mut usable = self.watches.is_empty();
        let mut text = String::new();
        for (what, health) in &self.watches {
            let health = health.borrow().clone();
            ready &= match health {
                // Forbidden is no reason to take the others away: the clients are told.
                Health::Synced | Health::Forbidden { .. } => true,
                Health::Starting | Health::Away { .. } => false,
            };
            usable |= health == Health::Synced;
            let words = match health {
                Health::Synced => "synced".to_owned(),
                Health::Starting => "not listed yet".to_owned(),
                Health::Away { cause } => format!("the API server is out of reach: {cause}"),
                Health::Forbidden { verb } => format!("not allowed to {verb} services"),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{what}: {words}");
        }
        ready &= self.tell_keys(&mut text);
        (ready && usable, text)
    }

    /// Says whether a token can be verified: without keys nobody gets a session. Those that were
    /// once fetched stay good while the API server is away.
    fn tell_keys(&self, text: &mut String) -> bool {
        let Some(held) = self.token_keys.as_ref().map(|keys| keys.borrow().clone()) else {
            return true;
        };
        if held.published.is_some() {
            return true;
        }
        let trouble = held.trouble.as_deref().unwrap_or("not fetched yet");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "token keys: {trouble}");
        false
    }
}

/// Serves the probes until shutdown.
///
/// # Errors
/// When the server cannot go on.
pub async fn serve(listener: TcpListener, readiness: Readiness, metrics: Exposition) -> Result<()> {
    let shutdown = readiness.shutdown.clone();
    let metrics = Arc::new(metrics);
    let router = Router::new()
        .route("/livez", get(|| std::future::ready("ok\n")))
        .route("/readyz", get(readyz))
        .with_state(readiness)
        .route("/metrics", get(move || std::future::ready(text(&metrics))));
    axum::serve(
        Limited::new(listener, MAX_CONNECTIONS).lifetime(LIFETIME),
        router,
    )
    .with_graceful_shutdown(shutdown.cancelled_owned())
    .await
    .context("admin server failed")
}

/// The content type of the text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

fn text(metrics: &Exposition) -> Result<impl IntoResponse + use<>, StatusCode> {
    let text = metrics
        .text()
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, TEXT)], text))
}

async fn readyz(State(readiness): State<Readiness>) -> (StatusCode, String) {
    // axum's handlers are async, and there is nothing to wait for.
    std::future::ready(()).await;
    match readiness.check() {
        (true, text) => (StatusCode::OK, format!("ready\n{text}")),
        (false, text) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready\n{text}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(states: &[Health]) -> (bool, String) {
        let name = |number: usize| format!("namespace n{number}");
        let watch = |(number, state): (usize, &Health)| {
            (name(number), watch::Sender::new(state.clone()).subscribe())
        };
        let watches = states.iter().enumerate().map(watch).collect();
        Readiness {
            watches,
            token_keys: None,
            shutdown: CancellationToken::new(),
        }
        .check()
    }

    #[test]
    fn readiness_follows_the_watches() {
        use Health::{Starting, Synced};
        let away = || Health::Away {
            cause: "Connection refused".to_owned(),
        };
        let forbidden = || Health::Forbidden { verb: "list" };
        for (states, ready) in [
            (vec![], true),
            (vec![Synced], true),
            (vec![Starting], false),
            (vec![Synced, Starting], false),
            (vec![Synced, away()], false),
            (vec![Synced, forbidden()], true),
            (vec![forbidden()], false),
        ] {
            assert_eq!(check(&states).0, ready, "{states:?}");
        }
    }

    #[test]
    fn what_is_missing_is_said_in_words() {
        let (_, text) = check(&[
            Health::Synced,
            Health::Away {
                cause: "Connection refused".to_owned(),
            },
            Health::Forbidden { verb: "watch" },
        ]);
        assert_eq!(
            text,
            "namespace n0: synced\n\
             namespace n1: the API server is out of reach: Connection refused\n\
             namespace n2: not allowed to watch services\n"
        );
    }

    #[test]
    fn a_process_that_drains_is_not_ready() {
        let readiness = Readiness {
            watches: vec![],
            token_keys: None,
            shutdown: CancellationToken::new(),
        };
        readiness.shutdown.cancel();
        assert_eq!(readiness.check(), (false, "shutting down\n".to_owned()));
    }
}
