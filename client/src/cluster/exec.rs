//! Runs the exec plugin of a kubeconfig's user: without a terminal, within a time limit.
//!
//! Keeps nothing: [`credentials`](super::credentials) decides when it is run, and holds what it gave.

use std::fmt;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::expiry;
use super::problem::{Kind, Problem};

/// How long a plugin may run (lifecycle 19).
const LIMIT: Duration = Duration::from_secs(30);
/// The most that is read of what it prints: a certificate chain with its key is some kilobytes.
const OUTPUT: u64 = 1 << 20;
/// The versions of the plugin interface there are.
const VERSIONS: [&str; 2] = [
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];

/// What a plugin gave.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Issued {
    pub(super) token: Option<String>,
    /// Certificate chain and key, both PEM.
    pub(super) certificate: Option<(String, String)>,
    /// Until when it may be used; `None` when the plugin does not say.
    pub(super) expiry: Option<Timestamp>,
}

/// Without the secrets.
impl fmt::Debug for Issued {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Issued")
            .field("token", &self.token.is_some())
            .field("certificate", &self.certificate.is_some())
            .field("expiry", &self.expiry)
            .finish()
    }
}

#[derive(Deserialize)]
struct ExecCredential {
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Runs the plugin of `user` once.
pub(super) async fn run(exec: &ExecConfig, user: &str) -> Result<Issued, Problem> {
    let name = exec.command.as_deref().unwrap_or_default();
    let about = format!("exec plugin {name} of user {user}");
    let failed = |what: String| Problem::new(Kind::Unauthorized, format!("{about}: {what}"));
    if name.is_empty() {
        let what = format!("the exec entry of user {user} names no command");
        return Err(Problem::new(Kind::File, what));
    }
    if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err(
            failed("it works in a terminal only (interactiveMode: Always)".to_owned())
                .with_hint("log in so that the kubeconfig holds a token or certificate, or have the plugin take IfAvailable"),
        );
    }
    let info =
        exec_info(exec).map_err(|what| Problem::new(Kind::File, format!("{about}: {what}")))?;
    let child = start(exec, name, &info).map_err(|error| cannot_start(&failed, exec, &error))?;
    let mut running = Running::new(child);
    let ended = match timeout(LIMIT, running.finish()).await {
        Ok(ended) => ended.map_err(|error| failed(error.to_string()))?,
        Err(_) => {
            return Err(failed(format!("did not end within {LIMIT:?}"))
                .with_hint(format!("does it ask for something? {}", command_line(exec))));
        }
    };
    if let Some(why) = ended.failure {
        return Err(failed(why).with_hint(command_line(exec)));
    }
    read(&ended.output, exec.api_version.as_deref()).map_err(failed)
}

/// What runs the plugin by hand, for a hint.
pub(super) fn command_line(exec: &ExecConfig) -> String {
    let words = exec.command.iter().chain(exec.args.iter().flatten());
    let words: Vec<_> = words
        .map(|word| {
            if word.contains(char::is_whitespace) || word.is_empty() {
                format!("'{word}'")
            } else {
                word.clone()
            }
        })
        .collect();
    words.join(" ")
}

fn cannot_start(
    failed: &impl Fn(String) -> Problem,
    exec: &ExecConfig,
    error: &io::Error,
) -> Problem {
    let problem = failed(format!("cannot be run: {error}"));
    let hint = exec.install_hint.as_deref().unwrap_or_default().trim();
    match hint.lines().next() {
        Some(line) if !line.is_empty() => problem.with_hint(line.to_owned()),
        _ => problem.with_hint("install it, or put its folder into PATH (sudo has one of its own)"),
    }
}

/// What the plugin is told of who runs it.
fn exec_info(exec: &ExecConfig) -> Result<String, String> {
    let version = exec.api_version.as_deref().unwrap_or_default();
    if !VERSIONS.contains(&version) {
        return Err(format!(
            "apiVersion {version:?} is not one of {}",
            VERSIONS.join(", ")
        ));
    }
    let mut spec = serde_json::json!({"interactive": false});
    if exec.provide_cluster_info {
        spec["cluster"] = serde_json::to_value(&exec.cluster).map_err(|error| error.to_string())?;
    }
    let info = serde_json::json!({"apiVersion": version, "kind": "ExecCredential", "spec": spec});
    Ok(info.to_string())
}

fn start(exec: &ExecConfig, name: &str, info: &str) -> io::Result<Child> {
    let variables = exec.env.iter().flatten();
    let variables = variables.filter_map(|pair| Some((pair.get("name")?, pair.get("value")?)));
    Command::new(name)
        .args(exec.args.iter().flatten())
        .envs(variables)
        .env("KUBERNETES_EXEC_INFO", info)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // What it starts itself shall end with it.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// A plugin at work; it and its children are killed when this is dropped before they end.
struct Running {
    child: Child,
    group: Option<Pid>,
}

struct Ended {
    output: Vec<u8>,
    failure: Option<String>,
}

impl Running {
    fn new(child: Child) -> Self {
        let group = child.id().and_then(|id| i32::try_from(id).ok());
        Self {
            child,
            group: group.and_then(Pid::from_raw),
        }
    }

    async fn finish(&mut self) -> io::Result<Ended> {
        let stdout = self.child.stdout.take();
        let stderr = self.child.stderr.take();
        let (output, said) = futures::future::join(read_all(stdout), read_all(stderr)).await;
        let status = self.child.wait().await?;
        self.group = None;
        let failure = (!status.success()).then(|| {
            let said = String::from_utf8_lossy(&said);
            let last = said.lines().rfind(|line| !line.trim().is_empty());
            match last {
                Some(line) => format!("ended with {status}: {}", line.trim()),
                None => format!("ended with {status}"),
            }
        });
        Ok(Ended { output, failure })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // It may have ended in this moment.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Reads to the end, and keeps no more than [`OUTPUT`].
async fn read_all(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let mut stream = stream.take(OUTPUT);
        // What was read until it broke says the most there is to say.
        let _ = stream.read_to_end(&mut bytes).await;
    }
    bytes
}

/// Reads what a plugin printed.
fn read(output: &[u8], version: Option<&str>) -> Result<Issued, String> {
    // The text is not repeated: it holds secrets.
    let credential: ExecCredential = std::str::from_utf8(output)
        .ok()
        .and_then(|text| serde_saphyr::from_str(text).ok())
        .ok_or("what it printed is no ExecCredential")?;
    if credential.api_version.as_deref() != version {
        return Err(format!(
            "it speaks {}, the kubeconfig wants {}",
            credential.api_version.as_deref().unwrap_or("no version"),
            version.unwrap_or("none")
        ));
    }
    let status = credential
        .status
        .ok_or("it gave no credentials (no status)")?;
    let expiry = status
        .expiration_timestamp
        .map(|text| {
            text.parse()
                .map_err(|_| format!("expirationTimestamp {text:?} is no time"))
        })
        .transpose()?;
    let certificate = match (status.client_certificate_data, status.client_key_data) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("it gave a certificate without a key, or a key alone".to_owned()),
    };
    let token = status.token.filter(|token| !token.is_empty());
    if token.is_none() && certificate.is_none() {
        return Err("it gave neither a token nor a certificate".to_owned());
    }
    // A certificate that ends sooner than the plugin says, or says nothing of, ends all the same.
    let of_certificate = certificate
        .as_ref()
        .and_then(|(chain, _)| expiry::of_certificate(chain));
    Ok(Issued {
        token,
        certificate,
        expiry: [expiry, of_certificate].into_iter().flatten().min(),
    })
}

#[cfg(test)]
mod tests;
