//! Prints how long the hosts file takes with many services (condition H9).
//!
//! ```sh
//! cargo run --release -p kubebridge-platform --example hosts_figures [SERVICES [FOREIGN-LINES]]
//! ```
//!
//! Works in a temporary folder; the machine's own hosts file is not touched. Each figure is the
//! median of several runs, through `LocalHost::apply` as a session does it.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program that prints figures and may stop at any error"
)]

use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use kubebridge_platform::{Host, HostsLine, Intent, LocalHost, SessionId, Sys};
use tokio::time::Instant;

const RUNS: usize = 9;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().unwrap());
    let services: u32 = numbers.next().unwrap_or(10_000);
    let foreign: u32 = numbers.next().unwrap_or(20);
    let mut first = Vec::new();
    let mut same = Vec::new();
    let mut verify = Vec::new();
    let mut one = Vec::new();
    let mut removal = Vec::new();
    for _ in 0..RUNS {
        let folder = tempfile::tempdir().unwrap();
        let sys = machine(folder.path(), foreign);
        let hosts = sys.path("/etc/hosts");
        let before = fs::read(&hosts).unwrap();
        let mut host = LocalHost::new(sys, SessionId::random()).unwrap();
        let wish = intent(services);

        first.push(timed(async || drop(host.apply(&wish).await.unwrap())).await);
        let written = fs::metadata(&hosts).unwrap().modified().unwrap();
        same.push(timed(async || drop(host.apply(&wish).await.unwrap())).await);
        verify.push(timed(async || drop(host.verify().await)).await);
        assert_eq!(fs::metadata(&hosts).unwrap().modified().unwrap(), written);
        let wish = intent(services + 1);
        one.push(timed(async || drop(host.apply(&wish).await.unwrap())).await);
        removal.push(timed(async || drop(host.undo().await.unwrap())).await);
        assert!(fs::read(&hosts).unwrap() == before);
    }
    println!("{services} services, {foreign} foreign lines, median of {RUNS}");
    for (what, times) in [
        ("first write", first),
        ("no change (0 writes)", same),
        ("verify, no change", verify),
        ("one service more", one),
        ("removal", removal),
    ] {
        println!("{what:<22}{:>8.1} ms", median(times).as_secs_f64() * 1000.0);
    }
}

fn machine(folder: &std::path::Path, foreign: u32) -> Sys {
    fs::create_dir_all(folder.join("root/etc")).unwrap();
    let lines: String = (0..foreign)
        .map(|n| format!("192.0.2.1 host{n}.example host{n}\n"))
        .collect();
    fs::write(folder.join("root/etc/hosts"), lines).unwrap();
    Sys {
        root: folder.join("root"),
        bus_address: Some("unix:path=/nonexistent".to_owned()),
        state_dir: folder.join("state"),
        runtime_dir: folder.join("run"),
        ..Sys::default()
    }
}

fn intent(services: u32) -> Intent {
    let line = |n: u32| HostsLine {
        address: Ipv4Addr::from_bits(0x0a60_0000 + n).into(),
        names: vec![format!("service-{n}"), format!("service-{n}.default")],
    };
    Intent::new(None, (1..=services).map(line).collect()).unwrap()
}

async fn timed(work: impl AsyncFnOnce()) -> Duration {
    let start = Instant::now();
    work().await;
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
