use proptest::prelude::*;

use super::*;
use crate::cache::{Dependencies, Entry};
use crate::message::{Checked, QueryOptions, answers, check, encode_query, fit_udp, zero_ttls};
use crate::rewrite;
use crate::search::{Candidate, Stage};
use crate::settle::{Settled, Spot, Verdict};
use crate::test_util::{Answer, Record as Scripted, name};

const ASKED: &str = "web.example";

fn kind(rtype: RecordType) -> Kind {
    Kind {
        rtype,
        dnssec_ok: false,
        checking_disabled: false,
    }
}

fn wire(answer: &Answer) -> Vec<u8> {
    answer.reply_to(&encode_query(
        1,
        &name(ASKED),
        RecordType::A,
        QueryOptions::default(),
    ))
}

fn finding(answer: &Answer) -> Finding {
    Finding::of_reply(&wire(answer), &name(ASKED), kind(RecordType::A))
}

fn owners(finding: &Finding) -> Vec<String> {
    finding
        .answer
        .iter()
        .map(|record| format!("{} {}", record.owner, record.rtype))
        .collect()
}

#[test]
fn data_is_the_chain_and_the_type_at_its_end() {
    let found = finding(&Answer::records([
        Scripted::address("c.example", [10, 0, 0, 1]),
        Scripted::address("evil.example", [10, 0, 0, 2]),
        Scripted::cname("b.example", "C.example"),
        Scripted::cname(ASKED, "b.example"),
        Scripted::new("c.example", RecordType::TXT, *b"\x01x"),
        Scripted::address("c.example", [10, 0, 0, 3]),
    ]));
    assert_eq!(found.outcome, Outcome::Data);
    let expected = [
        "web.example CNAME",
        "b.example CNAME",
        "c.example A",
        "c.example A",
    ];
    assert_eq!(
        owners(&found),
        expected,
        "aliases first, extras dropped, the set whole"
    );
}

#[test]
fn a_chain_without_data_is_no_data_and_keeps_its_links() {
    let found = finding(&Answer::records([Scripted::cname(ASKED, "b.example")]));
    assert_eq!(found.outcome, Outcome::NoData(None));
    assert_eq!(owners(&found), ["web.example CNAME"]);
}

#[test]
fn nxdomain_behind_an_alias_is_nxdomain_and_keeps_its_links() {
    let found = finding(&Answer::code(ResponseCode::NXDOMAIN));
    assert_eq!(found.outcome, Outcome::NxDomain(None));
    let mut answer = Answer::records([Scripted::cname(ASKED, "b.other")])
        .authority([Scripted::soa("other", 9, 60)]);
    answer.code = ResponseCode::NXDOMAIN;
    let found = finding(&answer);
    assert_eq!(
        (found.outcome, owners(&found)),
        (Outcome::NxDomain(Some(9)), vec!["web.example CNAME".into()])
    );
}

#[test]
fn a_circle_in_a_reply_is_a_failure() {
    for circle in [
        vec![Scripted::cname(ASKED, ASKED)],
        vec![
            Scripted::cname(ASKED, "b.example"),
            Scripted::cname("b.example", "WEB.example"),
        ],
    ] {
        assert_eq!(finding(&Answer::records(circle)).outcome, Outcome::Failed);
    }
}

#[test]
fn lifetimes_of_negatives_come_from_an_soa_above_the_name() {
    let with = |zone: &str, ttl, minimum| {
        finding(&Answer::records([]).authority([Scripted::soa(zone, ttl, minimum)])).outcome
    };
    assert_eq!(with("example", 20, 10), Outcome::NoData(Some(10)));
    assert_eq!(with("example", 900, 900), Outcome::NoData(Some(30)));
    assert_eq!(with(".", 0, 900), Outcome::NoData(Some(0)));
    assert_eq!(with("other", 20, 10), Outcome::NoData(None), "not its zone");
    assert_eq!(with(ASKED, u32::MAX, 10), Outcome::NoData(Some(0)));
}

#[test]
fn replies_that_are_no_answer_are_failures() {
    let address = Answer::address(ASKED, [10, 0, 0, 1]);
    let other_question =
        Finding::of_reply(&wire(&address), &name("other.example"), kind(RecordType::A));
    let other_type = Finding::of_reply(&wire(&address), &name(ASKED), kind(RecordType::AAAA));
    let mut query = wire(&address);
    query[2] &= 0x7f;
    let not_a_reply = Finding::of_reply(&query, &name(ASKED), kind(RecordType::A));
    for (what, found) in [
        ("servfail", finding(&Answer::code(ResponseCode::SERVFAIL))),
        ("refused", finding(&Answer::code(ResponseCode::REFUSED))),
        ("formerr", finding(&Answer::code(ResponseCode::FORMERR))),
        ("truncated", finding(&Answer::records([]).truncated())),
        ("other question", other_question),
        ("other type", other_type),
        ("a query", not_a_reply),
        (
            "cut",
            Finding::of_reply(&wire(&address)[..40], &name(ASKED), kind(RecordType::A)),
        ),
    ] {
        assert_eq!(found.outcome, Outcome::Failed, "{what}");
    }
}

