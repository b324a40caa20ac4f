//! Which candidate wins: a pure state machine over (candidate, source, outcome) and time.
//!
//! Status is always derived from everything recorded so far, so the order in which replies arrive
//! does not show in the verdict, except where two sources disagree beyond the waiting window.
//! It never waits itself: `decide` says until when, or what comes next.

use std::time::Duration;

use tokio::time::Instant;

use crate::search::{Candidate, Stage};

#[cfg(test)]
mod tests;

/// What one source (an upstream, or our own records) said about one candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Records of the asked type.
    Data,
    /// The name exists, the type does not; how long that may be kept, if the reply says so.
    NoData(Option<u32>),
    /// The name does not exist; how long that may be kept, if the reply says so.
    NxDomain(Option<u32>),
    /// No usable reply: an error code, a malformed or missing reply.
    Failed,
}

/// Which rule picks the winner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnswerOrder {
    /// The first candidate in search order that has data, once all before it are negative.
    #[default]
    Search,
    /// The first successful response, whatever its rank.
    First,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Wait for the next outcome, or until the given time if one is given.
    Wait(Option<Instant>),
    /// Ask the candidates of the second stage too.
    Launch,
    /// It is over; whatever is still under way no longer matters.
    Done(Verdict),
}

/// How a fan-out ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) result: Settled,
    /// The negative lifetimes of the better ranks; `None` where a reply named none.
    pub(crate) better: Vec<Option<u32>>,
    /// Whether a candidate outside the cluster domain failed and was passed over.
    pub(crate) passed_over: bool,
}

/// The result of a fan-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The source's records for the candidate are the answer.
    Data(Spot),
    /// The candidate exists without data of the asked type.
    NoData(Spot, Option<u32>),
    /// No candidate exists; the spot is that of the last one.
    NxDomain(Spot, Option<u32>),
    /// There is no trustworthy answer.
    Failed,
}

/// A candidate's reply from one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) candidate: usize,
    pub(crate) source: usize,
}

#[derive(Debug)]
struct Contender {
    stage: Stage,
    inside: bool,
    structural: bool,
    replies: Vec<Option<Outcome>>,
    first_negative: Option<Instant>,
}

/// What is known about a contender at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Pending(Option<Instant>),
    Data(usize),
    NoData(usize, Option<u32>),
    NxDomain(usize, Option<u32>),
    Failed,
}

/// The state of one fan-out.
#[derive(Debug)]
pub(crate) struct Settle {
    order: AnswerOrder,
    /// How long a negative waits for the other sources of its candidate.
    window: Duration,
    stage: Stage,
    contenders: Vec<Contender>,
    first_data: Option<Spot>,
}

impl Settle {
    pub(crate) fn new(order: AnswerOrder, window: Duration, candidates: &[Candidate]) -> Self {
        let contender = |candidate: &Candidate| Contender {
            stage: candidate.stage,
            inside: candidate.inside,
            structural: candidate.structural,
            replies: Vec::new(),
            first_negative: None,
        };
        let contenders = candidates.iter().map(contender).collect();
        Self {
            order,
            window,
            stage: Stage::First,
            contenders,
            first_data: None,
        }
    }

    /// Says how many sources a candidate is asked of; none makes it a failed one.
    pub(crate) fn expect(&mut self, candidate: usize, sources: usize) {
        self.contenders[candidate].replies = vec![None; sources];
    }

    /// Says that a candidate is asked of one more source, and which number it has.
    pub(crate) fn expect_another(&mut self, candidate: usize) -> usize {
        let replies = &mut self.contenders[candidate].replies;
        replies.push(None);
        replies.len() - 1
    }

    /// Takes in what a source said.
    pub(crate) fn record(&mut self, spot: Spot, outcome: Outcome, now: Instant) {
        let contender = &mut self.contenders[spot.candidate];
        contender.replies[spot.source] = Some(outcome);
        match outcome {
            Outcome::Data => {
                self.first_data.get_or_insert(spot);
            }
            Outcome::NoData(_) | Outcome::NxDomain(_) => {
                contender.first_negative.get_or_insert(now);
            }
            Outcome::Failed => {}
        }
    }

    /// Counts every source that has not replied as failed: the total deadline has passed.
    pub(crate) fn give_up(&mut self) {
        for reply in self
            .contenders
            .iter_mut()
            .flat_map(|contender| &mut contender.replies)
        {
            reply.get_or_insert(Outcome::Failed);
        }
    }

    /// Decides what comes next.
    pub(crate) fn decide(&mut self, now: Instant) -> Decision {
        let decision = match self.order {
            AnswerOrder::Search => self.by_rank(now),
            AnswerOrder::First => self.by_time(now),
        };
        if decision == Decision::Launch {
            self.stage = Stage::Second;
        }
        decision
    }

