//! What readers of the index see, step by step and for random histories.

use kubebridge_proto::routes::ServiceKind;

use super::*;

mod following;
mod namespaces;

fn service(namespace: &str, name: &str, ip: &str) -> ServiceRoute {
    ServiceRoute {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        kind: ServiceKind::ClusterIp,
        cluster_ips: vec![ip.parse().unwrap()],
        ports: Vec::new(),
        external_name: None,
    }
}

fn only(namespace: &str) -> Scope {
    Scope::Namespace(namespace.to_owned())
}

fn index_of(names: &[&str]) -> Index {
    let set = names.iter().map(|name| (*name).to_owned()).collect();
    Index::new(Served::Namespaces(set), 1000)
}

fn snapshot(index: &Index, namespace: &str) -> (u64, Vec<String>) {
    match index.since(namespace, 0, usize::MAX) {
        Changes::Snapshot { revision } => {
            let (routes, _) = index.page(namespace, None, usize::MAX);
            let text = |route: &Arc<ServiceRoute>| {
                format!("{}={}", route.name, route.cluster_ips.first().unwrap())
            };
            (revision, routes.iter().map(text).collect())
        }
        Changes::Nothing | Changes::Delta { .. } => panic!("no snapshot"),
    }
}

fn delta(index: &Index, namespace: &str, revision: u64) -> (Vec<String>, Vec<String>) {
    match index.since(namespace, revision, usize::MAX) {
        Changes::Delta {
            upserts, deletes, ..
        } => (
            upserts.iter().map(|route| route.name.clone()).collect(),
            deletes,
        ),
        Changes::Nothing | Changes::Snapshot { .. } => panic!("no delta"),
    }
}

#[test]
fn a_namespace_waits_until_its_first_reset() {
    let now = Instant::now();
    let index = index_of(&["default"]);
    let mut head = index.subscribe("default", Instant::now());
    assert_eq!(head.borrow_and_update().state, NamespaceState::Waiting);
    assert_eq!(index.lookup("default", "authors", now), Found::NotSynced);
    index.reset(&only("default"), vec![], now);
    assert!(head.has_changed().unwrap());
    assert_eq!(head.borrow_and_update().state, NamespaceState::Synced);
    assert_eq!(index.lookup("default", "authors", now), Found::Unknown);
}

#[test]
fn a_namespace_that_is_not_served_has_no_source() {
    let now = Instant::now();
    for served in [Served::Nothing, Served::Namespaces(["a".to_owned()].into())] {
        let index = Index::new(served, 1);
        assert_eq!(
            index.subscribe("shop", Instant::now()).borrow().state,
            NamespaceState::NoSource
        );
        assert_eq!(index.apply(service("shop", "authors", "10.0.0.1")), []);
        index.reset(
            &Scope::All,
            vec![service("shop", "authors", "10.0.0.1")],
            now,
        );
        assert_eq!(index.lookup("shop", "authors", now), Found::NotSynced);
        assert_eq!(index.pointers("10.0.0.1".parse().unwrap()), []);
    }
}

#[test]
fn with_all_served_a_namespace_without_services_is_synced_and_empty() {
    let now = Instant::now();
    let index = Index::new(Served::All, 1);
    let head = index.subscribe("early", Instant::now());
    assert_eq!(head.borrow().state, NamespaceState::Waiting);
    index.reset(&Scope::All, vec![], now);
    assert_eq!(head.borrow().state, NamespaceState::Synced);
    assert_eq!(
        index.subscribe("late", Instant::now()).borrow().state,
        NamespaceState::Synced
    );
    assert_eq!(index.lookup("never-asked", "x", now), Found::Unknown);
}

#[test]
fn a_change_is_a_delta_for_who_has_the_revision_before() {
    let now = Instant::now();
    let index = index_of(&["default"]);
    index.reset(
        &only("default"),
        vec![service("default", "a", "10.0.0.1")],
        now,
    );
    let (revision, _) = snapshot(&index, "default");
    index.apply(service("default", "b", "10.0.0.2"));
    index.delete("default", "a", now);
    assert_eq!(
        delta(&index, "default", revision),
        (vec!["b".into()], vec!["a".into()])
    );
}

#[test]
fn the_same_route_again_changes_nothing() {
    let now = Instant::now();
    let index = index_of(&["default"]);
    index.reset(
        &only("default"),
        vec![service("default", "a", "10.0.0.1")],
        now,
    );
    let (revision, _) = snapshot(&index, "default");
    assert_eq!(index.apply(service("default", "a", "10.0.0.1")), []);
    assert_eq!(index.delete("default", "unknown", now), []);
    assert_eq!(
        index.reset(
            &only("default"),
            vec![service("default", "a", "10.0.0.1")],
            now
        ),
        []
    );
    assert_eq!(
        index.since("default", revision, usize::MAX),
        Changes::Nothing
    );
}

