//! What each session of this machine has for itself, and what is left for those after it.
//!
//! Pure; where the claims are kept is `claims/registry.rs`. Two sessions cannot have the same
//! domain or overlapping networks: the second is refused. Names without a cluster of their own
//! (single labels, `svc`, the search list, a namespace that both have) belong to whoever claimed
//! first; the others get theirs when it leaves.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::intent::{DnsIntent, HostsLine, Intent};
use crate::net::{IpNet, reverse_zones};
use crate::scope::{self, Refusal};
use crate::sys::SessionId;

pub(crate) mod registry;

/// The longest words for people; a context's name is shorter.
const NAME_CHARS: usize = 256;
/// The most domains, namespaces or networks of one session: a cluster has fewer namespaces.
const ENTRIES: usize = 4096;

/// What a session has for itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// What people call its cluster.
    pub name: String,
    /// The cluster domain; empty where nothing is claimed.
    pub domain: String,
    /// Further suffixes that are resolved in the cluster.
    pub suffixes: Vec<String>,
    /// The namespaces whose names are taken without the domain.
    pub namespaces: Vec<String>,
    /// The cluster's networks.
    pub networks: Vec<IpNet>,
}

/// Why claims are not acceptable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimsError {
    /// A name that may not be claimed.
    #[error("{name:?} cannot be a session's own: {refusal}")]
    Name {
        /// The name.
        name: String,
        /// Why not.
        refusal: Refusal,
    },
    /// More than any cluster has.
    #[error("more than {ENTRIES} names or networks")]
    TooMany,
}

/// A session with its claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimant {
    /// The session.
    pub session: SessionId,
    /// The process that keeps the machine as it wants it.
    pub pid: u32,
    /// Its place in the order in which the sessions came.
    pub number: u64,
    /// What it has.
    pub claims: Claims,
}

/// Two sessions want the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clash {
    /// The session that is refused.
    pub session: SessionId,
    /// What people call its cluster.
    pub name: String,
    /// The session that has it.
    pub other: SessionId,
    /// The process of that.
    pub other_pid: u32,
    /// What people call its cluster.
    pub other_name: String,
    /// What both want.
    pub what: Contested,
}

/// What two sessions cannot both have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contested {
    /// A domain.
    Domain(String),
    /// Networks that overlap.
    Networks {
        /// That of the session that is refused.
        own: IpNet,
        /// That of the session that is there.
        other: IpNet,
    },
}

/// What a session does not get because another was first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withheld {
    /// The session that has it.
    pub session: SessionId,
    /// What people call its cluster.
    pub name: String,
    /// The domains.
    pub domains: Vec<String>,
    /// The number of names that have no hosts line.
    pub hosts_names: usize,
    own: Claims,
    earlier: Vec<Claims>,
}

impl Withheld {
    /// Takes the names that others have out of these lines; returns their number.
    pub fn cut(&self, lines: &mut Vec<HostsLine>) -> usize {
        let mut cut = 0;
        lines.retain_mut(|line| {
            let before = line.names.len();
            line.names
                .retain(|name| !is_taken(name, &self.own, &self.earlier));
            cut += before - line.names.len();
            !line.names.is_empty()
        });
        cut
    }
}

impl Claims {
    /// Tells whether these give everything up.
    pub fn is_empty(&self) -> bool {
        self.domain.is_empty()
    }

    /// Normalises and validates claims that came from elsewhere.
    pub fn checked(self) -> Result<Self, ClaimsError> {
        let lists = [self.suffixes.len(), self.namespaces.len()];
        if self.networks.len() > ENTRIES || lists.iter().any(|&length| length > ENTRIES) {
            return Err(ClaimsError::TooMany);
        }
        let normal = |name: String| match scope::normalise(&name) {
            Ok(normal) => Ok(normal),
            Err(refusal) => Err(ClaimsError::Name { name, refusal }),
        };
        let all = |names: Vec<String>| names.into_iter().map(normal).collect::<Result<_, _>>();
        let is_shown = |letter: &char| !letter.is_control();
        Ok(Self {
            name: self
                .name
                .chars()
                .filter(is_shown)
                .take(NAME_CHARS)
                .collect(),
            domain: normal(self.domain)?,
            suffixes: all(self.suffixes)?,
            namespaces: all(self.namespaces)?,
            networks: self.networks,
        })
    }

