//! The story of one resolution: what was asked, which rule applied, who said what when, and why the answer is the answer.
//!
//! [`Trace`] is plain data. The engine fills one only for those who ask for it
//! (`explain/recorder.rs`); what follows from plain data is worked out in `explain/why.rs`, and words
//! are found in `explain/words.rs`. Nothing here takes part in finding an answer.

use std::time::Duration;

use crate::name::{Name, RecordType, ResponseCode};
use crate::upstream::UpstreamSpec;

mod recorder;
mod unasked;
mod why;
mod words;

pub(crate) use recorder::{Asked, Recorder, Recording, note};
pub(crate) use unasked::{note_spared, note_unfit};
pub(crate) use why::{candidate_steps, kept, rule, rulings};

/// What one resolution did, in the order in which it was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// The steps.
    pub steps: Vec<Step>,
    /// How many more there were than are remembered.
    pub left_out: usize,
}

/// Whether a query that is explained may be answered from the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheUse {
    /// As any other query: from the cache, and into it.
    #[default]
    Normal,
    /// Resolved afresh, by itself, and not kept: what is cached stays as it is.
    Bypass,
}

/// One thing that was done or found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The time since the query came in.
    pub at: Duration,
    /// What it was.
    pub event: Event,
}

/// What was done or found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A question came in.
    Question {
        /// The name as asked.
        name: Name,
        /// The type.
        rtype: RecordType,
    },
    /// A packet came in that is no question we answer; its fixed reply, if any, follows.
    NoQuestion,
    /// How the asked name is treated.
    Rule {
        /// The name as asked.
        name: Name,
        /// The rule.
        rule: Rule,
    },
    /// A name that is tried.
    Candidate {
        /// Its place in the order, from 1.
        rank: usize,
        /// The name.
        name: Name,
        /// Whether it waits until all others were negative.
        last: bool,
        /// Whether it lies in the cluster domain, where a failure ends the search.
        inside: bool,
    },
    /// A name that is not tried.
    Skipped {
        /// The name; the search domain when the name would be too long.
        name: Name,
        /// Why not.
        because: Skipped,
    },
    /// What the cache had.
    Cache(CacheState),
    /// Who resolves.
    Flight(Flight),
    /// What our own records say about a name.
    Own {
        /// The name.
        name: Name,
        /// The verdict.
        verdict: OwnVerdict,
    },
    /// What became of asking one upstream about one name.
    Upstream {
        /// The name.
        name: Name,
        /// The upstream.
        upstream: UpstreamSpec,
        /// How long it took.
        took: Duration,
        /// What it said.
        said: Said,
    },
    /// An upstream that was not asked.
    NotAsked {
        /// The name it was not asked about, if it was asked about others.
        name: Option<Name>,
        /// The upstream.
        upstream: UpstreamSpec,
        /// Why not.
        because: NotAsked,
    },
    /// Every other candidate was negative: the ones that come last are asked now.
    LastStage,
    /// A negative waited this long for the other upstreams of its candidate, and counts now.
    WindowOver,
    /// The time for a query was over.
    DeadlineOver,
    /// There was no room for the resolution.
    Shed,
    /// What a candidate came to.
    Ruling {
        /// Its place in the order, from 1.
        rank: usize,
        /// The name.
        name: Name,
        /// The verdict.
        ruling: Ruling,
    },
    /// No candidate decided by itself: what they come to together.
    Verdict(Verdict),
    /// The answer of a candidate was put under the asked name.
    Renamed {
        /// The candidate.
        from: Name,
        /// The asked name.
        to: Name,
    },
    /// Whether the answer is kept, and for how long.
    Kept(Kept),
    /// The answer shows a name that the asker may not see, so it is refused; the steps that
    /// would tell of it are not in the trace.
    Withheld,
    /// The answer.
    Answer {
        /// The response code.
        code: ResponseCode,
        /// The first records of the answer section, as `OWNER TTL TYPE DATA`.
        records: Vec<String>,
        /// How many there are in all.
        count: usize,
    },
}

/// How a name is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A special name, answered by ourselves.
    Special,
    /// It lies in a namespace that is not granted.
    NotGranted,
    /// It is not expanded, and the asker's bare names do not leave.
    BareNotSent,
    /// It is asked as it is.
    NeverExpanded(Absolute),
    /// It has fewer dots than `ndots`: the search list comes first.
    SearchFirst {
        /// The dots of the name.
        dots: usize,
        /// The dots that would make it absolute.
        ndots: u8,
    },
    /// It has at least `ndots` dots: the search list comes after its NXDOMAIN.
    BareFirst {
        /// The dots of the name.
        dots: usize,
        /// The dots that make it absolute.
        ndots: u8,
    },
}

