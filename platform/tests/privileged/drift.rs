//! What others do to a session's link and settings on a real machine, and how it is put back.

use std::time::Duration;

use kubebridge_platform::clock::Clock;
use kubebridge_platform::tun::Packets;
use kubebridge_platform::{Cause, DriftWatch, Host, HostError, Link, LocalHost};
use tokio::time::timeout;

use crate::machine::{Machine, connect, on_a_machine, packets, reaches, run, state, until};

/// Far above the half second that a burst takes, and below the period of looking anyway: what is
/// put back here was noticed.
const PATIENCE: Duration = Duration::from_secs(25);

/// A connected session, watched, and what systemd-resolved has of its link.
struct Session {
    machine: Machine,
    host: LocalHost,
    link: Link,
    packets: Packets,
    watch: DriftWatch,
    settings: String,
}

async fn session(machine: Machine) -> Session {
    let machine = machine.with_resolved().await;
    let (host, mut link) = connect(&machine.sys()).await;
    let packets = packets(&mut link);
    let mut watch = DriftWatch::start(&machine.sys(), Clock::system());
    watch.follow(Some(link.index));
    watch.ready().await;
    Session {
        settings: machine.link_state(link.index),
        machine,
        host,
        link,
        packets,
        watch,
    }
}

impl Session {
    /// Verifies at each drift until something was put back, and says what caused that.
    async fn repaired(&mut self) -> (Vec<Cause>, Vec<String>) {
        loop {
            let drift = timeout(PATIENCE, self.watch.next()).await.unwrap();
            let verified = self.host.verify().await;
            if !verified.repairs.is_empty() {
                assert!(verified.troubles.is_empty(), "{:?}", verified.troubles);
                return (drift.causes.into_iter().collect(), verified.repairs);
            }
        }
    }
}

#[test]
fn nothing_is_done_when_nothing_has_changed() {
    on_a_machine(
        "drift::nothing_is_done_when_nothing_has_changed",
        async |machine| {
            let mut session = session(machine).await;
            let before = state();
            let verified = session.host.verify().await;
            assert!(verified.troubles.is_empty(), "{:?}", verified.troubles);
            assert_eq!(verified.repairs, Vec::<String>::new());
            assert_eq!(state(), before);
        },
    );
}

#[test]
fn a_revert_by_someone_else_is_put_back() {
    on_a_machine(
        "drift::a_revert_by_someone_else_is_put_back",
        async |machine| {
            let mut session = session(machine).await;
            let index = session.link.index;
            session
                .machine
                .tell_resolved(&format!("RevertLink i {index}"));
            assert_eq!(session.machine.link_state(index), "");
            let (causes, _) = session.repaired().await;
            assert!(causes.contains(&Cause::DnsSettings), "{causes:?}");
            assert_eq!(session.machine.link_state(index), session.settings);
        },
    );
}

#[test]
fn domains_changed_by_someone_else_are_put_back() {
    on_a_machine(
        "drift::domains_changed_by_someone_else_are_put_back",
        async |machine| {
            let mut session = session(machine).await;
            let index = session.link.index;
            let domains = format!("SetLinkDomains 'ia(sb)' {index} 1 example.com false");
            session.machine.tell_resolved(&domains);
            let (causes, _) = session.repaired().await;
            assert!(causes.contains(&Cause::DnsSettings), "{causes:?}");
            assert_eq!(session.machine.link_state(index), session.settings);
        },
    );
}

#[test]
fn a_killed_resolved_comes_back_with_the_settings() {
    on_a_machine(
        "drift::a_killed_resolved_comes_back_with_the_settings",
        async |machine| {
            let mut session = session(machine).await;
            session.machine.kill_resolved();
            let ended = session.watch.next().await;
            assert!(ended.causes.contains(&Cause::ResolvedEnded));
            let verified = session.host.verify().await;
            assert!(
                matches!(verified.troubles[..], [HostError::Dns(_)]),
                "{verified:?}"
            );

            session.machine.start_resolved().await;
            let started = session.watch.next().await;
            assert!(
                started.causes.contains(&Cause::ResolvedStarted),
                "{started:?}"
            );
            let verified = session.host.verify().await;
            assert!(verified.troubles.is_empty(), "{:?}", verified.troubles);
            assert_eq!(
                session.machine.link_state(session.link.index),
                session.settings
            );
        },
    );
}

