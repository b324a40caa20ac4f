//! Tables of what is judged from a session's own words.

use super::*;
use crate::doctor::Verdict;
use crate::flows::{AbruptStatus, ConnectionStatus, FlowsStatus};
use crate::netstack::PacketsStatus;
use crate::status::{
    CredentialsReport, DnsReport, NamespaceReport, RepairsReport, TokensReport, TunnelReport,
    WithheldReport,
};

/// A session that is well.
fn well() -> StatusReport {
    let document = include_str!("../../status/golden/status.json");
    let document: serde_json::Value = serde_json::from_str(document).unwrap();
    let session = document["sessions"][0].clone();
    let report: StatusReport = serde_json::from_value(session).unwrap();
    StatusReport {
        state: "connected".to_owned(),
        skew: None,
        dns: DnsReport::default(),
        repairs: RepairsReport::default(),
        withheld: None,
        ..report
    }
}

fn tunnel(up: bool, age: u64, trip: u64) -> TunnelReport {
    TunnelReport {
        up,
        echo_age_millis: up.then_some(age),
        round_trip_micros: up.then_some(trip),
        down_millis: (!up).then_some(12_000),
        reason: (!up).then(|| "2 echoes without a reply".to_owned()),
    }
}

fn connection(age: u64, trip: u64) -> ConnectionStatus {
    let connection = serde_json::json!({
        "place": "manager-1", "flows": 1, "round_trip_micros": trip, "echo_age_millis": age,
        "sent": 0, "received": 0,
    });
    serde_json::from_value(connection).unwrap()
}

#[test]
fn the_state_of_a_session_is_judged_with_its_versions() {
    for (state, skew, verdict, word) in [
        ("connected", None, Verdict::Ok, "connected"),
        ("connected", Some("newer by 1"), Verdict::Warn, "skew"),
        ("degraded", None, Verdict::Fail, "degraded"),
        ("connecting", None, Verdict::Note, "not-connected"),
        ("ending", None, Verdict::Note, "not-connected"),
    ] {
        let report = StatusReport {
            state: state.to_owned(),
            skew: skew.map(str::to_owned),
            ..well()
        };
        let finding = tunnel::session(&report);
        assert_eq!((finding.verdict, finding.found), (verdict, word), "{state}");
    }
    let degraded = StatusReport {
        state: "degraded".to_owned(),
        ..well()
    };
    assert_eq!(tunnel::session(&degraded).exit as u8, 69);
}

#[test]
fn the_age_of_the_echo_says_whether_the_tunnel_is_up() {
    for (report, verdict, word) in [
        (None, Verdict::Skipped, "skipped"),
        (Some(tunnel(true, 900, 3_000)), Verdict::Ok, "up"),
        (Some(tunnel(true, 10_001, 3_000)), Verdict::Warn, "old-echo"),
        (Some(tunnel(true, 900, 600_000)), Verdict::Warn, "slow"),
        (Some(tunnel(false, 0, 0)), Verdict::Fail, "down"),
    ] {
        let finding = tunnel::tunnel(report.as_ref());
        assert_eq!((finding.verdict, finding.found), (verdict, word));
    }
    let down = tunnel::tunnel(Some(&tunnel(false, 0, 0)));
    assert!(down.why.contains("12 s: 2 echoes"), "{}", down.why);
}

#[test]
fn data_connections_are_judged_by_their_echoes_and_by_whether_there_are_any() {
    let status = |connections, open, failed: u64| FlowsStatus {
        connections,
        open,
        failures: [("no-connection".to_owned(), failed)].into(),
        ..FlowsStatus::default()
    };
    for (status, verdict, word) in [
        (status(vec![], 0, 0), Verdict::Ok, "unused"),
        (status(vec![], 2, 0), Verdict::Fail, "none"),
        (status(vec![], 0, 1), Verdict::Fail, "none"),
        (
            status(vec![connection(900, 3_000)], 1, 0),
            Verdict::Ok,
            "up",
        ),
        (
            status(vec![connection(900, 3_000), connection(900, 700_000)], 1, 0),
            Verdict::Warn,
            "slow",
        ),
        (
            status(vec![connection(13_000, 3_000)], 1, 0),
            Verdict::Warn,
            "old-echo",
        ),
    ] {
        let finding = data::connections(Some(&status)).unwrap();
        assert_eq!(
            (finding.verdict, finding.found),
            (verdict, word),
            "{status:?}"
        );
    }
    assert_eq!(data::connections(None), None);
}

