//! Noticing that the machine may have drifted from what a session set: the cue for
//! [`crate::host::Host::verify`].
//!
//! Watched are systemd-resolved's coming and going and its settings, our link, its addresses and
//! routes, the networks of the machine, the hosts file, suspend and the clocks' drift apart. Cues come in bursts, so they are collected;
//! nothing is judged or changed here.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until};

use crate::clock::Clock;
use crate::sys::Sys;

mod bus;
mod files;
mod links;

/// A burst is over when nothing more has come for this long.
const QUIET: Duration = Duration::from_millis(500);

/// A burst that goes on is reported after this long.
const LONGEST_BURST: Duration = Duration::from_secs(5);

/// The machine is looked at this often even if nothing was noticed.
const PERIOD: Duration = Duration::from_secs(30);

/// How often the clocks are compared: waking is noticed this soon even without a login manager.
const CLOCK_PERIOD: Duration = Duration::from_secs(1);

/// Shorter sleeps are no sleeps: they change nothing.
const SHORTEST_SLEEP: Duration = Duration::from_secs(1);

/// Cues on their way; when it is full the burst has begun anyway.
const QUEUE: usize = 64;

/// What was noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Nothing; it is time to look.
    Period,
    /// systemd-resolved, or the bus it is on, ended.
    ResolvedEnded,
    /// systemd-resolved started.
    ResolvedStarted,
    /// Servers or domains in systemd-resolved changed.
    DnsSettings,
    /// Our link changed, or was removed.
    Link,
    /// An address of our link changed.
    Address,
    /// A route of ours was removed.
    Route,
    /// The machine's other routes, rules or addresses changed: it may be on another network.
    Network,
    /// The hosts file was written or replaced.
    Hosts,
    /// Another session came, went or claimed something else.
    Sessions,
    /// The machine woke up, says the login manager.
    Woke,
    /// The machine slept, say the clocks.
    Slept,
}

/// A burst of cues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// What was noticed, at least one.
    pub causes: BTreeSet<Cause>,
}

impl Drift {
    /// Tells whether the machine slept: connections may be dead, and time has passed.
    pub fn slept(&self) -> bool {
        self.causes.contains(&Cause::Woke) || self.causes.contains(&Cause::Slept)
    }
}

/// The watch of one session; it ends when dropped.
#[derive(Debug)]
pub struct DriftWatch {
    cues: mpsc::Receiver<Cause>,
    /// Keeps the queue open if every source has ended.
    _open: mpsc::Sender<Cause>,
    link: watch::Sender<Option<u32>>,
    listening: watch::Receiver<bool>,
    burst: Burst,
    _sources: JoinSet<()>,
}

/// Where the sources put what they notice.
#[derive(Debug, Clone)]
struct Cues(mpsc::Sender<Cause>);

impl Cues {
    fn put(&self, cause: Cause) {
        tracing::debug!(?cause, "the machine may have drifted");
        if self.0.try_send(cause).is_err() {
            tracing::debug!("the queue is full: the burst has begun anyway");
        }
    }
}

impl DriftWatch {
    /// Starts watching; a source that cannot be had is tried again and again.
    pub fn start(sys: &Sys, clock: Clock) -> Self {
        let (sender, cues) = mpsc::channel(QUEUE);
        let (link, followed) = watch::channel(None);
        let (heard, listening) = watch::channel(false);
        let mut sources = JoinSet::new();
        let into = || Cues(sender.clone());
        sources.spawn(bus::watch(sys.clone(), into(), heard));
        sources.spawn(links::watch(followed.clone(), into()));
        sources.spawn(files::watch(sys.clone(), followed, into()));
        sources.spawn(watch_clock(clock, into()));
        Self {
            cues,
            _open: sender,
            link,
            listening,
            burst: Burst::new(Instant::now()),
            _sources: sources,
        }
    }

    /// Says which link is ours from now on.
    pub fn follow(&self, index: Option<u32>) {
        self.link.send_replace(index);
    }

    /// Waits until the system bus is listened to: what happens from then on is noticed.
    pub async fn ready(&mut self) {
        if self.listening.wait_for(|yes| *yes).await.is_err() {
            tracing::debug!("the bus is not watched any more");
        }
    }

    /// Waits for the end of the next burst of cues, or for the time to look anyway.
    ///
    /// May be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Drift {
        loop {
            tokio::select! {
                biased;
                Some(cause) = self.cues.recv() => self.burst.add(cause, Instant::now()),
                () = sleep_until(self.burst.due()) => return self.burst.take(Instant::now()),
            }
        }
    }
}

async fn watch_clock(clock: Clock, cues: Cues) {
    let mut tick = interval(CLOCK_PERIOD);
    let mut known = clock.asleep();
    loop {
        tick.tick().await;
        let asleep = clock.asleep();
        if asleep >= known + SHORTEST_SLEEP {
            known = asleep;
            cues.put(Cause::Slept);
        }
    }
}

/// The cues collected so far.
#[derive(Debug)]
struct Burst {
    causes: BTreeSet<Cause>,
    first: Instant,
    last: Instant,
}

impl Burst {
    fn new(now: Instant) -> Self {
        Self {
            causes: BTreeSet::new(),
            first: now,
            last: now,
        }
    }

    fn add(&mut self, cause: Cause, now: Instant) {
        if self.causes.is_empty() {
            self.first = now;
        }
        self.last = now;
        self.causes.insert(cause);
    }

    /// Tells when the burst is to be reported; an empty one when its period ends.
    fn due(&self) -> Instant {
        if self.causes.is_empty() {
            self.first + PERIOD
        } else {
            (self.last + QUIET).min(self.first + LONGEST_BURST)
        }
    }

    fn take(&mut self, now: Instant) -> Drift {
        let Self { mut causes, .. } = std::mem::replace(self, Self::new(now));
        if causes.is_empty() {
            causes.insert(Cause::Period);
        }
        Drift { causes }
    }
}

#[cfg(test)]
mod tests;
