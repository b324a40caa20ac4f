//! The closed list of what is looked at. Words are for programs: they stay.

use serde::{Serialize, Serializer};

use crate::failure::Exit;

/// One thing that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// The order of sources in nsswitch.conf.
    Nsswitch,
    /// The shape of resolv.conf.
    ResolvConf,
    /// Who resolves names, and what `connect` would do about it.
    DnsBackend,
    /// The same name by every way.
    Answers,
    /// Programs that resolve past the system.
    OwnResolvers,
    /// DNS that goes around, encrypted.
    EncryptedDns,
    /// Who has port 53.
    Port53,
    /// What dead sessions left.
    Leftovers,
    /// What other tools left.
    OtherTools,
    /// Routes of others over the cluster's networks.
    RouteOverlap,
    /// Rules that come before all routes.
    PolicyRules,
    /// The device links are made with.
    TunDevice,
    /// IPv6 of this machine.
    Ipv6,
    /// How a session would become root.
    Privilege,
    /// A session as a whole.
    Session,
    /// The session's way to the manager.
    Tunnel,
    /// The connections that carry data.
    DataConnections,
    /// What became of the flows.
    Flows,
    /// The session's routes.
    SessionRoutes,
    /// The session's resolver, and the way to it.
    SessionDns,
    /// The servers behind it.
    Upstreams,
    /// What Kubernetes lets the manager see.
    Kubernetes,
    /// Until when the session may go on.
    Authorisation,
    /// What the session does to this machine.
    MachineChanges,
    /// The way to a destination.
    Target,
    /// Ping.
    Ping,
}

impl Check {
    /// All of them, in the order they are told: what others depend on comes first.
    pub const ALL: [Self; 26] = [
        Self::Nsswitch,
        Self::ResolvConf,
        Self::DnsBackend,
        Self::Answers,
        Self::OwnResolvers,
        Self::EncryptedDns,
        Self::Port53,
        Self::Leftovers,
        Self::OtherTools,
        Self::RouteOverlap,
        Self::PolicyRules,
        Self::TunDevice,
        Self::Ipv6,
        Self::Privilege,
        Self::Session,
        Self::Tunnel,
        Self::DataConnections,
        Self::Flows,
        Self::SessionRoutes,
        Self::SessionDns,
        Self::Upstreams,
        Self::Kubernetes,
        Self::Authorisation,
        Self::MachineChanges,
        Self::Target,
        Self::Ping,
    ];

    /// The check's name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nsswitch => "nsswitch",
            Self::ResolvConf => "resolv-conf",
            Self::DnsBackend => "dns-backend",
            Self::Answers => "answers",
            Self::OwnResolvers => "own-resolvers",
            Self::EncryptedDns => "encrypted-dns",
            Self::Port53 => "port-53",
            Self::Leftovers => "leftovers",
            Self::OtherTools => "other-tools",
            Self::RouteOverlap => "route-overlap",
            Self::PolicyRules => "policy-rules",
            Self::TunDevice => "tun-device",
            Self::Ipv6 => "ipv6",
            Self::Privilege => "privilege",
            Self::Session => "session",
            Self::Tunnel => "tunnel",
            Self::DataConnections => "data-connections",
            Self::Flows => "flows",
            Self::SessionRoutes => "session-routes",
            Self::SessionDns => "session-dns",
            Self::Upstreams => "upstreams",
            Self::Kubernetes => "kubernetes",
            Self::Authorisation => "authorisation",
            Self::MachineChanges => "machine-changes",
            Self::Target => "target",
            Self::Ping => "ping",
        }
    }

    /// What is looked at, for people.
    #[must_use]
    pub const fn looked_at(self) -> &'static str {
        match self {
            Self::Nsswitch => "the hosts line of /etc/nsswitch.conf",
            Self::ResolvConf => "/etc/resolv.conf",
            Self::DnsBackend => "who resolves names on this machine",
            Self::Answers => "the same name by every way",
            Self::OwnResolvers => "programs with a resolver of their own",
            Self::EncryptedDns => "DNS over TLS and HTTPS",
            Self::Port53 => "port 53 of this machine",
            Self::Leftovers => "journals, sockets and hosts lines of dead sessions",
            Self::OtherTools => "hosts lines, links and variables of other tools",
            Self::RouteOverlap => "routes over the cluster's networks",
            Self::PolicyRules => "ip rules before the main table",
            Self::TunDevice => "/dev/net/tun",
            Self::Ipv6 => "IPv6 of this machine",
            Self::Privilege => "root, sudo and pkexec",
            Self::Session => "the session and both versions",
            Self::Tunnel => "the echo over the control connection",
            Self::DataConnections => "the echoes over the data connections",
            Self::Flows => "the counters of flows and packets",
            Self::SessionRoutes => "the session's routes, and where the kernel sends packets",
            Self::SessionDns => "the session's resolver, and the way to it",
            Self::Upstreams => "the DNS servers of both ends",
            Self::Kubernetes => "the Services of the namespaces",
            Self::Authorisation => "tokens and credentials",
            Self::MachineChanges => "what the session does to this machine",
            Self::Target => "the way to a destination",
            Self::Ping => "ping sockets of the manager's pod",
        }
    }

    /// How the command ends when this is what fails first.
    #[must_use]
    pub const fn exit(self) -> Exit {
        match self {
            Self::Nsswitch
            | Self::ResolvConf
            | Self::DnsBackend
            | Self::Answers
            | Self::OwnResolvers
            | Self::EncryptedDns
            | Self::Leftovers
            | Self::OtherTools
            | Self::PolicyRules
            | Self::TunDevice
            | Self::Ipv6
            | Self::SessionRoutes
            | Self::SessionDns
            | Self::MachineChanges => Exit::HostOs,
            Self::Port53 | Self::RouteOverlap => Exit::Busy,
            Self::Privilege | Self::Authorisation | Self::Kubernetes => Exit::Privilege,
            Self::Tunnel | Self::DataConnections => Exit::Unreachable,
            Self::Session | Self::Flows | Self::Upstreams | Self::Target | Self::Ping => {
                Exit::Other
            }
        }
    }
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_check_is_listed_once_with_words_of_its_own() {
        let words: BTreeSet<_> = Check::ALL.iter().map(|check| check.word()).collect();
        let looked_at: BTreeSet<_> = Check::ALL.iter().map(|check| check.looked_at()).collect();
        assert_eq!(words.len(), Check::ALL.len());
        assert_eq!(looked_at.len(), Check::ALL.len());
        assert!(Check::ALL.is_sorted());
    }

    #[test]
    fn every_check_is_in_the_guide() {
        let guide = include_str!("../../../docs/doctor.md");
        for check in Check::ALL {
            let cell = format!("| `{}` |", check.word());
            assert!(guide.contains(&cell), "{cell} is not in docs/doctor.md");
        }
    }
}
