//! The golden files: what programs may rely on.

use super::*;
use crate::flows::{AbruptStatus, ConnectionStatus, FlowsStatus};
use crate::netstack::PacketsStatus;
use crate::status::CredentialsReport;
use crate::status::routing::{
    HoleReport, HostRouteReport, LeftOutReport, NetworkReport, OverlapReport, RoutingReport,
};
use crate::status::{
    ConflictReport, DnsReport, HealthReport, HostsLineReport, HostsReport, NamespaceReport,
    ProxyReport, RepairReport, RepairsReport, ServiceReport, StaleReport, StepReport, TokensReport,
    TunnelReport, WithheldReport,
};

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

fn namespaces() -> Vec<NamespaceReport> {
    let lost = "no token: namespace prod has no ServiceAccount kubebridge-access";
    let help = "kubebridge install --namespace prod";
    [
        ("default", "synced", None, 2),
        ("prod", lost, Some(help), 0),
        ("shop", "forbidden: list services", None, 0),
    ]
    .map(|(namespace, state, help, services)| NamespaceReport {
        namespace: namespace.to_owned(),
        state: state.to_owned(),
        help: help.map(str::to_owned),
        services,
    })
    .to_vec()
}

fn conflicts() -> Vec<ConflictReport> {
    vec![ConflictReport {
        name: "nas".to_owned(),
        reason: "resolved before the session".to_owned(),
    }]
}

fn routing() -> RoutingReport {
    RoutingReport {
        applied: true,
        networks: vec![NetworkReport {
            network: "10.96.0.0/17".to_owned(),
            purposes: texts(&["--include-cidr", "services"]),
        }],
        hosts: vec![HostRouteReport {
            address: "203.0.113.7".to_owned(),
            name: "docs.default.svc.cluster.local.".to_owned(),
            seconds: 42,
        }],
        holes: vec![HoleReport {
            network: "10.96.128.0/17".to_owned(),
            reason: "a local network".to_owned(),
            via: Some("docker0".to_owned()),
        }],
        overlaps: vec![OverlapReport {
            ours: "10.96.0.0/16".to_owned(),
            theirs: "10.96.128.0/17".to_owned(),
            via: Some("docker0".to_owned()),
        }],
        taken: vec![OverlapReport {
            ours: "10.244.0.0/16".to_owned(),
            theirs: "10.0.0.0/8".to_owned(),
            via: Some("tun0".to_owned()),
        }],
        left_out: vec![LeftOutReport {
            network: "fd00:10::/108".to_owned(),
            reason: "this machine has IPv6 switched off".to_owned(),
        }],
        error: None,
    }
}

fn repairs() -> RepairsReport {
    RepairsReport {
        count: 1,
        last: vec![RepairReport {
            what: "link kb0 made anew".to_owned(),
            unix_seconds: 1_795_972_800,
            ago_seconds: 90,
        }],
        troubles: texts(&["configuring the system's DNS: the system bus is gone"]),
    }
}

