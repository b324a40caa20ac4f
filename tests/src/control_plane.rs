//! The Kubernetes API of the lab: etcd and kube-apiserver, with kubectl as the way to change it.
//!
//! No controllers: Services exist, endpoints are applied by hand. The node is [`kubelet`](crate::kubelet).

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use rustix::process::Signal;

use crate::{
    daemon::Daemon,
    families::{Families, bracketed},
    machine::Machine,
    parts::Parts,
};

mod keys;
mod users;

pub use users::{ACCESS, AUDIENCE};

const START: Duration = Duration::from_secs(90);

/// What CoreDNS may do, as its own manifests give it.
const COREDNS_ROLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: coredns}
rules:
- {apiGroups: [''], resources: [services, endpoints, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: coredns}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: coredns}
";

/// The running API.
#[derive(Debug)]
pub struct ControlPlane {
    folder: PathBuf,
    families: Families,
    kubectl: PathBuf,
    server: PathBuf,
    api: Mutex<Option<Daemon>>,
    #[expect(
        dead_code,
        reason = "kept so that its log is shown and it ends with the lab"
    )]
    etcd: Daemon,
}

impl ControlPlane {
    /// Starts both servers in `machine`, the node of a cluster of these families, and waits for
    /// them.
    pub fn start(
        parts: &Parts,
        folder: &Path,
        machine: &Machine,
        families: Families,
    ) -> Result<Self> {
        keys::make(machine, folder, families.node())?;
        let logs = folder.join("logs");
        let mut command = machine.command(parts.path("ETCD")?);
        command
            .args([
                "--unsafe-no-fsync",
                "--data-dir=/run/etcd",
                "--log-level=warn",
            ])
            .args(["--listen-client-urls=http://127.0.0.1:2379"])
            .args(["--advertise-client-urls=http://127.0.0.1:2379"])
            .args(["--listen-peer-urls=http://127.0.0.1:2380"]);
        let etcd = Daemon::start("etcd", &logs, command)?;
        let plane = Self {
            folder: folder.to_owned(),
            families,
            kubectl: parts.path("KUBECTL")?.to_owned(),
            server: parts.path("KUBE_APISERVER")?.to_owned(),
            api: Mutex::new(None),
            etcd,
        };
        plane.write_kubeconfig("admin", "token: admin-token")?;
        plane.write_kubeconfig("coredns", "token: coredns-token")?;
        plane.write_kubeconfig("dev", "token: dev-token")?;
        plane.start_api(machine)?;
        plane.apply(machine, COREDNS_ROLE)?;
        Ok(plane)
    }

    /// Starts the API server, which must not be running, and waits until it is ready.
    pub fn start_api(&self, machine: &Machine) -> Result<()> {
        let command = api_command(&self.server, &self.folder, machine, self.families);
        let api = Daemon::start("kube-apiserver", &self.folder.join("logs"), command)?;
        api.until("the Kubernetes API", START, || {
            self.kubectl(machine, &["get", "--raw=/readyz"])
        })?;
        *self.api.lock() = Some(api);
        Ok(())
    }

    /// Kills the API server: every connection to it breaks, and nobody listens.
    pub fn kill_api(&self) -> Result<()> {
        let api = self.api.lock().take();
        let api = api.context("the API server does not run")?;
        api.signal(Signal::KILL)?;
        api.ended(START)?;
        Ok(())
    }

    /// Runs kubectl as the administrator, which must succeed, and gives what it printed.
    pub fn kubectl(&self, machine: &Machine, words: &[&str]) -> Result<String> {
        let said = self.kubectl_run_as(machine, "admin", words)?;
        ensure!(
            said.status.success(),
            "kubectl {words:?}: {}",
            String::from_utf8_lossy(&said.stderr)
        );
        Ok(String::from_utf8(said.stdout)?)
    }

