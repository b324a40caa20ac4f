//! A whole session on a real machine: made, undone, and dead at every step.

use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use kubebridge_platform::fault::{Faults, Trouble};
use kubebridge_platform::{Host, LinkSpec, LocalHost, SessionId, Sys, recover};

use crate::machine::{connect, intent, on_a_machine, run, state, until};

#[test]
fn a_session_is_made_and_leaves_no_trace() {
    on_a_machine(
        "session::a_session_is_made_and_leaves_no_trace",
        async |machine| {
            let machine = machine.with_resolved().await;
            let before = state();
            let (mut host, link) = connect(&machine.sys()).await;
            assert!(machine.link_state(link.index).contains("cluster.local"));
            assert_ne!(state(), before);
            host.undo().await.unwrap();
            drop(link);
            until("the end of the link", async || state() == before).await;
        },
    );
}

/// A session that goes through every kind of step.
async fn session(sys: Sys) -> Result<(), kubebridge_platform::HostError> {
    let mut host = LocalHost::new(sys, SessionId::random())?;
    let spec = LinkSpec {
        cidr: None,
        avoid: Vec::new(),
        mtu: 16_000,
    };
    let link = host.open(&spec).await?;
    host.apply(&intent(Some(&link))).await?;
    // Somebody removes the link, and it is made anew.
    run(&format!("ip link del {}", link.name));
    let mut verified = host.verify().await;
    if let Some(trouble) = verified.troubles.pop() {
        return Err(trouble);
    }
    host.undo().await?;
    Ok(())
}

#[test]
fn a_session_that_dies_at_any_step_is_undone_exactly_by_one_recovery() {
    let name = "session::a_session_that_dies_at_any_step_is_undone_exactly_by_one_recovery";
    on_a_machine(name, async |machine| {
        let machine = machine.with_resolved().await;
        // The first session makes folders that stay.
        let faults = Faults::none_but_count();
        let with = |faults: &Faults| Sys {
            faults: faults.clone(),
            ..machine.sys()
        };
        session(machine.sys()).await.unwrap();
        session(with(&faults)).await.unwrap();
        let steps = faults.steps();
        assert!(steps.len() > 60, "{steps:?}");
        until("the end of the link", async || !is_link_there()).await;
        let before = state();
        for (step, died_at) in steps.iter().enumerate() {
            let faults = Faults::at(step, Trouble::Death);
            // Dying at a step that may fail is not noticed by the session.
            drop(session(with(&faults)).await);
            recover(&machine.sys()).await.unwrap();
            let what = format!("the state of the start after death at step {step} ({died_at})");
            until(&what, async || state() == before).await;
            for _ in 0..2 {
                assert_eq!(recover(&machine.sys()).await.unwrap(), []);
                assert_eq!(state(), before, "{step}");
            }
        }
    });
}

#[test]
fn settings_on_a_link_that_outlived_its_session_are_reverted() {
    let name = "session::settings_on_a_link_that_outlived_its_session_are_reverted";
    on_a_machine(name, async |machine| {
        let machine = machine.with_resolved().await;
        let (host, link) = connect(&machine.sys()).await;
        // The device is still held, by a child say, when the session is gone.
        drop(host);
        let recovered = recover(&machine.sys()).await.unwrap();
        assert_eq!(recovered[0].changes.len(), 3, "{recovered:?}");
        assert_eq!(machine.link_state(link.index), "");
        assert!(!state().iter().any(|line| line.contains("10.96.0.0/16")));
    });
}

#[test]
fn a_bus_that_ended_does_not_keep_a_session_from_ending() {
    let name = "session::a_bus_that_ended_does_not_keep_a_session_from_ending";
    on_a_machine(name, async |machine| {
        let mut machine = machine.with_resolved().await;
        let before = state();
        let (mut host, link) = connect(&machine.sys()).await;
        machine.kill_bus();
        host.undo().await.unwrap();
        drop(link);
        until("the state of the start", async || state() == before).await;
    });
}

#[test]
fn a_port_that_another_process_holds_is_named() {
    on_a_machine(
        "session::a_port_that_another_process_holds_is_named",
        async |machine| {
            let before = state();
            let _held = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 53)).unwrap();
            let failed = session(machine.sys()).await.unwrap_err();
            assert!(failed.is_port_busy(), "{failed:?}");
            recover(&machine.sys()).await.unwrap();
            until("the state of the start", async || {
                state()
                    .iter()
                    .filter(|line| !line.contains("/var/lib"))
                    .eq(before.iter())
            })
            .await;
        },
    );
}

#[test]
fn queries_of_this_machine_reach_the_sockets() {
    on_a_machine(
        "session::queries_of_this_machine_reach_the_sockets",
        async |machine| {
            let (_host, link) = {
                let mut host = LocalHost::new(machine.sys(), SessionId::random()).unwrap();
                let spec = LinkSpec {
                    cidr: Some("198.18.7.0/30".parse().unwrap()),
                    avoid: Vec::new(),
                    mtu: 1500,
                };
                let link = host.open(&spec).await.unwrap();
                (host, link)
            };
            assert_eq!(link.resolver, Ipv4Addr::new(198, 18, 7, 2));
            reaches(&link.udp);
            let mut stream = std::net::TcpStream::connect((link.resolver, 53)).unwrap();
            stream.write_all(b"hello").unwrap();
            until("a connection", async || link.tcp.accept().is_ok()).await;
            run("ip route get 198.18.7.2 | grep -q local");
        },
    );
}

fn is_link_there() -> bool {
    state()
        .iter()
        .any(|line| line.starts_with("/sys/class/net/kb"))
}

/// Sends a packet to a socket and sees it arrive.
pub(crate) fn reaches(socket: &UdpSocket) {
    let sender = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    sender
        .send_to(b"hello", socket.local_addr().unwrap())
        .unwrap();
    let socket = socket.try_clone().unwrap();
    socket.set_nonblocking(false).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let mut buffer = [0; 16];
    let (length, _) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"hello");
}
