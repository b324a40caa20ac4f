//! The `--config` file: YAML with flag names as keys → more arguments.
//!
//! A key whose flag or environment variable is given too is passed over, so that the order of
//! precedence needs no second parser.

use std::ffi::OsString;
use std::fs;

use anyhow::{Context, Result};
use clap::ArgMatches;
use clap::parser::ValueSource;
use serde_json::{Map, Value};

use crate::failure::{Exit, Failure};
use crate::kubernetes::manifest::one_line;

/// Keys that would make no sense in the file itself.
const NOT_IN_FILE: [&str; 3] = ["config", "help", "version"];

/// How alike an unknown key must be to a known one to be taken for a slip of the pen.
const ALIKE: f64 = 0.6;

/// Reads the file and returns its settings as arguments.
pub(super) fn arguments(
    path: &str,
    command: &clap::Command,
    given: &ArgMatches,
) -> Result<Vec<OsString>> {
    let failed = || Failure::new(Exit::File, format!("cannot read the configuration {path}"));
    let text = fs::read_to_string(path).with_context(failed)?;
    let document: Option<Map<String, Value>> = serde_saphyr::from_str(&text)
        .map_err(|error| one_line(&error))
        .with_context(|| {
            Failure::new(
                Exit::File,
                format!("{path} is not a YAML map of flag names to values"),
            )
        })?;
    let mut arguments = Vec::new();
    for (key, value) in document.unwrap_or_default() {
        let argument = command
            .get_arguments()
            .find(|known| known.get_long() == Some(&key) && !NOT_IN_FILE.contains(&key.as_str()))
            .ok_or_else(|| unknown(path, &key, command))?;
        let texts = scalars(&value).ok_or_else(|| {
            Failure::new(
                Exit::File,
                format!("in {path}: {key} is {value}, not a value or a list"),
            )
        })?;
        if is_given(given, argument.get_id().as_str()) {
            continue;
        }
        let takes_value = argument.get_action().takes_values();
        for text in texts {
            match (takes_value, text.as_str()) {
                (true, _) => arguments.push(format!("--{key}={text}").into()),
                (false, "true") => arguments.push(format!("--{key}").into()),
                (false, "false") => {}
                (false, _) => {
                    let message = format!("in {path}: {key} is {text:?}, not true or false");
                    return Err(Failure::new(Exit::File, message).into());
                }
            }
        }
    }
    Ok(arguments)
}

fn is_given(given: &ArgMatches, id: &str) -> bool {
    match given.value_source(id) {
        Some(ValueSource::CommandLine | ValueSource::EnvVariable) => true,
        Some(_) | None => false,
    }
}

/// Returns a scalar, or each of a list, as text.
fn scalars(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Bool(_) | Value::Number(_) => Some(vec![value.to_string()]),
        Value::Array(values) => {
            let all: Option<Vec<_>> = values.iter().map(scalars).collect();
            all.map(|texts| texts.into_iter().flatten().collect())
        }
        Value::Null | Value::Object(_) => None,
    }
}

fn unknown(path: &str, key: &str, command: &clap::Command) -> Failure {
    let known = command.get_arguments().filter_map(clap::Arg::get_long);
    let nearest = known
        .filter(|name| !NOT_IN_FILE.contains(name))
        .map(|name| (strsim::jaro_winkler(key, name), name))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let failure = Failure::new(Exit::File, format!("in {path}: unknown key {key:?}"));
    match nearest {
        Some((_, name)) => failure.hint(format!("did you mean `{name}`?")),
        None => failure.hint("keys are the names of flags, see `traffic-manager serve --help`"),
    }
}
