//! Where a query goes: to the cluster, to the machine's original servers, or nowhere.
//!
//! Pure. The two rules behind it: names of the world never reach the cluster, and single labels
//! never reach the original servers.

use kubebridge_dns::name::Name;
use kubebridge_dns::split::Split;
use kubebridge_platform::scope;
use serde::{Deserialize, Serialize};

use crate::routes::RouteTable;
use crate::stale::ServiceName;

pub use rule::Rule;

mod rule;

/// Where a query goes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Destination {
    /// To the manager.
    Cluster,
    /// To the servers the machine used before the session.
    Originals,
    /// Nowhere: the name does not exist.
    NoSuchName,
    /// Nowhere: the name exists only because names below it do.
    NoData,
}

/// What a suffix stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Zone {
    Outside,
    Cluster,
    /// A namespace whose name the world uses too.
    Shared(String),
}

/// The suffixes of a session.
#[derive(Debug)]
pub struct Zones {
    split: Split<Zone>,
    namespace: String,
    apexes: Vec<Name>,
    /// `NAMESPACE.svc.DOMAIN` of each namespace.
    services: Vec<(String, Name)>,
}

/// What the zones of a session are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneNames {
    /// The cluster domain.
    pub cluster_domain: String,
    /// The session's namespaces, its own first.
    pub namespaces: Vec<String>,
    /// Suffixes outside the cluster domain that are resolved in the cluster.
    pub domains: Vec<String>,
    /// Reverse zones of the cluster's networks.
    pub reverse: Vec<String>,
}

impl Zones {
    /// Makes the zones of a session.
    ///
    /// # Errors
    ///
    /// A name that is no domain name; the error says which.
    pub fn new(names: &ZoneNames) -> anyhow::Result<Self> {
        let mut split = Split::new(Zone::Outside);
        let mut apexes = Vec::new();
        let mut insert = |text: &str, zone: Zone| -> anyhow::Result<()> {
            let name = parse(text)?;
            split.insert(&name, zone);
            apexes.push(name);
            Ok(())
        };
        // A namespace may be called like a suffix below; the suffix then wins.
        for namespace in &names.namespaces {
            let zone = if is_shared(namespace) {
                Zone::Shared(namespace.clone())
            } else {
                Zone::Cluster
            };
            insert(namespace, zone)?;
        }
        let fixed = [names.cluster_domain.as_str(), "svc"];
        let further = names.domains.iter().chain(&names.reverse);
        for suffix in fixed.into_iter().chain(further.map(String::as_str)) {
            insert(suffix, Zone::Cluster)?;
        }
        let apex = |namespace: &String| {
            let apex = parse(&format!("{namespace}.svc.{}", names.cluster_domain))?;
            Ok((namespace.clone(), apex))
        };
        Ok(Self {
            split,
            namespace: names.namespaces.first().cloned().unwrap_or_default(),
            apexes,
            services: names
                .namespaces
                .iter()
                .map(apex)
                .collect::<anyhow::Result<_>>()?,
        })
    }

    /// Decides where a query for a name goes.
    #[must_use]
    pub fn decide(&self, name: &Name, table: &RouteTable) -> Destination {
        self.rule(name, table).destination()
    }

    /// Says by which rule a query for a name goes where it goes.
    #[must_use]
    pub fn rule(&self, name: &Name, table: &RouteTable) -> Rule {
        match name.label_count() {
            0 => Rule::Root,
            1 => self.rule_of_single(name, table),
            _ => match self.split.route(name) {
                Zone::Outside => Rule::Outside,
                Zone::Cluster if self.is_search_noise(name, table) => Rule::SearchNoise,
                Zone::Cluster => Rule::Suffix,
                Zone::Shared(namespace) if is_service(name, namespace.as_str(), table) => {
                    Rule::SharedService
                }
                Zone::Shared(_) => Rule::SharedOutside,
            },
        }
    }

