//! The session's side: leaves the terminal, connects, and goes on alone once the command says so.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::log::LogFile;
use super::voice::Voice;
use super::{Order, Word, is_helped};
use crate::cli::{self, Cli, Command, Parsed};
use crate::connect::{Config, STOPS, signals};
use crate::failure::{Exit, Failure};
use crate::helper::own_runtime;
use crate::output;
use crate::progress::Reporter;
use crate::session::Stop;
use crate::session::os::ThisMachine;
use crate::session::run::{Surroundings, run};

/// The first descriptor that is none of the three every process has.
const OWN: i32 = 3;

/// Runs a session that `kubebridge connect` began.
#[must_use]
pub fn start(arguments: &[OsString]) -> ExitCode {
    // Without the two ways there is nobody to say it to.
    let Ok((orders, voice, helper)) = leave_terminal(is_helped(arguments)) else {
        return ExitCode::from(Exit::Usage as u8);
    };
    let log = Arc::new(LogFile::default());
    match session(arguments, orders, helper, &voice, &log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            log.write(format!("{failure}\n").as_bytes());
            // Where the sessions' folder cannot be written there is no log either.
            let _ = log.keep(&own_runtime());
            voice.say(&Word::Failed {
                exit: failure.exit as u8,
                error: crate::failure::chain(&failure.error),
                hint: failure.hint,
            });
            ExitCode::from(failure.exit as u8)
        }
    }
}

/// Takes the two ways to the command out of stdin and stdout, and becomes a session of its own:
/// what happens to the terminal no longer happens to us.
///
/// Where a helper's socket is stderr that is taken out, too.
fn leave_terminal(is_helped: bool) -> io::Result<(OwnedFd, Voice, Option<OwnedFd>)> {
    let orders = fcntl_dupfd_cloexec(io::stdin(), OWN)?;
    let words = fcntl_dupfd_cloexec(io::stdout(), OWN)?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    let helper = if is_helped {
        let socket = fcntl_dupfd_cloexec(io::stderr(), OWN)?;
        dup2_stderr(&nothing)?;
        Some(socket)
    } else {
        None
    };
    rustix::process::setsid()?;
    Ok((orders, Voice::new(words.into()), helper))
}

fn session(
    arguments: &[OsString],
    orders: OwnedFd,
    helper: Option<OwnedFd>,
    voice: &Voice,
    log: &Arc<LogFile>,
) -> Result<(), Failure> {
    let Parsed::Run(cli) = cli::parse(arguments)? else {
        return Err(Failure::usage("a session only connects"));
    };
    output::start_session_log(cli.global.verbose, Arc::clone(log), voice.clone());
    tokio::runtime::Runtime::new()?.block_on(connect(&cli, orders, helper, voice, log))
}

async fn connect(
    cli: &Cli,
    orders: OwnedFd,
    helper: Option<OwnedFd>,
    voice: &Voice,
    log: &Arc<LogFile>,
) -> Result<(), Failure> {
    let Command::Connect(arguments) = &cli.command else {
        return Err(Failure::usage("a session only connects"));
    };
    let (sender, stops) = mpsc::channel(STOPS);
    let _signals = signals(sender.clone())?;
    let (connected, is_connected) = oneshot::channel();
    let orders = BufReader::new(pipe::Receiver::from_owned_fd(orders)?).lines();
    let obeying = obey(orders, is_connected, voice.clone(), sender.clone());
    let _obeying = AbortOnDropHandle::new(tokio::spawn(obeying));
    let config = Config::resolve(arguments, &cli.global)?.complete().await?;
    let reporter = Reporter::new(cli.global.progress, Box::new(voice.talk(log)))
        .timed(cli.global.verbose > 0)
        .with_data(Box::new(voice.data()));
    let surroundings = Surroundings {
        reporter: Arc::new(reporter),
        stop_sender: sender,
        stops,
        connected: Some(connected),
        log: Some(Arc::clone(log)),
    };
    let machine = helper.map_or_else(ThisMachine::default, ThisMachine::with_helper);
    run(&machine, config, surroundings).await
}

/// Does as the command says, until it says to go on alone or is gone.
async fn obey(
    mut orders: Lines<BufReader<pipe::Receiver>>,
    mut connected: oneshot::Receiver<String>,
    voice: Voice,
    stops: mpsc::Sender<Stop>,
) {
    let mut is_told = false;
    loop {
        tokio::select! {
            told = &mut connected, if !is_told => {
                is_told = true;
                if told.is_ok() {
                    voice.say(&Word::Connected);
                }
            }
            order = orders.next_line() => {
                let line = order.ok().flatten();
                let is_gone = line.is_none();
                match line.and_then(|line| serde_json::from_str(&line).ok()) {
                    Some(Order::Keep) => {
                        voice.close();
                        return leave_stderr();
                    }
                    // Whoever is gone never heard that the session is there, and nobody would end
                    // it. A full queue has a stop in it already.
                    Some(Order::Stop) | None => {
                        let _ = stops.try_send(Stop::Signal);
                    }
                }
                if is_gone {
                    return;
                }
            }
        }
    }
}

/// Lets go of the terminal where no log was opened in its place.
fn leave_stderr() {
    if rustix::termios::isatty(io::stderr())
        && let Ok(nothing) = File::options().write(true).open("/dev/null")
    {
        let _ = dup2_stderr(&nothing);
    }
}
