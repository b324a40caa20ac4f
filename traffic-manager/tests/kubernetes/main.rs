//! The program against an API server that fails as real ones do: conditions W5, W6, W10, W14, W15.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are not in tests for clippy"
)]

use std::time::Duration;

use kubebridge_proto::routes::NamespaceState;
use tokio::time::Instant;

use self::manager::{Manager, Routes};
use self::server::World;

mod manager;
mod server;

const WITHIN: Duration = Duration::from_secs(30);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(WITHIN, what)
        .await
        .expect("not within 30 s")
}

#[tokio::test]
async fn w5_a_right_granted_later_takes_effect_without_reconnect_and_others_go_on() {
    let world = World::start();
    world.api.apply("default", "a", "10.96.0.1");
    world.api.apply("shop", "b", "10.96.0.2");
    world.api.allow("list", "shop", false);
    let manager = Manager::start(&world, &["--namespace=default,shop"]);
    let mut routes = manager.routes(&["default", "shop"]).await;
    let forbidden = NamespaceState::Forbidden {
        verb: "list".to_owned(),
        resource: "services".to_owned(),
    };
    soon(routes.until(|tables| {
        tables.get("shop").and_then(|table| table.state.clone()) == Some(forbidden.clone())
            && tables
                .get("default")
                .and_then(|table| table.ip("a"))
                .is_some()
    }))
    .await;
    world.api.apply("default", "a", "10.96.0.9");
    soon(routes.until(|tables| tables["default"].ip("a").as_deref() == Some("10.96.0.9"))).await;
    world.api.allow("list", "shop", true);
    soon(routes.until(|tables| tables["shop"].ip("b").is_some())).await;
    assert_eq!(routes.tables["shop"].state, Some(NamespaceState::Synced));
}

#[tokio::test]
async fn w5_a_right_withdrawn_is_told_within_thirty_seconds_and_the_routes_stay() {
    let world = World::start();
    world.api.apply("default", "a", "10.96.0.1");
    let manager = Manager::start(&world, &["--namespace=default"]);
    let mut routes = manager.routes(&["default"]).await;
    soon(routes.until(|tables| {
        tables
            .get("default")
            .is_some_and(|table| table.ip("a").is_some())
    }))
    .await;
    for verb in ["list", "watch"] {
        world.api.allow(verb, "default", false);
    }
    let forbidden = NamespaceState::Forbidden {
        verb: "watch".to_owned(),
        resource: "services".to_owned(),
    };
    soon(routes.until(|tables| tables["default"].state == Some(forbidden.clone()))).await;
    assert_eq!(routes.tables["default"].removed, [""; 0]);
    let ready = manager.get("/readyz").await;
    assert!(ready.contains("not allowed to watch services"), "{ready}");
}

#[tokio::test]
async fn w6_after_410_gone_no_removal_of_what_still_exists_is_told() {
    let world = World::start();
    for number in 0..1200 {
        world
            .api
            .apply("default", &format!("s{number}"), "10.96.0.1");
    }
    let manager = Manager::start(&world, &[]);
    let mut routes = manager.routes(&["default"]).await;
    soon(routes.until(|tables| {
        tables
            .get("default")
            .is_some_and(|table| table.routes.len() == 1200)
    }))
    .await;
    // Two changes that no watch will tell.
    world.api.silence(true);
    world.api.delete("default", "s7");
    world.api.apply("default", "new", "10.96.0.2");
    world.api.compact();
    world.api.silence(false);
    soon(routes.until(|tables| {
        tables["default"].ip("new").is_some() && tables["default"].ip("s7").is_none()
    }))
    .await;
    assert_eq!(routes.tables["default"].removed, ["s7"]);
    let metrics = manager.get("/metrics").await;
    assert!(
        metrics.contains("kubebridge_watch_relists_total{resource=\"services\"} 1\n"),
        "{metrics}"
    );
}

