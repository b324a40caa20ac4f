//! Which frames a client gets: pages, deltas, snapshots, and when.

use kubebridge_proto::routes::{
    NamespaceState, PortProtocol, ServiceKind, ServicePort, ServiceRoute,
};

use super::subscription::Subscription;
use super::*;
use crate::kubernetes::index::{Index, Scope, Served};

fn service(name: &str, ip: &str) -> ServiceRoute {
    ServiceRoute {
        name: name.to_owned(),
        namespace: "default".to_owned(),
        kind: ServiceKind::ClusterIp,
        cluster_ips: vec![ip.parse().unwrap()],
        ports: Vec::new(),
        external_name: None,
    }
}

fn index_with(count: usize) -> Index {
    let index = Index::new(Served::All, 100);
    let routes = (0..count)
        .map(|number| service(&format!("s{number:05}"), "10.0.0.1"))
        .collect();
    index.reset(&Scope::All, routes, Instant::now());
    index
}

/// A client, and its clock.
struct Client {
    subscription: Subscription,
    now: Instant,
}

fn client(index: &Index, revision: u64) -> Client {
    let head = index.subscribe("default", Instant::now());
    let subscription = Subscription::new("default".to_owned(), head, revision);
    Client {
        subscription,
        now: Instant::now(),
    }
}

impl Client {
    fn next(&mut self, index: &Index) -> Option<RouteUpdate> {
        self.subscription.next(index, self.now)
    }

    /// Takes every frame there is after a quiet spell.
    fn drain(&mut self, index: &Index) -> Vec<RouteUpdate> {
        self.now += COALESCE;
        std::iter::from_fn(|| self.next(index)).collect()
    }
}

fn shape(update: &RouteUpdate) -> String {
    match update {
        RouteUpdate::Page { routes, last, .. } => format!("page {} {last}", routes.len()),
        RouteUpdate::Delta {
            upserts, deletes, ..
        } => {
            format!("delta +{} -{}", upserts.len(), deletes.len())
        }
        RouteUpdate::State { state, .. } => format!("{state:?}"),
    }
}

fn shapes(updates: &[RouteUpdate]) -> Vec<String> {
    updates.iter().map(shape).collect()
}

#[test]
fn a_snapshot_comes_in_pages_after_the_state() {
    let index = index_with(SNAPSHOT_ROUTES * 2 + 1);
    let frames = client(&index, 0).drain(&index);
    assert_eq!(
        shapes(&frames),
        ["Synced", "page 50 false", "page 50 false", "page 1 true"]
    );
}

#[test]
fn an_empty_namespace_is_one_empty_page() {
    let index = index_with(0);
    let frames = client(&index, 0).drain(&index);
    assert_eq!(shapes(&frames), ["Synced", "page 0 true"]);
}

#[test]
fn a_client_that_has_the_current_revision_is_told_only_the_state() {
    let index = index_with(3);
    let frames = client(&index, 0).drain(&index);
    let Some(RouteUpdate::Page { revision, .. }) = frames.last() else {
        panic!("no page")
    };
    let frames = client(&index, *revision).drain(&index);
    assert_eq!(shapes(&frames), ["Synced"]);
}

#[test]
fn a_client_that_comes_back_gets_what_it_missed() {
    let index = index_with(3);
    let frames = client(&index, 0).drain(&index);
    let Some(RouteUpdate::Page { revision, .. }) = frames.last() else {
        panic!("no page")
    };
    index.apply(service("new", "10.0.0.2"));
    index.delete("default", "s00001", Instant::now());
    let frames = client(&index, *revision).drain(&index);
    assert_eq!(shapes(&frames), ["Synced", "delta +1 -1"]);
    let Some(RouteUpdate::Delta { base_revision, .. }) = frames.last() else {
        panic!("no delta")
    };
    assert_eq!(base_revision, revision);
}

