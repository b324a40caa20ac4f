//! The state of the laptop that a session may change, to be compared with itself later.
//!
//! Everything is read from outside or with the system's own tools, nothing with our code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use anyhow::{Context, Result, bail};

use crate::machine::Machine;

/// What is asked of the system's tools: links, addresses, routes, and DNS per link.
const QUESTIONS: &[&str] = &[
    "ip -j link show",
    "ip -j addr show",
    "ip -j -4 route show table all",
    "ip -j -6 route show table all",
    "ip -j rule show",
    "resolvectl dns",
    "resolvectl domain",
    "resolvectl default-route",
    "resolvectl llmnr",
    "resolvectl mdns",
    "resolvectl dnssec",
    "resolvectl dnsovertls",
    "busctl get-property org.freedesktop.resolve1 /org/freedesktop/resolve1 \
     org.freedesktop.resolve1.Manager DNSEx Domains ResolvConfMode",
    "busctl tree --list org.freedesktop.resolve1",
];

/// The folders whose every entry must be the same: with type, mode, owner, link text and bytes.
const FOLDERS: &[&str] = &["/etc", "/run/systemd/resolve"];

/// One state of the laptop.
#[derive(Debug, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<String, String>);

impl Snapshot {
    /// Reads the state of `machine` as it is now.
    pub fn take(machine: &Machine) -> Result<Self> {
        Self::asking(machine, |_| true)
    }

    /// As [`take`](Self::take) where no systemd-resolved runs: it is not asked.
    pub fn take_without_resolved(machine: &Machine) -> Result<Self> {
        Self::asking(machine, |question| question.starts_with("ip "))
    }

    fn asking(machine: &Machine, wanted: impl Fn(&str) -> bool) -> Result<Self> {
        let mut state = BTreeMap::new();
        for question in QUESTIONS.iter().filter(|question| wanted(question)) {
            let words: Vec<&str> = question.split_whitespace().collect();
            let said = machine.output(&words)?;
            // Which server was asked last is no setting.
            let settings = said
                .lines()
                .filter(|line| !line.contains("Current DNS Server"));
            let settings: Vec<&str> = settings.map(str::trim).collect();
            state.insert((*question).to_owned(), settings.join("\n"));
        }
        for folder in FOLDERS {
            read(&machine.path(folder), Path::new(folder), &mut state)?;
        }
        Ok(Self(state))
    }

    /// What is said of one entry or question.
    pub fn of(&self, key: &str) -> Result<&str> {
        self.0
            .get(key)
            .map(String::as_str)
            .with_context(|| format!("no {key} in the snapshot"))
    }

    /// Fails with every difference unless `self`, taken later, equals `before`.
    pub fn must_equal(&self, before: &Self) -> Result<()> {
        let keys = before.0.keys().chain(self.0.keys());
        let keys: BTreeSet<&String> = keys.collect();
        let differences: Vec<String> = keys
            .into_iter()
            .filter(|key| before.0.get(*key) != self.0.get(*key))
            .map(|key| {
                let of =
                    |state: &Self| state.0.get(key).map_or("absent", String::as_str).to_owned();
                format!("{key}\n  before: {}\n  after:  {}", of(before), of(self))
            })
            .collect();
        if differences.is_empty() {
            return Ok(());
        }
        bail!("the laptop is not as it was:\n{}", differences.join("\n"));
    }
}

fn read(at: &Path, name: &Path, state: &mut BTreeMap<String, String>) -> Result<()> {
    let about = fs::symlink_metadata(at)?;
    let kind = about.file_type();
    let what = if kind.is_dir() {
        "folder".to_owned()
    } else if kind.is_symlink() {
        format!("link to {}", fs::read_link(at)?.display())
    } else if kind.is_socket() || kind.is_fifo() {
        "socket".to_owned()
    } else {
        format!("file {:?}", String::from_utf8_lossy(&fs::read(at)?))
    };
    let (mode, user, group) = (about.mode(), about.uid(), about.gid());
    state.insert(
        name.display().to_string(),
        format!("mode {mode:o} owner {user}:{group} {what}"),
    );
    if kind.is_dir() {
        for entry in fs::read_dir(at)? {
            let entry = entry?.file_name();
            read(&at.join(&entry), &name.join(&entry), state)?;
        }
    }
    Ok(())
}
