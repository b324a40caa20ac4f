//! Sessions in the background of the laptop, as `kubebridge connect` leaves them there.

use std::process::Output;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    lab::Lab,
    product::{NAMESPACES, kubebridge, kubebridge_output, token_flags},
};

/// The words of `kubebridge connect` for [`NAMESPACES`] and the lab's manager, with more `options`.
pub fn connect_words(lab: &Lab, options: &[&str]) -> Result<Vec<String>> {
    let mut words = vec!["connect".to_owned()];
    words.extend(token_flags(lab, &NAMESPACES)?);
    words.extend(["--manager".to_owned(), lab.relay.address().to_string()]);
    for namespace in NAMESPACES {
        words.extend(["-n".to_owned(), namespace.to_owned()]);
    }
    words.extend(options.iter().map(|&word| word.to_owned()));
    Ok(words)
}

/// Runs `kubebridge` with such words, to its end.
pub fn run(lab: &Lab, words: &[String]) -> Result<Output> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    kubebridge(lab, &words)
}

/// Connects with such words, which must succeed, and returns the session's id.
pub fn connect(lab: &Lab, words: &[String]) -> Result<String> {
    let said = run(
        lab,
        &[words, &["-o".to_owned(), "json".to_owned()]].concat(),
    )?;
    let talk = String::from_utf8_lossy(&said.stderr);
    ensure!(
        said.status.success(),
        "connect ended with {}: {talk}",
        said.status
    );
    let document: Value = serde_json::from_slice(&said.stdout)?;
    let id = document["sessions"][0]["session"].as_str();
    Ok(id.context("connect printed no session")?.to_owned())
}

/// What `kubebridge status -o json` says of each session.
pub fn all(lab: &Lab) -> Result<Vec<Value>> {
    let said = kubebridge_output(lab, &["status", "-o", "json"])?;
    let mut document: Value = serde_json::from_str(&said)?;
    let sessions = document["sessions"].take();
    Ok(serde_json::from_value(sessions)?)
}

/// What it says of the session `id`.
pub fn status_of(lab: &Lab, id: &str) -> Result<Value> {
    let found = all(lab)?.into_iter().find(|one| one["session"] == id);
    found.with_context(|| format!("there is no session {id}"))
}
