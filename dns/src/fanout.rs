//! Asks upstreams about every candidate and lets `settle` decide; whatever is still under way then is dropped.
//!
//! Our own records are consulted first: a verdict of theirs settles its candidate, and an alias of
//! theirs is followed here. What replies mean (`interpret`), whom to ask when (`policy`) and who
//! wins (`settle`) is decided elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};

use crate::explain::{
    Asked, Event, NotAsked, OwnVerdict, Recording, Said, note, note_spared, note_unfit,
};
use crate::interpret::{Finding, Kind, NoReply, Told};
use crate::loops::Sending;
use crate::message::{ExtendedError, names_in};
use crate::name::{Name, RecordType};
use crate::policy::{FanoutPolicy, Turns};
use crate::records::{LocalRecords, NoLocalRecords};
use crate::search::{Candidate, Stage};
use crate::settle::{AnswerOrder, Decision, Outcome, Settle, Settled, Spot, Status, Verdict};
use crate::upstreams::{Member, usable};

/// The most upstream queries of one client query, aliases included (design §3, Bounds).
const MOST_QUERIES: usize = 64;
/// The most aliases of our own that are followed one after the other.
const MOST_ALIASES: usize = 8;

/// Everything one resolution needs.
#[derive(Clone)]
pub(crate) struct Fanout {
    pub(crate) members: Arc<[Arc<Member>]>,
    pub(crate) local: Arc<dyn LocalRecords>,
    pub(crate) cluster_domain: Name,
    pub(crate) kind: Kind,
    pub(crate) order: AnswerOrder,
    pub(crate) policy: FanoutPolicy,
    pub(crate) deadline: Instant,
    pub(crate) spent: Arc<AtomicUsize>,
    pub(crate) sending: Sending,
    /// Where somebody wants to know how the answer comes about.
    pub(crate) recording: Recording,
}

/// The verdict, and the finding it points at.
#[derive(Debug)]
pub(crate) struct Outcomes {
    pub(crate) verdict: Verdict,
    pub(crate) finding: Finding,
    /// Whether a failure may be kept for its second.
    pub(crate) keeps_failure: bool,
    /// Why it is a failure, if no upstream could be reached.
    pub(crate) reason: Option<ExtendedError>,
    /// Where the aliases that were met led, the winner's and the others'.
    pub(crate) aliases: Vec<Name>,
    /// How each candidate stood at the end, where somebody wants to know.
    pub(crate) standings: Vec<Option<Status>>,
}

/// A source's finding about a candidate, on its way.
type Asking = BoxFuture<'static, (Spot, Finding)>;

/// The upstreams for one candidate, and whose turn it is.
struct Lane {
    candidate: usize,
    members: Vec<Arc<Member>>,
    turns: Turns,
}

/// The state of one fan-out under way.
struct Run<'a> {
    fanout: &'a Fanout,
    candidates: &'a [Candidate],
    settle: Settle,
    lanes: Vec<Lane>,
    asking: FuturesUnordered<Asking>,
    findings: Vec<(Spot, Finding)>,
}

impl Fanout {
    /// Resolves the candidates within the deadline.
    pub(crate) async fn run(&self, candidates: &[Candidate]) -> Outcomes {
        let window = self
            .members
            .iter()
            .filter(|member| !member.is_avoided())
            .map(|member| member.window())
            .max()
            .unwrap_or(Duration::ZERO);
        let mut run = Run {
            fanout: self,
            candidates,
            settle: Settle::new(self.order, window, candidates),
            lanes: Vec::new(),
            asking: FuturesUnordered::new(),
            findings: Vec::new(),
        };
        run.launch(Stage::First);
        let verdict = run.verdict().await;
        run.outcomes(verdict)
    }

    /// Asks the upstreams alone about one name that is not searched for.
    async fn upstream_finding(&self, name: Name) -> Finding {
        let inside = name.ends_with(&self.cluster_domain);
        let target = Candidate {
            name,
            stage: Stage::First,
            expanded: false,
            inside,
            structural: false,
        };
        let local: Arc<dyn LocalRecords> = Arc::new(NoLocalRecords);
        let alone = Self {
            local,
            ..self.clone()
        };
        let outcomes = alone.run(std::slice::from_ref(&target)).await;
        outcomes.finding
    }

