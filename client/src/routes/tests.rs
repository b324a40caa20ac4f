//! What frames of the route stream make of the table.

use super::*;
use crate::access::{Lacking, Tokens};
use crate::failure::Exit;
use crate::test_util::cluster_ip;

fn page(revision: u64, names: &[&str], last: bool) -> RouteUpdate {
    RouteUpdate::Page {
        namespace: "default".to_owned(),
        revision,
        routes: names
            .iter()
            .map(|name| cluster_ip("default", name, "10.96.0.1"))
            .collect(),
        last,
    }
}

fn delta(base_revision: u64, revision: u64, upserts: &[&str], deletes: &[&str]) -> RouteUpdate {
    RouteUpdate::Delta {
        namespace: "default".to_owned(),
        base_revision,
        revision,
        upserts: upserts
            .iter()
            .map(|name| cluster_ip("default", name, "10.96.0.2"))
            .collect(),
        deletes: deletes.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn table() -> RouteTable {
    RouteTable::new(&["default".to_owned()])
}

fn names(table: &RouteTable) -> Vec<&str> {
    table
        .services("default")
        .map(|route| route.name.as_str())
        .collect()
}

#[test]
fn a_snapshot_shows_only_when_its_last_page_is_there() {
    let mut table = table();

    assert_eq!(table.merge(page(5, &["a", "b"], false)), Merged::Unchanged);
    assert_eq!(names(&table), Vec::<&str>::new());
    assert_eq!(table.merge(page(5, &["c"], true)), Merged::Changed);

    assert_eq!(names(&table), ["a", "b", "c"]);
    assert_eq!(table.namespaces().next().unwrap().1.revision(), 5);
}

#[test]
fn a_new_snapshot_withdraws_what_is_not_in_it() {
    let mut table = table();
    table.merge(page(5, &["a", "b"], true));

    table.merge(page(9, &["b", "c"], true));

    assert_eq!(names(&table), ["b", "c"]);
}

#[test]
fn a_change_applies_to_the_revision_it_was_made_for() {
    let mut table = table();
    table.merge(page(5, &["a", "b"], true));

    assert_eq!(table.merge(delta(5, 6, &["c"], &["a"])), Merged::Changed);
    assert_eq!(names(&table), ["b", "c"]);
    assert_eq!(table.merge(delta(7, 8, &["d"], &[])), Merged::Gap);
    assert_eq!(names(&table), ["b", "c"]);
}

#[test]
fn a_change_before_any_snapshot_is_a_gap() {
    assert_eq!(table().merge(delta(0, 1, &["a"], &[])), Merged::Gap);
}

#[test]
fn half_a_snapshot_of_a_lost_stream_is_forgotten() {
    let mut table = table();
    table.merge(page(5, &["stale"], false));

    table.forget_partial();
    table.merge(page(6, &["a"], true));

    assert_eq!(names(&table), ["a"]);
}

#[test]
fn a_namespace_that_was_not_asked_for_is_ignored() {
    let mut table = RouteTable::new(&["shop".to_owned()]);

    assert_eq!(table.merge(page(5, &["a"], true)), Merged::Unchanged);
    assert!(table.service("default", "a").is_none());
}

#[test]
fn a_table_is_settled_when_each_namespace_sent_what_it_has() {
    let state = |state| RouteUpdate::State {
        namespace: "default".to_owned(),
        state,
    };
    let mut table = table();
    assert!(!table.is_settled());

    table.merge(state(NamespaceState::Synced));
    assert!(!table.is_settled());
    table.merge(page(5, &[], true));
    assert!(table.is_settled());

    let mut other = RouteTable::new(&["default".to_owned()]);
    other.merge(state(NamespaceState::NoSource));
    assert!(other.is_settled());
}

#[test]
fn a_snapshot_that_another_one_replaces_half_way_leaves_nothing_behind() {
    let mut table = RouteTable::new(&["default".to_owned()]);
    table.merge(page(5, &["authors", "deleted"], false));

    table.merge(page(6, &["authors"], false));
    table.merge(page(6, &["books"], true));

    assert!(table.service("default", "deleted").is_none());
    assert!(table.service("default", "authors").is_some());
    assert!(table.service("default", "books").is_some());
}

#[test]
fn a_gap_is_reported_once_until_its_snapshot_is_there() {
    let mut table = RouteTable::new(&["default".to_owned()]);
    table.merge(page(5, &["authors"], true));

    assert_eq!(table.merge(delta(7, 8, &[], &[])), Merged::Gap);
    assert_eq!(table.merge(delta(8, 9, &[], &[])), Merged::Unchanged);
    table.merge(page(9, &["authors"], true));
    assert_eq!(table.merge(delta(9, 10, &[], &[])), Merged::Changed);
    assert_eq!(table.merge(delta(12, 13, &[], &[])), Merged::Gap);

    table.forget_partial();
    assert_eq!(table.merge(delta(12, 13, &[], &[])), Merged::Gap);
}

#[test]
fn a_table_covers_other_namespaces_and_keeps_nothing_of_a_lost_one() {
    let names = |of: &[&str]| of.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut table = table();
    table.merge(page(7, &["authors"], true));
    let both = names(&["shop", "default"]);
    table.cover(&Namespaces::new(both.clone()));
    assert_eq!(self::names(&table), ["authors"]);
    assert!(!table.is_known("shop"));

    let lacking = Lacking {
        namespace: "default".to_owned(),
        why: "no right".to_owned(),
        help: None,
        exit: Exit::Privilege,
        lasting: true,
    };
    let tokens = Tokens {
        made: Vec::new(),
        lacking: vec![lacking],
    };
    let lost = Namespaces::with(both.clone(), &tokens).unwrap();
    table.cover(&lost);
    // What was on its way is of no use any more.
    table.merge(page(8, &["authors"], true));
    assert!(self::names(&table).is_empty());
    assert!(table.is_known("default") && !table.is_synced("default"));

    table.cover(&Namespaces::new(both));
    assert!(!table.is_known("default"));
    table.merge(page(8, &["authors"], true));
    assert_eq!(self::names(&table), ["authors"]);
    table.cover(&Namespaces::new(names(&["shop"])));
    assert!(self::names(&table).is_empty());
}
