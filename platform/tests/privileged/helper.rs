//! The privileged helper on a real machine: the same session as a root process makes, by way of a
//! socket.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use kubebridge_platform::fault::{Faults, Trouble};
use kubebridge_platform::helper::{HelperError, Violation, serve};
use kubebridge_platform::host::{HostError, Kind};
use kubebridge_platform::{
    DnsIntent, HelperHost, Host, HostsLine, Intent, Link, LinkSpec, SessionId, Sys, recover,
};
use rustix::process::{Gid, Uid, geteuid};
use tokio::task::JoinHandle;

use crate::machine::{intent, on_a_machine, packets, reaches, run, state, until};

/// A helper in this process, and the session's end of its socket.
fn helper(sys: &Sys) -> (OwnedFd, JoinHandle<Result<(), HelperError>>) {
    let (ours, its) = UnixStream::pair().unwrap();
    let serving = serve(its.into(), sys.clone(), geteuid(), std::future::pending());
    (ours.into(), tokio::spawn(serving))
}

fn spec() -> LinkSpec {
    LinkSpec {
        cidr: None,
        avoid: Vec::new(),
        mtu: 16_000,
        v6: true,
    }
}

#[test]
fn a_session_through_a_helper_is_made_and_leaves_no_trace() {
    let name = "helper::a_session_through_a_helper_is_made_and_leaves_no_trace";
    on_a_machine(name, async |machine| {
        let machine = machine.with_resolved().await;
        let before = state();
        let (socket, serving) = helper(&machine.sys());
        let mut host = HelperHost::start(socket, geteuid()).await.unwrap();
        host.take(&SessionId::random()).await.unwrap();
        assert_eq!(host.recover().await.unwrap(), []);
        let mut link = host.open(&spec()).await.unwrap();
        let device = packets(&mut link);
        let applied = host.apply(&intent(Some(&link))).await.unwrap();
        assert_eq!(applied.warnings, Vec::<String>::new());
        assert!(machine.link_state(link.index).contains("cluster.local"));
        reaches(&device, link.resolver).await;

        run(&format!("ip link del {}", link.name));
        let verified = host.verify().await;
        assert!(verified.troubles.is_empty(), "{:?}", verified.troubles);
        let anew = verified.link.expect("the link was made anew");
        assert!(machine.link_state(anew.index).contains("cluster.local"));
        let anew = anew.tun.packets().unwrap();
        reaches(&anew, link.resolver).await;

        host.undo().await.unwrap();
        drop((device, anew, host));
        until("the end of the link", async || state() == before).await;
        serving.await.unwrap().unwrap();
    });
}

#[test]
fn a_helper_undoes_everything_when_its_session_is_gone() {
    let name = "helper::a_helper_undoes_everything_when_its_session_is_gone";
    on_a_machine(name, async |machine| {
        let machine = machine.with_resolved().await;
        let before = state();
        let (socket, serving) = helper(&machine.sys());
        let mut host = HelperHost::start(socket, geteuid()).await.unwrap();
        host.take(&SessionId::random()).await.unwrap();
        let link = host.open(&spec()).await.unwrap();
        host.apply(&intent(Some(&link))).await.unwrap();
        assert_ne!(state(), before);

        // Somebody still holds the device when the socket is closed.
        drop(host);
        serving.await.unwrap().unwrap();

        until("the state of the start", async || state() == before).await;
        drop(link);
    });
}

/// Whoever may have a helper, and somebody else.
const USER: u32 = 1000;
const OTHER: u32 = 1001;
const ROOT: u32 = 0;

/// Runs `body` on a thread that is another user's, for the kernel and everybody.
fn as_user<T: Send + 'static>(user: u32, body: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_gid(Gid::from_raw(user)).unwrap();
        rustix::thread::set_thread_uid(Uid::from_raw(user)).unwrap();
        body()
    });
    thread.join().unwrap()
}

/// A helper of root for `USER`, on a socket that `maker` made.
fn helper_of_user(sys: &Sys, maker: u32) -> (UnixStream, JoinHandle<Result<(), HelperError>>) {
    let (ours, its) = as_user(maker, || UnixStream::pair().unwrap());
    rustix::net::sockopt::set_socket_passcred(&ours, true).unwrap();
    let serving = serve(
        its.into(),
        sys.clone(),
        Uid::from_raw(USER),
        std::future::pending(),
    );
    (ours, tokio::spawn(serving))
}

