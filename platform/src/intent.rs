//! What a session wants from the host: DNS for some domains, lines in the hosts file, routes into
//! its link.
//!
//! Plain data that travels between processes. [`Intent::checked`] is where it becomes trustworthy;
//! whoever applies an intent calls it again, because the applying side is the policy point.
//! Whether a wish collides with what is already on the host is decided when it is applied.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::net::IpNet;
use crate::routes::{self, MAX_ROUTES, MOST_GIVEN};
use crate::scope::{self, Refusal};

/// The most hosts lines of one session: far above a big cluster's namespace, far below trouble.
pub const MAX_HOSTS_LINES: usize = 65_536;

/// The most names of one line: a Service has three or four.
pub const MAX_LINE_NAMES: usize = 16;

/// The most domains of one kind: systemd-resolved takes 32, the rest is told to be left out.
pub const MAX_DOMAINS: usize = 4096;

/// Everything a session wants from the host besides its link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    /// DNS on the session's link; `None` leaves the OS resolver alone.
    pub dns: Option<DnsIntent>,
    /// Lines wanted in the hosts file.
    pub hosts: Vec<HostsLine>,
    /// Networks that shall lead into the session's link, as [`crate::routes::plan`] made them.
    #[serde(default)]
    pub routes: Vec<IpNet>,
    /// Networks whose addresses may be taken from wider routes of the machine, as its user says.
    #[serde(default)]
    pub given: Vec<IpNet>,
}

/// Which names the OS resolver shall send to the session's link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DnsIntent {
    /// The resolver addresses, port 53.
    pub servers: Vec<IpAddr>,
    /// Routing-only domains: the cluster domain, `svc`, and further suffixes; never a single label
    /// but `svc`, never a public suffix.
    pub routes: Vec<String>,
    /// The session's namespaces, each a routing-only domain of its own.
    pub namespaces: Vec<String>,
    /// Search domains, applied by the OS to single labels, in order.
    pub search: Vec<String>,
    /// Reverse zones (`96.10.in-addr.arpa`), routing-only.
    pub reverse: Vec<String>,
}

/// Names for one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostsLine {
    /// The address.
    pub address: IpAddr,
    /// The names, first the one reported by reverse lookups.
    pub names: Vec<String>,
}

/// Why an intent is not acceptable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IntentError {
    /// A domain that may not be sent to the cluster.
    #[error("{field} {domain:?} is refused: {refusal}")]
    Domain {
        /// Which list it was in.
        field: &'static str,
        /// The domain.
        domain: String,
        /// Why not.
        refusal: Refusal,
    },
    /// A resolver address that cannot work as one.
    #[error("DNS server {0} is refused: not a unicast address outside loopback")]
    Server(IpAddr),
    /// A resolver that is not the session's own.
    #[error("DNS server {0} is refused: not the address of the session's link")]
    ForeignServer(IpAddr),
    /// More domains of one kind than [`MAX_DOMAINS`].
    #[error("{count} of the kind {field} are too many (at most {MAX_DOMAINS})")]
    Domains {
        /// Which list it is.
        field: &'static str,
        /// Its length.
        count: usize,
    },
    /// DNS was asked for without a server.
    #[error("no DNS server was given")]
    NoServer,
    /// A name that cannot stand in a hosts file.
    #[error("hosts name {0:?} is not a host name")]
    HostsName(String),
    /// A name that no Service has.
    #[error(
        "hosts name {0:?} is refused: not SERVICE, SERVICE.NAMESPACE or SERVICE.NAMESPACE.svc.DOMAIN"
    )]
    ForeignName(String),
    /// More names on a line than [`MAX_LINE_NAMES`].
    #[error("{0} names on a hosts line are too many (at most {MAX_LINE_NAMES})")]
    LineNames(usize),
    /// More lines than [`MAX_HOSTS_LINES`].
    #[error("{0} hosts lines are too many (at most {MAX_HOSTS_LINES})")]
    HostsLines(usize),
    /// A network that no session may route.
    #[error("{0}")]
    Route(String),
    /// More routes than [`MAX_ROUTES`].
    #[error("{0} routes are too many (at most {MAX_ROUTES})")]
    Routes(usize),
    /// More networks taken from wider routes than [`MOST_GIVEN`].
    #[error("{0} networks taken from wider routes are too many (at most {MOST_GIVEN})")]
    Given(usize),
}

