//! One session as states and events: what to do next, and what to undo when something fails.
//!
//! Pure. [`run`] carries the effects out and reports back; nothing here waits, reads or writes.

mod claims;
mod drift;
mod ending;
mod events;
mod hosts;
pub mod os;
mod parts;
pub mod preview;
pub mod routes;
pub mod run;
mod steps;
mod writing;

use crate::cli::Mode;

/// The steps of connecting, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Take the machine's lock, repair what a dead session left, open the control socket.
    Recover,
    /// Read how the machine resolves names now.
    ReadDns,
    /// Connect to the manager.
    Dial,
    /// Open a session with it and get its routes.
    OpenSession,
    /// Claim what the cluster has, beside the other sessions of the machine.
    Claim,
    /// Find out which IP routes may be had.
    Plan,
    /// Create the link the resolver lives on.
    Link,
    /// Start the local resolver.
    Resolver,
    /// Set the IP routes into the link.
    Routes,
    /// Ask it one name of the cluster and one outside.
    Probe,
    /// Start the proxy.
    Proxy,
    /// Point the machine's DNS at it.
    PointOs,
    /// Write the hosts lines.
    Hosts,
    /// Resolve a name the way programs do.
    Verify,
}

impl Step {
    /// All steps, in order.
    pub const ALL: [Self; 14] = [
        Self::Recover,
        Self::ReadDns,
        Self::Dial,
        Self::OpenSession,
        Self::Claim,
        Self::Plan,
        Self::Link,
        Self::Resolver,
        Self::Routes,
        Self::Probe,
        Self::Proxy,
        Self::PointOs,
        Self::Hosts,
        Self::Verify,
    ];

    /// The step's name in progress, errors and status.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Recover => "recover",
            Self::ReadDns => "read DNS",
            Self::Dial => "dial manager",
            Self::OpenSession => "open session",
            Self::Claim => "other sessions",
            Self::Plan => "plan routes",
            Self::Link => "link",
            Self::Resolver => "resolver",
            Self::Routes => "routes",
            Self::Probe => "probe",
            Self::Proxy => "proxy",
            Self::PointOs => "system DNS",
            Self::Hosts => "hosts",
            Self::Verify => "verify",
        }
    }

    /// Whether the step may be dropped half-way. Steps that change the machine run to their end,
    /// so that what they did is known when it is undone.
    #[must_use]
    pub fn is_interruptible(self) -> bool {
        match self {
            Self::Dial | Self::OpenSession | Self::Plan | Self::Probe | Self::Verify => true,
            Self::Recover
            | Self::ReadDns
            | Self::Claim
            | Self::Link
            | Self::Resolver
            | Self::Routes
            | Self::Proxy
            | Self::PointOs
            | Self::Hosts => false,
        }
    }

    /// Whether a session in a mode has the step; those it has not are passed over.
    #[must_use]
    pub fn is_of(self, mode: Mode) -> bool {
        match (mode, self) {
            (
                _,
                Self::Recover
                | Self::ReadDns
                | Self::Dial
                | Self::OpenSession
                | Self::Resolver
                | Self::Probe,
            ) => true,
            (Mode::Proxy, step) => step == Self::Proxy,
            (Mode::Tun, step) => step != Self::Proxy,
        }
    }

    fn next(self) -> Option<Self> {
        let place = Self::ALL.iter().position(|step| *step == self)?;
        Self::ALL.get(place + 1).copied()
    }
}

/// What is undone, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Take the machine's DNS and hosts lines back.
    RestoreHost,
    /// Let the resolver answer on for programs that read the old settings.
    Linger,
    /// Stop the resolver and remove the link.
    RemoveLink,
    /// Drop the connection to the manager.
    CloseSession,
}

impl Undo {
    /// Whether a session in a mode has anything of the kind to undo.
    #[must_use]
    pub fn is_of(self, mode: Mode) -> bool {
        mode == Mode::Tun || self == Self::CloseSession
    }

    /// The name in progress, errors and status.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::RestoreHost => "restore system DNS and hosts",
            Self::Linger => "resolver answers on",
            Self::RemoveLink => "remove link",
            Self::CloseSession => "close session",
        }
    }
}

/// Why a session is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGINT, SIGTERM or SIGHUP.
    Signal,
    /// `kubebridge disconnect`.
    Disconnect,
    /// A task the session cannot do without has ended.
    Broken,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A step of connecting failed.
    Failed(Step),
    /// It was stopped before it was connected.
    Interrupted(Stop),
    /// It was stopped after it was connected.
    Closed(Stop),
}