    /// Finds the longest suffix of the session that a name lies under.
    #[must_use]
    pub fn suffix(&self, name: &Name) -> Option<&Name> {
        let under = self.apexes.iter().filter(|apex| name.ends_with(apex));
        under.max_by_key(|apex| apex.label_count())
    }

    /// Finds the Service a name of the cluster stands for, in one of the session's namespaces.
    #[must_use]
    pub fn service_of(&self, name: &Name) -> Option<ServiceName> {
        let full = self
            .services
            .iter()
            .find_map(|(namespace, apex)| Some((namespace, name.strip_suffix(apex)?)));
        let (namespace, below) = match full {
            Some((namespace, below)) => (namespace.clone(), text_labels(&below)),
            None => match text_labels(name).as_slice() {
                [service] => (self.namespace.clone(), vec![service.clone()]),
                [service, namespace] => (namespace.clone(), vec![service.clone()]),
                [service, namespace, svc] if svc == "svc" => {
                    (namespace.clone(), vec![service.clone()])
                }
                _ => return None,
            },
        };
        let is_ours = self.services.iter().any(|(known, _)| *known == namespace);
        match <[String; 1]>::try_from(below) {
            Ok([service]) if is_ours => Some(ServiceName { namespace, service }),
            Ok(_) | Err(_) => None,
        }
    }

    /// Whether a C library behind resolved's stub made the name by putting the search domain after
    /// a name of the world: two or more labels below a namespace belong to a Service, and there is
    /// none of that name.
    fn is_search_noise(&self, name: &Name, table: &RouteTable) -> bool {
        let found = self
            .services
            .iter()
            .find_map(|(namespace, apex)| Some((namespace, name.strip_suffix(apex)?)));
        let Some((namespace, below)) = found else {
            return false;
        };
        match text_labels(&below).as_slice() {
            [_, .., service] => {
                table.is_synced(namespace) && table.service(namespace, service).is_none()
            }
            [] | [_] => false,
        }
    }

    fn rule_of_single(&self, name: &Name, table: &RouteTable) -> Rule {
        let label = text_labels(name).swap_remove(0);
        if !table.is_known(&self.namespace) {
            return Rule::RoutesUnknown;
        }
        if table.service(&self.namespace, &label).is_some() {
            return Rule::Service;
        }
        // NXDOMAIN would deny the names below it as well (RFC 8020).
        let has_names_below = self.apexes.iter().any(|apex| apex.ends_with(name));
        if has_names_below || is_public_tld(&label) {
            Rule::NamesBelow
        } else {
            Rule::NoService
        }
    }
}

/// Whether a name ends in a top-level domain of the world.
#[must_use]
pub fn is_public_tld(label: &str) -> bool {
    scope::has_public_tld(label)
}

/// Whether a namespace's name means something outside the cluster as well.
#[must_use]
pub fn is_shared(namespace: &str) -> bool {
    is_public_tld(namespace) || scope::check_namespace(namespace).is_err()
}

/// Lists the names of the world that a session hides: Services in namespaces that are also
/// top-level domains.
#[must_use]
pub fn shadowed(namespaces: &[String], table: &RouteTable) -> Vec<String> {
    namespaces
        .iter()
        .filter(|namespace| is_shared(namespace))
        .flat_map(|namespace| table.services(namespace))
        .map(|route| format!("{}.{}", route.name, route.namespace))
        .collect()
}

/// Exactly `service.namespace`: for anything longer a pod, too, ends up in the world.
fn is_service(name: &Name, namespace: &str, table: &RouteTable) -> bool {
    match text_labels(name).as_slice() {
        [service, _] => table.service(namespace, service).is_some(),
        _ => false,
    }
}

fn text_labels(name: &Name) -> Vec<String> {
    name.labels()
        .map(|label| String::from_utf8_lossy(label).to_ascii_lowercase())
        .collect()
}

fn parse(text: &str) -> anyhow::Result<Name> {
    text.parse()
        .map_err(|error| anyhow::anyhow!("`{text}` is no domain name: {error}"))
}

#[cfg(test)]
mod tests;
