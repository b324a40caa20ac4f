use super::*;
use crate::search::Stage;
use crate::settle::{Outcome, Settled, Spot};
use crate::test_util::name;

const FULL: &str = "ext.default.svc.cluster.local";

fn record(owner: &str, rtype: RecordType, ttl: u32, data: &[u8]) -> Record {
    Record {
        owner: name(owner),
        rtype,
        class: CLASS_IN,
        ttl,
        data: data.to_vec(),
    }
}

fn alias(owner: &str, target: &str) -> Record {
    record(owner, RecordType::CNAME, 60, name(target).as_wire())
}

fn address(owner: &str, ttl: u32) -> Record {
    record(owner, RecordType::A, ttl, &[10, 0, 0, 1])
}

fn expanded() -> Candidate {
    Candidate {
        name: name(FULL),
        stage: Stage::First,
        expanded: true,
        inside: true,
        structural: false,
    }
}

fn bare(text: &str) -> Candidate {
    Candidate {
        name: name(text),
        stage: Stage::First,
        expanded: false,
        inside: false,
        structural: false,
    }
}

fn found(outcome: Outcome, answer: Vec<Record>, authority: Vec<Record>) -> Finding {
    Finding {
        outcome,
        answer,
        authority,
        ..Finding::failed()
    }
}

fn verdict(better: Vec<Option<u32>>, passed_over: bool) -> Verdict {
    Verdict {
        result: Settled::Data(Spot {
            candidate: 0,
            source: 0,
        }),
        better,
        passed_over,
    }
}

fn rewritten(answer: Vec<Record>) -> Resolution {
    data(
        &name("Ext"),
        &expanded(),
        found(Outcome::Data, answer, vec![]),
        &verdict(vec![], false),
    )
}

fn owners(resolution: &Resolution) -> Vec<String> {
    resolution
        .answer
        .iter()
        .map(|record| record.owner.to_string())
        .collect()
}

#[test]
fn only_the_winning_name_is_renamed() {
    let answer = vec![
        alias(&FULL.to_uppercase(), "real.example"),
        address("real.example", 60),
    ];
    assert_eq!(owners(&rewritten(answer)), ["Ext", "real.example"]);
}

#[test]
fn signatures_of_renamed_sets_are_dropped_and_others_stay() {
    let signature = |owner: &str| record(owner, RecordType::RRSIG, 60, &[0; 20]);
    let answer = vec![
        alias(FULL, "real.example"),
        signature(FULL),
        address("real.example", 60),
        signature("real.example"),
    ];
    assert_eq!(
        owners(&rewritten(answer)),
        ["Ext", "real.example", "real.example"]
    );
}

#[test]
fn a_chain_through_the_asked_name_is_straightened() {
    let answer = vec![
        alias(FULL, "b.example"),
        alias("b.example", "EXT"),
        address("ext", 60),
    ];
    let resolution = rewritten(answer);
    assert_eq!(owners(&resolution), ["Ext"]);
    assert_eq!(resolution.answer[0].rtype, RecordType::A);
}

#[test]
fn lifetimes_follow_the_shortest_record_the_cap_and_the_better_ranks() {
    for (ttls, better, passed_over, keep, shown) in [
        (vec![300, 20], vec![], false, 20, vec![300, 20]),
        (vec![86_400], vec![], false, 1800, vec![1800]),
        (vec![600], vec![Some(12), Some(25)], false, 12, vec![12]),
        (vec![600], vec![Some(12), None], false, 5, vec![5]),
        (vec![600], vec![Some(900)], false, 30, vec![30]),
        (vec![3], vec![Some(12)], false, 3, vec![3]),
        (vec![0], vec![], false, 0, vec![0]),
        (vec![600], vec![], true, 0, vec![5]),
    ] {
        let answer = ttls.iter().map(|ttl| address(FULL, *ttl)).collect();
        let resolution = data(
            &name("ext"),
            &expanded(),
            found(Outcome::Data, answer, vec![]),
            &verdict(better, passed_over),
        );
        assert_eq!(resolution.keep, keep, "{ttls:?}");
        assert_eq!(
            resolution
                .answer
                .iter()
                .map(|record| record.ttl)
                .collect::<Vec<_>>(),
            shown
        );
    }
}

#[test]
fn an_expanded_negative_has_an_soa_of_the_asked_name_and_a_bare_one_its_own() {
    let soa = || vec![record("cluster.local", RecordType::SOA, 600, &[0; 22])];
    let nothing = || found(Outcome::NoData(Some(9)), vec![], soa());
    let resolution = no_data(
        &name("Ext"),
        &expanded(),
        nothing(),
        Some(9),
        &verdict(vec![], false),
    );
    assert_eq!(
        (
            resolution.authority[0].owner.to_string(),
            resolution.authority[0].ttl
        ),
        ("Ext".into(), 9)
    );
    let resolution = no_data(
        &name(FULL),
        &bare(FULL),
        nothing(),
        Some(9),
        &verdict(vec![], false),
    );
    assert_eq!(
        (
            resolution.authority[0].owner.to_string(),
            resolution.authority[0].ttl
        ),
        ("cluster.local".into(), 9)
    );
    assert_eq!(resolution.keep, 9);
    let without = no_data(
        &name(FULL),
        &bare(FULL),
        found(Outcome::NoData(None), vec![], vec![]),
        None,
        &verdict(vec![], false),
    );
    assert_eq!((without.authority.len(), without.keep), (0, 0));
}

#[test]
fn no_data_behind_an_alias_keeps_the_links_and_the_zone_of_their_end() {
    let soa = vec![record("example", RecordType::SOA, 600, &[0; 22])];
    let chain = found(
        Outcome::NoData(Some(9)),
        vec![alias(FULL, "real.example")],
        soa,
    );
    let resolution = no_data(
        &name("ext"),
        &expanded(),
        chain,
        Some(9),
        &verdict(vec![], false),
    );
    assert_eq!(owners(&resolution), ["ext"]);
    assert_eq!(resolution.authority[0].owner, name("example"));
}

#[test]
fn no_data_at_a_later_rank_is_kept_no_longer_than_the_better_ranks() {
    let nothing = found(Outcome::NoData(Some(30)), vec![], vec![]);
    let resolution = no_data(
        &name("ext"),
        &expanded(),
        nothing,
        Some(30),
        &verdict(vec![None], false),
    );
    assert_eq!(resolution.keep, 5);
}

#[test]
fn nxdomain_of_several_candidates_shows_none_of_them() {
    let chain = || {
        found(
            Outcome::NxDomain(Some(9)),
            vec![alias("ext", "gone.example")],
            vec![],
        )
    };
    let several = no_name(
        &name("ext"),
        &[expanded(), bare("ext")],
        1,
        chain(),
        Some(4),
    );
    assert_eq!((several.answer.len(), several.keep), (0, 4));
    assert_eq!(several.authority[0].owner, name("ext"));
    let alone = no_name(&name("ext"), &[bare("ext")], 0, chain(), Some(9));
    assert_eq!(
        (alone.answer.len(), alone.code, alone.keep),
        (1, ResponseCode::NXDOMAIN, 9)
    );
}

#[test]
fn failures_are_kept_a_second_and_those_of_our_own_making_not_at_all() {
    assert_eq!(Resolution::failure(true).keep, 1);
    assert_eq!(Resolution::failure(false).keep, 0);
}
