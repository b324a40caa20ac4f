//! The lab with a manager in a Pod, and a user who may reach it with nothing but a kubeconfig.

use std::time::Duration;

use anyhow::Result;
use kubebridge_tests::{
    kubelet::{HOME, Kubelet},
    lab::Lab,
    product::{Manager, NAMESPACES},
};

/// Far longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What `docs/connect.md` asks for a user.
const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: kubebridge-client, namespace: NAMESPACE}
rules:
- {apiGroups: [''], resources: [pods], verbs: [list]}
- {apiGroups: [''], resources: [pods/portforward], verbs: [get, create]}
- {apiGroups: [''], resources: [serviceaccounts/token], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: kubebridge-client, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: kubebridge-client}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: dev}]
";

/// The running parts.
pub(crate) struct Cluster {
    pub(crate) lab: Lab,
    pub(crate) kubelet: Kubelet,
    pub(crate) manager: Option<Manager>,
}

impl Cluster {
    /// Starts them with a ready Pod of this name.
    pub(crate) fn start(pod: &str) -> Result<Self> {
        let lab = Lab::start()?;
        let manager = Manager::start(&lab)?;
        let kubelet = Kubelet::start(&lab)?;
        kubelet.add_pod(&lab, pod, "127.0.0.1")?;
        kubelet.set_ready(&lab, pod, true)?;
        lab.api.access_accounts(&lab.node, &NAMESPACES)?;
        let roles = [HOME, NAMESPACES[0], NAMESPACES[1]];
        let roles = roles.map(|namespace| RIGHTS.replace("NAMESPACE", namespace));
        lab.api.apply(&lab.node, &roles.join("---"))?;
        Ok(Self {
            lab,
            kubelet,
            manager: Some(manager),
        })
    }
}
