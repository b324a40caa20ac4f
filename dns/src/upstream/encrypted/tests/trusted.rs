use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::server::Setup;
use super::*;
use crate::test_util::{LoopbackServer, loopback};

#[tokio::test]
async fn a_server_that_is_not_the_one_meant_is_refused_and_asked_nothing() {
    for protocol in BOTH {
        let world = World::new();
        let stranger = Authority::new();
        let wrong_name = TlsRefusal::WrongName(vec!["DnsName(\"other.test\")".to_owned()]);
        for (certificate, expected) in [
            (
                world.authority.certify("other.test", Validity::Now),
                wrong_name,
            ),
            (
                world.authority.certify(NAME, Validity::Past),
                TlsRefusal::Expired,
            ),
            (
                world.authority.certify(NAME, Validity::Future),
                TlsRefusal::NotYetValid,
            ),
            (
                stranger.certify(NAME, Validity::Now),
                TlsRefusal::UnknownIssuer,
            ),
        ] {
            let server = Server::start(protocol, certificate, |_| answer()).await;
            let upstream = world.upstream(protocol, server.address);

            assert_eq!(refusal(&upstream).await, expected);
            assert_eq!(refusal(&upstream).await, expected, "and so the next time");

            assert!(server.log().asked.is_empty());
        }
    }
}

/// The one version before 1.3 that is still around.
static OLD: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS12];

#[tokio::test]
async fn a_server_without_tls_1_3_is_refused() {
    for protocol in BOTH {
        let world = World::new();
        let setup = Setup {
            versions: OLD,
            ..Setup::right(protocol)
        };
        let server = Server::with(setup, world.certificate(), |_| answer()).await;
        let upstream = world.upstream(protocol, server.address);
        assert_eq!(refusal(&upstream).await, TlsRefusal::OldVersion);
        assert_eq!(server.log().handshakes, 0);
    }
}

#[tokio::test]
async fn a_server_for_another_protocol_is_refused() {
    for (protocol, alpn) in [(Protocol::Dot, b"h2"), (Protocol::Doh, b"h3")] {
        let world = World::new();
        let setup = Setup {
            alpn: &[],
            ..Setup::right(protocol)
        };
        let server = Server::with(setup, world.certificate(), |_| answer()).await;
        let upstream = world.upstream(protocol, server.address);
        match protocol {
            // Servers need not know ALPN for DoT (RFC 7858 has none).
            Protocol::Dot => ask_ok(&upstream, "a.test").await,
            _ => assert_eq!(refusal(&upstream).await, TlsRefusal::WrongProtocol),
        }

        let alpn: &'static [&'static [u8]] = match alpn {
            b"h2" => &[b"h2"],
            _ => &[b"h3"],
        };
        let setup = Setup {
            alpn,
            ..Setup::right(protocol)
        };
        let server = Server::with(setup, world.certificate(), |_| answer()).await;
        let upstream = world.upstream(protocol, server.address);
        assert_eq!(refusal(&upstream).await, TlsRefusal::WrongProtocol);
    }
}

#[tokio::test]
async fn plain_text_on_the_port_is_told_from_tls() {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"220 smtp.test ready\r\n").await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    };
    let world = World::new();
    let client = async {
        for protocol in BOTH {
            let upstream = world.upstream(protocol, address);
            assert_eq!(refusal(&upstream).await, TlsRefusal::NotTls);
        }
    };
    tokio::select! {
        () = server => {}
        () = client => {}
    }
}

#[tokio::test]
async fn a_plain_dns_server_is_never_asked_in_plain() {
    for protocol in BOTH {
        let world = World::new();
        let server = LoopbackServer::saying(address()).await;
        let upstream = world.upstream(protocol, server.address());
        let got = ask_within(&upstream, Duration::from_millis(300)).await;
        // The hello looks like a frame of 5,635 bytes to it, and it waits for the rest.
        assert!(matches!(got, Err(ExchangeError::Timeout)), "{got:?}");
        assert!(server.received().is_empty());
    }
}

