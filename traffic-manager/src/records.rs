//! DNS names of Services, answered from the index: what the engine asks before any upstream.
//!
//! Answered are names of Services with a `ClusterIP` and aliases, in namespaces that are completely
//! known, and the addresses of those Services. Endpoints are not known here, so headless Services,
//! SRV and pod names go upstream.
//!
//! HTTPS and SVCB of a Service with a `ClusterIP` are answered too (there is none), so that they come
//! from the same expanded name as its addresses even while an upstream has not heard of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use kubebridge_dns::name::{Name, RecordType};
use kubebridge_dns::records::{Local, LocalRecords};
use kubebridge_dns::view::View;
use kubebridge_proto::routes::{ServiceKind, ServiceRoute};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::kubernetes::index::{Found, Index, ServiceKey};

/// How far the index is the truth about its namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authority {
    /// A cluster's DNS knows more: what is not a Service with an address is its business.
    Cluster,
    /// Nobody knows more than a file of manifests does about the Services in it; what is not in
    /// it goes upstream.
    Manifests,
    /// Likewise, and there is no upstream either: what is not in the file does not exist.
    Alone,
}

/// The records of the Services of an index.
#[derive(Debug)]
pub struct ServiceRecords {
    index: Arc<Index>,
    authority: Authority,
    plain: watch::Receiver<Arc<View>>,
}

impl ServiceRecords {
    /// Makes the records; the cluster domain is that of the plain view, as it is at each lookup.
    #[must_use]
    pub fn new(index: Arc<Index>, authority: Authority, plain: watch::Receiver<Arc<View>>) -> Self {
        Self {
            index,
            authority,
            plain,
        }
    }

    fn service(&self, namespace: &str, name: &str, rtype: RecordType) -> Local {
        match self.index.lookup(namespace, name, Instant::now()) {
            Found::Route(route) => self.verdict(&route, rtype),
            Found::Gone => Local::NxDomain,
            Found::Unknown => self.unknown(),
            Found::NotSynced => Local::NotMine,
        }
    }

    fn verdict(&self, route: &ServiceRoute, rtype: RecordType) -> Local {
        match route.kind {
            ServiceKind::ClusterIp => self.addresses(route, rtype),
            ServiceKind::Headless => match self.authority {
                Authority::Cluster => Local::NotMine,
                Authority::Manifests | Authority::Alone => Local::NoData,
            },
            ServiceKind::ExternalName if rtype == RecordType::ANY => Local::NotMine,
            ServiceKind::ExternalName => {
                let target = route.external_name.as_deref().map(str::parse);
                match target {
                    Some(Ok(target)) => Local::Alias(target),
                    Some(Err(_)) | None => Local::NoData,
                }
            }
        }
    }

    fn addresses(&self, route: &ServiceRoute, rtype: RecordType) -> Local {
        let fits = |ip: &IpAddr| match ip {
            IpAddr::V4(_) => rtype == RecordType::A,
            IpAddr::V6(_) => rtype == RecordType::AAAA,
        };
        let addresses: Vec<_> = route.cluster_ips.iter().copied().filter(fits).collect();
        if !addresses.is_empty() {
            return Local::Addresses(addresses);
        }
        let ours = [
            RecordType::A,
            RecordType::AAAA,
            RecordType::HTTPS,
            RecordType::SVCB,
        ];
        match self.authority {
            Authority::Cluster if !ours.contains(&rtype) => Local::NotMine,
            Authority::Cluster | Authority::Manifests | Authority::Alone => Local::NoData,
        }
    }

    fn unknown(&self) -> Local {
        match self.authority {
            Authority::Cluster | Authority::Manifests => Local::NotMine,
            Authority::Alone => Local::NxDomain,
        }
    }

