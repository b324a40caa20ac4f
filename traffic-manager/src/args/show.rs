//! The resolved configuration as YAML that `--config` reads.

use std::fmt::{Display, Write as _};

use clap::ValueEnum;
use serde_json::Value;

use super::duration;
use crate::access::key_file::KeyFile;
use crate::config::{Config, Namespaces, Source};
use crate::tls::TlsFiles;

/// Writes a configuration, one key a line.
pub(super) fn text(config: &Config) -> String {
    let resolution = &config.resolution;
    let mut lines = Lines::default();
    lines.list("dns-listen", &config.dns_listen);
    lines.one("grpc-listen", config.grpc_listen);
    lines.one("admin-listen", config.admin_listen);
    if let Some(path) = &resolution.resolv_conf {
        lines.one("resolv-conf", path.display());
    }
    lines.list("upstream", &resolution.upstreams);
    let files = resolution.upstream_cas.iter().map(|path| path.display());
    lines.list("upstream-ca", files);
    lines.list("search", &resolution.search);
    lines.number("ndots", resolution.ndots);
    if let Some(timeout) = resolution.timeout {
        lines.one("timeout", duration::text(timeout));
    }
    lines.number("attempts", resolution.attempts);
    if let Some(domain) = &resolution.cluster_domain {
        lines.one("cluster-domain", domain);
    }
    let namespaces = match &config.source {
        Source::None => &Namespaces::Own,
        Source::Kubernetes(namespaces) => {
            lines.raw("kubernetes", "true");
            namespaces
        }
        Source::Manifests { file, namespaces } => {
            lines.one("services", file.display());
            namespaces
        }
    };
    match namespaces {
        Namespaces::Own => {}
        Namespaces::These(names) => lines.list("namespace", names),
        Namespaces::All => lines.raw("all-namespaces", "true"),
    }
    lines.word("answer-services", &config.answer_services);
    lines.word("answer-order", &resolution.answer_order);
    lines.word("bare-single-label", &resolution.bare_single_label);
    lines.list("absolute-zone", &resolution.absolute_zones);
    if let Some(longest) = resolution.serve_stale {
        lines.one("serve-stale", duration::text(longest));
    }
    if resolution.prefetch {
        lines.raw("prefetch", "true");
    }
    lines.word("auth", &config.auth);
    if let Some(namespace) = &config.pod_namespace {
        lines.one("pod-namespace", namespace);
    }
    for (key, addresses) in [("pod-ip", &config.pod_ips), ("host-ip", &config.host_ips)] {
        if !addresses.0.is_empty() {
            lines.one(key, addresses);
        }
    }
    if let Some(KeyFile { path, issuer }) = &config.token_keys {
        lines.one("token-keys", path.display());
        lines.one("token-issuer", issuer);
    }
    if let Some(TlsFiles { cert, key, ca }) = &config.tls {
        lines.one("tls-cert", cert.display());
        lines.one("tls-key", key.display());
        lines.one("tls-ca", ca.display());
    }
    lines.list("egress", config.egress.values());
    lines.raw("flows-per-session", &config.flows_per_session.to_string());
    lines.word("log-format", &config.log_format);
    lines.0
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn raw(&mut self, key: &str, value: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{key}: {value}");
    }

    fn one(&mut self, key: &str, value: impl Display) {
        self.raw(key, &quoted(value));
    }

    fn number(&mut self, key: &str, value: Option<u8>) {
        if let Some(value) = value {
            self.raw(key, &value.to_string());
        }
    }

    fn list<T: Display>(&mut self, key: &str, values: impl IntoIterator<Item = T>) {
        let texts: Vec<_> = values.into_iter().map(quoted).collect();
        if !texts.is_empty() {
            self.raw(key, &format!("[{}]", texts.join(", ")));
        }
    }

    fn word(&mut self, key: &str, value: &impl ValueEnum) {
        if let Some(word) = value.to_possible_value() {
            self.raw(key, word.get_name());
        }
    }
}

/// A JSON string is a YAML string.
fn quoted(value: impl Display) -> String {
    Value::String(value.to_string()).to_string()
}
