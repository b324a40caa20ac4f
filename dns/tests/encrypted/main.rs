//! DoT and DoH upstreams against other people's servers: BIND 9.18 and Unbound on loopback, with a
//! certificate authority of the test's own, and tinyproxy on the way where one is asked for.
//!
//! The daemons come from `tests/setup`; a test whose daemon is missing fails. What a server can be
//! scripted to do in-process is tested beside the transports.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at the first thing that goes wrong"
)]

mod authority;
mod bind;
mod daemon;
mod proxy;
mod relay;
mod unbound;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kubebridge_dns::message::{Parsed, answers};
use kubebridge_dns::name::RecordType;
use kubebridge_dns::upstream::{
    ExchangeError, OutgoingQuery, Protocol, Settings, TlsRefusal, Trust, Upstream, UpstreamSpec,
    connect,
};
use tokio::time::Instant;

/// Longer than any answer takes on a busy machine.
const LONG: Duration = Duration::from_secs(20);
const BOTH: [Protocol; 2] = [Protocol::Dot, Protocol::Doh];
/// The name in the certificates.
const NAME: &str = "dns.example";

/// Trusts one CA file and nothing else.
fn trusting(ca_file: &Path) -> Settings {
    Settings {
        trust: Trust {
            system: false,
            ca_files: vec![ca_file.to_owned()],
        },
        ..Settings::default()
    }
}

fn upstream(protocol: Protocol, address: SocketAddr, settings: &Settings) -> Arc<dyn Upstream> {
    // By way of the written form, as a user would have it.
    let scheme = match protocol {
        Protocol::Dot => "tls",
        Protocol::Doh => "https",
        Protocol::Do53 => panic!("plain DNS is not tested here"),
    };
    let spec: UpstreamSpec = format!("{scheme}://{address}#{NAME}").parse().unwrap();
    connect(&spec, settings).unwrap()
}

async fn ask(
    upstream: &Arc<dyn Upstream>,
    name: &str,
    rtype: RecordType,
) -> Result<Parsed, ExchangeError> {
    ask_within(upstream, name, rtype, LONG).await
}

async fn ask_within(
    upstream: &Arc<dyn Upstream>,
    name: &str,
    rtype: RecordType,
    limit: Duration,
) -> Result<Parsed, ExchangeError> {
    let query = OutgoingQuery::new(name.parse().unwrap(), rtype);
    let reply = upstream.exchange(&query, Instant::now() + limit).await?;
    Ok(answers(&reply).unwrap())
}

async fn finds_a(upstream: &Arc<dyn Upstream>) {
    let reply = ask(upstream, "a.example", RecordType::A).await.unwrap();
    let expected = Ipv4Addr::new(192, 0, 2, 1);
    assert_eq!(reply.addresses().collect::<Vec<_>>(), [expected]);
}

async fn refusal(upstream: &Arc<dyn Upstream>) -> TlsRefusal {
    match ask(upstream, "a.example", RecordType::A).await {
        Err(ExchangeError::Tls { refusal, .. }) => refusal,
        other => panic!("{other:?}"),
    }
}
