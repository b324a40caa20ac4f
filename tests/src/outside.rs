//! A DNS server for names outside the cluster that logs every query (dnsmasq).
//!
//! One runs on the internet, as the laptop's own server; another in the cluster, where CoreDNS
//! sends what is not its own. What each was asked is what the tests look at.

use std::{path::Path, time::Duration};

use anyhow::{Result, bail};

use crate::{daemon::Daemon, machine::Machine};

const START: Duration = Duration::from_secs(60);

/// The names of the world that everybody sees.
///
/// `shop` is a public suffix and also a namespace of the cluster; `www.example.org` is a chain of
/// two aliases.
const RECORDS: &[&str] = &[
    "--host-record=example.shop,203.0.113.80",
    "--host-record=edge.example.net,203.0.113.81,2001:db8::81",
    "--cname=cdn.example.net,edge.example.net",
    "--cname=www.example.org,cdn.example.net",
    // Every name below this one, so that each question can be a new one to all caches.
    "--address=/probe.example.org/203.0.113.82",
    // What is not above does not exist, as the root's servers would say of it.
    "--local=/#/",
];

/// A name and its address that only those inside see.
pub type Private<'a> = (&'a str, &'a str);

/// The running server.
#[derive(Debug)]
pub struct Outside(Daemon);

impl Outside {
    /// Starts it in `machine` on `address`, one of the machine's own, with `more` names.
    pub fn start(
        name: &str,
        logs: &Path,
        machine: &Machine,
        address: &str,
        more: &[Private<'_>],
    ) -> Result<Self> {
        let mut command = machine.command("dnsmasq");
        command
            .args([
                "--keep-in-foreground",
                "--conf-file=/dev/null",
                "--pid-file",
            ])
            .args(["--no-resolv", "--no-hosts", "--user=root"])
            .args(["--bind-interfaces", &format!("--listen-address={address}")])
            .args(["--log-queries", "--log-facility=-", "--local-ttl=300"])
            .args(RECORDS)
            .args(
                more.iter()
                    .map(|(name, address)| format!("--host-record={name},{address}")),
            );
        let daemon = Daemon::start(name, logs, command)?;
        daemon.until_line("the outside DNS server", START, |line| {
            line.contains("started, version")
        })?;
        Ok(Self(daemon))
    }

    /// The names asked so far, in lower case without a final dot, each as often as it was asked.
    pub fn queries(&self) -> Result<Vec<String>> {
        Ok(self
            .0
            .log()?
            .lines()
            .filter_map(|line| {
                let (_, question) = line.split_once("query[")?;
                let name = question.split(' ').nth(1)?;
                Some(name.trim_end_matches('.').to_ascii_lowercase())
            })
            .collect())
    }

    /// Fails unless `name` was asked here.
    pub fn must_have_seen(&self, name: &str) -> Result<()> {
        if !self.queries()?.iter().any(|seen| seen == name) {
            bail!("{name} was never asked here");
        }
        Ok(())
    }
}
