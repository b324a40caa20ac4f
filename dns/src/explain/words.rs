//! The words for a trace: each step as a stage, what it is about, and what came of it. Pure.
//!
//! Stages are few and stable, since programs sort by them; outcomes are for people.

use std::time::Duration;

use super::{
    Absolute, CacheState, Event, Flight, Kept, NotAsked, NotKept, OwnVerdict, Rule, Ruling, Said,
    Skipped, Verdict,
};
use crate::name::{Name, ResponseCode};
use crate::upstream::UpstreamSpec;

impl Event {
    /// The part of the way it belongs to, one word.
    pub fn stage(&self) -> &'static str {
        match self {
            Self::Question { .. } | Self::NoQuestion => "question",
            Self::Rule { .. } => "rule",
            Self::Candidate { .. } => "candidate",
            Self::Skipped { .. } => "skipped",
            Self::Cache(_) => "cache",
            Self::Flight(_) | Self::Shed => "flight",
            Self::Own { .. } => "records",
            Self::Upstream { .. } | Self::NotAsked { .. } => "upstream",
            Self::LastStage
            | Self::WindowOver
            | Self::DeadlineOver
            | Self::Ruling { .. }
            | Self::Verdict(_) => "settle",
            Self::Renamed { .. } => "rewrite",
            Self::Kept(_) => "store",
            Self::Withheld => "access",
            Self::Answer { .. } => "answer",
        }
    }

    /// The name it is about.
    pub fn name(&self) -> Option<&Name> {
        match self {
            Self::Question { name, .. }
            | Self::Rule { name, .. }
            | Self::Candidate { name, .. }
            | Self::Skipped { name, .. }
            | Self::Own { name, .. }
            | Self::Upstream { name, .. }
            | Self::Ruling { name, .. } => Some(name),
            Self::Renamed { from, .. } => Some(from),
            Self::NotAsked { name, .. } => name.as_ref(),
            Self::NoQuestion
            | Self::Cache(_)
            | Self::Flight(_)
            | Self::LastStage
            | Self::WindowOver
            | Self::DeadlineOver
            | Self::Shed
            | Self::Verdict(_)
            | Self::Kept(_)
            | Self::Withheld
            | Self::Answer { .. } => None,
        }
    }

    /// The upstream it is about.
    pub fn upstream(&self) -> Option<&UpstreamSpec> {
        if let Self::Upstream { upstream, .. } | Self::NotAsked { upstream, .. } = self {
            Some(upstream)
        } else {
            None
        }
    }

    /// How long it took, where that is known.
    pub fn took(&self) -> Option<Duration> {
        if let Self::Upstream { took, .. } = self {
            Some(*took)
        } else {
            None
        }
    }

    /// The response code it brought, where it did.
    pub fn code(&self) -> Option<ResponseCode> {
        if let Self::Upstream { said, .. } = self {
            said.code()
        } else if let Self::Answer { code, .. } = self {
            Some(*code)
        } else {
            None
        }
    }

    /// The place of the candidate it is about in the order, from 1.
    pub fn rank(&self) -> Option<usize> {
        if let Self::Candidate { rank, .. } | Self::Ruling { rank, .. } = self {
            Some(*rank)
        } else {
            None
        }
    }

    /// Whether it is the step that made the answer what it is.
    pub fn decides(&self) -> bool {
        match self {
            Self::Rule { rule, .. } => match rule {
                Rule::Special | Rule::NotGranted | Rule::BareNotSent => true,
                Rule::NeverExpanded(_) | Rule::SearchFirst { .. } | Rule::BareFirst { .. } => false,
            },
            Self::Cache(state) => match state {
                CacheState::Hit { .. }
                | CacheState::KeptFailure { .. }
                | CacheState::Stale { .. } => true,
                CacheState::Miss | CacheState::Bypassed => false,
            },
            Self::Flight(flight) => match flight {
                Flight::Joined | Flight::OwnRecordsOnly => true,
                Flight::Led => false,
            },
            Self::Ruling { ruling, .. } => match ruling {
                Ruling::Wins | Ruling::EndsTheSearch | Ruling::Blocks => true,
                Ruling::DoesNotExist
                | Ruling::Structural
                | Ruling::PassedOver
                | Ruling::Open
                | Ruling::NotNeeded
                | Ruling::NeverAsked => false,
            },
            Self::NoQuestion | Self::Shed | Self::Verdict(_) | Self::Withheld => true,
            Self::Question { .. }
            | Self::Candidate { .. }
            | Self::Skipped { .. }
            | Self::Own { .. }
            | Self::Upstream { .. }
            | Self::NotAsked { .. }
            | Self::LastStage
            | Self::WindowOver
            | Self::DeadlineOver
            | Self::Renamed { .. }
            | Self::Kept(_)
            | Self::Answer { .. } => false,
        }
    }

    /// What came of it.
    pub fn outcome(&self) -> String {
        match self {
            Self::Question { rtype, .. } => rtype.to_string(),
            Self::NoQuestion => "no question that can be resolved".to_owned(),
            Self::Rule { rule, .. } => rule.words(),
            Self::Candidate { last, inside, .. } => candidate(*last, *inside).to_owned(),
            Self::Skipped { because, .. } => because.words().to_owned(),
            Self::Cache(state) => state.words(),
            Self::Flight(flight) => flight.words().to_owned(),
            Self::Own { verdict, .. } => verdict.words(),
            Self::Upstream { said, .. } => said.words(),
            Self::NotAsked { because, .. } => because.words().to_owned(),
            Self::LastStage => "all were negative: the bare name is asked last".to_owned(),
            Self::WindowOver => "a negative has waited long enough for silent upstreams".to_owned(),
            Self::DeadlineOver => "the time for a query is over".to_owned(),
            Self::Shed => "shed: too many resolutions are under way".to_owned(),
            Self::Ruling { ruling, .. } => ruling.words().to_owned(),
            Self::Verdict(verdict) => verdict.words().to_owned(),
            Self::Renamed { to, .. } => format!("given under the asked name {to}"),
            Self::Kept(kept) => kept.words(),
            Self::Withheld => {
                "the answer leads into a namespace that is not granted: refused".to_owned()
            }
            Self::Answer {
                code,
                records,
                count,
            } => answer(*code, records, *count),
        }
    }
}