#[test]
fn each_kind_of_failed_flow_and_dropped_packet_is_said_in_words() {
    let failed = |word: &str| FlowsStatus {
        failures: [(word.to_owned(), 2)].into(),
        ..FlowsStatus::default()
    };
    let lost = FlowsStatus {
        lost: 1,
        ..FlowsStatus::default()
    };
    let abrupt = FlowsStatus {
        abrupt: vec![AbruptStatus {
            destination: "10.96.3.1:80".parse().unwrap(),
            count: 2,
            ago_millis: 0,
        }],
        ..FlowsStatus::default()
    };
    for (status, verdict, word, words) in [
        (FlowsStatus::default(), Verdict::Ok, "well", "0 open"),
        (lost, Verdict::Warn, "lost", "the manager's pod"),
        (abrupt, Verdict::Note, "reset-at-once", "10.96.3.1:80"),
        (failed("refused"), Verdict::Note, "failures", "not all"),
        (failed("timeout"), Verdict::Note, "failures", "not all"),
        (failed("denied"), Verdict::Note, "failures", "not all"),
        (
            failed("limit"),
            Verdict::Warn,
            "not-opened",
            "limit of flows",
        ),
        (
            failed("too-many"),
            Verdict::Warn,
            "not-opened",
            "the session's",
        ),
        (failed("session"), Verdict::Warn, "not-opened", "expired"),
        (failed("gone"), Verdict::Warn, "not-opened", "is gone"),
    ] {
        let finding = data::flows(Some(&status), None).unwrap();
        assert_eq!(
            (finding.verdict, finding.found),
            (verdict, word),
            "{status:?}"
        );
        assert!(finding.why.contains(words), "{finding:?}");
    }
    for (reason, verdict, word) in [
        ("not-unicast", Verdict::Ok, "well"),
        ("outside", Verdict::Note, "failures"),
        ("half-open", Verdict::Warn, "dropped"),
        ("device", Verdict::Warn, "dropped"),
    ] {
        let packets = PacketsStatus {
            dropped: [(reason.to_owned(), 3)].into(),
            ..PacketsStatus::default()
        };
        let finding = data::flows(Some(&FlowsStatus::default()), Some(&packets)).unwrap();
        assert_eq!(
            (finding.verdict, finding.found),
            (verdict, word),
            "{reason}"
        );
        assert!(
            finding.evidence[0].starts_with("3 packets dropped"),
            "{finding:?}"
        );
    }
}

#[test]
fn what_kubernetes_does_not_let_the_manager_see_is_named_with_the_command() {
    let namespace = |state: &str| NamespaceReport {
        namespace: "shop".to_owned(),
        state: state.to_owned(),
        help: None,
        services: 2,
    };
    for (states, verdict, word, exit) in [
        (&["synced", "synced"][..], Verdict::Ok, "synced", 77),
        (&["synced", "waiting"], Verdict::Note, "waiting", 77),
        (
            &["synced", "forbidden: list services"],
            Verdict::Fail,
            "forbidden",
            77,
        ),
        (
            &["no token: gone", "forbidden: x"],
            Verdict::Fail,
            "no-token",
            77,
        ),
        (&["no source"], Verdict::Fail, "no-source", 1),
    ] {
        let namespaces: Vec<_> = states.iter().map(|state| namespace(state)).collect();
        let finding = kubernetes::judge(&namespaces);
        assert_eq!(
            (finding.verdict, finding.found),
            (verdict, word),
            "{states:?}"
        );
        assert_eq!(finding.exit as u8, exit);
        assert_eq!(finding.help.is_some(), verdict == Verdict::Fail);
    }
}

#[test]
fn authorisation_that_ends_says_when_and_what_renews_it() {
    let tokens = |left| TokensReport {
        until: "2027-01-15T09:00:00Z".to_owned(),
        seconds_left: left,
        renewal_seconds: 0,
    };
    let credentials = |trouble: Option<&str>| CredentialsReport {
        user: "dev".to_owned(),
        until: None,
        trouble: trouble.map(str::to_owned),
        renew: "gcloud auth login".to_owned(),
    };
    let troubled = credentials(Some("401"));
    let good = credentials(None);
    for (tokens, credentials, verdict, word, help) in [
        (None, None, Verdict::Ok, "good", None),
        (Some(tokens(1200)), Some(&good), Verdict::Ok, "good", None),
        (
            Some(tokens(1200)),
            Some(&troubled),
            Verdict::Warn,
            "trouble",
            Some("gcloud auth login"),
        ),
        (
            Some(tokens(60)),
            Some(&good),
            Verdict::Warn,
            "ending",
            Some("gcloud auth login"),
        ),
        (
            Some(tokens(0)),
            None,
            Verdict::Fail,
            "expired",
            Some("kubebridge status, then connect again"),
        ),
    ] {
        let finding = authorisation::judge(tokens.as_ref(), credentials);
        assert_eq!((finding.verdict, finding.found), (verdict, word));
        assert_eq!(finding.help.as_deref(), help);
    }
}

#[test]
fn what_could_not_be_done_to_the_machine_fails_and_a_tug_of_war_is_a_warning() {
    let mut error = well();
    error.dns.error = Some("the bus is gone".to_owned());
    let mut trouble = well();
    trouble.repairs.troubles = vec!["no room".to_owned()];
    let mut war = well();
    war.repairs.count = 21;
    let mut second = well();
    second.withheld = Some(WithheldReport {
        session: "0a1b2c3d".to_owned(),
        name: "alpha".to_owned(),
        domains: vec!["svc".to_owned()],
        hosts_names: 0,
    });
    let mut warned = well();
    warned.dns.warnings = vec!["too many domains".to_owned()];
    for (report, verdict, word) in [
        (well(), Verdict::Ok, "as-wanted"),
        (error, Verdict::Fail, "in-trouble"),
        (trouble, Verdict::Fail, "in-trouble"),
        (war, Verdict::Warn, "contended"),
        (second, Verdict::Note, "withheld"),
        (warned, Verdict::Warn, "warnings"),
    ] {
        let finding = changes::judge(&report);
        assert_eq!((finding.verdict, finding.found), (verdict, word));
    }
}