fn session() -> StatusReport {
    StatusReport {
        session: "0a1b2c3d".to_owned(),
        pid: 4711,
        state: "degraded".to_owned(),
        doing: None,
        uptime_seconds: 3600,
        tasks: 41,
        manager: "127.0.0.1:7080".to_owned(),
        manager_version: Some("0.2.0".to_owned()),
        client_version: "0.1.0".to_owned(),
        skew: Some("the manager is newer by 1 minor version".to_owned()),
        cluster_domain: Some("cluster.local".to_owned()),
        namespaces: texts(&["default", "shop"]),
        health: HealthReport {
            tunnel: "down".to_owned(),
            kubernetes: "unknown".to_owned(),
            routes: "stale".to_owned(),
            dns: "in trouble".to_owned(),
            routing: "set".to_owned(),
            hosts: "written".to_owned(),
        },
        tunnel: Some(TunnelReport {
            up: false,
            echo_age_millis: None,
            round_trip_micros: None,
            down_millis: Some(12_000),
            reason: Some("2 echoes without a reply".to_owned()),
        }),
        tokens: Some(TokensReport {
            until: "2026-11-29T19:30:00Z".to_owned(),
            seconds_left: 1200,
            renewal_seconds: 480,
        }),
        credentials: Some(CredentialsReport {
            user: "dev".to_owned(),
            until: Some("2026-11-29T20:00:00Z".to_owned()),
            trouble: Some("exec plugin login of user dev: ended with exit status: 1".to_owned()),
            renew: "login --cluster lab".to_owned(),
        }),
        stale: StaleReport {
            serving: true,
            kept: 3,
            answered: 17,
        },
        dns: DnsReport {
            choice: "auto".to_owned(),
            found: Some("systemd-resolved by nss-resolve".to_owned()),
            reasons: texts(&["nsswitch.conf lists resolve before dns"]),
            originals: texts(&["192.0.2.53:53"]),
            link: Some("kb0 198.19.248.1/30".to_owned()),
            resolver: Some("198.19.248.2".to_owned()),
            applied: true,
            domains: texts(&["cluster.local", "svc", "default", "shop"]),
            shadowed: texts(&["authors.shop"]),
            warnings: texts(&["10.0.0.0/8 has too many reverse zones"]),
            error: Some("the system bus is gone".to_owned()),
        },
        hosts: HostsReport {
            form: "namespaced".to_owned(),
            lines: 2,
            conflicts: conflicts(),
            error: None,
        },
        routing: routing(),
        kubernetes: namespaces(),
        repairs: repairs(),
        steps: vec![StepReport {
            step: "link".to_owned(),
            detail: "kb0 198.19.248.1/30".to_owned(),
            millis: 12,
        }],
        context: Some("lab".to_owned()),
        log: Some("/run/kubebridge/sessions/0a1b2c3d/session.log".to_owned()),
        withheld: None,
        flows: Some(flows()),
        packets: Some(packets()),
        proxy: None,
    }
}

fn packets() -> PacketsStatus {
    let dropped = [("device", 0), ("outside", 7), ("protocol", 1)];
    PacketsStatus {
        flows: 4,
        half_open: 1,
        dropped: dropped
            .map(|(reason, count)| (reason.to_owned(), count))
            .into(),
    }
}

fn flows() -> FlowsStatus {
    FlowsStatus {
        connections: vec![ConnectionStatus {
            place: "traffic-manager-7d9c".to_owned(),
            flows: 3,
            round_trip_micros: 21_500,
            echo_age_millis: 1_200,
            sent: 1_000,
            received: 2_000,
        }],
        open: 3,
        opened: 120,
        resumed: 4,
        moved: 1,
        reset_here: 7,
        reset_there: 8,
        replaced: 2,
        dropped_datagrams: 5,
        sent: 900,
        received: 1_900,
        failures: [("refused".to_owned(), 6)].into(),
        abrupt: vec![AbruptStatus {
            destination: "10.96.3.1:80".parse().unwrap(),
            count: 2,
            ago_millis: 1_500,
        }],
        ..FlowsStatus::default()
    }
}

fn left() -> Leftovers {
    Leftovers {
        leftovers: vec![LeftoverReport {
            session: "deadbeef".to_owned(),
            pid: 42,
            changes: texts(&["DNS settings of link kb0", "lines in the hosts file"]),
        }],
        leftovers_error: None,
        leftovers_hint: Some("sudo kubebridge recover"),
    }
}

fn routes() -> RoutesReport {
    let service =
        |name: &str, kind: &str, address: &[&str], external: Option<&str>| ServiceReport {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            kind: kind.to_owned(),
            cluster_ips: texts(address),
            ports: texts(&["http:80/TCP"]),
            external_name: external.map(str::to_owned),
        };
    RoutesReport {
        session: "0a1b2c3d".to_owned(),
        namespaces: namespaces(),
        services: vec![
            service("authors", "ClusterIP", &["10.96.0.7", "fd00::7"], None),
            service("docs", "ExternalName", &[], Some("docs.example.net")),
        ],
        routing: routing(),
    }
}

