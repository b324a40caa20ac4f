//! Real plugins: shell scripts that print, fail, hang and look around.

use std::collections::HashMap;

use super::*;

/// A plugin of shell lines.
fn plugin(script: &str) -> ExecConfig {
    ExecConfig {
        api_version: Some(VERSIONS[0].to_owned()),
        command: Some("/bin/sh".to_owned()),
        args: Some(vec!["-c".to_owned(), script.to_owned()]),
        interactive_mode: Some(ExecInteractiveMode::IfAvailable),
        ..ExecConfig::default()
    }
}

fn printing(status: &str) -> ExecConfig {
    let version = VERSIONS[0];
    plugin(&format!(
        "echo '{{\"apiVersion\": \"{version}\", \"kind\": \"ExecCredential\", \"status\": {status}}}'"
    ))
}

#[tokio::test]
async fn l19_a_token_is_read_with_its_expiry() {
    let exec = printing(r#"{"token": "t1", "expirationTimestamp": "2030-01-02T03:04:05Z"}"#);
    let issued = run(&exec, "dev").await.unwrap();
    assert_eq!(issued.token.as_deref(), Some("t1"));
    assert_eq!(issued.expiry.unwrap().to_string(), "2030-01-02T03:04:05Z");
    assert!(!format!("{issued:?}").contains("t1"));
}

#[tokio::test]
async fn l19_a_certificates_own_end_counts_where_it_is_sooner() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.not_after = rcgen::date_time_ymd(2031, 5, 6);
    let chain = parameters.self_signed(&key).unwrap().pem();
    for (said, wanted) in [
        ("null", "2031-05-06T00:00:00Z"),
        ("\"2032-01-01T00:00:00Z\"", "2031-05-06T00:00:00Z"),
        ("\"2030-01-01T00:00:00Z\"", "2030-01-01T00:00:00Z"),
    ] {
        let status = format!(
            "{{\"clientCertificateData\": {}, \"clientKeyData\": {}, \"expirationTimestamp\": {said}}}",
            serde_json::to_string(&chain).unwrap(),
            serde_json::to_string(&key.serialize_pem()).unwrap(),
        );
        // By a file: the shell would read the \n of the text.
        let file = tempfile::NamedTempFile::new().unwrap();
        let version = VERSIONS[0];
        std::fs::write(
            file.path(),
            format!("{{\"apiVersion\": \"{version}\", \"status\": {status}}}"),
        )
        .unwrap();
        let exec = plugin(&format!("cat {}", file.path().display()));
        let issued = run(&exec, "dev").await.unwrap();
        assert_eq!(issued.certificate.unwrap().0, chain);
        assert_eq!(issued.expiry.unwrap().to_string(), wanted, "{said}");
    }
}

#[tokio::test]
async fn l19_a_plugin_has_no_stdin_and_is_told_so() {
    let script = "read line && exit 3
test -t 0 && exit 4
case $KUBERNETES_EXEC_INFO in *'\"interactive\":false'*) ;; *) exit 5 ;; esac
test \"$GREETING\" = hello || exit 6
echo \"{apiVersion: client.authentication.k8s.io/v1, status: {token: t}}\"";
    let exec = ExecConfig {
        env: Some(vec![HashMap::from([
            ("name".to_owned(), "GREETING".to_owned()),
            ("value".to_owned(), "hello".to_owned()),
        ])]),
        ..plugin(script)
    };
    assert_eq!(run(&exec, "dev").await.unwrap().token.unwrap(), "t");
}

/// Waits, by the kernel's own word, until nothing holds the write end of the pipe any longer.
fn until_closed(pipe: std::fs::File) {
    let read = io::read_to_string(pipe).unwrap();
    assert_eq!(read, "");
}

#[tokio::test(start_paused = true)]
async fn l19_a_hanging_plugin_is_ended_with_its_children_after_30_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("alive");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    // Both the shell and its child hold the pipe open for as long as they live.
    let exec = plugin(&format!("exec 9>{}; sleep 3600 & wait", fifo.display()));
    let opened = tokio::task::spawn_blocking(move || std::fs::File::open(fifo));

    let problem = run(&exec, "dev").await.unwrap_err();

    assert_eq!(problem.kind, Kind::Unauthorized);
    let text = problem.to_string();
    assert!(text.ends_with("did not end within 30s"), "{text}");
    let alive = opened.await.unwrap().unwrap();
    tokio::task::spawn_blocking(move || until_closed(alive))
        .await
        .unwrap();
}

#[tokio::test]
async fn what_a_plugin_does_wrong_is_told_without_what_it_printed() {
    let version = VERSIONS[0];
    let table = [
        (
            plugin("echo first >&2; echo not logged in >&2; exit 7"),
            "exit status: 7: not logged in",
        ),
        (plugin("echo secret"), "is no ExecCredential"),
        (
            plugin(
                "echo '{apiVersion: client.authentication.k8s.io/v1alpha1, status: {token: secret}}'",
            ),
            "it speaks client.authentication.k8s.io/v1alpha1",
        ),
        (
            plugin(&format!("echo '{{apiVersion: {version}}}'")),
            "no status",
        ),
        (printing("{}"), "neither a token nor a certificate"),
        (
            printing(r#"{"clientCertificateData": "secret"}"#),
            "without a key",
        ),
        (
            printing(r#"{"token": "secret", "expirationTimestamp": "soon"}"#),
            "expirationTimestamp \"soon\" is no time",
        ),
        (
            ExecConfig {
                command: Some("/nowhere/login".to_owned()),
                install_hint: Some("brew install login\nor so".to_owned()),
                ..plugin("")
            },
            "cannot be run",
        ),
        (
            ExecConfig {
                interactive_mode: Some(ExecInteractiveMode::Always),
                ..plugin("exit 0")
            },
            "works in a terminal only",
        ),
        (
            ExecConfig {
                api_version: Some("v0".to_owned()),
                ..plugin("exit 0")
            },
            "apiVersion \"v0\" is not one of",
        ),
    ];
    for (exec, wanted) in table {
        let problem = run(&exec, "dev").await.unwrap_err();
        let text = problem.to_string();
        assert!(text.contains(wanted), "{wanted}: {text}");
        assert!(text.contains("of user dev"), "{text}");
        assert!(!text.contains("secret") && !text.contains('\n'), "{text}");
    }
}

#[test]
fn the_command_line_of_a_plugin_can_be_typed() {
    let exec = plugin("echo a b");
    assert_eq!(command_line(&exec), "/bin/sh -c 'echo a b'");
}
