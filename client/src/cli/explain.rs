//! What is wrong with a command line, in our words where the design knows more than clap.
//!
//! Flags, values and commands of the design that are not built yet are refused by name, so that
//! nobody takes them for a typing error.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Parsed;
use crate::failure::Failure;

/// Flags of the design whose feature is not there yet.
const LATER_FLAGS: [&str; 2] = ["--retake", "--anonymize"];

/// Values of `--dns` whose feature is not there yet.
const LATER_DNS: [&str; 4] = ["takeover", "resolver-dir", "windows", "windows-interface"];

/// Commands of the design that are not there yet.
const LATER_COMMANDS: [&str; 4] = ["clean", "completions", "gather-logs", "host"];

/// Turns clap's outcome into text to print (help) or a usage failure.
pub(super) fn outcome(error: &clap::Error) -> Result<Parsed, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Parsed::Print(error.to_string())),
        _ => Err(Failure::usage(
            not_built_yet(error).unwrap_or_else(|| one_line(error)),
        )),
    }
}

/// Whether a flag (without dashes) belongs to a feature that is not there yet.
pub(crate) fn is_later_flag(key: &str) -> bool {
    LATER_FLAGS
        .iter()
        .any(|flag| flag.strip_prefix("--") == Some(key))
}

/// Says what clap found wrong, on one line and without its usage text.
pub(super) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().take_while(|line| !line.is_empty());
    let joined = first.map(str::trim).collect::<Vec<_>>().join(" ");
    joined
        .strip_prefix("error: ")
        .map_or_else(|| joined.clone(), str::to_owned)
}

fn not_built_yet(error: &clap::Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let flag = context(ContextKind::InvalidArg)?.split('=').next()?;
            LATER_FLAGS
                .contains(&flag)
                .then(|| format!("{flag} is not built yet"))
        }
        ErrorKind::InvalidSubcommand => {
            let command = context(ContextKind::InvalidSubcommand)?;
            LATER_COMMANDS
                .contains(&command)
                .then(|| format!("the command {command} is not built yet"))
        }
        ErrorKind::InvalidValue => {
            let flag = context(ContextKind::InvalidArg)?;
            let value = context(ContextKind::InvalidValue)?;
            (flag.starts_with("--dns ") && LATER_DNS.contains(&value))
                .then(|| format!("--dns {value} is not built yet"))
        }
        _ => None,
    }
}
