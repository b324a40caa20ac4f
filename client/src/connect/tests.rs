//! Which arguments make a configuration.

use std::ffi::OsString;

use super::*;
use crate::cli::{Command, Parsed, parse};
use crate::failure::Exit;

fn resolve(arguments: &[&str]) -> Result<Config, Failure> {
    let all: Vec<OsString> = ["kubebridge", "connect"]
        .iter()
        .chain(arguments)
        .map(OsString::from)
        .collect();
    let Parsed::Run(cli) = parse(&all)? else {
        panic!("nothing to run")
    };
    let Command::Connect(connect) = &cli.command else {
        panic!("another command")
    };
    Config::resolve(connect, &cli.global)
}

#[test]
fn each_namespace_counts_once_and_default_is_the_default() {
    let base = ["--manager", "127.0.0.1:7080", "--foreground"];

    let config =
        resolve(&[&base[..], &["-n", "shop", "-n", "default", "-n", "shop"]].concat()).unwrap();

    assert_eq!(config.namespaces, ["shop", "default"]);
    assert_eq!(resolve(&base).unwrap().namespaces, ["default"]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn what_connect_cannot_do_without_is_a_usage_error_that_says_so() {
    let table: [(&[&str], &str); 12] = [
        (
            &["--manager", "manager.example:7080", "--foreground"],
            "needs --tls-cert",
        ),
        (
            &["--manager", "[::1]:7080", "--foreground", "--tls-ca", "a"],
            "--tls-key",
        ),
        (
            &[
                "--manager",
                "[::1]:7080",
                "--foreground",
                "--token",
                "shop=a,shop=b",
            ],
            "--token names shop twice",
        ),
        (
            &["--manager", "manager.example", "--foreground"],
            "HOST:PORT",
        ),
        (
            &["--manager", "10.0.0.7:7080", "--foreground"],
            "not a loopback address",
        ),
        (
            &["--manager", "[::1]:7080", "--foreground", "--domain", "com"],
            "\"com\" is refused",
        ),
        (
            &["--manager", "[::1]:7080", "--foreground", "--domain", "."],
            "--domain",
        ),
        (
            &[
                "--manager",
                "[::1]:7080",
                "--foreground",
                "--include-cidr",
                "10.0.0.0/7",
            ],
            "--include-cidr: the route 10.0.0.0/7 is refused: wider than /8",
        ),
        (
            &[
                "--manager",
                "[::1]:7080",
                "--foreground",
                "--include-cidr=169.254.169.254",
            ],
            "169.254.0.0/16 is reserved",
        ),
        (
            &["--manager", "[::1]:7080", "--take-cidr", "10.0.0.0/7"],
            "--take-cidr: the route 10.0.0.0/7 is refused: wider than /8",
        ),
        (
            &[
                "--manager",
                "[::1]:7080",
                "--proxy-listen",
                "127.0.0.1:1080",
            ],
            "--proxy-listen is for --mode proxy",
        ),
        (
            &[
                "--manager",
                "[::1]:7080",
                "--mode=proxy",
                "--proxy-listen=0.0.0.0:1080",
            ],
            "--proxy-listen 0.0.0.0:1080 is not a loopback address",
        ),
    ];
    for (arguments, wanted) in table {
        let failure = resolve(arguments).unwrap_err();

        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.error.to_string().contains(wanted), "{failure}");
        assert!(failure.hint.is_some());
    }
}

#[test]
fn files_for_tls_that_are_not_there_are_told_before_anything_is_done() {
    let failure = resolve(&[
        "--manager",
        "manager.example:7080",
        "--foreground",
        "--tls-cert=/none/a",
        "--tls-key=/none/b",
        "--tls-ca=/none/c",
    ]);
    let failure = failure.unwrap_err();
    assert_eq!(failure.exit, Exit::File);
    assert!(
        format!("{:#}", failure.error).contains("/none/c"),
        "{failure}"
    );
}

#[test]
fn a_proxy_listens_on_any_free_port_of_loopback_or_on_the_one_that_is_named() {
    let proxy = ["--manager", "[::1]:7080", "--mode=proxy"];
    for (more, listens) in [
        (None, "127.0.0.1:0"),
        (Some("--proxy-listen=127.0.0.1:1080"), "127.0.0.1:1080"),
        (Some("--proxy-listen=[::1]:1080"), "[::1]:1080"),
    ] {
        let arguments: Vec<_> = proxy.into_iter().chain(more).collect();
        let config = resolve(&arguments).unwrap();
        assert_eq!(config.proxy_listen.to_string(), listens);
    }
}
