//! The two programs under test, started in the lab as their users start them.

use std::{fs, process::Output, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::{
    daemon::Daemon,
    lab::{CLUSTER_DNS, Lab},
    machine::http_ok,
    parts::program,
};

/// Where the manager answers plain DNS on the node, as [`dig`](crate::dig::dig) wants it.
pub const MANAGER_DNS: &str = "127.0.0.1#1053";

/// What the programs log: all that is ours, for the report of a failed test.
const LOG: &str = "debug,hyper=info,h2=info,tower=info,rustls=info,kube_client=info,zbus=info";

const START: Duration = Duration::from_secs(30);

/// Longer than what a session may take to end: its resolver answers on for 6 s.
const END: Duration = Duration::from_secs(20);

/// The manager, running on the node.
#[derive(Debug)]
pub struct Manager(Daemon);

impl Manager {
    /// Starts it as a pod of the namespaces `default` and `shop` would be: with the rights of a
    /// ServiceAccount that may read their Services, and the resolv.conf of a pod.
    pub fn start(lab: &Lab) -> Result<Self> {
        let namespaces = ["default", "shop"];
        let kubeconfig = lab
            .api
            .service_reader(&lab.node, "traffic-manager", &namespaces)?;
        let resolv_conf = lab.folder.path().join("pod-resolv.conf");
        fs::write(
            &resolv_conf,
            format!(
                "nameserver {CLUSTER_DNS}\n\
                 search default.svc.cluster.local svc.cluster.local cluster.local\n\
                 options ndots:5\n"
            ),
        )?;
        let mut command = lab.node.command(program("traffic-manager")?);
        command
            .env("KUBECONFIG", kubeconfig)
            .env("RUST_LOG", LOG)
            .args(["serve", "--kubernetes", "--auth", "port-forward"])
            .args(["--namespace", "default", "--namespace", "shop"])
            .arg("--resolv-conf")
            .arg(resolv_conf)
            .args(["--dns-listen", "127.0.0.1:1053"])
            .args(["--grpc-listen", "127.0.0.1:7080"])
            .args(["--admin-listen", "127.0.0.1:7081"]);
        let daemon = Daemon::start("traffic-manager", &lab.logs(), command)?;
        daemon.until("the manager to be ready", START, || {
            http_ok(&lab.node, "127.0.0.1:7081", "/readyz")
        })?;
        Ok(Self(daemon))
    }

    /// Kills it: nobody answers any more, and every connection to it breaks.
    pub fn kill(self) -> Result<()> {
        self.0.signal(Signal::KILL)?;
        self.0.ended(END)?;
        Ok(())
    }
}

/// A connected session of the laptop.
#[derive(Debug)]
pub struct Session<'lab> {
    lab: &'lab Lab,
    daemon: Daemon,
}

impl<'lab> Session<'lab> {
    /// Runs `kubebridge connect` for the namespaces `default` and `shop` with more `options`,
    /// and waits until it says that it is connected.
    pub fn connect(lab: &'lab Lab, options: &[&str]) -> Result<Self> {
        let mut command = lab.laptop.on().command(program("kubebridge")?);
        command
            .env("RUST_LOG", LOG)
            .args(["connect", "--foreground", "-n", "default", "-n", "shop"])
            .args(["--manager", &lab.relay.address().to_string()])
            .args(["--probe", "www.example.org"])
            .args(options);
        let daemon = Daemon::start("kubebridge-connect", &lab.logs(), command)?;
        daemon.until_line("the session to be connected", START, |line| {
            line == "connected"
        })?;
        Ok(Self { lab, daemon })
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

/// Runs another command of `kubebridge` on the laptop, to its end.
pub fn kubebridge(lab: &Lab, words: &[&str]) -> Result<Output> {
    let program = program("kubebridge")?.display().to_string();
    let mut all = vec![program.as_str()];
    all.extend_from_slice(words);
    lab.laptop.on().run(&all)
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
fn resolver_address(lab: &Lab) -> Result<String> {
    // Link 3 (kb0): 198.19.248.2
    let links = lab.laptop.on().output(&["resolvectl", "dns"])?;
    let line = links.lines().find(|line| line.contains("(kb"));
    let Some((_, address)) = line.and_then(|line| line.split_once("): ")) else {
        bail!("systemd-resolved knows no server of our link: {links}");
    };
    let first = address.split_whitespace().next();
    Ok(first.context("the link has no server")?.to_owned())
}
