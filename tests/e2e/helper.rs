//! A user without rights connects: the session is theirs, a helper is root's, and both end well.

use std::{fs, io::Write, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    daemon::Daemon,
    dig::{Transport, dig},
    lab::{AUTHORS, Lab},
    product::{
        Manager, kubebridge, kubebridge_as_nobody, kubebridge_output, must_be_as, resolver_address,
    },
    snapshot::Snapshot,
    user::{RUNTIME, USER, User},
    wait::until,
};
use rustix::process::Signal;

use crate::several::{OTHER_AUTHORS, Other, other_services};

const PATIENCE: Duration = Duration::from_secs(60);

/// What the helper may do: link and addresses, port 53, files with owner, mode and attributes
/// (CHOWN, DAC_OVERRIDE, FOWNER, FSETID, NET_BIND_SERVICE, NET_ADMIN).
const RIGHTS: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 10 | 1 << 12;

#[test]
fn lifecycle_14_a_user_without_rights_connects_and_the_helper_alone_is_roots() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let user = User::new(&lab)?;
    let before = Snapshot::take(lab.laptop.on())?;
    let mut checks = Checks::new();

    let session = user.connect(&[])?.connected()?;
    checks.that("who runs", who_runs(&lab, &user));
    checks.that("what listens", what_listens(&lab));
    checks.that("sockets", sockets_are_the_users(&lab));
    checks.that("names resolve", names_resolve(&lab));
    let status = |said: Result<String>| {
        let said = said?;
        ensure!(said.contains("connected"), "status says {said}");
        Ok(())
    };
    checks.that("its user's status", status(user.output(&["status"])));
    let roots = kubebridge_output(&lab, &["status"]);
    checks.that("root's status", status(roots));
    checks.that("another user's status", another_user_sees_nothing(&lab));
    checks.that(
        "its user disconnects",
        user.output(&["disconnect"]).map(drop),
    );
    let attempt = session.ending();
    checks.that("it ends well", ends_well(attempt.ended()?));
    checks.that("no helper is left", user.until_no_helper());
    checks.that("no session is left", user.must_have_no_session());
    checks.that("after disconnect", must_be_as(&lab, &before));

    let session = user.connect(&[])?.connected()?;
    checks.that("root disconnects it", session.disconnect());
    checks.that("after root's disconnect", must_be_as(&lab, &before));
    checks.that(
        "recover without a session",
        user.output(&["recover"]).map(drop),
    );
    checks.finish()?;
    lab.finish();
    Ok(())
}

fn ends_well(status: std::process::ExitStatus) -> Result<()> {
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}

fn who_runs(lab: &Lab, user: &User<'_>) -> Result<()> {
    let helper = user.helper()?.context("there is no helper")?;
    let session = user.session()?.context("there is no session of the user")?;
    let rights = |process: u32| -> Result<u64> {
        let path = format!("/proc/{process}/status");
        let text = lab.laptop.on().output(&["cat", &path])?;
        let line = text.lines().find_map(|line| line.strip_prefix("CapPrm:"));
        Ok(u64::from_str_radix(line.context("no CapPrm")?.trim(), 16)?)
    };
    ensure!(rights(session)? == 0, "the session has rights");
    let helpers = rights(helper)?;
    ensure!(helpers == RIGHTS, "the helper has rights {helpers:x}");
    Ok(())
}

/// Nothing of ours: DNS on the link's address is answered in the session's own stack.
fn what_listens(lab: &Lab) -> Result<()> {
    let listening = lab.laptop.on().output(&["ss", "-Hlntup"])?;
    let mut lines = listening.lines();
    ensure!(
        lines.clone().count() > 0,
        "not even systemd-resolved listens"
    );
    let ours = lines.find(|line| line.contains("kubebridge"));
    ensure!(ours.is_none(), "{ours:?}");
    Ok(())
}

fn sockets_are_the_users(lab: &Lab) -> Result<()> {
    let find =
        |folder: &str, wanted: &str| lab.laptop.on().output(&["find", folder, "-printf", wanted]);
    let modes = find(RUNTIME, "%y %m %U\\n")?;
    let expected = [format!("d 700 {USER}"), format!("s 600 {USER}")];
    ensure!(
        modes
            .lines()
            .all(|line| expected.iter().any(|one| one == line)),
        "{modes}"
    );
    ensure!(
        modes.lines().any(|line| line.starts_with('s')),
        "no socket: {modes}"
    );
    let roots = find("/run/kubebridge", "%y")?;
    ensure!(!roots.contains('s'), "root has a socket: {roots}");
    Ok(())
}

fn names_resolve(lab: &Lab) -> Result<()> {
    let resolver = resolver_address(lab)?;
    let got = dig(
        lab.laptop.on(),
        &resolver,
        Transport::Udp,
        "authors.default",
        "A",
    )?;
    ensure!(got.to_string().contains(AUTHORS), "{got}");
    let hosts = fs::read_to_string(lab.laptop.on().path("/etc/hosts"))?;
    ensure!(hosts.contains("authors.default"), "{hosts}");
    Ok(())
}

