//! Tables of the judgements on files and who resolves.

use std::path::PathBuf;

use kubebridge_platform::inspect::ResolvConfFile;
use kubebridge_platform::{HostDns, HostDnsMode, ResolvedVia};

use super::*;
use crate::doctor::Verdict;

fn file(servers: &[&str]) -> ResolvConfFile {
    ResolvConfFile {
        readable: true,
        nameservers: servers.iter().map(|text| text.parse().unwrap()).collect(),
        ..ResolvConfFile::default()
    }
}

fn dns(mode: HostDnsMode, servers: &[&str]) -> HostDns {
    HostDns {
        mode,
        reasons: vec!["there is no system bus".to_owned()],
        servers: servers.iter().map(|text| text.parse().unwrap()).collect(),
        search: Vec::new(),
    }
}

#[test]
fn lifecycle_11_the_order_of_sources_is_judged() {
    for (line, verdict, word) in [
        (None, Verdict::Note, "none"),
        (Some("files dns"), Verdict::Ok, "ordered"),
        (Some("files resolve dns"), Verdict::Ok, "ordered"),
        (
            // systemd-resolved reads the hosts file itself.
            Some("mymachines resolve files myhostname dns"),
            Verdict::Ok,
            "ordered",
        ),
        (Some("dns files"), Verdict::Warn, "dns-first"),
        (Some("files dns resolve"), Verdict::Note, "resolve-last"),
        (Some("resolve dns"), Verdict::Warn, "no-files"),
        (Some("files"), Verdict::Warn, "no-dns"),
    ] {
        let sources = line.map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let finding = nsswitch::judge(sources.as_deref());
        assert_eq!(
            (finding.verdict, finding.found),
            (verdict, word),
            "{line:?}"
        );
        assert_eq!(finding.help.is_some(), verdict == Verdict::Warn);
    }
}

#[test]
fn lifecycle_11_and_18_the_shape_of_resolv_conf_is_judged() {
    let dangling = ResolvConfFile {
        link: Some(PathBuf::from("../run/systemd/resolve/stub-resolv.conf")),
        ..ResolvConfFile::default()
    };
    let mounted = ResolvConfFile {
        mounted: true,
        ..file(&["127.0.0.11"])
    };
    for (file, verdict, word) in [
        (file(&["192.0.2.1"]), Verdict::Ok, "servers"),
        (file(&["127.0.0.53"]), Verdict::Ok, "stub"),
        (file(&["127.0.0.53", "192.0.2.1"]), Verdict::Ok, "servers"),
        (file(&[]), Verdict::Warn, "no-servers"),
        (ResolvConfFile::default(), Verdict::Warn, "absent"),
        (dangling, Verdict::Warn, "dangling"),
        (mounted, Verdict::Note, "container"),
        (
            file(&["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"]),
            Verdict::Note,
            "too-many",
        ),
        // A session's own resolver, and one of a session that is gone.
        (file(&["10.9.0.2"]), Verdict::Fail, "loops"),
        (file(&["198.19.248.2"]), Verdict::Fail, "loops"),
    ] {
        let own = ["10.9.0.2".parse().unwrap()];
        let finding = resolv_conf::judge(Ok(&file), &own);
        assert_eq!(
            (finding.verdict, finding.found),
            (verdict, word),
            "{file:?}"
        );
    }
    let unreadable = resolv_conf::judge(Err(&"denied".to_owned()), &[]);
    assert_eq!(unreadable.verdict, Verdict::Fail);
}

#[test]
fn lifecycle_11_what_connect_would_make_of_the_machine_is_told() {
    const NSS: HostDnsMode = HostDnsMode::Resolved(ResolvedVia::Nss);
    for (mode, servers, verdict, word) in [
        (NSS, &["192.0.2.1:53"][..], Verdict::Ok, "resolved"),
        (
            HostDnsMode::Bypassed,
            &["192.0.2.1:53"],
            Verdict::Warn,
            "bypassed",
        ),
        (
            HostDnsMode::Plain,
            &["192.0.2.1:53"],
            Verdict::Warn,
            "plain",
        ),
        (NSS, &[], Verdict::Warn, "no-servers"),
    ] {
        let finding = backend::judge(Ok(&dns(mode, servers)));
        assert_eq!((finding.verdict, finding.found), (verdict, word));
        assert_eq!(finding.help.is_some(), verdict == Verdict::Warn);
        assert_eq!(finding.evidence[0], "there is no system bus");
    }
    let miswired = HostDns {
        reasons: vec!["resolved-nm-miswired: x".to_owned()],
        ..dns(NSS, &["192.0.2.1:53"])
    };
    assert_eq!(backend::judge(Ok(&miswired)).found, "miswired");
    let gone = backend::judge(Err(&"the bus hangs".to_owned()));
    assert_eq!((gone.verdict, gone.found), (Verdict::Fail, "unreadable"));
}

#[test]
fn lifecycle_11_programs_that_resolve_by_themselves_are_a_note() {
    const NSS: HostDnsMode = HostDnsMode::Resolved(ResolvedVia::Nss);
    for (mode, servers, verdict, word) in [
        (NSS, &["127.0.0.53"][..], Verdict::Ok, "stub"),
        (NSS, &["192.0.2.1"], Verdict::Note, "past-resolved"),
        (
            HostDnsMode::Plain,
            &["192.0.2.1"],
            Verdict::Note,
            "hosts-only",
        ),
    ] {
        let finding = own_resolvers::judge(Ok(&dns(mode, &[])), Ok(&file(servers)));
        assert_eq!((finding.verdict, finding.found), (verdict, word));
    }
    let unknown = "x".to_owned();
    let finding = own_resolvers::judge(Err(&unknown), Err(&unknown));
    assert_eq!(finding.verdict, Verdict::Skipped);
}

#[test]
fn lines_of_the_hosts_file_are_read_as_programs_read_them() {
    let hosts = "127.0.0.1 localhost\n# 10.0.0.1 commented\n10.0.0.7\tauthors authors.shop # kubebridge:0a1b2c3d:1\nnonsense x\n10.0.0.8 AUTHORS#x\n";
    let found = hosts_lines::addresses_of(hosts, "authors");
    let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["10.0.0.7", "10.0.0.8"]);
    assert_eq!(Vec::from_iter(hosts_lines::sessions(hosts)), ["0a1b2c3d"]);
}
