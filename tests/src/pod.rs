//! A Pod that a controller has made, run as the node would: its command line, its environment, its
//! ServiceAccount's token, its user without privileges.
//!
//! Not its image: the program is the one under test. What its security context asks for of the
//! kernel is for the test of the image.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    daemon::Daemon,
    kubelet::{HOME, Kubelet},
    lab::{CLUSTER_DNS, Lab, NODE},
    parts::program,
    wait::until,
};

const START: Duration = Duration::from_secs(60);

/// The only issuer and audience the lab's API server knows.
const API: &str = "https://lab.example";

/// Where a pod finds its ServiceAccount; `/run` is the node's own.
const ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";

/// The user of the image.
const USER: &str = "65532";

/// A running Pod of the manager.
#[derive(Debug)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// As the API has it.
    pub object: Value,
    daemon: Daemon,
}

impl Pod {
    /// Waits for a Pod of the manager that is on no node, puts it on the node and runs it there;
    /// ready, when the manager says so.
    pub fn run(lab: &Lab, kubelet: &Kubelet) -> Result<Self> {
        let object = until("a pod of the manager to be made", START, || pending(lab))?;
        let name = object["metadata"]["name"]
            .as_str()
            .context("a name")?
            .to_owned();
        kubelet.adopt(lab, &name, "127.0.0.1")?;
        let daemon = start(lab, &object)?;
        daemon.until("the manager to be ready", START, || {
            crate::machine::http_ok(&lab.node, "127.0.0.1:7081", "/readyz")
        })?;
        kubelet.set_ready(lab, &name, true)?;
        Ok(Self {
            name,
            object,
            daemon,
        })
    }

    /// Waits until the Pod is to end, ends its program as a node does, and says that it is over.
    pub fn end(self, lab: &Lab, kubelet: &Kubelet) -> Result<()> {
        until("the pod to be ended", START, || {
            let pod = lab.kubectl(&["get", "pod", "-n", HOME, &self.name, "-o", "json"])?;
            let pod: Value = serde_json::from_str(&pod)?;
            ensure!(
                !pod["metadata"]["deletionTimestamp"].is_null(),
                "it is to run on"
            );
            Ok(())
        })?;
        self.daemon.signal(rustix::process::Signal::TERM)?;
        let status = self.daemon.ended(START)?;
        ensure!(status.success(), "the manager ended with {status}");
        kubelet.remove(lab, &self.name)
    }

    /// What the manager printed.
    pub fn log(&self) -> Result<String> {
        self.daemon.log()
    }
}

/// A Pod that waits for a node.
fn pending(lab: &Lab) -> Result<Value> {
    let label = "app.kubernetes.io/name=traffic-manager";
    let pods = lab.kubectl(&["get", "pods", "-n", HOME, "-l", label, "-o", "json"])?;
    let mut pods: Value = serde_json::from_str(&pods)?;
    let items = pods["items"].as_array_mut().context("no list")?;
    let waits = |pod: &Value| pod["spec"]["nodeName"].is_null();
    let found = items.iter_mut().find(|pod| waits(pod));
    Ok(found.context("there is none")?.take())
}

fn start(lab: &Lab, pod: &Value) -> Result<Daemon> {
    let spec = &pod["spec"];
    let container = &spec["containers"][0];
    let account = spec["serviceAccountName"].as_str().context("no account")?;
    ensure!(
        spec["automountServiceAccountToken"] == true,
        "the pod has no token: {spec}"
    );
    mount_account(lab, account)?;
    let resolv_conf = lab.folder.path().join("pod-resolv.conf");
    fs::write(
        &resolv_conf,
        format!(
            "nameserver {CLUSTER_DNS}\n\
             search {HOME}.svc.cluster.local svc.cluster.local cluster.local\n\
             options ndots:5\n"
        ),
    )?;
    let arguments = container["args"].as_array().context("no arguments")?;
    let arguments = arguments.iter().filter_map(Value::as_str);
    let mut command = lab.node.command("setpriv");
    command
        .args([&format!("--reuid={USER}"), &format!("--regid={USER}")])
        .args(["--clear-groups", "--no-new-privs"])
        .args(["--inh-caps=-all", "--bounding-set=-all"])
        .arg(for_everybody(lab)?)
        .args(arguments)
        .env("HOME", "/nonexistent")
        .env("KUBERNETES_SERVICE_HOST", NODE)
        .env("KUBERNETES_SERVICE_PORT", "6443")
        // What the kubelet writes to the pod's own /etc.
        .env("KUBEBRIDGE_RESOLV_CONF", resolv_conf)
        .env("RUST_LOG", "debug,hyper=info,h2=info,tower=info,rustls=info,kube_client=info");
    for variable in container["env"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().context("no name")?;
        let field = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str();
        command.env(
            name,
            match field {
                Some("status.podIPs" | "status.podIP") => "10.244.0.1",
                Some("status.hostIP") => NODE,
                Some(other) => anyhow::bail!("{name} is of {other}"),
                None => variable["value"].as_str().unwrap_or_default(),
            },
        );
    }
    Daemon::start("traffic-manager-pod", &lab.logs(), command)
}

/// Puts token, authority and namespace where a pod has them.
fn mount_account(lab: &Lab, account: &str) -> Result<()> {
    let token = lab.api.token_of(&lab.node, HOME, account, API)?;
    let folder = lab.node.path(ACCOUNT);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("token"), token)?;
    fs::write(folder.join("namespace"), HOME)?;
    fs::copy(lab.folder.path().join("ca.crt"), folder.join("ca.crt"))?;
    Ok(())
}

/// A copy of the manager that everybody may run, wherever the build is.
fn for_everybody(lab: &Lab) -> Result<PathBuf> {
    let copy = lab.folder.path().join("traffic-manager");
    if !copy.exists() {
        fs::copy(program("traffic-manager")?, &copy)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    }
    Ok(copy)
}
