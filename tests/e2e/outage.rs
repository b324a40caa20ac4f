//! The manager dies and comes back: outside names never notice, cluster names come back by
//! themselves.

use std::time::Duration;

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    dig::{Transport, dig},
    lab::{AUTHORS, Lab},
    laptop::Hosts,
    lookup::Family,
    product::{Manager, Session, kubebridge_output},
    wait::until,
};

/// The longest until a session has found its manager again.
const BACK: Duration = Duration::from_secs(60);

#[test]
fn an_outage_of_the_manager_leaves_outside_names_alone_and_ends_by_itself() -> Result<()> {
    let lab = Lab::start()?;
    let manager = Manager::start(&lab)?;
    let session = Session::connect(&lab, &["--hosts", "off"])?;
    let resolver = session.resolver()?;
    let mut checks = Checks::new();
    let ask = |name: &str| {
        dig(lab.laptop.on(), &resolver, Transport::Udp, name, "A").map(|got| got.to_string())
    };

    checks.equal(
        "before",
        ask("authors"),
        &format!("NOERROR authors. A {AUTHORS}"),
    );
    manager.kill()?;
    checks.equal(
        "an outside name",
        ask("example.shop"),
        "NOERROR example.shop. A 203.0.113.80",
    );
    checks.equal(
        "an outside name for programs",
        lab.lookup
            .glibc(
                &lab.laptop,
                Hosts::Resolve,
                Family::V4,
                &["www.example.org"],
            )
            .and_then(|found| found.of("www.example.org")),
        "= 203.0.113.81",
    );
    for (name, allowed) in [
        // Known before: answered as it was, or not at all.
        (
            "authors",
            vec![format!("NOERROR authors. A {AUTHORS}"), "SERVFAIL".into()],
        ),
        // Not known: nobody may say that it does not exist, but for the route table.
        ("db", vec!["SERVFAIL".into()]),
    ] {
        // That it is there within 2 s is held on paused time; dig waits for 15 s.
        checks.that(
            format!("{name} while the manager is away"),
            ask(name).and_then(|got| {
                ensure!(allowed.contains(&got), "{got}");
                Ok(())
            }),
        );
    }
    let status = kubebridge_output(&lab, &["status"]).map(drop);
    checks.that("status while the manager is away", status);

    let _manager = Manager::start(&lab)?;
    lab.kubectl(&[
        "create",
        "service",
        "clusterip",
        "books",
        "--tcp=80",
        "--clusterip=10.96.2.1",
    ])?;
    for (name, wanted) in [
        ("authors", format!("NOERROR authors. A {AUTHORS}")),
        ("books", "NOERROR books. A 10.96.2.1".to_owned()),
    ] {
        checks.that(
            format!("{name} when it is back"),
            until(&format!("{wanted} after the outage"), BACK, || {
                let got = ask(name)?;
                ensure!(got == wanted, "{got}");
                Ok(())
            }),
        );
    }
    checks.that("disconnect", session.disconnect());
    checks.finish()?;
    lab.finish();
    Ok(())
}
