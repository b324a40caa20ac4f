//! Sessions and their IP routes: planned before the link, followed while they run, gone at the end.

use std::net::IpAddr;

use kubebridge_platform::net::IpNet;
use kubebridge_platform::routes::{Taken, TakenNet, Why};

use super::*;

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn taken(list: &[(&str, Why, &str)]) -> Taken {
    let net = |(net, why, via): &(&str, Why, &str)| TakenNet {
        net: net.parse().unwrap(),
        why: *why,
        via: Some((*via).to_owned()),
    };
    Taken {
        nets: list.iter().map(net).collect(),
        no_ipv6: false,
    }
}

impl World {
    /// Waits until these routes are wanted.
    async fn until_routes(&self, wanted: &[&str]) {
        let mut intent = self.os.intent();
        let wanted = nets(wanted);
        let found = intent.wait_for(|intent| intent.routes == wanted);
        let found = tokio::time::timeout(Duration::from_secs(60), found).await;
        assert!(
            found.is_ok(),
            "routes {:?}",
            self.os.intent().borrow().routes
        );
    }
}

#[tokio::test]
async fn w9_routes_are_planned_around_what_the_machine_has_and_shown() {
    let mut world = World::new(|os, config| {
        *os.taken.get_mut() = taken(&[
            ("10.96.128.0/17", Why::Route, "tun0"),
            ("10.96.0.53/32", Why::NameServer, "eth0"),
        ]);
        config.routes.include = nets(&["172.20.0.0/31"]);
        config.routes.exclude = nets(&["10.96.64.0/18"]);
    })
    .await;
    let session = world.start().await;
    world.until_state("connected").await;

    let routes = world.os.intent().borrow().routes.clone();
    let has = |address: &str| {
        let address: IpAddr = address.parse().unwrap();
        routes.iter().any(|route| route.contains(address))
    };
    for (address, routed) in [
        ("10.96.0.52", true),
        ("10.96.0.53", false),
        ("10.96.63.255", true),
        ("10.96.64.0", false),
        ("10.96.128.1", false),
        ("172.20.0.1", true),
        ("172.20.0.2", false),
    ] {
        assert_eq!(has(address), routed, "{address} {routes:?}");
    }
    let status = world.status().await;
    assert!(status.routing.applied);
    assert_eq!(status.health.routing, "set");
    let purposes: Vec<_> = status
        .routing
        .networks
        .iter()
        .flat_map(|one| &one.purposes)
        .collect();
    assert!(purposes.iter().any(|purpose| *purpose == "services"));
    assert_eq!(purposes.last().unwrap().as_str(), "--include-cidr");
    assert_eq!(status.routing.overlaps[0].theirs, "10.96.128.0/17");
    let holes: Vec<_> = status
        .routing
        .holes
        .iter()
        .map(|hole| hole.network.as_str())
        .collect();
    assert_eq!(holes, ["10.96.0.53/32", "10.96.64.0/18", "10.96.128.0/17"]);
    // Both routes are named.
    let warning = status
        .dns
        .warnings
        .iter()
        .find(|one| one.contains("10.96.128.0/17 dev tun0"));
    assert!(
        warning.unwrap().contains("10.96.0.0/16"),
        "{:?}",
        status.dns.warnings
    );
    session.abort();
}

#[tokio::test]
async fn lifecycle_16_a_network_that_is_taken_whole_is_an_error_before_the_link_with_both_named() {
    for (exclude, fails) in [(&[][..], true), (&["10.96.0.0/16"], false)] {
        let mut world = World::new(|os, config| {
            *os.taken.get_mut() = taken(&[("10.0.0.0/8", Why::Route, "tun0")]);
            config.routes.exclude = nets(exclude);
        })
        .await;
        let session = world.start().await;
        if !fails {
            world.until_state("connected").await;
            assert_eq!(world.os.intent().borrow().routes, []);
            session.abort();
            continue;
        }
        let failure = session.await.unwrap().unwrap_err();
        let words = failure.to_string();
        assert!(words.starts_with("plan routes: "), "{words}");
        assert!(
            words.contains("10.96.0.0/16") && words.contains("10.0.0.0/8 dev tun0"),
            "{words}"
        );
        assert!(
            failure
                .hint
                .unwrap()
                .contains("--exclude-cidr 10.96.0.0/16")
        );
        assert_eq!(failure.exit, Exit::Busy);
        assert!(!world.os.deeds().contains(&Deed::Opened));
    }
}