    /// Follows an alias of ours to data, to a negative, or to the upstreams; a circle is a failure.
    fn follow(self, alias: Name, target: Name) -> BoxFuture<'static, Finding> {
        Box::pin(async move {
            let mut chain = vec![alias, target];
            let finding = loop {
                let at = &chain[chain.len() - 1];
                if chain.len() > MOST_ALIASES + 1 || chain[..chain.len() - 1].contains(at) {
                    return Finding::unanswered(NoReply::Loop);
                }
                let told = Told::by(self.local.lookup(at, self.kind.rtype), at, self.kind.rtype);
                self.note_own(at, &told);
                match told {
                    Told::Follow(next) => chain.push(next),
                    Told::AskUpstreams => {
                        let finding = self.upstream_finding(at.clone()).await;
                        if finding.leads_to_any(&chain) {
                            return Finding::unanswered(NoReply::Loop);
                        }
                        break finding;
                    }
                    Told::Finding(finding) => break finding,
                }
            };
            chain.windows(2).rev().fold(finding, |finding, link| {
                finding.behind_alias(&link[0], &link[1])
            })
        })
    }

    fn note_own(&self, name: &Name, told: &Told) {
        if let Some(recorder) = &self.recording
            && let Some(verdict) = OwnVerdict::of(told)
        {
            let name = name.clone();
            recorder.push(Event::Own { name, verdict });
        }
    }

    /// Takes one upstream query out of the allowance.
    fn may_spend(&self) -> bool {
        self.spent.fetch_add(1, Ordering::Relaxed) < MOST_QUERIES
    }
}

impl Lane {
    /// Returns the upstream whose turn it is.
    fn next(&mut self, now: Instant, policy: FanoutPolicy) -> Option<Arc<Member>> {
        let members = &self.members;
        let turn = self
            .turns
            .take(now, |turn| policy.patience(&members[turn]))?;
        Some(Arc::clone(&members[turn]))
    }
}

