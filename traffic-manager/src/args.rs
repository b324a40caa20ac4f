//! The command line: flags, environment and `--config` file → [`Config`].
//!
//! Flags win over the environment, that over the file, that over defaults. Values are checked by
//! their types ([`flags`]), combinations in [`resolve`]; nothing is opened but the config file.

use std::ffi::OsString;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use self::flags::{Cli, Command, Serve, UpstreamsFlags};
use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::upstreams::ask::Ask;

pub mod duration;
mod file;
mod flags;
mod resolve;
mod show;

/// What the command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// Run.
    Serve(Box<Config>),
    /// Ask a running manager about its upstreams.
    Upstreams(Ask),
    /// Write this to stdout and end well: help, the version, the resolved configuration.
    Print(String),
}

/// Reads the command line, program name included.
///
/// # Errors
/// With a [`Failure`] that names the flag or key, the value and the fix.
pub fn parse<I, T>(arguments: I) -> Result<Invocation>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString>,
{
    let mut arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let matches = match Cli::command().try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) => return stopped(&error, None),
    };
    let mut cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return stopped(&error, None),
    };
    if let (Some(path), Some((_, given))) = (cli.command.config_file(), matches.subcommand()) {
        let path = path.display().to_string();
        arguments.extend(file::arguments(&path, &Serve::command_for_keys(), given)?);
        cli = match Cli::try_parse_from_all(&arguments) {
            Ok(cli) => cli,
            Err(error) => return stopped(&error, Some(&path)),
        };
    }
    match cli.command {
        Command::Serve(flags) => Ok(Invocation::Serve(Box::new(resolve::config(*flags)?))),
        Command::CheckConfig(flags) => Ok(Invocation::Print(show::text(&resolve::config(*flags)?))),
        Command::Upstreams(UpstreamsFlags { admin, output }) => {
            Ok(Invocation::Upstreams(Ask { admin, output }))
        }
    }
}

/// Turns what clap stopped at into text for stdout, or into one line and a hint.
fn stopped(error: &clap::Error, file: Option<&str>) -> Result<Invocation> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return Ok(Invocation::Print(error.to_string()));
        }
        _ => {}
    }
    let text = error.to_string();
    let mut paragraphs = text.split("\n\n");
    let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let first = line(paragraphs.next().unwrap_or_default());
    let message = first.strip_prefix("error: ").unwrap_or(&first).to_owned();
    let tip = paragraphs
        .map(line)
        .find_map(|text| text.strip_prefix("tip: ").map(str::to_owned));
    let hint = tip.unwrap_or_else(|| "see `traffic-manager serve --help`".to_owned());
    let failure = match file {
        Some(path) => Failure::new(Exit::File, format!("in {path}: {message}")),
        None if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Failure::new(Exit::Usage, "a command is missing")
        }
        None => Failure::new(Exit::Usage, message),
    };
    Err(failure.hint(hint).into())
}

#[cfg(test)]
mod tests;