#[test]
fn another_user_has_a_whole_session_by_the_helper_of_root() {
    let name = "helper::another_user_has_a_whole_session_by_the_helper_of_root";
    on_a_machine(name, async |machine| {
        let machine = machine.with_resolved().await;
        let before = state();
        let (socket, serving) = helper_of_user(&machine.sys(), USER);
        let session = move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(async {
                let host = HelperHost::start(socket.into(), Uid::ROOT).await;
                let mut host = host.unwrap();
                host.take(&SessionId::random()).await.unwrap();
                let mut link = host.open(&spec()).await.unwrap();
                let device = packets(&mut link);
                host.apply(&intent(Some(&link))).await.unwrap();
                reaches(&device, link.resolver).await;
                host.undo().await.unwrap();
            });
        };
        let of_user = tokio::task::spawn_blocking(|| as_user(USER, session));
        of_user.await.unwrap();
        serving.await.unwrap().unwrap();
        until("the state of the start", async || state() == before).await;
    });
}

#[test]
fn messages_and_sockets_of_another_user_are_refused() {
    let name = "helper::messages_and_sockets_of_another_user_are_refused";
    on_a_machine(name, async |machine| {
        let sys = machine.sys();
        let take = r#"{"number":1,"ask":{"take":{"session":"0a1b2c3d"}}}"#;
        let length = u32::try_from(take.len()).unwrap().to_be_bytes();
        let take = [&length[..], take.as_bytes()].concat();
        let before = state();
        for (maker, sender) in [
            (OTHER, USER),
            (ROOT, USER),
            (USER, OTHER),
            // The helper is not there for root, either.
            (USER, ROOT),
        ] {
            let (mut socket, serving) = helper_of_user(&sys, maker);
            let bytes = take.clone();
            // It may be refused before it is sent.
            let held = as_user(sender, move || {
                drop(socket.write_all(&bytes));
                socket
            });
            let outcome = serving.await.unwrap();
            let Err(HelperError::Violation(Violation::User { expected, found })) = outcome else {
                panic!("{maker:?} {sender:?}: {outcome:?}");
            };
            let wrong = if maker == USER { sender } else { maker };
            assert_eq!((expected, found), (USER, wrong));
            assert_eq!(state(), before);
            drop(held);
        }
    });
}

#[test]
fn wishes_for_what_is_not_the_sessions_are_refused_and_nothing_is_done() {
    let name = "helper::wishes_for_what_is_not_the_sessions_are_refused_and_nothing_is_done";
    on_a_machine(name, async |machine| {
        let machine = machine.with_resolved().await;
        run(
            "ip link add eth0 type veth peer name eth1 && ip addr add 192.0.2.10/24 dev eth0 && ip link set eth0 up",
        );
        let (socket, _serving) = helper(&machine.sys());
        let mut host = HelperHost::start(socket, geteuid()).await.unwrap();
        host.take(&SessionId::random()).await.unwrap();
        let before = state();
        for (cidr, mtu) in [
            ("0.0.0.0/0", 1500),
            ("127.0.0.0/8", 1500),
            ("8.8.8.0/24", 1500),
            ("192.0.2.0/24", 1500),
            ("10.0.0.0/8", 0),
        ] {
            let wish = LinkSpec {
                cidr: Some(cidr.parse().unwrap()),
                avoid: Vec::new(),
                v6: false,
                mtu,
            };
            let refused = host.open(&wish).await.unwrap_err();
            assert_eq!(refused.kind(), Kind::Link, "{cidr} {mtu}: {refused:?}");
            assert_eq!(state(), before);
        }
        let link = host.open(&spec()).await.unwrap();
        let before = state();
        for (what, wish) in foreign_wishes(&link) {
            let refused = host.apply(&wish).await.unwrap_err();
            assert_eq!(refused.kind(), Kind::Intent, "{what}: {refused:?}");
            assert_eq!(state(), before, "{what}");
            assert!(
                !machine.link_state(link.index).contains("DOMAINS"),
                "{what}"
            );
        }
        let shadowing = host
            .apply(&lines(&["localhost", "printer", "www.com"]))
            .await;
        let applied = shadowing.unwrap();
        assert_eq!(applied.conflicts.len(), 3, "{applied:?}");
        assert_eq!(applied.changes, Vec::<String>::new());
        assert_eq!(state(), before);
        host.undo().await.unwrap();
    });
}

