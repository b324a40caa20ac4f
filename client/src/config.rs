//! The configuration file: YAML with flag names as keys, read into command-line arguments.
//!
//! The file's values go through the same parsers as flags do, so this module knows no value
//! types. It decides only which keys exist and which of them a flag or the environment overrides.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command};
use serde_json::Value;

use crate::cli::is_later_flag;
use crate::failure::{Exit, Failure};

/// Reads the file and returns the arguments it adds to those already given.
///
/// # Errors
///
/// A file that cannot be read, is no YAML mapping, or has an unknown key or a value that is
/// neither a scalar nor a list of scalars; exit code 78 for all of them.
pub fn arguments(
    path: &Path,
    program: &Command,
    given: &ArgMatches,
) -> Result<Vec<OsString>, Failure> {
    let wrong = |error: anyhow::Error| {
        Failure::new(
            Exit::File,
            error.context(format!("configuration file {}", path.display())),
        )
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.into()))?;
    let entries = parse(&text).map_err(wrong)?;
    check_keys(&entries, program).map_err(wrong)?;
    added(&entries, program, given).map_err(wrong)
}

fn parse(text: &str) -> anyhow::Result<BTreeMap<String, Value>> {
    if text.trim().is_empty() {
        return Ok(BTreeMap::new());
    }
    serde_saphyr::from_str(text).map_err(|error| anyhow::anyhow!(first_line(&error.to_string())))
}

/// Leaves out the picture of the text that comes with a YAML error: a failure is one line.
fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

fn check_keys(entries: &BTreeMap<String, Value>, program: &Command) -> anyhow::Result<()> {
    let known = keys(program);
    for key in entries.keys() {
        if known.contains(key.as_str()) {
            continue;
        }
        if is_later_flag(key) {
            anyhow::bail!("the key `{key}` is not built yet");
        }
        let nearest = known
            .iter()
            .map(|candidate| (strsim::damerau_levenshtein(key, candidate), *candidate))
            .min();
        match nearest {
            Some((_, nearest)) => anyhow::bail!("unknown key `{key}`, the nearest is `{nearest}`"),
            None => anyhow::bail!("unknown key `{key}`"),
        }
    }
    Ok(())
}

/// The flags of all commands: one file may serve them all.
fn keys(program: &Command) -> BTreeSet<&str> {
    std::iter::once(program)
        .chain(program.get_subcommands())
        .flat_map(Command::get_arguments)
        .filter_map(clap::Arg::get_long)
        .filter(|key| !["config", "help", "version"].contains(key))
        .collect()
}

fn added(
    entries: &BTreeMap<String, Value>,
    program: &Command,
    given: &ArgMatches,
) -> anyhow::Result<Vec<OsString>> {
    let (chosen, of_command) = match given.subcommand() {
        Some((name, of_command)) => (program.find_subcommand(name), of_command),
        None => (None, given),
    };
    let flags = program
        .get_arguments()
        .chain(chosen.into_iter().flat_map(Command::get_arguments));
    let mut arguments = Vec::new();
    for flag in flags {
        let Some(long) = flag.get_long() else {
            continue;
        };
        let Some(value) = entries.get(long) else {
            continue;
        };
        let source = of_command.value_source(flag.get_id().as_str());
        if matches!(
            source,
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        ) {
            continue;
        }
        let forms = match flag.get_action() {
            ArgAction::SetTrue => switch(long, value)?,
            ArgAction::Count => count(long, value)?,
            _ => values(long, value)?,
        };
        arguments.extend(forms.into_iter().map(OsString::from));
    }
    Ok(arguments)
}

fn switch(key: &str, value: &Value) -> anyhow::Result<Vec<String>> {
    match value.as_bool() {
        Some(true) => Ok(vec![format!("--{key}")]),
        Some(false) => Ok(Vec::new()),
        None => anyhow::bail!("`{key}` is true or false, not {value}"),
    }
}

fn count(key: &str, value: &Value) -> anyhow::Result<Vec<String>> {
    match value.as_u64() {
        Some(times @ 0..=3) => Ok((0..times).map(|_| format!("--{key}")).collect()),
        _ => anyhow::bail!("`{key}` is a number from 0 to 3, not {value}"),
    }
}

fn values(key: &str, value: &Value) -> anyhow::Result<Vec<String>> {
    let one = |value: &Value| match value {
        Value::String(text) => Ok(format!("--{key}={text}")),
        Value::Number(number) => Ok(format!("--{key}={number}")),
        // YAML 1.1 habits: `hosts: off` is text to the user.
        Value::Bool(false) => Ok(format!("--{key}=off")),
        Value::Bool(true) => Ok(format!("--{key}=on")),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(anyhow::anyhow!("`{key}` has no usable value: {value}"))
        }
    };
    match value {
        Value::Array(items) => items.iter().map(one).collect(),
        single => Ok(vec![one(single)?]),
    }
}
