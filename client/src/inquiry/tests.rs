//! The golden forms of what an inquiry finds: what programs may rely on, and what people see.

use super::report::{
    FlushReport, RecordReport, RuleReport, StepReport, UpstreamReport, UpstreamsReport,
};
use super::text::{flush_text, query_text, trace_text, upstreams_text};
use super::*;
use crate::status::{
    HostsLineReport, Leftovers, TunnelReport, dns_flush_document, dns_query_document,
    dns_trace_document, dns_upstreams_document,
};
use crate::zones::{Destination, Rule};

const FULL: &str = "authors.default.svc.cluster.local";

fn step(side: &str, at_micros: u64, stage: &str, name: &str, outcome: &str) -> StepReport {
    StepReport {
        side: side.to_owned(),
        at_micros,
        stage: stage.to_owned(),
        rank: None,
        name: Some(name.to_owned()),
        upstream: None,
        took_micros: None,
        rcode: None,
        outcome: outcome.to_owned(),
        decides: false,
    }
}

fn answer(name: &str, data: &str) -> AnswerReport {
    AnswerReport {
        rcode: Some("NOERROR".to_owned()),
        records: vec![RecordReport {
            name: name.to_owned(),
            ttl: 0,
            rtype: "A".to_owned(),
            data: data.to_owned(),
        }],
        left_out: 0,
    }
}

/// A name of the cluster.
fn inside() -> TraceReport {
    let name = "authors.default";
    TraceReport {
        session: "0a1b2c3d".to_owned(),
        name: name.to_owned(),
        rtype: "A".to_owned(),
        fresh: false,
        hosts: Some(HostsLineReport {
            address: "10.96.0.7".to_owned(),
            names: vec!["authors".to_owned(), name.to_owned()],
        }),
        system_dns: true,
        rule: RuleReport {
            rule: Rule::Suffix,
            suffix: Some("default".to_owned()),
            destination: Destination::Cluster,
        },
        tunnel: Some(TunnelReport {
            up: true,
            echo_age_millis: Some(1200),
            round_trip_micros: Some(850),
            down_millis: None,
            reason: None,
        }),
        manager_silent: None,
        steps: vec![
            StepReport {
                rank: Some(1),
                ..step("manager", 30, "candidate", FULL, "asked at once")
            },
            StepReport {
                upstream: Some("10.96.0.10".to_owned()),
                took_micros: Some(1900),
                rcode: Some("NOERROR".to_owned()),
                ..step("manager", 1950, "upstream", FULL, "1 record")
            },
            StepReport {
                rank: Some(1),
                decides: true,
                ..step(
                    "manager",
                    1960,
                    "settle",
                    FULL,
                    "wins: the first in order with data",
                )
            },
        ],
        left_out: 0,
        answer: answer(name, "10.96.0.7"),
        source: "manager".to_owned(),
        stale_millis: None,
        why: format!("{FULL} wins: the first in order with data"),
        took_micros: 3100,
    }
}

/// A name of the world, seen by a machine whose DNS does not point at the session.
fn outside() -> TraceReport {
    let name = "www.example.org";
    let asked = |server: &str, rcode: Option<&str>, took, outcome: &str| StepReport {
        upstream: Some(server.to_owned()),
        took_micros: Some(took),
        rcode: rcode.map(str::to_owned),
        ..step("laptop", took, "upstream", name, outcome)
    };
    TraceReport {
        hosts: None,
        system_dns: false,
        name: name.to_owned(),
        rule: RuleReport {
            rule: Rule::Outside,
            suffix: None,
            destination: Destination::Originals,
        },
        tunnel: None,
        steps: vec![
            asked("192.0.2.53", Some("SERVFAIL"), 2000, "SERVFAIL, of no use"),
            asked("192.0.2.54", Some("NOERROR"), 14_000, "1 record"),
        ],
        answer: answer(name, "203.0.113.80"),
        source: "originals".to_owned(),
        why: "192.0.2.54 was the first in order to answer".to_owned(),
        took_micros: 16_400,
        ..inside()
    }
}

