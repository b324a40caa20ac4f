//! Every verdict of a way, with its word, what helps, and the exit code.

use super::judge::{Injected, Seen, is_suspicious, judge, service_of};
use super::manifests::{network_policy, peer_authentication};
use crate::cluster::meshes::{Kind, Mesh};
use crate::doctor::wanted::wanted;
use crate::doctor::{Finding, Verdict};
use crate::flows::{AbruptStatus, FlowsStatus};
use crate::inquiry::path::PathReport;
use crate::status::StatusReport;

/// The report of a way, as a session sends it.
fn report(verdict: &str, steps: &[(&str, &str, &str)]) -> PathReport {
    let steps: Vec<_> = steps
        .iter()
        .map(|(step, verdict, detail)| {
            serde_json::json!({ "step": step, "verdict": verdict, "detail": detail, "took_micros": 1 })
        })
        .collect();
    let address = serde_json::json!({
        "address": "10.96.0.7", "verdict": verdict, "help": null, "steps": steps,
    });
    let report = serde_json::json!({
        "session": "0a1b2c3d", "target": "authors.shop:9080", "verdict": verdict,
        "help": "what trace says", "steps": steps, "addresses": [address], "took_micros": 1,
    });
    serde_json::from_value(report).unwrap()
}

fn session(abrupt: &[&str]) -> StatusReport {
    let document = include_str!("../../status/golden/status.json");
    let document: serde_json::Value = serde_json::from_str(document).unwrap();
    let session: StatusReport = serde_json::from_value(document["sessions"][0].clone()).unwrap();
    let abrupt = abrupt.iter().map(|to| AbruptStatus {
        destination: to.parse().unwrap(),
        count: 3,
        ago_millis: 4_000,
    });
    let flows = FlowsStatus {
        abrupt: abrupt.collect(),
        ..FlowsStatus::default()
    };
    StatusReport {
        flows: Some(flows),
        ..session
    }
}

fn judged(target: &str, report: &PathReport, abrupt: &[&str], mesh: Injected) -> Finding {
    let wanted = wanted(target).unwrap();
    let session = session(abrupt);
    let mut seen = Seen::new(&wanted, report, &session);
    seen.mesh = mesh;
    judge(&seen)
}

const ALLOWED: (&str, &str, &str) = ("egress", "ok", "service, service authors.shop");
const READY: (&str, &str, &str) = ("endpoints", "ok", "2 of 3 ready");

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn lifecycle_21_each_failure_kind_has_its_word_what_helps_and_its_exit_code() {
    let dial = |verdict| ("dial", verdict, "10.96.0.7:9080");
    let denied = |word| [("egress", "denied", word)];
    for (verdict, steps, found, help, exit) in [
        ("no-such-name", &[][..], "no-such-name", "trace", 1),
        ("not-resolved", &[], "not-resolved", "trace", 1),
        (
            "no-route",
            &[(
                "route",
                "no-route",
                "10.96.0.0/24 is left alone: a local network",
            )],
            "swallowed",
            "has that route",
            1,
        ),
        (
            "no-route",
            &[(
                "route",
                "no-route",
                "10.96.0.0/24 is left alone: left out by --exclude-cidr",
            )],
            "excluded",
            "without",
            1,
        ),
        (
            "no-route",
            &[(
                "route",
                "no-route",
                "10.96.0.7 is in no network of the session",
            )],
            "no-route",
            "--include-cidr",
            1,
        ),
        ("left-out", &[], "left-out", "trace", 1),
        (
            "denied",
            &denied("namespace-not-granted"),
            "not-granted",
            "namespace add",
            77,
        ),
        (
            "denied",
            &denied("no-such-port, service authors.shop"),
            "no-such-port",
            "kubectl -n shop get service",
            1,
        ),
        (
            "denied",
            &denied("unknown-service"),
            "unknown-service",
            "routes",
            1,
        ),
        ("denied", &denied("not-listed"), "not-listed", "--egress", 1),
        ("denied", &denied("excepted"), "excepted", "whoever runs", 1),
        ("denied", &denied("metadata"), "never", "security.md", 1),
        (
            "no-ready-endpoints",
            &[ALLOWED],
            "no-ready-endpoints",
            "trace",
            1,
        ),
        (
            "refused",
            &[ALLOWED, dial("refused"), READY],
            "refused",
            "-n shop exec",
            1,
        ),
        (
            "timeout",
            &[ALLOWED, dial("timeout"), READY],
            "silent-endpoint",
            "kubectl apply",
            1,
        ),
        (
            "timeout",
            &[
                ALLOWED,
                dial("timeout"),
                (
                    "endpoints",
                    "unknown",
                    "the manager may not list endpointslices",
                ),
            ],
            "silent",
            "kubectl apply",
            1,
        ),
        (
            "timeout",
            &[("egress", "ok", "resolved")],
            "silent",
            "NetworkPolicy",
            1,
        ),
        ("host-unreachable", &[ALLOWED], "unreachable", "trace", 1),
        ("network-unreachable", &[ALLOWED], "unreachable", "trace", 1),
        ("limit", &[ALLOWED], "limit", "--flows-per-session", 1),
        ("session", &[], "session", "kubebridge status", 1),
        ("gone", &[], "gone", "again", 1),
        (
            "manager-unreachable",
            &[],
            "manager-unreachable",
            "trace",
            69,
        ),
        ("not-told", &[], "manager-too-old", "kubebridge upgrade", 1),
        (
            "reset-at-once",
            &[ALLOWED],
            "reset-at-once",
            "--show-labels",
            1,
        ),
        ("internal", &[ALLOWED], "internal", "logs", 1),
    ] {
        let finding = judged(
            "authors.shop:9080",
            &report(verdict, steps),
            &[],
            Injected::NotAsked,
        );
        assert_eq!(
            (finding.verdict, finding.found),
            (Verdict::Fail, found),
            "{verdict} {steps:?}"
        );
        assert_eq!(finding.exit as u8, exit, "{verdict}");
        let said = finding.help.clone().unwrap_or_default();
        assert!(said.contains(help), "{verdict}: {said}");
        assert_eq!(finding.evidence.len(), steps.len());
    }
}