impl Run<'_> {
    /// Begins a stage: first what our own records say, then queries for the rest.
    fn launch(&mut self, stage: Stage) {
        let mut upstream = Vec::new();
        for (index, candidate) in self
            .candidates
            .iter()
            .enumerate()
            .filter(|(_, candidate)| candidate.stage == stage)
        {
            let rtype = self.fanout.kind.rtype;
            let verdict = self.fanout.local.lookup(&candidate.name, rtype);
            let spot = Spot {
                candidate: index,
                source: 0,
            };
            let told = Told::by(verdict, &candidate.name, rtype);
            self.fanout.note_own(&candidate.name, &told);
            match told {
                Told::Finding(finding) => {
                    self.settle.expect(index, 1);
                    let is_end = matches!(finding.outcome, Outcome::Data | Outcome::NoData(_))
                        && !candidate.structural;
                    self.take(spot, finding);
                    if is_end && self.fanout.order == AnswerOrder::Search {
                        // No later rank can matter any more.
                        break;
                    }
                }
                Told::Follow(target) => {
                    self.settle.expect(index, 1);
                    let following = self.fanout.clone().follow(candidate.name.clone(), target);
                    self.asking
                        .push(Box::pin(async move { (spot, following.await) }));
                }
                Told::AskUpstreams => upstream.push(index),
            }
        }
        let each = (MOST_QUERIES / self.candidates.len().max(1))
            .clamp(1, self.fanout.members.len().max(1));
        for index in upstream {
            self.open_lane(index, each);
        }
    }

    /// Lines up the upstreams that may be asked about a candidate.
    fn open_lane(&mut self, candidate: usize, most: usize) {
        let mut members = usable(&self.fanout.members, &self.candidates[candidate].name);
        self.fanout.policy.arrange(&mut members);
        members.truncate(most);
        let name = &self.candidates[candidate].name;
        note_unfit(&self.fanout.recording, &self.fanout.members, &members, name);
        if members.is_empty() && !self.fanout.members.is_empty() {
            // All of them lead back to us for this name, which may change any time.
            self.settle.expect(candidate, 1);
            let spot = Spot {
                candidate,
                source: 0,
            };
            return self.take(spot, Finding::unanswered(NoReply::Loop));
        }
        self.settle.expect(candidate, 0);
        let turns = Turns::new(members.len(), Instant::now());
        self.lanes.push(Lane {
            candidate,
            members,
            turns,
        });
    }

    /// Asks every upstream whose turn has come.
    fn take_turns(&mut self) {
        let (now, policy) = (Instant::now(), self.fanout.policy);
        for index in 0..self.lanes.len() {
            while let Some(member) = self.lanes[index].next(now, policy) {
                self.ask(self.lanes[index].candidate, member);
            }
        }
    }

    fn ask(&mut self, candidate: usize, member: Arc<Member>) {
        let source = self.settle.expect_another(candidate);
        let spot = Spot { candidate, source };
        if !self.fanout.may_spend() {
            note(&self.fanout.recording, || Event::NotAsked {
                name: Some(self.candidates[candidate].name.clone()),
                upstream: member.spec().clone(),
                because: NotAsked::Allowance,
            });
            self.take(spot, Finding::failed());
            return;
        }
        let (name, kind) = (self.candidates[candidate].name.clone(), self.fanout.kind);
        let (deadline, sending) = (self.fanout.deadline, self.fanout.sending.clone());
        let recording = self.fanout.recording.clone();
        self.asking.push(Box::pin(async move {
            let asked = Asked::begin(&recording, &name, member.spec());
            let reply = member.ask(&name, kind, deadline, &sending).await;
            let finding = match &reply {
                Ok(reply) => Finding::of_reply(reply, &name, kind),
                Err(error) => Finding::unanswered(NoReply::from(&**error)),
            };
            if let Some(asked) = asked {
                asked.said(match &reply {
                    Ok(reply) => Said::by(reply, &finding),
                    Err(error) => Said::nothing(error),
                });
            }
            (spot, finding)
        }));
    }

    fn take(&mut self, spot: Spot, finding: Finding) {
        let now = Instant::now();
        let mut lanes = self.lanes.iter_mut();
        if let Some(lane) = lanes.find(|lane| lane.candidate == spot.candidate) {
            match finding.outcome {
                Outcome::Failed => lane.turns.failed(spot.source, now),
                Outcome::Data | Outcome::NoData(_) | Outcome::NxDomain(_) => lane.turns.end(),
            }
        }
        self.settle.record(spot, finding.outcome, now);
        self.findings.push((spot, finding));
    }

    /// Waits for outcomes until there is a verdict.
    async fn verdict(&mut self) -> Verdict {
        loop {
            self.take_turns();
            let until = match self.settle.decide(Instant::now()) {
                Decision::Done(verdict) => return verdict,
                Decision::Launch => {
                    note(&self.fanout.recording, || Event::LastStage);
                    self.launch(Stage::Second);
                    continue;
                }
                Decision::Wait(until) => until,
            };
            let turns = self.lanes.iter().filter_map(|lane| lane.turns.due());
            let until = turns.chain(until).fold(self.fanout.deadline, Instant::min);
            tokio::select! {
                biased;
                Some((spot, finding)) = self.asking.next() => self.take(spot, finding),
                () = sleep_until(until) => {
                    if Instant::now() >= self.fanout.deadline {
                        note(&self.fanout.recording, || Event::DeadlineOver);
                        self.settle.give_up();
                    } else {
                        note(&self.fanout.recording, || Event::WindowOver);
                    }
                }
            }
        }
    }

    fn outcomes(self, verdict: Verdict) -> Outcomes {
        let keeps_failure = self
            .findings
            .iter()
            .all(|(_, finding)| finding.keeps_failure);
        let reason = self.reason();
        for lane in &self.lanes {
            let (name, taken) = (&self.candidates[lane.candidate].name, lane.turns.taken());
            note_spared(&self.fanout.recording, &lane.members, taken, name);
        }
        let standings = match self.fanout.recording {
            Some(_) => self.settle.standings(Instant::now()),
            None => Vec::new(),
        };
        let records = self
            .findings
            .iter()
            .flat_map(|(_, finding)| &finding.answer);
        let links = records.filter(|record| record.rtype == RecordType::CNAME);
        let aliases = links
            .flat_map(|link| names_in(link.rtype, &link.data))
            .collect();
        let winner = match verdict.result {
            Settled::Data(spot) | Settled::NoData(spot, _) | Settled::NxDomain(spot, _) => {
                Some(spot)
            }
            Settled::Failed => None,
        };
        let found = self
            .findings
            .into_iter()
            .find(|(spot, _)| Some(*spot) == winner);
        let finding = found.map_or_else(Finding::failed, |(_, finding)| finding);
        Outcomes {
            verdict,
            finding,
            keeps_failure,
            reason,
            aliases,
            standings,
        }
    }

    /// Says why every failed upstream failed, if none of them was heard of.
    fn reason(&self) -> Option<ExtendedError> {
        let failed = |(_, finding): &&(Spot, Finding)| finding.outcome == Outcome::Failed;
        let failures = self.findings.iter().filter(failed);
        let mut silent = !self.asking.is_empty();
        for (_, finding) in failures {
            match finding.no_reply? {
                NoReply::Silence => silent = true,
                NoReply::Network => {}
                NoReply::Loop => return Some(ExtendedError::LOOP),
                NoReply::Other | NoReply::NoRoom => return None,
            }
        }
        let reason = if silent {
            ExtendedError::NO_REACHABLE_AUTHORITY
        } else {
            ExtendedError::NETWORK_ERROR
        };
        Some(reason)
    }
}
