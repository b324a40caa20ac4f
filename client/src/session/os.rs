//! The machine as a session uses it: `platform` in production, a fake in tests.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kubebridge_platform::host::{Host, HostDns, HostError, Link};
use kubebridge_platform::routes::{Known, Taken, read_taken};
use kubebridge_platform::sys::{SessionId, Sys};
use kubebridge_platform::{
    Clock, DriftWatch, Family, Leftover, LocalHost, LookupError, Recovered, leftovers,
    lookup_through_resolved, read_host_dns, recover,
};

use rustix::process::{Uid, geteuid};

use crate::failure::{Exit, Failure};

/// The port of DNS.
const DNS_PORT: u16 = 53;

/// The machine a session runs on.
pub trait Os: Send + Sync {
    /// What changes it.
    type Host: Host + 'static;

    /// Repairs what dead sessions left, and says what that was.
    fn recover(&self) -> impl Future<Output = Result<Vec<Recovered>, Failure>> + Send;

    /// Gets hold of the machine for one session.
    ///
    /// # Errors
    ///
    /// This user may not.
    fn take(&self, session: &SessionId) -> Result<Self::Host, Failure>;

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
#[derive(Clone, Debug, Default)]
pub struct ThisMachine {
    sys: Sys,
}

impl ThisMachine {
    /// Lists what dead sessions left, without repairing it.
    ///
    /// # Errors
    ///
    /// The journals cannot be read.
    pub async fn leftovers(&self) -> Result<Vec<Leftover>, Failure> {
        leftovers(&self.sys).await.map_err(host_failure)
    }
}

fn check_privilege(user: Uid) -> Result<(), Failure> {
    if user.is_root() {
        return Ok(());
    }
    Err(Failure::message(
        Exit::Privilege,
        "only root may change this machine's DNS and hosts file",
    )
    .with_hint("run the same command with sudo"))
}

impl Os for ThisMachine {
    type Host = LocalHost;

    async fn recover(&self) -> Result<Vec<Recovered>, Failure> {
        check_privilege(geteuid())?;
        recover(&self.sys).await.map_err(|error| {
            host_failure(error)
                .context("repairing what a dead session left")
                .with_hint("free the disk or the file it names, then sudo kubebridge recover")
        })
    }

    fn take(&self, session: &SessionId) -> Result<LocalHost, Failure> {
        check_privilege(geteuid())?;
        LocalHost::new(self.sys.clone(), session.clone()).map_err(host_failure)
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
        &self.sys.runtime_dir
    }
}

/// Returns where the sessions of this machine have their sockets.
#[must_use]
pub fn runtime() -> PathBuf {
    Sys::default().runtime_dir
}

/// Gives an error of the host its exit code and what helps.
#[must_use]
pub fn host_failure(error: HostError) -> Failure {
    let hint = match &error {
        HostError::Busy { .. } => Some("try again when it has ended".to_owned()),
        HostError::Clash(clash) => Some(format!("kubebridge disconnect {}", clash.other)),
        HostError::Claims(_)
        | HostError::Intent(_)
        | HostError::Files(_)
        | HostError::Journal(_)
        | HostError::Link(_)
        | HostError::Dns(_)
        | HostError::Hosts(_)
        | HostError::Routes(_)
        | HostError::NoLink
        | HostError::Worker
        | HostError::Ended => None,
    };
    match hint {
        Some(hint) => Failure::new(Exit::Busy, error).with_hint(hint),
        None => Failure::new(Exit::HostOs, error),
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
    fn whoever_is_not_root_is_told_so_before_anything_is_done() {
        let failure = check_privilege(Uid::from_raw(1000)).unwrap_err();

        assert_eq!(failure.exit, Exit::Privilege);
        assert!(failure.hint.is_some());
        assert!(check_privilege(Uid::ROOT).is_ok());
    }

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
