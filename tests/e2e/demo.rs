//! `kubebridge demo`: the whole product in one process, without a cluster and without root.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    daemon::Daemon,
    dig::{Transport, dig},
    machine::Machine,
    parts::program,
};
use rustix::process::Signal;

const START: Duration = Duration::from_secs(60);
const RESOLVER: &str = "127.0.0.1#1053";

#[test]
fn the_demo_shows_the_product_without_root_and_answers_dig() -> Result<()> {
    let folder = tempfile::Builder::new()
        .prefix("kb-demo-")
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir_in("/tmp")?;
    // A copy that everybody may run, wherever the build is.
    let kubebridge = folder.path().join("kubebridge");
    fs::copy(program("kubebridge")?, &kubebridge)?;
    let kubebridge = kubebridge.display().to_string();
    let nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        &kubebridge,
    ];
    let machine = Machine::start("demo", "")?;
    let mut checks = Checks::new();

    let once = machine.run(&[&nobody[..], &["demo", "--once"]].concat())?;
    let said = String::from_utf8_lossy(&once.stdout).into_owned();
    checks.that("demo --once", {
        let error = String::from_utf8_lossy(&once.stderr);
        match once.status.success() {
            true => Ok(()),
            false => Err(anyhow::anyhow!("{}: {said}{error}", once.status)),
        }
    });
    for shown in ["authors", "db", "docs", "authors.shop"] {
        checks.that(format!("demo --once tells of {shown}"), {
            match said.contains(shown) {
                true => Ok(()),
                false => Err(anyhow::anyhow!("it said {said}")),
            }
        });
    }

    let mut command = machine.command(nobody[0]);
    command
        .args(&nobody[1..])
        .args(["demo", "--dns-listen", "127.0.0.1:1053"]);
    let demo = Daemon::start("demo", folder.path(), command)?;
    // Its own show, in which a Service changes, ends with lines to try.
    demo.until_line("the demo to say what to try", START, |line| {
        line.trim().starts_with("dig ") && line.contains("-p 1053")
    })?;
    dig_is_answered(&machine, &mut checks);
    checks.that("SIGTERM ends the demo well", {
        demo.signal(Signal::TERM)?;
        demo.ended(START).and_then(|status| {
            ensure!(status.success(), "it ended with {status}:\n{}", demo.log()?);
            Ok(())
        })
    });
    checks.finish()
}

fn dig_is_answered(machine: &Machine, checks: &mut Checks) {
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut addresses = Vec::new();
        for name in [
            "authors",
            "authors.default.svc.cluster.local",
            "authors.shop",
        ] {
            checks.that(
                format!("dig {transport:?} {name}"),
                dig(machine, RESOLVER, transport, name, "A").and_then(|got| {
                    ensure!(got.status == "NOERROR" && got.records.len() == 1, "{got}");
                    addresses.push(got.records[0].data.clone());
                    Ok(())
                }),
            );
        }
        checks.that("the forms of one name agree, another namespace differs", {
            match addresses.as_slice() {
                [short, full, other] if short == full && short != other => Ok(()),
                _ => Err(anyhow::anyhow!("{addresses:?}")),
            }
        });
        checks.equal(
            format!("dig {transport:?} authors AAAA"),
            dig(machine, RESOLVER, transport, "authors", "AAAA").map(|got| got.to_string()),
            "NOERROR",
        );
    }
}
