//! The network lab that the end-to-end tests run in, made of real parts.
//!
//! Three machines (namespaces of this one): a laptop with systemd-resolved, the internet with a
//! DNS server, and a cluster node with etcd, kube-apiserver and CoreDNS. Nothing here stands in
//! for a real component, and nothing here knows the product but for the command lines of its two
//! programs. Needs root and what `tests/setup` installs; makes no change to the machine itself.
#![expect(
    clippy::missing_errors_doc,
    reason = "every error here means the same: the lab is broken, with what was being done"
)]

pub mod parts;
pub mod wait;

pub mod daemon;
pub mod families;
pub mod machine;

pub mod control_plane;
pub mod controllers;
pub mod coredns;
pub mod distance;
pub mod kubelet;
pub mod laptop;
pub mod nameserver;
pub mod outside;
pub mod pod;
pub mod pods;
pub mod relay;

pub mod wire;

pub mod caller;
pub mod dig;
pub mod lookup;
pub mod prober;
pub mod snapshot;
pub mod tool;
pub mod usage;

pub mod background;
pub mod lab;
pub mod listening;
pub mod product;
pub mod secured;
pub mod user;

pub mod changes;

pub mod checks;