    fn by_rank(&self, now: Instant) -> Decision {
        let mut better = Vec::new();
        let mut passed_over = false;
        let mut last = None;
        for (candidate, contender) in self.launched() {
            let done = |result| {
                Decision::Done(Verdict {
                    result,
                    better: better.clone(),
                    passed_over,
                })
            };
            match contender.status(now, self.window) {
                Status::Pending(until) => return Decision::Wait(until),
                Status::Data(source) => return done(Settled::Data(Spot { candidate, source })),
                Status::NoData(source, ttl) if !contender.structural => {
                    return done(Settled::NoData(Spot { candidate, source }, ttl));
                }
                Status::NoData(source, ttl) | Status::NxDomain(source, ttl) => {
                    better.push(ttl);
                    last = Some(Spot { candidate, source });
                }
                Status::Failed if contender.inside => return done(Settled::Failed),
                Status::Failed => passed_over = true,
            }
        }
        self.all_negative(last, better, passed_over)
    }

    /// The plain race: data as soon as there is any; everything else only when all have settled.
    fn by_time(&self, now: Instant) -> Decision {
        if let Some(first) = self.first_data {
            let before = self
                .launched()
                .take_while(|(candidate, _)| *candidate < first.candidate);
            let better = before
                .map(|(_, contender)| contender.negative_ttl(now, self.window))
                .collect();
            return Decision::Done(Verdict {
                result: Settled::Data(first),
                better,
                passed_over: false,
            });
        }
        let pending =
            self.launched()
                .filter_map(|(_, contender)| match contender.status(now, self.window) {
                    Status::Pending(until) => Some(until),
                    Status::Data(_)
                    | Status::NoData(..)
                    | Status::NxDomain(..)
                    | Status::Failed => None,
                });
        let waits: Vec<Option<Instant>> = pending.collect();
        if !waits.is_empty() {
            return Decision::Wait(waits.into_iter().flatten().min());
        }
        self.by_rank(now)
    }

    /// Every launched candidate is settled and none has anything.
    fn all_negative(
        &self,
        last: Option<Spot>,
        better: Vec<Option<u32>>,
        passed_over: bool,
    ) -> Decision {
        let more = self
            .contenders
            .iter()
            .any(|contender| contender.stage > self.stage);
        let result = match last {
            _ if passed_over => Settled::Failed,
            _ if more => return Decision::Launch,
            None => Settled::Failed,
            Some(last) => {
                // A rank whose reply named no lifetime makes the whole answer one that is not kept.
                let ttl = better
                    .iter()
                    .copied()
                    .reduce(|one, other| Some(one?.min(other?)))
                    .flatten();
                Settled::NxDomain(last, ttl)
            }
        };
        Decision::Done(Verdict {
            result,
            better,
            passed_over,
        })
    }

    /// Says how each candidate stands; `None` is for those whose stage did not begin.
    pub(crate) fn standings(&self, now: Instant) -> Vec<Option<Status>> {
        let standing = |contender: &Contender| {
            (contender.stage <= self.stage).then(|| contender.status(now, self.window))
        };
        self.contenders.iter().map(standing).collect()
    }

    fn launched(&self) -> impl Iterator<Item = (usize, &Contender)> {
        self.contenders
            .iter()
            .enumerate()
            .filter(|(_, contender)| contender.stage <= self.stage)
    }
}

impl Contender {
    fn status(&self, now: Instant, window: Duration) -> Status {
        let replied = || {
            self.replies
                .iter()
                .enumerate()
                .filter_map(|(source, reply)| Some((source, (*reply)?)))
        };
        if let Some((source, _)) = replied().find(|(_, outcome)| *outcome == Outcome::Data) {
            return Status::Data(source);
        }
        let until = self.first_negative.map(|first| first + window);
        let all_replied = self.replies.iter().all(Option::is_some);
        if !all_replied && until.is_none_or(|until| now < until) {
            return Status::Pending(until);
        }
        let no_data = replied().find_map(|(source, outcome)| match outcome {
            Outcome::NoData(ttl) => Some(Status::NoData(source, ttl)),
            Outcome::Data | Outcome::NxDomain(_) | Outcome::Failed => None,
        });
        let no_name = || {
            replied().find_map(|(source, outcome)| match outcome {
                Outcome::NxDomain(ttl) => Some(Status::NxDomain(source, ttl)),
                Outcome::Data | Outcome::NoData(_) | Outcome::Failed => None,
            })
        };
        no_data.or_else(no_name).unwrap_or(Status::Failed)
    }

    fn negative_ttl(&self, now: Instant, window: Duration) -> Option<u32> {
        match self.status(now, window) {
            Status::NoData(_, ttl) | Status::NxDomain(_, ttl) => ttl,
            Status::Pending(_) | Status::Data(_) | Status::Failed => None,
        }
    }
}
