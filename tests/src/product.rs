//! The two programs under test, started in the lab as their users start them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{ExitStatus, Output},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::{
    daemon::Daemon,
    lab::Lab,
    machine::{Machine, http_get, http_ok},
    parts::program,
    snapshot::Snapshot,
};

/// Where the manager answers plain DNS on the node, as [`dig`](crate::dig::dig) wants it.
pub const MANAGER_DNS: &str = "127.0.0.1#1053";

/// What the programs log: all that is ours, for the report of a failed test.
pub(crate) const LOG: &str =
    "debug,hyper=info,h2=info,tower=info,rustls=info,kube_client=info,zbus=info";

const START: Duration = Duration::from_secs(60);

/// Longer than what a session may take to end: its resolver answers on for 6 s.
const END: Duration = Duration::from_secs(60);

/// The namespaces that a manager and a session are for, unless they are told otherwise.
pub const NAMESPACES: [&str; 2] = ["default", "shop"];

/// The name of the manager's `ServiceAccount`.
pub const MANAGER_ACCOUNT: &str = "traffic-manager";

/// The manager, running on the node, and the loopback address that stands for its Pod's.
#[derive(Debug)]
pub struct Manager(Daemon, &'static str);

impl Manager {
    /// Starts it as a pod of the namespaces `default` and `shop` would be: with the rights of a
    /// ServiceAccount that may read their Services, and the resolv.conf of a pod. Waits until it
    /// is ready.
    pub fn start(lab: &Lab) -> Result<Self> {
        let account = MANAGER_ACCOUNT;
        lab.api.service_reader(&lab.node, account, &NAMESPACES)?;
        Self::start_again(lab)
    }

    /// As [`start`](Self::start), with more `flags`.
    pub fn start_with(lab: &Lab, flags: &[&str]) -> Result<Self> {
        let account = MANAGER_ACCOUNT;
        lab.api.service_reader(&lab.node, account, &NAMESPACES)?;
        let manager = Self::launch(lab, account, &[&own_namespaces()[..], flags].concat())?;
        manager.ready(lab)?;
        Ok(manager)
    }

    /// As [`start`](Self::start), when it was there before: what it needs is there.
    pub fn start_again(lab: &Lab) -> Result<Self> {
        let manager = Self::launch(lab, MANAGER_ACCOUNT, &own_namespaces())?;
        manager.ready(lab)?;
        Ok(manager)
    }

    /// Starts another replica, whose Pod's loopback is `address`.
    pub fn start_replica(lab: &Lab, address: &'static str) -> Result<Self> {
        let grpc = format!("{address}:7080");
        let flags = [&own_namespaces()[..], &["--grpc-listen", &grpc]].concat();
        let manager = Self::launch_at(lab, address, MANAGER_ACCOUNT, &flags)?;
        manager.ready(lab)?;
        Ok(manager)
    }

    /// Starts it with the kubeconfig of `account` and the flags that say which namespaces, and
    /// does not wait.
    pub fn launch(lab: &Lab, account: &str, namespaces: &[&str]) -> Result<Self> {
        let loopback = ["--grpc-listen", "127.0.0.1:7080"];
        Self::launch_with(lab, account, &[namespaces, &loopback].concat())
    }

    /// Starts it with the kubeconfig of `account` and these flags, and does not wait.
    pub fn launch_with(lab: &Lab, account: &str, flags: &[&str]) -> Result<Self> {
        Self::launch_at(lab, "127.0.0.1", account, flags)
    }

    /// As [`launch_with`](Self::launch_with), where its Pod's loopback is `address`.
    pub(crate) fn launch_at(
        lab: &Lab,
        address: &'static str,
        account: &str,
        flags: &[&str],
    ) -> Result<Self> {
        let resolv_conf = lab.folder.path().join("pod-resolv.conf");
        let dns = lab.families.cluster_dns();
        fs::write(
            &resolv_conf,
            format!(
                "nameserver {dns}\n\
                 search default.svc.cluster.local svc.cluster.local cluster.local\n\
                 options ndots:5\n"
            ),
        )?;
        let mut command = lab.node.command(program("traffic-manager")?);
        command
            .env("KUBECONFIG", lab.api.kubeconfig(account))
            .env("RUST_LOG", lab.log)
            .args(["serve", "--kubernetes"])
            .args(flags)
            .arg("--resolv-conf")
            .arg(resolv_conf)
            .args(["--dns-listen", &format!("{address}:1053")])
            .args(["--admin-listen", &format!("{address}:7081")]);
        let daemon = Daemon::start("traffic-manager", &lab.logs(), command)?;
        Ok(Self(daemon, address))
    }

    /// Kills it, and has another one take its place.
    pub fn replace(&mut self, lab: &Lab) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.0.ended(END)?;
        *self = Self::start_again(lab)?;
        Ok(())
    }

    /// Waits until it says that it is ready.
    pub fn ready(&self, lab: &Lab) -> Result<()> {
        self.0
            .until("the manager to be ready", START, || self.is_ready(lab))
    }

    /// Fails unless it says that it is ready.
    pub fn is_ready(&self, lab: &Lab) -> Result<()> {
        http_ok(&lab.node, &format!("{}:7081", self.1), "/readyz")
    }

    /// Waits for a line of its log for which `wanted` is true.
    pub fn says(&self, what: &str, wanted: impl Fn(&str) -> bool) -> Result<()> {
        self.0.until_line(what, START * 3, wanted).map(drop)
    }

    /// What its audit log has so far.
    pub fn audit(&self) -> Result<Vec<serde_json::Value>> {
        let log = self.0.log()?;
        let lines = log.lines().filter(|line| line.starts_with("{\"audit\":"));
        lines
            .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
            .collect()
    }

    /// Its process.
    pub fn process(&self) -> Result<u32> {
        self.0.process()
    }

    /// What it counts of itself, in the text format of Prometheus.
    pub fn metrics(&self, lab: &Lab) -> Result<Metrics> {
        let text = http_get(&lab.node, &format!("{}:7081", self.1), "/metrics")?;
        Ok(Metrics(text))
    }

    /// Sends it a signal, as SIGSTOP.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.0.signal(signal)
    }

    /// Kills it: nobody answers any more, and every connection to it breaks.
    pub fn kill(self) -> Result<()> {
        self.0.signal(Signal::KILL)?;
        self.0.ended(END)?;
        Ok(())
    }
}