impl Intent {
    /// Makes a normalised, valid intent: lower case, no trailing dots, no duplicates.
    pub fn new(dns: Option<DnsIntent>, hosts: Vec<HostsLine>) -> Result<Self, IntentError> {
        if hosts.len() > MAX_HOSTS_LINES {
            return Err(IntentError::HostsLines(hosts.len()));
        }
        let dns = dns.map(DnsIntent::checked).transpose()?;
        let hosts = hosts
            .into_iter()
            .map(HostsLine::checked)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            dns,
            hosts,
            ..Self::default()
        })
    }

    /// Adds routes: sorted, each once, none of which is wrong on every machine. Whether they
    /// collide with what this one uses is found out when they are applied.
    pub fn with_routes(self, routes: Vec<IpNet>) -> Result<Self, IntentError> {
        let routes = scoped(routes)?;
        match routes.len() {
            0..=MAX_ROUTES => Ok(Self { routes, ..self }),
            count => Err(IntentError::Routes(count)),
        }
    }

    /// Adds networks that may be taken from wider routes: sorted, each once, none that is wrong on
    /// every machine.
    pub fn with_given(self, given: Vec<IpNet>) -> Result<Self, IntentError> {
        let given = scoped(given)?;
        match given.len() {
            0..=MOST_GIVEN => Ok(Self { given, ..self }),
            count => Err(IntentError::Given(count)),
        }
    }

    /// Normalises and validates an intent that came from elsewhere.
    pub fn checked(self) -> Result<Self, IntentError> {
        let plain = Self::new(self.dns, self.hosts)?;
        plain.with_routes(self.routes)?.with_given(self.given)
    }
}

/// Sorts networks, each once, and fails at one that no session may route.
fn scoped(mut networks: Vec<IpNet>) -> Result<Vec<IpNet>, IntentError> {
    networks.sort_unstable();
    networks.dedup();
    for net in &networks {
        routes::check_scope(net).map_err(|error| IntentError::Route(error.to_string()))?;
    }
    Ok(networks)
}

impl DnsIntent {
    /// Normalises and validates the wish.
    ///
    /// A namespace with a reserved name passes here: it is left out, with a warning, on applying,
    /// because a cluster may well have a namespace `test`.
    fn checked(self) -> Result<Self, IntentError> {
        if self.servers.is_empty() {
            return Err(IntentError::NoServer);
        }
        if let Some(server) = self.servers.iter().find(|server| !usable_server(**server)) {
            return Err(IntentError::Server(*server));
        }
        bounded("DNS server", self.servers.len())?;
        Ok(Self {
            servers: self.servers,
            routes: domains("routing domain", self.routes, scope::check_domain)?,
            namespaces: domains("namespace", self.namespaces, |name| {
                if name.contains('.') {
                    Err(Refusal::Syntax)
                } else {
                    Ok(())
                }
            })?,
            search: domains("search domain", self.search, scope::check_domain)?,
            reverse: domains("reverse zone", self.reverse, check_reverse)?,
        })
    }

    /// Fails unless the session's own resolver is the only server.
    pub(crate) fn check_server(&self, own: IpAddr) -> Result<(), IntentError> {
        match self.servers.iter().find(|server| **server != own) {
            Some(foreign) => Err(IntentError::ForeignServer(*foreign)),
            None => Ok(()),
        }
    }

    /// Returns the namespaces that may be routed, and those that may not with the reason.
    pub fn routable_namespaces(&self) -> (Vec<&str>, Vec<(&str, Refusal)>) {
        let mut routable = Vec::new();
        let mut refused = Vec::new();
        for namespace in &self.namespaces {
            match scope::check_namespace(namespace) {
                Ok(()) => routable.push(namespace.as_str()),
                Err(refusal) => refused.push((namespace.as_str(), refusal)),
            }
        }
        (routable, refused)
    }
}

