//! `Host`: what a session may ask of the operating system, and what it gets back.
//!
//! The same trait serves a root process working on its own machine (`local.rs`), a session whose
//! privileged helper does (`helper.rs`), and the fakes of tests. Nothing here does anything.

use std::future::Future;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::claims::{Claims, ClaimsError, Clash, Withheld};
use crate::dns::DnsError;
use crate::fs::FsError;
use crate::helper::{HelperError, Reported};
use crate::hosts::file::HostsError;
use crate::intent::{Intent, IntentError};
use crate::journal::JournalError;
use crate::link::LinkError;
use crate::net::{IpNet, Ipv4Net};
use crate::recover::Recovered;
use crate::routes::RoutesError;
use crate::tun::Tun;

/// What kind of link a session wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Where to take the link's /30 from; `None` means [`crate::link::DEFAULT_RANGE`].
    pub cidr: Option<Ipv4Net>,
    /// Networks that the /30 must not lie in, beside what the machine itself uses.
    pub avoid: Vec<IpNet>,
    /// The link's MTU, or a smaller one where the system takes no such.
    pub mtu: u16,
    /// Whether the link gets an IPv6 address, where the machine has IPv6.
    #[serde(default)]
    pub v6: bool,
}

/// A session's link, up; dropping it removes the link.
#[derive(Debug)]
pub struct Link {
    /// The interface name, `kb0` and so on.
    pub name: String,
    /// The interface index.
    pub index: u32,
    /// The laptop's own address on the link: the first of the /30.
    pub address: Ipv4Addr,
    /// The laptop's own IPv6 address on the link, if it has one.
    pub address6: Option<Ipv6Addr>,
    /// The local resolver's address: the second of the /30, which leads into the device.
    pub resolver: Ipv4Addr,
    /// The prefix length of both.
    pub prefix: u8,
    /// The MTU.
    pub mtu: u16,
    /// The device.
    pub tun: Tun,
}

/// What applying an intent did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The changes made, one readable phrase each; empty when all was as wanted already.
    pub changes: Vec<String>,
    /// Hosts names that were not written because someone else has them.
    pub conflicts: Vec<HostsConflict>,
    /// Parts of the intent that could not be had.
    pub warnings: Vec<String>,
    /// What another session has, because it came first.
    #[serde(default)]
    pub withheld: Option<Withheld>,
}

/// A hosts name that was not written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostsConflict {
    /// The name.
    pub name: String,
    /// Why it was left out.
    pub reason: String,
}

/// What undoing did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// The changes taken back, one readable phrase each.
    pub changes: Vec<String>,
}

/// What [`Host::verify`] found and did.
#[derive(Debug, Default)]
pub struct Verified {
    /// What had changed and was put back, one readable phrase each; empty when all was as wanted.
    pub repairs: Vec<String>,
    /// The hosts names that are not written because someone else has them, as of now.
    pub conflicts: Vec<HostsConflict>,
    /// What another session has now, because it came first.
    pub withheld: Option<Withheld>,
    /// The link, if it had been removed and was made anew.
    pub link: Option<Relinked>,
    /// What could not be looked at or put back.
    pub troubles: Vec<HostError>,
}

/// A link made anew in the place of one that somebody removed: same addresses, new device.
///
/// The caller reads `tun` instead of the old one; dropping it removes the link.
#[derive(Debug)]
pub struct Relinked {
    /// The interface name, mostly the old one.
    pub name: String,
    /// The new interface index.
    pub index: u32,
    /// The TUN device.
    pub tun: Tun,
}

