//! What follows from plain data: which rule a name falls under, why a name of the search is not
//! tried, what each candidate came to, and why an answer is not kept. Pure.
//!
//! It repeats no decision: candidates, verdicts and lifetimes are those of `search`, `settle` and
//! `rewrite`, and are only read here.

use std::error::Error;
use std::fmt::Write;

use super::{Absolute, Event, Kept, NotKept, OwnVerdict, Rule, Ruling, Said, Skipped};
use crate::access::{is_reverse, may_see, may_send_bare};
use crate::explain;
use crate::interpret::{Finding, Told};
use crate::message::Reply;
use crate::name::{Name, ResponseCode};
use crate::rewrite::Resolution;
use crate::search::{Candidate, Stage, never_expanded};
use crate::settle::{Outcome, Settled, Status, Verdict};
use crate::upstream::ExchangeError;
use crate::view::{BarePolicy, View};

/// Names the rule for a name that is not special.
pub(crate) fn rule(asked: &Name, view: &View) -> Rule {
    let never = never_expanded(asked, view);
    if !may_see(view, asked) {
        return Rule::NotGranted;
    }
    if never && !may_send_bare(view, asked) {
        return Rule::BareNotSent;
    }
    let (dots, ndots) = (asked.dots(), view.ndots);
    if never {
        Rule::NeverExpanded(absolute(asked, view))
    } else if dots < usize::from(ndots) {
        Rule::SearchFirst { dots, ndots }
    } else {
        Rule::BareFirst { dots, ndots }
    }
}

fn absolute(asked: &Name, view: &View) -> Absolute {
    if asked.is_root() {
        Absolute::Root
    } else if asked.ends_with(&view.cluster_domain) {
        Absolute::ClusterDomain
    } else if is_reverse(asked) {
        Absolute::Reverse
    } else {
        Absolute::Zone
    }
}

/// Tells the candidates in their order, then the names that are not tried.
pub(crate) fn candidate_steps(asked: &Name, view: &View, ranked: &[Candidate]) -> Vec<Event> {
    let tried = ranked
        .iter()
        .zip(1..)
        .map(|(candidate, rank)| Event::Candidate {
            rank,
            name: candidate.name.clone(),
            last: candidate.stage == Stage::Second,
            inside: candidate.inside,
        });
    let mut steps: Vec<Event> = tried.collect();
    if !never_expanded(asked, view) {
        steps.extend(skipped(asked, view, ranked));
    }
    steps
}

fn skipped(asked: &Name, view: &View, ranked: &[Candidate]) -> Vec<Event> {
    let mut steps = Vec::new();
    let mut seen = Vec::new();
    for domain in &view.search {
        let (name, because) = match asked.join(domain) {
            None => (domain.clone(), Skipped::TooLong),
            Some(name) if seen.contains(&name) => (name, Skipped::Repeated),
            Some(name) if !may_see(view, &name) => (name, Skipped::NotGranted),
            Some(name) => {
                seen.push(name.clone());
                if ranked.iter().any(|candidate| candidate.name == name) {
                    continue;
                }
                (name, Skipped::TooMany)
            }
        };
        steps.push(Event::Skipped { name, because });
    }
    if !ranked.iter().any(|candidate| candidate.name == *asked) {
        let because = if !may_send_bare(view, asked) {
            Skipped::BareNotSent
        } else if view.bare == BarePolicy::Never {
            Skipped::BareNever
        } else {
            Skipped::TooMany
        };
        let name = asked.clone();
        steps.push(Event::Skipped { name, because });
    }
    steps
}

