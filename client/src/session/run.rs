//! Carries a session's effects out and turns what comes of them into events.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kubebridge_platform::resources;
use kubebridge_platform::sys::SessionId;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};

use super::os::Os;
use super::parts::Parts;
use super::{Effect, Ending, Event, State, Step, Stop, Undo, handle};
use crate::background::log::LogFile;
use crate::cli::Output;
use crate::connect::Config;
use crate::failure::{Exit, Failure};
use crate::progress::Reporter;
use crate::status::board::{Board, Identity, Phase};
use crate::status::{Leftovers, status_document};

/// How long the resolver answers on after the machine is restored: runtimes re-read their DNS
/// settings every 5 s, and shall not meet a dead address meanwhile.
const LINGER: Duration = Duration::from_secs(6);

/// What a session is run with.
#[derive(Debug)]
pub struct Surroundings {
    /// What the user sees.
    pub reporter: Arc<Reporter>,
    /// Ends it from within.
    pub stop_sender: mpsc::Sender<Stop>,
    /// Who wants it to end.
    pub stops: mpsc::Receiver<Stop>,
    /// Is told the session's id once it is connected.
    pub connected: Option<oneshot::Sender<String>>,
    /// Its log, where it has one of its own.
    pub log: Option<Arc<LogFile>>,
}

/// Runs a session from its first step to its end.
///
/// # Errors
///
/// It could not be connected, a part broke, or not everything could be undone.
pub async fn run<O: Os>(os: &O, config: Config, surroundings: Surroundings) -> Result<(), Failure> {
    // It holds every part of a session: too big for the stack of whoever calls.
    Box::pin(run_to_end(os, config, surroundings)).await
}

async fn run_to_end<O: Os>(
    os: &O,
    config: Config,
    surroundings: Surroundings,
) -> Result<(), Failure> {
    take_resources();
    let Surroundings {
        reporter,
        stop_sender,
        stops,
        connected,
        log,
    } = surroundings;
    let id = SessionId::random();
    let clock = os.clock();
    let identity = Identity {
        session: id.to_string(),
        manager: config.target.to_string(),
        context: config.target.context().map(str::to_owned),
        namespaces: config.namespaces.clone(),
    };
    let board = Arc::new(Board::new(identity, clock.clone()));
    let output = config.output;
    let mut parts = Parts::new(
        os,
        id,
        config,
        Arc::clone(&board),
        Arc::clone(&reporter),
        stop_sender,
        clock,
    );
    parts.log = log;
    let mut runner = Runner {
        output,
        parts,
        connected,
        reporter,
        board,
        stops,
        state: State::Ready,
        failure: None,
        troubles: Vec::new(),
    };
    // What a panic leaves behind is undone like anything else: the host knows what it did.
    let ending = match AssertUnwindSafe(runner.until_end()).catch_unwind().await {
        Ok(ending) => ending,
        Err(panic) => runner.undo_after_panic(words(&*panic)).await,
    };
    runner.finish(ending).await
}

/// Prepares the process for thousands of flows.
fn take_resources() {
    resources::give_large_memory_back();
    match resources::take_open_files() {
        Ok(open_files) => tracing::debug!(?open_files, "open files"),
        Err(error) => tracing::warn!(%error, "cannot raise the limit of open files"),
    }
}

struct Runner<'os, O: Os> {
    output: Output,
    parts: Parts<'os, O>,
    connected: Option<oneshot::Sender<String>>,
    reporter: Arc<Reporter>,
    board: Arc<Board>,
    stops: mpsc::Receiver<Stop>,
    state: State,
    /// Why connecting failed.
    failure: Option<Failure>,
    /// What could not be undone.
    troubles: Vec<String>,
}

