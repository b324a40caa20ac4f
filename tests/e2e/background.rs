//! A session in the background: the command returns when it is connected, and the session stays.

use std::fs;

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    lab::Lab,
    product::{
        Manager, NAMESPACES, kubebridge, kubebridge_output, must_be_as, status, token_flags,
    },
    snapshot::Snapshot,
};
use serde_json::Value;

/// The words of `kubebridge connect` for the lab's manager.
fn connect(lab: &Lab, options: &[&str]) -> Result<Vec<String>> {
    let mut words = vec!["connect".to_owned()];
    words.extend(token_flags(lab, &NAMESPACES)?);
    words.extend(["--manager".to_owned(), lab.relay.address().to_string()]);
    for namespace in NAMESPACES {
        words.extend(["-n".to_owned(), namespace.to_owned()]);
    }
    words.extend(options.iter().map(|&word| word.to_owned()));
    Ok(words)
}

fn words(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

#[test]
fn a_session_in_the_background_stays_until_it_is_disconnected() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let laptop = lab.laptop.on();
    let before = Snapshot::take(laptop)?;
    let mut checks = Checks::new();

    // That this returns shows that nobody holds the pipes that the command was given.
    let said = kubebridge(&lab, &words(&connect(&lab, &["-o", "json"])?))?;
    let talk = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(said.status.success(), "connect: {}: {talk}", said.status);
    checks.that("the last line of the progress", {
        ensure!(talk.lines().last() == Some("connected"), "{talk}");
        Ok(())
    });
    let document: Value = serde_json::from_slice(&said.stdout)?;
    let now = status(&lab)?;
    checks.equal(
        "the session printed by connect",
        Ok(document["sessions"][0]["session"].to_string()),
        &now["session"].to_string(),
    );
    checks.that("its process has no terminal", is_alone(&lab, &now));
    checks.that("its log", {
        let log = now["log"].as_str().context("no log in status")?;
        let text = fs::read_to_string(laptop.path(log))?;
        ensure!(text.contains("connected"), "{log}: {text}");
        Ok(())
    });
    checks.that(
        "disconnect",
        kubebridge_output(&lab, &["disconnect"]).map(drop),
    );
    checks.that("after disconnect", must_be_as(&lab, &before));
    checks.finish()?;
    lab.finish();
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
