//! How soon names are answered by a new Pod of the manager after it is ready (lifecycle 6, W8).

use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    dig::{Transport, dig},
    lab::AUTHORS,
    product::{Attempt, Manager},
    wait::until_closely,
};
use tokio::time::Instant;

use crate::cluster::{Cluster, PATIENCE};
use crate::figures::{Sample, limit, milliseconds};

/// The gate of lifecycle 6.
const MOST: Duration = Duration::from_secs(5);

/// Replaces the Pod this many times and prints the figures; tells whether the limit was kept.
pub(crate) fn measure(times: u64) -> Result<bool> {
    let mut pod = "traffic-manager-0".to_owned();
    let mut cluster = Cluster::start(&pod)?;
    let kubeconfig = cluster.lab.api.kubeconfig("dev");
    let mut answered = Sample::default();
    {
        let lab = &cluster.lab;
        let quiet = [("RUST_LOG", "warn")];
        let session = Attempt::start_by_kubeconfig(lab, &kubeconfig, &quiet, &[])?.connected()?;
        let resolver = session.resolver()?;
        for time in 1..=times {
            let manager = cluster.manager.take().context("no manager")?;
            manager.kill()?;
            cluster.kubelet.remove(lab, &pod)?;
            pod = format!("traffic-manager-{time}");
            cluster.kubelet.add_pod(lab, &pod, "127.0.0.1")?;
            // Nobody has an old answer for it.
            let name = format!("new{time}");
            let address = Ipv4Addr::from_bits(0x0a60_0300 + u32::try_from(time)?);
            let flag = format!("--clusterip={address}");
            lab.kubectl(&["create", "service", "clusterip", &name, "--tcp=80", &flag])?;
            cluster.manager = Some(Manager::start_again(lab)?);
            cluster.kubelet.set_ready(lab, &pod, true)?;
            let begin = Instant::now();
            until_closely(&name, PATIENCE, || {
                let got = dig(lab.laptop.on(), &resolver, Transport::Udp, &name, "A")?;
                let wanted = format!("NOERROR {name}. A {address}");
                ensure!(got.to_string() == wanted, "{got}");
                Ok(())
            })?;
            answered.add(begin.elapsed());
            let known = dig(lab.laptop.on(), &resolver, Transport::Udp, "authors", "A")?;
            ensure!(
                known.to_string() == format!("NOERROR authors. A {AUTHORS}"),
                "{known}"
            );
        }
        session.end_at_once()?;
    }
    cluster.lab.finish();
    let [half, most] = [answered.percentile(0.5), answered.most()].map(milliseconds);
    println!("{} Pods replaced: p50 {half:.0} ms", answered.count());
    let words = format!("a name answered {most:.0} ms after the new Pod is ready at most");
    Ok(limit(&words, answered.most() <= MOST))
}
