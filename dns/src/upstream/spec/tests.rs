use super::*;

#[test]
fn plain_specs_are_read_and_written_back() {
    for (text, address, shown) in [
        ("10.96.0.10", "10.96.0.10:53", "10.96.0.10"),
        ("10.96.0.10:53", "10.96.0.10:53", "10.96.0.10"),
        ("10.96.0.10:5353", "10.96.0.10:5353", "10.96.0.10:5353"),
        ("fd00::a", "[fd00::a]:53", "fd00::a"),
        ("[fd00::a]", "[fd00::a]:53", "fd00::a"),
        ("[fd00::a]:5353", "[fd00::a]:5353", "[fd00::a]:5353"),
        ("fe80::1%3", "[fe80::1%3]:53", "fe80::1%3"),
    ] {
        let spec: UpstreamSpec = text.parse().unwrap();
        assert_eq!(spec, UpstreamSpec::do53(address.parse().unwrap()), "{text}");
        assert_eq!(spec.to_string(), shown);
        assert_eq!(shown.parse(), Ok(spec));
    }
}

#[test]
fn encrypted_specs_are_read_and_written_back() {
    use Protocol::{Doh, Dot};
    for (text, protocol, address, name, shown) in [
        (
            "tls://9.9.9.9#dns.quad9.net",
            Dot,
            "9.9.9.9:853",
            "dns.quad9.net",
            "tls://9.9.9.9#dns.quad9.net",
        ),
        (
            "tls://9.9.9.9:853#DNS.Quad9.net.",
            Dot,
            "9.9.9.9:853",
            "dns.quad9.net",
            "tls://9.9.9.9#dns.quad9.net",
        ),
        (
            "tls://9.9.9.9:8853#name",
            Dot,
            "9.9.9.9:8853",
            "name",
            "tls://9.9.9.9:8853#name",
        ),
        (
            "https://1.1.1.1#cloudflare-dns.com",
            Doh,
            "1.1.1.1:443",
            "cloudflare-dns.com",
            "https://1.1.1.1#cloudflare-dns.com",
        ),
        (
            "https://[2620:fe::fe]:8443#dns.quad9.net",
            Doh,
            "[2620:fe::fe]:8443",
            "dns.quad9.net",
            "https://[2620:fe::fe]:8443#dns.quad9.net",
        ),
        (
            "tls://[2620:fe::fe]#dns.quad9.net",
            Dot,
            "[2620:fe::fe]:853",
            "dns.quad9.net",
            "tls://[2620:fe::fe]#dns.quad9.net",
        ),
        (
            "tls://[fe80::1%3]#router.lan",
            Dot,
            "[fe80::1%3]:853",
            "router.lan",
            "tls://[fe80::1%3]#router.lan",
        ),
    ] {
        let spec: UpstreamSpec = text.parse().unwrap();
        assert_eq!(spec.protocol, protocol, "{text}");
        assert_eq!(spec.address, address.parse().unwrap(), "{text}");
        assert_eq!(spec.server_name.as_deref(), Some(name), "{text}");
        assert_eq!(spec.to_string(), shown);
        assert_eq!(shown.parse(), Ok(spec));
    }
}

#[test]
fn a_spec_that_cannot_be_used_is_refused_by_name() {
    use UpstreamSpecError::{Address, BadServerName, ServerName, Unusable};
    type Reason = fn(String) -> UpstreamSpecError;
    let table: [(&str, Reason); 19] = [
        ("", Address),
        ("dns.example", Address),
        ("10.96.0.10:", Address),
        ("10.96.0.10:70000", Address),
        ("[10.96.0.10]", Address),
        ("tls://", Address),
        ("tls://#dns.quad9.net", Address),
        ("tls://9.9.9.9:70000#dns.quad9.net", Address),
        ("https://1.1.1.1/dns-query#cloudflare-dns.com", Address),
        ("quic://9.9.9.9#dns.quad9.net", Address),
        ("10.96.0.10#name", ServerName),
        ("0.0.0.0", Unusable),
        ("224.0.0.251", Unusable),
        ("10.96.0.10:0", Unusable),
        ("tls://0.0.0.0#dns.quad9.net", Unusable),
        ("tls://9.9.9.9:0#dns.quad9.net", Unusable),
        ("tls://9.9.9.9#9.9.9.9", BadServerName),
        ("tls://9.9.9.9#a..b", BadServerName),
        ("https://9.9.9.9#dns.quad9.net/dns-query", BadServerName),
    ];
    for (text, reason) in table {
        let error = text.parse::<UpstreamSpec>().unwrap_err();
        assert_eq!(error, reason(text.to_owned()));
        assert!(error.to_string().contains(text));
    }
}

#[test]
fn a_missing_server_name_is_an_error_that_says_how_to_write_it() {
    for (text, fix) in [
        ("tls://9.9.9.9", "`tls://9.9.9.9#NAME`"),
        ("tls://9.9.9.9#", "`tls://9.9.9.9#NAME`"),
        (
            "https://[2620:fe::fe]:8443",
            "`https://[2620:fe::fe]:8443#NAME`",
        ),
    ] {
        let error = text.parse::<UpstreamSpec>().unwrap_err().to_string();
        assert!(error.contains(text) && error.contains(fix), "{error}");
    }
}

#[test]
fn a_host_name_instead_of_an_address_is_an_error_that_says_how_to_write_it() {
    for (text, fix) in [
        ("tls://dns.quad9.net", "`tls://ADDRESS#dns.quad9.net`"),
        ("tls://dns.quad9.net:853#x", "`tls://ADDRESS#dns.quad9.net`"),
        (
            "https://cloudflare-dns.com/dns-query",
            "`https://ADDRESS#cloudflare-dns.com`",
        ),
    ] {
        let error = text.parse::<UpstreamSpec>().unwrap_err().to_string();
        assert!(error.contains(text) && error.contains(fix), "{error}");
    }
}
