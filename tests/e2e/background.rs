//! A session in the background: the command returns when it is connected, and the session stays,
//! without a terminal, until it is told to end.

use std::{collections::BTreeSet, fs, time::Duration};

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    background::{connect, connect_words, run},
    checks::Checks,
    daemon::Daemon,
    lab::{AUTHORS, Lab},
    parts::program,
    product::{Manager, kubebridge_output, must_be_as, status},
    snapshot::Snapshot,
    wait::until,
};
use rustix::process::Signal;
use serde_json::Value;

/// Longer than what any of this takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn lifecycle_01_connect_leaves_a_session_without_a_terminal_and_disconnect_ends_it() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let laptop = lab.laptop.on();
    let before = Snapshot::take(laptop)?;
    let mut checks = Checks::new();

    // That this returns shows that nobody holds the pipes that the command was given.
    let said = run(&lab, &connect_words(&lab, &["-o", "json"])?)?;
    let talk = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(said.status.success(), "connect: {}: {talk}", said.status);
    for step in ["read DNS: ", "dial manager: ", "open session: ", "hosts: "] {
        checks.that(format!("a line for {step}"), {
            let has = talk.lines().any(|line| line.starts_with(step));
            ensure!(has, "{talk}");
            Ok(())
        });
    }
    checks.equal(
        "the last line of the progress",
        talk.lines().last().context("no line").map(str::to_owned),
        "connected",
    );
    let document: Value = serde_json::from_slice(&said.stdout)?;
    let now = status(&lab)?;
    checks.equal(
        "the session printed by connect",
        Ok(document["sessions"][0]["session"].to_string()),
        &now["session"].to_string(),
    );
    checks.that("its process has no terminal", is_alone(&lab, &now));
    checks.that("its log", log_has(&lab, &now, "connected"));
    checks.that(
        "disconnect",
        kubebridge_output(&lab, &["disconnect"]).map(drop),
    );
    checks.that("after disconnect", must_be_as(&lab, &before));
    checks.finish()?;
    lab.finish();
    Ok(())
}

#[test]
fn lifecycle_08_signals_end_a_session_in_the_background_and_undo_one_that_connects() -> Result<()> {
    let lab = Lab::start()?;
    let laptop = lab.laptop.on();
    let before = Snapshot::take(laptop)?;
    let mut checks = Checks::new();

    // Without a manager it fails, in the words and with the exit code of the foreground.
    let said = run(&lab, &connect_words(&lab, &[])?)?;
    let error = String::from_utf8_lossy(&said.stderr).into_owned();
    checks.that("a manager that is not there", {
        // The relay takes the connection, and closes it.
        let named = error
            .lines()
            .any(|line| line.starts_with("kubebridge: open session: traffic-manager at "));
        ensure!(said.status.code() == Some(69), "{}: {error}", said.status);
        ensure!(named && error.contains("\nhint: "), "{error}");
        Ok(())
    });
    checks.that("nothing is left of it", must_be_as(&lab, &before));

    let manager = Manager::start(&lab)?;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let name = format!("{signal:?} while connecting");
        // It stands still at `dial manager`, for as long as the manager does.
        manager.signal(Signal::STOP)?;
        let attempt = background_attempt(&lab)?;
        attempt.until_says("read DNS: ", LONG)?;
        attempt.signal(signal)?;
        let ended = attempt.ended(LONG);
        manager.signal(Signal::CONT)?;
        checks.equal(
            format!("{name}: the exit code"),
            ended.map(|status| format!("{:?}", status.code())),
            "Some(1)",
        );
        checks.that(format!("{name}: the laptop"), must_be_as(&lab, &before));
    }
    // A command that dies without a word: nobody knows of its session.
    manager.signal(Signal::STOP)?;
    let attempt = background_attempt(&lab)?;
    attempt.until_says("read DNS: ", LONG)?;
    attempt.signal(Signal::KILL)?;
    attempt.ended(LONG)?;
    manager.signal(Signal::CONT)?;
    checks.that(
        "the command is killed while connecting",
        until("the session to undo everything", LONG, || {
            must_be_as(&lab, &before)
        }),
    );

    for signal in ["INT", "TERM", "HUP"] {
        connect(&lab, &connect_words(&lab, &[])?)?;
        let pid = status(&lab)?["pid"].to_string();
        laptop.output(&["kill", &format!("-{signal}"), &pid])?;
        checks.that(
            format!("{signal} in the background"),
            until("the session to end", LONG, || must_be_as(&lab, &before)),
        );
    }

    // It can undo nothing: the next command that may, does.
    connect(&lab, &connect_words(&lab, &[])?)?;
    let pid = status(&lab)?["pid"].to_string();
    laptop.output(&["kill", "-KILL", &pid])?;
    until("the process to be gone", LONG, || {
        // Nobody in the lab waits for it: it stays, but runs no more.
        let stat = fs::read_to_string(laptop.path(format!("/proc/{pid}/stat")));
        let stat = stat.unwrap_or_default();
        ensure!(stat.is_empty() || stat.contains(") Z "), "{stat}");
        Ok(())
    })?;
    checks.that("status names what a killed one left", {
        let said = kubebridge_output(&lab, &["status"])?;
        ensure!(said.contains("sudo kubebridge recover"), "{said}");
        Ok(())
    });
    let repair = kubebridge_output(&lab, &["recover"]).map(drop);
    checks.that("recover after SIGKILL", repair);
    checks.that("repaired after SIGKILL", must_be_as(&lab, &before));
    checks.finish()?;
    lab.finish();
    Ok(())
}