/// Why a name is never expanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absolute {
    /// It is the root.
    Root,
    /// It lies in the cluster domain.
    ClusterDomain,
    /// It is a reverse name.
    Reverse,
    /// It lies in a configured zone.
    Zone,
}

/// Why a name of the search is not tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skipped {
    /// It would have more than 255 octets.
    TooLong,
    /// It lies in a namespace that is not granted.
    NotGranted,
    /// It is another candidate already.
    Repeated,
    /// The asker's bare names do not leave.
    BareNotSent,
    /// Bare names are not sent at all.
    BareNever,
    /// There are too many.
    TooMany,
}

/// What the cache had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheState {
    /// A fresh answer, given.
    Hit {
        /// How old it is.
        age: Duration,
        /// How long it is kept on.
        left: Duration,
    },
    /// A failure that is remembered, given.
    KeptFailure {
        /// How old it is.
        age: Duration,
    },
    /// An answer whose time is over, given because no upstream answers.
    Stale {
        /// How long its time has been over.
        over: Duration,
    },
    /// Nothing fresh.
    Miss,
    /// It was not asked.
    Bypassed,
}

/// Who resolves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flight {
    /// This query does.
    Led,
    /// Another query did, and this one waited for its answer; its steps are not known here.
    Joined,
    /// Nobody: recursion is not desired, so our own records are all there is.
    OwnRecordsOnly,
}

/// What our own records say about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnVerdict {
    /// They have this many records of the type.
    Data(usize),
    /// The name exists without the type.
    NoData,
    /// The name does not exist.
    NxDomain,
    /// The name is an alias.
    Alias(Name),
}

/// What an upstream said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Records of the asked type.
    Data {
        /// How many there are, aliases included.
        records: usize,
    },
    /// The name exists without the type.
    NoData {
        /// How long that may be kept, if it said so.
        ttl: Option<u32>,
    },
    /// The name does not exist.
    NxDomain {
        /// How long that may be kept, if it said so.
        ttl: Option<u32>,
    },
    /// An error code, or a reply that is no answer.
    Unusable(ResponseCode),
    /// Something that is no DNS message for us.
    Malformed,
    /// Nothing; why, in words.
    Nothing(String),
    /// Nothing until its reply no longer mattered.
    Cancelled,
    /// Nothing until the time for the query was over.
    Silent,
}

/// Why an upstream was not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAsked {
    /// One before it had given an answer.
    NotNeeded,
    /// One query may cause only so many.
    Allowance,
    /// It is down, and others are not.
    Down,
    /// It leads back to us.
    Looped,
}

/// What a candidate came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// It has data and wins.
    Wins,
    /// It exists without the type, and that ends the search.
    EndsTheSearch,
    /// It does not exist.
    DoesNotExist,
    /// It is part of the zone's structure and has no data, which counts as "does not exist" in a search.
    Structural,
    /// It failed, and in the cluster domain that ends the search.
    Blocks,
    /// It failed outside the cluster domain: it is passed over, and the answer is not kept.
    PassedOver,
    /// It was still open when the answer of another was taken.
    Open,
    /// It no longer mattered: a better one had decided.
    NotNeeded,
    /// It was never asked.
    NeverAsked,
}

/// What the candidates come to when none decided by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// There are none.
    NothingToTry,
    /// None of them exists.
    NoneExists,
    /// Some do not exist and some failed, or all failed: nothing can be said.
    NoAnswer,
}

/// Whether the answer is kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// For this many seconds.
    For(u32),
    /// A failure, for this many seconds.
    FailureFor(u32),
    /// Not at all.
    Not(NotKept),
}

/// Why an answer is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKept {
    /// A candidate outside the cluster domain failed and was passed over.
    PassedOver,
    /// A negative without an SOA says nothing about how long it holds.
    NoLifetime,
    /// A record has TTL 0.
    ZeroTtl,
    /// The failure is of our own making.
    OwnFailure,
    /// Something it depends on changed while it was being made.
    Overtaken,
    /// The cache was bypassed.
    Bypassed,
}
