//! Flags → [`Config`]: combinations that make no sense are refused here, with the fix.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use kubebridge_dns::upstream::{Protocol, UpstreamSpec};

use super::flags::Serve;
use crate::access::key_file::KeyFile;
use crate::config::{AuditLog, Config, Namespaces, Resolution, Source};
use crate::failure::{Exit, Failure};
use crate::tls::TlsFiles;

/// Where the nameservers are when no file is named.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The longest attempt: the whole of a resolution takes at most 4.5 s, so that an answer comes
/// before the 5 s after which stub resolvers ask again.
const LONGEST_TIMEOUT: Duration = Duration::from_millis(4500);

/// The longest time for stale answers: a week, beyond which RFC 8767 §5 sees no use.
const LONGEST_STALE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Makes a configuration of flags.
pub(super) fn config(flags: Serve) -> Result<Config> {
    let source = source(&flags)?;
    let tls = tls(&flags)?;
    let token_keys = token_keys(&flags)?;
    check_values(&flags)?;
    // Every field by name: a flag that is not used fails the build.
    let Serve {
        dns_listen,
        grpc_listen,
        admin_listen,
        resolv_conf,
        upstream,
        upstream_ca,
        search,
        ndots,
        timeout,
        attempts,
        cluster_domain,
        kubernetes: _,
        namespace: _,
        all_namespaces: _,
        services: _,
        answer_services,
        answer_order,
        bare_single_label,
        absolute_zone,
        serve_stale,
        prefetch,
        fanout,
        auth,
        pod_namespace,
        pod_ip,
        host_ip,
        token_keys: _,
        token_issuer: _,
        tls_cert: _,
        tls_key: _,
        tls_ca: _,
        egress,
        flows_per_session,
        log_format,
        config: _,
    } = flags;
    let resolution = Resolution {
        resolv_conf: resolv_conf_or_default(resolv_conf),
        upstreams: upstream,
        upstream_cas: upstream_ca,
        search,
        ndots,
        timeout,
        attempts,
        cluster_domain,
        answer_order,
        fanout,
        bare_single_label,
        absolute_zones: absolute_zone,
        serve_stale,
        prefetch,
    };
    let config = Config {
        dns_listen,
        grpc_listen,
        admin_listen,
        resolution,
        source,
        answer_services,
        auth,
        pod_namespace,
        pod_ips: pod_ip.unwrap_or_default(),
        host_ips: host_ip.unwrap_or_default(),
        token_keys,
        tls,
        egress: egress.into_iter().collect(),
        flows_per_session,
        audit: AuditLog::Stdout,
        log_format,
    };
    config.check()?;
    Ok(config)
}

/// Refuses values that make no sense by themselves.
fn check_values(flags: &Serve) -> Result<()> {
    if let Some(timeout) = flags.timeout
        && (timeout.is_zero() || timeout > LONGEST_TIMEOUT)
    {
        let message = format!(
            "--timeout {} is out of range",
            super::duration::text(timeout)
        );
        return Err(usage(message, "use a value between 1ms and 4500ms"));
    }
    if let Some(longest) = flags.serve_stale
        && (longest.is_zero() || longest > LONGEST_STALE)
    {
        let message = format!(
            "--serve-stale {} is out of range",
            super::duration::text(longest)
        );
        return Err(usage(message, "use a value between 1ms and 10080m"));
    }
    let encrypted = |spec: &UpstreamSpec| spec.protocol != Protocol::Do53;
    if !flags.upstream_ca.is_empty() && !flags.upstream.iter().any(encrypted) {
        let message = "--upstream-ca needs an encrypted upstream";
        let hint = "add --upstream tls://ADDRESS#NAME or https://ADDRESS#NAME";
        return Err(usage(message, hint));
    }
    Ok(())
}

fn tls(flags: &Serve) -> Result<Option<TlsFiles>> {
    match (&flags.tls_cert, &flags.tls_key, &flags.tls_ca) {
        (None, None, None) => Ok(None),
        (Some(cert), Some(key), Some(ca)) => Ok(Some(TlsFiles {
            cert: cert.clone(),
            key: key.clone(),
            ca: ca.clone(),
        })),
        _ => Err(usage(
            "mutual TLS needs --tls-cert, --tls-key and --tls-ca",
            "give all three; `kubebridge certs` makes them",
        )),
    }
}

fn token_keys(flags: &Serve) -> Result<Option<KeyFile>> {
    match (&flags.token_keys, &flags.token_issuer) {
        (None, None) => Ok(None),
        (Some(path), Some(issuer)) if !issuer.is_empty() => Ok(Some(KeyFile {
            path: path.clone(),
            issuer: issuer.clone(),
        })),
        _ => Err(usage(
            "--token-keys and --token-issuer need each other",
            "kubectl get --raw /openid/v1/jwks has the keys, /.well-known/openid-configuration the issuer",
        )),
    }
}

/// The default file is used where it exists; a named one has to exist, which is seen at start.
fn resolv_conf_or_default(given: Option<PathBuf>) -> Option<PathBuf> {
    given.or_else(|| Some(PathBuf::from(RESOLV_CONF)).filter(|path| path.exists()))
}

fn source(flags: &Serve) -> Result<Source> {
    let named = !flags.namespace.is_empty();
    if named && flags.all_namespaces {
        let message = "--namespace and --all-namespaces contradict each other";
        return Err(usage(message, "give one of them"));
    }
    let namespaces = match (named, flags.all_namespaces) {
        (true, _) => Namespaces::These(flags.namespace.iter().cloned().collect()),
        (false, true) => Namespaces::All,
        (false, false) => Namespaces::Own,
    };
    match (flags.kubernetes, &flags.services) {
        (true, Some(_)) => {
            let message = "--kubernetes and --services contradict each other";
            Err(usage(
                message,
                "Services come from one place: give one of them",
            ))
        }
        (true, None) => Ok(Source::Kubernetes(namespaces)),
        (false, Some(file)) => Ok(Source::Manifests {
            file: file.clone(),
            namespaces,
        }),
        (false, None) if named || flags.all_namespaces => {
            let flag = if named {
                "--namespace"
            } else {
                "--all-namespaces"
            };
            let message = format!("{flag} needs a source of Services");
            Err(usage(message, "add --kubernetes or --services FILE"))
        }
        (false, None) => Ok(Source::None),
    }
}

fn usage(message: impl Into<String>, hint: &str) -> anyhow::Error {
    Failure::new(Exit::Usage, message).hint(hint).into()
}
