//! `/livez` and `/readyz` for the probes of the pod, `/metrics` for Prometheus, `/upstreams` for the
//! command of that name. All else is 404.
//!
//! Alive means that the process answers: an essential task that ends takes the process with it.
//! Ready says in words what is missing. Details of the upstreams are for those inside the pod.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::serve::IncomingStream;
use kubebridge_dns::upstreams::{UpstreamStatus, Upstreams};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::access::keeper::Held;
use crate::kubernetes::watch::Health;
use crate::limit::Limited;
use crate::metrics::Exposition;
use crate::upstreams::report::Report;
use crate::upstreams::{is_good, words};

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
    /// What answers for the zones of the cluster.
    pub zones: Zones,
    /// The upstreams.
    pub upstreams: Arc<Upstreams>,
    /// Set when the process drains.
    pub shutdown: CancellationToken,
}

/// What answers for the zones of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zones {
    /// The Services we hold ourselves: they work without any upstream.
    Ours,
    /// The upstreams.
    Upstreams,
}

impl Readiness {
    /// Returns whether we are ready, and what there is to say.
    fn check(&self) -> (bool, String) {
        if self.shutdown.is_cancelled() {
            return (false, "shutting down\n".to_owned());
        }
        let (watches, mut text) = self.watched();
        let (names, more) = resolves(self.zones, &self.upstreams.status());
        text += &more;
        (watches && names, text)
    }

    /// Returns whether the Services are known, and how each watch does.
    fn watched(&self) -> (bool, String) {
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

/// Returns whether any names can be resolved, and how each upstream does: while one upstream is good,
/// or else the zones of the cluster work, taking the pod out of service would help nobody.
fn resolves(zones: Zones, upstreams: &[UpstreamStatus]) -> (bool, String) {
    let mut text = String::new();
    for upstream in upstreams {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "upstream {}: {}", upstream.spec, words(upstream));
    }
    match zones {
        Zones::Ours => (true, text),
        Zones::Upstreams if upstreams.is_empty() => (false, "no upstream\n".to_owned()),
        Zones::Upstreams => (upstreams.iter().any(is_good), text),
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
        .route("/upstreams", get(upstreams))
        .with_state(readiness)
        .route("/metrics", get(move || std::future::ready(text(&metrics))));
    axum::serve(
        Limited::new(listener, MAX_CONNECTIONS).lifetime(LIFETIME),
        router.into_make_service_with_connect_info::<Peer>(),
    )
    .with_graceful_shutdown(shutdown.cancelled_owned())
    .await
    .context("admin server failed")
}

/// The content types of words and of JSON.
const WORDS: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// The content type of the text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

fn text(metrics: &Exposition) -> Result<impl IntoResponse + use<>, StatusCode> {
    let text = metrics
        .text()
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, TEXT)], text))
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
struct Peer(SocketAddr);

impl Connected<IncomingStream<'_, Limited>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Limited>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// Tells whether a peer is in this pod, or came through a port-forward.
fn is_inside(peer: SocketAddr) -> bool {
    // On `[::]` a peer on 127.0.0.1 has an IPv6 address.
    peer.ip().to_canonical().is_loopback()
}

async fn upstreams(
    State(readiness): State<Readiness>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
) -> impl IntoResponse {
    std::future::ready(()).await;
    if !is_inside(peer) {
        let text = "from loopback only: use `kubectl exec` or `kubectl port-forward`\n";
        return (
            StatusCode::FORBIDDEN,
            [(CONTENT_TYPE, WORDS)],
            text.to_owned(),
        );
    }
    let report = Report::of(&readiness.upstreams.status(), Instant::now());
    (StatusCode::OK, [(CONTENT_TYPE, JSON)], report.json())
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
    use kubebridge_dns::upstreams::{Settings, UpstreamState};

    use super::*;
    use crate::upstreams::tests::status;

    fn readiness(watches: Vec<(String, watch::Receiver<Health>)>) -> Readiness {
        Readiness {
            watches,
            token_keys: None,
            zones: Zones::Ours,
            upstreams: Upstreams::new(Vec::new(), Settings::default()),
            shutdown: CancellationToken::new(),
        }
    }

    fn check(states: &[Health]) -> (bool, String) {
        let name = |number: usize| format!("namespace n{number}");
        let watch = |(number, state): (usize, &Health)| {
            (name(number), watch::Sender::new(state.clone()).subscribe())
        };
        readiness(states.iter().enumerate().map(watch).collect()).check()
    }

    #[test]
    fn loops_one_good_upstream_or_zones_of_our_own_are_enough_to_be_ready() {
        use UpstreamState::{Healthy, Looped, Unhealthy, Unknown};
        for (states, alone, with_services) in [
            (vec![], false, true),
            (vec![Unknown], false, true),
            (vec![Healthy], true, true),
            (vec![Unhealthy, Healthy], true, true),
            (vec![Unhealthy, Unhealthy], false, true),
            (vec![Looped, Unhealthy], false, true),
        ] {
            let upstreams: Vec<_> = states
                .iter()
                .map(|state| UpstreamStatus {
                    looped_zones: match state {
                        Looped => vec![".".parse().unwrap()],
                        Unknown | Healthy | Unhealthy => vec![],
                    },
                    ..status(1, "10.96.0.10", *state)
                })
                .collect();
            let found = (
                resolves(Zones::Upstreams, &upstreams).0,
                resolves(Zones::Ours, &upstreams).0,
            );
            assert_eq!(found, (alone, with_services), "{states:?}");
        }
    }

    #[test]
    fn only_loopback_is_inside() {
        for (peer, inside) in [
            ("127.0.0.1:9", true),
            ("127.9.9.9:9", true),
            ("[::1]:9", true),
            ("[::ffff:127.0.0.1]:9", true),
            ("10.244.0.7:9", false),
            ("[::ffff:10.244.0.7]:9", false),
            ("[fd00::7]:9", false),
        ] {
            assert_eq!(is_inside(peer.parse().unwrap()), inside, "{peer}");
        }
    }

    #[test]
    fn how_each_upstream_does_is_said_in_words() {
        let down = UpstreamStatus {
            last_error: Some("no reply in time".to_owned()),
            ..status(2, "tls://9.9.9.9#dns.quad9.net", UpstreamState::Unhealthy)
        };
        let looped = UpstreamStatus {
            looped_zones: vec!["cluster.local".parse().unwrap()],
            ..status(3, "10.0.0.1:5353", UpstreamState::Looped)
        };
        let healthy = status(1, "10.96.0.10", UpstreamState::Healthy);
        let unknown = status(4, "10.0.0.2", UpstreamState::Unknown);
        let (ready, text) = resolves(Zones::Upstreams, &[healthy, down, looped, unknown]);
        assert!(ready);
        assert_eq!(
            text,
            "upstream 10.96.0.10: answers\n\
             upstream tls://9.9.9.9#dns.quad9.net: down: no reply in time\n\
             upstream 10.0.0.1:5353: leads back to us for cluster.local\n\
             upstream 10.0.0.2: not heard yet\n"
        );
        assert_eq!(
            resolves(Zones::Upstreams, &[]),
            (false, "no upstream\n".to_owned())
        );
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
        let readiness = readiness(vec![]);
        readiness.shutdown.cancel();
        assert_eq!(readiness.check(), (false, "shutting down\n".to_owned()));
    }
}
