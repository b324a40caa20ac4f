//! BIND 9.18: one process with a right certificate and with all the wrong ones, each on two ports.

use std::fs;
use std::net::SocketAddr;

use futures::future::join_all;
use kubebridge_dns::name::ResponseCode;
use tempfile::TempDir;

use super::authority::{Authority, Identity, Validity};
use super::daemon::{Daemon, free};
use super::relay::Relay;
use super::*;

/// A running BIND with the zone `example`.
pub(crate) struct Bind {
    pub(crate) authority: Authority,
    pub(crate) stranger: Authority,
    pub(crate) folder: TempDir,
    daemon: Daemon,
    listeners: Vec<Listener>,
}

struct Listener {
    title: &'static str,
    identity: Identity,
    versions: &'static str,
    dot: SocketAddr,
    doh: SocketAddr,
}

impl Bind {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "ca");
        let stranger = Authority::new(folder.path(), "stranger-ca");
        let listener = |title, by: &Authority, name, validity, versions| {
            let [dot, doh] = free();
            Listener {
                title,
                identity: by.certify(title, name, validity),
                versions,
                dot,
                doh,
            }
        };
        let listeners = vec![
            listener("right", &authority, NAME, Validity::Now, "TLSv1.3"),
            listener(
                "wrong",
                &authority,
                "other.example",
                Validity::Now,
                "TLSv1.3",
            ),
            listener("past", &authority, NAME, Validity::Past, "TLSv1.3"),
            listener("future", &authority, NAME, Validity::Future, "TLSv1.3"),
            listener("unknown", &stranger, NAME, Validity::Now, "TLSv1.3"),
            listener("old", &authority, NAME, Validity::Now, "TLSv1.2"),
        ];
        let config = folder.path().join("named.conf");
        fs::write(folder.path().join("zone"), zone()).unwrap();
        fs::write(&config, configuration(folder.path(), &listeners)).unwrap();
        let command = ["named", "-g", "-c", config.to_str().unwrap()];
        let listens = addresses(&listeners);
        let daemon = Daemon::start(folder.path(), &command, &listens, "all zones loaded").await;
        Self {
            authority,
            stranger,
            folder,
            daemon,
            listeners,
        }
    }

    pub(crate) fn at(&self, title: &str, protocol: Protocol) -> SocketAddr {
        let found = self.listeners.iter().find(|l| l.title == title).unwrap();
        match protocol {
            Protocol::Dot => found.dot,
            Protocol::Doh | Protocol::Do53 => found.doh,
        }
    }

    fn settings(&self) -> Settings {
        trusting(&self.authority.file)
    }
}

fn addresses(listeners: &[Listener]) -> Vec<SocketAddr> {
    listeners.iter().flat_map(|l| [l.dot, l.doh]).collect()
}

fn zone() -> String {
    let mut zone = "$TTL 60\n@ SOA ns hostmaster 1 7200 1800 86400 30\n@ NS ns\n\
                    ns A 192.0.2.53\na A 192.0.2.1\na AAAA 2001:db8::1\n"
        .to_owned();
    // About 40 KiB under one name, in no more records than BIND takes.
    for number in 0..90 {
        let text = "x".repeat(220);
        zone += &format!("long TXT \"{number} {text}\" \"{text}\"\n");
    }
    zone
}

fn configuration(folder: &Path, listeners: &[Listener]) -> String {
    let folder = folder.display();
    let mut listen = String::new();
    let mut tls = String::new();
    for listener in listeners {
        let (title, versions) = (listener.title, listener.versions);
        let (dot, doh) = (listener.dot.port(), listener.doh.port());
        listen += &format!("  listen-on port {dot} tls {title} {{ 127.0.0.1; }};\n");
        listen += &format!("  listen-on port {doh} tls {title} http h {{ 127.0.0.1; }};\n");
        let certificate = listener.identity.certificate.display();
        let key = listener.identity.key.display();
        tls += &format!(
            "tls {title} {{ cert-file \"{certificate}\"; key-file \"{key}\"; protocols {{ {versions}; }}; }};\n"
        );
    }
    format!(
        "{tls}http h {{ endpoints {{ \"/dns-query\"; }}; }};\ncontrols {{ }};\n\
         options {{\n  directory \"{folder}\"; pid-file none; session-keyfile none;\n\
         {listen}  listen-on-v6 {{ none; }};\n  recursion no; dnssec-validation no; notify no;\n}};\n\
         zone \"example\" {{ type primary; file \"zone\"; }};\n"
    )
}

#[tokio::test]
async fn bind_answers_every_kind_of_question() {
    let bind = Bind::start().await;
    for protocol in BOTH {
        let upstream = upstream(protocol, bind.at("right", protocol), &bind.settings());
        finds_a(&upstream).await;
        let reply = ask(&upstream, "a.example", RecordType::AAAA).await.unwrap();
        assert_eq!(reply.addresses().count(), 1);
        let reply = ask(&upstream, "a.example", RecordType::SRV).await.unwrap();
        assert_eq!(
            (reply.code, reply.answers.len()),
            (ResponseCode::NOERROR, 0)
        );
        let reply = ask(&upstream, "none.example", RecordType::A).await.unwrap();
        assert_eq!(reply.code, ResponseCode::NXDOMAIN);
        let reply = ask(&upstream, "elsewhere.test", RecordType::A)
            .await
            .unwrap();
        assert_eq!(reply.code, ResponseCode::REFUSED);
        let reply = ask(&upstream, "long.example", RecordType::TXT)
            .await
            .unwrap();
        assert_eq!((reply.answers.len(), reply.flags.truncated), (90, false));
    }
}

