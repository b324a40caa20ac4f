//! A user's session, its helper, or both are killed at every step: what is left is undone, to the
//! byte, by the helper itself, by another, by `recover`, by the next session and after a boot.

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    lab::Lab,
    product::{Attempt, Manager, kubebridge_output, must_be_as},
    snapshot::Snapshot,
    user::User,
};
use rustix::process::Signal;

/// The steps of `connect` after which to kill.
const STEPS: [&str; 11] = [
    "recover: ",
    "read DNS: ",
    "dial manager: ",
    "open session: ",
    "link: ",
    "resolver: ",
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

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Session,
    Helper,
    Both,
}

#[test]
fn lifecycle_07_a_helper_undoes_what_its_killed_session_leaves() -> Result<()> {
    at_every_step(Victim::Session)
}

#[test]
fn lifecycle_07_a_session_whose_helper_is_killed_ends_and_is_undone() -> Result<()> {
    at_every_step(Victim::Helper)
}

#[test]
fn lifecycle_07_session_and_helper_killed_together_are_undone_later() -> Result<()> {
    at_every_step(Victim::Both)
}

fn at_every_step(victim: Victim) -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let user = User::new(&lab)?;
    let before = Snapshot::take(lab.laptop.on())?;
    let mut checks = Checks::new();
    let mut kills = Kills {
        lab: &lab,
        user: &user,
        before: &before,
        victim,
        killed: 0,
        repairs: 0,
    };
    for step in STEPS {
        let attempt = user.connect(&[])?;
        attempt.says(step)?;
        kills.kill(attempt, &format!("after {step:?}"), &mut checks)?;
    }
    for step in UNDONE {
        let attempt = user.connect(&[])?.connected()?.ending();
        attempt.signal(Signal::TERM)?;
        if step != UNDONE[0] {
            attempt.says(UNDONE[0])?;
            // The second one cuts the wait for programs that still ask.
            attempt.signal(Signal::TERM)?;
        }
        attempt.says(step)?;
        kills.kill(attempt, &format!("after {step:?} of its end"), &mut checks)?;
    }
    // At the very end the victim may be gone before it is killed.
    ensure!(kills.killed > STEPS.len(), "only {} killed", kills.killed);
    checks.finish()?;
    lab.finish();
    Ok(())
}

struct Kills<'lab> {
    lab: &'lab Lab,
    user: &'lab User<'lab>,
    before: &'lab Snapshot,
    victim: Victim,
    killed: usize,
    repairs: usize,
}

impl Kills<'_> {
    fn kill(&mut self, attempt: Attempt<'_>, when: &str, checks: &mut Checks) -> Result<()> {
        let helper = || self.user.signal_helper(Signal::KILL);
        let hit = match self.victim {
            Victim::Session => attempt.signal(Signal::KILL),
            Victim::Helper => helper(),
            // The helper first: it would undo at once.
            Victim::Both => helper().and_then(|_| attempt.signal(Signal::KILL)),
        };
        self.killed += usize::from(hit.is_ok());
        attempt.ended()?;
        self.user.until_no_helper()?;
        let what = format!("{:?} killed {when}", self.victim);
        checks.that(
            what,
            self.undone()
                .with_context(|| attempt.said().unwrap_or_default()),
        );
        Ok(())
    }

    fn undone(&mut self) -> Result<()> {
        match self.victim {
            // Nobody has to come for it.
            Victim::Session | Victim::Helper => must_be_as(self.lab, self.before)?,
            Victim::Both => {
                self.repairs += 1;
                match self.repairs % 4 {
                    0 => self.user.output(&["recover"]).map(drop)?,
                    1 => kubebridge_output(self.lab, &["recover"]).map(drop)?,
                    2 => self.user.connect(&[])?.connected()?.end_at_once()?,
                    _ => self.boot()?,
                }
                must_be_as(self.lab, self.before).context("after its repair")?;
            }
        }
        // Whatever is left of a killed session's socket goes with the user's next session.
        self.user.connect(&[])?.connected()?.end_at_once()?;
        self.user.until_no_helper()?;
        self.user.must_have_no_session()?;
        must_be_as(self.lab, self.before).context("after the next session")
    }

    /// As after a boot: what lives in memory is gone, journals and files are as the crash left them.
    fn boot(&self) -> Result<()> {
        let laptop = self.lab.laptop.on();
        laptop.shell("rm -rf /run/kubebridge /run/user/1000/kubebridge")?;
        kubebridge_output(self.lab, &["recover"]).map(drop)
    }
}
