//! The session is killed at every point of connect and disconnect: what it left is undone, to the
//! byte, by `recover` and by the next session.

use std::{fs, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use kubebridge_tests::{
    checks::Checks,
    dig::{Transport, dig},
    lab::Lab,
    product::{
        Attempt, Manager, Session, kubebridge, kubebridge_output, must_be_as, resolver_address,
    },
    snapshot::Snapshot,
    wait::last,
};
use rustix::process::Signal;
use tokio::time::Instant;

/// What `connect` says when a step is done: the moments after which to kill it.
const STEPS: [&str; 14] = [
    "recover: ",
    "read DNS: ",
    "dial manager: ",
    "open session: ",
    "other sessions: ",
    "plan routes: ",
    "link: ",
    "resolver: ",
    "routes: ",
    "probe: ",
    "system DNS: ",
    "hosts: ",
    "verify: ",
    "connected",
];

/// The same of its end.
const UNDONE: [&str; 4] = [
    "restore system DNS and hosts: ",
    "resolver answers on: ",
    "remove link: ",
    "close session: ",
];

/// Kills between the start and the end of connect, beside those after each step.
const STRIDES: u32 = 12;

#[test]
fn a_session_killed_while_it_connects_leaves_nothing_that_is_not_undone() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let before = Snapshot::take(lab.laptop.on())?;
    let mut checks = Checks::new();
    let begin = Instant::now();
    Session::connect(&lab, &[])?.end_at_once()?;
    // The whole of connect lies within.
    let whole = begin.elapsed() / 2;

    let mut kills = Repairs::new(&lab, &before);
    for step in STEPS {
        let attempt = Attempt::start(&lab, &[])?;
        attempt.says(step)?;
        kills.kill(attempt, &format!("after {step:?}"), &mut checks)?;
    }
    for stride in 0..STRIDES {
        let attempt = Attempt::start(&lab, &[])?;
        let after = whole * stride / STRIDES;
        last(after);
        kills.kill(
            attempt,
            &format!("{after:.0?} after its start"),
            &mut checks,
        )?;
    }
    kills.tell(20)?;
    checks.finish()?;
    lab.finish();
    Ok(())
}

#[test]
fn a_session_killed_while_it_disconnects_leaves_nothing_that_is_not_undone() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let before = Snapshot::take(lab.laptop.on())?;
    let mut checks = Checks::new();
    let mut kills = Repairs::new(&lab, &before);

    for step in UNDONE {
        let attempt = Session::connect(&lab, &[])?.ending();
        attempt.signal(Signal::TERM)?;
        if step != UNDONE[0] {
            attempt.says(UNDONE[0])?;
            // The second one cuts the wait for programs that still ask.
            attempt.signal(Signal::TERM)?;
        }
        attempt.says(step)?;
        kills.kill(attempt, &format!("after {step:?}"), &mut checks)?;
    }
    for milliseconds in [0, 3, 6, 10, 15, 20, 30, 45, 60, 90] {
        let attempt = Session::connect(&lab, &[])?.ending();
        attempt.signal(Signal::TERM)?;
        last(Duration::from_millis(milliseconds));
        let when = format!("{milliseconds} ms after SIGTERM");
        kills.kill(attempt, &when, &mut checks)?;
    }
    kills.tell(14)?;
    checks.finish()?;
    lab.finish();
    Ok(())
}

#[test]
fn what_a_killed_session_left_is_undone_around_torn_files_and_full_and_read_only_disks()
-> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let before = Snapshot::take(lab.laptop.on())?;
    let mut checks = Checks::new();

    checks.that("leftovers are told", leftovers_are_told(&lab, &before));
    checks.that("a torn journal", a_torn_journal(&lab, &before));
    checks.that("a foreign line", a_foreign_line_stays(&lab, &before));
    checks.that("a read-only /etc", a_read_only_etc(&lab, &before));
    checks.that(
        "a session on a read-only /etc",
        a_session_on_a_read_only_etc(&lab, &before),
    );
    checks.that("a full disk", a_full_disk(&lab, &before));
    checks.that("no room at connect", no_room_at_connect(&lab, &before));
    checks.that("at the end", must_be_as(&lab, &before));
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// Kills sessions, and has what they leave undone by one of two ways in turn.
struct Repairs<'lab> {
    lab: &'lab Lab,
    before: &'lab Snapshot,
    killed: usize,
    in_time: usize,
}