fn hosts() -> HostsListReport {
    HostsListReport {
        session: "0a1b2c3d".to_owned(),
        form: "namespaced".to_owned(),
        lines: vec![HostsLineReport {
            address: "10.96.0.7".to_owned(),
            names: texts(&["authors", "authors.default"]),
        }],
        conflicts: conflicts(),
        error: None,
    }
}

/// Compares with a golden file; the difference shows what programs would no longer find.
fn check(document: &str, golden: &str) {
    let value = |text: &str| {
        let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
        if let Some(version) = value.get_mut("version") {
            *version = "0.0.0".into();
        }
        value
    };
    assert!(!document.contains('\n'), "one line");
    assert_eq!(value(document), value(golden), "{document}");
}

#[test]
fn the_json_of_status_is_the_golden_one() {
    let golden = include_str!("../golden/status.json");
    check(&status_document(&[session()], &left()), golden);
}

#[test]
fn the_json_of_several_sessions_says_what_the_later_ones_do_without() {
    let second = StatusReport {
        session: "5e6f7a8b".to_owned(),
        context: Some("beta".to_owned()),
        withheld: Some(WithheldReport {
            session: "0a1b2c3d".to_owned(),
            name: "context lab".to_owned(),
            domains: texts(&["svc", "default"]),
            hosts_names: 4,
        }),
        packets: None,
        proxy: Some(ProxyReport {
            address: "127.0.0.1:4711".parse().unwrap(),
        }),
        ..session()
    };
    let golden = include_str!("../golden/status-several.json");
    check(&status_document(&[session(), second], &left()), golden);
}

#[test]
fn the_json_of_no_session_has_the_same_keys() {
    let unknown = Leftovers {
        leftovers_error: Some("permission denied".to_owned()),
        ..Leftovers::default()
    };
    let golden = include_str!("../golden/status-none.json");
    check(&status_document(&[], &unknown), golden);
}

#[test]
fn the_json_of_routes_is_the_golden_one() {
    let golden = include_str!("../golden/routes.json");
    check(&routes_document(&[routes()], &left()), golden);
}

#[test]
fn the_json_of_namespace_is_the_golden_one() {
    let report = NamespacesReport {
        session: "0a1b2c3d".to_owned(),
        namespaces: texts(&["shop", "default", "prod"]),
        kubernetes: namespaces(),
        trouble: None,
    };
    let golden = include_str!("../golden/namespace.json");
    check(&namespace_document(&[report]), golden);
}

#[test]
fn the_json_of_hosts_list_is_the_golden_one() {
    let golden = include_str!("../golden/hosts.json");
    check(&hosts_document(&[hosts()], &Leftovers::default()), golden);
}

#[test]
fn the_json_of_recover_is_the_golden_one() {
    let recovered = Recovered {
        session: "deadbeef".parse().unwrap(),
        changes: texts(&["lines removed from the hosts file"]),
    };
    let golden = include_str!("../golden/recover.json");
    check(&recover_document(&[recovered]), golden);
}

#[test]
fn the_json_of_install_recovery_is_the_golden_one() {
    let planned = Installation {
        unit: "/etc/systemd/system/kubebridge-recover.service".into(),
        content: "[Unit]\n".to_owned(),
        link: "/etc/systemd/system/sysinit.target.wants/kubebridge-recover.service".into(),
        target: "../kubebridge-recover.service".into(),
    };
    let written = [planned.unit.clone(), planned.link.clone()];
    let golden = include_str!("../golden/install-recovery.json");
    check(&recovery_document(Some(&planned), &written, &[]), golden);
}

#[test]
fn a_report_of_an_older_session_is_still_read() {
    let mut report = serde_json::to_value(session()).unwrap();
    let fields = report.as_object_mut().unwrap();
    for newer in [
        "routing",
        "health",
        "stale",
        "repairs",
        "skew",
        "client_version",
        "tokens",
    ] {
        fields.remove(newer);
    }

    let read: StatusReport = serde_json::from_value(report).unwrap();

    assert_eq!(read.repairs, RepairsReport::default());
}
