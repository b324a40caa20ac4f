//! Namespaces that come, go, are forbidden or too many.

use super::*;

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
