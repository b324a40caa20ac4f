//! The privileged helper as this program starts it, and as it becomes it.
//!
//! A session of root changes the machine itself. One of another user starts this program once more as
//! root, by `sudo` or `pkexec`, with one end of a socket pair as its standard input: nobody else can
//! have that, there is no path to it, and its arguments are one fixed word. What the two say to each
//! other is `platform`'s.

mod launcher;
mod program;
mod root;
mod runtime;
mod start;

use std::ffi::OsString;

use kubebridge_platform::claims::Claims;
use kubebridge_platform::host::{Applied, Host, HostError, Link, LinkSpec, Undone, Verified};
use kubebridge_platform::intent::Intent;
use kubebridge_platform::{HelperHost, LocalHost, Recovered};
use rustix::process::Uid;

use crate::failure::Failure;

pub(crate) use program::own as safe_program;
pub use root::run;
pub(crate) use runtime::prepare;
pub use runtime::{Runtime, own_runtime, runtimes};
pub use start::start;

/// The only argument a helper is started with. It is no command of the command line: neither
/// environment nor files may say anything to a process of root.
const ARGUMENT: &str = "helper";

/// What follows it when the helper has let go of sudo.
const ALONE: &str = "alone";

/// Which part of a helper this process is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The one that sudo or pkexec started: it starts the other and ends.
    First,
    /// The one that serves.
    Serving,
}

/// Tells whether these arguments make this process a helper.
#[must_use]
pub fn asked(arguments: &[OsString]) -> Option<Part> {
    match arguments {
        [_, only] if only == ARGUMENT => Some(Part::First),
        [_, first, second] if first == ARGUMENT && second == ALONE => Some(Part::Serving),
        _ => None,
    }
}

/// Lists what would start a helper here, in the order to be tried; nothing is started.
///
/// # Errors
///
/// This program may not be run as root by them.
pub(crate) fn launchers() -> Result<Vec<String>, Failure> {
    program::own()?;
    let search = std::env::var_os("PATH");
    let found = launcher::Launcher::all(search.as_deref(), false);
    Ok(found
        .iter()
        .map(|one| one.path().display().to_string())
        .collect())
}

/// What changes the machine: this process, or its helper.
#[derive(Debug)]
pub enum MachineHost {
    /// This process, which is root's.
    Own(Box<LocalHost>),
    /// The helper.
    Helper(HelperHost),
}

impl Host for MachineHost {
    async fn recover(&mut self) -> Result<Vec<Recovered>, HostError> {
        match self {
            Self::Own(host) => host.recover().await,
            Self::Helper(host) => host.recover().await,
        }
    }

    async fn claim(&mut self, claims: &Claims) -> Result<(), HostError> {
        match self {
            Self::Own(host) => host.claim(claims).await,
            Self::Helper(host) => host.claim(claims).await,
        }
    }

    async fn open(&mut self, spec: &LinkSpec) -> Result<Link, HostError> {
        match self {
            Self::Own(host) => host.open(spec).await,
            Self::Helper(host) => host.open(spec).await,
        }
    }

    async fn apply(&mut self, intent: &Intent) -> Result<Applied, HostError> {
        match self {
            Self::Own(host) => host.apply(intent).await,
            Self::Helper(host) => host.apply(intent).await,
        }
    }

    async fn verify(&mut self) -> Verified {
        match self {
            Self::Own(host) => host.verify().await,
            Self::Helper(host) => host.verify().await,
        }
    }

    async fn undo(&mut self) -> Result<Undone, HostError> {
        match self {
            Self::Own(host) => host.undo().await,
            Self::Helper(host) => match host.undo().await {
                Err(error) if host.is_gone() => another_undoes().await.unwrap_or(Err(error)),
                outcome => outcome,
            },
        }
    }

    async fn lost(&mut self) {
        match self {
            Self::Own(host) => host.lost().await,
            Self::Helper(host) => host.lost().await,
        }
    }
}

/// Has another helper undo what one that died has left, as after a crash; `None` if there is none
/// without asking somebody.
async fn another_undoes() -> Option<Result<Undone, HostError>> {
    let socket = start::without_asking().await?;
    let mut host = HelperHost::start(socket, Uid::ROOT).await.ok()?;
    let recovered = host.recover().await;
    Some(recovered.map(|recovered| Undone {
        changes: recovered.into_iter().flat_map(|one| one.changes).collect(),
    }))
}