    /// Answers for a name in the cluster domain that is no Service's, when nobody else can.
    fn above_services(&self, name: &Name, domain: &Name) -> Local {
        let relative = name.strip_suffix(domain).unwrap_or_else(Name::root);
        let labels: Vec<&[u8]> = relative.labels().collect();
        let namespaces = self.index.names();
        let exists = match labels.as_slice() {
            [] => true,
            [kind] => kind.eq_ignore_ascii_case(b"svc"),
            [namespace, kind] => {
                let known = |text: &str| namespaces.borrow().contains(&text.to_ascii_lowercase());
                kind.eq_ignore_ascii_case(b"svc") && str::from_utf8(namespace).is_ok_and(known)
            }
            _ => false,
        };
        if exists {
            Local::NoData
        } else {
            Local::NxDomain
        }
    }

    fn pointer(&self, address: IpAddr, domain: &Name) -> Local {
        let keys = self.index.pointers(address);
        let names: Vec<_> = keys
            .iter()
            .filter_map(|key| full_name(key, domain))
            .collect();
        if names.is_empty() {
            Local::NotMine
        } else {
            Local::Pointer(names)
        }
    }
}

impl LocalRecords for ServiceRecords {
    fn lookup(&self, name: &Name, rtype: RecordType) -> Local {
        let domain = self.plain.borrow().cluster_domain.clone();
        if let Some((namespace, service)) = service_name(name, &domain) {
            return self.service(&namespace, &service, rtype);
        }
        if self.authority == Authority::Alone && name.ends_with(&domain) {
            return self.above_services(name, &domain);
        }
        if rtype != RecordType::PTR {
            return Local::NotMine;
        }
        reverse_address(name).map_or(Local::NotMine, |address| self.pointer(address, &domain))
    }
}

/// Returns the name of a Service in DNS, `NAME.NAMESPACE.svc.DOMAIN`.
#[must_use]
pub fn full_name(key: &ServiceKey, domain: &Name) -> Option<Name> {
    let relative: Name = format!("{}.{}.svc", key.name, key.namespace).parse().ok()?;
    relative.join(domain)
}

/// Returns the name an address is looked up by, under `in-addr.arpa` or `ip6.arpa`.
#[must_use]
pub fn reverse_name(address: IpAddr) -> Option<Name> {
    let text = match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(v6) => {
            let digits = format!("{:032x}", v6.to_bits());
            let reversed: String = digits
                .chars()
                .rev()
                .flat_map(|digit| [digit, '.'])
                .collect();
            format!("{reversed}ip6.arpa")
        }
    };
    text.parse().ok()
}

/// Splits `NAME.NAMESPACE.svc.DOMAIN` into namespace and name, in lower case.
fn service_name(name: &Name, domain: &Name) -> Option<(String, String)> {
    let relative = name.strip_suffix(domain)?;
    let labels: Vec<&[u8]> = relative.labels().collect();
    let [service, namespace, kind] = labels.as_slice() else {
        return None;
    };
    if !kind.eq_ignore_ascii_case(b"svc") {
        return None;
    }
    let text = |label: &[u8]| Some(str::from_utf8(label).ok()?.to_ascii_lowercase());
    Some((text(namespace)?, text(service)?))
}

/// Reads the address of a name under `in-addr.arpa` or `ip6.arpa`.
#[must_use]
pub fn reverse_address(name: &Name) -> Option<IpAddr> {
    let lower = name.to_lowercase();
    let mut labels: Vec<&[u8]> = lower.labels().collect();
    if labels.pop()? != b"arpa" {
        return None;
    }
    match (labels.pop()?, labels.len()) {
        (b"in-addr", 4) => {
            let mut octets = [0; 4];
            for (octet, label) in octets.iter_mut().zip(labels.iter().rev()) {
                *octet = str::from_utf8(label).ok()?.parse().ok()?;
            }
            Some(Ipv4Addr::from(octets).into())
        }
        (b"ip6", 32) => {
            let mut bits = 0_u128;
            for label in labels.iter().rev() {
                let [digit] = label else { return None };
                bits = bits << 4 | u128::from(char::from(*digit).to_digit(16)?);
            }
            Some(Ipv6Addr::from(bits).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