#[test]
fn deltas_name_the_revision_they_apply_to() {
    let index = index_with(1);
    let mut client = client(&index, 0);
    let frames = client.drain(&index);
    let Some(RouteUpdate::Page { revision, .. }) = frames.last() else {
        panic!("no page")
    };
    let mut held = *revision;
    for round in 0..5_u8 {
        index.apply(service("s", &format!("10.0.1.{round}")));
        let frames = client.drain(&index);
        let [
            RouteUpdate::Delta {
                base_revision,
                revision,
                ..
            },
        ] = frames.as_slice()
        else {
            panic!("{frames:?}")
        };
        assert_eq!(*base_revision, held);
        held = *revision;
    }
}

#[test]
fn a_slow_client_gets_one_frame_for_many_changes() {
    let index = index_with(1);
    let mut client = client(&index, 0);
    client.drain(&index);
    for round in 0..200_u32 {
        let ip = std::net::Ipv4Addr::from(round).to_string();
        index.apply(service(&format!("s{}", round % 10), &ip));
    }
    assert_eq!(shapes(&client.drain(&index)), ["delta +10 -0"]);
}

#[test]
fn a_client_too_far_behind_gets_a_fresh_snapshot() {
    let index = index_with(2);
    let mut client = client(&index, 0);
    client.drain(&index);
    for round in 0..5000_u32 {
        let ip = std::net::Ipv4Addr::from(round).to_string();
        index.apply(service("busy", &ip));
    }
    assert_eq!(shapes(&client.drain(&index)), ["page 3 true"]);
}

#[test]
fn more_changes_than_fit_a_frame_are_several_deltas_one_after_the_other() {
    let index = index_with(0);
    let mut client = client(&index, 0);
    client.drain(&index);
    for number in 0..=SNAPSHOT_ROUTES * 2 {
        index.apply(service(&format!("n{number}"), "10.0.0.1"));
    }
    let deltas = shapes(&client.drain(&index));
    assert_eq!(deltas, ["delta +50 -0", "delta +50 -0", "delta +1 -0"]);
}

#[test]
fn a_relist_with_more_changes_than_fit_a_frame_is_a_snapshot() {
    let index = index_with(0);
    let mut client = client(&index, 0);
    client.drain(&index);
    let many = (0..=SNAPSHOT_ROUTES).map(|number| service(&format!("n{number}"), "10.0.0.1"));
    index.reset(&Scope::All, many.collect(), Instant::now());
    let pages = shapes(&client.drain(&index));
    assert_eq!(pages, ["page 50 false", "page 1 true"]);
}

#[test]
fn a_snapshot_that_has_begun_is_finished_before_anything_else() {
    let index = index_with(SNAPSHOT_ROUTES + 1);
    let mut client = client(&index, 0);
    assert_eq!(shape(&client.next(&index).unwrap()), "Synced");
    assert_eq!(shape(&client.next(&index).unwrap()), "page 50 false");
    index.apply(service("late", "10.0.0.2"));
    index.set_state(&Scope::All, &NamespaceState::Waiting);
    assert_eq!(shape(&client.next(&index).unwrap()), "page 1 true");
    index.set_state(&Scope::All, &NamespaceState::Synced);
    assert_eq!(shapes(&client.drain(&index)), ["delta +1 -0"]);
}

#[test]
fn changes_in_quick_succession_wait_a_little() {
    let index = index_with(1);
    let mut client = client(&index, 0);
    client.drain(&index);
    client.now += COALESCE;
    index.apply(service("a", "10.0.0.2"));
    assert_eq!(shape(&client.next(&index).unwrap()), "delta +1 -0");
    index.apply(service("b", "10.0.0.3"));
    assert_eq!(client.next(&index), None);
    client.now += COALESCE;
    assert_eq!(shape(&client.next(&index).unwrap()), "delta +1 -0");
}