impl<O: Os> Runner<'_, O> {
    async fn until_end(&mut self) -> Ending {
        let mut event = Event::Start;
        loop {
            let effect = self.take(event);
            event = match effect {
                Some(Effect::Run(step)) => self.run_step(step).await,
                Some(Effect::Undo(undo)) => {
                    self.undo(undo).await;
                    Event::Undone
                }
                Some(Effect::Announce) => {
                    self.announce();
                    self.next_event().await
                }
                Some(Effect::RefreshHosts) => {
                    self.parts.refresh_hosts().await;
                    self.next_event().await
                }
                Some(Effect::RefreshRoutes) => {
                    self.parts.refresh_routes().await;
                    self.next_event().await
                }
                Some(Effect::FollowCluster) => {
                    self.parts.follow_cluster().await;
                    self.next_event().await
                }
                Some(Effect::Verify) => {
                    self.parts.verify().await;
                    self.next_event().await
                }
                Some(Effect::End(ending)) => return ending,
                // The two are answered where the work they cut short is waited for.
                Some(Effect::Interrupt | Effect::CutLinger) | None => self.next_event().await,
            };
        }
    }

    async fn undo_after_panic(&mut self, words: String) -> Ending {
        self.failure = Some(Failure::message(
            Exit::Other,
            format!("internal error ({words}); everything is undone"),
        ));
        let ending = Ending::Closed(Stop::Broken);
        let mut next = Undo::RestoreHost;
        self.state = State::Undoing(next, ending);
        loop {
            self.undo(next).await;
            match self.take(Event::Undone) {
                Some(Effect::Undo(undo)) => next = undo,
                Some(
                    Effect::Run(_)
                    | Effect::Interrupt
                    | Effect::Announce
                    | Effect::RefreshHosts
                    | Effect::RefreshRoutes
                    | Effect::FollowCluster
                    | Effect::Verify
                    | Effect::CutLinger
                    | Effect::End(_),
                )
                | None => return ending,
            }
        }
    }

    fn take(&mut self, event: Event) -> Option<Effect> {
        let (state, effect) = handle(self.state, event);
        self.state = state;
        self.board.set_phase(Phase::Running(state));
        effect
    }

    async fn run_step(&mut self, step: Step) -> Event {
        if !step.is_of(self.parts.config.mode) {
            return Event::Done;
        }
        let start = Instant::now();
        let work = self.parts.step(step);
        tokio::pin!(work);
        let outcome = loop {
            tokio::select! {
                outcome = &mut work => break outcome,
                Some(stop) = self.stops.recv() => {
                    let (state, effect) = handle(self.state, Event::Stop(stop));
                    self.state = state;
                    if effect == Some(Effect::Interrupt) {
                        return Event::Failed;
                    }
                }
            }
        };
        let took = start.elapsed();
        match outcome {
            Ok(detail) => {
                self.reporter.step(step.label(), &detail, took);
                self.board.note(|facts| facts.note_step(step, detail, took));
                Event::Done
            }
            Err(failure) => {
                self.failure = Some(failure.context(step.label()));
                Event::Failed
            }
        }
    }

    async fn undo(&mut self, undo: Undo) {
        if !undo.is_of(self.parts.config.mode) {
            return;
        }
        let start = Instant::now();
        let outcome = match undo {
            Undo::Linger => self.linger().await,
            Undo::RestoreHost => self.parts.restore_host().await,
            Undo::RemoveLink => self.parts.remove_link().await,
            Undo::CloseSession => self.parts.close_session().await,
        };
        match outcome {
            Ok(detail) => {
                if undo == Undo::RemoveLink {
                    // The host has taken everything back, also what failed before.
                    self.troubles.clear();
                }
                self.reporter.step(undo.label(), &detail, start.elapsed());
            }
            Err(failure) => {
                let trouble = format!("{}: {:#}", undo.label(), failure.error);
                tracing::error!(%trouble, "not undone");
                self.troubles.push(trouble);
            }
        }
    }

    async fn linger(&mut self) -> Result<String, Failure> {
        if !self.parts.points_os() {
            return Ok("not needed".to_owned());
        }
        let end = sleep(LINGER);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return Ok(format!("{} s", LINGER.as_secs())),
                Some(stop) = self.stops.recv() => {
                    let (state, effect) = handle(self.state, Event::Stop(stop));
                    self.state = state;
                    if effect == Some(Effect::CutLinger) {
                        return Ok("cut short".to_owned());
                    }
                }
            }
        }
    }

    /// Waits for something to happen to a session that is connected.
    async fn next_event(&mut self) -> Event {
        tokio::select! {
            stop = self.stops.recv() => Event::Stop(stop.unwrap_or(Stop::Broken)),
            event = self.parts.next_event() => event,
        }
    }

    fn announce(&mut self) {
        if self.output == Output::Json {
            self.reporter.data(&status_document(
                &[self.board.status()],
                &Leftovers::default(),
            ));
        }
        self.reporter.connected();
        tracing::info!("connected");
        if let Some(connected) = self.connected.take() {
            // Whoever waited and does not any more has said why.
            let _ = connected.send(self.parts.id.to_string());
        }
    }

    async fn finish(mut self, ending: Ending) -> Result<(), Failure> {
        if let Err(failure) = self.parts.release().await {
            self.troubles.push(format!("release: {:#}", failure.error));
        }
        let trouble = (!self.troubles.is_empty()).then(|| self.troubles.join("; "));
        self.board.set_phase(Phase::Over(trouble.clone()));
        self.parts.close_control_socket().await;
        if let Some(trouble) = trouble {
            return Err(Failure::message(
                Exit::HostOs,
                format!("not everything could be undone: {trouble}"),
            )
            .with_hint("sudo kubebridge recover"));
        }
        match (ending, self.failure) {
            (Ending::Failed(_), Some(failure)) => Err(failure),
            (Ending::Failed(step), None) => Err(Failure::message(
                Exit::Other,
                format!("{} failed", step.label()),
            )),
            (Ending::Interrupted(_), _) => Err(Failure::message(
                Exit::Other,
                "interrupted while connecting; everything is undone",
            )),
            (Ending::Closed(Stop::Broken), Some(failure)) => Err(failure),
            (Ending::Closed(Stop::Broken), None) => Err(Failure::message(
                Exit::Other,
                "a part of the session ended; everything is undone",
            )
            .with_hint("kubebridge connect -v … shows why")),
            (Ending::Closed(Stop::Signal | Stop::Disconnect), _) => Ok(()),
        }
    }
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(owned).unwrap_or("no words").to_owned()
}

#[cfg(test)]
mod tests;