#[tokio::test]
async fn w9_another_network_of_the_machine_is_read_and_planned_around() {
    let mut world = World::new(|_, _| {}).await;
    let session = world.start().await;
    world.until_state("connected").await;
    assert_eq!(world.os.intent().borrow().routes, nets(&["10.96.0.0/16"]));

    *world.os.taken.lock() = taken(&[("10.96.0.0/17", Why::OnLink, "wlan0")]);
    world.os.sleeper.sleep(Duration::from_secs(60));
    world.until_routes(&["10.96.128.0/17"]).await;
    let status = world.status().await;
    assert_eq!(status.routing.overlaps[0].via.as_deref(), Some("wlan0"));

    *world.os.taken.lock() = Taken::default();
    world.os.sleeper.sleep(Duration::from_secs(60));
    world.until_routes(&["10.96.0.0/16"]).await;
    session.abort();
}

#[tokio::test]
async fn w9_a_service_outside_the_known_networks_gets_a_route_and_a_warning() {
    let mut world = World::new(|_, _| {}).await;
    let session = world.start().await;
    world.until_state("connected").await;
    let services = [("authors", "10.96.0.7"), ("far", "10.200.0.9")];
    world.script.send(page(2, &services)).await;
    world.until_routes(&["10.96.0.0/16", "10.200.0.9/32"]).await;
    let status = world.status().await;
    let warnings = &status.dns.warnings;
    assert!(
        warnings.iter().any(|one| one.contains("10.200.0.9")),
        "{warnings:?}"
    );
    assert_eq!(status.routing.networks[1].purposes, ["service far.default"]);

    world.script.send(page(3, &services[..1])).await;
    world.until_routes(&["10.96.0.0/16"]).await;
    session.abort();
}

/// A world whose cluster answers `docs.default.svc.cluster.local` with an address outside.
async fn world_with_docs(change: impl FnOnce(&mut FakeOs, &mut Config)) -> World {
    let mut world = World::new(change).await;
    world.script = Script::new(|query| {
        let asked = kubebridge_dns::message::check(query);
        let kubebridge_dns::message::Checked::Query(asked) = asked else {
            return None;
        };
        let name = asked.name.to_string();
        Some(if name.starts_with("docs") {
            Answer::address(&name, [203, 0, 113, 7]).reply_to(query)
        } else {
            cluster_answer(query)
        })
    });
    let manager = FakeManager::start(&world.script).await;
    world.config.target = at(manager.address);
    world.manager = Some(manager);
    world
}

#[tokio::test]
async fn f11_an_address_outside_is_routed_before_its_answer_is_given_and_for_its_time() {
    let mut world = world_with_docs(|_, _| {}).await;
    let session = world.start().await;
    world.until_state("connected").await;

    let found = world.ask("docs.default.svc.cluster.local").await;
    assert_eq!(found, Finding::Addresses(vec![[203, 0, 113, 7].into()]));
    let routes = world.os.intent().borrow().routes.clone();
    assert_eq!(routes, nets(&["10.96.0.0/16", "203.0.113.7/32"]));
    let hosts = world.status().await.routing.hosts;
    assert_eq!(hosts[0].address, "203.0.113.7");
    assert!(hosts[0].name.starts_with("docs.default.svc"), "{hosts:?}");
    assert!(hosts[0].seconds > 0 && hosts[0].seconds <= 1800);

    // Its time passes while the machine sleeps, too.
    world.os.sleeper.sleep(Duration::from_secs(3600));
    world.until_routes(&["10.96.0.0/16"]).await;
    assert!(world.status().await.routing.hosts.is_empty());
    session.abort();
}

#[tokio::test]
async fn f11_an_address_that_somebody_else_has_is_answered_and_not_routed() {
    for (why, exclude) in [
        (Some(Why::OnLink), &[][..]),
        (Some(Why::NameServer), &[]),
        (None, &["203.0.113.0/24"]),
    ] {
        let mut world = world_with_docs(|os, config| {
            if let Some(why) = why {
                *os.taken.get_mut() = taken(&[("203.0.113.7/32", why, "eth0")]);
            }
            config.routes.exclude = nets(exclude);
        })
        .await;
        let session = world.start().await;
        world.until_state("connected").await;
        let found = world.ask("docs.default.svc.cluster.local").await;
        assert_eq!(found, Finding::Addresses(vec![[203, 0, 113, 7].into()]));
        assert_eq!(
            world.os.intent().borrow().routes,
            nets(&["10.96.0.0/16"]),
            "{why:?}"
        );
        session.abort();
    }
}

#[tokio::test]
async fn w9_another_cluster_behind_the_manager_has_its_own_networks_routed() {
    let mut world = World::new(|_, _| {}).await;
    let session = world.start().await;
    world.until_state("connected").await;
    world.script.info.lock().pod_cidrs = vec!["10.244.0.0/16".parse().unwrap()];
    let socket = world.manager.take().unwrap().die();
    world.manager = Some(FakeManager::serve(&world.script, socket));
    world.until_routes(&["10.96.0.0/16", "10.244.0.0/16"]).await;
    let warnings = world.status().await.dns.warnings;
    assert!(
        warnings.iter().any(|one| one.contains("networks")),
        "{warnings:?}"
    );
    session.abort();
}