#[test]
fn without_a_source_or_a_right_there_is_only_a_state() {
    let forbidden = Index::new(Served::Namespaces(["default".to_owned()].into()), 1);
    let state = NamespaceState::Forbidden {
        verb: "list".to_owned(),
        resource: "services".to_owned(),
    };
    forbidden.set_state(&Scope::Namespace("default".to_owned()), &state);
    let nothing = Index::new(Served::Nothing, 1);
    for (index, expected) in [
        (forbidden, format!("{state:?}")),
        (nothing, "NoSource".to_owned()),
    ] {
        let frames = client(&index, 0).drain(&index);
        assert_eq!(shapes(&frames), [expected]);
    }
}

/// What is kept for a client that does not read is one revision and a state, however much happens.
#[test]
fn what_a_client_costs_does_not_grow() {
    assert!(size_of::<Subscription>() <= 256);
    let index = index_with(1);
    let mut slow = client(&index, 0);
    slow.drain(&index);
    for round in 0..3000_u32 {
        index.apply(service(
            "busy",
            &std::net::Ipv4Addr::from(round).to_string(),
        ));
    }
    let frames = slow.drain(&index);
    assert_eq!(shapes(&frames), ["page 2 true"]);
}

/// W1: pages are taken from a table that moves on, and what is held at the end is right all the same.
#[test]
fn a_snapshot_read_while_the_table_changes_is_made_right_by_the_delta_after_it() {
    let index = index_with(PAGE_ROUTES * 2);
    let mut slow = client(&index, 0);
    let mut held = BTreeMap::new();
    let mut round = 0_u32;
    let mut take = |frame: RouteUpdate| match frame {
        RouteUpdate::State { .. } => {}
        RouteUpdate::Page { routes, .. } => {
            held.extend(routes.into_iter().map(|route| (route.name.clone(), route)));
        }
        RouteUpdate::Delta {
            upserts, deletes, ..
        } => {
            deletes.iter().for_each(|name| drop(held.remove(name)));
            held.extend(upserts.into_iter().map(|route| (route.name.clone(), route)));
        }
    };
    while let Some(frame) = slow.next(&index) {
        take(frame);
        for name in ["s00001", "s00600", "s00999"] {
            round += 1;
            index.apply(service(name, &std::net::Ipv4Addr::from(round).to_string()));
        }
        index.delete("default", &format!("s{:05}", 300 + round), Instant::now());
        index.apply(service(&format!("new{round}"), "10.0.0.9"));
    }
    slow.drain(&index).into_iter().for_each(take);
    let (expected, _) = index.page("default", None, usize::MAX);
    let expected: Vec<_> = expected.iter().map(|route| (**route).clone()).collect();
    assert_eq!(held.into_values().collect::<Vec<_>>(), expected);
}

/// W10: a client in the middle of a snapshot of 5,000 Services keeps no copy of it.
#[test]
fn a_client_in_the_middle_of_a_snapshot_keeps_no_routes() {
    let index = index_with(5000);
    let mut slow = client(&index, 0);
    slow.next(&index);
    assert_eq!(shape(&slow.next(&index).unwrap()), "page 50 false");
    for number in 0..5000 {
        index.apply(service(&format!("s{number:05}"), "10.0.0.2"));
    }
    let (routes, _) = index.page("default", None, usize::MAX);
    assert!(routes.iter().all(|route| Arc::strong_count(route) == 2));
}

/// W10: the buffer that a page is encoded into stays with the stream, so pages are small on the wire.
#[test]
fn a_page_of_usual_services_is_below_four_kilobytes() {
    use kubebridge_proto::test_util::Message;

    let index = index_with(0);
    for number in 0..=SNAPSHOT_ROUTES {
        let mut usual = service(
            &format!("a-service-of-usual-length-{number:03}"),
            "10.96.0.1",
        );
        usual.ports = vec![ServicePort {
            name: "http".to_owned(),
            protocol: PortProtocol::Tcp,
            port: 8080,
        }];
        index.apply(usual);
    }
    let frames = client(&index, 0).drain(&index);
    assert_eq!(shapes(&frames), ["Synced", "page 50 false", "page 1 true"]);
    for frame in frames {
        let size = v1::WatchNamespaceRoutesResponse::from(frame).encoded_len();
        assert!(size <= 4096, "{size} octets");
    }
}