    /// Runs kubectl with the kubeconfig of `user` to its end, which may be a failure.
    pub fn kubectl_run_as(&self, machine: &Machine, user: &str, words: &[&str]) -> Result<Output> {
        let kubectl = self.kubectl.display().to_string();
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig(user).display());
        // Discovery is kept in the lab's folder, not in the home of who runs the tests.
        let cache = format!(
            "--cache-dir={}",
            self.folder.join("kubectl-cache").display()
        );
        let mut all = vec![
            kubectl.as_str(),
            &kubeconfig,
            &cache,
            "--request-timeout=20s",
        ];
        all.extend_from_slice(words);
        machine.run(&all)
    }

    /// A command that serves the API without TLS on the loopback of `machine`, as administrator.
    pub fn proxy(&self, machine: &Machine) -> Command {
        let mut command = machine.command(&self.kubectl);
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig("admin"))
            .args(["proxy", "--port=8001"]);
        command
    }

    /// A command that forwards a port of a Pod of the manager to the loopback of `machine`.
    pub fn port_forward(&self, machine: &Machine, pod: &str, ports: &str) -> Command {
        let mut command = machine.command(&self.kubectl);
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig("admin"))
            .args(["-n", crate::kubelet::HOME, "port-forward", pod, ports]);
        command
    }

    /// Applies manifests.
    pub fn apply(&self, machine: &Machine, manifests: &str) -> Result<()> {
        let words = ["apply", "--validate=ignore", "-f", "-"];
        self.kubectl_with(machine, &words, manifests).map(drop)
    }

    /// Has the API server say whether it would take manifests as they are.
    pub fn would_apply(&self, machine: &Machine, manifests: &str) -> Result<String> {
        let words = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
        self.kubectl_with(machine, &words, manifests)
    }

    /// Runs kubectl as the administrator with `input`, which must succeed; what it printed.
    pub fn kubectl_with(&self, machine: &Machine, words: &[&str], input: &str) -> Result<String> {
        let mut running = machine
            .command("timeout")
            .args(["-s", "KILL", "40"])
            .arg(&self.kubectl)
            .arg("--kubeconfig")
            .arg(self.kubeconfig("admin"))
            .arg("--cache-dir")
            .arg(self.folder.join("kubectl-cache"))
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        running
            .stdin
            .take()
            .context("kubectl has no input")?
            .write_all(input.as_bytes())?;
        let ended = running.wait_with_output()?;
        ensure!(
            ended.status.success(),
            "kubectl {words:?}: {}",
            String::from_utf8_lossy(&ended.stderr)
        );
        Ok(String::from_utf8(ended.stdout)?)
    }
}

/// Where the API server of the cluster is, as URLs have it.
fn api_host(families: Families) -> String {
    bracketed(families.node())
}

fn api_command(program: &Path, folder: &Path, machine: &Machine, families: Families) -> Command {
    let address = families.node();
    let file = |name: &str| folder.join(name).display().to_string();
    let mut command = machine.command(program);
    command
        .args(["--etcd-servers=http://127.0.0.1:2379", "--secure-port=6443"])
        .arg(format!("--bind-address={address}"))
        .arg(format!("--advertise-address={address}"))
        .arg(format!("--tls-cert-file={}", file("api.crt")))
        .arg(format!("--tls-private-key-file={}", file("api.key")))
        .arg(format!("--client-ca-file={}", file("ca.crt")))
        .arg(format!("--token-auth-file={}", file("tokens.csv")))
        .args(keys::of_accounts(folder))
        .arg("--service-account-issuer=https://lab.example")
        .arg(format!("--cert-dir={}", file("certs")))
        .arg(format!("--kubelet-client-certificate={}", file("api-client.crt")))
        .arg(format!("--kubelet-client-key={}", file("api-client.key")))
        .arg(format!("--kubelet-certificate-authority={}", file("node-ca.crt")))
        .arg("--authorization-mode=RBAC")
        .arg(format!("--service-cluster-ip-range={}", families.services()))
        // No controllers here that would make the tokens this plugin wants.
        .args(["--disable-admission-plugins=ServiceAccount", "--profiling=false"]);
    command
}
