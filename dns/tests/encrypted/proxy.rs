//! DoH through tinyproxy, which lets CONNECT go to one port only and wants a password.

use std::fs;

use kubebridge_dns::upstream::{ProxyRefusal, ProxySettings};

use super::bind::Bind;
use super::daemon::{Daemon, free};
use super::*;

struct World {
    bind: Bind,
    proxy: SocketAddr,
    tinyproxy: Daemon,
}

impl World {
    async fn start() -> Self {
        let bind = Bind::start().await;
        let [proxy] = free();
        let config = bind.folder.path().join("tinyproxy.conf");
        let text = format!(
            "Port {}\nListen 127.0.0.1\nAllow 127.0.0.1\nTimeout 60\nLogLevel Connect\n\
             BasicAuth user secret\nConnectPort {}\n",
            proxy.port(),
            bind.at("right", Protocol::Doh).port()
        );
        fs::write(&config, text).unwrap();
        let command = ["tinyproxy", "-d", "-c", config.to_str().unwrap()];
        let tinyproxy = Daemon::start(bind.folder.path(), &command, &[proxy], "").await;
        Self {
            bind,
            proxy,
            tinyproxy,
        }
    }

    fn settings(&self, user: &str, no_proxy: &str) -> Settings {
        Settings {
            proxy: ProxySettings {
                https_proxy: Some(format!("http://{user}@{}", self.proxy)),
                no_proxy: Some(no_proxy.to_owned()),
                ..ProxySettings::default()
            },
            ..trusting(&self.bind.authority.file)
        }
    }

    async fn refusal(&self, title: &str, user: &str) -> ProxyRefusal {
        let address = self.bind.at(title, Protocol::Doh);
        let upstream = upstream(Protocol::Doh, address, &self.settings(user, ""));
        match ask(&upstream, "a.example", RecordType::A).await {
            Err(ExchangeError::Proxy { refusal, .. }) => refusal,
            other => panic!("{other:?}"),
        }
    }

    fn connects(&self) -> usize {
        self.tinyproxy.log().matches("CONNECT 127.0.0.1:").count()
    }
}

#[tokio::test]
async fn doh_goes_through_tinyproxy_and_dot_does_not() {
    let world = World::start().await;
    let settings = world.settings("user:secret", "other.example");
    for protocol in BOTH {
        let address = world.bind.at("right", protocol);
        let upstream = upstream(protocol, address, &settings);
        for _ in 0..10 {
            finds_a(&upstream).await;
        }
    }
    assert_eq!(world.connects(), 1);
}

#[tokio::test]
async fn a_server_in_no_proxy_is_reached_without_tinyproxy() {
    let world = World::start().await;
    for no_proxy in [NAME, "127.0.0.0/8"] {
        let settings = world.settings("user:secret", no_proxy);
        let address = world.bind.at("right", Protocol::Doh);
        finds_a(&upstream(Protocol::Doh, address, &settings)).await;
    }
    assert_eq!(world.connects(), 0);
}

#[tokio::test]
async fn a_refusal_of_tinyproxy_is_told_by_its_status() {
    let world = World::start().await;
    let expected = ProxyRefusal::Status(403);
    assert_eq!(world.refusal("wrong", "user:secret").await, expected);
    let refused = world.refusal("right", "user:guess").await;
    assert_eq!(refused, ProxyRefusal::Status(401));
    assert!(refused.to_string().contains("user and password"));
}

#[tokio::test]
async fn the_certificate_is_checked_behind_a_proxy_too() {
    let world = World::start().await;
    let settings = Settings {
        trust: trusting(&world.bind.stranger.file).trust,
        ..world.settings("user:secret", "")
    };
    let address = world.bind.at("right", Protocol::Doh);
    let upstream = upstream(Protocol::Doh, address, &settings);
    assert_eq!(refusal(&upstream).await, TlsRefusal::UnknownIssuer);
}