impl<'lab> Repairs<'lab> {
    fn new(lab: &'lab Lab, before: &'lab Snapshot) -> Self {
        Self {
            lab,
            before,
            killed: 0,
            in_time: 0,
        }
    }

    fn kill(&mut self, attempt: Attempt<'_>, when: &str, checks: &mut Checks) -> Result<()> {
        // One that is over by itself, at the end of disconnect, needs no kill.
        let _ = attempt.signal(Signal::KILL);
        let ended = attempt.ended()?;
        self.killed += 1;
        // nsenter ends as its program did.
        self.in_time += usize::from(!ended.success());
        let repaired = if self.killed.is_multiple_of(2) {
            self.by_the_next_session()
        } else {
            self.by_recover()
        };
        checks.that(format!("killed {when}"), repaired);
        Ok(())
    }

    fn by_recover(&self) -> Result<()> {
        kubebridge_output(self.lab, &["recover"])?;
        must_be_as(self.lab, self.before).context("after recover")?;
        kubebridge_output(self.lab, &["recover"])?;
        kubebridge_output(self.lab, &["recover"])?;
        must_be_as(self.lab, self.before).context("after recover again and again")
    }

    fn by_the_next_session(&self) -> Result<()> {
        Session::connect(self.lab, &[])?.end_at_once()?;
        must_be_as(self.lab, self.before).context("after another session")
    }

    #[expect(
        clippy::print_stderr,
        reason = "shown of a test that fails, and on demand"
    )]
    fn tell(&self, least: usize) -> Result<()> {
        eprintln!(
            "{} sessions killed, {} of them before their end",
            self.killed, self.in_time
        );
        // At the very end of disconnect a kill may come too late.
        ensure!(self.in_time + 2 >= least, "only {}", self.in_time);
        Ok(())
    }
}

/// A session that has changed all it changes, and is dead.
fn dead_session(lab: &Lab) -> Result<()> {
    Session::connect(lab, &[])?.kill()
}

fn leftovers_are_told(lab: &Lab, before: &Snapshot) -> Result<()> {
    dead_session(lab)?;
    let left = Snapshot::take(lab.laptop.on())?;
    let status = kubebridge_output(lab, &["status"])?;
    ensure!(
        status.contains("hosts file") && status.contains("recover"),
        "status says {status}"
    );
    // The link died with its owner, and its DNS settings with it.
    ensure!(
        left.of("/etc/hosts")? != before.of("/etc/hosts")?,
        "the kill left no hosts lines: nothing is tested here"
    );
    Snapshot::take(lab.laptop.on())?
        .must_equal(&left)
        .context("status changed something")?;
    kubebridge_output(lab, &["recover"])?;
    must_be_as(lab, before)
}

fn a_torn_journal(lab: &Lab, before: &Snapshot) -> Result<()> {
    dead_session(lab)?;
    let folder = lab.laptop.on().path("/var/lib/kubebridge/sessions");
    let journal = fs::read_dir(&folder)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "journal"))
        .ok_or_else(|| anyhow!("no journal in {}", folder.display()))?;
    // As when the machine stopped while the next record was written.
    let mut bytes = fs::read(&journal)?;
    let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let last = text.rsplit(|byte| *byte == b'\n').next();
    let last = last.context("the journal is empty")?.to_vec();
    bytes.extend_from_slice(&last[..last.len() / 2]);
    fs::write(&journal, bytes)?;
    kubebridge_output(lab, &["recover"])?;
    must_be_as(lab, before)
}

