//! What a session may ask of its helper, and what it is told: the closed list.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::error::{Trouble, Violation};
use crate::claims::{Claims, Withheld};
use crate::host::{Applied, HostsConflict, LinkSpec, Undone};
use crate::intent::Intent;
use crate::recover::Recovered;
use crate::sys::SessionId;

/// A question with its place in the order: 1, 2, 3.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked<R = Request> {
    pub(super) number: u64,
    pub(super) ask: R,
}

/// An operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Request {
    /// Take the machine for a session; the first, and only once.
    Take { session: SessionId },
    /// Undo what dead sessions left.
    Recover,
    /// Claim what the cluster has for the session, in place of what it claimed before.
    Claim(Claims),
    /// Make the link: answered with the device and two sockets.
    Open(LinkSpec),
    /// Bring DNS and hosts lines to what is wanted.
    Apply(Intent),
    /// Put back what somebody changed: answered with a device if the link had to be made anew.
    Verify,
    /// Take everything back; the last.
    Undo,
}

impl Request {
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Take { .. } => "take",
            Self::Recover => "recover",
            Self::Claim(_) => "claim",
            Self::Open(_) => "open",
            Self::Apply(_) => "apply",
            Self::Verify => "verify",
            Self::Undo => "undo",
        }
    }
}

/// What the helper says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Told {
    /// The first thing, to whom it may speak.
    Hello { protocol: u32 },
    /// The answer to the question of that number.
    Answer {
        number: u64,
        outcome: Box<Result<Done, Trouble>>,
    },
    /// The helper undoes everything and ends, because of what it was sent.
    Refused(Violation),
    /// The helper was told to end; the session shall end first.
    Ending,
}

/// An operation that was done.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Done {
    Taken,
    Recovered(Vec<Recovered>),
    Claimed,
    Opened(OpenedLink),
    Applied(Applied),
    Verified(VerifiedMachine),
    Undone(Undone),
}

/// A [`Link`](crate::Link) without its descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OpenedLink {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) address: Ipv4Addr,
    pub(super) address6: Option<Ipv6Addr>,
    pub(super) resolver: Ipv4Addr,
    pub(super) prefix: u8,
    pub(super) mtu: u16,
}

/// A [`Verified`](crate::Verified) without its device.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct VerifiedMachine {
    pub(super) repairs: Vec<String>,
    pub(super) conflicts: Vec<HostsConflict>,
    pub(super) withheld: Option<Withheld>,
    pub(super) link: Option<MadeAnew>,
    pub(super) troubles: Vec<Trouble>,
}

/// A [`Relinked`](crate::Relinked) without its device.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MadeAnew {
    pub(super) name: String,
    pub(super) index: u32,
}
