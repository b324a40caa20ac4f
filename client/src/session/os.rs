//! The machine as a session uses it: `platform` in production, a fake in tests.

use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use kubebridge_platform::claims::Claims;
use kubebridge_platform::host::{Host, HostDns, HostError, Kind, Link, LinkSpec};
use kubebridge_platform::intent::Intent;
use kubebridge_platform::link::LinkPlan;
use kubebridge_platform::preview::{self, Preview};
use kubebridge_platform::routes::{Known, Taken, read_taken};
use kubebridge_platform::sys::{SessionId, Sys};
use kubebridge_platform::{
    Clock, DriftWatch, Family, HelperHost, Leftover, LocalHost, LookupError, Recovered, leftovers,
    lookup_through_resolved, read_host_dns, recover,
};
use parking_lot::Mutex;
use rustix::process::Uid;

use crate::failure::{Exit, Failure};
use crate::helper::{self, MachineHost, own_runtime};

/// The port of DNS.
const DNS_PORT: u16 = 53;

/// The machine a session runs on.
pub trait Os: Send + Sync {
    /// What changes it.
    type Host: Host + 'static;

    /// Takes the machine for one session; whoever is not root may be asked for a password.
    fn take(&self, session: &SessionId)
    -> impl Future<Output = Result<Self::Host, Failure>> + Send;

    /// Reads how the machine resolves names.
    fn read_dns(&self) -> impl Future<Output = Result<HostDns, Failure>> + Send;

    /// Reads which networks the machine uses, beside those known otherwise.
    fn read_taken(&self, known: &Known) -> impl Future<Output = Result<Taken, Failure>> + Send;

    /// Resolves a name as programs on the machine do, and says what came of it.
    fn resolve(&self, name: &str) -> impl Future<Output = Result<String, Failure>> + Send;

    /// Returns where programs of the machine ask the resolver of a link.
    fn resolver_of(&self, link: &Link) -> SocketAddr {
        (link.resolver, DNS_PORT).into()
    }

    /// Starts noticing what others do to the machine.
    fn watch(&self, clock: Clock) -> DriftWatch;

    /// Returns the clock that counts the time the machine sleeps.
    fn clock(&self) -> Clock;

    /// Returns the folder for sockets and locks.
    fn runtime(&self) -> &Path;
}

/// This machine.
#[derive(Debug)]
pub struct ThisMachine {
    sys: Sys,
    runtime: PathBuf,
    /// The socket of a helper that somebody started for us.
    helper: Mutex<Option<OwnedFd>>,
}

impl Default for ThisMachine {
    fn default() -> Self {
        Self {
            sys: Sys::default(),
            runtime: own_runtime(),
            helper: Mutex::default(),
        }
    }
}

impl ThisMachine {
    /// The machine for a session whose helper is there already ([`helper::start`]).
    #[must_use]
    pub fn with_helper(socket: OwnedFd) -> Self {
        Self {
            helper: Mutex::new(Some(socket)),
            ..Self::default()
        }
    }

    /// Repairs what dead sessions left, and says what that was.
    ///
    /// # Errors
    ///
    /// Not everything could be repaired.
    pub async fn recover(&self) -> Result<Vec<Recovered>, Failure> {
        let recovered = match helper::start().await? {
            None => recover(&self.sys).await,
            Some(socket) => match HelperHost::start(socket, Uid::ROOT).await {
                Ok(mut host) => host.recover().await,
                Err(error) => Err(error.into()),
            },
        };
        recovered.map_err(not_repaired)
    }

    /// Lists what dead sessions left, without repairing it.
    ///
    /// # Errors
    ///
    /// The journals cannot be read.
    pub async fn leftovers(&self) -> Result<Vec<Leftover>, Failure> {
        leftovers(&self.sys).await.map_err(host_failure)
    }
}

/// What `connect --dry-run` asks.
impl ThisMachine {
    /// Plans a link.
    pub(super) async fn plan_link(
        &self,
        session: &SessionId,
        claims: &Claims,
        spec: &LinkSpec,
    ) -> Result<LinkPlan, HostError> {
        preview::plan_link(&self.sys, session, claims, spec).await
    }