/// What a manager counts of itself.
#[derive(Debug)]
pub struct Metrics(String);

impl Metrics {
    /// The sum of all that has this name, whatever its labels.
    pub fn sum(&self, name: &str) -> Result<f64> {
        let of_name = |line: &str| -> Option<f64> {
            let (key, value) = line.rsplit_once(' ')?;
            let rest = key.strip_prefix(name)?;
            let is_it = rest.is_empty() || rest.starts_with('{');
            value.parse().ok().filter(|_| is_it)
        };
        let mut values = self.0.lines().filter_map(of_name).peekable();
        values
            .peek()
            .with_context(|| format!("no {name} in {}", self.0))?;
        Ok(values.sum())
    }
}

/// A manager of another version, running on the node in place of the real one.
#[derive(Debug)]
pub struct OtherManager(Daemon);

impl OtherManager {
    /// Starts one that says it is `version`, and works with clients of `minimum` and above.
    pub fn start(lab: &Lab, version: &str, minimum: Option<&str>) -> Result<Self> {
        let mut command = lab.node.command(program("other-manager")?);
        command.args(["127.0.0.1:7080", version]).args(minimum);
        let daemon = Daemon::start("other-manager", &lab.logs(), command)?;
        daemon.until_says("listening", START)?;
        Ok(Self(daemon))
    }

    /// Ends it, and frees its port.
    pub fn end(self) -> Result<()> {
        self.0.signal(Signal::TERM)?;
        self.0.ended(END)?;
        Ok(())
    }
}

/// The flags for [`NAMESPACES`].
fn own_namespaces() -> Vec<&'static str> {
    let flags = NAMESPACES.iter().flat_map(|name| ["--namespace", name]);
    flags.collect()
}

/// The flags that name a token for each of these namespaces.
pub fn token_flags(lab: &Lab, namespaces: &[&str]) -> Result<Vec<String>> {
    let tokens = lab.api.access_tokens(&lab.node, namespaces)?;
    let flag =
        |(namespace, file): &(String, PathBuf)| format!("--token={namespace}={}", file.display());
    Ok(tokens.iter().map(flag).collect())
}

/// A session that is being connected, and may never be.
#[derive(Debug)]
pub struct Attempt<'lab> {
    lab: &'lab Lab,
    daemon: Daemon,
}

