//! Both ends over a real socket, on a machine that is a folder: no root, no link, hosts lines only.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::process::{Uid, geteuid};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::error::Violation;
use super::frame::{Descriptors, Frames};
use super::*;
use crate::fault::Faults;
use crate::host::{Host, HostError, Kind};
use crate::intent::{DnsIntent, HostsLine, Intent};
use crate::sys::{SessionId, Sys};

mod rules;

const HOSTS: &str = "127.0.0.1 localhost\n192.0.2.7 printer\n";

type Serving = JoinHandle<Result<(), HelperError>>;

/// A machine that is a folder, with a hosts file.
struct Machine {
    folder: tempfile::TempDir,
    sys: Sys,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("root/etc")).unwrap();
        std::fs::write(at("root/etc/hosts"), HOSTS).unwrap();
        let sys = Sys {
            root: at("root"),
            bus_address: Some("unix:path=/nonexistent".to_owned()),
            state_dir: at("state"),
            runtime_dir: at("run"),
            faults: Faults::default(),
        };
        Self { folder, sys }
    }

    /// Starts a helper, and gives the session's end of its socket.
    fn helper(&self) -> (OwnedFd, Serving) {
        self.helper_until(std::future::pending())
    }

    fn helper_until(
        &self,
        told_to_end: impl Future<Output = ()> + Send + 'static,
    ) -> (OwnedFd, Serving) {
        let (ours, its) = UnixStream::pair().unwrap();
        let serving = serve(its.into(), self.sys.clone(), geteuid(), told_to_end);
        (ours.into(), tokio::spawn(serving))
    }

    async fn session(&self) -> (HelperHost, Serving) {
        let (socket, serving) = self.helper();
        let mut host = HelperHost::start(socket, geteuid()).await.unwrap();
        host.take(&SessionId::random()).await.unwrap();
        (host, serving)
    }

    fn hosts(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("root/etc/hosts")).unwrap()
    }

    fn must_be_untouched(&self) {
        assert_eq!(self.hosts(), HOSTS);
        let journals = std::fs::read_dir(self.sys.journals());
        assert_eq!(journals.map_or(0, Iterator::count), 0, "journals are left");
    }
}

fn authors() -> Intent {
    let names = vec!["authors".to_owned(), "printer".to_owned()];
    let address = "10.96.0.7".parse().unwrap();
    Intent::new(None, vec![HostsLine { address, names }]).unwrap()
}

#[tokio::test]
async fn a_helper_does_what_it_is_asked_and_undoes_it() {
    let machine = Machine::new();
    let (mut host, serving) = machine.session().await;
    assert_eq!(host.recover().await.unwrap(), []);

    let applied = host.apply(&authors()).await.unwrap();

    assert_eq!(applied.changes, ["1 lines in the hosts file"]);
    assert_eq!(applied.conflicts[0].name, "printer");
    assert!(machine.hosts().contains("10.96.0.7\tauthors #"));
    std::fs::write(machine.folder.path().join("root/etc/hosts"), HOSTS).unwrap();
    let verified = host.verify().await;
    assert_eq!(verified.repairs, ["1 lines put back into the hosts file"]);
    host.undo().await.unwrap();
    machine.must_be_untouched();
    drop(host);
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_session_that_is_gone_is_undone() {
    let machine = Machine::new();
    let (mut host, serving) = machine.session().await;
    host.apply(&authors()).await.unwrap();

    drop(host);

    serving.await.unwrap().unwrap();
    machine.must_be_untouched();
}

#[tokio::test]
async fn the_machine_is_free_as_soon_as_the_helper_says_undone() {
    let machine = Machine::new();
    let (mut first, _serving) = machine.session().await;
    first.undo().await.unwrap();

    let (mut second, _serving) = machine.session().await;

    assert!(second.apply(&authors()).await.is_ok());
}

#[tokio::test]
async fn an_error_arrives_with_its_kind_and_every_cause() {
    let machine = Machine::new();
    let (mut host, _serving) = machine.session().await;
    let foreign = Intent {
        hosts: vec![HostsLine {
            address: "10.96.0.7".parse().unwrap(),
            names: vec!["www.example.com".to_owned()],
        }],
        ..Intent::default()
    };

    let error = host.apply(&foreign).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Intent);
    assert_eq!(error.to_string(), "intent refused");
    let cause = std::error::Error::source(&error).unwrap();
    assert!(cause.to_string().contains("www.example.com"), "{cause}");
    // Nothing is done, and the session goes on.
    assert_eq!(machine.hosts(), HOSTS);
    let dns = DnsIntent {
        servers: vec!["198.19.248.2".parse().unwrap()],
        ..DnsIntent::default()
    };
    let without_link = Intent::new(Some(dns), Vec::new()).unwrap();
    let error = host.apply(&without_link).await.unwrap_err();
    assert!(matches!(error, HostError::NoLink), "{error:?}");
}

