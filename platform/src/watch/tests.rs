use std::fs;

use tokio::time::advance;

use super::*;
use crate::fault::Faults;

fn causes(drift: &Drift) -> Vec<Cause> {
    drift.causes.iter().copied().collect()
}

#[test]
fn a_burst_is_reported_when_it_is_over_or_has_gone_on_for_long() {
    let start = Instant::now();
    let mut burst = Burst::new(start);
    assert_eq!(burst.due(), start + PERIOD);

    let first = start + Duration::from_secs(3);
    burst.add(Cause::Link, first);
    assert_eq!(burst.due(), first + QUIET);
    let mut last = first;
    while burst.due() > last {
        last += QUIET / 2;
        burst.add(Cause::Address, last);
    }
    assert_eq!(last, first + LONGEST_BURST);
    assert_eq!(causes(&burst.take(last)), [Cause::Link, Cause::Address]);
    assert_eq!(burst.due(), last + PERIOD);
}

struct Place {
    _folder: tempfile::TempDir,
    sys: Sys,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("etc")).unwrap();
    fs::create_dir_all(folder.path().join("run/systemd/resolve/netif")).unwrap();
    fs::write(folder.path().join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    let sys = Sys {
        root: folder.path().to_owned(),
        bus_address: Some("unix:path=/nonexistent/bus".to_owned()),
        faults: Faults::default(),
        ..Sys::default()
    };
    Place {
        _folder: folder,
        sys,
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_machine_is_looked_at_every_thirty_seconds() {
    let place = place();
    let mut watch = DriftWatch::start(&place.sys, Clock::fake().0);
    let start = Instant::now();
    assert_eq!(causes(&watch.next().await), [Cause::Period]);
    assert_eq!(start.elapsed(), PERIOD);
    assert_eq!(causes(&watch.next().await), [Cause::Period]);
    assert_eq!(start.elapsed(), 2 * PERIOD);
}

#[tokio::test(start_paused = true)]
async fn a_sleep_is_noticed_by_the_clocks() {
    let place = place();
    let (clock, sleeper) = Clock::fake();
    let mut watch = DriftWatch::start(&place.sys, clock);
    tokio::task::yield_now().await;
    advance(Duration::from_millis(10)).await;
    sleeper.sleep(Duration::from_secs(3600));
    let start = Instant::now();
    let drift = watch.next().await;
    assert_eq!(causes(&drift), [Cause::Slept]);
    assert!(drift.slept());
    assert!(start.elapsed() <= CLOCK_PERIOD + QUIET);
}

/// Waits, in real time, for a drift that says more than that time has passed.
async fn noticed(watch: &mut DriftWatch) -> Vec<Cause> {
    causes(&watch.next().await)
}

#[tokio::test]
async fn a_write_to_the_hosts_file_is_noticed_however_it_is_done() {
    let place = place();
    let hosts = place.sys.path(HOSTS);
    let mut watch = DriftWatch::start(&place.sys, Clock::fake().0);
    started().await;

    fs::write(&hosts, "written\n").unwrap();
    assert_eq!(noticed(&mut watch).await, [Cause::Hosts]);

    let new = place.sys.path("/etc/.new");
    fs::write(&new, "replaced\n").unwrap();
    fs::rename(&new, &hosts).unwrap();
    assert_eq!(noticed(&mut watch).await, [Cause::Hosts]);

    fs::write(&hosts, "written again\n").unwrap();
    assert_eq!(noticed(&mut watch).await, [Cause::Hosts]);

    fs::remove_file(&hosts).unwrap();
    assert_eq!(noticed(&mut watch).await, [Cause::Hosts]);
}

#[tokio::test]
async fn resolveds_state_of_our_link_and_no_other_is_watched() {
    let place = place();
    let state = |index: u32| {
        place
            .sys
            .path(format!("/run/systemd/resolve/netif/{index}"))
    };
    let mut watch = DriftWatch::start(&place.sys, Clock::fake().0);
    watch.follow(Some(7));
    started().await;
    fs::write(state(6), "DOMAINS=x\n").unwrap();
    fs::write(place.sys.path("/etc/other"), "x").unwrap();
    fs::write(state(7), "DOMAINS=x\n").unwrap();
    assert_eq!(noticed(&mut watch).await, [Cause::DnsSettings]);
    fs::remove_file(state(7)).unwrap();
    assert_eq!(noticed(&mut watch).await, [Cause::DnsSettings]);
}

/// Lets the sources set their watches, which they do before they first wait.
async fn started() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

use crate::hosts::file::HOSTS;
