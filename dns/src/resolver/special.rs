//! Names that never leave the machine: special-use names (RFC 6761, 7686, 9462) and the cluster domain's DS.
//!
//! Answered before expansion and before the cache. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::interpret::Told;
use crate::message::Query;
use crate::name::{Name, RecordType, ResponseCode};
use crate::records::{LOCAL_TTL, Local};
use crate::rewrite::Resolution;
use crate::view::View;

/// Answers a special name; `None` for all others.
pub(super) fn answer(query: &Query, view: &View) -> Option<Resolution> {
    let negative = |code| Some(Resolution::own_negative(code, &query.name, LOCAL_TTL));
    if is_under(&query.name, &[b"localhost"]) {
        return loopback(query).or_else(|| negative(ResponseCode::NOERROR));
    }
    if is_under(&query.name, &[b"invalid"]) || is_under(&query.name, &[b"onion"]) {
        return negative(ResponseCode::NXDOMAIN);
    }
    if is_under(&query.name, &[b"resolver", b"arpa"]) {
        return negative(ResponseCode::NOERROR);
    }
    // The cluster domain is not delegated, so its DS does not exist, and the world need not be asked about it.
    if query.rtype == RecordType::DS && query.name == view.cluster_domain {
        return negative(ResponseCode::NOERROR);
    }
    None
}

fn loopback(query: &Query) -> Option<Resolution> {
    let addresses = vec![
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ];
    let Told::Finding(finding) = Told::by(Local::Addresses(addresses), &query.name, query.rtype)
    else {
        return None;
    };
    let found = !finding.answer.is_empty();
    found.then(|| Resolution {
        authoritative: true,
        answer: finding.answer,
        ..Resolution::empty(ResponseCode::NOERROR)
    })
}

/// Says whether a name ends in these labels.
fn is_under(name: &Name, suffix: &[&[u8]]) -> bool {
    let Some(skipped) = name.label_count().checked_sub(suffix.len()) else {
        return false;
    };
    name.labels()
        .skip(skipped)
        .zip(suffix)
        .all(|(label, expected)| label.eq_ignore_ascii_case(expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn suffixes_match_whole_labels() {
        assert!(is_under(&name("a.LocalHost"), &[b"localhost"]));
        assert!(is_under(&name("localhost"), &[b"localhost"]));
        assert!(!is_under(&name("mylocalhost"), &[b"localhost"]));
        assert!(!is_under(&name("localhost.example"), &[b"localhost"]));
        assert!(is_under(
            &name("_dns.resolver.arpa"),
            &[b"resolver", b"arpa"]
        ));
        assert!(!is_under(&name("arpa"), &[b"resolver", b"arpa"]));
        assert!(!is_under(&Name::root(), &[b"onion"]));
    }
}
