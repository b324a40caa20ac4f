//! Names asked through the C library, as programs ask: `getaddrinfo` of glibc and of a static musl.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    laptop::{Hosts, Laptop},
    parts::compile,
};

/// Which addresses a program asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Both kinds.
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// The program `tests/c/lookup.c`, built against both libraries.
#[derive(Debug)]
pub struct Lookup {
    glibc: PathBuf,
    musl: PathBuf,
}

impl Lookup {
    /// Compiles it into `folder`.
    pub fn build(folder: &Path) -> Result<Self> {
        let built = |compiler: &str, options: &[&str], to: &str| -> Result<PathBuf> {
            let program = folder.join(to);
            compile(compiler, options, "lookup.c", &program)?;
            Ok(program)
        };
        Ok(Self {
            glibc: built("gcc", &[], "lookup-glibc")?,
            musl: built("musl-gcc", &["-static"], "lookup-musl")?,
        })
    }

    /// Asks by glibc, which goes where `hosts` says.
    pub fn glibc(
        &self,
        on: &Laptop,
        hosts: Hosts,
        family: Family,
        names: &[&str],
    ) -> Result<Found> {
        let program = self.glibc.display().to_string();
        Found::parse(&on.output_with(hosts, &words(&program, family, names))?)
    }

    /// Asks by musl, which reads /etc/hosts and /etc/resolv.conf and nothing else.
    pub fn musl(&self, on: &Laptop, family: Family, names: &[&str]) -> Result<Found> {
        let program = self.musl.display().to_string();
        Found::parse(&on.on().output(&words(&program, family, names))?)
    }
}

fn words<'a>(program: &'a str, family: Family, names: &[&'a str]) -> Vec<&'a str> {
    let family = match family {
        Family::Any => "any",
        Family::V4 => "4",
        Family::V6 => "6",
    };
    let mut words = vec![program, family];
    words.extend_from_slice(names);
    words
}

/// What was found for each name.
#[derive(Debug)]
pub struct Found(BTreeMap<String, String>);

impl Found {
    fn parse(text: &str) -> Result<Self> {
        text.lines()
            .map(|line| {
                let (name, rest) = line
                    .split_once(' ')
                    .with_context(|| format!("lookup printed {line:?}"))?;
                Ok((name.to_owned(), sorted(rest)))
            })
            .collect::<Result<_>>()
            .map(Self)
    }

    /// `= ADDRESS…` in sorted order, or `! ERROR`.
    pub fn of(&self, name: &str) -> Result<String> {
        self.0
            .get(name)
            .cloned()
            .with_context(|| format!("{name} was not asked"))
    }
}

/// The order of equal addresses is the library's business.
fn sorted(rest: &str) -> String {
    let mut words: Vec<&str> = rest.split(' ').collect();
    if let [_, addresses @ ..] = words.as_mut_slice() {
        addresses.sort_unstable();
    }
    words.join(" ")
}