impl HostsLine {
    fn checked(self) -> Result<Self, IntentError> {
        if self.names.len() > MAX_LINE_NAMES {
            return Err(IntentError::LineNames(self.names.len()));
        }
        let mut names = Vec::with_capacity(self.names.len());
        for name in self.names {
            let Ok(normal) = scope::normalise(&name) else {
                return Err(IntentError::HostsName(name));
            };
            if !scope::is_service_name(&normal) {
                return Err(IntentError::ForeignName(name));
            }
            if !names.contains(&normal) {
                names.push(normal);
            }
        }
        Ok(Self {
            address: self.address,
            names,
        })
    }
}

/// Normalises and checks a list of domains, keeping the first of equal ones.
fn domains(
    field: &'static str,
    list: Vec<String>,
    check: impl Fn(&str) -> Result<(), Refusal>,
) -> Result<Vec<String>, IntentError> {
    bounded(field, list.len())?;
    let mut seen = BTreeSet::new();
    let mut out = Vec::with_capacity(list.len());
    for domain in list {
        let checked = scope::normalise(&domain).and_then(|name| check(&name).map(|()| name));
        let name = checked.map_err(|refusal| IntentError::Domain {
            field,
            domain,
            refusal,
        })?;
        if seen.insert(name.clone()) {
            out.push(name);
        }
    }
    Ok(out)
}

fn bounded(field: &'static str, count: usize) -> Result<(), IntentError> {
    if count > MAX_DOMAINS {
        Err(IntentError::Domains { field, count })
    } else {
        Ok(())
    }
}

/// Accepts zones below `in-addr.arpa` and `ip6.arpa`, never those themselves.
fn check_reverse(zone: &str) -> Result<(), Refusal> {
    let below = zone.ends_with(".in-addr.arpa") || zone.ends_with(".ip6.arpa");
    if below {
        Ok(())
    } else {
        Err(Refusal::Reserved)
    }
}

