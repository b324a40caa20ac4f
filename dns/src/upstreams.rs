//! The one set of upstreams that resolver, forwarder, probers and status share, and what is known about each.
//!
//! The set says which of its members may be asked for a name. How they are asked, all at once or one
//! after the other, is the asker's business (`fanout`, `forward`); what makes one unfit is `health`'s.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::Instant;

use self::board::Board;
use crate::health::Event;
use crate::name::Name;
use crate::upstream::{Upstream, UpstreamSpec};

pub use crate::health::UpstreamState;
pub(crate) use member::Member;

mod board;
mod member;
mod probe;
#[cfg(test)]
mod tests;

/// How the members of a set are watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The time between two probes of an upstream that is down or in doubt; each varies by a tenth.
    pub probe_interval: Duration,
    /// How long a probe waits for a reply.
    pub probe_timeout: Duration,
}

/// Shows what is known about one upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// Tells it from all other upstreams the set ever had.
    pub id: u32,
    /// The upstream as it was configured.
    pub spec: UpstreamSpec,
    /// Whether it is asked.
    pub state: UpstreamState,
    /// Its failures since it last replied.
    pub fails: u32,
    /// The last failure in words; it stays after a recovery.
    pub last_error: Option<String>,
    /// The smoothed round trip.
    pub rtt: Option<Duration>,
    /// When it last replied.
    pub last_ok: Option<Instant>,
    /// The zones for which it leads back to us.
    pub looped_zones: Vec<Name>,
}

/// A set of upstreams in the order they were configured.
pub struct Upstreams {
    settings: Settings,
    members: RwLock<Arc<[Arc<Member>]>>,
    board: Arc<Board>,
    next_id: AtomicU32,
    /// How often the set was replaced.
    replaced: AtomicU64,
}

/// The state of a set's changes; another value means that answers kept under the old one are in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Epoch {
    /// How often the set was replaced.
    pub(crate) replaced: u64,
    /// How often an upstream came back.
    pub(crate) recoveries: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            probe_interval: Duration::from_millis(500),
            probe_timeout: Duration::from_secs(1),
        }
    }
}

impl Upstreams {
    /// Makes a set. Until somebody drives [`Upstreams::run`] no upstream is avoided for being down.
    pub fn new(upstreams: Vec<Arc<dyn Upstream>>, settings: Settings) -> Arc<Self> {
        let set = Self {
            settings,
            members: RwLock::new(Arc::from([])),
            board: Board::new(),
            next_id: AtomicU32::new(1),
            replaced: AtomicU64::new(0),
        };
        set.replace(upstreams);
        Arc::new(set)
    }

    /// Exchanges all upstreams for others, about which nothing is known yet.
    pub fn replace(&self, upstreams: Vec<Arc<dyn Upstream>>) {
        let member = |upstream| {
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            Member::new(id, upstream, Arc::clone(&self.board))
        };
        let next: Arc<[Arc<Member>]> = upstreams.into_iter().map(member).collect();
        let mut members = self.members.write();
        *members = Arc::clone(&next);
        self.replaced.fetch_add(1, Ordering::Release);
        self.board.publish_all(&next);
    }

    /// Follows the statuses, in the order of the configuration.
    ///
    /// A new value comes when a state, the error or the set changes, not with every reply: for
    /// round trips and times ask [`Upstreams::status`].
    pub fn watch(&self) -> watch::Receiver<Arc<[UpstreamStatus]>> {
        self.board.watch()
    }

    /// Returns the statuses as they are now, in the order of the configuration.
    pub fn status(&self) -> Arc<[UpstreamStatus]> {
        let members = self.members();
        members.iter().map(|member| member.status()).collect()
    }

    /// Marks an upstream as one that leads back to us for the names of a zone; `false` when it is gone.
    ///
    /// Of several verdicts about one upstream, that about the longest zone holds for a name.
    pub fn mark_looped(&self, id: u32, zone: &Name) -> bool {
        self.tell(id, Event::Looped(zone.clone()))
    }

    /// Takes note that an upstream does not lead back to us for the names of a zone, whatever holds
    /// for a shorter one; `false` when it is gone.
    pub fn clear_looped(&self, id: u32, zone: &Name) -> bool {
        self.tell(id, Event::NotLooped(zone.clone()))
    }

    /// Returns the members in the order of the configuration.
    pub(crate) fn members(&self) -> Arc<[Arc<Member>]> {
        Arc::clone(&self.members.read())
    }

    /// Returns the members that may be asked for a name.
    pub(crate) fn usable(&self, name: &Name) -> Vec<Arc<Member>> {
        usable(&self.members(), name)
    }

    pub(crate) fn epoch(&self) -> Epoch {
        Epoch {
            replaced: self.replaced.load(Ordering::Acquire),
            recoveries: self.board.recoveries(),
        }
    }

    fn tell(&self, id: u32, event: Event) -> bool {
        let members = self.members();
        let member = members.iter().find(|member| member.id() == id);
        if let Some(member) = member {
            member.tell(event);
        }
        member.is_some()
    }
}

/// Returns those that are not down and do not lead back to us; when all others are down, all that do not
/// lead back to us (design §3, Health). The order stays.
pub(crate) fn usable(members: &[Arc<Member>], name: &Name) -> Vec<Arc<Member>> {
    let mut candidates = members.to_vec();
    candidates.retain(|member| !member.is_looped_for(name));
    if candidates.iter().any(|member| !member.is_avoided()) {
        candidates.retain(|member| !member.is_avoided());
    }
    candidates
}

impl fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.members();
        let specs = members.iter().map(|member| member.spec().to_string());
        f.debug_list().entries(specs).finish()
    }
}
