//! The way to the manager through the Kubernetes API: kubeconfig, port-forward, replaced Pods.

use std::time::Duration;

use anyhow::Result;
use kubebridge_tests::{
    daemon::Daemon, kubelet::Kubelet, lab::Lab, machine::http_ok, product::Manager, wait::until,
};

const START: Duration = Duration::from_secs(30);

/// Shows that the lab's node is one: the real client forwards a port of a Pod on it.
#[test]
fn kubectl_forwards_a_port_of_the_managers_pod() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let kubelet = Kubelet::start(&lab)?;
    kubelet.add_pod(&lab, "traffic-manager-a", "127.0.0.1")?;
    kubelet.set_ready(&lab, "traffic-manager-a", true)?;

    let command = lab
        .api
        .port_forward(lab.laptop.on(), "traffic-manager-a", "17081:7081");
    let forward = Daemon::start("port-forward", &lab.logs(), command)?;
    forward.until_says("Forwarding from 127.0.0.1:17081", START)?;
    until("the manager through kubectl port-forward", START, || {
        http_ok(lab.laptop.on(), "127.0.0.1:17081", "/readyz")
    })?;

    lab.finish();
    Ok(())
}