#[tokio::test]
async fn a_replaced_ca_file_is_trusted_from_the_next_question_on() {
    for protocol in BOTH {
        let world = World::new();
        let next = Authority::new();
        let server = Server::start(protocol, next.certify(NAME, Validity::Now), |_| answer());
        let server = server.await;
        let upstream = world.upstream(protocol, server.address);
        assert_eq!(refusal(&upstream).await, TlsRefusal::UnknownIssuer);
        let file = &world.settings.trust.ca_files[0];

        replace(&world, next.pem());
        ask_ok(&upstream, "a.test").await;

        // Neither the open connection nor its session outlives the trust in it.
        replace(&world, world.authority.pem());
        assert_eq!(refusal(&upstream).await, TlsRefusal::UnknownIssuer);
        assert_eq!(server.log().asked.len(), 1);

        // Both at once, as in a rotation.
        fs::write(file, format!("{}{}", world.authority.pem(), next.pem())).unwrap();
        ask_ok(&upstream, "a.test").await;
        assert_eq!((server.log().handshakes, server.log().resumed), (2, 0));
    }
}

#[tokio::test]
async fn a_certificate_that_expires_is_refused_for_a_resumed_session_too() {
    for protocol in BOTH {
        let world = World::new();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        // Certificates count whole seconds: one to two from now.
        let until = Validity::Until(Duration::from_secs(now.as_secs() + 2));
        let certificate = world.authority.certify(NAME, until);
        let server = Server::start(protocol, certificate, |_| answer()).await;
        let upstream = world.upstream(protocol, server.address);
        let start = Instant::now();
        let error = loop {
            assert!(start.elapsed() < LONG);
            world.settings.connections.renew();
            if let Err(error) = ask(&upstream, "a.test").await {
                break error;
            }
        };
        let expired = matches!(
            error,
            ExchangeError::Tls {
                refusal: TlsRefusal::Expired,
                ..
            }
        );
        assert!(expired, "{error}");
        // All but the first were resumed, and the one refused was forgotten.
        server.sees(|log| log.connections == log.handshakes).await;
        let log = server.log();
        assert_eq!(log.resumed, log.handshakes - 1);
        assert_eq!(refusal(&upstream).await, TlsRefusal::Expired);
        let log = server.log();
        assert_eq!(
            (log.connections, log.resumed),
            (log.handshakes + 1, log.handshakes - 1)
        );
    }
}

/// Replaces the file as a mounted Secret is: by another one under its name.
fn replace(world: &World, pem: &str) {
    let fresh = world.folder.path().join("new.pem");
    fs::write(&fresh, pem).unwrap();
    fs::rename(fresh, &world.settings.trust.ca_files[0]).unwrap();
}

#[tokio::test]
async fn a_ca_file_gone_or_broken_or_the_same_leaves_trust_and_connection() {
    for protocol in BOTH {
        let world = World::new();
        let server = world.server(protocol, answer()).await;
        let upstream = world.upstream(protocol, server.address);
        let file = &world.settings.trust.ca_files[0];
        ask_ok(&upstream, "a.test").await;

        fs::write(file, "-----BEGIN CERTI").unwrap();
        ask_ok(&upstream, "a.test").await;
        fs::remove_file(file).unwrap();
        ask_ok(&upstream, "a.test").await;
        fs::write(file, world.authority.pem()).unwrap();
        ask_ok(&upstream, "a.test").await;

        assert_eq!(server.log().handshakes, 1);
    }
}

#[test]
fn refusals_say_what_to_do() {
    for (refusal, hint) in [
        (
            TlsRefusal::WrongName(vec!["a".into()]),
            "is for a; check the address and the name",
        ),
        (TlsRefusal::Expired, "check this machine's clock"),
        (TlsRefusal::NotYetValid, "check this machine's clock"),
        (TlsRefusal::UnknownIssuer, "CA file"),
        (TlsRefusal::OldVersion, "enable TLS 1.3"),
        (TlsRefusal::NotTls, "check address and port"),
        (TlsRefusal::HungUp, "may speak no TLS 1.3"),
        (TlsRefusal::WrongProtocol, "`tls://` versus `https://`"),
    ] {
        let error = ExchangeError::Tls {
            server_name: NAME.to_owned(),
            refusal,
        };
        let error = error.to_string();
        assert!(
            error.contains("`dns.test`") && error.contains(hint),
            "{error}"
        );
    }
}
