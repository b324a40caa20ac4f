//! The command's side: starts the session's process, prints what it says, and leaves it alone once
//! it is connected.

use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::{HELPED, NAME, Order, Word};
use crate::cli::Mode;
use crate::connect::{STOPS, signals};
use crate::failure::{Exit, Failure};
use crate::helper;
use crate::output::print;

/// This program, even if its file was replaced meanwhile.
const SELF: &str = "/proc/self/exe";

/// Starts a session in the background and returns when it is connected.
///
/// # Errors
///
/// It could not be connected, and everything is undone.
pub async fn connect(mode: Mode) -> Result<(), Failure> {
    let (sender, mut stops) = mpsc::channel(STOPS);
    // From here on nothing is left half-way: an interrupt is passed on.
    let _signals = signals(sender)?;
    // While there is a terminal to ask for a password on.
    let helper = tokio::select! {
        helper = helper_for(mode) => helper?,
        _ = stops.recv() => return Err(was_interrupted()),
    };
    let Process {
        mut child,
        words,
        mut orders,
    } = Process::start(helper)?;
    let words = pipe::Receiver::from_owned_fd(words.into())?;
    let mut words = BufReader::new(words).lines();
    let mut is_stopping = false;
    loop {
        tokio::select! {
            Some(_) = stops.recv() => {
                is_stopping = true;
                give(&mut orders, Order::Stop);
            }
            word = words.next_line() => match word?.map(|line| serde_json::from_str(&line)) {
                Some(Ok(Word::Talk(text))) => talk(&text),
                Some(Ok(Word::Data(text))) => print(&text),
                Some(Ok(Word::Connected)) if is_stopping => {}
                Some(Ok(Word::Connected)) => {
                    give(&mut orders, Order::Keep);
                    return Ok(());
                }
                Some(Ok(Word::Failed { exit, error, hint })) => {
                    drop(child.wait());
                    return Err(Failure { hint, ..Failure::message(Exit::from_code(exit), error) });
                }
                Some(Err(error)) => return Err(Failure::new(Exit::Other, error)),
                None if is_stopping => return Err(interrupted(&mut child)),
                None => return Err(died(&mut child)),
            }
        }
    }
}

/// Nothing has to be done by root for a proxy.
async fn helper_for(mode: Mode) -> Result<Option<OwnedFd>, Failure> {
    match mode {
        Mode::Tun => helper::start().await,
        Mode::Proxy => Ok(None),
    }
}

/// The session's process, with the ways from and to it.
struct Process {
    child: Child,
    words: PipeReader,
    orders: PipeWriter,
}

impl Process {
    /// Starts it with our own arguments, environment and folder; it leaves our terminal itself.
    /// The socket of its helper, if it has one, is its standard error.
    fn start(helper: Option<OwnedFd>) -> Result<Self, Failure> {
        let (their_orders, orders) = io::pipe()?;
        let (words, their_words) = io::pipe()?;
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let (name, errors) = match helper {
            None => (NAME, Stdio::inherit()),
            Some(socket) => (HELPED, Stdio::from(socket)),
        };
        let child = Command::new(program()?)
            .arg0(name)
            .args(arguments)
            .stderr(errors)
            .stdin(Stdio::from(their_orders))
            .stdout(Stdio::from(their_words))
            .spawn()
            .map_err(|error| {
                Failure::new(Exit::Other, error)
                    .context("starting the session's process")
                    .with_hint("kubebridge connect --foreground does without one")
            })?;
        Ok(Self {
            child,
            words,
            orders,
        })
    }
}

fn program() -> io::Result<PathBuf> {
    if Path::new(SELF).exists() {
        Ok(SELF.into())
    } else {
        std::env::current_exe()
    }
}

/// A process that is gone hears nothing; that its words end says so.
fn give(orders: &mut PipeWriter, order: Order) {
    if let Ok(mut line) = serde_json::to_vec(&order) {
        line.push(b'\n');
        let _ = orders.write_all(&line);
    }
}

fn talk(text: &str) {
    let mut out = io::stderr().lock();
    // A terminal that is gone must not end the session.
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// A session that was connected when it was told to stop ends well, without a word.
fn interrupted(child: &mut Child) -> Failure {
    drop(child.wait());
    was_interrupted()
}

fn was_interrupted() -> Failure {
    Failure::message(
        Exit::Other,
        "interrupted while connecting; everything is undone",
    )
}

fn died(child: &mut Child) -> Failure {
    let how = match child.wait() {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    Failure::message(
        Exit::Other,
        format!("the session's process ended before it was connected ({how})"),
    )
    .with_hint("sudo kubebridge recover")
}