fn another_user_sees_nothing(lab: &Lab) -> Result<()> {
    let said = kubebridge_as_nobody(lab, &["status"])?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    ensure!(!text.contains("connected"), "nobody sees {text}");
    Ok(())
}

#[test]
fn lifecycle_08_a_users_session_ends_well_by_every_signal_and_by_ctrl_c_on_its_terminal()
-> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let user = User::new(&lab)?;
    let before = Snapshot::take(lab.laptop.on())?;
    let mut checks = Checks::new();

    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let attempt = user.connect(&[])?.connected()?.ending();
        attempt.signal(signal)?;
        attempt.says("restore system DNS and hosts: ")?;
        attempt.signal(signal)?;
        checks.that(format!("{signal:?}"), ends_well(attempt.ended()?));
        checks.that(format!("after {signal:?}"), must_be_as(&lab, &before));
        checks.that("no helper is left", user.until_no_helper());
    }
    for step in ["recover: ", "link: ", "system DNS: "] {
        let attempt = user.connect(&[])?;
        attempt.says(step)?;
        attempt.signal(Signal::INT)?;
        attempt.ended()?;
        let what = format!("interrupted after {step:?}");
        checks.that(what, user.until_as(&before));
        checks.that("no helper is left", user.until_no_helper());
    }
    for signal in [Signal::INT, Signal::HUP, Signal::QUIT] {
        let session = user.connect(&[])?.connected()?;
        user.signal_helper(signal)?;
        let what = format!("{signal:?} to the helper alone");
        checks.that(&what, session.end_at_once());
        checks.that(format!("after {what}"), must_be_as(&lab, &before));
    }
    let attempt = user.connect(&[])?.connected()?.ending();
    user.signal_helper(Signal::TERM)?;
    attempt.says("restore system DNS and hosts: ")?;
    attempt.signal(Signal::TERM)?;
    attempt.ended()?;
    checks.that("SIGTERM to the helper", must_be_as(&lab, &before));
    checks.that("Ctrl-C", ctrl_c(&lab, &user, &before));
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// Ctrl-C on the terminal goes to everybody in its foreground: session, sudo and whoever else.
fn ctrl_c(lab: &Lab, user: &User<'_>, before: &Snapshot) -> Result<()> {
    // The shell of `script` would end by the signal, too.
    let words = format!("exec {}", user.words(&[])?.join(" "));
    let mut command = lab.laptop.on().command("script");
    let (keys, mut typing) = std::io::pipe()?;
    command
        .args(["-qec", &words, "/dev/null"])
        .env("XDG_RUNTIME_DIR", format!("/run/user/{USER}"))
        .stdin(Stdio::from(keys));
    let terminal = Daemon::start("terminal", &lab.logs(), command)?;
    terminal.until_says("connected", PATIENCE)?;
    typing.write_all(b"\x03")?;
    // The terminal shows ^C before it.
    terminal.until_line("restoring", PATIENCE, |line| {
        line.contains("restore system DNS and hosts: ")
    })?;
    ensure!(
        user.helper()?.is_some(),
        "the helper did not outlive Ctrl-C"
    );
    typing.write_all(b"\x03")?;
    ends_well(terminal.ended(PATIENCE)?)?;
    user.until_no_helper()?;
    must_be_as(lab, before)
}

#[test]
fn lifecycle_08_a_users_session_in_the_background_outlives_its_terminal() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let user = User::new(&lab)?;
    let before = Snapshot::take(lab.laptop.on())?;
    let mut checks = Checks::new();

    let words = format!("exec {}", user.background_words()?.join(" "));
    let mut command = lab.laptop.on().command("script");
    command
        .args(["-qec", &words, "/dev/null"])
        .env("XDG_RUNTIME_DIR", format!("/run/user/{USER}"));
    let terminal = Daemon::start("terminal", &lab.logs(), command)?;
    // The terminal is gone with the command, and whoever was on it is told to hang up.
    ends_well(terminal.ended(PATIENCE)?).with_context(|| terminal.log().unwrap_or_default())?;
    ensure!(terminal.log()?.contains("connected"), "{}", terminal.log()?);
    let helper = user
        .helper()?
        .context("the helper ended with the terminal")?;
    let left = lab
        .laptop
        .on()
        .run(&["pgrep", "-x", "-r", "RSDT", "sudo"])
        .map(|found| String::from_utf8_lossy(&found.stdout).into_owned());
    checks.equal("sudo is not there any more", left, "");
    let tty = ["ps", "-o", "tty=", "-p", &helper.to_string()].map(str::to_owned);
    let tty: Vec<&str> = tty.iter().map(String::as_str).collect();
    let tty = lab.laptop.on().output(&tty);
    checks.equal(
        "the helper's terminal",
        tty.map(|tty| tty.trim().to_owned()),
        "?",
    );
    checks.that("names resolve", names_resolve(&lab));
    checks.that("disconnect", user.output(&["disconnect"]).map(drop));
    checks.that("no helper is left", user.until_no_helper());
    checks.that("after disconnect", must_be_as(&lab, &before));
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// A user lays a trap for root, who looks at everybody's sessions.
fn root_speaks_to_nobody_else(lab: &Lab) -> Result<()> {
    let bus = lab.folder_path().join("bus");
    let folder = format!("{RUNTIME}/sessions/0a1b2c3d");
    lab.laptop.on().shell(&format!(
        "install -d -m 700 -o {USER} {RUNTIME} {RUNTIME}/sessions {folder}
ln -s {} {folder}/control.sock",
        bus.display()
    ))?;
    let said = kubebridge(lab, &["status"])?;
    lab.laptop.on().shell(&format!("rm -r {RUNTIME}"))?;
    let (text, talk) = (
        String::from_utf8_lossy(&said.stdout).into_owned(),
        String::from_utf8_lossy(&said.stderr).into_owned(),
    );
    ensure!(said.status.success(), "{}: {talk}", said.status);
    ensure!(text.contains("no session"), "{text}");
    ensure!(
        talk.contains("not a session of the folder's user"),
        "{talk}"
    );
    Ok(())
}