impl<'lab> Attempt<'lab> {
    /// Runs `kubebridge connect` for [`NAMESPACES`] with more `options`.
    pub fn start(lab: &'lab Lab, options: &[&str]) -> Result<Self> {
        Self::start_in(lab, &NAMESPACES, options)
    }

    /// Runs `kubebridge connect` for `namespaces`, with a token for each.
    pub fn start_in(lab: &'lab Lab, namespaces: &[&str], options: &[&str]) -> Result<Self> {
        let tokens = token_flags(lab, namespaces)?;
        let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let relay = lab.relay.address().to_string();
        let manager = ["--manager", &relay];
        let all = [&tokens[..], &manager, options].concat();
        Self::start_with(lab, namespaces, &all)
    }

    /// Runs `kubebridge connect` for `namespaces` with no token and no manager but what `options`
    /// have.
    pub fn start_with(lab: &'lab Lab, namespaces: &[&str], options: &[&str]) -> Result<Self> {
        let mut command = lab.laptop.on().command(program("kubebridge")?);
        command
            .env("RUST_LOG", lab.log)
            .args(["connect", "--foreground"])
            .args(namespaces.iter().flat_map(|name| ["-n", name]))
            .args(["--probe", "www.example.org"])
            .args(options);
        let daemon = Daemon::start("kubebridge-connect", &lab.logs(), command)?;
        Ok(Self { lab, daemon })
    }

    /// Runs `kubebridge connect` for [`NAMESPACES`] by a kubeconfig and nothing else, with
    /// `environment` as its user has it and more `options`.
    pub fn start_by_kubeconfig(
        lab: &'lab Lab,
        kubeconfig: &Path,
        environment: &[(&str, &str)],
        options: &[&str],
    ) -> Result<Self> {
        Self::start_by_kubeconfig_in(lab, kubeconfig, &NAMESPACES, environment, options)
    }

    /// As [`start_by_kubeconfig`](Self::start_by_kubeconfig), for `namespaces`.
    pub fn start_by_kubeconfig_in(
        lab: &'lab Lab,
        kubeconfig: &Path,
        namespaces: &[&str],
        environment: &[(&str, &str)],
        options: &[&str],
    ) -> Result<Self> {
        let mut command = lab.laptop.on().command(program("kubebridge")?);
        command
            .env("RUST_LOG", lab.log)
            .env("KUBECONFIG", kubeconfig)
            .envs(environment.iter().copied())
            .args(["connect", "--foreground"])
            .args(namespaces.iter().flat_map(|name| ["-n", name]))
            .args(options);
        let daemon = Daemon::start("kubebridge-connect", &lab.logs(), command)?;
        Ok(Self { lab, daemon })
    }

    /// One that was started another way.
    pub(crate) fn of(lab: &'lab Lab, daemon: Daemon) -> Self {
        Self { lab, daemon }
    }

    /// Waits for a line that begins with `start`.
    pub fn says(&self, start: &str) -> Result<()> {
        self.daemon.until_says(start, START)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.daemon.signal(signal)
    }

    /// Waits until it is over.
    pub fn ended(&self) -> Result<ExitStatus> {
        self.daemon.ended(END)
    }

    /// What it printed.
    pub fn said(&self) -> Result<String> {
        self.daemon.log()
    }

    /// Waits until it is connected.
    pub fn connected(self) -> Result<Session<'lab>> {
        self.daemon
            .until_line("the session to be connected", START, |line| {
                line == "connected"
            })?;
        Ok(Session {
            lab: self.lab,
            daemon: self.daemon,
        })
    }
}

/// A connected session of the laptop.
#[derive(Debug)]
pub struct Session<'lab> {
    lab: &'lab Lab,
    daemon: Daemon,
}

impl<'lab> Session<'lab> {
    /// Runs `kubebridge connect` for [`NAMESPACES`] with more `options`, and waits until it says
    /// that it is connected.
    pub fn connect(lab: &'lab Lab, options: &[&str]) -> Result<Self> {
        Attempt::start(lab, options)?.connected()
    }

