//! Tables of flags, variables and files, with what they make or why they are refused.

use std::net::SocketAddr;
use std::path::Path;

use super::*;
use crate::config::{AnswerOrder, Fanout, Namespaces, Source};
use crate::failure::report;
use crate::upstreams::ask::Output;

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
fn help_and_version_are_printed_and_are_no_error() {
    for arguments in [vec!["--help"], vec!["serve", "--help"], vec!["--version"]] {
        assert!(
            matches!(parsed(&arguments).unwrap(), Invocation::Print(_)),
            "{arguments:?}"
        );
    }
}

#[test]
fn every_flag_has_an_environment_variable_of_its_name() {
    let command = Serve::command_for_keys();
    for argument in command.get_arguments() {
        let Some(long) = argument.get_long().filter(|long| *long != "help") else {
            continue;
        };
        let expected = format!("KUBEBRIDGE_{}", long.to_uppercase().replace('-', "_"));
        assert_eq!(
            argument.get_env().and_then(|name| name.to_str()),
            Some(expected.as_str())
        );
    }
}

#[test]
fn a_file_gives_what_flags_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(
        directory.path(),
        "# comment\nndots: 3\ntimeout: 300ms\nkubernetes: true\nall-namespaces: false\n\
         namespace: [a, b]\ndns-listen: 127.0.0.1:1\n",
    );
    let config = serve(&["--config", &path, "--ndots=4"]);
    assert_eq!(config.resolution.ndots, Some(4));
    assert_eq!(
        config.resolution.timeout,
        Some(std::time::Duration::from_millis(300))
    );
    assert_eq!(
        config.dns_listen,
        ["127.0.0.1:1".parse::<SocketAddr>().unwrap()]
    );
    let names = ["a", "b"].map(str::to_owned).into();
    assert_eq!(config.source, Source::Kubernetes(Namespaces::These(names)));
}

#[test]
fn an_empty_file_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for text in ["", "# nothing\n", "{}\n"] {
        let path = file(directory.path(), text);
        assert_eq!(serve(&["--config", &path]).resolution.ndots, None);
    }
}

#[test]
fn a_bad_file_names_file_key_and_fix_and_exits_78() {
    let directory = tempfile::tempdir().unwrap();
    for (text, message) in [
        (
            "upstreams: [1.1.1.1]\n",
            "unknown key \"upstreams\"\nhint: did you mean `upstream`?",
        ),
        (
            "n-dots: 3\n",
            "unknown key \"n-dots\"\nhint: did you mean `ndots`?",
        ),
        (
            "zzz: 3\n",
            "unknown key \"zzz\"\nhint: keys are the names of flags",
        ),
        ("config: x\n", "unknown key \"config\""),
        ("ndots: 16\n", "invalid value '16' for '--ndots <N>'"),
        (
            "ndots: {a: 1}\n",
            "ndots is {\"a\":1}, not a value or a list",
        ),
        (
            "kubernetes: maybe\n",
            "kubernetes is \"maybe\", not true or false",
        ),
    ] {
        let path = file(directory.path(), text);
        let (found, code) = refused(&["serve", "--config", &path]);
        let expected = format!("error: in {path}: {message}");
        assert!(
            found.starts_with(&expected),
            "{found}\ninstead of\n{expected}"
        );
        assert_eq!(code, 78);
    }
    let path = file(directory.path(), "- a\n");
    let (found, code) = refused(&["serve", "--config", &path]);
    assert!(found.contains("is not a YAML map of flag names"), "{found}");
    assert_eq!(code, 78);
    let (found, code) = refused(&["serve", "--config", "/nonexistent/file"]);
    assert!(
        found.starts_with("error: cannot read the configuration /nonexistent/file"),
        "{found}"
    );
    assert_eq!(code, 78);
}

#[test]
fn what_check_config_prints_is_a_configuration_file() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = [
        "check-config",
        "--resolv-conf=/etc/hostname",
        "--upstream=10.96.0.10:5353",
        "--upstream=tls://192.0.2.1#dns.example",
        "--upstream-ca=/etc/hostname",
        "--search=a.svc.cluster.local",
        "--ndots=2",
        "--timeout=1s",
        "--attempts=3",
        "--cluster-domain=cluster.local",
        "--kubernetes",
        "--namespace=shop",
        "--bare-single-label=never",
        "--absolute-zone=example.com",
        "--serve-stale=60m",
        "--prefetch",
        "--auth=port-forward",
        "--pod-namespace=shop",
        "--token-keys=keys.json",
        "--token-issuer=https://issuer.example",
        "--tls-cert=c.crt",
        "--tls-key=c.key",
        "--tls-ca=ca.crt",
    ];
    let Invocation::Print(first) = parsed(&arguments).unwrap() else {
        panic!("nothing printed")
    };
    let path = file(directory.path(), &first);
    let Invocation::Print(second) = parsed(&["check-config", "--config", &path]).unwrap() else {
        panic!("nothing printed")
    };
    assert_eq!(first, second);
    assert!(first.contains("serve-stale: \"3600000ms\"\n") && first.contains("prefetch: true\n"));
    assert!(first.contains("timeout: \"1000ms\"\n") && first.contains("kubernetes: true\n"));
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

/// The table of flags in the documentation, made of what `--help` says.
fn table_of_flags() -> String {
    let command = Serve::command_for_keys();
    let mut table = "| Flag | Default | |\n|---|---|---|\n".to_owned();
    for argument in command.get_arguments() {
        let (Some(long), Some(help)) = (argument.get_long(), argument.get_help()) else {
            continue;
        };
        if long == "help" {
            continue;
        }
        let choices: Vec<_> = argument
            .get_possible_values()
            .iter()
            .map(|value| value.get_name().to_owned())
            .collect();
        let value = match argument.get_action().takes_values() {
            false => String::new(),
            true if choices.is_empty() => {
                let names = argument.get_value_names().unwrap_or_default();
                format!(" {}", names[0])
            }
            true => format!(" {}", choices.join("\\|")),
        };
        let defaults: Vec<_> = argument
            .get_default_values()
            .iter()
            .map(|text| format!("`{}`", text.to_string_lossy()))
            .collect();
        table += &format!("| `--{long}{value}` | {} | {help} |\n", defaults.join(", "));
    }
    table
}

#[test]
fn the_documentation_has_the_flags_that_help_has() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/traffic-manager.md");
    let text = std::fs::read_to_string(path).unwrap();
    let table = table_of_flags();
    assert!(
        text.contains(&table),
        "docs/traffic-manager.md lacks:\n{table}"
    );
}
