//! Asks an upstream whose port is closed 1,000 times a second, and looks at sockets and processor meanwhile.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kubebridge_dns::resolver::FanoutPolicy;
use kubebridge_dns::upstream::{
    ExchangeError, OutgoingQuery, Settings, Upstream, UpstreamSpec, connect,
};
use tokio::net::{TcpListener, UdpSocket};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::asker::{Asker, Who};

/// Questions of one tick; the ticks make 1,000 questions a second of them.
const BURST: u64 = 10;
const TICK: Duration = Duration::from_millis(10);
/// The kernel counts processor time in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

/// Counts what goes to an upstream.
struct Counted {
    inner: Arc<dyn Upstream>,
    attempts: Arc<AtomicU64>,
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
        self.attempts.fetch_add(1, Ordering::Relaxed);
        self.inner.exchange(query, deadline).boxed()
    }
}

pub(crate) async fn print(seconds: u32) {
    // Bound once and closed again: nothing listens there, and what connects is refused.
    let udp = closed_udp().await;
    let tcp = closed_tcp().await;
    println!("1,000 questions a second for {seconds} s to two upstreams that refuse");
    println!(
        "{:<34}{:>22}{:>22}{:>14}{:>10}",
        "who, by which refusal", "sockets and files", "CPU per second", "attempts", "waiting"
    );
    for (words, spec, who) in [
        ("forwarder, ICMP", udp.clone(), Who::Forwarder),
        (
            "forwarder, RST (DoT)",
            format!("tls://{tcp}#a.test"),
            Who::Forwarder,
        ),
        ("engine, ICMP", udp, Who::Resolver(FanoutPolicy::All)),
        (
            "engine, RST (DoT)",
            format!("tls://{tcp}#a.test"),
            Who::Resolver(FanoutPolicy::All),
        ),
    ] {
        measure(words, &spec, who, seconds).await;
    }
}

async fn measure(words: &str, spec: &str, who: Who, seconds: u32) {
    let attempts = Arc::new(AtomicU64::new(0));
    let transport = || {
        let inner = connect(&spec.parse().unwrap(), &Settings::default()).unwrap();
        let attempts = Arc::clone(&attempts);
        Arc::new(Counted { inner, attempts }) as Arc<dyn Upstream>
    };
    let asker = Arc::new(Asker::over(who, vec![transport(), transport()]));
    let waiting = Arc::new(AtomicUsize::new(0));
    let (mut files, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..seconds {
        let before = cpu_time();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for _ in 0..100 {
            ticks.tick().await;
            for _ in 0..BURST {
                let (asker, waiting) = (Arc::clone(&asker), Arc::clone(&waiting));
                waiting.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    assert_eq!(asker.ask().await, None);
                    waiting.fetch_sub(1, Ordering::Relaxed);
                });
            }
        }
        cpu.push((cpu_time() - before) * 1000.0);
        files.push(fs::read_dir("/proc/self/fd").unwrap().count());
    }
    let asked = u64::from(seconds) * 100 * BURST;
    let per_question = attempts.load(Ordering::Relaxed) as f64 / asked as f64;
    let most = |numbers: &[f64]| numbers.iter().copied().fold(0.0, f64::max);
    let half = cpu.len() / 2;
    println!(
        "{words:<34}{:>22}{:>22}{per_question:>10.2} each{:>10}",
        format!(
            "{} to {}",
            files.iter().min().unwrap(),
            files.iter().max().unwrap()
        ),
        format!(
            "{:.0} ms, then {:.0} ms",
            most(&cpu[..half]),
            most(&cpu[half..])
        ),
        waiting.load(Ordering::Relaxed),
    );
}

/// Processor seconds of this process so far, the questions' own share included.
fn cpu_time() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1;
    let ticks = fields.split(' ').skip(11).take(2);
    ticks
        .map(|ticks| ticks.parse::<f64>().unwrap())
        .sum::<f64>()
        / TICKS_PER_SECOND
}

async fn closed_udp() -> String {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    UdpSocket::bind(any)
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string()
}

async fn closed_tcp() -> String {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    TcpListener::bind(any)
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string()
}
