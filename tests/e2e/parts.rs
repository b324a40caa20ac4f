//! The lab itself, without the product: each real part does what the other tests take for granted.

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    dig::{Transport, dig},
    lab::{AUTHORS, CLUSTER_DNS, Lab, OUTSIDE_DNS},
    laptop::Hosts,
    lookup::Family,
    snapshot::Snapshot,
};

#[test]
fn the_lab_is_made_of_parts_that_work_without_us() -> Result<()> {
    let lab = Lab::start()?;
    let mut checks = Checks::new();
    let laptop = lab.laptop.on();
    let before = Snapshot::take(laptop)?;

    for hosts in [Hosts::Resolve, Hosts::OnlyResolve, Hosts::Stub] {
        let names = ["www.example.org", "example.shop", "authors.default"];
        let found = lab.lookup.glibc(&lab.laptop, hosts, Family::V4, &names)?;
        checks.equal(
            format!("{hosts:?} alias"),
            found.of("www.example.org"),
            "= 203.0.113.81",
        );
        checks.equal(
            format!("{hosts:?} .shop"),
            found.of("example.shop"),
            "= 203.0.113.80",
        );
        checks.that(
            format!("{hosts:?} cluster name"),
            found.of("authors.default").and_then(|got| {
                ensure!(got.starts_with('!'), "found {got} without a session");
                Ok(())
            }),
        );
    }
    checks.equal(
        "the alias chain at the outside server",
        dig(laptop, OUTSIDE_DNS, Transport::Udp, "www.example.org", "A").map(|got| got.to_string()),
        "NOERROR www.example.org. CNAME cdn.example.net.; cdn.example.net. CNAME edge.example.net.; \
         edge.example.net. A 203.0.113.81",
    );
    checks.equal(
        "an absent family at the outside server",
        dig(laptop, OUTSIDE_DNS, Transport::Udp, "example.shop", "AAAA").map(|got| got.to_string()),
        "NOERROR",
    );
    checks.that(
        "the outside server logs what it is asked",
        lab.outside.must_have_seen("www.example.org"),
    );

    let name = "authors.default.svc.cluster.local";
    for transport in [Transport::Udp, Transport::Tcp] {
        checks.equal(
            format!("CoreDNS over {transport:?}"),
            dig(&lab.node, CLUSTER_DNS, transport, name, "A").map(|got| got.to_string()),
            &format!("NOERROR {name}. A {AUTHORS}"),
        );
    }
    checks.equal(
        "CoreDNS for a headless Service",
        dig(
            &lab.node,
            CLUSTER_DNS,
            Transport::Udp,
            "db.default.svc.cluster.local",
            "A",
        )
        .map(|got| got.records.len().to_string()),
        "2",
    );
    checks.that(
        "the laptop has no way to the cluster",
        match dig(laptop, CLUSTER_DNS, Transport::Udp, name, "A") {
            Err(_) => Ok(()),
            Ok(got) => Err(anyhow::anyhow!("CoreDNS answered: {got}")),
        },
    );
    checks.that(
        "rights of the manager's account",
        only_services_may_be_read(&lab),
    );
    checks.that(
        "looking changes nothing",
        Snapshot::take(laptop)?.must_equal(&before),
    );

    checks.finish()?;
    lab.finish();
    Ok(())
}

fn only_services_may_be_read(lab: &Lab) -> Result<()> {
    lab.api
        .service_reader(&lab.node, "reader", &["default", "shop"])?;
    let may = |words: &[&str]| -> Result<String> {
        let all = [&["auth", "can-i"], words].concat();
        // It ends with 1 for a "no".
        let said = lab.api.kubectl_run_as(&lab.node, "reader", &all)?;
        Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
    };
    let table: [(&[&str], &str); 4] = [
        (&["list", "services", "-n", "default"], "yes"),
        (&["watch", "services", "-n", "shop"], "yes"),
        (&["list", "services", "-n", "kube-system"], "no"),
        (&["list", "secrets", "-n", "default"], "no"),
    ];
    for (question, wanted) in table {
        let got = may(question)?;
        ensure!(got == wanted, "{question:?}: {got}");
    }
    Ok(())
}
