//! A machine that only writes down what is done to it, with real sockets on loopback.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use kubebridge_platform::clock::Sleeper;
use kubebridge_platform::host::{
    Applied, Host, HostDns, HostDnsMode, HostError, Link, LinkSpec, ResolvedVia, Undone, Verified,
};
use kubebridge_platform::intent::Intent;
use kubebridge_platform::routes::{Known, Taken};
use kubebridge_platform::sys::SessionId;
use kubebridge_platform::{Clock, DriftWatch, Recovered, Sys};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::failure::{Exit, Failure};
use crate::session::os::Os;

/// What was done to the machine, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Deed {
    Recovered,
    Opened,
    Applied(Intent),
    Resolved,
    Undone,
}

/// A machine of our own.
#[derive(Debug)]
pub(crate) struct FakeOs {
    pub(crate) runtime: tempfile::TempDir,
    pub(crate) mode: HostDnsMode,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) search: Vec<String>,
    /// What the machine uses already.
    pub(crate) taken: Mutex<Taken>,
    pub(crate) failing: Option<&'static str>,
    /// What panics instead of being done.
    pub(crate) panicking: Option<&'static str>,
    clock: Clock,
    pub(crate) sleeper: Sleeper,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    deeds: Mutex<Vec<Deed>>,
    /// The resolver's address, and the intent in force.
    resolver: watch::Sender<Option<SocketAddr>>,
    intent: watch::Sender<Intent>,
    /// What the next verification says, and how many there were.
    verified: Mutex<Verified>,
    verifications: watch::Sender<usize>,
}

impl FakeOs {
    pub(crate) fn new(servers: Vec<SocketAddr>) -> Self {
        let runtime = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(runtime.path().join("root/etc")).unwrap();
        std::fs::write(runtime.path().join("root/etc/hosts"), "").unwrap();
        let (clock, sleeper) = Clock::fake();
        Self {
            runtime,
            mode: HostDnsMode::Resolved(ResolvedVia::Nss),
            servers,
            search: Vec::new(),
            taken: Mutex::default(),
            failing: None,
            panicking: None,
            clock,
            sleeper,
            shared: Arc::new(Shared {
                deeds: Mutex::default(),
                verified: Mutex::default(),
                verifications: watch::Sender::new(0),
                resolver: watch::Sender::new(None),
                intent: watch::Sender::new(Intent::default()),
            }),
        }
    }

    pub(crate) fn deeds(&self) -> Vec<Deed> {
        self.shared.deeds.lock().clone()
    }

    pub(crate) fn resolver(&self) -> watch::Receiver<Option<SocketAddr>> {
        self.shared.resolver.subscribe()
    }

    pub(crate) fn intent(&self) -> watch::Receiver<Intent> {
        self.shared.intent.subscribe()
    }

    /// Has the next verification say this.
    pub(crate) fn will_verify(&self, verified: Verified) {
        *self.shared.verified.lock() = verified;
    }

    pub(crate) fn verifications(&self) -> watch::Receiver<usize> {
        self.shared.verifications.subscribe()
    }

    /// Writes to the hosts file like any other program.
    pub(crate) fn disturb(&self) {
        let hosts = self.runtime.path().join("root/etc/hosts");
        std::fs::write(hosts, "192.0.2.1 other\n").unwrap();
    }

    fn outcome(&self, deed: &'static str) -> Result<(), Failure> {
        assert_ne!(self.panicking, Some(deed), "a test");
        if self.failing == Some(deed) {
            return Err(Failure::message(Exit::HostOs, "refused by the test"));
        }
        Ok(())
    }
}

impl Os for FakeOs {
    type Host = FakeHost;

    async fn take(&self, _session: &SessionId) -> Result<FakeHost, Failure> {
        self.outcome("take")?;
        Ok(FakeHost {
            shared: Arc::clone(&self.shared),
            failing: self.failing,
            panicking: self.panicking,
        })
    }

    async fn read_dns(&self) -> Result<HostDns, Failure> {
        self.outcome("read dns")?;
        Ok(HostDns {
            mode: self.mode,
            reasons: vec!["a fake".to_owned()],
            servers: self.servers.clone(),
            search: self.search.clone(),
        })
    }

    async fn read_taken(&self, _known: &Known) -> Result<Taken, Failure> {
        self.outcome("read routes")?;
        Ok(self.taken.lock().clone())
    }

    async fn resolve(&self, _name: &str) -> Result<String, Failure> {
        self.shared.deeds.lock().push(Deed::Resolved);
        self.outcome("resolve").map(|()| "10.96.0.1".to_owned())
    }

    fn resolver_of(&self, _link: &Link) -> SocketAddr {
        self.shared.resolver.borrow().unwrap()
    }

    fn watch(&self, clock: Clock) -> DriftWatch {
        let sys = Sys {
            root: self.runtime.path().join("root"),
            bus_address: Some("unix:path=/nonexistent".to_owned()),
            ..Sys::default()
        };
        DriftWatch::start(&sys, clock)
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn runtime(&self) -> &Path {
        self.runtime.path()
    }
}

/// What changes the machine.
#[derive(Debug)]
pub(crate) struct FakeHost {
    shared: Arc<Shared>,
    failing: Option<&'static str>,
    panicking: Option<&'static str>,
}

impl FakeHost {
    fn outcome(&self, deed: &'static str) -> Result<(), HostError> {
        if self.failing == Some(deed) {
            Err(HostError::Worker)
        } else {
            Ok(())
        }
    }
}

impl Host for FakeHost {
    async fn recover(&mut self) -> Result<Vec<Recovered>, HostError> {
        self.shared.deeds.lock().push(Deed::Recovered);
        assert_ne!(self.panicking, Some("recover"), "a test");
        self.outcome("recover").map(|()| Vec::new())
    }

    async fn open(&mut self, _spec: &LinkSpec) -> Result<Link, HostError> {
        self.shared.deeds.lock().push(Deed::Opened);
        self.outcome("open")?;
        let (link, resolver) = super::fake_link::link();
        self.shared.resolver.send_replace(Some(resolver));
        Ok(link)
    }

    async fn apply(&mut self, intent: &Intent) -> Result<Applied, HostError> {
        self.shared.deeds.lock().push(Deed::Applied(intent.clone()));
        self.outcome("apply")?;
        self.shared.intent.send_replace(intent.clone());
        Ok(Applied {
            changes: vec!["a change".to_owned()],
            ..Applied::default()
        })
    }

    async fn verify(&mut self) -> Verified {
        self.shared.verifications.send_modify(|count| *count += 1);
        std::mem::take(&mut *self.shared.verified.lock())
    }

    async fn undo(&mut self) -> Result<Undone, HostError> {
        self.shared.deeds.lock().push(Deed::Undone);
        self.outcome("undo")?;
        self.shared.intent.send_replace(Intent::default());
        Ok(Undone::default())
    }
}