#[test]
fn a_resolved_that_lost_its_state_gets_the_settings_again() {
    let name = "drift::a_resolved_that_lost_its_state_gets_the_settings_again";
    on_a_machine(name, async |machine| {
        let mut session = session(machine).await;
        session.machine.kill_resolved();
        run("rm -rf /run/systemd/resolve/netif");
        session.machine.start_resolved().await;
        let (causes, _) = session.repaired().await;
        assert!(causes.contains(&Cause::ResolvedStarted), "{causes:?}");
        assert_eq!(
            session.machine.link_state(session.link.index),
            session.settings
        );
    });
}

#[test]
fn a_link_that_was_set_down_is_brought_up_again() {
    on_a_machine(
        "drift::a_link_that_was_set_down_is_brought_up_again",
        async |machine| {
            let mut session = session(machine).await;
            run(&format!("ip link set {} down", session.link.name));
            let (causes, _) = session.repaired().await;
            assert!(causes.contains(&Cause::Link), "{causes:?}");
            reaches(&session.packets, session.link.resolver).await;
            assert_eq!(
                session.machine.link_state(session.link.index),
                session.settings
            );
        },
    );
}

#[test]
fn a_flapping_link_needs_its_ipv6_address_and_its_routes_and_nothing_else() {
    on_a_machine(
        "drift::a_flapping_link_needs_its_ipv6_address_and_its_routes_and_nothing_else",
        async |machine| {
            let mut session = session(machine).await;
            let name = &session.link.name;
            run(&format!("ip link set {name} down; ip link set {name} up"));
            let drift = session.watch.next().await;
            assert!(drift.causes.contains(&Cause::Link), "{drift:?}");
            let verified = session.host.verify().await;
            assert!(verified.troubles.is_empty(), "{:?}", verified.troubles);
            // The kernel drops the routes of a link that goes down, and its addresses of IPv6.
            let [address, routes] = verified.repairs.as_slice() else {
                panic!("{:?}", verified.repairs);
            };
            assert!(address.starts_with("fd") && address.ends_with(" put back on kb0"));
            assert_eq!(routes, "3 routes into kb0");
            reaches(&session.packets, session.link.resolver).await;
        },
    );
}

#[test]
fn an_address_that_was_removed_is_put_back_and_packets_come() {
    let name = "drift::an_address_that_was_removed_is_put_back_and_packets_come";
    on_a_machine(name, async |machine| {
        let mut session = session(machine).await;
        run(&format!("ip addr flush dev {}", session.link.name));
        let (causes, repairs) = session.repaired().await;
        assert!(causes.contains(&Cause::Address), "{causes:?}");
        // The routes of IPv4 went with the last address of it.
        assert_eq!(repairs.len(), 3, "{repairs:?}");
        assert_eq!(repairs[2], "2 routes into kb0");
        reaches(&session.packets, session.link.resolver).await;
    });
}

#[test]
fn a_removed_link_is_made_anew_and_packets_come() {
    on_a_machine(
        "drift::a_removed_link_is_made_anew_and_packets_come",
        async |machine| {
            let mut session = session(machine).await;
            let old = session.link.index;
            run(&format!("ip link del {}", session.link.name));
            let drift = session.watch.next().await;
            assert!(drift.causes.contains(&Cause::Link), "{drift:?}");
            let verified = session.host.verify().await;
            assert!(verified.troubles.is_empty(), "{:?}", verified.troubles);
            let relinked = verified.link.unwrap();
            session.watch.follow(Some(relinked.index));

            assert_ne!(relinked.index, old);
            assert_eq!(relinked.name, session.link.name);
            let packets = relinked.tun.packets().unwrap();
            reaches(&packets, session.link.resolver).await;
            assert_eq!(session.machine.link_state(relinked.index), session.settings);
            assert_eq!(session.machine.link_state(old), "");

            session.host.undo().await.unwrap();
            drop(packets);
            until("the end of the link", async || {
                state().iter().all(|line| !line.contains("/kb"))
            })
            .await;
        },
    );
}

#[test]
fn hosts_lines_that_another_tool_dropped_are_put_back() {
    on_a_machine(
        "drift::hosts_lines_that_another_tool_dropped_are_put_back",
        async |machine| {
            let mut session = session(machine).await;
            run(
                "printf '127.0.0.1 localhost\\n192.0.2.9 other\\n' >/etc/hosts.new; mv /etc/hosts.new /etc/hosts",
            );
            let (causes, repairs) = session.repaired().await;
            assert!(causes.contains(&Cause::Hosts), "{causes:?}");
            assert_eq!(repairs, ["1 lines put back into the hosts file"]);
            session.host.undo().await.unwrap();
            let left = std::fs::read_to_string("/etc/hosts").unwrap();
            assert_eq!(left, "127.0.0.1 localhost\n192.0.2.9 other\n");
        },
    );
}
