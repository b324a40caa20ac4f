//! Which of the wanted names may be written. Pure.
//!
//! A name that another line already has, that means this machine or something fixed, or that the
//! public DNS may know, is reported instead of written.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use super::owner;
use crate::host::HostsConflict;
use crate::intent::HostsLine;
use crate::scope;

/// Names that are never written, whoever asks: they steer proxies and tunnels or mean this machine.
const NEVER: [&str; 3] = ["localhost", "wpad", "isatap"];

/// Splits the wanted lines into those to write and the names to report.
pub(super) fn admit(
    foreign: &[u8],
    wanted: &[HostsLine],
    host_name: &str,
) -> (Vec<HostsLine>, Vec<HostsConflict>) {
    let taken = if wanted.is_empty() {
        BTreeMap::new()
    } else {
        names(foreign)
    };
    let mut conflicts = BTreeSet::new();
    let mut lines = Vec::with_capacity(wanted.len());
    for HostsLine { address, names } in wanted {
        let admitted = |name: &&String| match refusal(*address, name, host_name, &taken) {
            Some(reason) => {
                conflicts.insert(HostsConflict {
                    name: (*name).clone(),
                    reason,
                });
                false
            }
            None => true,
        };
        let names: Vec<_> = names.iter().filter(admitted).cloned().collect();
        let line = HostsLine {
            address: *address,
            names,
        };
        if !line.names.is_empty() {
            lines.push(line);
        }
    }
    (lines, conflicts.into_iter().collect())
}

/// Tells why `name` must not be written, if so.
fn refusal(
    address: IpAddr,
    name: &str,
    host_name: &str,
    taken: &BTreeMap<Vec<u8>, Holder>,
) -> Option<String> {
    if !is_service_address(address) {
        return Some(format!("{address} cannot be the address of a service"));
    }
    if NEVER.contains(&name) || name.ends_with(".localhost") {
        return Some("a name with a fixed meaning".to_owned());
    }
    let short = host_name.split('.').next().unwrap_or(host_name);
    if name.eq_ignore_ascii_case(host_name) || name.eq_ignore_ascii_case(short) {
        return Some("the name of this machine".to_owned());
    }
    if name.contains('.') && !is_below_svc(name) && scope::has_public_tld(name) {
        return Some("its last label is a public top-level domain".to_owned());
    }
    taken
        .get(name.as_bytes())
        .map(|holder| match &holder.session {
            Some(session) => format!("session {session} has it"),
            None => format!("line {} has it", holder.line),
        })
}

/// Tells whether it is a full Service name, `SERVICE.NAMESPACE.svc.DOMAIN`: a cluster's own domain
/// may well be below a public one.
fn is_below_svc(name: &str) -> bool {
    name.split('.').nth(2) == Some("svc") && name.split('.').count() > 4
}

/// Headless Services have no address, and these would send the laptop to itself or nowhere.
fn is_service_address(address: IpAddr) -> bool {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || broadcast)
}

/// Who has a name already.
struct Holder {
    line: usize,
    session: Option<String>,
}

/// Collects the names of all lines, lower-cased, with the first line that has each.
fn names(bytes: &[u8]) -> BTreeMap<Vec<u8>, Holder> {
    let mut names = BTreeMap::new();
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let entry = line.split(|&byte| byte == b'#').next().unwrap_or(line);
        let fields = entry
            .split(u8::is_ascii_whitespace)
            .filter(|field| !field.is_empty());
        for name in fields.skip(1) {
            let session = || owner(line).map(str::to_owned);
            let holder = || Holder {
                line: index + 1,
                session: session(),
            };
            names
                .entry(name.to_ascii_lowercase())
                .or_insert_with(holder);
        }
    }
    names
}
