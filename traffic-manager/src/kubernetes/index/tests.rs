//! What readers of the index see, step by step and for random histories.

use kubebridge_proto::routes::ServiceKind;
use proptest::prelude::*;

use super::*;

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

#[test]
fn one_namespace_forbidden_leaves_the_others_alone() {
    let now = Instant::now();
    let index = index_of(&["default", "shop"]);
    index.reset(
        &only("default"),
        vec![service("default", "a", "10.0.0.1")],
        now,
    );
    let forbidden = NamespaceState::Forbidden {
        verb: "list".to_owned(),
        resource: "services".to_owned(),
    };
    index.set_state(&only("shop"), &forbidden);
    assert_eq!(
        index.subscribe("shop", Instant::now()).borrow().state,
        forbidden
    );
    assert_eq!(
        index.subscribe("default", Instant::now()).borrow().state,
        NamespaceState::Synced
    );
    assert_eq!(index.lookup("shop", "a", now), Found::NotSynced);
}

#[test]
fn a_lost_right_keeps_the_routes_but_not_the_answers() {
    let now = Instant::now();
    let index = index_of(&["default"]);
    index.reset(
        &only("default"),
        vec![service("default", "a", "10.0.0.1")],
        now,
    );
    let forbidden = NamespaceState::Forbidden {
        verb: "list".to_owned(),
        resource: "services".to_owned(),
    };
    index.set_state(&only("default"), &forbidden);
    assert_eq!(snapshot(&index, "default").1.len(), 1);
    assert_eq!(index.lookup("default", "a", now), Found::NotSynced);
    assert_eq!(index.pointers("10.0.0.1".parse().unwrap()), []);
}

#[test]
fn the_names_of_namespaces_follow_the_services() {
    let now = Instant::now();
    let index = Index::new(Served::All, 1);
    let names = index.names();
    index.reset(&Scope::All, vec![service("shop", "a", "10.0.0.1")], now);
    let _asked = index.subscribe("only-asked-for", Instant::now());
    index.apply(service("default", "a", "10.0.0.2"));
    let found: Vec<_> = names.borrow().iter().cloned().collect();
    assert_eq!(found, ["default", "shop"]);
}

#[test]
fn namespaces_nobody_follows_are_dropped_when_there_are_too_many() {
    let index = Index::new(Served::All, 1);
    for number in 0..=MAX_IDLE_NAMESPACES {
        drop(index.subscribe(&format!("n{number}"), Instant::now()));
    }
    let kept = index.subscribe("kept", Instant::now());
    assert_eq!(index.inner.lock().tables.len(), 1);
    drop(kept);
}

/// Namespaces that come and go, as in clusters that test things, leave nothing behind.
#[test]
fn namespaces_whose_services_are_long_gone_are_dropped() {
    let mut now = Instant::now();
    let index = Index::new(Served::All, 1);
    for number in 0..=MAX_IDLE_NAMESPACES {
        let namespace = format!("n{number}");
        index.apply(service(&namespace, "a", "10.0.0.1"));
        index.delete(&namespace, "a", now);
    }
    now += GONE_FOR;
    drop(index.subscribe("kept", now));
    assert_eq!(index.inner.lock().tables.len(), 1);
}

#[test]
fn a_revision_of_a_dropped_table_means_nothing_to_a_later_one() {
    let mut now = Instant::now();
    let index = Index::new(Served::All, 1000);
    for ip in ["10.0.0.1", "10.0.0.2"] {
        index.apply(service("back", "a", ip));
    }
    let (held, _) = snapshot(&index, "back");
    index.delete("back", "a", now);
    now += GONE_FOR;
    for number in 0..=MAX_IDLE_NAMESPACES {
        drop(index.subscribe(&format!("n{number}"), now));
    }
    assert!(!index.inner.lock().tables.contains_key("back"));
    for ip in ["10.0.0.3", "10.0.0.4"] {
        index.apply(service("back", "b", ip));
    }
    let changes = index.since("back", held, usize::MAX);
    assert!(matches!(changes, Changes::Snapshot { .. }), "{changes:?}");
}

#[test]
fn totals_count_routes_by_the_state_of_their_namespace() {
    let now = Instant::now();
    let index = index_of(&["default", "shop", "other"]);
    let routes = ["a", "b"].map(|name| service("default", name, "10.0.0.1"));
    index.reset(&only("default"), routes.to_vec(), now);
    let forbidden = NamespaceState::Forbidden {
        verb: "list".to_owned(),
        resource: "services".to_owned(),
    };
    index.set_state(&only("shop"), &forbidden);
    let found: Vec<_> = index
        .totals()
        .into_iter()
        .map(|(word, total)| (word, total.namespaces, total.routes))
        .collect();
    let expected = [
        ("forbidden", 1, 0),
        ("no_source", 0, 0),
        ("synced", 1, 2),
        ("waiting", 1, 0),
    ];
    assert_eq!(found, expected);
}