    /// Works out what would become of a wish.
    pub(super) async fn preview(
        &self,
        session: &SessionId,
        claims: &Claims,
        wish: Intent,
    ) -> Result<Preview, HostError> {
        preview::preview(&self.sys, session, claims, wish).await
    }
}

impl Os for ThisMachine {
    type Host = MachineHost;

    async fn take(&self, session: &SessionId) -> Result<MachineHost, Failure> {
        let started = self.helper.lock().take();
        let socket = match started {
            Some(socket) => Some(socket),
            None => helper::start().await?,
        };
        let Some(socket) = socket else {
            let host = LocalHost::new(self.sys.clone(), session.clone()).map_err(host_failure)?;
            return Ok(MachineHost::Own(Box::new(host)));
        };
        helper::prepare(&self.runtime)?;
        let host = HelperHost::start(socket, Uid::ROOT).await;
        let mut host = host.map_err(|error| host_failure(error.into()))?;
        host.take(session).await.map_err(host_failure)?;
        Ok(MachineHost::Helper(host))
    }

    async fn read_dns(&self) -> Result<HostDns, Failure> {
        let read = read_host_dns(&self.sys).await;
        read.map_err(|error| os_failure("reading the system's DNS", error))
    }

    async fn read_taken(&self, known: &Known) -> Result<Taken, Failure> {
        let read = read_taken(&self.sys, known).await;
        read.map_err(|error| os_failure("reading the routes of this machine", error))
    }

    async fn resolve(&self, name: &str) -> Result<String, Failure> {
        match lookup_through_resolved(&self.sys, name, Family::V4).await {
            Ok(addresses) => {
                let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                Ok(texts.join(", "))
            }
            Err(error @ (LookupError::NotFound(_) | LookupError::NoData(_))) => {
                Ok(error.to_string())
            }
            Err(error @ LookupError::Failed { .. }) => Err(os_failure("systemd-resolved", error)
                .with_hint("resolvectl status shows what it uses")),
        }
    }

    fn watch(&self, clock: Clock) -> DriftWatch {
        DriftWatch::start(&self.sys, clock)
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn runtime(&self) -> &Path {
        &self.runtime
    }
}

/// Says what helps when something cannot be repaired.
pub(crate) fn not_repaired(error: HostError) -> Failure {
    host_failure(error)
        .context("repairing what a dead session left")
        .with_hint("free the disk or the file it names, then sudo kubebridge recover")
}

/// Gives an error of the host its exit code and what helps.
#[must_use]
pub fn host_failure(error: HostError) -> Failure {
    if let HostError::Clash(clash) = &error {
        let hint = format!("kubebridge disconnect {}", clash.other);
        return Failure::new(Exit::Busy, error).with_hint(hint);
    }
    match error.kind() {
        Kind::Clash => Failure::new(Exit::Busy, error)
            .with_hint("kubebridge disconnect with the id of that session"),
        Kind::Busy => Failure::new(Exit::Busy, error).with_hint("try again when it has ended"),
        Kind::Helper => Failure::new(Exit::HostOs, error)
            .with_hint("sudo kubebridge recover repairs what it may have left"),
        Kind::Intent
        | Kind::Files
        | Kind::Link
        | Kind::Dns
        | Kind::Hosts
        | Kind::Routes
        | Kind::Ended
        | Kind::Internal => Failure::new(Exit::HostOs, error),
    }
}

fn os_failure(
    doing: &'static str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Failure {
    Failure::new(Exit::HostOs, error).context(doing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_refuses_has_its_exit_code_and_what_helps() {
        let table = [
            (
                HostError::Busy { pid: Some(7) },
                Exit::Busy,
                Some("try again"),
            ),
            (HostError::NoLink, Exit::HostOs, None),
        ];
        for (error, exit, hint) in table {
            let failure = host_failure(error);

            assert_eq!(failure.exit, exit, "{failure}");
            let said = failure.hint.as_deref();
            assert_eq!(said.is_some(), hint.is_some(), "{failure}");
            assert!(said.unwrap_or_default().contains(hint.unwrap_or_default()));
        }
    }
}