#[test]
fn lifecycle_14_nobody_becomes_a_helper_of_anybody_else() -> Result<()> {
    let lab = Lab::start()?;
    let user = User::new(&lab)?;
    let before = Snapshot::take(lab.laptop.on())?;
    let mut checks = Checks::new();

    let refused = |outcome: Result<std::process::Output>, wanted: &str| {
        let said = outcome?;
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        ensure!(
            said.status.code() == Some(77) && error.contains(wanted),
            "{}: {error}",
            said.status
        );
        Ok(())
    };
    let not_root = refused(user.run(&["helper"]), "has to be root's");
    checks.that("a helper that is not root", not_root);
    let no_socket = refused(kubebridge(&lab, &["helper"]), "not the socket of a session");
    checks.that("a helper without a socket", no_socket);
    checks.that(
        "a helper with an argument",
        kubebridge(&lab, &["helper", "--config=/etc/shadow"]).and_then(|said| {
            let error = String::from_utf8_lossy(&said.stderr).into_owned();
            ensure!(said.status.code() == Some(64), "{}: {error}", said.status);
            Ok(())
        }),
    );
    checks.that("a trap for root", root_speaks_to_nobody_else(&lab));
    // What sudo may run must be nobody else's to change.
    lab.laptop.on().shell(&format!(
        "chmod 777 {}",
        lab.folder_path().join("bin").display()
    ))?;
    let open = refused(user.run(&["recover"]), "could be changed by others");
    checks.that("a program that others can change", open);
    lab.laptop.on().shell(&format!(
        "chmod 755 {}
rm /etc/sudoers.d/kubebridge",
        lab.folder_path().join("bin").display()
    ))?;
    let no_right = refused(user.run(&["recover"]), "sudo");
    checks.that("a user whom sudo does not know", no_right);
    let nothing = Snapshot::take(lab.laptop.on())?;
    checks.equal(
        "hosts",
        nothing.of("/etc/hosts").map(str::to_owned),
        before.of("/etc/hosts")?,
    );
    checks.finish()?;
    lab.finish();
    Ok(())
}

#[test]
fn lifecycle_09_two_sessions_of_a_user_have_a_helper_each_and_end_one_by_one() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let services = other_services(&lab)?;
    let other = Other::start(&lab, "beta.local", "127.0.0.9", "127.0.0.9:7080", &services)?;
    let user = User::new(&lab)?;
    let before = Snapshot::take(lab.laptop.on())?;
    let mut checks = Checks::new();

    let first = user.connect(&[])?.connected()?;
    let second = user.attempt(&other.words(&["--foreground"]))?.connected()?;
    let helpers = |wanted: usize| {
        until("the helpers", PATIENCE, || {
            let found = user.helpers()?;
            ensure!(found == wanted, "{found} helpers instead of {wanted}");
            Ok(())
        })
    };
    let resolves = |name: &str, address: &str| {
        let said = lab.laptop.on().output(&["resolvectl", "query", name])?;
        ensure!(said.contains(address), "{said}");
        Ok(())
    };
    checks.that("a helper each", helpers(2));
    let (one, two) = (
        "authors.default.svc.cluster.local",
        "authors.default.svc.beta.local",
    );
    checks.that("the first cluster", resolves(one, AUTHORS));
    checks.that("the second", resolves(two, OTHER_AUTHORS));

    checks.that("the first ends", first.end_at_once());
    checks.that("one helper is left", helpers(1));
    checks.that("the second goes on", resolves(two, OTHER_AUTHORS));
    checks.that("the first is gone", {
        match resolves(one, AUTHORS) {
            Err(_) => Ok(()),
            Ok(()) => Err(anyhow::anyhow!("{one} still resolves")),
        }
    });
    checks.that("the second ends", second.end_at_once());
    checks.that("no helper is left", helpers(0));
    checks.that("no session is left", user.must_have_no_session());
    checks.that("after both", must_be_as(&lab, &before));
    checks.finish()?;
    lab.finish();
    Ok(())
}