#[derive(Debug, Clone)]
enum Step {
    Apply(u8, u8),
    Delete(u8),
    Reset(Vec<(u8, u8)>),
    Read(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..6u8, 0..4u8).prop_map(|(name, ip)| Step::Apply(name, ip)),
        (0..6u8).prop_map(Step::Delete),
        proptest::collection::vec((0..6u8, 0..4u8), 0..5).prop_map(Step::Reset),
        (1..4usize).prop_map(Step::Read),
    ]
}

proptest! {
    /// Whatever happens, a reader that applies what it is given holds what the index holds.
    #[test]
    fn a_reader_that_follows_ends_with_the_same_table(
        steps in proptest::collection::vec(step(), 0..60)
    ) {
        let now = Instant::now();
        let index = index_of(&["default"]);
        let make = |name: u8, ip: u8| service("default", &format!("s{name}"), &format!("10.0.0.{ip}"));
        let mut held: BTreeMap<String, ServiceRoute> = BTreeMap::new();
        let mut revision = 0;
        let mut read = |index: &Index, most| match index.since("default", revision, most) {
            Changes::Nothing => held.clone(),
            Changes::Delta { revision: next, upserts, deletes } => {
                for name in deletes {
                    assert!(held.remove(&name).is_some() || revision != next);
                }
                held.extend(upserts.iter().map(|route| (route.name.clone(), (**route).clone())));
                revision = next;
                held.clone()
            }
            Changes::Snapshot { revision: next } => {
                let (routes, _) = index.page("default", None, usize::MAX);
                held = routes.iter().map(|route| (route.name.clone(), (**route).clone())).collect();
                revision = next;
                held.clone()
            }
        };
        for step in steps {
            match step {
                Step::Apply(name, ip) => drop(index.apply(make(name, ip))),
                Step::Delete(name) => drop(index.delete("default", &format!("s{name}"), now)),
                Step::Reset(all) => {
                    let routes = all.into_iter().map(|(name, ip)| make(name, ip)).collect();
                    index.reset(&only("default"), routes, now);
                }
                Step::Read(most) => drop(read(&index, most)),
            }
        }
        // One by one, there is an end to what 60 steps did.
        (0..400).for_each(|_| drop(read(&index, 1)));
        let followed: Vec<_> = read(&index, 1).into_values().collect();
        let (_, whole) = snapshot(&index, "default");
        let text: Vec<_> =
            followed.iter().map(|route| format!("{}={}", route.name, route.cluster_ips[0])).collect();
        prop_assert_eq!(text, whole);
    }
}

/// W4: a namespace that somebody asks for while its last follower goes, and tables nobody follows
/// are dropped, is either kept or made anew, never followed without being fed.
#[test]
fn a_follower_that_comes_while_tables_are_dropped_is_told_what_follows() {
    const ROUNDS: u32 = 300;
    let index = Index::new(Served::All, 1);
    let mut now = Instant::now();
    // More tables than are kept idle, none of them idle: each look for idle ones goes over them.
    let full =
        (0..=MAX_IDLE_NAMESPACES).map(|number| service(&format!("n{number}"), "a", "10.0.0.1"));
    index.reset(&Scope::All, full.collect(), now);
    let together = std::sync::Barrier::new(2);
    let mut dropped = 0;
    for round in 1..=ROUNDS {
        let last = index.subscribe("raced", now);
        now += GONE_FOR;
        let came = std::thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                drop(last);
                drop(index.subscribe("other", now + DROP_EVERY * 2));
            });
            let coming = scope.spawn(|| {
                together.wait();
                index.subscribe("raced", now)
            });
            coming.join().unwrap()
        });
        let held = came.borrow().revision;
        index.apply(service("raced", "a", &format!("10.0.1.{}", round % 250)));
        assert!(came.has_changed().unwrap(), "round {round}");
        assert_eq!(delta(&index, "raced", held).0, ["a"], "round {round}");
        index.delete("raced", "a", now);
        now += GONE_FOR;
        drop(came);
        // Once more without a race, so that tables are really dropped here.
        drop(index.subscribe("other", now));
        dropped += u32::from(!index.inner.lock().tables.contains_key("raced"));
    }
    assert_eq!(dropped, ROUNDS);
}
