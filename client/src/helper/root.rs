//! Being the helper: root's side of the socket on standard input.
//!
//! It says nothing once it serves: what it has to tell goes over the socket, and a terminal that
//! nobody reads could keep it from undoing. It leaves the terminal's signals alone for the same
//! reason: the session hears them and ends in order.

use std::env;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use kubebridge_platform::Sys;
use kubebridge_platform::helper::{HelperError, serve};
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{Uid, geteuid, getuid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use tokio::signal::unix::{SignalKind, signal};

use super::{ALONE, ARGUMENT, Part};
use crate::failure::{Exit, Failure};

/// Where the system's bus is, whatever the environment says of it.
const BUS: &str = "unix:path=/run/dbus/system_bus_socket";

/// Where sudo and pkexec say who called them.
const CALLERS: [&str; 2] = ["SUDO_UID", "PKEXEC_UID"];

/// This program, even if its file was replaced meanwhile.
const SELF: &str = "/proc/self/exe";

/// What the process is called, whatever path it was started by.
const NAME: &CStr = c"kubebridge";

/// The rights that changing the machine takes: link and addresses, port 53, and files with their
/// owner, mode and attributes as they were.
const RIGHTS: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// Serves the session on standard input until it ends, or has another process do so.
///
/// # Errors
///
/// This is not root, nobody is there to serve, the session broke the rules, or not everything could
/// be undone.
pub fn run(part: Part) -> Result<(), Failure> {
    let peer = caller(getuid(), geteuid(), |name| env::var(name).ok())?;
    let socket = socket()?;
    if part == Part::First {
        return hand_over(socket);
    }
    leave_the_user_behind()?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(attend(socket, peer))
}

/// Starts the process that serves, and lets it go.
///
/// sudo stays as long as what it started, with the terminal it was asked on; when that closes it
/// ends its program, SIGKILL and all.
fn hand_over(socket: OwnedFd) -> Result<(), Failure> {
    let callers = CALLERS.into_iter();
    let callers = callers.filter_map(|name| Some((name, env::var_os(name)?)));
    let mut other = Command::new(SELF)
        .arg0(NAME.to_string_lossy().as_ref())
        .args([ARGUMENT, ALONE])
        .env_clear()
        .envs(callers)
        .stdin(Stdio::from(socket))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| Failure::new(Exit::HostOs, error).context("starting the helper"))?;
    if let Some(mut output) = other.stdout.take() {
        // It closes that when it no longer belongs to this terminal.
        io::copy(&mut output, &mut io::sink())?;
    }
    Ok(())
}

async fn attend(socket: OwnedFd, peer: Uid) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    // A handler in place of the default: nothing but SIGTERM and SIGKILL ends a helper.
    let _ignored = [
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
        signal(SignalKind::quit())?,
    ];
    let sys = Sys {
        bus_address: Some(BUS.to_owned()),
        ..Sys::default()
    };
    let told_to_end = async {
        terminate.recv().await;
    };
    serve(socket, sys, peer, told_to_end)
        .await
        .map_err(|error| {
            let exit = match error {
                HelperError::Violation(_) | HelperError::Version(_) => Exit::Privilege,
                HelperError::Gone
                | HelperError::Silent
                | HelperError::Socket(_)
                | HelperError::TooLong(_)
                | HelperError::Encode(_)
                | HelperError::Undo(_) => Exit::HostOs,
            };
            Failure::new(exit, error)
        })
}

/// Returns the user on whose behalf this is root: whom sudo or pkexec name, else root itself.
fn caller(
    real: Uid,
    effective: Uid,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Uid, Failure> {
    let refused = |words: &'static str| {
        Failure::message(Exit::Privilege, words)
            .with_hint("kubebridge connect starts the helper, by sudo or pkexec")
    };
    // A set-user-id copy of the program is nobody's wish.
    if !real.is_root() || !effective.is_root() {
        return Err(refused("the helper has to be root's"));
    }
    let named = CALLERS.map(variable);
    match named {
        [None, None] => Ok(Uid::ROOT),
        [Some(uid), None] | [None, Some(uid)] => match uid.parse() {
            // The greatest number means "none" to the kernel.
            Ok(uid) if uid < u32::MAX => Ok(Uid::from_raw(uid)),
            _ => Err(refused("SUDO_UID or PKEXEC_UID is no user")),
        },
        [Some(_), Some(_)] => Err(refused("both sudo and pkexec say that they started this")),
    }
}

fn socket() -> Result<OwnedFd, Failure> {
    let input = io::stdin();
    let input = input.as_fd();
    let kind = (sockopt::socket_domain(input), sockopt::socket_type(input));
    if kind != (Ok(AddressFamily::UNIX), Ok(SocketType::STREAM)) {
        return Err(Failure::message(
            Exit::Privilege,
            "standard input is not the socket of a session",
        )
        .with_hint(
            "kubebridge connect starts the helper; a sudo that logs input (log_input) cannot",
        ));
    }
    Ok(input.try_clone_to_owned()?)
}

/// Gives up the terminal's process group, the user's folder and every right that is not needed.
fn leave_the_user_behind() -> Result<(), Failure> {
    // Refused to the leader of a group, which has none of the user's.
    let _ = rustix::process::setsid();
    let nothing = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nothing).map_err(io::Error::from)?;
    rustix::thread::set_name(NAME).map_err(io::Error::from)?;
    rustix::process::chdir("/").map_err(io::Error::from)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let failed = |errno: rustix::io::Errno| {
        Failure::new(Exit::Privilege, io::Error::from(errno)).context("giving up rights")
    };
    rustix::thread::set_no_new_privs(true).map_err(failed)?;
    let kept = rustix::thread::capabilities(None)
        .map_err(failed)?
        .permitted
        .intersection(RIGHTS);
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(real: u32, effective: u32, names: &[(&str, &str)]) -> Result<u32, String> {
        let variable = |wanted: &str| {
            let found = names.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        };
        caller(Uid::from_raw(real), Uid::from_raw(effective), variable)
            .map(Uid::as_raw)
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_helper_serves_whom_sudo_or_pkexec_name_and_else_root_alone() {
        assert_eq!(called(0, 0, &[]), Ok(0));
        assert_eq!(called(0, 0, &[("SUDO_UID", "1000")]), Ok(1000));
        assert_eq!(called(0, 0, &[("PKEXEC_UID", "1001")]), Ok(1001));
    }

    #[test]
    fn a_helper_that_is_not_wholly_root_or_not_called_by_one_user_ends() {
        for (real, effective, names) in [
            (1000, 1000, &[][..]),
            (1000, 0, &[]),
            (0, 1000, &[]),
            (0, 0, &[("SUDO_UID", "")]),
            (0, 0, &[("SUDO_UID", "-1")]),
            (0, 0, &[("SUDO_UID", "4294967295")]),
            (0, 0, &[("SUDO_UID", "1000x")]),
            (0, 0, &[("SUDO_UID", "1000"), ("PKEXEC_UID", "1000")]),
        ] {
            assert!(called(real, effective, names).is_err(), "{real} {names:?}");
        }
    }
}