fn lines(names: &[&str]) -> Intent {
    let names = names.iter().map(|&name| name.to_owned()).collect();
    Intent {
        hosts: vec![HostsLine {
            address: "10.96.0.7".parse().unwrap(),
            names,
        }],
        ..Intent::default()
    }
}

/// Wishes that a session which means no harm would not have.
fn foreign_wishes(link: &Link) -> Vec<(&'static str, Intent)> {
    let with = |change: fn(&mut DnsIntent)| {
        let mut wish = intent(Some(link));
        if let Some(dns) = &mut wish.dns {
            change(dns);
        }
        wish
    };
    vec![
        ("the root", with(|dns| dns.routes.push(".".to_owned()))),
        ("com", with(|dns| dns.routes.push("com".to_owned()))),
        ("co.uk", with(|dns| dns.search.push("co.uk".to_owned()))),
        ("local", with(|dns| dns.routes.push("local".to_owned()))),
        (
            "every reverse name",
            with(|dns| dns.reverse.push("in-addr.arpa".to_owned())),
        ),
        (
            "another server",
            with(|dns| dns.servers.push("192.0.2.10".parse().unwrap())),
        ),
        (
            "loopback",
            with(|dns| dns.servers = vec!["127.0.0.1".parse().unwrap()]),
        ),
        (
            "10,000 domains",
            with(|dns| dns.namespaces = (0..10_000).map(|n| format!("ns-{n}")).collect()),
        ),
        ("a foreign name", lines(&["mail.corp.example.com"])),
        ("a line that is more", lines(&["a\n192.0.2.66 bank"])),
        ("a comment", lines(&["a # kubebridge:00000000:1"])),
        ("a path", lines(&["../../etc/passwd"])),
    ]
}

/// A session that goes through every kind of step by its helper, to its end or its helper's.
async fn session(sys: &Sys) -> Result<(), HostError> {
    let (socket, serving) = helper(sys);
    let outcome = async {
        let mut host = HelperHost::start(socket, geteuid()).await?;
        host.take(&SessionId::random()).await?;
        let link = host.open(&spec()).await?;
        host.apply(&intent(Some(&link))).await?;
        run(&format!("ip link del {}", link.name));
        let mut verified = host.verify().await;
        if let Some(trouble) = verified.troubles.pop() {
            return Err(trouble);
        }
        host.undo().await.map(drop)
    };
    let outcome = outcome.await;
    // At its end the helper tries to undo; dead as it is, it cannot.
    drop(serving.await.unwrap());
    outcome
}

#[test]
fn a_helper_that_dies_at_any_step_is_undone_exactly_by_one_recovery() {
    let name = "helper::a_helper_that_dies_at_any_step_is_undone_exactly_by_one_recovery";
    on_a_machine(name, async |machine| {
        let machine = machine.with_resolved().await;
        let with = |faults: &Faults| Sys {
            faults: faults.clone(),
            ..machine.sys()
        };
        // The first session makes folders that stay.
        session(&machine.sys()).await.unwrap();
        let faults = Faults::none_but_count();
        session(&with(&faults)).await.unwrap();
        let steps = faults.steps();
        assert!(steps.len() > 60, "{steps:?}");
        let links = async || !state().iter().any(|line| line.contains("/net/kb"));
        until("the end of the link", links).await;
        let before = state();
        // Every step by itself is LocalHost's test; here each third, by way of the helper.
        for (step, died_at) in steps.iter().enumerate().step_by(3) {
            let faults = Faults::at(step, Trouble::Death);
            drop(session(&with(&faults)).await);
            recover(&machine.sys()).await.unwrap();
            let what = format!("the state of the start after death at step {step} ({died_at})");
            until(&what, async || state() == before).await;
        }
    });
}
