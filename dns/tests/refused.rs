//! An upstream that refuses everything: no socket stays open, and a query asks it twice at most.
//!
//! A program of its own, because it counts the files that the process has open. The figures of a
//! longer run are those of `examples/upstream_figures`.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test stops at any error")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use kubebridge_dns::forward::Forwarder;
use kubebridge_dns::message::{QueryOptions, answers, encode_query};
use kubebridge_dns::name::{RecordType, ResponseCode};
use kubebridge_dns::test_util::name;
use kubebridge_dns::upstream::{
    self, ExchangeError, OutgoingQuery, PortPolicy, Upstream, UpstreamSpec,
};
use kubebridge_dns::upstreams::{Settings, UpstreamState, Upstreams};
use tokio::task::yield_now;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Nothing is bound there; what is sent to it is refused by ICMP over UDP and by RST over TCP.
const CLOSED: &str = "127.88.0.1:1";

/// Counts what goes to an upstream.
struct Counted {
    inner: Arc<dyn Upstream>,
    attempts: Arc<AtomicUsize>,
}

impl Upstream for Counted {
    fn spec(&self) -> &UpstreamSpec {
        self.inner.spec()
    }

    fn exchange<'a>(
        &'a self,
        query: &'a OutgoingQuery,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Vec<u8>, ExchangeError>> {
        self.attempts
            .fetch_add(usize::from(!query.name.is_root()), Ordering::Relaxed);
        self.inner.exchange(query, deadline).boxed()
    }
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test]
async fn an_upstream_that_refuses_leaves_no_socket_open_and_is_asked_twice_a_query_at_most() {
    for spec in [CLOSED.to_owned(), format!("tls://{CLOSED}#a.test")] {
        let before = open_files();
        let attempts = Arc::new(AtomicUsize::new(0));
        let transport = || {
            let settings = upstream::Settings {
                port_policy: PortPolicy::FreshPort,
                ..upstream::Settings::default()
            };
            let inner = upstream::connect(&spec.parse().unwrap(), &settings).unwrap();
            let attempts = Arc::clone(&attempts);
            Arc::new(Counted { inner, attempts }) as Arc<dyn Upstream>
        };
        let set = Upstreams::new(vec![transport(), transport()], Settings::default());
        let (watched, stop) = (Arc::clone(&set), CancellationToken::new());
        let token = stop.clone();
        let prober = tokio::spawn(async move { watched.run(token).await });
        let forwarder = Forwarder::new(Arc::clone(&set), Duration::from_secs(60));
        let ask = async |number: usize| {
            let asked = name(&format!("a{number}.test"));
            let packet = encode_query(1, &asked, RecordType::A, QueryOptions::default());
            let reply = forwarder.forward(&packet).await.unwrap();
            assert_eq!(answers(&reply).unwrap().code, ResponseCode::SERVFAIL);
        };
        for _ in 0..3 {
            join_all((0..100).map(ask)).await;
        }
        stop.cancel();
        prober.await.unwrap();

        assert!(
            set.status()
                .iter()
                .all(|s| s.state == UpstreamState::Unhealthy)
        );
        let attempts = attempts.load(Ordering::Relaxed);
        assert!((600..=2 * 600).contains(&attempts), "{spec}: {attempts}");
        drop((forwarder, set));
        // Connections being opened are ended by the runtime, when it comes to it.
        let closed = async {
            while open_files() > before {
                yield_now().await;
            }
        };
        let closed = tokio::time::timeout(Duration::from_secs(60), closed).await;
        closed.expect("every socket closed");
    }
}
