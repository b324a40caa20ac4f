//! The privileged helper on a real machine: the same session as a root process makes, by way of a
//! socket.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use kubebridge_platform::helper::{HelperError, serve};
use kubebridge_platform::{HelperHost, Host, LinkSpec, SessionId, Sys};
use rustix::process::geteuid;
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
