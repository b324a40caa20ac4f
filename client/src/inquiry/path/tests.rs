//! What is said of each kind of way, and its golden forms.

use std::sync::Arc;

use kubebridge_dns::test_util::Answer;
use kubebridge_proto::flow::Failure;
use kubebridge_proto::flow::FailureKind;
use kubebridge_proto::probe::{Dial, Endpoints, Heard, Probed, Service, Verdict};

use super::judge::verdict;
use super::*;
use crate::inquiry::text::path_text;
use crate::local_dns::tests::World;
use crate::status::routing::{HoleReport, HostRouteReport, LeftOutReport, NetworkReport};
use crate::status::{Leftovers, trace_document};

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn to() -> SocketAddr {
    "10.96.0.7:9080".parse().unwrap()
}

fn probed(failure: Option<FailureKind>, ready: u32) -> Probed {
    Probed {
        verdict: Verdict::Allowed("service".to_owned()),
        service: Some(Service {
            namespace: "shop".to_owned(),
            name: "authors".to_owned(),
            endpoints: Endpoints::Known { ready, total: 3 },
            ready: endpoints(ready),
        }),
        dial: Some(Dial {
            failure: failure.map(Failure::from),
            took: millis(2),
            heard: None,
        }),
    }
}

fn endpoints(ready: u32) -> Vec<IpAddr> {
    let address = |number| [10, 244, 1, number].into();
    (1..=u8::try_from(ready).unwrap()).map(address).collect()
}

fn routing() -> RoutingReport {
    RoutingReport {
        applied: true,
        networks: vec![NetworkReport {
            network: "10.96.0.0/16".to_owned(),
            purposes: vec!["services".to_owned()],
        }],
        hosts: vec![HostRouteReport {
            address: "192.0.2.7".to_owned(),
            name: "docs.shop".to_owned(),
            seconds: 45,
        }],
        holes: vec![HoleReport {
            network: "10.244.9.0/24".to_owned(),
            reason: "a route of this machine".to_owned(),
            via: None,
        }],
        left_out: vec![LeftOutReport {
            network: "fd00:96::/108".to_owned(),
            reason: "this machine has IPv6 switched off".to_owned(),
        }],
        ..RoutingReport::default()
    }
}

fn report(failure: Option<FailureKind>, ready: u32) -> PathReport {
    report_of(&[probed(failure, ready)])
}

/// The story of a name with as many addresses.
fn report_of(probed: &[Probed]) -> PathReport {
    let name = PathStep::new(
        "name",
        OK,
        "10.96.0.7 (under a suffix of the session)",
        Some(millis(3)),
    );
    let addresses = probed.iter().zip(7_u8..).map(|(probed, last)| {
        let to: SocketAddr = ([10, 96, 0, last], 9080).into();
        let mut steps = vec![route(&routing(), to.ip(), Destination::Cluster, true)];
        let (told, help) = told(Protocol::Tcp, to, probed, millis(5));
        steps.extend(told);
        AddressReport {
            address: to.ip(),
            verdict: verdict(&steps),
            help,
            steps,
        }
    });
    let addresses: Vec<_> = addresses.collect();
    let (verdict, help) = overall(&addresses);
    PathReport {
        session: "0a1b2c3d".to_owned(),
        target: "authors.shop:9080".to_owned(),
        verdict,
        help,
        steps: [&[name], &addresses[0].steps[..]].concat(),
        addresses,
        took_micros: 8100,
    }
}

