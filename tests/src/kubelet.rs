//! The cluster's node as the Kubernetes API sees it: a Node with a kubelet endpoint, and Pods on it
//! whose ports are forwarded by the kubelet's own streaming package.
//!
//! Runs no containers: what a Pod would run is started by the test, on a loopback address of the
//! node that stands for the Pod's own.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use parking_lot::Mutex;

use crate::{daemon::Daemon, families::bracketed, lab::Lab, parts::Parts};

/// Where the manager's Pods are.
pub const HOME: &str = "kubebridge";

const START: Duration = Duration::from_secs(20);

const PORT: &str = "10250";

const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: node}
";

const NAMESPACE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: kubebridge}
";

/// The running node.
#[derive(Debug)]
pub struct Kubelet {
    #[expect(dead_code, reason = "kept so that it ends with the test")]
    daemon: Daemon,
    file: PathBuf,
    pods: Mutex<Vec<(String, String)>>,
}

impl Kubelet {
    /// Registers the node and serves port-forwards to its Pods, of which there are none yet; makes
    /// the manager's namespace.
    pub fn start(lab: &Lab) -> Result<Self> {
        Self::start_with(lab, Some(NAMESPACE))
    }

    /// As [`start`](Self::start), where the namespace is for somebody else to make.
    pub fn start_alone(lab: &Lab) -> Result<Self> {
        Self::start_with(lab, None)
    }

    fn start_with(lab: &Lab, namespace: Option<&str>) -> Result<Self> {
        let folder = lab.folder.path();
        let file = folder.join("pods");
        fs::write(&file, "")?;
        let mut command = lab.node.command(Parts::find()?.path("KUBELET_STREAM")?);
        command
            .args([
                "--listen",
                &format!("{}:{PORT}", bracketed(lab.families.node())),
            ])
            .arg("--cert")
            .arg(folder.join("kubelet.crt"))
            .arg("--key")
            .arg(folder.join("kubelet.key"))
            .arg("--client-ca")
            .arg(folder.join("node-ca.crt"))
            .arg("--pods")
            .arg(&file);
        let daemon = Daemon::start("kubelet", &lab.logs(), command)?;
        register_node(lab)?;
        if let Some(namespace) = namespace {
            lab.api.apply(&lab.node, namespace)?;
        }
        daemon.until("the kubelet to listen", START, || {
            daemon
                .log()?
                .contains("listening")
                .then_some(())
                .context("not yet")
        })?;
        let pods = Mutex::default();
        Ok(Self { daemon, file, pods })
    }

    /// Makes a Pod of the manager whose loopback is `address` on the node: running, not ready.
    pub fn add_pod(&self, lab: &Lab, name: &str, address: &str) -> Result<()> {
        self.pods.lock().push((name.to_owned(), address.to_owned()));
        self.write()?;
        lab.api.apply(
            &lab.node,
            &format!(
                "apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {HOME}, labels: {{app.kubernetes.io/name: traffic-manager}}}}
spec:
  nodeName: node
  automountServiceAccountToken: false
  containers: [{{name: traffic-manager, image: traffic-manager}}]
"
            ),
        )?;
        self.set_ready(lab, name, false)
    }

    /// Takes a Pod that a controller has made: it is on this node from now on, its loopback is
    /// `address`.
    pub fn adopt(&self, lab: &Lab, name: &str, address: &str) -> Result<()> {
        self.pods.lock().push((name.to_owned(), address.to_owned()));
        self.write()?;
        let file = lab.folder.path().join("binding.json");
        let binding = serde_json::json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node"},
        });
        fs::write(&file, binding.to_string())?;
        let path = format!("/api/v1/namespaces/{HOME}/pods/{name}/binding");
        let file = file.display().to_string();
        lab.kubectl(&["create", "--raw", &path, "-f", &file])?;
        Ok(())
    }

    /// Says whether a Pod is ready, as the kubelet does after its probe.
    pub fn set_ready(&self, lab: &Lab, name: &str, ready: bool) -> Result<()> {
        let ready = if ready { "True" } else { "False" };
        patch_status(
            lab,
            &["pod", name, "-n", HOME],
            &format!(
                r#"{{"phase": "Running", "podIP": "10.244.0.1", "podIPs": [{{"ip": "10.244.0.1"}}],
                "conditions": [{{"type": "Ready", "status": "{ready}"}}]}}"#
            ),
        )
    }

    /// Begins to end a Pod: it stays, terminating, until it is removed.
    pub fn terminate(&self, lab: &Lab, name: &str) -> Result<()> {
        lab.kubectl(&["delete", "pod", name, "-n", HOME, "--wait=false"])?;
        Ok(())
    }

    /// Removes a Pod at once.
    pub fn remove(&self, lab: &Lab, name: &str) -> Result<()> {
        self.pods.lock().retain(|(pod, _)| pod != name);
        self.write()?;
        let now = ["--grace-period=0", "--force"];
        lab.kubectl(&[&["delete", "pod", name, "-n", HOME][..], &now].concat())?;
        Ok(())
    }

    /// Writes the list the kubelet reads at each request, in one piece.
    fn write(&self) -> Result<()> {
        let pods = self.pods.lock();
        let lines = pods
            .iter()
            .map(|(name, address)| format!("{HOME}/{name} {address}\n"));
        let new = self.file.with_extension("new");
        fs::write(&new, lines.collect::<String>())?;
        fs::rename(new, &self.file)?;
        Ok(())
    }
}

/// Makes the node known to the Kubernetes API; harmless when it is.
pub(crate) fn register_node(lab: &Lab) -> Result<()> {
    lab.api.apply(&lab.node, NODE)?;
    patch_status(
        lab,
        &["node", "node"],
        &format!(
            r#"{{"addresses": [{{"type": "InternalIP", "address": "{}"}}],
            "daemonEndpoints": {{"kubeletEndpoint": {{"Port": {PORT}}}}}}}"#,
            lab.families.node()
        ),
    )
}

fn patch_status(lab: &Lab, object: &[&str], status: &str) -> Result<()> {
    let patch = format!(r#"{{"status": {status}}}"#);
    let how = ["--subresource=status", "--type=merge", "-p", &patch];
    lab.kubectl(&[&["patch"][..], object, &how].concat())?;
    Ok(())
}