fn records(count: usize) -> String {
    match count {
        1 => "1 record".to_owned(),
        count => format!("{count} records"),
    }
}

fn candidate(last: bool, inside: bool) -> &'static str {
    match (last, inside) {
        (false, true) => "asked at once; a failure here ends the search",
        (false, false) => "asked at once",
        (true, true) => "asked when all others were negative; a failure here ends the search",
        (true, false) => "asked when all others were negative",
    }
}

fn answer(code: ResponseCode, records: &[String], count: usize) -> String {
    if count == 0 {
        return format!("{code}, no records");
    }
    let more = match count - records.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{code}: {}{more}", records.join("; "))
}

impl Rule {
    fn words(self) -> String {
        match self {
            Self::Special => "a special name, answered here".to_owned(),
            Self::NotGranted => "refused: in a namespace that is not granted".to_owned(),
            Self::BareNotSent => "refused: not a name that is sent from here".to_owned(),
            Self::NeverExpanded(why) => format!("asked as it is: {}", why.words()),
            Self::SearchFirst { dots, ndots } => {
                format!("search list first: fewer dots ({dots}) than ndots ({ndots})")
            }
            Self::BareFirst { dots, ndots } => {
                format!(
                    "as it is first, then the search list: as many dots ({dots}) as ndots ({ndots})"
                )
            }
        }
    }
}

impl Absolute {
    fn words(self) -> &'static str {
        match self {
            Self::Root => "the root",
            Self::ClusterDomain => "in the cluster domain",
            Self::Reverse => "a reverse name",
            Self::Zone => "in a configured zone",
        }
    }
}

impl Skipped {
    fn words(self) -> &'static str {
        match self {
            Self::TooLong => "the name would be longer than 255 octets under this domain",
            Self::NotGranted => "in a namespace that is not granted",
            Self::Repeated => "is tried already",
            Self::BareNotSent => "bare names outside the cluster are not sent from here",
            Self::BareNever => "bare names are not sent (--bare-single-label never)",
            Self::TooMany => "too many candidates",
        }
    }
}