#[test]
fn each_failure_has_its_kind_and_what_helps() {
    use FailureKind::{Denied, HostUnreachable, Limit, Refused, Timeout};
    for (failure, ready, kind, words) in [
        (Some(Refused), 2, "refused", "targetPort"),
        (
            Some(Refused),
            0,
            "no-ready-endpoints",
            "kubectl -n shop get endpointslices -l kubernetes.io/service-name=authors",
        ),
        (
            Some(Timeout),
            0,
            "no-ready-endpoints",
            "no pod of the service is ready",
        ),
        (Some(Timeout), 1, "timeout", "NetworkPolicy of shop"),
        (Some(Timeout), 1, "timeout", "service mesh"),
        (Some(HostUnreachable), 1, "host-unreachable", "no way there"),
        (Some(Limit), 1, "limit", "too many connections"),
        (Some(Denied), 1, "denied", "log"),
    ] {
        let report = report(failure, ready);
        assert_eq!(report.verdict, kind, "{failure:?}");
        let help = report.help.unwrap();
        assert!(help.contains(words), "{kind}: {help}");
    }
    assert_eq!(report(None, 2).verdict, REACHABLE);
    assert_eq!(report(None, 2).help, None);
    assert_eq!(report(None, 0).verdict, REACHABLE);
}

#[test]
fn a_denial_ends_the_way_and_says_what_helps() {
    for (word, words) in [
        ("namespace-not-granted", "namespace add"),
        ("no-such-port", "no such port"),
        ("not-listed", "--egress"),
    ] {
        let denied = Probed {
            verdict: Verdict::Denied(word.to_owned()),
            service: None,
            dial: None,
        };
        let (steps, help) = told(Protocol::Tcp, to(), &denied, millis(1));
        assert_eq!(steps.len(), 1);
        assert_eq!(
            (verdict(&steps).as_str(), steps[0].detail.as_str()),
            ("denied", word)
        );
        assert!(help.unwrap().contains(words), "{word}");
    }
}

#[test]
fn the_route_says_who_has_an_address() {
    let step = |routing: &RoutingReport, address: &str, destination, is_by_name| {
        route(routing, address.parse().unwrap(), destination, is_by_name).verdict
    };
    let set = routing();
    let planned = RoutingReport {
        applied: false,
        ..routing()
    };
    let (cluster, originals) = (Destination::Cluster, Destination::Originals);
    for (routing, address, destination, is_by_name, verdict) in [
        (&set, "10.96.0.7", cluster, true, OK),
        (&set, "192.0.2.7", cluster, true, OK),
        (&set, "fd00:96::7", cluster, true, LEFT_OUT),
        (&set, "10.244.9.1", cluster, true, "no-route"),
        (&set, "198.51.100.1", cluster, false, "no-route"),
        (&set, "198.51.100.1", cluster, true, UNKNOWN),
        (&set, "198.51.100.1", originals, true, OUTSIDE),
        (&set, "10.96.0.7", originals, true, OK),
        (&planned, "10.96.0.7", cluster, true, UNKNOWN),
        (&planned, "198.51.100.1", cluster, false, UNKNOWN),
    ] {
        let got = step(routing, address, destination, is_by_name);
        assert_eq!(got, verdict, "{address} {is_by_name}");
    }
}

#[test]
fn the_json_and_the_text_of_trace_are_the_golden_ones() {
    let reports = [
        report(None, 2),
        report(Some(FailureKind::Refused), 0),
        report_of(&[probed(None, 2), probed(Some(FailureKind::Timeout), 2)]),
    ];
    let document = trace_document(&reports, &Leftovers::default());
    let shown = reports.map(|report| path_text(&report)).join("\n");
    let value = |text: &str| {
        let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
        value["version"] = "0.0.0".into();
        value
    };
    let golden = value(include_str!("../golden/trace.json"));
    assert_eq!(value(&document), golden, "{document}");
    assert_eq!(shown, include_str!("../golden/trace.txt"), "{shown}");
}