#[test]
fn a_program_beside_a_session_has_its_names_its_signals_and_the_last_word() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let before = Snapshot::take(lab.laptop.on())?;
    let mut checks = Checks::new();
    let beside = |lines: &str| connect_words(&lab, &["--", "bash", "-c", lines]);

    // nss-resolve is asked for a name that only the cluster has.
    let lines = "getent ahostsv4 authors.shop.svc.cluster.local >&2; \
                 getent ahostsv4 authors; echo $KUBEBRIDGE_SESSION; exit 42";
    let said = run(&lab, &beside(lines)?)?;
    let out = String::from_utf8_lossy(&said.stdout).into_owned();
    let talk = String::from_utf8_lossy(&said.stderr).into_owned();
    checks.equal(
        "its exit code",
        Ok(format!("{:?}", said.status.code())),
        "Some(42)",
    );
    checks.that("the names it sees, and nothing but its own on stdout", {
        ensure!(out.starts_with(AUTHORS), "{out}{talk}");
        let id = out.lines().last().unwrap_or_default();
        ensure!(id.len() == 8 && !out.contains("sessions"), "{out}");
        Ok(())
    });
    checks.that("after it", must_be_as(&lab, &before));

    let missing = run(&lab, &connect_words(&lab, &["--", "/no/such/program"])?)?;
    checks.equal(
        "a program that is not there",
        Ok(format!("{:?}", missing.status.code())),
        "Some(127)",
    );
    checks.that("after that", must_be_as(&lab, &before));

    let attempt = attempt(
        &lab,
        &beside("trap 'echo got it; exit 7' TERM; echo ready; while :; do sleep 0.1; done")?,
    )?;
    attempt.until_says("ready", LONG)?;
    attempt.signal(Signal::TERM)?;
    attempt.until_says("got it", LONG)?;
    checks.equal(
        "a signal is passed on",
        attempt
            .ended(LONG)
            .map(|status| format!("{:?}", status.code())),
        "Some(7)",
    );
    checks.that("after the signal", must_be_as(&lab, &before));

    let attempt = attempt_beside_sleep(&lab)?;
    attempt.until_says("connected", LONG)?;
    checks.that(
        "disconnect by somebody else",
        kubebridge_output(&lab, &["disconnect"]).map(drop),
    );
    checks.equal(
        "the program ends with the session",
        attempt
            .ended(LONG)
            .map(|status| format!("{:?}", status.code())),
        "Some(143)",
    );
    checks.finish()?;
    lab.finish();
    Ok(())
}

fn attempt_beside_sleep(lab: &Lab) -> Result<Daemon> {
    attempt(lab, &connect_words(lab, &["--", "sleep", "1000"])?)
}

fn background_attempt(lab: &Lab) -> Result<Daemon> {
    attempt(lab, &connect_words(lab, &[])?)
}

