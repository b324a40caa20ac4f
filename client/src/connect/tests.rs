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
fn what_connect_cannot_do_without_is_a_usage_error_that_says_so() {
    let table: [(&[&str], &str); 9] = [
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
