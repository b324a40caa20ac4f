//! One Kubernetes Service → one [`ServiceRoute`]. Pure: no watching, no defaults from a cluster.
//!
//! A Service that is being deleted (it has a deletion timestamp and waits for a finalizer) still
//! works in the cluster, so its route stays until the object is gone.

use std::net::IpAddr;

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::core::v1 as core;
use kubebridge_proto::names::check_label;
use kubebridge_proto::routes::{PortProtocol, ServiceKind, ServicePort, ServiceRoute};

/// The word Kubernetes uses instead of an address for a headless Service.
const HEADLESS: &str = "None";

/// Reduces a Service to what is used of it.
///
/// # Errors
/// When the Service has no name, or no address and is not headless.
pub fn route(service: core::Service) -> Result<ServiceRoute> {
    let namespace = checked_name("metadata.namespace", service.metadata.namespace)?;
    let name = checked_name("metadata.name", service.metadata.name)?;
    parts(service.spec, &namespace, &name)
        .map_err(|error| anyhow!("Service {namespace}/{name} {error}"))
}

fn parts(spec: Option<core::ServiceSpec>, namespace: &str, name: &str) -> Result<ServiceRoute> {
    let spec = spec.unwrap_or_default();
    let ports = spec
        .ports
        .unwrap_or_default()
        .into_iter()
        .filter_map(port)
        .collect();

    let (kind, cluster_ips, external_name) = match spec.type_.as_deref() {
        Some("ExternalName") => {
            let target = external_name(spec.external_name)?;
            (ServiceKind::ExternalName, Vec::new(), Some(target))
        }
        Some("ClusterIP" | "NodePort" | "LoadBalancer") | None => {
            let (kind, ips) = addresses(spec.cluster_ips, spec.cluster_ip)?;
            (kind, ips, None)
        }
        Some(other) => bail!("has the unknown spec.type {other:?}"),
    };
    let (name, namespace) = (name.to_owned(), namespace.to_owned());
    Ok(ServiceRoute {
        name,
        namespace,
        kind,
        cluster_ips,
        ports,
        external_name,
    })
}

fn checked_name(field: &'static str, value: Option<String>) -> Result<String> {
    let value = value.unwrap_or_default();
    check_label(field, &value).context("a Service cannot be used")?;
    Ok(value)
}

/// Reads `clusterIPs`, and `clusterIP` where an old or hand-written object has only that.
fn addresses(many: Option<Vec<String>>, one: Option<String>) -> Result<(ServiceKind, Vec<IpAddr>)> {
    let mut texts = many.unwrap_or_default();
    if texts.is_empty() {
        texts.extend(one);
    }
    texts.retain(|text| !text.is_empty());
    if texts.is_empty() {
        bail!("has no spec.clusterIP");
    }
    if texts.iter().any(|text| text == HEADLESS) {
        return Ok((ServiceKind::Headless, Vec::new()));
    }
    let parse = |text: &String| {
        text.parse()
            .map_err(|_| anyhow!("has the invalid spec.clusterIP {text:?}"))
    };
    let ips = texts.iter().map(parse).collect::<Result<_>>()?;
    Ok((ServiceKind::ClusterIp, ips))
}

/// Checks the target of an alias; its text without the trailing dot.
fn external_name(value: Option<String>) -> Result<String> {
    let value = value.unwrap_or_default();
    let target = value.strip_suffix('.').unwrap_or(&value);
    let printable = target.bytes().all(|byte| byte.is_ascii_graphic());
    let labels = target
        .split('.')
        .all(|label| (1..=63).contains(&label.len()));
    if !(printable && labels && target.len() <= 253) {
        bail!("has the invalid spec.externalName {value:?}");
    }
    Ok(target.to_owned())
}

