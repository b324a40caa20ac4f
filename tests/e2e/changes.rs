//! What happens to a Service in the cluster shows on the laptop, by DNS and in the hosts file.

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    dig::{Transport, dig},
    lab::{AUTHORS, DOCS, Lab, SHOP_AUTHORS},
    laptop::Hosts,
    lookup::Family,
    product::{Manager, Session, kubebridge_output},
    wait::until,
};

/// Far above the 250 ms meant for it: the machine may be busy. What is tested is that it shows.
const SHOWN: Duration = Duration::from_secs(30);

/// Makes an ExternalName of a Service with a ClusterIP.
const TO_ALIAS: &str = r#"{"spec": {"type": "ExternalName", "externalName": "docs.example.net",
    "clusterIP": null, "clusterIPs": null, "ipFamilies": null, "ipFamilyPolicy": null}}"#;

#[test]
fn a_service_created_changed_and_deleted_shows_in_the_resolver_and_the_hosts_file() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let session = Session::connect(&lab, &[])?;
    let resolver = session.resolver()?;
    let mut checks = Checks::new();

    checks.that("hosts lines at the start", hosts_lines_at_the_start(&lab));
    checks.that("status and routes", status_and_routes_tell(&lab, &resolver));
    // Asked before it exists: that answer must not stay.
    let absent = dig(lab.laptop.on(), &resolver, Transport::Udp, "books", "A");
    checks.equal("books before", absent.map(|got| got.status), "NXDOMAIN");

    create(&lab, "10.96.2.1")?;
    checks.that("created", shows(&lab, &resolver, Some("10.96.2.1")));
    // A ClusterIP cannot be edited: a Service changes it by being made again.
    lab.kubectl(&["delete", "service", "books"])?;
    create(&lab, "10.96.2.2")?;
    checks.that("changed", shows(&lab, &resolver, Some("10.96.2.2")));
    // Edited in place it becomes an alias, which no hosts line can say.
    lab.kubectl(&["patch", "service", "books", "--type=merge", "-p", TO_ALIAS])?;
    checks.that("edited", shows(&lab, &resolver, Some(DOCS)));
    lab.kubectl(&["delete", "service", "books"])?;
    checks.that("deleted", shows(&lab, &resolver, None));
    checks.that("hosts lines at the end", hosts_lines_at_the_start(&lab));
    lab.kubectl(&[
        "create",
        "service",
        "clusterip",
        "printer",
        "--tcp=80",
        "--clusterip=10.96.2.3",
    ])?;
    checks.that("the name of a printer", a_name_of_the_laptop_stays(&lab));

    checks.that("disconnect", session.disconnect());
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// What a user asks first: is it connected, and to what.
fn status_and_routes_tell(lab: &Lab, resolver: &str) -> Result<()> {
    let status = kubebridge_output(lab, &["status"])?;
    for told in ["default", "shop", resolver] {
        ensure!(
            status.contains(told),
            "status does not tell {told}: {status}"
        );
    }
    let routes = kubebridge_output(lab, &["routes"])?;
    for told in ["authors", AUTHORS, SHOP_AUTHORS, "docs.example.net"] {
        ensure!(
            routes.contains(told),
            "routes does not tell {told}: {routes}"
        );
    }
    for command in ["status", "routes"] {
        let json = kubebridge_output(lab, &[command, "-o", "json"])?;
        let _: serde_json::Value =
            serde_json::from_str(&json).with_context(|| format!("{command} -o json: {json}"))?;
    }
    Ok(())
}

/// A Service named as a machine that the laptop knew before does not take its name.
fn a_name_of_the_laptop_stays(lab: &Lab) -> Result<()> {
    // The other form is free: once it shows, the Service was seen.
    until("a hosts line for printer.default", SHOWN, || {
        let got = hosts_addresses(lab, "printer.default")?;
        ensure!(got == ["10.96.2.3"], "{got:?}");
        Ok(())
    })?;
    let got = hosts_addresses(lab, "printer")?;
    ensure!(got == ["192.0.2.99"], "the hosts file says {got:?}");
    let found = lab
        .lookup
        .glibc(&lab.laptop, Hosts::Resolve, Family::V4, &["printer"])?;
    let got = found.of("printer")?;
    ensure!(got == "= 192.0.2.99", "glibc finds {got}");
    let status = kubebridge_output(lab, &["status"])?;
    ensure!(
        status.contains("printer"),
        "status does not tell of the conflict: {status}"
    );
    Ok(())
}

