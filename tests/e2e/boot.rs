//! Recovery when the machine starts: the unit that is installed is one that systemd takes, and what it
//! runs puts a machine back that lost its power under a session, with the unit's own rights.

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    lab::Lab,
    machine::Machine,
    product::{Manager, Session, kubebridge, kubebridge_as_nobody, kubebridge_output, must_be_as},
    snapshot::Snapshot,
};

const UNIT: &str = "/etc/systemd/system/kubebridge-recover.service";
const LINK: &str = "/etc/systemd/system/sysinit.target.wants/kubebridge-recover.service";

#[test]
fn lifecycle_07_a_machine_that_lost_its_power_is_put_back_by_its_unit_at_the_next_start()
-> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let laptop = lab.laptop.on();
    let untouched = Snapshot::take(laptop)?;
    let mut checks = Checks::new();

    checks.that("no systemd", without_systemd(&lab));
    // As systemd has it where it runs the machine.
    laptop.shell("mkdir -p /run/systemd/system")?;
    checks.that("nobody may", as_nobody(&lab));
    let shown = kubebridge_output(&lab, &["install-recovery", "--dry-run"])?;
    checks.that("--dry-run writes nothing", {
        Snapshot::take(laptop)?.must_equal(&untouched)
    });
    kubebridge_output(&lab, &["install-recovery"])?;
    let unit = laptop.output(&["cat", UNIT])?;
    checks.that("--dry-run shows the unit", {
        let whole = shown.contains(&unit) && shown.contains(LINK);
        whole.then_some(()).context(shown)
    });
    checks.that("systemd takes it", systemd_takes_it(laptop));
    let installed = Snapshot::take(laptop)?;

    // Links, routes and DNS settings do not outlive a boot: hosts lines do.
    Session::connect(&lab, &["--dns", "hosts-only"])?.kill()?;
    let left = Snapshot::take(laptop)?;
    checks.that("there is something to put back", {
        let differs = left.of("/etc/hosts")? != installed.of("/etc/hosts")?;
        differs.then_some(()).context("the hosts file is as before")
    });
    checks.that("the next start", start_anew(laptop, &unit));
    checks.that("as before the session", must_be_as(&lab, &installed));
    checks.that("and again", start_anew(laptop, &unit));

    let removed = kubebridge_output(&lab, &["install-recovery", "--remove"]);
    checks.equal(
        "what is removed",
        removed,
        &format!("removed {LINK}\nremoved {UNIT}\n"),
    );
    checks.that("as it never was", must_be_as(&lab, &untouched));
    checks.finish()?;
    lab.finish();
    Ok(())
}

fn without_systemd(lab: &Lab) -> Result<()> {
    let refused = kubebridge(lab, &["install-recovery"])?;
    let said = String::from_utf8_lossy(&refused.stderr);
    ensure!(
        refused.status.code() == Some(71),
        "{}: {said}",
        refused.status
    );
    ensure!(
        said.contains("systemd does not run this machine") && said.contains("kubebridge recover"),
        "{said}"
    );
    Ok(())
}

fn as_nobody(lab: &Lab) -> Result<()> {
    let refused = kubebridge_as_nobody(lab, &["install-recovery"])?;
    let said = String::from_utf8_lossy(&refused.stderr);
    ensure!(
        refused.status.code() == Some(77),
        "{}: {said}",
        refused.status
    );
    Ok(())
}

/// Whatever systemd does not understand of a unit it passes over, and says so.
fn systemd_takes_it(laptop: &Machine) -> Result<()> {
    let said = laptop.run(&["/usr/bin/systemd-analyze", "verify", UNIT])?;
    let words = format!(
        "{}{}",
        String::from_utf8_lossy(&said.stdout),
        String::from_utf8_lossy(&said.stderr)
    );
    ensure!(
        said.status.success() && words.trim().is_empty(),
        "{}: {words}",
        said.status
    );
    Ok(())
}

/// Runs what the unit runs, where it may write what the unit lets it, with the rights it has there,
/// in another boot: what was in `/run` is gone.
fn start_anew(laptop: &Machine, unit: &str) -> Result<()> {
    let setting = |name: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(name));
        line.with_context(|| format!("the unit has no {name}"))
    };
    let rights: Vec<_> = setting("CapabilityBoundingSet=")?
        .split(' ')
        .map(|right| format!("+{}", right.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    ensure!(setting("ProtectSystem=")? == "strict", "{unit}");
    let script = format!(
        "rm -rf /run/kubebridge
test -d {journals}
echo 00000000-0000-4000-8000-000000000001 >/run/boot-id
unshare -m --propagation private bash -ec '
mount --bind /run/boot-id /proc/sys/kernel/random/boot_id
for folder in {writable}; do mount --bind $folder $folder; done
mount -o remount,bind,ro /
exec setpriv --bounding-set=-all,{rights} --inh-caps=-all --no-new-privs {start}'
rm -r /run/boot-id /run/kubebridge",
        journals = setting("ConditionDirectoryNotEmpty=")?,
        writable = setting("ReadWritePaths=")?,
        rights = rights.join(","),
        start = setting("ExecStart=")?,
    );
    laptop.shell(&script).map(drop)
}
