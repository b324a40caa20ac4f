//! The manager by itself, as a pod uses it: plain DNS on its port, Services from the real API.

use std::time::Duration;

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    dig::{Transport, dig},
    lab::{AUTHORS, DB, DOCS, DOCS_TARGET, Lab, SHOP_AUTHORS},
    product::{MANAGER_DNS, Manager},
    wait::until,
};

/// Far above the 250 ms meant for it: the machine may be busy. What is tested is that it shows.
const SHOWN: Duration = Duration::from_secs(30);

#[test]
fn the_manager_answers_a_pod_as_the_kubernetes_api_stands() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let mut checks = Checks::new();

    let alias = format!("CNAME {DOCS_TARGET}.; {DOCS_TARGET}. A {DOCS}");
    for transport in [Transport::Udp, Transport::Tcp] {
        for (name, wanted) in [
            ("authors", format!("A {AUTHORS}")),
            ("authors.default", format!("A {AUTHORS}")),
            ("authors.default.svc", format!("A {AUTHORS}")),
            ("authors.default.svc.cluster.local", format!("A {AUTHORS}")),
            ("AuThOrS.shop", format!("A {SHOP_AUTHORS}")),
            ("docs", alias.clone()),
        ] {
            checks.equal(
                format!("{transport:?} {name}"),
                ask(&lab, transport, name, "A"),
                &format!("NOERROR {name}. {wanted}"),
            );
        }
        checks.equal(
            format!("{transport:?} headless"),
            dig(&lab.node, MANAGER_DNS, transport, "db", "A").map(|got| {
                let data = got.records.into_iter().map(|record| record.data);
                let mut data: Vec<String> = data.collect();
                data.sort();
                data.join(" ")
            }),
            &DB.join(" "),
        );
        checks.equal(
            format!("{transport:?} an absent family"),
            ask(&lab, transport, "authors", "AAAA"),
            "NOERROR",
        );
        checks.equal(
            format!("{transport:?} an unknown name"),
            ask(&lab, transport, "nobody", "A"),
            "NXDOMAIN",
        );
        // A pod asks outside names here too.
        checks.equal(
            format!("{transport:?} an outside name"),
            ask(&lab, transport, "example.shop", "A"),
            "NOERROR example.shop. A 203.0.113.80",
        );
    }

    checks.equal(
        "before",
        ask(&lab, Transport::Udp, "books", "A"),
        "NXDOMAIN",
    );
    lab.kubectl(&[
        "create",
        "service",
        "clusterip",
        "books",
        "--tcp=80",
        "--clusterip=10.96.2.1",
    ])?;
    checks.that(
        "created",
        shows(&lab, "books", "NOERROR books. A 10.96.2.1"),
    );
    lab.kubectl(&["delete", "service", "books"])?;
    checks.that("deleted", shows(&lab, "books", "NXDOMAIN"));

    checks.finish()?;
    lab.finish();
    Ok(())
}

fn ask(lab: &Lab, transport: Transport, name: &str, kind: &str) -> Result<String> {
    dig(&lab.node, MANAGER_DNS, transport, name, kind).map(|got| got.to_string())
}

fn shows(lab: &Lab, name: &str, wanted: &str) -> Result<()> {
    until(&format!("{wanted} for {name}"), SHOWN, || {
        let got = ask(lab, Transport::Udp, name, "A")?;
        ensure!(got == wanted, "{got}");
        Ok(())
    })
}