    /// The same as one that is not known to be connected, to watch it end.
    pub fn ending(self) -> Attempt<'lab> {
        Attempt {
            lab: self.lab,
            daemon: self.daemon,
        }
    }

    /// What it printed.
    pub fn said(&self) -> Result<String> {
        self.daemon.log()
    }

    /// Its process.
    pub fn process(&self) -> Result<u32> {
        self.daemon.process()
    }

    /// The address of the session's resolver, as systemd-resolved was told it.
    pub fn resolver(&self) -> Result<String> {
        resolver_address(self.lab)
    }

    /// Runs `kubebridge disconnect`, which must succeed and must end the session well.
    pub fn disconnect(self) -> Result<()> {
        kubebridge_output(self.lab, &["disconnect"])?;
        // disconnect waits for the session: it must be over by now, or within a moment.
        self.must_end_well()
    }

    /// Has the session end by two SIGTERM: the second cuts short that its resolver answers on, for
    /// programs that may still ask it. It must end well.
    pub fn end_at_once(self) -> Result<()> {
        self.daemon.signal(Signal::TERM)?;
        self.daemon
            .until_says("restore system DNS and hosts: ", END)?;
        self.daemon.signal(Signal::TERM)?;
        self.must_end_well()
    }

    /// Sends SIGTERM to the session, which must end well.
    pub fn terminate(self) -> Result<()> {
        self.daemon.signal(Signal::TERM)?;
        self.must_end_well()
    }

    /// Kills the session: it can undo nothing.
    pub fn kill(self) -> Result<()> {
        self.daemon.signal(Signal::KILL)?;
        self.daemon.ended(END)?;
        Ok(())
    }

    fn must_end_well(self) -> Result<()> {
        let status = self.daemon.ended(END)?;
        ensure!(status.success(), "kubebridge connect ended with {status}");
        Ok(())
    }
}

/// Fails unless the laptop is as `before` and nothing is left that a later start would take for a
/// dead session.
pub fn must_be_as(lab: &Lab, before: &Snapshot) -> Result<()> {
    let laptop = lab.laptop.on();
    Snapshot::take(laptop)?.must_equal(before)?;
    for folder in ["/var/lib/kubebridge/sessions", "/run/kubebridge/sessions"] {
        let Ok(entries) = fs::read_dir(laptop.path(folder)) else {
            continue;
        };
        let left: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        ensure!(left.is_empty(), "{folder} still has {left:?}");
    }
    Ok(())
}

/// What `kubebridge status -o json` says of the only session.
pub fn status(lab: &Lab) -> Result<serde_json::Value> {
    let said = kubebridge_output(lab, &["status", "-o", "json"])?;
    let mut document: serde_json::Value = serde_json::from_str(&said)?;
    let session = document["sessions"][0].take();
    ensure!(!session.is_null(), "there is no session: {said}");
    Ok(session)
}

/// Runs another command of `kubebridge` on the laptop, to its end.
pub fn kubebridge(lab: &Lab, words: &[&str]) -> Result<Output> {
    let program = program("kubebridge")?.display().to_string();
    let mut all = vec![program.as_str()];
    all.extend_from_slice(words);
    lab.laptop.on().run(&all)
}

/// Runs a command of `kubebridge` as a user without any rights.
pub fn kubebridge_as_nobody(lab: &Lab, words: &[&str]) -> Result<Output> {
    as_nobody(lab.laptop.on(), lab.folder.path(), words)
}

/// The same on any machine; `folder` is where everybody may run a copy, wherever the build is.
pub fn as_nobody(machine: &Machine, folder: &Path, words: &[&str]) -> Result<Output> {
    let copy = folder.join("kubebridge");
    fs::copy(program("kubebridge")?, &copy)?;
    let copy = copy.display().to_string();
    let nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    machine.run(&[&nobody[..], &[copy.as_str()], words].concat())
}

/// Runs another command of `kubebridge`, which must succeed, and gives what it printed.
pub fn kubebridge_output(lab: &Lab, words: &[&str]) -> Result<String> {
    let said = kubebridge(lab, words)?;
    let output = String::from_utf8_lossy(&said.stdout).into_owned();
    ensure!(
        said.status.success(),
        "kubebridge {words:?} ended with {}: {output}{}",
        said.status,
        String::from_utf8_lossy(&said.stderr)
    );
    Ok(output)
}

/// The DNS server of the session's link, from systemd-resolved itself.
pub fn resolver_address(lab: &Lab) -> Result<String> {
    // Link 3 (kb0): 198.19.248.2
    let links = lab.laptop.on().output(&["resolvectl", "dns"])?;
    let line = links.lines().find(|line| line.contains("(kb"));
    let Some((_, address)) = line.and_then(|line| line.split_once("): ")) else {
        bail!("systemd-resolved knows no server of our link: {links}");
    };
    let first = address.split_whitespace().next();
    Ok(first.context("the link has no server")?.to_owned())
}
