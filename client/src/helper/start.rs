//! Starting a helper: this program again, as root, with a socket as its standard input.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Pair;
use std::process::Stdio;
use std::time::Duration;

use rustix::net::{RecvFlags, sockopt};
use rustix::process::geteuid;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use super::launcher::Launcher;
use super::program;
use crate::failure::{Exit, Failure};

/// How long a helper may take to be there when nobody has to be asked.
const START_TIME: Duration = Duration::from_secs(30);

/// How long a person may take to be asked: sudo itself gives up after five minutes.
const ASKING_TIME: Duration = Duration::from_secs(330);

/// How long a launcher that failed may take to end.
const END_TIME: Duration = Duration::from_secs(5);

/// How much of a launcher's words is kept.
const MOST_WORDS: u64 = 4096;

/// Starts a helper for this process, or one it hands the socket to, and waits until it is there;
/// `None` where none is needed, for root.
///
/// To be called while there is a terminal: sudo asks there. The helper ends with the last copy of
/// the socket.
///
/// # Errors
///
/// There is no way to become root, or the user may not or does not want to; exit code 77.
pub async fn start() -> Result<Option<OwnedFd>, Failure> {
    if geteuid().is_root() {
        return Ok(None);
    }
    let program = program::own()?;
    let has_terminal = File::open("/dev/tty").is_ok();
    let search = std::env::var_os("PATH");
    let mut refused = None;
    for launcher in Launcher::all(search.as_deref(), has_terminal) {
        let name = launcher.path().display().to_string();
        match launch(&launcher, &program).await {
            Ok(socket) => return Ok(Some(socket)),
            Err(failure) => refused = Some(failure.context(name)),
        }
        // A person who was asked has said no.
        if launcher.may_ask() {
            break;
        }
    }
    let none = || {
        Failure::message(
            Exit::Privilege,
            "only root may change this machine's DNS and hosts file, and neither sudo nor pkexec is here",
        )
    };
    let failure = refused.unwrap_or_else(none);
    Err(failure.with_hint("run the same command with sudo, or as root"))
}

/// Starts another helper if nobody has to be asked for it.
pub(super) async fn without_asking() -> Option<OwnedFd> {
    let program = program::own().ok()?;
    let search = std::env::var_os("PATH");
    let launchers = Launcher::all(search.as_deref(), false);
    let quiet = launchers.iter().find(|launcher| !launcher.may_ask())?;
    match launch(quiet, &program).await {
        Ok(socket) => Some(socket),
        Err(failure) => {
            tracing::warn!(error = %format!("{:#}", failure.error), "no other helper");
            None
        }
    }
}

async fn launch(launcher: &Launcher, program: &std::path::Path) -> Result<OwnedFd, Failure> {
    let (ours, its) = Pair::pair()?;
    // The helper's first words are to say who says them.
    sockopt::set_socket_passcred(&ours, true).map_err(io::Error::from)?;
    let mut child = Command::new(launcher.path())
        .args(launcher.arguments(program))
        .stdin(OwnedFd::from(its))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let errors = child.stderr.take();
    let limit = if launcher.may_ask() {
        ASKING_TIME
    } else {
        START_TIME
    };
    match timeout(limit, is_there(&ours)).await {
        Ok(Ok(true)) => Ok(ours.into()),
        Ok(Ok(false)) => Err(failure(child, errors).await),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Failure::message(
            Exit::Privilege,
            format!("no helper within {} s", limit.as_secs()),
        )),
    }
}

/// Waits for the first octet of the helper, and leaves it there; `false` if it ends before.
async fn is_there(socket: &Pair) -> io::Result<bool> {
    let socket = socket.try_clone()?;
    socket.set_nonblocking(true)?;
    let socket = UnixStream::from_std(socket)?;
    let look = || {
        let mut octet = [0; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        Ok(rustix::net::recv(&socket, &mut octet, flags)?.0)
    };
    match socket.async_io(Interest::READABLE, look).await {
        Ok(length) => Ok(length > 0),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(false),
        Err(error) => Err(error),
    }
}

/// Says why there is no helper, in the words of whoever said so.
async fn failure(mut child: Child, errors: Option<ChildStderr>) -> Failure {
    let told = async {
        let mut words = Vec::new();
        if let Some(errors) = errors {
            let _ = errors.take(MOST_WORDS).read_to_end(&mut words).await;
        }
        let _ = child.wait().await;
        String::from_utf8_lossy(&words).into_owned()
    };
    let words = timeout(END_TIME, told).await.unwrap_or_default();
    let lines: Vec<_> = words
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let said = if lines.is_empty() {
        "the helper ended without a word".to_owned()
    } else {
        lines.join("; ")
    };
    Failure::message(Exit::Privilege, said)
}
