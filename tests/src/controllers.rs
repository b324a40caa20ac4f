//! The controllers of the cluster: what makes Pods of Deployments, ends namespaces and removes what
//! nobody owns any more.
//!
//! No scheduler and no kubelet: which Pods run is said by the test, by [`pod`](crate::pod).

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::{daemon::Daemon, lab::Lab, parts::Parts, wait::until};

const START: Duration = Duration::from_secs(90);

/// The ones that Deployments and namespaces need, and the one that puts an object into every
/// namespace.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,namespace-controller,\
    garbage-collector-controller,serviceaccount-controller,disruption-controller,resourcequota-controller,\
    root-ca-certificate-publisher-controller,endpointslice-controller";

/// The running controllers.
#[derive(Debug)]
pub struct Controllers {
    #[expect(dead_code, reason = "kept so that they end with the test")]
    daemon: Daemon,
}

impl Controllers {
    /// Starts them on the node; returns when every namespace has what they put there.
    pub fn start(lab: &Lab) -> Result<Self> {
        let parts = Parts::find()?;
        let kubeconfig = lab.api.kubeconfig("admin").display().to_string();
        let authority = lab.folder.path().join("ca.crt").display().to_string();
        let certificates = lab.folder.path().join("controllers").display().to_string();
        let mut command = lab.node.command(parts.path("KUBE_CONTROLLER_MANAGER")?);
        command
            .args(["--kubeconfig", &kubeconfig])
            .args(["--controllers", CONTROLLERS])
            .args(["--root-ca-file", &authority])
            .args(["--cert-dir", &certificates])
            .args(["--leader-elect=false", "--bind-address=127.0.0.1"])
            // Else what is removed is found to be gone half a minute later.
            .args(["--concurrent-gc-syncs=5", "--v=1"]);
        let daemon = Daemon::start("controllers", &lab.logs(), command)?;
        until("the controllers to work", START, || {
            let words = ["get", "-A", "-o", "name"];
            let count = |kind: &[&str]| -> Result<usize> {
                let said = lab.kubectl(&[&words[..], kind].concat())?;
                Ok(said.lines().count())
            };
            let namespaces = count(&["namespaces"])?;
            let named = ["--field-selector=metadata.name=kube-root-ca.crt"];
            let published = count(&[&["configmaps"][..], &named].concat())?;
            let named = ["--field-selector=metadata.name=default"];
            let accounts = count(&[&["serviceaccounts"][..], &named].concat())?;
            ensure!(
                published == namespaces && accounts == namespaces,
                "{published} and {accounts} of {namespaces} namespaces"
            );
            Ok(())
        })?;
        Ok(Self { daemon })
    }
}
