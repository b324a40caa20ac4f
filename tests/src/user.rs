//! A user of the laptop without rights, who may run our program as root's helper and nothing else.
//!
//! The way to root is Debian's own sudo, as a person has it.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::{
    daemon::Daemon,
    lab::Lab,
    machine::Machine,
    parts::program,
    product::{Attempt, LOG, NAMESPACES, must_be_as, token_flags},
    snapshot::Snapshot,
    wait::until,
};

/// The user's number.
pub const USER: u32 = 1000;

/// Where the user's sessions have their sockets.
pub const RUNTIME: &str = "/run/user/1000/kubebridge";

const PATIENCE: Duration = Duration::from_secs(60);

/// The user, and the copy of the program that sudo may run.
#[derive(Debug)]
pub struct User<'lab> {
    lab: &'lab Lab,
    program: PathBuf,
}

impl<'lab> User<'lab> {
    /// Makes the user. To be called before a snapshot is taken: it writes in the laptop's /etc.
    pub fn new(lab: &'lab Lab) -> Result<Self> {
        // A copy that everybody may run and nobody change, wherever the build is.
        let folder = lab.folder.path().join("bin");
        fs::create_dir(&folder)?;
        let copy = folder.join("kubebridge");
        fs::copy(program("kubebridge")?, &copy)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
        lab.laptop.on().shell(&format!(
            "sed -i '/^[^:]*:[^:]*:{USER}:/d' /etc/passwd /etc/group
echo 'dev:x:{USER}:{USER}::/run/user/{USER}:/bin/sh' >>/etc/passwd
echo 'dev:x:{USER}:' >>/etc/group
echo 'dev:*:19000:0:99999:7:::' >>/etc/shadow
umask 227
echo 'dev ALL=(root) NOPASSWD: {program} helper' >/etc/sudoers.d/kubebridge
umask 022
mkdir -p /run/user/{USER} /run/dbus
chown {USER}:{USER} /run/user/{USER}
chmod 700 /run/user/{USER}
ln -s {bus} /run/dbus/system_bus_socket",
            program = copy.display(),
            bus = lab.folder.path().join("bus").display(),
        ))?;
        Ok(Self { lab, program: copy })
    }

    fn machine(&self) -> &Machine {
        self.lab.laptop.on()
    }

    /// A command of the program, as the user runs it.
    fn command(&self) -> Command {
        let mut command = self.machine().command("setpriv");
        command
            .args([format!("--reuid={USER}"), format!("--regid={USER}")])
            .arg("--clear-groups")
            .arg(&self.program)
            .env("HOME", format!("/run/user/{USER}"))
            .env("XDG_RUNTIME_DIR", format!("/run/user/{USER}"));
        command
    }

    fn connect_words(&self, options: &[&str]) -> Result<Vec<String>> {
        let mut words = vec!["connect".to_owned(), "--foreground".to_owned()];
        words.extend(NAMESPACES.iter().map(|name| format!("-n={name}")));
        words.extend(["--probe".to_owned(), "www.example.org".to_owned()]);
        words.extend(token_flags(self.lab, &NAMESPACES)?);
        words.push(format!("--manager={}", self.lab.relay.address()));
        words.extend(options.iter().map(|&option| option.to_owned()));
        Ok(words)
    }

    /// Runs `kubebridge connect` as the user, with more `options`.
    pub fn connect(&self, options: &[&str]) -> Result<Attempt<'lab>> {
        self.attempt(&self.connect_words(options)?)
    }

    /// Runs `kubebridge` as the user with words that connect in the foreground.
    pub fn attempt(&self, words: &[String]) -> Result<Attempt<'lab>> {
        let mut command = self.command();
        command.env("RUST_LOG", LOG).args(words);
        let daemon = Daemon::start("kubebridge-user", &self.lab.logs(), command)?;
        Ok(Attempt::of(self.lab, daemon))
    }

    /// The shell words with which the user connects on a terminal, and leaves the session in the
    /// background.
    pub fn background_words(&self) -> Result<Vec<String>> {
        let mut words = self.words(&[])?;
        words.retain(|word| word != "--foreground");
        Ok(words)
    }

    /// The shell words with which the user connects on a terminal.
    pub fn words(&self, options: &[&str]) -> Result<Vec<String>> {
        let mut words = vec![
            "setpriv".to_owned(),
            format!("--reuid={USER}"),
            format!("--regid={USER}"),
            "--clear-groups".to_owned(),
            self.program.display().to_string(),
        ];
        words.extend(self.connect_words(options)?);
        Ok(words)
    }

    /// Runs another command to its end, which may be a failure.
    pub fn run(&self, words: &[&str]) -> Result<Output> {
        Ok(self.command().args(words).output()?)
    }

    /// Runs another command, which must succeed, and gives what it printed.
    pub fn output(&self, words: &[&str]) -> Result<String> {
        let said = self.run(words)?;
        let output = String::from_utf8_lossy(&said.stdout).into_owned();
        ensure!(
            said.status.success(),
            "kubebridge {words:?} of the user ended with {}: {output}{}",
            said.status,
            String::from_utf8_lossy(&said.stderr)
        );
        Ok(output)
    }

    /// How many helpers there are.
    pub fn helpers(&self) -> Result<usize> {
        // The first process of the lab's machines reaps nobody: the dead still show.
        let living = ["pgrep", "-x", "-r", "RSDT", "-u", "0", "kubebridge"];
        let found = self.machine().run(&living)?;
        Ok(String::from_utf8(found.stdout)?.lines().count())
    }

    /// The process of the helper, in the laptop's own count; `None` if there is none.
    pub fn helper(&self) -> Result<Option<u32>> {
        self.process_of(0)
    }

    /// The process of the session.
    pub fn session(&self) -> Result<Option<u32>> {
        self.process_of(USER)
    }

    fn process_of(&self, user: u32) -> Result<Option<u32>> {
        // A helper has two processes until the first has handed over.
        until("one process at most", PATIENCE, || {
            let user = user.to_string();
            // The first process of the lab's machines reaps nobody: the dead still show.
            let living = ["pgrep", "-x", "-r", "RSDT", "-u", &user, "kubebridge"];
            let found = self.machine().run(&living)?;
            let text = String::from_utf8(found.stdout)?;
            let mut numbers = text.split_whitespace().map(str::parse);
            match (numbers.next(), numbers.next()) {
                (None, _) => Ok(None),
                (Some(one), None) => Ok(Some(one?)),
                (Some(_), Some(_)) => bail!("several processes of user {user}: {text}"),
            }
        })
    }

    /// Sends a signal to the helper.
    pub fn signal_helper(&self, signal: Signal) -> Result<()> {
        let helper = self.helper()?.context("there is no helper")?;
        let signal = format!("-{}", signal.as_raw());
        self.machine()
            .output(&["kill", &signal, &helper.to_string()])
            .map(drop)
    }

    /// Waits until no helper is left.
    pub fn until_no_helper(&self) -> Result<()> {
        until("the helper to end", PATIENCE, || {
            ensure!(self.helper()?.is_none(), "it still runs");
            Ok(())
        })
    }

    /// Waits until the laptop is as `before` by itself.
    pub fn until_as(&self, before: &Snapshot) -> Result<()> {
        until("the laptop to be as before", PATIENCE, || {
            must_be_as(self.lab, before)
        })
    }

    /// Fails if a session's folder is left among the user's.
    pub fn must_have_no_session(&self) -> Result<()> {
        let folder = self.machine().path(RUNTIME).join("sessions");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let left: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        ensure!(left.is_empty(), "sessions are left: {left:?}");
        Ok(())
    }
}