#[tokio::test]
async fn a_way_is_followed_as_far_as_it_is_known() {
    let world = World::with(|packet| {
        Some(Answer::address("authors.default", [10, 96, 0, 7]).reply_to(packet))
    })
    .await;
    let inquiry = Inquiry::new(Arc::clone(&world.resolver), world.control.calls());
    let follow = async |target: &str| {
        let target = target.parse().unwrap();
        inquiry.path("0a1b2c3d", &target, &routing()).await
    };

    // The manager of this test does not know the call.
    let inside = follow("authors.default:80").await;
    let steps: Vec<_> = inside
        .steps
        .iter()
        .map(|step| (step.step.as_str(), step.verdict.as_str()))
        .collect();
    assert_eq!(steps, [("name", OK), ("route", OK), ("egress", "not-told")]);
    assert_eq!(inside.verdict, "not-told");
    assert!(inside.help.unwrap().contains("upgrade"));

    let nobody = follow("printer:80").await;
    assert_eq!(nobody.verdict, "no-such-name");
    assert_eq!(nobody.steps.len(), 1);

    let outside = follow("www.example.com:80").await;
    assert_eq!(outside.verdict, OUTSIDE);
    assert_eq!((outside.help, outside.steps.len()), (None, 2));

    // The wish for datagrams is part of the target, and the first address's steps are those of before.
    let datagrams = follow("authors.default:53/udp").await;
    assert_eq!(datagrams.target, "authors.default:53/udp");
    assert_eq!(datagrams.steps[1..], datagrams.addresses[0].steps[..]);
}

#[test]
fn datagrams_are_reachable_only_when_they_were_answered() {
    let to = to();
    let heard = |heard, ready| {
        let mut probed = probed(None, ready);
        probed.dial.as_mut().unwrap().heard = heard;
        let (steps, help) = told(Protocol::Udp, to, &probed, millis(5));
        (verdict(&steps), help)
    };
    let (answered, nothing) = (Some(Heard::Answered), Some(Heard::Nothing));
    for (got, ready, wanted) in [
        (answered, 1, REACHABLE),
        (nothing, 1, UNANSWERED),
        (nothing, 0, "no-ready-endpoints"),
        // An older manager sends none.
        (None, 1, UNANSWERED),
    ] {
        assert_eq!(heard(got, ready).0, wanted, "{got:?}");
    }
    let (_, help) = heard(nothing, 0);
    assert!(help.unwrap().contains("no pod of the service is ready"));
}

#[test]
fn lifecycle_21_a_connection_that_is_ended_at_once_is_no_way_there() {
    for (heard, wanted) in [
        (None, REACHABLE),
        (Some(Heard::Nothing), REACHABLE),
        (Some(Heard::Answered), REACHABLE),
        (Some(Heard::Closed), RESET_AT_ONCE),
        (Some(Heard::Reset), RESET_AT_ONCE),
    ] {
        let mut probed = probed(None, 2);
        probed.dial.as_mut().unwrap().heard = heard;
        let (steps, help) = told(Protocol::Tcp, to(), &probed, millis(5));
        assert_eq!(verdict(&steps), wanted, "{heard:?}");
        assert_eq!(help.is_some(), wanted != REACHABLE);
    }
}

#[test]
fn a_destination_is_what_its_addresses_are_and_partly_where_they_differ() {
    let of = |address: &str, verdict: &str| AddressReport {
        address: address.parse().unwrap(),
        verdict: verdict.to_owned(),
        help: Some(format!("help {verdict}")),
        steps: Vec::new(),
    };
    let (four, other, six) = ("10.244.1.5", "10.244.1.6", "fd00:96::7");
    for (addresses, wanted) in [
        (vec![of(four, REACHABLE)], REACHABLE),
        (vec![of(four, REACHABLE), of(other, REACHABLE)], REACHABLE),
        (vec![of(four, "timeout"), of(other, "refused")], "timeout"),
        (vec![of(four, REACHABLE), of(other, "timeout")], PARTLY),
        (vec![of(four, "no-route"), of(other, REACHABLE)], PARTLY),
        // Programs pass over IPv6 where the machine has none, but not over what has a route.
        (vec![of(four, REACHABLE), of(six, LEFT_OUT)], REACHABLE),
        (vec![of(four, REACHABLE), of(six, "timeout")], PARTLY),
        (vec![of(six, LEFT_OUT)], LEFT_OUT),
        (vec![of(four, OUTSIDE), of(six, OUTSIDE)], OUTSIDE),
    ] {
        assert_eq!(overall(&addresses).0, wanted, "{addresses:?}");
    }
    let (_, help) = overall(&[of(four, REACHABLE), of(other, "timeout")]);
    assert_eq!(help.unwrap(), "10.244.1.6 is timeout: help timeout");
}