/// Reduces a port; `None` for one that no version of Kubernetes would store.
fn port(port: core::ServicePort) -> Option<ServicePort> {
    let number = u16::try_from(port.port)
        .ok()
        .filter(|number| *number != 0)?;
    let protocol = match port.protocol.as_deref() {
        Some("UDP") => PortProtocol::Udp,
        Some("SCTP") => PortProtocol::Sctp,
        Some("TCP") | None => PortProtocol::Tcp,
        Some(_) => return None,
    };
    Some(ServicePort {
        name: port.name.unwrap_or_default(),
        protocol,
        port: number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(yaml: &str) -> core::Service {
        serde_saphyr::from_str(yaml).unwrap()
    }

    fn named(spec: &str) -> core::Service {
        service(&format!(
            "metadata: {{name: authors, namespace: default}}\nspec: {spec}\n"
        ))
    }

    #[test]
    fn every_kind_of_service_has_the_route_of_the_table() {
        use ServiceKind::{ClusterIp, ExternalName, Headless};
        let cases: [(&str, ServiceKind, &[&str], Option<&str>); 10] = [
            ("{clusterIP: 10.96.0.1}", ClusterIp, &["10.96.0.1"], None),
            (
                "{type: ClusterIP, clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00::1']}",
                ClusterIp,
                &["10.96.0.1", "fd00::1"],
                None,
            ),
            (
                "{clusterIPs: ['fd00::1', 10.96.0.1]}",
                ClusterIp,
                &["fd00::1", "10.96.0.1"],
                None,
            ),
            ("{clusterIP: None}", Headless, &[], None),
            ("{clusterIP: None, clusterIPs: [None]}", Headless, &[], None),
            (
                "{type: NodePort, clusterIP: 10.96.0.2}",
                ClusterIp,
                &["10.96.0.2"],
                None,
            ),
            (
                "{type: LoadBalancer, clusterIP: 10.96.0.3}",
                ClusterIp,
                &["10.96.0.3"],
                None,
            ),
            (
                "{clusterIP: 10.96.0.4, selector: {}}",
                ClusterIp,
                &["10.96.0.4"],
                None,
            ),
            (
                "{type: ExternalName, externalName: a.example}",
                ExternalName,
                &[],
                Some("a.example"),
            ),
            (
                "{type: ExternalName, externalName: a.example.}",
                ExternalName,
                &[],
                Some("a.example"),
            ),
        ];
        for (spec, kind, ips, target) in cases {
            let route = route(named(spec)).unwrap();
            let found: Vec<_> = route.cluster_ips.iter().map(ToString::to_string).collect();
            assert_eq!(
                (route.kind, found),
                (kind, ips.iter().map(ToString::to_string).collect())
            );
            assert_eq!(route.external_name.as_deref(), target, "{spec}");
            assert_eq!(
                (route.namespace.as_str(), route.name.as_str()),
                ("default", "authors")
            );
        }
    }

    #[test]
    fn a_service_being_deleted_keeps_its_route() {
        let deleting = service(
            "metadata: {name: a, namespace: b, deletionTimestamp: 2026-01-01T00:00:00Z}\n\
             spec: {clusterIP: 10.96.0.9}\n",
        );
        assert_eq!(route(deleting).unwrap().cluster_ips.len(), 1);
    }

    #[test]
    fn ports_keep_order_and_protocol() {
        let spec = "{clusterIP: 10.96.0.1, ports: [{name: dns, port: 53, protocol: UDP}, \
                    {port: 80}, {port: 0}, {port: 99, protocol: SCTP}]}";
        let ports = route(named(spec)).unwrap().ports;
        let found: Vec<_> = ports
            .iter()
            .map(|port| (port.name.as_str(), port.port, port.protocol))
            .collect();
        let expected = [
            ("dns", 53, PortProtocol::Udp),
            ("", 80, PortProtocol::Tcp),
            ("", 99, PortProtocol::Sctp),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_cannot_be_routed_is_named() {
        for (spec, expected) in [
            ("{}", "Service default/authors has no spec.clusterIP"),
            (
                "{clusterIP: ''}",
                "Service default/authors has no spec.clusterIP",
            ),
            (
                "{clusterIP: x}",
                "Service default/authors has the invalid spec.clusterIP \"x\"",
            ),
            (
                "{type: ExternalName}",
                "Service default/authors has the invalid spec.externalName \"\"",
            ),
            (
                "{type: ExternalName, externalName: a..b}",
                "Service default/authors has the invalid spec.externalName \"a..b\"",
            ),
            (
                "{type: Odd}",
                "Service default/authors has the unknown spec.type \"Odd\"",
            ),
        ] {
            assert_eq!(route(named(spec)).unwrap_err().to_string(), expected);
        }
        let nameless = service("metadata: {namespace: default}\n");
        let error = format!("{:#}", route(nameless).unwrap_err());
        assert_eq!(error, "a Service cannot be used: metadata.name is missing");
    }
}