#[test]
fn a_way_that_leads_there_is_well_and_others_are_said_as_they_are() {
    for (verdict, expected, found) in [
        ("reachable", Verdict::Ok, "reachable"),
        ("outside", Verdict::Note, "outside"),
        ("unanswered", Verdict::Note, "unanswered"),
        ("partly", Verdict::Warn, "partly"),
    ] {
        let finding = judged(
            "authors.shop:9080",
            &report(verdict, &[]),
            &[],
            Injected::NotAsked,
        );
        assert_eq!((finding.verdict, finding.found), (expected, found));
    }
}

#[test]
fn lifecycle_21_resets_that_programs_met_are_held_against_a_way_that_is_open() {
    let open = report("reachable", &[ALLOWED, READY]);
    let elsewhere = judged(
        "authors.shop:9080",
        &open,
        &["10.96.0.7:80"],
        Injected::NotAsked,
    );
    assert_eq!(elsewhere.verdict, Verdict::Ok);

    let mesh = |kind, evidence: &str| {
        Injected::In(Mesh {
            kind,
            evidence: evidence.to_owned(),
        })
    };
    for (injected, found, help, manifest) in [
        (
            Injected::NotAsked,
            "reset-at-once",
            "kubectl get namespace shop",
            None,
        ),
        (Injected::NotSaid, "reset-at-once", "own log", None),
        (
            mesh(Kind::Istio, "istio-injection=enabled"),
            "mesh",
            "kubectl apply",
            Some("PeerAuthentication"),
        ),
        (
            mesh(Kind::Linkerd, "linkerd.io/inject=enabled"),
            "mesh",
            "config.linkerd.io/default-inbound-policy",
            None,
        ),
        (mesh(Kind::Kuma, "x=enabled"), "mesh", "PERMISSIVE", None),
    ] {
        let finding = judged("authors.shop:9080", &open, &["10.96.0.7:9080"], injected);
        assert_eq!((finding.verdict, finding.found), (Verdict::Fail, found));
        assert!(finding.help.as_ref().unwrap().contains(help), "{finding:?}");
        let has = finding.manifest.unwrap_or_default();
        assert!(has.contains(manifest.unwrap_or_default()) && has.is_empty() == manifest.is_none());
        let told = "3 connections from here to 10.96.0.7:9080 were reset";
        assert!(finding.evidence.iter().any(|line| line.starts_with(told)));
    }
}

#[test]
fn a_mesh_is_looked_for_only_where_it_may_be_why() {
    let session = session(&[]);
    let wanted = wanted("authors.shop:9080").unwrap();
    for (verdict, suspicious) in [
        ("reachable", false),
        ("denied", false),
        ("refused", true),
        ("timeout", true),
    ] {
        let report = report(verdict, &[]);
        assert_eq!(
            is_suspicious(&Seen::new(&wanted, &report, &session)),
            suspicious
        );
    }
    let told = report("timeout", &[ALLOWED]);
    let service = service_of(&told).unwrap();
    assert_eq!((service.name, service.namespace), ("authors", "shop"));
    assert_eq!(
        service_of(&report("timeout", &[("egress", "ok", "resolved")])),
        None
    );
}

#[test]
fn ping_is_allowed_prohibited_by_the_pods_sysctl_or_denied_by_the_manager() {
    let sysctl = "10.244.1.21:0: denied: the pod may not ping: net.ipv4.ping_group_range";
    for (verdict, steps, expected, found) in [
        ("reachable", &[ALLOWED][..], Verdict::Ok, "allowed"),
        (
            "denied",
            &[ALLOWED, ("dial", "denied", sysctl)],
            Verdict::Fail,
            "prohibited",
        ),
        (
            "denied",
            &[("egress", "denied", "no-such-port")],
            Verdict::Fail,
            "denied",
        ),
        ("outside", &[], Verdict::Note, "outside"),
        ("no-such-name", &[], Verdict::Fail, "other"),
    ] {
        let finding = judged(
            "authors.shop",
            &report(verdict, steps),
            &[],
            Injected::NotAsked,
        );
        assert_eq!(
            (finding.verdict, finding.found),
            (expected, found),
            "{steps:?}"
        );
        assert_eq!(finding.help.is_some(), expected == Verdict::Fail);
    }
}

#[test]
fn manifests_are_objects_of_the_endpoints_namespace() {
    for (text, kind) in [
        (network_policy("shop"), "NetworkPolicy"),
        (peer_authentication("shop", "authors"), "PeerAuthentication"),
    ] {
        let object: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(object["kind"], kind);
        assert_eq!(object["metadata"]["namespace"], "shop");
    }
    let policy = network_policy("shop");
    for word in ["kubernetes.io/metadata.name: kubebridge", "traffic-manager"] {
        assert!(policy.contains(word), "{policy}");
    }
}