/// Loopback would leak into containers and loop; the rest resolved itself refuses.
fn usable_server(address: IpAddr) -> bool {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || broadcast)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|&text| text.to_owned()).collect()
    }

    fn dns() -> DnsIntent {
        DnsIntent {
            servers: vec!["198.19.248.2".parse().unwrap()],
            routes: strings(&["Cluster.Local.", "svc", "cluster.local"]),
            namespaces: strings(&["default", "shop", "test"]),
            search: strings(&["default.svc.cluster.local"]),
            reverse: strings(&["96.10.in-addr.arpa"]),
        }
    }

    fn refused(change: impl FnOnce(&mut DnsIntent)) -> String {
        let mut dns = dns();
        change(&mut dns);
        Intent::new(Some(dns), Vec::new()).unwrap_err().to_string()
    }

    #[test]
    fn an_intent_is_normalised() {
        let hosts = vec![HostsLine {
            address: "10.96.0.7".parse().unwrap(),
            names: strings(&["Authors", "authors."]),
        }];

        let intent = Intent::new(Some(dns()), hosts).unwrap();

        assert_eq!(
            intent.dns.as_ref().unwrap().routes,
            ["cluster.local", "svc"]
        );
        assert_eq!(intent.hosts[0].names, ["authors"]);
        assert_eq!(intent.clone().checked(), Ok(intent));
    }

    #[test]
    fn an_invalid_intent_is_an_error_naming_the_value() {
        let root = refused(|dns| dns.routes.push(".".to_owned()));
        assert_eq!(
            root,
            "routing domain \".\" is refused: the root would take every name"
        );
        let suffix = refused(|dns| dns.routes.push("co.uk".to_owned()));
        assert_eq!(
            suffix,
            "routing domain \"co.uk\" is refused: a public suffix"
        );
        assert!(refused(|dns| dns.search.push("dev".to_owned())).contains("\"dev\""));
        assert!(refused(|dns| dns.namespaces.push("a.b".to_owned())).contains("\"a.b\""));
        assert!(
            refused(|dns| dns.reverse.push("in-addr.arpa".to_owned())).contains("in-addr.arpa")
        );
        assert!(
            refused(|dns| dns.servers = vec!["127.0.0.1".parse().unwrap()]).contains("127.0.0.1")
        );
        assert_eq!(
            refused(|dns| dns.servers.clear()),
            "no DNS server was given"
        );
        let hosts = vec![HostsLine {
            address: "10.0.0.1".parse().unwrap(),
            names: strings(&["a b"]),
        }];
        assert_eq!(
            Intent::new(None, hosts).unwrap_err().to_string(),
            "hosts name \"a b\" is not a host name"
        );
    }

    #[test]
    fn what_is_too_much_or_no_name_of_a_service_is_refused() {
        let many = |count: usize| (0..count).map(|number| format!("ns-{number}")).collect();
        assert_eq!(
            refused(|dns| dns.namespaces = many(MAX_DOMAINS + 1)),
            "4097 of the kind namespace are too many (at most 4096)"
        );
        let line = |names: Vec<String>| {
            let address = "10.0.0.1".parse().unwrap();
            Intent::new(None, vec![HostsLine { address, names }])
        };
        assert!(line(many(MAX_LINE_NAMES)).is_ok());
        assert_eq!(line(many(17)), Err(IntentError::LineNames(17)));
        for name in [
            "mail.corp.example",
            "a.b.svc",
            "a.b.c.svc.d",
            "www.shop.example.com",
        ] {
            let foreign = IntentError::ForeignName(name.to_owned());
            assert_eq!(line(strings(&[name])), Err(foreign), "{name}");
        }
        for name in [
            "authors",
            "authors.shop",
            "authors.shop.svc.corp.example.com",
        ] {
            assert!(line(strings(&[name])).is_ok(), "{name}");
        }
        let intent = dns().checked().unwrap();
        assert_eq!(intent.check_server("198.19.248.2".parse().unwrap()), Ok(()));
        let other = "198.19.248.6".parse().unwrap();
        assert!(intent.check_server(other).is_err());
    }

    #[test]
    fn a_reserved_namespace_is_kept_apart_and_not_fatal() {
        let dns = dns().checked().unwrap();
        let (routable, refused) = dns.routable_namespaces();
        assert_eq!(routable, ["default", "shop"]);
        assert_eq!(refused, [("test", Refusal::Reserved)]);
    }

    #[test]
    fn w9_what_the_user_gives_up_is_bounded_and_travels_with_the_intent() {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let intent = Intent::default().with_given(nets(&["10.244.0.0/16", "10.244.0.0/16"]));
        let intent = intent.unwrap();
        assert_eq!(intent.given.len(), 1);
        assert_eq!(intent.clone().checked(), Ok(intent));
        let refused = Intent::default().with_given(nets(&["169.254.0.0/16"]));
        assert!(matches!(refused, Err(IntentError::Route(_))));
        let many = (0..=u8::try_from(MOST_GIVEN).unwrap())
            .map(|number| IpNet::new([10, 9, number, 0].into(), 24).unwrap());
        let refused = Intent::default().with_given(many.collect());
        assert_eq!(refused, Err(IntentError::Given(MOST_GIVEN + 1)));
    }

    #[test]
    fn w9_routes_that_are_wrong_everywhere_are_no_intent() {
        let with = |routes: &[&str]| {
            let routes = routes.iter().map(|text| text.parse().unwrap()).collect();
            Intent::default().with_routes(routes)
        };
        for route in [
            "0.0.0.0/0",
            "127.0.0.0/8",
            "169.254.169.254/32",
            "fe80::/64",
        ] {
            let refused = with(&[route]).unwrap_err().to_string();
            assert!(refused.contains(route), "{refused}");
        }
        let intent = with(&["10.96.0.0/16", "10.8.0.0/16", "10.96.0.0/16"]).unwrap();
        assert_eq!(intent.routes.len(), 2);
        assert_eq!(intent.clone().checked(), Ok(intent));
        let many = (0..=MAX_ROUTES as u32).map(|number| {
            let address = Ipv4Addr::from_bits(0x0a00_0000 + 2 * number);
            IpNet::new(address.into(), 32).unwrap()
        });
        assert!(matches!(
            Intent::default().with_routes(many.collect()),
            Err(IntentError::Routes(_))
        ));
    }

    #[test]
    fn an_intent_travels_as_plain_json() {
        let intent = Intent::new(Some(dns()), Vec::new()).unwrap();
        let routes = vec!["10.96.0.0/16".parse().unwrap()];
        let intent = intent.with_routes(routes).unwrap();
        let text = serde_json::to_string(&intent).unwrap();
        assert_eq!(serde_json::from_str::<Intent>(&text).unwrap(), intent);
    }
}