impl CacheState {
    fn words(self) -> String {
        match self {
            Self::Hit { age, left } => {
                let (age, left) = (age.as_secs(), left.as_secs());
                format!("hit: {age} s old, kept {left} s more")
            }
            Self::KeptFailure { age } => {
                format!("a failure of {} ms ago is remembered", age.as_millis())
            }
            Self::Stale { over } => {
                let over = over.as_secs();
                format!("stale: its time was over {over} s ago, and no upstream answers")
            }
            Self::Miss => "miss".to_owned(),
            Self::Bypassed => "not asked: a fresh answer is wanted".to_owned(),
        }
    }
}

impl Flight {
    fn words(self) -> &'static str {
        match self {
            Self::Led => "led: resolved for this query",
            Self::Joined => "joined: another query was resolving the same; its steps are not known",
            Self::OwnRecordsOnly => "none: recursion is not desired, own records alone",
        }
    }
}

impl OwnVerdict {
    fn words(&self) -> String {
        match self {
            Self::Data(count) => format!("{}, from the Services", records(*count)),
            Self::NoData => "NODATA, from the Services".to_owned(),
            Self::NxDomain => "NXDOMAIN, from the Services".to_owned(),
            Self::Alias(target) => format!("an alias of {target}, from the Services"),
        }
    }
}

impl Said {
    /// The response code, where there was a reply.
    pub fn code(&self) -> Option<ResponseCode> {
        match self {
            Self::Data { .. } | Self::NoData { .. } => Some(ResponseCode::NOERROR),
            Self::NxDomain { .. } => Some(ResponseCode::NXDOMAIN),
            Self::Unusable(code) => Some(*code),
            Self::Malformed | Self::Nothing(_) | Self::Cancelled | Self::Silent => None,
        }
    }

    fn words(&self) -> String {
        let kept = |ttl: &Option<u32>| match ttl {
            Some(ttl) => format!(", for {ttl} s"),
            None => String::new(),
        };
        match self {
            Self::Data { records: count } => records(*count),
            Self::NoData { ttl } => format!("NODATA{}", kept(ttl)),
            Self::NxDomain { ttl } => format!("NXDOMAIN{}", kept(ttl)),
            Self::Unusable(ResponseCode::NOERROR | ResponseCode::NXDOMAIN) => {
                "of no use: a referral, a circle of aliases, or not what was asked".to_owned()
            }
            Self::Unusable(code) => format!("{code}, of no use"),
            Self::Malformed => "of no use: malformed".to_owned(),
            Self::Nothing(error) => error.clone(),
            Self::Cancelled => "cancelled: no longer needed".to_owned(),
            Self::Silent => "no reply before the time was over".to_owned(),
        }
    }
}

impl NotAsked {
    fn words(self) -> &'static str {
        match self {
            Self::NotNeeded => "not asked: one before it answered",
            Self::Allowance => "not asked: one query may cause no more than 64",
            Self::Down => "not asked: it is down",
            Self::Looped => "not asked: it leads back here",
        }
    }
}

impl Ruling {
    fn words(self) -> &'static str {
        match self {
            Self::Wins => "wins: the first in order with data",
            Self::EndsTheSearch => "wins: it exists without this type, which ends the search",
            Self::DoesNotExist => "does not exist",
            Self::Structural => "has names below it only: counts as not existing",
            Self::Blocks => "failed: in the cluster domain no later one may stand in for it",
            Self::PassedOver => "failed: passed over, being outside the cluster domain",
            Self::Open => "still open when the first answer was taken",
            Self::NotNeeded => "not needed: one before it decided",
            Self::NeverAsked => "never asked",
        }
    }
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Self::NothingToTry => "refused: there is no name that may be tried",
            Self::NoneExists => "none of them exists",
            Self::NoAnswer => "not known: some failed, and none of the others has an answer",
        }
    }
}

impl Kept {
    fn words(self) -> String {
        match self {
            Self::For(seconds) => format!("kept for {seconds} s"),
            Self::FailureFor(seconds) => format!("the failure is remembered for {seconds} s"),
            Self::Not(why) => format!("not kept: {}", why.words()),
        }
    }
}

impl NotKept {
    fn words(self) -> &'static str {
        match self {
            Self::PassedOver => "a candidate failed and was passed over",
            Self::NoLifetime => "no SOA says how long it holds",
            Self::ZeroTtl => "a record has TTL 0",
            Self::OwnFailure => "the failure is our own",
            Self::Overtaken => "what it rests on changed meanwhile",
            Self::Bypassed => "the cache was bypassed",
        }
    }
}