#[tokio::test]
async fn w14_an_api_server_away_at_start_and_later_is_said_and_survived() {
    let mut world = World::away("http");
    world.api.apply("default", "a", "10.96.0.1");
    let manager = Manager::start(&world, &[]);
    let line = manager.line_with("watch failed");
    assert!(line.contains("Connection refused"), "{line}");
    let reason =
        "services of namespace default: the API server is out of reach: Connection refused";
    let reply = soon(manager.until("/readyz", reason)).await;
    assert!(reply.starts_with("HTTP/1.1 503"), "{reply}");
    assert!(manager.get("/livez").await.starts_with("HTTP/1.1 200"));

    world.come();
    soon(manager.until("/readyz", "HTTP/1.1 200")).await;
    assert_eq!(manager.resolve("a").await, "NOERROR 10.96.0.1");

    world.go().await;
    soon(manager.until("/readyz", reason)).await;
    assert_eq!(manager.resolve("a").await, "NOERROR 10.96.0.1");
    let mut routes = manager.routes(&["default"]).await;
    soon(routes.until(|tables| {
        tables
            .get("default")
            .is_some_and(|table| table.ip("a").is_some())
    }))
    .await;

    world.api.apply("default", "a", "10.96.0.2");
    world.come();
    soon(routes.until(|tables| tables["default"].ip("a").as_deref() == Some("10.96.0.2"))).await;
    assert_eq!(manager.resolve("a").await, "NOERROR 10.96.0.2");
    soon(manager.until("/readyz", "HTTP/1.1 200")).await;
}

#[tokio::test]
async fn w14_a_rotated_token_is_read_again_when_the_old_one_is_refused() {
    let mut world = World::start();
    world.api.set_token("first");
    world.api.apply("default", "a", "10.96.0.1");
    let manager = Manager::start(&world, &[]);
    soon(manager.until("/readyz", "HTTP/1.1 200")).await;
    std::fs::write(world.path("token"), "second").unwrap();
    world.api.set_token("second");
    world.go().await;
    world.api.apply("default", "a", "10.96.0.2");
    world.come();
    soon(async { while manager.resolve("a").await != "NOERROR 10.96.0.2" {} }).await;
}

#[tokio::test]
async fn w14_a_server_under_a_new_authority_is_found_again() {
    let mut world = World::away("https");
    world.come_with_new_authority();
    world.api.apply("default", "a", "10.96.0.1");
    let manager = Manager::start(&world, &[]);
    soon(manager.until("/readyz", "HTTP/1.1 200")).await;
    world.go().await;
    world.api.apply("default", "a", "10.96.0.2");
    world.come_with_new_authority();
    soon(async { while manager.resolve("a").await != "NOERROR 10.96.0.2" {} }).await;
}

/// The times and sizes of a release build are in `docs/figures.md`; here is what holds for any.
#[tokio::test]
async fn w15_ten_thousand_services_are_listed_in_pages_and_kept_small() {
    let world = World::start();
    let manager = Manager::start(&world, &["--namespace=default,empty"]);
    soon(manager.until("/readyz", "HTTP/1.1 200")).await;
    let before = manager.rss();
    for number in 0..10_000 {
        let ip = std::net::Ipv4Addr::from(0x0a60_0000 + number).to_string();
        world
            .api
            .apply("default", &format!("service-{number}"), &ip);
    }
    // The API server forgets the changes: they come as a list.
    world.api.compact();
    let started = Instant::now();
    soon(manager.until("/metrics", "kubebridge_routes{state=\"synced\"} 10000\n")).await;
    let grown = manager.rss().saturating_sub(before);
    println!(
        "10,000 services in {:?}, {grown} KiB more",
        started.elapsed()
    );
    // 1 KB for each, and what a list of 2 MB a page needs on its way.
    assert!(grown < 10_000 + 48 * 1024, "{grown} KiB");
    assert_eq!(manager.resolve("service-9999").await, "NOERROR 10.96.39.15");
}

/// W10: what stays with a stream after its snapshot is at most 8 KB. Connections are left out, and
/// so is what start-up left free. With gRPC's usual buffers and pages of 500 it is some 65 KB.
#[tokio::test]
async fn w10_a_subscriber_keeps_little_after_its_snapshot() {
    const SUBSCRIBERS: usize = 200;
    let world = World::start();
    for number in 0..1000 {
        let name = format!("service-{number}");
        world.api.apply("default", &name, "10.96.0.1");
    }
    let manager = Manager::start(&world, &[]);
    soon(manager.until("/metrics", "kubebridge_routes{state=\"synced\"} 1000\n")).await;
    // The first ones take what start-up left free.
    let mut client = manager.connect().await;
    let mut held = Vec::new();
    let mut before = 0;
    for number in 0..SUBSCRIBERS * 2 {
        if number == SUBSCRIBERS {
            client = manager.connect().await;
            before = manager.rss();
        }
        let mut routes = Routes::open(client.clone(), manager.api.issuer(), &["default"]).await;
        soon(routes.until(|tables| {
            tables
                .get("default")
                .is_some_and(|table| table.routes.len() == 1000)
        }))
        .await;
        held.push(routes);
    }
    let grown = manager.rss().saturating_sub(before);
    println!("{grown} KiB for {SUBSCRIBERS} subscribers");
    assert!(grown <= 8 * SUBSCRIBERS as u64, "{grown} KiB");
}
