//! What `/etc/resolv.conf` says about servers and search domains.
//!
//! Reading only, as glibc reads it: unknown lines and options are passed over.

use std::net::IpAddr;

/// The parts of the file that matter here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvConf {
    /// The servers, in order.
    pub nameservers: Vec<Nameserver>,
    /// The search domains, in order, lower case.
    pub search: Vec<String>,
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nameserver {
    /// Its address.
    pub address: IpAddr,
    /// The interface behind `%`, by name or number.
    pub scope: Option<String>,
}

/// Parses the file; the last of several `search` and `domain` lines counts.
pub fn parse(bytes: &[u8]) -> ResolvConf {
    let mut parsed = ResolvConf::default();
    let text = String::from_utf8_lossy(bytes);
    // The keyword stands at the very start of its line: glibc passes over indented ones.
    for line in text
        .lines()
        .filter(|line| !line.starts_with([' ', '\t', '#', ';']))
    {
        let mut fields = line.split_ascii_whitespace();
        match fields.next() {
            Some("nameserver") => parsed
                .nameservers
                .extend(fields.next().and_then(nameserver)),
            Some("search") => parsed.search = fields.filter_map(domain).collect(),
            Some("domain") => parsed.search = fields.take(1).filter_map(domain).collect(),
            Some(_) | None => {}
        }
    }
    parsed
}

fn nameserver(field: &str) -> Option<Nameserver> {
    let (address, scope) = match field.split_once('%') {
        Some((address, scope)) => (address, Some(scope.to_owned())),
        None => (field, None),
    };
    Some(Nameserver {
        address: address.parse().ok()?,
        scope,
    })
}

fn domain(field: &str) -> Option<String> {
    let name = field.trim_end_matches('.').to_ascii_lowercase();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_the_last_search_list_are_read() {
        let file = b"# c\nnameserver 192.0.2.1 # note\nnameserver fe80::1%eth0\nnameserver nonsense\n nameserver 192.0.2.9\n\
            domain old.example\nsearch Corp.Example. . lan\noptions ndots:2\n\xff\n";

        let parsed = parse(file);

        let server = |address: &str, scope: Option<&str>| Nameserver {
            address: address.parse().unwrap(),
            scope: scope.map(str::to_owned),
        };
        assert_eq!(
            parsed.nameservers,
            [server("192.0.2.1", None), server("fe80::1", Some("eth0"))]
        );
        assert_eq!(parsed.search, ["corp.example", "lan"]);
    }

    #[test]
    fn an_empty_file_says_nothing() {
        assert_eq!(parse(b""), ResolvConf::default());
    }
}
