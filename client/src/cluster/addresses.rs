//! Where the API server is, found without the session's own DNS.
//!
//! The machine's original servers are asked, so that the way back to the cluster never leads through
//! what the session has made of the machine. What was found once is kept for when they are silent.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join};
use hyper_util::client::legacy::connect::dns::Name as HostName;
use kubebridge_dns::name::{Name, RecordType};
use parking_lot::Mutex;
use tokio::time::timeout;
use tower::Service;

use crate::originals::Originals;
use crate::probe::Finding;

/// Hosts kept: the API server's and a proxy's, each of which a changed kubeconfig may replace.
const KEPT: usize = 8;
/// How long the original servers may take before what was found earlier is used.
const ORIGINALS: Duration = Duration::from_secs(1);
/// How long the C library may take; it is asked where nothing else has an answer.
const LIBRARY: Duration = Duration::from_secs(5);

/// Finds the addresses of hosts.
#[derive(Clone, Debug)]
pub(super) struct Addresses(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    originals: Arc<Originals>,
    hosts: PathBuf,
    kept: Mutex<BTreeMap<String, Vec<IpAddr>>>,
}

impl Addresses {
    pub(super) fn new(originals: Arc<Originals>, hosts: PathBuf) -> Self {
        Self(Arc::new(Inner {
            originals,
            hosts,
            kept: Mutex::default(),
        }))
    }

    /// Finds the addresses of a host: in the hosts file, at the original servers, among what was
    /// found before, and, for a host never found, by the C library.
    pub(super) async fn find(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let inner = &self.0;
        let text = tokio::fs::read_to_string(&inner.hosts).await;
        let listed = in_hosts(&text.unwrap_or_default(), &host);
        if !listed.is_empty() {
            return Ok(listed);
        }
        if let Ok(name) = host.parse() {
            let asked = timeout(ORIGINALS, inner.ask(&name)).await;
            let found = asked.unwrap_or_default();
            if !found.is_empty() {
                inner.keep(&host, &found);
                return Ok(found);
            }
        }
        let kept = inner.kept.lock().get(&host).cloned();
        if let Some(kept) = kept {
            tracing::debug!(%host, "address found earlier used");
            return Ok(kept);
        }
        let found = by_library(&host).await?;
        inner.keep(&host, &found);
        Ok(found)
    }
}

impl Inner {
    async fn ask(&self, name: &Name) -> Vec<IpAddr> {
        let (four, six) = join(
            self.originals.find(name, RecordType::A),
            self.originals.find(name, RecordType::AAAA),
        )
        .await;
        // A machine without IPv6 is more common than one without IPv4.
        [four, six]
            .into_iter()
            .flatten()
            .flat_map(|finding| match finding {
                Finding::Addresses(addresses) => addresses,
                Finding::NoData | Finding::NoSuchName | Finding::Failed(_) => Vec::new(),
            })
            .collect()
    }

    fn keep(&self, host: &str, found: &[IpAddr]) {
        let mut kept = self.kept.lock();
        if kept.len() >= KEPT && !kept.contains_key(host) {
            kept.pop_first();
        }
        kept.insert(host.to_owned(), found.to_vec());
    }
}

async fn by_library(host: &str) -> io::Result<Vec<IpAddr>> {
    let looking = tokio::net::lookup_host((host, 0));
    let found = timeout(LIBRARY, looking)
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, format!("no address of {host}")))?
        .map_err(|_| io::Error::new(io::ErrorKind::NotFound, format!("{host} does not resolve")))?;
    Ok(found.map(|address| address.ip()).collect())
}

/// The addresses that a hosts file gives a name.
fn in_hosts(text: &str, host: &str) -> Vec<IpAddr> {
    let fields = text.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut fields = line.split_whitespace();
        Some((fields.next()?.parse().ok()?, fields))
    });
    fields
        .filter_map(|(address, mut names)| {
            names
                .any(|name| name.eq_ignore_ascii_case(host))
                .then_some(address)
        })
        .collect()
}

/// As the HTTP client wants it.
impl Service<HostName> for Addresses {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, host: HostName) -> Self::Future {
        let addresses = self.clone();
        async move {
            let found = addresses.find(host.as_str()).await?;
            let sockets: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect();
            Ok(sockets.into_iter())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
