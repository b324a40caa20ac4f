//! A session leaves the laptop as it found it, however it is told to end.

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    lab::Lab,
    product::{Manager, Session, kubebridge_output, must_be_as},
    snapshot::Snapshot,
};

#[test]
fn ending_a_session_leaves_the_laptop_as_it_was() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let laptop = lab.laptop.on();
    let before = Snapshot::take(laptop)?;
    let mut checks = Checks::new();

    let idle = kubebridge_output(&lab, &["disconnect"]).map(drop);
    checks.that("disconnect without a session", idle);

    let session = Session::connect(&lab, &[])?;
    let during = Snapshot::take(laptop)?;
    // Else equality after it would prove nothing.
    for changed in ["/etc/hosts", "ip -j link show", "resolvectl domain"] {
        checks.that(
            format!("a session changes {changed}"),
            during.of(changed).and_then(|now| {
                ensure!(now != before.of(changed)?, "it is as before: {now}");
                Ok(())
            }),
        );
    }
    checks.equal(
        "a session leaves resolv.conf alone",
        during.of("/etc/resolv.conf").map(str::to_owned),
        before.of("/etc/resolv.conf")?,
    );
    checks.that("disconnect", session.disconnect());
    checks.that("after disconnect", must_be_as(&lab, &before));

    let session = Session::connect(&lab, &[])?;
    checks.that("SIGTERM", session.terminate());
    checks.that("after SIGTERM", must_be_as(&lab, &before));

    let session = Session::connect(&lab, &[])?;
    checks.that("SIGKILL", session.kill());
    // Nobody was there to undo it: the next command that may, does.
    let repair = kubebridge_output(&lab, &["disconnect"]).map(drop);
    checks.that("disconnect after SIGKILL", repair);
    checks.that("repaired after SIGKILL", must_be_as(&lab, &before));

    checks.finish()?;
    lab.finish();
    Ok(())
}
