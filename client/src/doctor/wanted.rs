//! What the way to is asked for: as for `trace`, and a host alone is pinged.

use crate::inquiry::path::PathTarget;

/// Reads `HOST:PORT`, `HOST:PORT/udp` or `HOST`.
///
/// # Errors
///
/// It is none of these.
pub fn wanted(text: &str) -> Result<PathTarget, &'static str> {
    let pinged = || format!("{text}/icmp").parse();
    let read = text.parse().or_else(|_| pinged());
    read.map_err(|_: &str| "expected HOST:PORT, HOST:PORT/udp or HOST")
}

#[cfg(test)]
mod tests {
    use kubebridge_proto::flow::Protocol;

    use super::*;

    #[test]
    fn a_host_alone_is_pinged() {
        for (text, protocol) in [
            ("authors.shop:9080", Some(Protocol::Tcp)),
            ("authors.shop:9080/tcp", Some(Protocol::Tcp)),
            ("10.96.0.10:53/udp", Some(Protocol::Udp)),
            ("[fd00::1]:443", Some(Protocol::Tcp)),
            ("authors.shop", Some(Protocol::Icmp)),
            ("10.96.0.10", Some(Protocol::Icmp)),
            ("fd00::1", Some(Protocol::Icmp)),
            ("authors:0", None),
            ("authors:", None),
            ("authors:80/sctp", None),
            ("authors/udp", None),
            ("", None),
        ] {
            let read = wanted(text).ok().map(|one| one.protocol);
            assert_eq!(read, protocol, "{text}");
        }
    }
}
