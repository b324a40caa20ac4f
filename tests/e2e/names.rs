//! With a session, programs on the laptop resolve what a pod would, and all else as before.
//!
//! Hosts lines are off here: every answer comes by DNS. They are tested in `changes`.

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    dig::{Transport, dig},
    lab::{AUTHORS, DB, DOCS, DOCS_TARGET, Lab, SHOP_AUTHORS},
    laptop::Hosts,
    lookup::{Family, Found},
    product::{Manager, Session},
};

/// Names of the cluster as people write them, and the one address each leads to.
const CLUSTER_NAMES: &[(&str, &str)] = &[
    ("authors", AUTHORS),
    ("authors.default", AUTHORS),
    ("authors.default.svc", AUTHORS),
    ("authors.default.svc.cluster.local", AUTHORS),
    ("authors.shop", SHOP_AUTHORS),
    ("authors.shop.svc", SHOP_AUTHORS),
    ("authors.shop.svc.cluster.local", SHOP_AUTHORS),
    ("docs", DOCS),
    ("docs.default", DOCS),
    ("docs.default.svc.cluster.local", DOCS),
];

/// Names of the headless Service, which has two addresses.
const HEADLESS_NAMES: &[&str] = &["db", "db.default", "db.default.svc.cluster.local"];

/// Names outside, each with the types asked: below a public suffix that is also a namespace, a
/// chain of aliases, and names that do not exist.
const OUTSIDE_NAMES: &[(&str, &[&str])] = &[
    ("example.shop", &["A", "AAAA", "MX"]),
    ("www.example.org", &["A", "AAAA"]),
    ("edge.example.net", &["A", "AAAA"]),
    ("nothere.shop", &["A"]),
    ("nothere.example.org", &["A", "AAAA"]),
];

#[test]
fn a_session_resolves_cluster_names_as_a_pod_and_outside_names_as_before() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let before = outside_as_programs_see_it(&lab)?;
    let session = Session::connect(&lab, &["--hosts", "off"])?;
    let resolver = session.resolver()?;
    let mut checks = Checks::new();

    programs_find_cluster_names(&lab, &mut checks)?;
    resolvectl_finds_cluster_names(&lab, &mut checks);
    dig_finds_cluster_names(&lab, &resolver, &mut checks);
    an_absent_family_is_no_data(&lab, &resolver, &mut checks)?;
    unknown_cluster_names_do_not_exist(&lab, &resolver, &mut checks);
    outside_names_are_as_before(&lab, &resolver, &before, &mut checks)?;
    checks.that("outside names stay outside", nothing_leaked_in(&lab));
    checks.that("cluster names stay inside", nothing_leaked_out(&lab));

    checks.that("disconnect", session.disconnect());
    checks.that(
        "after it no cluster name is found",
        lab.lookup
            .glibc(
                &lab.laptop,
                Hosts::Resolve,
                Family::Any,
                &["authors", "authors.default"],
            )
            .and_then(|found| {
                let got = [found.of("authors")?, found.of("authors.default")?];
                ensure!(got.iter().all(|got| got.starts_with('!')), "{got:?}");
                Ok(())
            }),
    );
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// What programs find for one list of names, by each way a program may go.
fn by_each_way(lab: &Lab, family: Family, names: &[&str]) -> Result<Vec<(&'static str, Found)>> {
    let glibc = |hosts| lab.lookup.glibc(&lab.laptop, hosts, family, names);
    Ok(vec![
        ("glibc, nss-resolve", glibc(Hosts::Resolve)?),
        ("glibc, nss-resolve alone", glibc(Hosts::OnlyResolve)?),
        ("glibc, stub", glibc(Hosts::Stub)?),
        ("musl, stub", lab.lookup.musl(&lab.laptop, family, names)?),
    ])
}

