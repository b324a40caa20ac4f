//! How users prove who they are to the Kubernetes API, and the proxies on the way there.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    daemon::Daemon,
    lab::{Lab, NODE},
    product::{Attempt, status},
    wait::until,
};

use crate::reach::{contains, with_pod};

const START: Duration = Duration::from_secs(60);

/// Where tinyproxy listens on the node.
const PROXY_PORT: u16 = 3128;
/// Where the gateway that drops upgrades listens.
const GATEWAY_PORT: u16 = 8080;

#[test]
fn l19_tokens_certificates_and_plugins_let_in_and_a_failing_one_ends_nothing() -> Result<()> {
    let lab = Lab::start()?;
    let _pod = with_pod(&lab)?;
    let mut checks = Checks::new();
    let (certificate, key) = lab.api.client_certificate(&lab.node, "dev")?;
    let files = format!(
        "client-certificate: '{}', client-key: '{}'",
        certificate.display(),
        key.display()
    );
    let issuing = plugin(&lab, "issuing", &{
        let status = serde_json::json!({
            "clientCertificateData": fs::read_to_string(&certificate)?,
            "clientKeyData": fs::read_to_string(&key)?,
        });
        print(&lab, "issued", &status)?
    })?;
    let giving = plugin(&lab, "giving", &{
        let status = serde_json::json!({"token": "dev-token", "expirationTimestamp": "2099-01-01T00:00:00Z"});
        print(&lab, "given", &status)?
    })?;
    for (what, user) in [
        ("a client certificate", files.as_str()),
        ("a plugin that issues certificates", &issuing),
        ("a plugin that gives tokens", &giving),
    ] {
        checks.that(what, works(&lab, user, &[]));
    }

    let hanging = plugin(&lab, "failing", "echo 'run login first' >&2; exit 1")?;
    lab.api.write_kubeconfig("dev", &hanging)?;
    let attempt = start(&lab, &[])?;
    let ended = attempt.ended()?;
    let said = attempt.said()?;
    checks.that(
        "a failing plugin",
        contains(&said, "exit status: 1: run login first"),
    );
    ensure!(ended.code() == Some(77), "{ended}: {said}");

    checks.that("hours later", expires(&lab));
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// A plugin whose token ends soon, and which later does not work any longer: the tunnel stays,
/// status tells, and when it works again, all is well without a new session.
fn expires(lab: &Lab) -> Result<()> {
    let folder = lab.logs();
    let broken = folder.join("broken");
    let file = print(
        lab,
        "short",
        &serde_json::json!({"token": "dev-token", "expirationTimestamp": "2020-01-01T00:00:00Z"}),
    )?;
    let lines = format!(
        "test -e {} && {{ echo 'log in' >&2; exit 1; }}\n{file}",
        broken.display()
    );
    let user = plugin(lab, "short", &lines)?;
    lab.api.write_kubeconfig("dev", &user)?;
    let session = start(lab, &[])?.connected()?;
    fs::write(&broken, "")?;
    // The API server forgets the tunnel, so that the session needs its credentials again.
    lab.api.kill_api()?;
    lab.api.start_api(&lab.node)?;
    until("status to tell of the plugin", START, || {
        let standing = status(lab)?["credentials"].to_string();
        contains(&standing, "log in")?;
        contains(&standing, "short")
    })?;
    fs::remove_file(&broken)?;
    until("the session to be connected again", START, || {
        let standing = status(lab)?;
        ensure!(standing["state"] == "connected", "{standing}");
        ensure!(standing["credentials"]["trouble"].is_null(), "{standing}");
        Ok(())
    })?;
    session.end_at_once()
}

#[test]
fn l19_proxies_are_taken_as_kubectl_takes_them_and_those_in_the_way_are_named() -> Result<()> {
    let lab = Lab::start()?;
    let _pod = with_pod(&lab)?;
    let mut checks = Checks::new();
    let allow = "Allow 0.0.0.0/0\nConnectPort 6443\nBasicAuth user secret\n";
    let proxy = tinyproxy(&lab, "proxy", PROXY_PORT, allow)?;
    let url = format!("http://user:secret@{NODE}:{PROXY_PORT}");
    let connects = || -> Result<usize> { Ok(proxy.log()?.matches("CONNECT").count()) };

    checks.that("HTTPS_PROXY", works(&lab, TOKEN, &[("HTTPS_PROXY", &url)]));
    let by_proxy = connects()?;
    checks.that("it was used", must(by_proxy > 0));

    let around = [
        ("HTTPS_PROXY", url.as_str()),
        ("NO_PROXY", "198.51.100.0/24"),
    ];
    checks.that("NO_PROXY", works(&lab, TOKEN, &around));
    checks.that("it was not used", must(connects()? == by_proxy));

    let kubeconfig = fs::read_to_string(lab.api.kubeconfig("dev"))?;
    let with_proxy = kubeconfig.replace(
        "cluster: {server",
        &format!("cluster: {{proxy-url: '{url}', server"),
    );
    fs::write(lab.api.kubeconfig("dev"), with_proxy)?;
    checks.that("proxy-url", session(&lab, &[("NO_PROXY", "*")]));
    checks.that("it was used again", must(connects()? > by_proxy));

    let nobody = format!("http://{NODE}:{PROXY_PORT}");
    lab.api.write_kubeconfig("dev", TOKEN)?;
    let words = "the proxy wants a user and a password";
    checks.that(words, refused(&lab, &[("https_proxy", &nobody)], words));

    // A gateway that speaks HTTP of its own to the API server passes no upgrade.
    let mut command = lab.api.proxy(&lab.node);
    command.arg("--accept-hosts=.*");
    let behind = Daemon::start("kubectl-proxy", &lab.logs(), command)?;
    behind.until_says("Starting to serve", START)?;
    let reverse =
        "Allow 0.0.0.0/0\nReverseOnly Yes\nReversePath \"/\" \"http://127.0.0.1:8001/\"\n";
    let _gateway = tinyproxy(&lab, "gateway", GATEWAY_PORT, reverse)?;
    let gateway = kubeconfig.replace(
        &format!("https://{NODE}:6443"),
        &format!("http://{NODE}:{GATEWAY_PORT}"),
    );
    fs::write(lab.api.kubeconfig("dev"), gateway)?;
    let words = "does not let WebSockets through";
    checks.that(words, refused(&lab, &[], words));

    checks.finish()?;
    lab.finish();
    Ok(())
}

const TOKEN: &str = "token: dev-token";

/// A session that touches nothing of the machine but its link.
fn start<'lab>(lab: &'lab Lab, environment: &[(&str, &str)]) -> Result<Attempt<'lab>> {
    let kubeconfig = lab.api.kubeconfig("dev");
    let options = ["--dns", "off", "--hosts", "off"];
    Attempt::start_by_kubeconfig(lab, &kubeconfig, environment, &options)
}

