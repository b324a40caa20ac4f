//! The cluster's DNS server: CoreDNS with the kubernetes plugin.
//!
//! It does not cache the cluster domain, so a change in the API shows at once, and logs every
//! query, so that a test can tell what reached the cluster.

use std::{fs, path::Path, time::Duration};

use anyhow::Result;

use crate::{daemon::Daemon, machine::Machine, parts::Parts};

const START: Duration = Duration::from_secs(60);

/// The running server.
#[derive(Debug)]
pub struct CoreDns(Daemon);

impl CoreDns {
    /// Starts it in `machine` on `address`, with `kubeconfig` for the API and `forward` for names
    /// outside; returns when it has read the Services.
    pub fn start(
        parts: &Parts,
        folder: &Path,
        machine: &Machine,
        address: &str,
        kubeconfig: &Path,
        forward: &str,
    ) -> Result<Self> {
        let corefile = folder.join("Corefile");
        fs::write(
            &corefile,
            format!(
                ".:53 {{
    bind {address}
    errors
    log
    ready 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {}
        ttl 5
        fallthrough in-addr.arpa ip6.arpa
    }}
    forward . {forward}
}}
",
                kubeconfig.display()
            ),
        )?;
        let mut command = machine.command(parts.path("COREDNS")?);
        command.arg("-conf").arg(&corefile);
        let daemon = Daemon::start("coredns", &folder.join("logs"), command)?;
        daemon.until("CoreDNS to have the Services", START, || {
            crate::machine::http_ok(machine, "127.0.0.1:8181", "/ready")
        })?;
        Ok(Self(daemon))
    }

    /// Starts it in `machine` with a configuration of the test's own, which logs; returns when it
    /// serves.
    pub fn start_with(
        parts: &Parts,
        name: &str,
        folder: &Path,
        machine: &Machine,
        corefile: &str,
    ) -> Result<Self> {
        let file = folder.join(format!("{name}.corefile"));
        fs::write(&file, corefile)?;
        let mut command = machine.command(parts.path("COREDNS")?);
        command.arg("-conf").arg(&file);
        let daemon = Daemon::start(name, &folder.join("logs"), command)?;
        // Printed once all servers listen.
        daemon.until_line("CoreDNS to serve", START, |line| {
            line.starts_with("CoreDNS-")
        })?;
        Ok(Self(daemon))
    }

    /// The names asked so far, in lower case without a final dot, each as often as it was asked.
    pub fn queries(&self) -> Result<Vec<String>> {
        // [INFO] 10.96.0.10:40123 - 4711 "A IN www.example.org. udp 45 false 1232" NOERROR …
        Ok(self
            .0
            .log()?
            .lines()
            .filter_map(|line| {
                let name = line.split('"').nth(1)?.split(' ').nth(2)?;
                Some(name.trim_end_matches('.').to_ascii_lowercase())
            })
            .collect())
    }
}
