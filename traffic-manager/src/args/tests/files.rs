//! What a configuration file gives, and why one is refused.

use super::*;

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