#[test]
fn a_service_made_again_under_its_name_is_an_upsert_with_the_new_address() {
    let now = Instant::now();
    let index = index_of(&["default"]);
    index.reset(
        &only("default"),
        vec![service("default", "a", "10.0.0.1")],
        now,
    );
    let (revision, _) = snapshot(&index, "default");
    index.delete("default", "a", now);
    index.apply(service("default", "a", "10.0.0.9"));
    assert_eq!(
        delta(&index, "default", revision),
        (vec!["a".into()], vec![])
    );
    assert_eq!(snapshot(&index, "default").1, ["a=10.0.0.9"]);
    assert_eq!(index.pointers("10.0.0.1".parse().unwrap()), []);
    assert_eq!(index.pointers("10.0.0.9".parse().unwrap()).len(), 1);
}

#[test]
fn a_relist_removes_only_what_is_gone_and_is_one_revision() {
    let now = Instant::now();
    let index = index_of(&["default"]);
    let before = ["a", "b", "c"]
        .map(|name| service("default", name, "10.0.0.1"))
        .to_vec();
    index.reset(&only("default"), before, now);
    let (revision, _) = snapshot(&index, "default");
    let after = vec![
        service("default", "b", "10.0.0.1"),
        service("default", "d", "10.0.0.4"),
    ];
    let changed = index.reset(&only("default"), after, now);
    let names: Vec<_> = changed
        .iter()
        .map(|changed| changed.key.name.as_str())
        .collect();
    assert_eq!(names, ["a", "c", "d"]);
    let expected = (vec!["d".into()], vec!["a".into(), "c".into()]);
    assert_eq!(delta(&index, "default", revision), expected);
    assert_eq!(snapshot(&index, "default").0, revision + 1);
}

#[test]
fn a_reader_too_far_behind_gets_a_snapshot_never_a_gap() {
    let now = Instant::now();
    let index = index_of(&["default"]);
    index.reset(
        &only("default"),
        vec![service("default", "a", "10.0.0.1")],
        now,
    );
    let (start, _) = snapshot(&index, "default");
    index.apply(service("default", "first", "10.0.0.2"));
    for round in 0..1023_u32 {
        let ip = std::net::Ipv4Addr::from(round);
        index.apply(service("default", "busy", &ip.to_string()));
    }
    assert_eq!(delta(&index, "default", start).0, ["busy", "first"]);
    index.apply(service("default", "busy", "10.9.9.9"));
    let Changes::Snapshot { .. } = index.since("default", start, usize::MAX) else {
        panic!("a delta without the first change")
    };
    assert_eq!(snapshot(&index, "default").1.len(), 3);
}

#[test]
fn many_changes_are_told_by_whole_revisions_until_it_is_enough() {
    let now = Instant::now();
    let index = index_of(&["default"]);
    let make = |name: &str| service("default", name, "10.0.0.1");
    index.reset(&only("default"), vec![make("a")], now);
    let (start, _) = snapshot(&index, "default");
    index.apply(make("b"));
    index.delete("default", "a", now);
    index.apply(service("default", "b", "10.0.0.2"));
    // Three changes under one revision.
    index.reset(&only("default"), ["c", "d"].map(make).to_vec(), now);

    let told = |from: u64, most: usize| match index.since("default", from, most) {
        Changes::Delta { revision, .. } => Some(revision - start),
        Changes::Snapshot { .. } => None,
        Changes::Nothing => Some(0),
    };

    for (from, most, upto) in [
        (0, 4, Some(4)),
        (0, 3, Some(3)),
        (0, 2, Some(3)),
        (0, 1, Some(1)),
        (1, 1, Some(2)),
        (3, 3, Some(4)),
        (3, 2, None),
        (4, 1, Some(0)),
    ] {
        assert_eq!(told(start + from, most), upto, "{most} since {from}");
    }
}

/// W8: whatever revision another manager gave, the whole table follows.
#[test]
fn a_revision_of_another_manager_gets_a_snapshot() {
    let now = Instant::now();
    let index = index_of(&["default"]);
    index.reset(
        &only("default"),
        vec![service("default", "a", "10.0.0.1")],
        now,
    );
    for stranger in [0, 7, 999, 1_000_000] {
        assert!(matches!(
            index.since("default", stranger, usize::MAX),
            Changes::Snapshot { .. }
        ));
    }
}

#[test]
fn a_deleted_service_is_gone_for_a_minute() {
    let now = Instant::now();
    let index = index_of(&["default"]);
    index.reset(
        &only("default"),
        vec![service("default", "a", "10.0.0.1")],
        now,
    );
    index.delete("default", "a", now);
    let later = |seconds| now + Duration::from_secs(seconds);
    assert_eq!(index.lookup("default", "a", later(59)), Found::Gone);
    assert_eq!(index.lookup("default", "a", later(60)), Found::Unknown);
    index.apply(service("default", "a", "10.0.0.2"));
    assert!(matches!(
        index.lookup("default", "a", later(1)),
        Found::Route(_)
    ));
}
