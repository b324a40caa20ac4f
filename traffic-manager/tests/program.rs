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
fn the_network_of_a_node_ends_with_64_before_anything_listens() {
    let shared = |pod: &str| {
        let mut command = program(&[
            "serve",
            "--dns-listen=127.0.0.1:0",
            "--grpc-listen=127.0.0.1:0",
            "--admin-listen=127.0.0.1:0",
            "--resolv-conf=/nonexistent",
        ]);
        command.env("KUBEBRIDGE_POD_IP", pod);
        let Output { status, stderr, .. } = command
            .env("KUBEBRIDGE_HOST_IP", "198.51.100.10")
            .output()
            .unwrap();
        (status.code(), String::from_utf8(stderr).unwrap())
    };
    let (code, stderr) = shared("198.51.100.10");
    assert_eq!(code, Some(64), "{stderr}");
    is_error(
        &stderr,
        "error: the pod runs with hostNetwork (its address 198.51.100.10 is the node's): \
         every process of the node would reach gRPC",
        "hint: remove `hostNetwork: true` from the pod's spec",
    );
    // An address of its own, and none yet, are as they should be: the next mistake is told.
    for pod in ["10.244.0.7", ""] {
        assert_eq!(shared(pod).0, Some(78), "{pod}");
    }
}

#[test]
fn a_ca_file_that_cannot_be_used_ends_with_78_and_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("ca.pem");
    std::fs::write(&empty, "no certificate").unwrap();
    for (path, expected) in [
        (
            "/nonexistent/ca.pem",
            "cannot read CA file /nonexistent/ca.pem: ",
        ),
        (&empty.display().to_string(), "holds no usable certificate"),
    ] {
        let (code, stderr) = refused(&[
            "--dns-listen=127.0.0.1:0",
            "--upstream=tls://127.0.0.1:9#dns.example",
            &format!("--upstream-ca={path}"),
        ]);
        assert_eq!(code, Some(78), "{stderr}");
        is_error(&stderr, expected, "--upstream-ca");
        assert!(stderr.contains(path), "{stderr}");
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

/// Runs with ports of its own choice, and returns the exit code and what is on stderr.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let ports = ["--grpc-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"];
    let (code, stdout, stderr) = ended(&[&["serve"], &ports[..], arguments].concat());
    assert_eq!(stdout, "");
    (code, stderr)
}

/// One line that says what is wrong, one that says what helps, and nothing else.
fn is_error(stderr: &str, expected: &str, hint: &str) {
    let lines: Vec<_> = stderr.lines().collect();
    let [error, help] = lines.as_slice() else {
        panic!("not two lines:\n{stderr}")
    };
    assert!(
        error.starts_with("error: ") && error.contains(expected),
        "{stderr}\ninstead of\n{expected}"
    );
    assert!(
        help.starts_with("hint: ") && help.contains(hint),
        "{stderr}"
    );
}

const ONE: &str = "kind: Service\nmetadata: {name: authors}\n";

#[test]
fn malformed_manifests_end_with_78_and_name_service_field_and_value() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("services.yaml");
    let flag = format!("--services={}", file.display());
    let one = |spec: &str| format!("{ONE}spec: {spec}\n");
    for (text, expected) in [
        ("a: [\n".to_owned(), "not a YAML or JSON document: "),
        ("a: 1\n".to_owned(), "a document has no kind"),
        ("kind: List\n".to_owned(), "a List has no items"),
        (one("{}"), "Service default/authors has no spec.clusterIP"),
        (
            one("{clusterIP: 10.96.0}"),
            "Service default/authors has the invalid spec.clusterIP \"10.96.0\"",
        ),
        (
            one("{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, nonsense]}"),
            "Service default/authors has the invalid spec.clusterIP \"nonsense\"",
        ),
        (
            one("{type: ExternalName}"),
            "Service default/authors has the invalid spec.externalName \"\"",
        ),
        (
            one("{type: Odd, clusterIP: 10.96.0.1}"),
            "Service default/authors has the unknown spec.type \"Odd\"",
        ),
        (one("{ports: 7}"), "Service authors is malformed: "),
        (
            "kind: Service\nmetadata: {name: No_Label}\nspec: {clusterIP: None}\n".to_owned(),
            "metadata.name is \"No_Label\"",
        ),
        (
            "kind: Service\nmetadata: {}\nspec: {clusterIP: None}\n".to_owned(),
            "metadata.name is missing",
        ),
        (
            format!("{0}---\n{0}", one("{clusterIP: None}")),
            "Service default/authors is there twice",
        ),
    ] {
        std::fs::write(&file, &text).unwrap();
        let (code, stderr) = refused(&["--dns-listen=127.0.0.1:0", &flag]);
        assert_eq!(code, Some(78), "{text}\n{stderr}");
        is_error(&stderr, expected, "each Service has a metadata.name");
        assert!(stderr.contains(&file.display().to_string()), "{stderr}");
    }
    std::fs::write(&file, [0xff, 0xfe, 0x00]).unwrap();
    let (code, stderr) = refused(&["--dns-listen=127.0.0.1:0", &flag]);
    assert_eq!(code, Some(78));
    is_error(&stderr, "cannot read it: ", "YAML or JSON");
    let (code, stderr) = refused(&["--dns-listen=127.0.0.1:0", "--services=/nonexistent/file"]);
    assert_eq!(code, Some(78));
    is_error(
        &stderr,
        "/nonexistent/file: cannot read it: ",
        "YAML or JSON",
    );
}

#[test]
fn unknown_keys_of_the_configuration_end_with_78_and_name_the_nearest() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    std::fs::write(&file, "upstrem: [10.96.0.10]\n").unwrap();
    let flag = format!("--config={}", file.display());
    let (code, stderr) = refused(&["--dns-listen=127.0.0.1:0", &flag]);
    assert_eq!(code, Some(78));
    is_error(
        &stderr,
        "unknown key \"upstrem\"",
        "did you mean `upstream`?",
    );
}

/// Whatever holds the port on all addresses keeps it on each of them, over UDP and over TCP.
#[test]
fn a_port_held_on_all_addresses_ends_with_73_and_names_the_flag() {
    let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let tcp = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    for port in [
        udp.local_addr().unwrap().port(),
        tcp.local_addr().unwrap().port(),
    ] {
        for host in ["127.0.0.1", "0.0.0.0", "[::]"] {
            let flag = format!("--dns-listen={host}:{port}");
            let (code, stderr) = refused(&[&flag, "--upstream=127.0.0.1:9"]);
            assert_eq!(code, Some(73), "{stderr}");
            let expected = format!("cannot listen on {host}:{port} for dns: ");
            is_error(&stderr, &expected, "--dns-listen");
        }
    }
}

#[test]
fn a_kubeconfig_that_cannot_be_used_ends_with_78_and_says_what_helps() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    std::fs::write(&file, "clusters: [\n").unwrap();
    for path in ["/nonexistent/kubeconfig", &file.display().to_string()] {
        let output = program(&["serve", "--kubernetes", "--dns-listen=127.0.0.1:0"])
            .args(["--grpc-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"])
            .env("KUBECONFIG", path)
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{stderr}");
        is_error(&stderr, "cannot use --kubernetes: ", "set KUBECONFIG");
    }
}