/// Whether the manager answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Good,
    /// It does not: cluster names fail, all others resolve.
    Degraded,
}

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing was done yet.
    Ready,
    /// A step is under way; with a stop that waits for the step's end.
    Connecting(Step, Option<Stop>),
    /// All steps are done.
    Connected(Health),
    /// Something is being undone.
    Undoing(Undo, Ending),
    /// Everything is undone.
    Ended(Ending),
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The session shall connect.
    Start,
    /// The current step succeeded.
    Done,
    /// The current step failed.
    Failed,
    /// The session shall end.
    Stop(Stop),
    /// The manager answers, or no longer.
    Tunnel(Health),
    /// The routes or what is known about their names changed.
    RoutesChanged,
    /// An answer needs a route, one is over, or Services may need some.
    ReachChanged,
    /// The manager was reached again, and may know another cluster than before.
    ClusterChanged,
    /// The machine may no longer be as the session left it.
    Drifted,
    /// The current undo is over, well or badly.
    Undone,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Carry a step out.
    Run(Step),
    /// Drop the step under way.
    Interrupt,
    /// Tell the user that the session is connected.
    Announce,
    /// Bring the hosts lines up to date.
    RefreshHosts,
    /// Bring the IP routes up to date.
    RefreshRoutes,
    /// Bring the settings up to date with what the manager says of the cluster.
    FollowCluster,
    /// Hold the machine against what the session wants of it.
    Verify,
    /// Undo something.
    Undo(Undo),
    /// Do not wait any longer.
    CutLinger,
    /// The session is over.
    End(Ending),
}

/// Computes what follows from an event.
#[must_use]
pub fn handle(state: State, event: Event) -> (State, Option<Effect>) {
    match (state, event) {
        (State::Ready, Event::Start) => run(Step::Recover),
        (State::Ready, Event::Stop(stop)) => end(Ending::Interrupted(stop)),
        (State::Connecting(step, None), Event::Done) => match step.next() {
            Some(next) => run(next),
            None => (State::Connected(Health::Good), Some(Effect::Announce)),
        },
        (State::Connecting(step, None), Event::Failed) => undo_from(step, Ending::Failed(step)),
        (State::Connecting(step, None), Event::Stop(stop)) if step.is_interruptible() => {
            (State::Connecting(step, Some(stop)), Some(Effect::Interrupt))
        }
        (State::Connecting(step, None), Event::Stop(stop)) => {
            (State::Connecting(step, Some(stop)), None)
        }
        (State::Connecting(step, Some(stop)), Event::Done | Event::Failed) => {
            undo_from(step, Ending::Interrupted(stop))
        }
        (State::Connected(_), Event::Stop(stop)) => undo(Undo::RestoreHost, Ending::Closed(stop)),
        (State::Connected(_), Event::Tunnel(health)) => (State::Connected(health), None),
        (State::Connected(_), Event::RoutesChanged) => (state, Some(Effect::RefreshHosts)),
        (State::Connected(_), Event::ReachChanged) => (state, Some(Effect::RefreshRoutes)),
        (State::Connected(_), Event::ClusterChanged) => (state, Some(Effect::FollowCluster)),
        (State::Connected(_), Event::Drifted) => (state, Some(Effect::Verify)),
        (State::Undoing(Undo::Linger, _), Event::Stop(Stop::Signal)) => {
            (state, Some(Effect::CutLinger))
        }
        (State::Undoing(current, ending), Event::Undone) => match after(current, ending) {
            Some(next) => undo(next, ending),
            None => end(ending),
        },
        // Late or repeated news changes nothing.
        (
            State::Ready
            | State::Connecting(..)
            | State::Connected(_)
            | State::Undoing(..)
            | State::Ended(_),
            _,
        ) => (state, None),
    }
}

fn run(step: Step) -> (State, Option<Effect>) {
    (State::Connecting(step, None), Some(Effect::Run(step)))
}

fn undo(what: Undo, ending: Ending) -> (State, Option<Effect>) {
    (State::Undoing(what, ending), Some(Effect::Undo(what)))
}

fn end(ending: Ending) -> (State, Option<Effect>) {
    (State::Ended(ending), Some(Effect::End(ending)))
}

/// The first thing to undo when connecting ends at a step, done or not.
fn undo_from(reached: Step, ending: Ending) -> (State, Option<Effect>) {
    match reached {
        Step::Recover | Step::ReadDns => end(ending),
        Step::Dial | Step::OpenSession | Step::Claim | Step::Plan => {
            undo(Undo::CloseSession, ending)
        }
        Step::Link | Step::Resolver | Step::Routes | Step::Probe | Step::Proxy => {
            undo(Undo::RemoveLink, ending)
        }
        Step::PointOs | Step::Hosts | Step::Verify => undo(Undo::RestoreHost, ending),
    }
}

fn after(done: Undo, ending: Ending) -> Option<Undo> {
    match (done, ending) {
        (Undo::RestoreHost, Ending::Closed(_)) => Some(Undo::Linger),
        // Nobody had time to take the settings up.
        (Undo::RestoreHost, Ending::Failed(_) | Ending::Interrupted(_)) | (Undo::Linger, _) => {
            Some(Undo::RemoveLink)
        }
        (Undo::RemoveLink, _) => Some(Undo::CloseSession),
        (Undo::CloseSession, _) => None,
    }
}

#[cfg(test)]
mod tests;