#[test]
fn a_dry_run_tells_every_change_and_makes_none() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let before = Snapshot::take(lab.laptop.on())?;
    let mut checks = Checks::new();
    let dry = connect_words(&lab, &["--dry-run"])?;

    let text = run(&lab, &dry)?;
    ensure!(text.status.success(), "{text:?}");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let said = run(
        &lab,
        &[&dry[..], &["-o".to_owned(), "json".to_owned()]].concat(),
    )?;
    checks.that("nothing was changed", must_be_as(&lab, &before));
    let plan: Value = serde_json::from_slice(&said.stdout)?;

    // What is really done then, is what was told.
    connect(&lab, &connect_words(&lab, &[])?)?;
    let during = Snapshot::take(lab.laptop.on())?;
    let link = &plan["link"];
    let link = [&link["name"], &link["address"], &link["prefix"]].map(Value::to_string);
    let [name, address, prefix] = link.map(|word| word.trim_matches('"').to_owned());
    let now = status(&lab)?;
    checks.equal(
        "the link",
        now["dns"]["link"]
            .as_str()
            .context("no link")
            .map(str::to_owned),
        &format!("{name} {address}/{prefix}"),
    );
    checks.that("the domains", {
        let domains = during.of("resolvectl domain")?;
        let of_link = format!("({name}): ");
        let (_, set) = domains
            .split_once(&of_link)
            .context("no domains of the link")?;
        let set: BTreeSet<_> = set.lines().next().unwrap_or_default().split(' ').collect();
        let told = |field: &str, mark: &str| -> Vec<String> {
            let list = plan["dns"][field].as_array().cloned().unwrap_or_default();
            let words = list.iter().filter_map(Value::as_str);
            words.map(|word| format!("{mark}{word}")).collect()
        };
        let told = [told("search", ""), told("routing", "~")].concat();
        let told: BTreeSet<_> = told.iter().map(String::as_str).collect();
        ensure!(set == told, "set {set:?}, told {told:?}");
        Ok(())
    });
    checks.that("the hosts lines", {
        let hosts = during.of("/etc/hosts")?;
        for line in plan["hosts"].as_array().context("no hosts in the plan")? {
            let names: Vec<_> = line["names"].as_array().into_iter().flatten().collect();
            let names: Vec<_> = names.into_iter().filter_map(Value::as_str).collect();
            let address = line["address"].as_str().unwrap_or_default();
            // The snapshot has the text with its escapes.
            let wanted = format!("{address}\\t{} #", names.join(" "));
            ensure!(hosts.contains(&wanted), "{wanted}: {hosts}");
            ensure!(
                text.contains(&format!("{address} {}", names.join(" "))),
                "{text}"
            );
        }
        ensure!(plan["hosts"][0]["address"] == AUTHORS, "{plan}");
        Ok(())
    });
    kubebridge_output(&lab, &["disconnect"])?;
    checks.that("after it", must_be_as(&lab, &before));
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// Starts `kubebridge` with these words and does not wait for it.
fn attempt(lab: &Lab, words: &[String]) -> Result<Daemon> {
    let mut command = lab.laptop.on().command(program("kubebridge")?);
    command.args(words);
    Daemon::start("kubebridge-connect", &lab.logs(), command)
}

fn log_has(lab: &Lab, now: &Value, wanted: &str) -> Result<()> {
    let log = now["log"].as_str().context("no log in status")?;
    let text = fs::read_to_string(lab.laptop.on().path(log))?;
    ensure!(text.contains(wanted), "{log}: {text}");
    Ok(())
}

/// Fails unless the session's process leads a session without a terminal, in which nothing but
/// its log and /dev/null is open for it to talk to.
fn is_alone(lab: &Lab, now: &Value) -> Result<()> {
    let pid = now["pid"].as_u64().context("no pid in status")?;
    let laptop = lab.laptop.on();
    let stat = laptop.output(&["cat", &format!("/proc/{pid}/stat")])?;
    // pid (comm) state ppid pgrp session tty_nr
    let fields: Vec<_> = stat
        .rsplit(") ")
        .next()
        .context("stat")?
        .split(' ')
        .collect();
    ensure!(
        fields[3] == pid.to_string(),
        "session {}: {stat}",
        fields[3]
    );
    ensure!(fields[4] == "0", "terminal {}: {stat}", fields[4]);
    for descriptor in 0..3 {
        let file = laptop.output(&["readlink", &format!("/proc/{pid}/fd/{descriptor}")])?;
        let file = file.trim();
        let is_own = file == "/dev/null" || file.ends_with("/session.log");
        ensure!(is_own, "descriptor {descriptor} is {file}");
    }
    Ok(())
}
