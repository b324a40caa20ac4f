use proptest::prelude::*;

use super::*;

fn servers(text: &str) -> Vec<String> {
    let config = parse(text.as_bytes());
    config.nameservers.iter().map(ToString::to_string).collect()
}

fn search(text: &str) -> Vec<String> {
    let config = parse(text.as_bytes());
    config.search.iter().map(ToString::to_string).collect()
}

#[test]
fn the_file_of_a_pod_is_read_whole() {
    let config = parse(
        b"search default.svc.cluster.local svc.cluster.local cluster.local\n\
          nameserver 10.96.0.10\n\
          options ndots:5\n",
    );
    assert_eq!(config.nameservers, ["10.96.0.10".parse().unwrap()]);
    let domains: Vec<_> = config.search.iter().map(ToString::to_string).collect();
    assert_eq!(
        domains,
        [
            "default.svc.cluster.local",
            "svc.cluster.local",
            "cluster.local"
        ]
    );
    assert_eq!(config.ndots, Some(5));
    assert_eq!((config.timeout, config.attempts), (None, None));
    assert_eq!(config.warnings, [""; 0]);
}

#[test]
fn servers_are_read_in_every_form_that_is_found_in_files() {
    for (text, expected) in [
        ("nameserver 10.1.1.1 # note", "10.1.1.1"),
        ("nameserver 10.1.1.1;note", "10.1.1.1"),
        ("nameserver\t10.1.1.1\t", "10.1.1.1"),
        ("  \t nameserver 10.1.1.1", "10.1.1.1"),
        ("nameserver 10.1.1.1\r\n", "10.1.1.1"),
        ("nameserver 10.1.1.1 10.1.1.2", "10.1.1.1"),
        ("nameserver fe80::1%eth0", "fe80::1%eth0"),
        ("nameserver ::ffff:10.0.0.1", "10.0.0.1"),
        ("nameserver 127.0.0.53", "127.0.0.53"),
        ("nameserver fd00::A", "fd00::a"),
    ] {
        assert_eq!(servers(text), [expected], "{text}");
        assert!(parse(text.as_bytes()).warnings.is_empty(), "{text}");
    }
}

#[test]
fn a_v4_address_has_no_scope_in_either_spelling() {
    for text in [
        "nameserver 10.0.0.1%eth0",
        "nameserver ::ffff:10.0.0.1%eth0",
    ] {
        let config = parse(text.as_bytes());
        assert_eq!(
            (config.nameservers.len(), config.warnings.len()),
            (0, 1),
            "{text}"
        );
    }
}

#[test]
fn more_than_three_servers_are_kept_and_repetitions_are_not() {
    let text = "nameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver ::ffff:10.0.0.1\n\
                nameserver 10.0.0.3\nnameserver 10.0.0.4\nnameserver 10.0.0.2";
    assert_eq!(
        servers(text),
        ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]
    );
}

#[test]
fn a_file_without_servers_gives_none() {
    for text in [
        "",
        "\n\n",
        "# nameserver 10.0.0.1",
        ";nameserver 10.0.0.1",
        "search a.b",
    ] {
        assert_eq!(servers(text), [""; 0], "{text}");
    }
}

#[test]
fn the_last_search_or_domain_line_wins() {
    for (text, expected) in [
        ("search a.test b.test\nsearch c.test", &["c.test"][..]),
        ("domain a.test\nsearch b.test c.test", &["b.test", "c.test"]),
        ("search a.test b.test\ndomain c.test d.test", &["c.test"]),
        ("search a.test A.TEST. b.test", &["a.test", "b.test"]),
        ("search a.test\nsearch", &["a.test"]),
        ("search a.test\nsearch .", &[]),
        ("search a.test # b.test", &["a.test"]),
    ] {
        assert_eq!(search(text), expected, "{text}");
    }
}

#[test]
fn options_are_clamped_as_glibc_does_and_the_last_wins() {
    for (text, expected) in [
        ("options ndots:0 timeout:1 attempts:1", (0, 1, 1)),
        ("options ndots:15 timeout:30 attempts:5", (15, 30, 5)),
        ("options ndots:16 timeout:31 attempts:6", (15, 30, 5)),
        ("options ndots:999999 timeout:300 attempts:256", (15, 30, 5)),
        ("options ndots:1 timeout:0 attempts:0", (1, 1, 1)),
        (
            "options ndots:1 timeout:2\noptions rotate attempts:3 ndots:4",
            (4, 2, 3),
        ),
    ] {
        let config = parse(text.as_bytes());
        let timeout = config.timeout.unwrap().as_secs();
        let read = (config.ndots.unwrap(), timeout, config.attempts.unwrap());
        assert_eq!(read, expected, "{text}");
        assert!(config.warnings.is_empty());
    }
}

#[test]
fn what_cannot_be_used_is_left_out_with_a_warning_that_names_it() {
    for (text, warning) in [
        (
            &b"nameserver dns.example"[..],
            "line 1: nameserver `dns.example` is not an IP address",
        ),
        (b"\nnameserver", "line 2: nameserver without an address"),
        (
            b"nameserver fe80::1%",
            "line 1: nameserver `fe80::1%` is not an IP address",
        ),
        (
            b"nameserver 10.0.0.1%eth0",
            "line 1: nameserver `10.0.0.1%eth0` is not an IP address",
        ),
        (
            b"options ndots:many",
            "line 1: option `ndots:many` has no number",
        ),
        (
            b"options timeout:-1",
            "line 1: option `timeout:-1` has no number",
        ),
        (
            b"nameservers 10.0.0.1",
            "line 1: unknown keyword `nameservers`",
        ),
        (
            b"search a..b",
            "line 1: search domain `a..b`: name has an empty label",
        ),
        (b"search \xff", "line 1: bytes that are not UTF-8"),
    ] {
        let config = parse(text);
        let rest = ResolvConf {
            warnings: Vec::new(),
            ..config.clone()
        };
        assert_eq!(config.warnings.first().map(String::as_str), Some(warning));
        assert_eq!(rest, ResolvConf::default(), "{warning}");
    }
}

#[test]
fn nul_and_stray_bytes_do_not_hide_the_rest_of_the_file() {
    let config = parse(b"nameserver 10.0.0.1\0junk\n\xff\xfe\nnameserver 10.0.0.2 # caf\xe9\n");
    let servers: Vec<_> = config.nameservers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["10.0.0.1", "10.0.0.2"]);
    assert!(config.warnings[0].starts_with("line 1: the rest after a NUL"));
    assert!(config.warnings[1].starts_with("line 2: bytes that are not UTF-8"));
}

#[test]
fn search_domains_beyond_32_are_left_out() {
    let domains: Vec<_> = (0..40).map(|n| format!("d{n}.test")).collect();
    let text = format!("search {}", domains.join(" "));
    assert_eq!(search(&text), domains[..32]);
    let warnings = parse(text.as_bytes()).warnings;
    assert_eq!(warnings, ["line 1: more than 32 search domains"]);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        parse(&bytes);
    }

    #[test]
    fn any_words_are_read_without_a_panic(
        text in "((nameserver|search|domain|options)[ \t](\\PC{0,12}|ndots:[0-9]{0,12})[;#\r\n ]){0,8}",
    ) {
        parse(text.as_bytes());
    }
}