fn session(lab: &Lab, environment: &[(&str, &str)]) -> Result<()> {
    start(lab, environment)?.connected()?.terminate()
}

fn works(lab: &Lab, user: &str, environment: &[(&str, &str)]) -> Result<()> {
    lab.api.write_kubeconfig("dev", user)?;
    session(lab, environment)
}

fn refused(lab: &Lab, environment: &[(&str, &str)], words: &str) -> Result<()> {
    let attempt = start(lab, environment)?;
    let ended = attempt.ended()?;
    let said = attempt.said()?;
    ensure!(ended.code() == Some(69), "{ended}: {said}");
    contains(&said, words)
}

fn must(holds: bool) -> Result<()> {
    ensure!(holds, "it is not so");
    Ok(())
}

/// The shell line that prints an ExecCredential with this status.
fn print(lab: &Lab, name: &str, status: &serde_json::Value) -> Result<String> {
    let credential = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
    });
    let file = lab.logs().join(format!("{name}.credential"));
    fs::write(&file, credential.to_string())?;
    Ok(format!("cat {}", file.display()))
}

/// The fields of a user with a plugin of shell lines.
fn plugin(lab: &Lab, name: &str, lines: &str) -> Result<String> {
    let path: PathBuf = lab.logs().join(format!("{name}-login"));
    fs::write(&path, format!("#!/bin/sh\n{lines}\n"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: '{}', interactiveMode: Never}}",
        path.display()
    ))
}

fn tinyproxy(lab: &Lab, name: &str, port: u16, more: &str) -> Result<Daemon> {
    let config = lab.logs().join(format!("{name}.conf"));
    fs::write(
        &config,
        format!("Port {port}\nListen {NODE}\nTimeout 600\nLogLevel Connect\n{more}"),
    )?;
    let mut command = lab.node.command("tinyproxy");
    command.arg("-d").arg("-c").arg(&config);
    let daemon = Daemon::start(name, &lab.logs(), command)?;
    until("tinyproxy to listen", START, || {
        lab.node
            .output(&["bash", "-c", &format!("echo >/dev/tcp/{NODE}/{port}")])
    })?;
    Ok(daemon)
}