fn a_foreign_line_stays(lab: &Lab, before: &Snapshot) -> Result<()> {
    let laptop = lab.laptop.on();
    let hosts = fs::read(laptop.path("/etc/hosts"))?;
    dead_session(lab)?;
    laptop.shell("echo '192.0.2.77 scanner' >>/etc/hosts")?;
    kubebridge_output(lab, &["recover"])?;
    let now = fs::read(laptop.path("/etc/hosts"))?;
    let wanted = [&hosts[..], b"192.0.2.77 scanner\n"].concat();
    fs::write(laptop.path("/etc/hosts"), &hosts)?;
    ensure!(
        now == wanted,
        "the hosts file became {:?}",
        String::from_utf8_lossy(&now)
    );
    must_be_as(lab, before)
}

fn a_read_only_etc(lab: &Lab, before: &Snapshot) -> Result<()> {
    let laptop = lab.laptop.on();
    dead_session(lab)?;
    laptop.shell("mount -o remount,bind,ro /etc")?;
    let refused = kubebridge(lab, &["recover"])?;
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    laptop.shell("mount -o remount,bind,rw /etc")?;
    kubebridge_output(lab, &["recover"])?;
    must_be_as(lab, before)?;
    ensure!(
        refused.status.code() == Some(71) && error.contains("/etc/hosts"),
        "recover on a read-only /etc: {} {error}",
        refused.status
    );
    Ok(())
}

/// Where the hosts file cannot be written there is DNS all the same, and a warning.
fn a_session_on_a_read_only_etc(lab: &Lab, before: &Snapshot) -> Result<()> {
    let laptop = lab.laptop.on();
    laptop.shell("mount -o remount,bind,ro /etc")?;
    let attempt = Attempt::start(lab, &[])?;
    let outcome = attempt.says("connected").and_then(|()| {
        let said = attempt.said()?;
        let warned = said
            .lines()
            .any(|line| line.starts_with("warning: ") && line.contains("hosts"));
        ensure!(warned, "it does not warn: {said}");
        let resolver = resolver_address(lab)?;
        let got = dig(laptop, &resolver, Transport::Udp, "authors", "A")?;
        ensure!(got.status == "NOERROR", "authors: {got}");
        attempt.connected()?.end_at_once()
    });
    laptop.shell("mount -o remount,bind,rw /etc")?;
    outcome?;
    must_be_as(lab, before)
}

fn a_full_disk(lab: &Lab, before: &Snapshot) -> Result<()> {
    let laptop = lab.laptop.on();
    laptop.shell(
        "mkdir -p /var/lib/kubebridge
mount -t tmpfs -o size=128k,mode=755 tmpfs /var/lib/kubebridge",
    )?;
    let outcome = dead_session(lab).and_then(|()| {
        // dd ends with an error: that is when it is full.
        laptop.shell("dd if=/dev/zero of=/var/lib/kubebridge/filler bs=4k 2>/dev/null || true")?;
        kubebridge_output(lab, &["recover"])?;
        must_be_as(lab, before)
    });
    laptop.shell("umount /var/lib/kubebridge")?;
    outcome
}

fn no_room_at_connect(lab: &Lab, before: &Snapshot) -> Result<()> {
    let laptop = lab.laptop.on();
    laptop.shell(
        "mkdir -p /var/lib/kubebridge
mount -t tmpfs -o size=64k,mode=755 tmpfs /var/lib/kubebridge
mkdir -m 700 /var/lib/kubebridge/sessions
dd if=/dev/zero of=/var/lib/kubebridge/filler bs=4k 2>/dev/null || true",
    )?;
    let outcome = Attempt::start(lab, &[]).and_then(|attempt| {
        let ended = attempt.ended()?;
        let said = attempt.said()?;
        ensure!(
            ended.code() == Some(71),
            "connect ended with {ended}: {said}"
        );
        ensure!(
            said.contains("No space left"),
            "connect does not say why: {said}"
        );
        must_be_as(lab, before)
    });
    laptop.shell("umount /var/lib/kubebridge")?;
    outcome
}
