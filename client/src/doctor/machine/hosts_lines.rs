//! Lines of the hosts file, read as the C library reads them.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// One line with an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The address.
    pub(super) address: IpAddr,
    /// The names.
    pub(super) names: Vec<&'a str>,
    /// What is behind the `#`.
    pub(super) comment: Option<&'a str>,
    /// All of it.
    pub(super) text: &'a str,
}

/// Reads the lines that have an address.
pub(super) fn lines(hosts: &str) -> impl Iterator<Item = Line<'_>> {
    hosts.lines().filter_map(|text| {
        let (fields, comment) = match text.split_once('#') {
            Some((fields, comment)) => (fields, Some(comment.trim())),
            None => (text, None),
        };
        let mut fields = fields.split_whitespace();
        Some(Line {
            address: fields.next()?.parse().ok()?,
            names: fields.collect(),
            comment,
            text,
        })
    })
}

/// The addresses of a name.
pub(super) fn addresses_of(hosts: &str, name: &str) -> Vec<IpAddr> {
    let has = |line: &Line<'_>| line.names.iter().any(|one| one.eq_ignore_ascii_case(name));
    let found = lines(hosts).filter(has);
    found.map(|line| line.address).collect()
}

/// The sessions whose lines are in the file, by the mark behind each line.
pub(super) fn sessions(hosts: &str) -> BTreeSet<&str> {
    let marks = lines(hosts).filter_map(|line| line.comment);
    marks
        .filter_map(|mark| mark.strip_prefix("kubebridge:")?.split_once(':'))
        .map(|(session, _)| session)
        .collect()
}