#[tokio::test]
async fn a_call_that_is_dropped_half_way_does_not_disturb_the_next() {
    let machine = Machine::new();
    let (mut host, _serving) = machine.session().await;
    {
        let intent = authors();
        let mut call = Box::pin(host.apply(&intent));
        // It is sent, and nobody waits for the answer.
        assert!(futures::poll!(call.as_mut()).is_pending());
    }

    let undone = host.undo().await.unwrap();

    assert_eq!(undone.changes, ["lines removed from the hosts file"]);
    machine.must_be_untouched();
}

#[tokio::test]
async fn a_helper_that_is_told_to_end_lets_its_session_end_first() {
    let machine = Machine::new();
    let (end, told) = tokio::sync::oneshot::channel::<()>();
    let (socket, serving) = machine.helper_until(async {
        drop(told.await);
    });
    let mut host = HelperHost::start(socket, geteuid()).await.unwrap();
    host.take(&SessionId::random()).await.unwrap();
    host.apply(&authors()).await.unwrap();

    end.send(()).unwrap();
    host.lost().await;

    assert!(!host.is_gone());
    host.apply(&Intent::default()).await.unwrap();
    assert_eq!(machine.hosts(), HOSTS);
    host.undo().await.unwrap();
    drop(host);
    serving.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_session_that_does_not_end_with_its_helper_is_undone_anyway() {
    let machine = Machine::new();
    let (socket, serving) = machine.helper_until(std::future::ready(()));
    let mut host = HelperHost::start(socket, geteuid()).await.unwrap();
    host.take(&SessionId::random()).await.unwrap();
    host.apply(&authors()).await.unwrap();

    serving.await.unwrap().unwrap();

    machine.must_be_untouched();
    host.lost().await;
    let error = host.verify().await.troubles.pop().unwrap();
    assert_eq!(error.kind(), Kind::Helper);
    assert!(host.is_gone());
}

#[tokio::test]
async fn a_helper_that_dies_is_noticed_and_nothing_hangs() {
    let machine = Machine::new();
    let (mut host, serving) = machine.session().await;
    serving.abort();

    host.lost().await;

    assert!(host.is_gone());
    let error = host.undo().await.unwrap_err();
    assert!(
        matches!(error, HostError::Helper(HelperError::Gone)),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_session_takes_no_other_program_for_its_helper() {
    let (ours, its) = UnixStream::pair().unwrap();
    let mut helper = Frames::new(its.into(), geteuid(), Descriptors::Refused).unwrap();
    helper
        .send(&json!({"hello": {"protocol": 99}}), &[])
        .await
        .unwrap();
    let refused = HelperHost::start(ours.into(), geteuid()).await;
    assert!(
        matches!(refused, Err(HelperError::Version(99))),
        "{refused:?}"
    );

    let (ours, its) = UnixStream::pair().unwrap();
    let mut helper = Frames::new(its.into(), geteuid(), Descriptors::Refused).unwrap();
    helper
        .send(&json!({"hello": {"protocol": 1}}), &[])
        .await
        .unwrap();
    // Whoever runs these tests is not that user.
    let other = Uid::from_raw(geteuid().as_raw() + 1);
    let refused = HelperHost::start(ours.into(), other).await;
    let is_about_user =
        |error: &HelperError| matches!(error, HelperError::Violation(Violation::User { .. }));
    assert!(refused.as_ref().is_err_and(is_about_user), "{refused:?}");
}