fn programs_find_cluster_names(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let names: Vec<&str> = CLUSTER_NAMES.iter().map(|(name, _)| *name).collect();
    for family in [Family::Any, Family::V4] {
        for (way, found) in by_each_way(lab, family, &names)? {
            for (name, address) in CLUSTER_NAMES {
                checks.equal(
                    format!("{way}, {family:?}: {name}"),
                    found.of(name),
                    &format!("= {address}"),
                );
            }
        }
    }
    let both = format!("= {} {}", DB[0], DB[1]);
    for (way, found) in by_each_way(lab, Family::V4, HEADLESS_NAMES)? {
        for name in HEADLESS_NAMES {
            checks.equal(format!("{way}: headless {name}"), found.of(name), &both);
        }
    }
    // The program people try first.
    checks.equal(
        "getent ahostsv4 authors",
        lab.laptop
            .on()
            .output(&["getent", "ahostsv4", "authors"])
            .map(|said| {
                said.split_whitespace()
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            }),
        AUTHORS,
    );
    Ok(())
}

fn resolvectl_finds_cluster_names(lab: &Lab, checks: &mut Checks) {
    for (name, address) in CLUSTER_NAMES {
        let said = lab
            .laptop
            .on()
            .output(&["resolvectl", "--legend=no", "query", name]);
        checks.that(
            format!("resolvectl query {name}"),
            said.and_then(|said| {
                // authors: 10.96.1.1                -- link: kb0
                ensure!(
                    said.contains(&format!("{name}: {address}")) && said.contains("-- link: kb"),
                    "said {said}"
                );
                Ok(())
            }),
        );
    }
}

fn dig_finds_cluster_names(lab: &Lab, resolver: &str, checks: &mut Checks) {
    let laptop = lab.laptop.on();
    for (server, dotted_only) in [(resolver, false), ("127.0.0.53", true)] {
        for transport in [Transport::Udp, Transport::Tcp] {
            for (name, address) in CLUSTER_NAMES {
                // The stub refuses single labels: it does not search for its askers.
                if dotted_only && !name.contains('.') {
                    continue;
                }
                checks.equal(
                    format!("dig @{server} {transport:?} {name}"),
                    dig(laptop, server, transport, name, "A").map(|got| got.to_string()),
                    // Also of an alias (`docs`): systemd-resolved would ask for its target again,
                    // at the laptop's own server, which does not know it.
                    &format!("NOERROR {name}. A {address}"),
                );
            }
            for name in HEADLESS_NAMES {
                if dotted_only && !name.contains('.') {
                    continue;
                }
                checks.equal(
                    format!("dig @{server} {transport:?} headless {name}"),
                    dig(laptop, server, transport, name, "A").map(|got| {
                        let mut data: Vec<String> =
                            got.records.into_iter().map(|record| record.data).collect();
                        data.sort();
                        data.join(" ")
                    }),
                    &DB.join(" "),
                );
            }
        }
    }
    checks.that(
        "cluster answers may not be kept by the laptop",
        dig(laptop, resolver, Transport::Udp, "authors", "A").and_then(|got| {
            let ttl = got.records.first().context("no record")?.ttl;
            ensure!(ttl == 0, "TTL {ttl}");
            Ok(())
        }),
    );
}

fn an_absent_family_is_no_data(lab: &Lab, resolver: &str, checks: &mut Checks) -> Result<()> {
    let names = [
        "authors",
        "authors.default",
        "authors.default.svc.cluster.local",
        "authors.shop",
    ];
    for name in names {
        for (server, transport) in [
            (resolver, Transport::Udp),
            (resolver, Transport::Tcp),
            ("127.0.0.53", Transport::Udp),
        ] {
            if server != resolver && !name.contains('.') {
                continue;
            }
            checks.equal(
                format!("dig @{server} {transport:?} {name} AAAA"),
                dig(lab.laptop.on(), server, transport, name, "AAAA").map(|got| got.to_string()),
                "NOERROR",
            );
        }
    }
    for (way, found) in by_each_way(lab, Family::V6, &names)? {
        for name in names {
            checks.that(
                format!("{way}: {name} over IPv6"),
                found.of(name).and_then(|got| {
                    ensure!(
                        got.starts_with("! NODATA") || got.starts_with("! NONAME"),
                        "{got}"
                    );
                    Ok(())
                }),
            );
        }
    }
    Ok(())
}

fn unknown_cluster_names_do_not_exist(lab: &Lab, resolver: &str, checks: &mut Checks) {
    for name in [
        "nobody.default",
        "nobody.default.svc",
        "nobody.default.svc.cluster.local",
    ] {
        for server in [resolver, "127.0.0.53"] {
            checks.equal(
                format!("dig @{server} {name}"),
                dig(lab.laptop.on(), server, Transport::Udp, name, "A").map(|got| got.to_string()),
                "NXDOMAIN",
            );
        }
    }
}

