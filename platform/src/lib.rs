//! The only code of kubebridge that touches the operating system.
//!
//! A session says what it wants ([`intent`]) to a [`host::Host`]; everything done to the machine is
//! written to a [`journal`] first and can be undone by whoever finds that journal. Plans are pure
//! functions of data; the functions that carry them out are thin. Linux only for now; file and data
//! parts build everywhere.

pub mod sys;

pub mod fault;

pub mod net;

pub mod scope;

pub mod intent;

pub mod claims;

pub mod host;

pub mod fs;

mod hex;

pub mod process;

pub mod resources;

pub mod hosts;

pub mod journal;

pub mod dns;

pub mod link;

pub mod routes;

pub mod tun;

pub mod local;

pub mod helper;
pub mod preview;

pub mod recover;

pub mod inspect;

pub mod boot;

pub mod clock;

pub mod watch;

pub use claims::{Claims, Clash, Contested, Withheld};
pub use clock::Clock;
pub use dns::resolved::{Family, LookupError, flush_caches, lookup_through_resolved};
pub use dns::{DnsError, read_host_dns};
pub use helper::HelperHost;
pub use host::{
    Applied, Host, HostDns, HostDnsMode, HostError, HostsConflict, Link, LinkSpec, Relinked,
    ResolvedVia, Undone, Verified,
};
pub use intent::{DnsIntent, HostsLine, Intent, IntentError};
pub use local::LocalHost;
pub use net::{IpNet, Ipv4Net, Ipv6Net, NetError};
pub use recover::{Leftover, Recovered, leftovers, recover};
pub use sys::{SessionId, SessionIdError, Sys};
pub use watch::{Cause, Drift, DriftWatch};