/// Why the operating system could not be brought where it should be.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Another process of ours has been changing this machine for too long.
    #[error("another kubebridge is changing this machine{}", pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Busy {
        /// It, if it has said so yet.
        pid: Option<u32>,
    },
    /// Another session has what this one claims.
    #[error("{0}")]
    Clash(Box<Clash>),
    /// The claims are not acceptable.
    #[error("claims refused")]
    Claims(#[source] ClaimsError),
    /// The intent itself is not acceptable.
    #[error("intent refused")]
    Intent(#[source] IntentError),
    /// The lock, the folders or the journals of sessions could not be used.
    #[error("preparing the session's files")]
    Files(#[source] FsError),
    /// The journal could not be written.
    #[error("writing the journal")]
    Journal(#[source] JournalError),
    /// The link could not be made.
    #[error("creating the link")]
    Link(#[source] LinkError),
    /// The OS resolver could not be configured.
    #[error("configuring the system's DNS")]
    Dns(#[source] DnsError),
    /// The hosts file could not be written.
    #[error("editing the hosts file")]
    Hosts(#[source] HostsError),
    /// The routes could not be set, or are none that a session may have.
    #[error("setting routes")]
    Routes(#[source] RoutesError),
    /// The session was undone and cannot be used again.
    #[error("the session has ended")]
    Ended,
    /// DNS or routes were to be set before the link was opened.
    #[error("no link is open")]
    NoLink,
    /// A background thread of ours broke.
    #[error("a worker thread failed")]
    Worker,
    /// The privileged helper cannot be worked with.
    #[error(transparent)]
    Helper(#[from] HelperError),
    /// Something went wrong for the privileged helper.
    #[error(transparent)]
    Reported(Reported),
}

/// What an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Another session.
    Busy,
    /// What another session has already.
    Clash,
    /// The intent itself.
    Intent,
    /// Files of ours, the journal among them.
    Files,
    /// The link.
    Link,
    /// The OS resolver.
    Dns,
    /// The hosts file.
    Hosts,
    /// Routes into the link.
    Routes,
    /// The session, which is over.
    Ended,
    /// The program itself.
    Internal,
    /// The privileged helper.
    Helper,
}

impl HostError {
    /// Tells what it is about.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Busy { .. } => Kind::Busy,
            Self::Clash(_) => Kind::Clash,
            Self::Intent(_) | Self::Claims(_) => Kind::Intent,
            Self::Files(_) | Self::Journal(_) => Kind::Files,
            Self::Link(_) => Kind::Link,
            Self::Dns(_) => Kind::Dns,
            Self::Hosts(_) => Kind::Hosts,
            Self::Routes(_) => Kind::Routes,
            Self::Ended => Kind::Ended,
            Self::NoLink | Self::Worker => Kind::Internal,
            Self::Helper(_) => Kind::Helper,
            Self::Reported(reported) => reported.kind(),
        }
    }
}

/// The operating system as a session sees it.
///
/// Order of use: `claim` and `open` once, `apply` as often as the wish changes, `verify` whenever something may
/// have changed behind our back, `undo` once; then the link may be dropped.
pub trait Host: Send {
    /// Undoes what dead sessions left on the machine; before anything else is done.
    fn recover(&mut self) -> impl Future<Output = Result<Vec<Recovered>, HostError>> + Send {
        async { Ok(Vec::new()) }
    }

    /// Takes what the session has for itself, in place of what it claimed before.
    ///
    /// Empty claims give everything up. An error leaves what was claimed before.
    fn claim(&mut self, claims: &Claims) -> impl Future<Output = Result<(), HostError>> + Send {
        let _ = claims;
        async { Ok(()) }
    }

    /// Creates the link.
    ///
    /// Called again it makes another link; the old one must be dropped before.
    fn open(&mut self, spec: &LinkSpec) -> impl Future<Output = Result<Link, HostError>> + Send;

    /// Brings the host to what `intent` says, doing only what is missing.
    fn apply(&mut self, intent: &Intent)
    -> impl Future<Output = Result<Applied, HostError>> + Send;

    /// Holds the host against the last applied intent and puts back only what differs: the link and
    /// its addresses, its routes, its DNS settings, the hosts lines.
    ///
    /// To be called about a second after hosts lines were written (another writer may have won the
    /// last instant) and at each [`crate::watch::Drift`].
    fn verify(&mut self) -> impl Future<Output = Verified> + Send {
        async { Verified::default() }
    }

    /// Takes back everything, in reverse order; harmless when nothing is left.
    fn undo(&mut self) -> impl Future<Output = Result<Undone, HostError>> + Send;

    /// Waits until the machine cannot be changed through this any more, or not for long; for ever
    /// where that cannot happen. May be dropped and called again.
    fn lost(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// How names are resolved on this machine, as far as it matters to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "mode", content = "via")]
pub enum HostDnsMode {
    /// systemd-resolved answers the C library: per-link routing works.
    Resolved(ResolvedVia),
    /// systemd-resolved runs, but the C library goes past it: per-link routing has no effect.
    Bypassed,
    /// Plain `/etc/resolv.conf`.
    Plain,
}

/// How the C library reaches systemd-resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResolvedVia {
    /// By the nss module.
    Nss,
    /// By the stub listener named in `/etc/resolv.conf`.
    Stub,
}

/// The machine's DNS as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDns {
    /// Who resolves.
    pub mode: HostDnsMode,
    /// How that was decided, for `status`.
    pub reasons: Vec<String>,
    /// The original servers, best first; none of them is resolved's stub or ours.
    pub servers: Vec<SocketAddr>,
    /// The original search domains.
    pub search: Vec<String>,
}
