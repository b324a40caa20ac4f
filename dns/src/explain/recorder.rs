//! Writes down the steps of one resolution while it goes on. Bounded; absent, it costs a look at an `Option`.
//!
//! It is shared by the tasks of the resolution and of the asker, which may read it before the tasks
//! have ended. It decides nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{CacheUse, Event, Kept, Said, Step, Trace};
use crate::access::may_see;
use crate::message::answers;
use crate::name::Name;
use crate::upstream::UpstreamSpec;
use crate::view::View;

/// The most steps remembered: 64 candidates with their rulings and 64 upstream queries fit, and so
/// a trace has at most some 100 KB.
const MOST_STEPS: usize = 256;
/// The most records of the answer that are shown.
const MOST_RECORDS: usize = 16;

/// A recorder, where somebody wants one.
pub(crate) type Recording = Option<Arc<Recorder>>;

/// Writes the steps of one resolution down.
#[derive(Debug)]
pub(crate) struct Recorder {
    begun: Instant,
    cache_use: CacheUse,
    /// Whether the time for the query was over: who is silent then was not cancelled.
    over: AtomicBool,
    trace: Mutex<Trace>,
}

/// Notes a step, which is made only where somebody wants it.
pub(crate) fn note(recording: &Recording, event: impl FnOnce() -> Event) {
    if let Some(recorder) = recording {
        recorder.push(event());
    }
}

impl Recorder {
    pub(crate) fn new(cache_use: CacheUse) -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            cache_use,
            over: AtomicBool::new(false),
            trace: Mutex::default(),
        })
    }

    pub(crate) fn bypasses_cache(&self) -> bool {
        self.cache_use == CacheUse::Bypass
    }

    pub(crate) fn push(&self, event: Event) {
        if event == Event::DeadlineOver {
            self.over.store(true, Ordering::Relaxed);
        }
        let step = Step {
            at: self.begun.elapsed(),
            event,
        };
        let mut trace = self.trace.lock();
        if trace.steps.len() < MOST_STEPS {
            trace.steps.push(step);
        } else {
            trace.left_out += 1;
        }
    }

    /// Notes a step that is told only once, however often it happens.
    pub(crate) fn push_once(&self, event: Event) {
        let told = self
            .trace
            .lock()
            .steps
            .iter()
            .any(|step| step.event == event);
        if !told {
            self.push(event);
        }
    }

    /// Says whether the answer was told to be kept.
    pub(crate) fn promised_to_keep(&self) -> bool {
        let trace = self.trace.lock();
        let promise =
            |step: &Step| matches!(step.event, Event::Kept(Kept::For(_) | Kept::FailureFor(_)));
        trace.steps.iter().any(promise)
    }

    /// Ends the story with the reply and returns as much of it as the asker may see (R2).
    pub(crate) fn finish_for(&self, view: &View, reply: Option<&[u8]>) -> Trace {
        let mut trace = self.finish(reply);
        let withheld = trace.steps.iter().any(|step| step.event == Event::Withheld);
        trace.steps.retain(|step| {
            let told = !withheld || step.event.is_told_when_withheld();
            told && step.event.names().all(|name| may_see(view, name))
        });
        trace
    }

    /// Ends the story with the reply and returns it.
    pub(crate) fn finish(&self, reply: Option<&[u8]>) -> Trace {
        let mut trace = std::mem::take(&mut *self.trace.lock());
        if let Some(event) = reply.and_then(answer) {
            let at = self.begun.elapsed();
            trace.steps.push(Step { at, event });
        }
        trace
    }
}

impl Event {
    /// Whether it says nothing about the answer that is withheld.
    fn is_told_when_withheld(&self) -> bool {
        match self {
            Self::Question { .. }
            | Self::NoQuestion
            | Self::Rule { .. }
            | Self::Candidate { .. }
            | Self::Skipped { .. }
            | Self::Shed
            | Self::Withheld
            | Self::Answer { .. } => true,
            Self::Cache(_)
            | Self::Flight(_)
            | Self::Own { .. }
            | Self::Upstream { .. }
            | Self::NotAsked { .. }
            | Self::LastStage
            | Self::WindowOver
            | Self::DeadlineOver
            | Self::Ruling { .. }
            | Self::Verdict(_)
            | Self::Renamed { .. }
            | Self::Kept(_) => false,
        }
    }

    /// The names that the step itself brings up. Names the asker can work out by himself (the asked
    /// one, the search list's) are told: that they are refused is the story.
    fn names(&self) -> impl Iterator<Item = &Name> {
        use super::OwnVerdict;
        let (first, second) = match self {
            Self::Own {
                name,
                verdict: OwnVerdict::Alias(target),
            } => (Some(name), Some(target)),
            Self::Own { name, .. } | Self::Upstream { name, .. } => (Some(name), None),
            Self::NotAsked { name, .. } => (name.as_ref(), None),
            Self::Question { .. }
            | Self::NoQuestion
            | Self::Rule { .. }
            | Self::Candidate { .. }
            | Self::Skipped { .. }
            | Self::Cache(_)
            | Self::Flight(_)
            | Self::LastStage
            | Self::WindowOver
            | Self::DeadlineOver
            | Self::Shed
            | Self::Ruling { .. }
            | Self::Verdict(_)
            | Self::Renamed { .. }
            | Self::Kept(_)
            | Self::Withheld
            | Self::Answer { .. } => (None, None),
        };
        first.into_iter().chain(second)
    }
}

fn answer(reply: &[u8]) -> Option<Event> {
    let parsed = answers(reply).ok()?;
    let shown = parsed.answers.iter().take(MOST_RECORDS).map(|record| {
        let (owner, ttl) = (&record.owner, record.ttl);
        format!("{owner} {ttl} {} {}", record.rtype, record.data)
    });
    Some(Event::Answer {
        code: parsed.code,
        records: shown.collect(),
        count: parsed.answers.len(),
    })
}

/// One question to one upstream, under way: what came of it is noted, also when it is dropped.
#[derive(Debug)]
pub(crate) struct Asked {
    recorder: Arc<Recorder>,
    name: Name,
    upstream: UpstreamSpec,
    begun: Instant,
    said: bool,
}

impl Asked {
    /// Begins the step, where somebody wants it. To be called when the question is really sent.
    pub(crate) fn begin(
        recording: &Recording,
        name: &Name,
        upstream: &UpstreamSpec,
    ) -> Option<Self> {
        let recorder = recording.as_ref()?;
        Some(Self {
            recorder: Arc::clone(recorder),
            name: name.clone(),
            upstream: upstream.clone(),
            begun: Instant::now(),
            said: false,
        })
    }

    /// Notes what the upstream said.
    pub(crate) fn said(mut self, said: Said) {
        self.note(said);
    }

    fn note(&mut self, said: Said) {
        self.said = true;
        self.recorder.push(Event::Upstream {
            name: self.name.clone(),
            upstream: self.upstream.clone(),
            took: self.begun.elapsed(),
            said,
        });
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.said {
            let over = self.recorder.over.load(Ordering::Relaxed);
            self.note(if over { Said::Silent } else { Said::Cancelled });
        }
    }
}
