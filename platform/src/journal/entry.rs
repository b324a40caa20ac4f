//! The lines of a journal: `LENGTH CRC JSON`, and the story they tell.
//!
//! Pure. A line that does not check (the torn end of a crash) is passed over.

use serde::{Deserialize, Serialize};

use crate::hosts;
use crate::net::IpNet;
use crate::process::Owner;
use crate::sys::SessionId;

/// One change to the host, with what is needed to take it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum Change {
    /// A link of ours, gone with its process.
    Link {
        /// Its name.
        name: String,
    },
    /// DNS settings on a link, in systemd-resolved's memory.
    LinkDns {
        /// The link's name.
        name: String,
        /// The link's index.
        index: u32,
    },
    /// Routes of ours into a link, gone with it.
    Routes {
        /// The link's name.
        name: String,
        /// The link's index.
        index: u32,
        /// The routes.
        routes: Vec<IpNet>,
    },
    /// Lines of ours in the hosts file.
    Hosts {
        /// Whether the file did not exist before.
        created: bool,
        /// What removing the lines needs to know.
        note: hosts::Note,
    },
    /// A write into the hosts file itself, which a crash may leave half done.
    HostsInPlace {
        /// The content before.
        #[serde(with = "crate::hex")]
        before: Vec<u8>,
        /// The content to be written.
        #[serde(with = "crate::hex")]
        after: Vec<u8>,
    },
}

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "entry")]
pub(super) enum Entry {
    /// The session and its process.
    Open { session: SessionId, owner: Owner },
    /// The change is about to be made.
    Intend { seq: u64, change: Change },
    /// The change was made.
    Done { seq: u64 },
    /// The change was taken back.
    Undone { seq: u64 },
}

/// A change that was not taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Its number in the journal.
    pub seq: u64,
    /// The change.
    pub change: Change,
    /// Whether it is known to have been made in full.
    pub done: bool,
}

/// What a journal file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Whose journal it is; `None` if the first line is lost.
    pub opened: Option<(SessionId, Owner)>,
    /// The changes that were not taken back, oldest first.
    pub pending: Vec<Pending>,
    next: u64,
}

impl History {
    /// Reads every line that checks.
    pub fn read(bytes: &[u8]) -> Self {
        let mut history = Self::default();
        for entry in bytes.split(|&byte| byte == b'\n').filter_map(decode) {
            history.apply(entry);
        }
        history
    }

    /// Returns a number no change has had; also one that failed to get on disk may be there.
    pub(super) fn take_number(&mut self) -> u64 {
        let seq = self.next;
        self.next += 1;
        seq
    }

    /// Returns the shortest story that ends like this one.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        if let Some((session, owner)) = self.opened.clone() {
            entries.push(Entry::Open { session, owner });
        }
        for Pending { seq, change, done } in self.pending.clone() {
            entries.push(Entry::Intend { seq, change });
            if done {
                entries.push(Entry::Done { seq });
            }
        }
        entries
    }

    pub(super) fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Open { session, owner } => self.opened = Some((session, owner)),
            Entry::Intend { seq, change } => {
                self.next = self.next.max(seq.saturating_add(1));
                self.pending.push(Pending {
                    seq,
                    change,
                    done: false,
                });
            }
            Entry::Done { seq } => {
                for pending in self.pending.iter_mut().filter(|pending| pending.seq == seq) {
                    pending.done = true;
                }
            }
            Entry::Undone { seq } => self.pending.retain(|pending| pending.seq != seq),
        }
    }
}

pub(super) fn encode(entry: &Entry) -> Result<Vec<u8>, serde_json::Error> {
    let json = serde_json::to_string(entry)?;
    let (length, crc) = (json.len(), crc32fast::hash(json.as_bytes()));
    Ok(format!("{length:08x} {crc:08x} {json}\n").into_bytes())
}

fn decode(line: &[u8]) -> Option<Entry> {
    let (length, rest) = line.split_at_checked(9)?;
    let (crc, json) = rest.split_at_checked(9)?;
    let number =
        |field: &[u8]| u32::from_str_radix(str::from_utf8(field).ok()?.strip_suffix(' ')?, 16).ok();
    let whole = number(length)? as usize == json.len() && number(crc)? == crc32fast::hash(json);
    if whole {
        serde_json::from_slice(json).ok()
    } else {
        None
    }
}
