//! The one task that probes: at every change, after every query that came back, and once a minute.
//!
//! What is due is decided by `schedule`, what a name means by `probes`; this file asks and waits.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, join};
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Loops;
use super::probes::Target;
use super::schedule::{Outcome, Schedule};
use crate::message::Origin;
use crate::name::{Name, RecordType};
use crate::upstream::{OutgoingQuery, UpstreamSpec};
use crate::upstreams::Member;

/// How long an answer to a probe is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long after its answer a probe may still come back by a slower way.
const GRACE: Duration = Duration::from_millis(500);
/// Two types, for some servers refuse one of them or answer it alone.
const TYPES: [RecordType; 2] = [RecordType::TXT, RecordType::A];

/// What the prober is told.
#[derive(Debug)]
pub(super) enum Event {
    /// A probe came back.
    Seen(Arc<Target>),
    /// A query came back by this upstream, or by an unknown one.
    Suspect(Option<UpstreamSpec>, Name),
}

type Probing = FuturesUnordered<BoxFuture<'static, (Arc<Target>, Outcome)>>;

impl Loops {
    /// Probes until shutdown. One task does so; another that is started waits for shutdown.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let Some(mut told) = self.told.lock().take() else {
            return shutdown.cancelled().await;
        };
        let mut schedule = Schedule::default();
        let mut probing = Probing::new();
        self.begin_anew(&mut schedule);
        loop {
            let next = schedule.next();
            let due = async {
                match &next {
                    Some((_, at)) => sleep_until(*at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.changed.notified() => self.begin_anew(&mut schedule),
                Some(event) = told.recv() => self.take(event, &mut schedule),
                Some((target, outcome)) = probing.next() => {
                    match outcome {
                        Outcome::Back => self.note(&target, true),
                        Outcome::Clean => self.note(&target, false),
                        Outcome::Unknown => {}
                    }
                    schedule.note(&target, outcome, Instant::now(), rand::random());
                }
                () = due => if let Some((target, _)) = next {
                    schedule.begin(&target, Instant::now());
                    probing.extend(self.probe(target));
                }
            }
        }
    }

    fn take(&self, event: Event, schedule: &mut Schedule) {
        match event {
            // The schedule learns of it when the probe ends.
            Event::Seen(target) => self.note(&target, true),
            Event::Suspect(upstream, name) => {
                let zone = self.looped.lock().zone_of(&name);
                schedule.suspect(upstream.as_ref(), &zone, Instant::now());
            }
        }
    }

    /// Takes over upstreams and zones as they are now; our own sockets need no probe.
    fn begin_anew(&self, schedule: &mut Schedule) {
        let members = self.members();
        let looped = self.looped.lock();
        let specs = members.iter().map(|member| member.spec());
        let others: Vec<_> = specs.filter(|spec| !looped.is_own(spec)).cloned().collect();
        schedule.replace(&others, &looped.zones(), Instant::now());
    }

    fn probe(
        self: &Arc<Self>,
        target: Arc<Target>,
    ) -> Option<BoxFuture<'static, (Arc<Target>, Outcome)>> {
        let members = self.members();
        let mut members = members.iter();
        let member = Arc::clone(members.find(|member| *member.spec() == target.upstream)?);
        let name = self.probes.open(&target, Instant::now())?;
        let origin = Origin {
            probe: true,
            ..self.origin(None)
        };
        let loops = Arc::clone(self);
        Some(Box::pin(async move {
            let answered = ask(&member, &name, origin).await;
            sleep(GRACE).await;
            let outcome = if loops.probes.came_back(&name) {
                Outcome::Back
            } else if answered {
                Outcome::Clean
            } else {
                Outcome::Unknown
            };
            (target, outcome)
        }))
    }
}

/// Sends the probes of one name, and says whether any was answered.
async fn ask(upstream: &Member, name: &Name, origin: Origin) -> bool {
    let deadline = Instant::now() + PATIENCE;
    let [first, second] = TYPES.map(|rtype| OutgoingQuery {
        origin: Some(origin),
        ..OutgoingQuery::new(name.clone(), rtype)
    });
    let answers = join(
        upstream.exchange(&first, deadline),
        upstream.exchange(&second, deadline),
    );
    let (first, second) = answers.await;
    first.is_ok() || second.is_ok()
}