    fn domains(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.domain).chain(&self.suffixes)
    }

    /// Tells whether a name lies under a domain of these, by a longer one than any of `nearer`.
    fn covers(&self, name: &str, nearer: &Self) -> bool {
        let under = |claims: &Self| {
            let domains = claims.domains().filter(|domain| is_under(name, domain));
            domains.map(String::len).max()
        };
        under(self) > under(nearer)
    }
}

impl Claimant {
    /// Finds the first of `others` that has what this session claims.
    pub fn clash(&self, others: &[Self]) -> Option<Clash> {
        others.iter().find_map(|other| {
            Some(Clash {
                session: self.session.clone(),
                name: self.claims.name.clone(),
                other: other.session.clone(),
                other_pid: other.pid,
                other_name: other.claims.name.clone(),
                what: contested(&self.claims, &other.claims)?,
            })
        })
    }
}

fn contested(own: &Claims, other: &Claims) -> Option<Contested> {
    let same = |domain: &&String| other.domains().any(|theirs| theirs == *domain);
    if let Some(domain) = own.domains().find(same) {
        return Some(Contested::Domain(domain.clone()));
    }
    own.networks.iter().find_map(|own| {
        let other = other.networks.iter().find(|other| own.overlaps(other))?;
        Some(Contested::Networks {
            own: *own,
            other: *other,
        })
    })
}

/// Splits what a session wants into what it gets beside those that came before it, in the order in
/// which they came, and what is theirs.
///
/// Without any of those, nothing is withheld.
pub fn withhold(
    mut wanted: Intent,
    own: &Claims,
    earlier: &[Claimant],
) -> (Intent, Option<Withheld>) {
    let Some(first) = earlier.first() else {
        return (wanted, None);
    };
    let mut withheld = Withheld {
        session: first.session.clone(),
        name: first.claims.name.clone(),
        domains: Vec::new(),
        hosts_names: 0,
        own: own.clone(),
        earlier: earlier.iter().map(|one| one.claims.clone()).collect(),
    };
    let dns = wanted.dns.take();
    wanted.dns = dns.map(|dns| left_of_dns(dns, earlier, &mut withheld.domains));
    withheld.hosts_names = withheld.cut(&mut wanted.hosts);
    let is_whole = withheld.domains.is_empty() && withheld.hosts_names == 0;
    (wanted, (!is_whole).then_some(withheld))
}

fn left_of_dns(dns: DnsIntent, earlier: &[Claimant], withheld: &mut Vec<String>) -> DnsIntent {
    let claims = || earlier.iter().map(|one| &one.claims);
    let reverse: Vec<_> = claims()
        .flat_map(|claims| reverse_zones(&claims.networks).zones)
        .collect();
    let mut without = |list: Vec<String>, is_taken: &dyn Fn(&String) -> bool| {
        let (taken, left) = list.into_iter().partition(is_taken);
        withheld.extend::<Vec<String>>(taken);
        left
    };
    DnsIntent {
        servers: dns.servers,
        routes: without(dns.routes, &|domain| {
            domain == "svc" || claims().any(|claims| claims.domains().any(|own| own == domain))
        }),
        namespaces: without(dns.namespaces, &|namespace| {
            claims().any(|claims| claims.namespaces.contains(namespace))
        }),
        search: without(dns.search, &|_| true),
        reverse: without(dns.reverse, &|zone| reverse.contains(zone)),
    }
}

/// Tells whether a name of the hosts file belongs to a session that came before.
fn is_taken(name: &str, own: &Claims, earlier: &[Claims]) -> bool {
    let Some((_, parent)) = name.split_once('.') else {
        return true;
    };
    parent == "svc"
        || parent.ends_with(".svc")
        || earlier.iter().any(|claims| {
            let namespaces = &claims.namespaces;
            namespaces.iter().any(|namespace| namespace == parent) || claims.covers(name, own)
        })
}

fn is_under(name: &str, domain: &str) -> bool {
    let parent = name.strip_suffix(domain);
    parent.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Both sessions, and what they want.
impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            session,
            name,
            other,
            other_pid,
            other_name,
            what,
        } = self;
        write!(
            f,
            "session {other} (pid {other_pid}, {other_name}) and this one ({session}, {name}) "
        )?;
        match what {
            Contested::Domain(domain) => write!(f, "both have the domain {domain}"),
            Contested::Networks { own, other } => {
                write!(f, "have networks that overlap: {other} and {own}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