#[tokio::test]
async fn bind_is_refused_with_every_certificate_but_the_right_one() {
    let bind = Bind::start().await;
    for protocol in BOTH {
        for (title, expected) in [
            ("past", TlsRefusal::Expired),
            ("future", TlsRefusal::NotYetValid),
            ("unknown", TlsRefusal::UnknownIssuer),
        ] {
            let upstream = upstream(protocol, bind.at(title, protocol), &bind.settings());
            assert_eq!(refusal(&upstream).await, expected, "{title}");
        }
        let old = upstream(protocol, bind.at("old", protocol), &bind.settings());
        match protocol {
            Protocol::Doh => assert_eq!(refusal(&old).await, TlsRefusal::OldVersion),
            // BIND sends the alert that says why on its DoH ports only.
            _ => assert_eq!(refusal(&old).await, TlsRefusal::HungUp),
        }
        let upstream = upstream(protocol, bind.at("wrong", protocol), &bind.settings());
        match refusal(&upstream).await {
            TlsRefusal::WrongName(presented) => assert!(presented[0].contains("other.example")),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn the_systems_authorities_do_not_certify_our_bind() {
    let bind = Bind::start().await;
    for protocol in BOTH {
        let upstream = upstream(protocol, bind.at("right", protocol), &Settings::default());
        assert_eq!(refusal(&upstream).await, TlsRefusal::UnknownIssuer);
    }
}

#[tokio::test]
async fn the_two_protocols_are_not_taken_for_each_other() {
    let bind = Bind::start().await;
    let over_dot = bind.at("right", Protocol::Dot);
    let doh = upstream(Protocol::Doh, over_dot, &bind.settings());
    assert_eq!(refusal(&doh).await, TlsRefusal::WrongProtocol);
    // BIND does not mind that DoT is asked for on its DoH port, and speaks HTTP/2 there.
    let over_doh = bind.at("right", Protocol::Doh);
    let dot = upstream(Protocol::Dot, over_doh, &bind.settings());
    let got = ask(&dot, "a.example", RecordType::A).await;
    let useless = matches!(
        got,
        Err(ExchangeError::Malformed(_) | ExchangeError::Closed)
    );
    assert!(useless, "{got:?}");
}

#[tokio::test]
async fn a_thousand_questions_to_bind_take_one_connection() {
    let bind = Bind::start().await;
    for protocol in BOTH {
        let relay = Relay::to(bind.at("right", protocol)).await;
        let upstream = upstream(protocol, relay.address, &bind.settings());
        for _ in 0..50 {
            join_all((0..20).map(|_| finds_a(&upstream))).await;
        }
        assert_eq!(relay.count().opened, 1, "{protocol:?}");
    }
}

#[tokio::test]
async fn a_restarted_bind_is_asked_again_without_a_failed_question() {
    let mut bind = Bind::start().await;
    for protocol in BOTH {
        let upstream = upstream(protocol, bind.at("right", protocol), &bind.settings());
        finds_a(&upstream).await;
        bind.daemon.restart().await;
        finds_a(&upstream).await;
    }
}

#[tokio::test]
async fn a_bind_that_stops_is_a_timeout_and_is_asked_again_when_it_goes_on() {
    let bind = Bind::start().await;
    for protocol in BOTH {
        let upstream = upstream(protocol, bind.at("right", protocol), &bind.settings());
        finds_a(&upstream).await;
        bind.daemon.stop().await;
        let limit = Duration::from_secs(2);
        let start = Instant::now();
        let got = ask_within(&upstream, "a.example", RecordType::A, limit).await;
        assert!(matches!(got, Err(ExchangeError::Timeout)), "{got:?}");
        assert!(start.elapsed() >= limit);
        bind.daemon.go_on();
        finds_a(&upstream).await;
    }
}

#[tokio::test]
async fn an_authority_added_to_the_ca_file_certifies_bind_from_then_on() {
    let bind = Bind::start().await;
    for protocol in BOTH {
        let file = bind.folder.path().join("trusted.pem");
        fs::copy(&bind.authority.file, &file).unwrap();
        let upstream = upstream(protocol, bind.at("unknown", protocol), &trusting(&file));
        assert_eq!(refusal(&upstream).await, TlsRefusal::UnknownIssuer);
        fs::copy(&bind.stranger.file, &file).unwrap();
        finds_a(&upstream).await;
    }
}

#[tokio::test]
async fn questions_given_up_at_any_moment_cost_neither_bind_nor_its_connection() {
    let bind = Bind::start().await;
    for protocol in BOTH {
        let relay = Relay::to(bind.at("right", protocol)).await;
        let upstream = upstream(protocol, relay.address, &bind.settings());
        finds_a(&upstream).await;
        for round in 0..20 {
            let asked = (0..20).map(|number| {
                let limit = Duration::from_micros(100 * (number + round));
                ask_within(&upstream, "a.example", RecordType::A, limit)
            });
            join_all(asked).await;
            finds_a(&upstream).await;
        }
        assert_eq!(relay.count().opened, 1, "{protocol:?}");
    }
}