/// What programs and the stub say of every outside name, as one text for each question.
fn outside_as_programs_see_it(lab: &Lab) -> Result<Vec<(String, String)>> {
    let mut seen = Vec::new();
    let names: Vec<&str> = OUTSIDE_NAMES.iter().map(|(name, _)| *name).collect();
    for family in [Family::Any, Family::V4, Family::V6] {
        for (way, found) in by_each_way(lab, family, &names)? {
            for name in &names {
                seen.push((format!("{way}, {family:?}: {name}"), found.of(name)?));
            }
        }
    }
    for (name, kinds) in OUTSIDE_NAMES {
        for kind in *kinds {
            for transport in [Transport::Udp, Transport::Tcp] {
                let got = dig(lab.laptop.on(), "127.0.0.53", transport, name, kind)?;
                seen.push((
                    format!("dig @127.0.0.53 {transport:?} {name} {kind}"),
                    got.to_string(),
                ));
            }
        }
    }
    Ok(seen)
}

fn outside_names_are_as_before(
    lab: &Lab,
    resolver: &str,
    before: &[(String, String)],
    checks: &mut Checks,
) -> Result<()> {
    for ((question, after), (_, before)) in outside_as_programs_see_it(lab)?.iter().zip(before) {
        checks.equal(question, Ok(after.clone()), before);
    }
    // Asked at our own resolver they get what the original server says.
    let laptop = lab.laptop.on();
    for (name, kinds) in OUTSIDE_NAMES {
        for kind in *kinds {
            let original = dig(
                laptop,
                kubebridge_tests::lab::OUTSIDE_DNS,
                Transport::Udp,
                name,
                kind,
            )?;
            for transport in [Transport::Udp, Transport::Tcp] {
                checks.equal(
                    format!("dig @{resolver} {transport:?} {name} {kind}"),
                    dig(laptop, resolver, transport, name, kind).map(|got| got.to_string()),
                    &original.to_string(),
                );
            }
        }
    }
    checks.that(
        "a name below the namespace's suffix went to the original server",
        lab.outside.must_have_seen("example.shop"),
    );
    Ok(())
}

/// Looks for outside names in what the cluster side was asked: by the laptop through the tunnel,
/// and by the manager at CoreDNS and beyond it.
fn nothing_leaked_in(lab: &Lab) -> Result<()> {
    ensure!(
        lab.relay.carried("db.default.svc.cluster.local") || lab.relay.carried("db.default"),
        "the tunnel's record does not even show the cluster names"
    );
    let coredns = lab.coredns.queries()?;
    let beyond = lab.cluster_outside.queries()?;
    ensure!(
        coredns
            .iter()
            .any(|name| name == "db.default.svc.cluster.local"),
        "CoreDNS's log does not even show the headless Service"
    );
    ensure!(
        beyond.iter().any(|name| name == DOCS_TARGET),
        "the cluster's outside server does not even show the alias's target"
    );
    // Exactly these: glibc itself tries a name that does not exist, or has no address of the one
    // family asked for, under the search list, as `nothere.shop.default.svc.cluster.local`.
    for (name, _) in OUTSIDE_NAMES {
        let here = |seen: &String| seen == name;
        ensure!(!lab.relay.carried(name), "the tunnel carried {name}");
        ensure!(!coredns.iter().any(here), "CoreDNS was asked for {name}");
        ensure!(
            !beyond.iter().any(here),
            "the cluster asked outside for {name}"
        );
    }
    Ok(())
}

/// Looks for cluster names in what the laptop's own server was asked.
fn nothing_leaked_out(lab: &Lab) -> Result<()> {
    let ours = CLUSTER_NAMES.iter().map(|(name, _)| *name);
    let ours: Vec<&str> = ours.chain(HEADLESS_NAMES.iter().copied()).collect();
    for seen in lab.outside.queries()? {
        ensure!(
            !ours.contains(&seen.as_str())
                && seen != DOCS_TARGET
                && !seen.ends_with(".cluster.local")
                && !seen.ends_with(".default"),
            "the outside server was asked for {seen}"
        );
    }
    Ok(())
}
