//! The manager's Deployment: a pod without privileges.
//!
//! Sets no user: the image's own is a number that is not root's, and some clusters hand out theirs.

use serde_json::{Value, json};

use super::{HOME, MANAGER, labels, metadata, selector};
use crate::install::settings::{Scope, Settings};

/// Where the Secret for gRPC on the network is.
const TLS: &str = "/etc/kubebridge/tls";

/// Longer than the manager takes to drain.
const GRACE_SECONDS: u32 = 30;

/// # Errors
///
/// The registry is none.
pub(super) fn deployment(settings: &Settings) -> Result<Value, String> {
    let mut metadata = metadata(MANAGER, HOME);
    metadata["labels"]["app.kubernetes.io/version"] = env!("CARGO_PKG_VERSION").into();
    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": settings.replicas,
            "revisionHistoryLimit": 2,
            "selector": { "matchLabels": selector() },
            // A new one is ready before an old one goes.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 },
            },
            "template": {
                "metadata": { "labels": labels() },
                "spec": pod(settings)?,
            },
        },
    }))
}

fn pod(settings: &Settings) -> Result<Value, String> {
    let mut pod = json!({
        "serviceAccountName": MANAGER,
        "automountServiceAccountToken": true,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "nodeSelector": { "kubernetes.io/os": "linux" },
        "securityContext": {
            "runAsNonRoot": true,
            "seccompProfile": { "type": "RuntimeDefault" },
            // Lets it send echo requests without a capability.
            "sysctls": [{ "name": "net.ipv4.ping_group_range", "value": "0 2147483647" }],
        },
        "containers": [container(settings)?],
    });
    if settings.replicas >= 2 {
        pod["topologySpreadConstraints"] = json!([{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": selector() },
        }]);
    }
    if !settings.image_pull_secrets.is_empty() {
        let name = |name: &String| json!({ "name": name });
        let secrets = settings.image_pull_secrets.iter().map(name);
        pod["imagePullSecrets"] = secrets.collect();
    }
    if let Some(secret) = &settings.tls_secret {
        pod["volumes"] = json!([{ "name": "tls", "secret": { "secretName": secret } }]);
    }
    Ok(pod)
}

fn container(settings: &Settings) -> Result<Value, String> {
    let probe = |path: &str, period: u8| {
        json!({
            "httpGet": { "path": path, "port": "admin" },
            "periodSeconds": period,
            "timeoutSeconds": 3,
            "failureThreshold": 3,
        })
    };
    let mut container = json!({
        "name": MANAGER,
        "image": settings.pulled()?.to_string(),
        "imagePullPolicy": "IfNotPresent",
        "args": arguments(settings),
        // By these it tells whether the network it is in is the node's.
        "env": [from_field("KUBEBRIDGE_POD_IP", "status.podIPs"), from_field("KUBEBRIDGE_HOST_IP", "status.hostIP")],
        "ports": ports(settings),
        "readinessProbe": probe("/readyz", 5),
        "livenessProbe": probe("/livez", 10),
        "resources": {
            "requests": { "cpu": "50m", "memory": "64Mi" },
            // 64 MiB for names, 256 MiB for the flows' buffers, and room.
            "limits": { "cpu": "2", "memory": "512Mi" },
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        },
    });
    if settings.tls_secret.is_some() {
        container["volumeMounts"] = json!([{ "name": "tls", "mountPath": TLS, "readOnly": true }]);
    }
    Ok(container)
}

fn arguments(settings: &Settings) -> Vec<String> {
    let mut arguments = vec!["serve".to_owned(), "--kubernetes".to_owned()];
    match settings.scope {
        Scope::Namespaced => {
            let flag = |name: &String| format!("--namespace={name}");
            arguments.extend(settings.namespaces.iter().map(flag));
        }
        Scope::ClusterWide => arguments.push("--all-namespaces".to_owned()),
    }
    let dns = if settings.dns_service {
        "[::]:1053"
    } else {
        "127.0.0.1:1053"
    };
    arguments.push(format!("--dns-listen={dns}"));
    if settings.tls_secret.is_some() {
        arguments.push("--grpc-listen=[::]:7080".to_owned());
        for (flag, file) in [("cert", "tls.crt"), ("key", "tls.key"), ("ca", "ca.crt")] {
            arguments.push(format!("--tls-{flag}={TLS}/{file}"));
        }
    }
    arguments
}

fn from_field(name: &str, path: &str) -> Value {
    json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } })
}

fn ports(settings: &Settings) -> Vec<Value> {
    let port = |name: &str, protocol: &str, number: u16| json!({ "name": name, "protocol": protocol, "containerPort": number });
    let mut ports = vec![port("admin", "TCP", 7081), port("grpc", "TCP", 7080)];
    if settings.dns_service {
        ports.extend([port("dns", "UDP", 1053), port("dns-tcp", "TCP", 1053)]);
    }
    ports
}
