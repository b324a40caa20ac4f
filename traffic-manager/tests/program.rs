//! The program itself: log lines, signals and exit codes, as its users see them.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are not in tests for clippy"
)]

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process::{Child, Command, Output, Stdio};

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_traffic-manager"));
    command.args(arguments).env_clear();
    command
}

fn ended(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = program(arguments).output().unwrap();
    let text = |octets: Vec<u8>| String::from_utf8(octets).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A program that serves on ports of its own choice.
fn serving(more: &[&str]) -> (Child, BufReader<std::process::ChildStderr>) {
    let ports = [
        "--dns-listen=127.0.0.1:0",
        "--grpc-listen=127.0.0.1:0",
        "--admin-listen=127.0.0.1:0",
    ];
    let mut command = program(&["serve"]);
    command.args(ports).args(more).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    (child, stderr)
}

fn line_with(stderr: &mut impl BufRead, what: &str) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(
            stderr.read_line(&mut line).unwrap(),
            0,
            "no line with {what}"
        );
        if line.contains(what) {
            return line;
        }
    }
}

fn terminate(child: &mut Child) -> Option<i32> {
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    child.wait().unwrap().code()
}

#[test]
fn each_listener_is_logged_with_its_address_and_sigterm_ends_well() {
    let (mut child, mut stderr) = serving(&["--upstream=127.0.0.1:9"]);
    for listener in ["dns", "grpc", "admin"] {
        let line = line_with(&mut stderr, &format!("listener=\"{listener}\""));
        let (_, address) = line.trim_end().split_once("address=127.0.0.1:").unwrap();
        assert_ne!(address.parse::<u16>().unwrap(), 0);
    }
    line_with(&mut stderr, "started");
    assert_eq!(terminate(&mut child), Some(0));
}

#[test]
fn json_logs_are_one_object_a_line() {
    let (mut child, mut stderr) = serving(&["--upstream=127.0.0.1:9", "--log-format=json"]);
    let line = line_with(&mut stderr, "\"dns\"");
    let object: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(object["fields"]["listener"], "dns");
    line_with(&mut stderr, "started");
    assert_eq!(terminate(&mut child), Some(0));
}

#[test]
fn exit_codes_tell_usage_file_and_busy_port_apart() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let grpc = format!("--grpc-listen={}", taken.local_addr().unwrap());
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let dns = format!("--dns-listen={}", udp.local_addr().unwrap());
    let any = ["serve", "--admin-listen=127.0.0.1:0"];
    for (arguments, code) in [
        (vec!["--bogus"], 64),
        (
            vec![
                "--dns-listen=127.0.0.1:0",
                "--grpc-listen=127.0.0.1:0",
                "--resolv-conf=/nonexistent",
            ],
            78,
        ),
        (vec!["--config=/nonexistent"], 78),
        (vec!["--dns-listen=127.0.0.1:0", &grpc], 73),
        (vec![&dns, "--grpc-listen=127.0.0.1:0"], 73),
    ] {
        let (found, stdout, stderr) = ended(&[&any[..], &arguments].concat());
        assert_eq!(found, Some(code), "{arguments:?}: {stderr}");
        let last: Vec<_> = stderr.lines().rev().take(2).collect();
        assert!(stdout.is_empty());
        assert!(stderr.contains("error: "), "{stderr}");
        assert!(
            last[0].starts_with("hint: ") || last[0].starts_with("error: "),
            "{stderr}"
        );
    }
}

#[test]
fn check_config_and_help_go_to_stdout() {
    let (code, stdout, stderr) = ended(&["check-config", "--ndots=3"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("ndots: 3\n"), "{stdout}");
    let (code, stdout, _) = ended(&["serve", "--help"]);
    assert_eq!(code, Some(0));
    assert!(stdout.contains("--resolv-conf"), "{stdout}");
}
