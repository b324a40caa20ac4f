//! Unbound: a second implementation of both protocols, and one that soon closes idle connections.

use std::fs;

use futures::future::join_all;

use super::authority::{Authority, Validity};
use super::daemon::{Daemon, free};
use super::relay::Relay;
use super::*;

struct Unbound {
    authority: Authority,
    dot: SocketAddr,
    doh: SocketAddr,
    _daemon: Daemon,
    _folder: tempfile::TempDir,
}

impl Unbound {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "ca");
        let identity = authority.certify("server", NAME, Validity::Now);
        let [dot, doh] = free();
        let (dot_port, doh_port) = (dot.port(), doh.port());
        let config = folder.path().join("unbound.conf");
        let text = format!(
            "server:\n interface: 127.0.0.1@{dot_port}\n interface: 127.0.0.1@{doh_port}\n \
             tls-port: {dot_port}\n https-port: {doh_port}\n \
             tls-service-pem: \"{}\"\n tls-service-key: \"{}\"\n \
             tcp-idle-timeout: 500\n chroot: \"\"\n username: \"\"\n pidfile: \"\"\n \
             directory: \"{}\"\n do-daemonize: no\n use-syslog: no\n module-config: \"iterator\"\n \
             local-zone: \"example.\" static\n local-data: \"a.example. A 192.0.2.1\"\n\
             remote-control:\n control-enable: no\n",
            identity.certificate.display(),
            identity.key.display(),
            folder.path().display(),
        );
        fs::write(&config, text).unwrap();
        let command = ["unbound", "-d", "-p", "-c", config.to_str().unwrap()];
        let daemon = Daemon::start(folder.path(), &command, &[dot, doh], "start of service").await;
        Self {
            authority,
            dot,
            doh,
            _daemon: daemon,
            _folder: folder,
        }
    }

    fn at(&self, protocol: Protocol) -> SocketAddr {
        match protocol {
            Protocol::Dot => self.dot,
            Protocol::Doh | Protocol::Do53 => self.doh,
        }
    }
}

#[tokio::test]
async fn a_thousand_questions_to_unbound_take_one_connection() {
    let unbound = Unbound::start().await;
    for protocol in BOTH {
        let relay = Relay::to(unbound.at(protocol)).await;
        let settings = trusting(&unbound.authority.file);
        let upstream = upstream(protocol, relay.address, &settings);
        for _ in 0..50 {
            join_all((0..20).map(|_| finds_a(&upstream))).await;
        }
        assert_eq!(relay.count().opened, 1, "{protocol:?}");
    }
}

#[tokio::test]
async fn a_connection_that_unbound_closed_for_idleness_costs_no_question() {
    let unbound = Unbound::start().await;
    for protocol in BOTH {
        let relay = Relay::to(unbound.at(protocol)).await;
        let settings = trusting(&unbound.authority.file);
        let upstream = upstream(protocol, relay.address, &settings);
        for round in 1..=3 {
            finds_a(&upstream).await;
            relay.sees_closed(round).await;
        }
        assert_eq!(relay.count().opened, 3);
    }
}
