//! A program that runs in a machine until the lab ends, with its log in a file.
//!
//! Waiting for one fails at once when it has ended, with its last words.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    machine::child_of,
    wait::{until, until_closely},
};

/// How much of a log is shown when something went wrong.
const LAST_LINES: usize = 60;

/// How long `nsenter` may take to start the program.
const BORN: Duration = Duration::from_secs(30);

/// A running program.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    log: PathBuf,
    /// Where in the log this run begins: an earlier one may have left its own there.
    begin: usize,
    child: Mutex<Child>,
}

impl Daemon {
    /// Starts `command` (of [`Machine::command`](crate::machine::Machine::command)); what it
    /// prints goes to `NAME.log` in `logs`.
    pub fn start(name: &str, logs: &Path, mut command: Command) -> Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log)?;
        let begin = usize::try_from(file.metadata()?.len())?;
        let child = command
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            log,
            begin,
            child: Mutex::new(child),
        })
    }

    /// What it printed so far.
    pub fn log(&self) -> Result<String> {
        let bytes =
            fs::read(&self.log).with_context(|| format!("read the log of {}", self.name))?;
        Ok(String::from_utf8_lossy(&bytes[self.begin..]).into_owned())
    }

    /// Looks until `look` succeeds, but gives up as soon as the program has ended.
    pub fn until<T>(
        &self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        until(what, limit, || {
            let ended = self.child.lock().try_wait()?;
            Ok(match ended {
                Some(status) => Err(anyhow!(
                    "{} ended with {status} while waiting for {what}:\n{}",
                    self.name,
                    tail(&self.log()?)
                )),
                None => Ok(look()?),
            })
        })?
    }

    /// Waits until its log has a line for which `wanted` is true.
    pub fn until_line(
        &self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<String> {
        self.until(what, limit, || {
            let log = self.log()?;
            match log.lines().find(|line| wanted(line)) {
                Some(line) => Ok(line.to_owned()),
                None => bail!("{} has not said it:\n{}", self.name, tail(&log)),
            }
        })
    }

    /// Waits closely for a line that begins with `start`, to the millisecond.
    pub fn until_says(&self, start: &str, limit: Duration) -> Result<()> {
        until_closely(&format!("{} to say {start:?}", self.name), limit, || {
            // Asked first: it may say it and end between the two.
            let ended = self.child.lock().try_wait()?;
            let log = self.log()?;
            if log.lines().any(|line| line.starts_with(start)) {
                return Ok(Ok(()));
            }
            match ended {
                Some(status) => Ok(Err(anyhow!(
                    "{} ended with {status}:\n{}",
                    self.name,
                    tail(&log)
                ))),
                None => bail!("it has not:\n{}", tail(&log)),
            }
        })?
    }

    /// The process of the program itself, not of the `nsenter` that started it.
    pub fn process(&self) -> Result<u32> {
        until_closely(&format!("{} to be a process", self.name), BORN, || {
            let mut child = self.child.lock();
            match child.try_wait()? {
                Some(status) => Ok(Err(anyhow!("{} ended with {status}", self.name))),
                None => child_of(child.id()).map(Ok),
            }
        })?
    }

    /// Sends a signal to the program itself.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let process = i32::try_from(self.process()?).ok().and_then(Pid::from_raw);
        kill_process(process.context("not a process number")?, signal)
            .with_context(|| format!("signal {}", self.name))
    }

    /// Waits for the program to end by itself.
    pub fn ended(&self, limit: Duration) -> Result<ExitStatus> {
        until(&format!("{} to end", self.name), limit, || {
            match self.child.lock().try_wait()? {
                Some(status) => Ok(status),
                None => bail!("it still runs:\n{}", tail(&self.log()?)),
            }
        })
    }
}

/// The last lines of a log.
pub(crate) fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
