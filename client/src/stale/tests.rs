//! What is kept, for how long, and what is known better.

use kubebridge_dns::message::{Checked, QueryOptions, check, encode_query};
use kubebridge_dns::test_util::{Answer, Record};

use super::*;
use crate::test_util::{cluster_ip, table_with};

fn packet(name: &str) -> Vec<u8> {
    encode_query(
        1,
        &name.parse().unwrap(),
        RecordType::A,
        QueryOptions::default(),
    )
}

fn query(name: &str) -> Query {
    match check(&packet(name)) {
        Checked::Query(query) => query,
        other => panic!("{other:?}"),
    }
}

fn reply(name: &str, address: [u8; 4]) -> Vec<u8> {
    Answer::records(vec![Record::address(name, address).ttl(0)]).reply_to(&packet(name))
}

fn table(address: &str) -> RouteTable {
    table_with(vec![(
        "default",
        vec![cluster_ip("default", "authors", address)],
    )])
}

fn authors() -> ServiceName {
    ServiceName {
        namespace: "default".to_owned(),
        service: "authors".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_given_again_for_ten_minutes() {
    let store = StaleAnswers::default();
    let start = Instant::now();
    let query = query("x.authors");
    store.note(&query, &reply("x.authors", [10, 96, 0, 7]), start);
    let ask = |now| store.answer(&query, None, &table("10.96.0.7"), now);

    assert!(ask(start + OLDEST).is_some());
    assert_eq!((store.given(), store.kept(start + OLDEST)), (1, 1));
    assert_eq!(ask(start + OLDEST + Duration::from_secs(1)), None);
    assert_eq!(store.given(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_negative_answer_takes_the_kept_one_back_and_a_failure_does_not() {
    let store = StaleAnswers::default();
    let now = Instant::now();
    let query = query("authors.default");
    store.note(&query, &reply("authors.default", [10, 96, 0, 7]), now);

    let failure = message::error_reply(&query, ResponseCode::SERVFAIL);
    store.note(&query, &failure, now);
    assert_eq!(store.kept(now), 1);

    let gone = message::error_reply(&query, ResponseCode::NXDOMAIN);
    store.note(&query, &gone, now);
    assert_eq!(store.kept(now), 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_routes_know_better_is_not_repeated() {
    let now = Instant::now();
    let query = query("authors.default");
    let cases = [
        (table("10.96.0.7"), true),
        (table("10.96.0.8"), false),
        (table_with(vec![("default", Vec::new())]), false),
        (RouteTable::new(&["default".to_owned()]), true),
    ];
    for (table, given) in cases {
        let store = StaleAnswers::default();
        store.note(&query, &reply("authors.default", [10, 96, 0, 7]), now);

        let answer = store.answer(&query, Some(&authors()), &table, now);

        assert_eq!(answer.is_some(), given, "{table:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_oldest_answer_makes_room() {
    let store = StaleAnswers::default();
    let start = Instant::now();
    let name = |n: usize| format!("s{n}.default");
    for n in 0..=ENTRIES {
        let now = start + Duration::from_millis(u64::try_from(n).unwrap());
        store.note(&query(&name(n)), &reply(&name(n), [10, 96, 0, 7]), now);
    }
    let ask = |n| store.answer(&query(&name(n)), None, &RouteTable::default(), start);

    assert_eq!(store.kept(start), ENTRIES);
    assert_eq!(ask(0), None);
    assert!(ask(1).is_some() && ask(ENTRIES).is_some());
}
