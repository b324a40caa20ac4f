//! DoT and DoH against real TLS servers on loopback, certified by an authority of the test's own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use self::server::{Authority, Certificate, Reaction, Server, Validity};
use super::super::proxy::ProxySettings;
use super::super::{
    ExchangeError, OutgoingQuery, Protocol, ProxyRefusal, Settings, TlsRefusal, Trust, Upstream,
    UpstreamSpec, connect,
};
use super::*;
use crate::message::answers as parse;
use crate::name::{RecordType, ResponseCode};
use crate::test_util::{Answer, name};

mod dead_paths;
mod doh;
mod dot;
mod proxies;
mod relay;
mod reuse;
mod server;
mod trusted;

/// Longer than any test takes on a busy machine.
const LONG: Duration = Duration::from_secs(20);
const BOTH: [Protocol; 2] = [Protocol::Dot, Protocol::Doh];
const NAME: &str = "dns.test";

/// An authority with its file, and settings that trust it alone.
struct World {
    authority: Authority,
    folder: tempfile::TempDir,
    settings: Settings,
}

impl World {
    fn new() -> Self {
        let authority = Authority::new();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, authority.pem()).unwrap();
        let settings = Settings {
            trust: trust(file),
            ..Settings::default()
        };
        Self {
            authority,
            folder,
            settings,
        }
    }

    fn certificate(&self) -> Certificate {
        self.authority.certify(NAME, Validity::Now)
    }

    async fn server(&self, protocol: Protocol, reaction: Reaction) -> Server {
        Server::start(protocol, self.certificate(), move |_| reaction.clone()).await
    }

    fn upstream(&self, protocol: Protocol, address: SocketAddr) -> Arc<dyn Upstream> {
        connect(&spec(protocol, address), &self.settings).unwrap()
    }
}

fn trust(file: PathBuf) -> Trust {
    Trust {
        system: false,
        ca_files: vec![file],
    }
}

fn spec(protocol: Protocol, address: SocketAddr) -> UpstreamSpec {
    UpstreamSpec {
        protocol,
        address,
        server_name: Some(NAME.to_owned()),
    }
}

fn query(text: &str) -> OutgoingQuery {
    OutgoingQuery::new(name(text), RecordType::A)
}

fn address() -> Answer {
    Answer::address("a.test", [10, 0, 0, 1])
}

fn answer() -> Reaction {
    Reaction::Answer(address())
}

async fn ask(upstream: &Arc<dyn Upstream>, text: &str) -> Result<Vec<u8>, ExchangeError> {
    upstream.exchange(&query(text), Instant::now() + LONG).await
}

async fn ask_within(
    upstream: &Arc<dyn Upstream>,
    limit: Duration,
) -> Result<Vec<u8>, ExchangeError> {
    let deadline = Instant::now() + limit;
    upstream.exchange(&query("a.test"), deadline).await
}

async fn ask_ok(upstream: &Arc<dyn Upstream>, text: &str) {
    let reply = ask(upstream, text).await.unwrap();
    let reply = parse(&reply).unwrap();
    assert_eq!(reply.code, ResponseCode::NOERROR);
    assert_eq!(reply.question.unwrap().0, name(text));
}

async fn refusal(upstream: &Arc<dyn Upstream>) -> TlsRefusal {
    match ask(upstream, "a.test").await {
        Err(ExchangeError::Tls {
            server_name,
            refusal,
        }) => {
            assert_eq!(server_name, NAME);
            refusal
        }
        other => panic!("{other:?}"),
    }
}