#[test]
fn a_question_of_type_cname_gets_the_alias_alone() {
    let query = encode_query(1, &name(ASKED), RecordType::CNAME, QueryOptions::default());
    let reply = Answer::records([Scripted::cname(ASKED, "b.example")]).reply_to(&query);
    let found = Finding::of_reply(&reply, &name(ASKED), kind(RecordType::CNAME));
    assert_eq!((found.outcome, found.answer.len()), (Outcome::Data, 1));
}

#[test]
fn verdicts_of_ours_become_records_of_the_asked_family() {
    let both = Local::Addresses(vec![
        [10, 0, 0, 1].into(),
        std::net::Ipv6Addr::LOCALHOST.into(),
    ]);
    let told = |verdict: &Local, rtype| Told::by(verdict.clone(), &name(ASKED), rtype);
    let of = |verdict: &Local, rtype| match told(verdict, rtype) {
        Told::Finding(finding) => finding,
        other => panic!("no finding: {other:?}"),
    };
    assert_eq!(of(&both, RecordType::A).answer[0].data, [10, 0, 0, 1]);
    assert_eq!(of(&both, RecordType::AAAA).answer[0].data.len(), 16);
    assert_eq!(of(&both, RecordType::TXT).outcome, Outcome::NoData(Some(5)));
    assert_eq!(
        of(&Local::NxDomain, RecordType::A).outcome,
        Outcome::NxDomain(Some(5))
    );
    assert_eq!(told(&Local::NotMine, RecordType::A), Told::AskUpstreams);
    let alias = Local::Alias(name("x"));
    assert_eq!(told(&alias, RecordType::A), Told::Follow(name("x")));
    assert_eq!(
        of(&alias, RecordType::CNAME).answer[0].data,
        name("x").as_wire(),
        "the alias itself was asked"
    );
}

fn a_reply(which: usize) -> Vec<u8> {
    let answer = match which {
        0 => Answer::records([
            Scripted::cname(ASKED, "b.example"),
            Scripted::address("b.example", [10, 0, 0, 1]),
        ]),
        1 => Answer::nxdomain("example"),
        2 => Answer::nodata("example"),
        _ => Answer::records([
            Scripted::new(ASKED, RecordType::A, [1, 2, 3, 4]),
            Scripted::new(
                ASKED,
                RecordType::SRV,
                [&[0; 6][..], name("a.b").as_wire()].concat(),
            ),
            Scripted::new(
                ASKED,
                RecordType::NAPTR,
                [&[0, 1, 0, 2, 1, b'u', 0, 0][..], name("a.b").as_wire()].concat(),
            ),
        ]),
    };
    wire(&answer)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    /// Whatever an upstream sends, an asker gets one sound reply.
    #[test]
    fn mutated_replies_never_panic_and_what_passes_is_sound(
        which in 0usize..4,
        expanded in any::<bool>(),
        dnssec_ok in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut reply = a_reply(which);
        for (index, value) in &changes {
            let at = index.index(reply.len());
            reply[at] = *value;
        }
        if let Some(index) = cut {
            reply.truncate(index.index(reply.len()));
        }
        let found = Finding::of_reply(&reply, &name(ASKED), Kind { dnssec_ok, ..kind(RecordType::A) });
        let candidate = Candidate { name: name(ASKED), stage: Stage::First, expanded, inside: false, structural: false };
        let asked = if expanded { name("web") } else { name(ASKED) };
        let spot = Spot { candidate: 0, source: 0 };
        let verdict = Verdict { result: Settled::Data(spot), better: vec![], passed_over: false };
        let resolution = match found.outcome {
            Outcome::Data => rewrite::data(&asked, &candidate, found, &verdict),
            Outcome::NoData(ttl) => rewrite::no_data(&asked, &candidate, found, ttl, &verdict),
            Outcome::NxDomain(ttl) => rewrite::no_name(&asked, &[candidate], 0, found, ttl),
            Outcome::Failed => rewrite::Resolution::failure(true),
        };
        let packet = encode_query(9, &asked, RecordType::A, QueryOptions::default());
        let Checked::Query(query) = check(&packet) else { unreachable!() };
        let now = tokio::time::Instant::now();
        let mut wire = Entry::new(&query, &resolution, Dependencies::default(), now).reply(&query, now);
        prop_assert_eq!(&wire[12..12 + asked.as_wire().len()], asked.as_wire());
        prop_assert!(answers(&wire).is_ok());
        prop_assert!(answers(&fit_udp(wire.clone(), &packet)).is_ok());
        zero_ttls(&mut wire);
        prop_assert!(answers(&wire).unwrap().answers.iter().all(|answer| answer.ttl == 0));
    }

    #[test]
    fn random_replies_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Finding::of_reply(&bytes, &name(ASKED), kind(RecordType::A));
    }
}
