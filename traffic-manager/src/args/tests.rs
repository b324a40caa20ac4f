//! Tables of flags, variables and files, with what they make or why they are refused.

use std::net::SocketAddr;
use std::path::Path;

use super::*;
use crate::config::{AnswerOrder, Fanout, Namespaces, Source};
use crate::failure::report;
use crate::upstreams::ask::Output;

mod documented;
mod files;

fn parsed(arguments: &[&str]) -> Result<Invocation> {
    parse([&["traffic-manager"], arguments].concat())
}

fn serve(arguments: &[&str]) -> Config {
    match parsed(&[&["serve"], arguments].concat()).unwrap() {
        Invocation::Serve(config) => *config,
        other => panic!("{other:?}"),
    }
}

fn refused(arguments: &[&str]) -> (String, u8) {
    report(&parsed(arguments).unwrap_err())
}

fn file(directory: &Path, text: &str) -> String {
    let path = directory.join("config.yaml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn defaults_are_those_of_the_design() {
    let config = serve(&[]);
    assert_eq!(
        config.dns_listen,
        ["[::]:1053".parse::<SocketAddr>().unwrap()]
    );
    assert_eq!(
        config.grpc_listen,
        "127.0.0.1:7080".parse::<SocketAddr>().unwrap()
    );
    assert_eq!(
        config.admin_listen,
        "[::]:7081".parse::<SocketAddr>().unwrap()
    );
    assert_eq!(config.auth, crate::config::Auth::Token);
    assert_eq!(config.source, Source::None);
    assert_eq!(config.resolution.answer_order, AnswerOrder::Search);
    assert_eq!(config.resolution.fanout, Fanout::All);
    let hedged = serve(&["--fanout=hedged"]);
    assert_eq!(hedged.resolution.fanout, Fanout::Hedged);
}

#[test]
fn repeatable_flags_are_repeated() {
    let config = serve(&[
        "--dns-listen=127.0.0.1:0",
        "--dns-listen=[::1]:0",
        "--upstream=10.96.0.10",
        "--upstream=10.96.0.11:5353",
        "--search=default.svc.cluster.local",
        "--search=svc.cluster.local",
        "--absolute-zone=example.com",
    ]);
    assert_eq!(config.dns_listen.len(), 2);
    let upstreams: Vec<_> = config
        .resolution
        .upstreams
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(upstreams, ["10.96.0.10", "10.96.0.11:5353"]);
    assert_eq!(config.resolution.search.len(), 2);
    assert_eq!(config.resolution.absolute_zones.len(), 1);
}

#[test]
fn the_source_of_services_follows_from_three_flags() {
    let these =
        |names: &[&str]| Namespaces::These(names.iter().map(|name| (*name).to_owned()).collect());
    let manifests = |namespaces| Source::Manifests {
        file: "f".into(),
        namespaces,
    };
    for (arguments, expected) in [
        (vec!["--kubernetes"], Source::Kubernetes(Namespaces::Own)),
        (
            vec!["--kubernetes", "--all-namespaces"],
            Source::Kubernetes(Namespaces::All),
        ),
        (
            vec!["--kubernetes", "--namespace=a", "--namespace=b"],
            Source::Kubernetes(these(&["a", "b"])),
        ),
        (vec!["--services=f"], manifests(Namespaces::Own)),
        (
            vec!["--services=f", "--namespace=a"],
            manifests(these(&["a"])),
        ),
    ] {
        assert_eq!(serve(&arguments).source, expected, "{arguments:?}");
    }
}

const BAD_FLAGS: &[(&[&str], &str)] = &[
    (
        &["serve", "--ndots=16"],
        "error: invalid value '16' for '--ndots <N>': 16 is not in 0..=15",
    ),
    (
        &["serve", "--timeout=2"],
        "error: invalid value '2' for '--timeout <DURATION>': the unit is missing: write `2s` or `2ms`",
    ),
    (
        &["serve", "--timeout=9s"],
        "error: --timeout 9000ms is out of range",
    ),
    (
        &["serve", "--timeout=0s"],
        "error: --timeout 0ms is out of range",
    ),
    (
        &["serve", "--serve-stale=0s"],
        "error: --serve-stale 0ms is out of range",
    ),
    (
        &["serve", "--serve-stale=10081m"],
        "error: --serve-stale 604860000ms is out of range",
    ),
    (
        &["serve", "--attempts=0"],
        "error: invalid value '0' for '--attempts <N>'",
    ),
    (
        &["serve", "--upstream=tls://9.9.9.9"],
        "error: invalid value 'tls://9.9.9.9' for '--upstream <SPEC>': upstream `tls://9.9.9.9`",
    ),
    (
        &["serve", "--upstream=dns.example"],
        "error: invalid value 'dns.example' for '--upstream <SPEC>'",
    ),
    (
        &["serve", "--upstream=192.0.2.1", "--upstream-ca=ca.pem"],
        "error: --upstream-ca needs an encrypted upstream\nhint: add --upstream tls://",
    ),
    (
        &["serve", "--search=a..b"],
        "error: invalid value 'a..b' for '--search <DOMAIN>': name has an empty label",
    ),
    (
        &["serve", "--namespace=Shop", "--kubernetes"],
        "error: invalid value 'Shop' for '--namespace <NAME>': namespace is \"Shop\"",
    ),
    (
        &["serve", "--namespace=shop"],
        "error: --namespace needs a source of Services\nhint: add --kubernetes or --services FILE",
    ),
    (
        &["serve", "--all-namespaces"],
        "error: --all-namespaces needs a source",
    ),
    (
        &["serve", "--kubernetes", "--services=f"],
        "error: --kubernetes and --services contradict each other",
    ),
    (
        &["serve", "--kubernetes", "--namespace=a", "--all-namespaces"],
        "error: --namespace and --all-namespaces contradict each other",
    ),
    (
        &["serve", "--grpc-listen=0.0.0.0:7080"],
        "error: --grpc-listen 0.0.0.0:7080 is not on loopback\nhint: a network listener needs --tls-cert",
    ),
    (
        &["serve", "--grpc-listen=[::]:7080"],
        "error: --grpc-listen [::]:7080 is not on loopback",
    ),
    (
        &["serve", "--tls-cert=c"],
        "error: mutual TLS needs --tls-cert, --tls-key and --tls-ca\nhint: give all three",
    ),
    (
        &["serve", "--egress=all"],
        "error: invalid value 'all' for '--egress <RULE>': expected services, pods, cidr=ADDRESS/PREFIX, domains=SUFFIX, domains=none or except=ADDRESS/PREFIX",
    ),
    (
        &["serve", "--fanout=ordered"],
        "error: invalid value 'ordered' for '--fanout <FANOUT>' [possible values: all, hedged]",
    ),
    (
        &["serve", "--auth=none"],
        "error: invalid value 'none' for '--auth <AUTH>' [possible values: token, port-forward]",
    ),
    (
        &["serve", "--dns-listn=1"],
        "error: unexpected argument '--dns-listn' found\nhint: a similar argument exists: '--dns-listen'",
    ),
    (
        &["serve", "extra"],
        "error: unexpected argument 'extra' found",
    ),
    (
        &["serv"],
        "error: unrecognized subcommand 'serv'\nhint: a similar subcommand exists: 'serve'",
    ),
    (
        &[],
        "error: a command is missing\nhint: see `traffic-manager serve --help`",
    ),
];

#[test]
fn bad_flags_name_flag_value_and_fix_and_exit_64() {
    for (arguments, message) in BAD_FLAGS {
        let (text, code) = refused(arguments);
        assert!(
            text.starts_with(message),
            "{arguments:?}:\n{text}\ninstead of\n{message}"
        );
        assert!(
            text.contains("\nhint: ") && text.lines().count() == 2,
            "{text}"
        );
        assert_eq!(code, 64, "{arguments:?}");
    }
}

#[test]
fn upstreams_asks_the_admin_port_of_this_pod_unless_told_another() {
    for (arguments, admin, output) in [
        (vec!["upstreams"], "127.0.0.1:7081", Output::Text),
        (
            vec!["upstreams", "--admin=[::1]:9", "-o", "json"],
            "[::1]:9",
            Output::Json,
        ),
    ] {
        let Invocation::Upstreams(ask) = parsed(&arguments).unwrap() else {
            panic!("{arguments:?}")
        };
        let admin = admin.parse().unwrap();
        assert_eq!(ask, Ask { admin, output });
    }
    let (_, code) = refused(&["upstreams", "--admin=manager"]);
    assert_eq!(code, 64);
}

#[test]
fn r5_port_forward_auth_is_for_one_namespace_the_managers_own() {
    let auth = "--auth=port-forward";
    for (arguments, refused) in [
        (vec![auth, "--kubernetes"], None),
        (vec![auth, "--kubernetes", "--namespace=a"], None),
        (vec![auth, "--services=f", "--namespace=a"], None),
        (
            vec![auth, "--kubernetes", "--namespace=a", "--pod-namespace=a"],
            None,
        ),
        (vec![auth, "--pod-namespace=a"], None),
        (vec!["--kubernetes", "--all-namespaces"], None),
        (vec![auth, "--services=f"], Some("not several")),
        (
            vec![auth, "--services=f", "--all-namespaces"],
            Some("not several"),
        ),
        (
            vec![auth, "--kubernetes", "--all-namespaces"],
            Some("not several"),
        ),
        (
            vec![auth, "--kubernetes", "--namespace=a,b"],
            Some("not several"),
        ),
        (
            vec![auth, "--kubernetes", "--namespace=a", "--pod-namespace=b"],
            Some("own namespace b, not a"),
        ),
        (vec![auth], Some("none is known")),
    ] {
        let parsed = parsed(&[&["serve"], arguments.as_slice()].concat());
        match (parsed, refused) {
            (Ok(_), None) => {}
            (Err(error), Some(reason)) => {
                let (text, code) = report(&error);
                assert!(text.contains(reason), "{arguments:?}: {text}");
                assert!(text.contains("\nhint: "), "{text}");
                assert_eq!(code, 64, "{text}");
            }
            (parsed, _) => panic!("{arguments:?}: {parsed:?}"),
        }
    }
}

#[test]
fn grpc_on_a_network_needs_mutual_tls_and_tokens() {
    let tls = ["--tls-cert=c", "--tls-key=k", "--tls-ca=a"];
    let network = "--grpc-listen=[::]:7080";
    for (arguments, refused) in [
        (vec![network, tls[0], tls[1], tls[2]], None),
        (vec![tls[0], tls[1], tls[2]], None),
        (vec![network], Some("is not on loopback")),
        (vec![network, tls[0], tls[1]], Some("--tls-ca")),
        (vec![tls[2]], Some("--tls-cert")),
        (
            vec![
                network,
                tls[0],
                tls[1],
                tls[2],
                "--auth=port-forward",
                "--pod-namespace=a",
            ],
            Some("for gRPC on loopback"),
        ),
        (vec!["--token-keys=f"], Some("need each other")),
        (vec!["--token-issuer=https://x"], Some("need each other")),
    ] {
        let parsed = parsed(&[&["serve"], arguments.as_slice()].concat());
        match (parsed, refused) {
            (Ok(_), None) => {}
            (Err(error), Some(reason)) => {
                let (text, code) = report(&error);
                assert!(text.contains(reason), "{arguments:?}: {text}");
                assert_eq!(code, 64, "{text}");
            }
            (parsed, _) => panic!("{arguments:?}: {parsed:?}"),
        }
    }
}
