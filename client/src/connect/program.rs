//! `connect -- CMD…`: runs a program while the session is connected.
//!
//! The program has our terminal, and gets the signals that we get; its exit code is ours.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;

use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::progress::Reporter;
use crate::session::Stop;

/// How programs find the session they run beside.
const SESSION: &str = "KUBEBRIDGE_SESSION";
/// What a shell says of a program that is not there, and of one that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;
/// What a shell adds to the signal that ended a program.
const BY_SIGNAL: i32 = 128;

/// A program that waits for a session.
pub(super) struct Program {
    pub(super) words: Vec<OsString>,
    pub(super) connected: oneshot::Receiver<String>,
    /// Says that the session is over.
    pub(super) over: CancellationToken,
    pub(super) stops: mpsc::Sender<Stop>,
    pub(super) reporter: Arc<Reporter>,
}

impl Program {
    /// Runs the program when the session is connected, has the session end after it, and tells
    /// its exit code. Signals are the session's before and after, to the end of this.
    pub(super) async fn run(mut self, mut signals: Signals, code: oneshot::Sender<u8>) {
        let session = loop {
            tokio::select! {
                told = &mut self.connected => match told {
                    Ok(session) => break session,
                    // Why it never was is told by the session.
                    Err(_) => return,
                },
                _ = signals.next() => self.stop(Stop::Signal),
            }
        };
        let ended = self.run_connected(&session, &mut signals).await;
        // Whoever waited has gone if this fails.
        let _ = code.send(ended);
        self.stop(Stop::Disconnect);
        loop {
            signals.next().await;
            self.stop(Stop::Signal);
        }
    }

    async fn run_connected(&self, session: &str, signals: &mut Signals) -> u8 {
        let Some((first, rest)) = self.words.split_first() else {
            return NOT_FOUND;
        };
        let started = Command::new(first).args(rest).env(SESSION, session).spawn();
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                let name = first.display();
                self.reporter.warn(&format!("cannot run {name}: {error}"));
                return match error.kind() {
                    std::io::ErrorKind::NotFound => NOT_FOUND,
                    _ => NOT_RUN,
                };
            }
        };
        let mut is_told = false;
        loop {
            tokio::select! {
                status = child.wait() => return status.map_or(NOT_RUN, exit_code),
                signal = signals.next() => pass_on(&child, signal),
                () = self.over.cancelled(), if !is_told => {
                    is_told = true;
                    self.reporter.warn("the session has ended; the program is told to end, too");
                    pass_on(&child, Signal::TERM);
                }
            }
        }
    }

    fn stop(&self, stop: Stop) {
        // A full queue has a stop in it already.
        let _ = self.stops.try_send(stop);
    }
}

/// The signals that end programs.
pub(super) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one. May be dropped and called again.
    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hangup.recv() => Signal::HUP,
        }
    }
}

/// Gives the program a signal that it did not get from the terminal as well.
fn pass_on(child: &Child, signal: Signal) {
    if signal == Signal::INT && is_in_foreground() {
        return;
    }
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}

/// Whether the terminal's keys reach us, and with us the program: both are in one group.
fn is_in_foreground() -> bool {
    let terminal = File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()))
}

fn exit_code(status: ExitStatus) -> u8 {
    let by_signal = || status.signal().map(|signal| BY_SIGNAL + signal);
    let code = status.code().or_else(by_signal);
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(NOT_RUN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_program_as_a_shell_tells_it() {
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(exit_code(ExitStatus::from_raw(42 << 8)), 42);
        assert_eq!(exit_code(ExitStatus::from_raw(15)), 143);
    }
}