fn create(lab: &Lab, address: &str) -> Result<()> {
    let address = format!("--clusterip={address}");
    lab.kubectl(&[
        "create",
        "service",
        "clusterip",
        "books",
        "--tcp=80",
        &address,
    ])?;
    Ok(())
}

/// Waits until the resolver, the C library and the hosts file all say `address` of `books`.
///
/// The hosts file has it only if it is the cluster's own.
fn shows(lab: &Lab, resolver: &str, address: Option<&str>) -> Result<()> {
    let forms = ["books", "books.default"];
    for name in ["books", "books.default", "books.default.svc.cluster.local"] {
        let wanted = match address {
            Some(address) => format!("NOERROR {name}. A {address}"),
            None => "NXDOMAIN".to_owned(),
        };
        until(
            &format!("{wanted} from the resolver for {name}"),
            SHOWN,
            || {
                let got = dig(lab.laptop.on(), resolver, Transport::Udp, name, "A")?;
                ensure!(got.to_string() == wanted, "{got}");
                Ok(())
            },
        )?;
    }
    let addresses: Vec<&str> = address.filter(|of| *of != DOCS).into_iter().collect();
    for name in forms {
        until(
            &format!("{addresses:?} in the hosts file for {name}"),
            SHOWN,
            || {
                let got = hosts_addresses(lab, name)?;
                ensure!(got == addresses, "{got:?}");
                Ok(())
            },
        )?;
    }
    // systemd-resolved reads a changed hosts file within two seconds.
    for hosts in [Hosts::Resolve, Hosts::Stub] {
        until(
            &format!("glibc by {hosts:?} to find {address:?}"),
            SHOWN,
            || {
                let found = lab.lookup.glibc(&lab.laptop, hosts, Family::V4, &forms)?;
                for name in forms {
                    let got = found.of(name)?;
                    match address {
                        Some(address) => ensure!(got == format!("= {address}"), "{name} {got}"),
                        None => ensure!(got.starts_with('!'), "{name} {got}"),
                    }
                }
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// The addresses that the hosts file gives to `name`.
fn hosts_addresses(lab: &Lab, name: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(lab.laptop.on().path("/etc/hosts"))?;
    Ok(text
        .lines()
        .filter_map(|line| {
            let mut words = line.split('#').next()?.split_whitespace();
            let address = words.next()?;
            words.any(|word| word == name).then(|| address.to_owned())
        })
        .collect())
}

/// The session's namespace has lines for Services with an address; nothing else has.
fn hosts_lines_at_the_start(lab: &Lab) -> Result<()> {
    for (name, wanted) in [
        ("authors", vec![AUTHORS]),
        ("authors.default", vec![AUTHORS]),
        ("kubernetes", vec!["10.96.0.1"]),
        // A public suffix: no name below it is ours to write.
        ("authors.shop", vec![]),
        ("db", vec![]),
        ("docs", vec![]),
        // What was there stays.
        ("printer", vec!["192.0.2.99"]),
        ("localhost", vec!["127.0.0.1", "::1"]),
    ] {
        until(
            &format!("{wanted:?} in the hosts file for {name}"),
            SHOWN,
            || {
                let got = hosts_addresses(lab, name)?;
                ensure!(got == wanted, "{got:?}");
                Ok(())
            },
        )?;
    }
    // A program that reads nothing but the hosts file finds them.
    let found = lab.lookup.glibc(
        &lab.laptop,
        Hosts::OnlyFiles,
        Family::V4,
        &["authors", "authors.default"],
    )?;
    for name in ["authors", "authors.default"] {
        let got = found.of(name)?;
        ensure!(got == format!("= {AUTHORS}"), "hosts alone: {name} {got}");
    }
    Ok(())
}