/// A name of the cluster while the manager is away.
fn stale() -> TraceReport {
    TraceReport {
        hosts: None,
        tunnel: Some(TunnelReport {
            up: false,
            echo_age_millis: None,
            round_trip_micros: None,
            down_millis: Some(12_000),
            reason: Some("2 echoes without a reply".to_owned()),
        }),
        manager_silent: Some("the manager is out of reach".to_owned()),
        steps: vec![],
        source: "stale".to_owned(),
        stale_millis: Some(34_000),
        why: "the manager is out of reach, and this is what it said last".to_owned(),
        took_micros: 90,
        ..inside()
    }
}

fn query() -> QueryReport {
    QueryReport {
        session: "0a1b2c3d".to_owned(),
        name: "authors.default".to_owned(),
        rtype: "A".to_owned(),
        took_micros: 3100,
        answer: answer("authors.default", "10.96.0.7"),
    }
}

fn upstreams() -> UpstreamsReport {
    let healthy = UpstreamReport {
        spec: "10.96.0.10".to_owned(),
        state: "healthy".to_owned(),
        rtt_micros: Some(1234),
        last_ok_millis: Some(2500),
        ..UpstreamReport::default()
    };
    UpstreamsReport {
        session: "0a1b2c3d".to_owned(),
        manager: vec![
            healthy,
            UpstreamReport {
                spec: "tls://9.9.9.9#dns.quad9.net".to_owned(),
                state: "looped".to_owned(),
                looped_zones: vec!["cluster.local".to_owned()],
                ..UpstreamReport::default()
            },
        ],
        manager_error: None,
        originals: vec![UpstreamReport {
            spec: "192.0.2.53".to_owned(),
            state: "unhealthy".to_owned(),
            fails: 4,
            last_error: Some("no reply in time".to_owned()),
            ..UpstreamReport::default()
        }],
    }
}

/// Compares with a golden file; the difference shows what programs would no longer find.
fn check(document: &str, golden: &str) {
    let value = |text: &str| {
        let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
        value["version"] = "0.0.0".into();
        value
    };
    assert!(!document.contains('\n'), "one line");
    assert_eq!(value(document), value(golden), "{document}");
}

#[test]
fn lc3_the_json_of_dns_trace_is_the_golden_one() {
    let golden = include_str!("golden/dns-trace.json");
    let reports = [inside(), outside(), stale()];
    check(&dns_trace_document(&reports, &Leftovers::default()), golden);
}

#[test]
fn lc3_the_json_of_dns_query_flush_and_upstreams_is_the_golden_one() {
    let none = Leftovers::default();
    let flushed = FlushReport {
        session: "0a1b2c3d".to_owned(),
        forgotten: 3,
    };
    for (document, golden) in [
        (
            dns_query_document(&[query()], &none),
            include_str!("golden/dns-query.json"),
        ),
        (
            dns_flush_document(&[flushed], &none),
            include_str!("golden/dns-flush.json"),
        ),
        (
            dns_upstreams_document(&[upstreams()], &none),
            include_str!("golden/dns-upstreams.json"),
        ),
    ] {
        check(&document, golden);
    }
}

#[test]
fn the_text_of_a_trace_tells_one_story() {
    let golden = include_str!("golden/dns-trace.txt");
    let shown = [inside(), outside(), stale()].map(|report| trace_text(&report));
    assert_eq!(shown.join("\n"), golden);
}

#[test]
fn the_text_of_the_others_is_short() {
    assert_eq!(query_text(&query()), "authors.default 0 A 10.96.0.7\n");
    let nothing = QueryReport {
        answer: AnswerReport {
            rcode: Some("NXDOMAIN".to_owned()),
            ..AnswerReport::default()
        },
        ..query()
    };
    assert_eq!(query_text(&nothing), "# authors.default A: NXDOMAIN\n");
    let flushed = FlushReport {
        session: "0a1b2c3d".to_owned(),
        forgotten: 3,
    };
    assert_eq!(
        flush_text(&flushed),
        "session 0a1b2c3d: 3 answers forgotten\n"
    );
    let golden = include_str!("golden/dns-upstreams.txt");
    assert_eq!(upstreams_text(&upstreams()), golden);
}