/// Tells what each candidate came to; `standings` are `None` for those whose stage never began.
pub(crate) fn rulings(
    candidates: &[Candidate],
    standings: &[Option<Status>],
    verdict: &Verdict,
) -> Vec<Event> {
    let winner = match verdict.result {
        Settled::Data(spot) | Settled::NoData(spot, _) => Some(spot.candidate),
        Settled::NxDomain(..) | Settled::Failed => None,
    };
    let mut blocked = false;
    let mut steps = Vec::new();
    for (index, (candidate, standing)) in candidates.iter().zip(standings).enumerate() {
        let decided = blocked || winner.is_some_and(|winner| winner < index);
        let ruling = match standing {
            _ if decided => Ruling::NotNeeded,
            None => Ruling::NeverAsked,
            Some(Status::Data(_)) => Ruling::Wins,
            Some(Status::NoData(..)) if candidate.structural => Ruling::Structural,
            Some(Status::NoData(..)) => Ruling::EndsTheSearch,
            Some(Status::NxDomain(..)) => Ruling::DoesNotExist,
            Some(Status::Pending(_)) => Ruling::Open,
            Some(Status::Failed) if candidate.inside => {
                blocked = true;
                Ruling::Blocks
            }
            Some(Status::Failed) => Ruling::PassedOver,
        };
        steps.push(Event::Ruling {
            rank: index + 1,
            name: candidate.name.clone(),
            ruling,
        });
    }
    if winner.is_none() && !blocked {
        steps.push(Event::Verdict(match verdict.result {
            Settled::NxDomain(..) => explain::Verdict::NoneExists,
            Settled::Data(_) | Settled::NoData(..) | Settled::Failed => explain::Verdict::NoAnswer,
        }));
    }
    steps
}

/// Tells whether the answer will be kept.
pub(crate) fn kept(resolution: &Resolution, passed_over: bool) -> Kept {
    let is_failure = resolution.code == ResponseCode::SERVFAIL;
    let is_negative = resolution.answer.is_empty() || resolution.code == ResponseCode::NXDOMAIN;
    match resolution.keep {
        0 if is_failure => Kept::Not(NotKept::OwnFailure),
        0 if passed_over => Kept::Not(NotKept::PassedOver),
        0 if is_negative => Kept::Not(NotKept::NoLifetime),
        0 => Kept::Not(NotKept::ZeroTtl),
        seconds if is_failure => Kept::FailureFor(seconds),
        seconds => Kept::For(seconds),
    }
}

impl OwnVerdict {
    /// Reads a verdict of our own records; `None` when the name is not theirs.
    pub(crate) fn of(told: &Told) -> Option<Self> {
        Some(match told {
            Told::AskUpstreams => return None,
            Told::Follow(target) => Self::Alias(target.clone()),
            Told::Finding(finding) => match finding.outcome {
                Outcome::Data => Self::Data(finding.answer.len()),
                Outcome::NoData(_) => Self::NoData,
                Outcome::NxDomain(_) | Outcome::Failed => Self::NxDomain,
            },
        })
    }
}

impl Said {
    /// Words why there was no reply, causes included.
    pub(crate) fn nothing(error: &ExchangeError) -> Self {
        let mut words = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            // Writing to a String cannot fail.
            let _ = write!(words, ": {error}");
            cause = error.source();
        }
        Self::Nothing(words)
    }

    /// Reads what a reply came to.
    pub(crate) fn by(reply: &[u8], finding: &Finding) -> Self {
        match finding.outcome {
            Outcome::Data => Self::Data {
                records: finding.answer.len(),
            },
            Outcome::NoData(ttl) => Self::NoData { ttl },
            Outcome::NxDomain(ttl) => Self::NxDomain { ttl },
            Outcome::Failed => match Reply::read(reply) {
                Ok(read) => Self::Unusable(read.code),
                Err(_) => Self::Malformed,
            },
        }
    }

    /// Reads what came of an exchange whose reply is passed on as it is.
    pub(crate) fn of_exchange(said: &Result<Vec<u8>, ExchangeError>) -> Self {
        let reply = match said {
            Ok(reply) => reply,
            Err(error) => return Self::nothing(error),
        };
        let Ok(read) = Reply::read(reply) else {
            return Self::Malformed;
        };
        match read.code {
            ResponseCode::NOERROR if read.answer.is_empty() => Self::NoData { ttl: None },
            ResponseCode::NOERROR => Self::Data {
                records: read.answer.len(),
            },
            ResponseCode::NXDOMAIN => Self::NxDomain { ttl: None },
            code => Self::Unusable(code),
        }
    }
}
