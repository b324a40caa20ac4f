//! The hosts file as bytes: our lines in, our lines out, everything else untouched.
//!
//! Pure; the file itself is `hosts/file.rs`. A line is ours when its trailing comment is exactly
//! `kubebridge:SESSION:NUMBER`. Numbers start at 1, or at 0 when the last foreign line had no line
//! break and was given one: so another session knows it, too, and may outlive us. There is no block around our lines: other tools rewrite, reorder
//! and split such blocks, and an unterminated one swallows lines of the user.
//!
//! An edit removes our lines wherever they are, which gives the file as if we had never been
//! there, and puts the wanted ones at its end. If they are all there already they stay where they
//! are: two tools that each want to be last would never come to rest. Our lines always end in a line break, so that what
//! another tool appends never lands on one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::host::HostsConflict;
use crate::intent::HostsLine;
use crate::scope;
use crate::sys::SessionId;

pub mod file;

/// The biggest foreign content that lines are added to: a hosts file this size is somebody's
/// mistake, and rewriting it on every change would be ours.
pub const MAX_FOREIGN_BYTES: usize = 16 * 1024 * 1024;

/// Names that are never written, whoever asks: they steer proxies and tunnels or mean this machine.
const NEVER: [&str; 3] = ["localhost", "wpad", "isatap"];

/// What undoing needs to know besides the marks on the lines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The last foreign line, when it had no line break and got one from us.
    unterminated: Option<Unterminated>,
}

/// A last line without line break, and the break it got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Unterminated {
    #[serde(with = "crate::hex")]
    line: Vec<u8>,
    ending: Ending,
}

/// A line break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Ending {
    /// `\n`
    Lf,
    /// `\r\n`
    CrLf,
}

/// The result of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The new content.
    pub bytes: Vec<u8>,
    /// What [`remove`] will need later.
    pub note: Note,
    /// The wanted names that were left out.
    pub conflicts: Vec<HostsConflict>,
    /// How many lines of ours it holds.
    pub lines: usize,
}

/// The foreign part is bigger than [`MAX_FOREIGN_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the hosts file is too big to add lines to ({0} bytes)")]
pub struct TooBig(pub usize);

/// Makes `wanted` the only lines of `session` in `now`.
///
/// `host_name` is the machine's own name. A name that another line already has, or that must never
/// be written, is reported instead of written.
pub fn edit(
    now: &[u8],
    session: &SessionId,
    wanted: &[HostsLine],
    host_name: &str,
    note: &Note,
) -> Result<Edit, TooBig> {
    let foreign = remove(now, session, note);
    if foreign.len() > MAX_FOREIGN_BYTES && !wanted.is_empty() {
        return Err(TooBig(foreign.len()));
    }
    let (lines, conflicts) = admit(&foreign, wanted, host_name);
    let ending = majority_ending(&foreign);
    let mut edit = Edit {
        bytes: foreign,
        note: Note::default(),
        conflicts,
        lines: lines.len(),
    };
    if lines.is_empty() {
        return Ok(edit);
    }
    let inherited = inherited(&edit.bytes);
    edit.note.unterminated = terminate(&mut edit.bytes, ending).or(inherited);
    let first = usize::from(edit.note.unterminated.is_none());
    let texts: Vec<_> = lines
        .iter()
        .zip(first..)
        .map(|(line, number)| text(line, session, number))
        .collect();
    if is_there(now, session, &texts) {
        edit.bytes = now.to_vec();
        return Ok(edit);
    }
    for text in texts {
        edit.bytes.extend_from_slice(text.as_bytes());
        edit.bytes.extend_from_slice(ending.bytes());
    }
    Ok(edit)
}

fn text(line: &HostsLine, session: &SessionId, number: usize) -> String {
    let HostsLine { address, names } = line;
    format!(
        "{address}\t{} # kubebridge:{session}:{number}",
        names.join(" ")
    )
}

/// Tells whether the lines of `session` in `now` are exactly these, in order and whole.
fn is_there(now: &[u8], session: &SessionId, texts: &[String]) -> bool {
    let lines = now.split_inclusive(|&byte| byte == b'\n');
    let ours = lines.filter(|line| owner(line) == Some(session.as_str()));
    let whole = ours.map(|line| {
        let line = line.strip_suffix(b"\n")?;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    });
    whole.eq(texts.iter().map(|text| Some(text.as_bytes())))
}

/// Returns the last foreign line of a file in which another session gave it its line break, as long
/// as nobody else wrote behind it.
fn inherited(bytes: &[u8]) -> Option<Unterminated> {
    let mut last: &[u8] = b"";
    let mut given = false;
    let mut marked = false;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        match mark(line) {
            Some((_, number)) => {
                marked = true;
                given |= number == "0";
            }
            None if marked => return None,
            None => last = line,
        }
    }
    let broken = |ending: Ending| {
        let line = last.strip_suffix(ending.bytes())?.to_vec();
        Some(Unterminated { line, ending })
    };
    let ending = if last.ends_with(b"\r\n") {
        Ending::CrLf
    } else {
        Ending::Lf
    };
    given.then(|| broken(ending)).flatten()
}

/// Takes every line of `session` out of `now`, and the line break we once added before them.
pub fn remove(now: &[u8], session: &SessionId, note: &Note) -> Vec<u8> {
    let mut foreign = Vec::with_capacity(now.len());
    let mut last_foreign: &[u8] = b"";
    let mut ours_last = false;
    for line in now.split_inclusive(|&byte| byte == b'\n') {
        ours_last = owner(line).is_some_and(|owner| owner == session.as_str());
        if !ours_last {
            foreign.extend_from_slice(line);
            last_foreign = line;
        }
    }
    if let Some(Unterminated { line, ending }) = &note.unterminated
        && ours_last
        && last_foreign.strip_suffix(ending.bytes()) == Some(line)
    {
        foreign.truncate(foreign.len() - ending.bytes().len());
    }
    foreign
}

/// Returns the sessions that have lines in `now`.
pub fn sessions(now: &[u8]) -> BTreeSet<SessionId> {
    let lines = now.split(|&byte| byte == b'\n');
    lines
        .filter_map(owner)
        .filter_map(|owner| owner.parse().ok())
        .collect()
}

/// Returns the session of a line of ours.
fn owner(line: &[u8]) -> Option<&str> {
    mark(line).map(|(session, _)| session)
}

/// Returns session and number of the mark of a line, if its last comment is exactly our mark.
fn mark(line: &[u8]) -> Option<(&str, &str)> {
    let comment = line.iter().rposition(|&byte| byte == b'#')?;
    let comment = str::from_utf8(line[comment + 1..].trim_ascii()).ok()?;
    let (session, number) = comment.strip_prefix("kubebridge:")?.split_once(':')?;
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    digits.then_some((session, number))
}

/// Splits the wanted lines into those to write and the names to report.
fn admit(
    foreign: &[u8],
    wanted: &[HostsLine],
    host_name: &str,
) -> (Vec<HostsLine>, Vec<HostsConflict>) {
    let taken = if wanted.is_empty() {
        BTreeMap::new()
    } else {
        names(foreign)
    };
    let mut conflicts = BTreeSet::new();
    let mut lines = Vec::with_capacity(wanted.len());
    for HostsLine { address, names } in wanted {
        let admitted = |name: &&String| match refusal(*address, name, host_name, &taken) {
            Some(reason) => {
                conflicts.insert(HostsConflict {
                    name: (*name).clone(),
                    reason,
                });
                false
            }
            None => true,
        };
        let names: Vec<_> = names.iter().filter(admitted).cloned().collect();
        let line = HostsLine {
            address: *address,
            names,
        };
        if !line.names.is_empty() {
            lines.push(line);
        }
    }
    (lines, conflicts.into_iter().collect())
}

/// Tells why `name` must not be written, if so.
fn refusal(
    address: IpAddr,
    name: &str,
    host_name: &str,
    taken: &BTreeMap<Vec<u8>, Holder>,
) -> Option<String> {
    if !is_service_address(address) {
        return Some(format!("{address} cannot be the address of a service"));
    }
    if NEVER.contains(&name) || name.ends_with(".localhost") {
        return Some("a name with a fixed meaning".to_owned());
    }
    let short = host_name.split('.').next().unwrap_or(host_name);
    if name.eq_ignore_ascii_case(host_name) || name.eq_ignore_ascii_case(short) {
        return Some("the name of this machine".to_owned());
    }
    if name.contains('.') && !is_below_svc(name) && scope::has_public_tld(name) {
        return Some("its last label is a public top-level domain".to_owned());
    }
    taken
        .get(name.as_bytes())
        .map(|holder| match &holder.session {
            Some(session) => format!("session {session} has it"),
            None => format!("line {} has it", holder.line),
        })
}

/// Tells whether it is a full Service name, `SERVICE.NAMESPACE.svc.DOMAIN`: a cluster's own domain
/// may well be below a public one.
fn is_below_svc(name: &str) -> bool {
    name.split('.').nth(2) == Some("svc") && name.split('.').count() > 4
}

/// Headless Services have no address, and these would send the laptop to itself or nowhere.
fn is_service_address(address: IpAddr) -> bool {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || broadcast)
}

/// Who has a name already.
struct Holder {
    line: usize,
    session: Option<String>,
}

/// Collects the names of all lines, lower-cased, with the first line that has each.
fn names(bytes: &[u8]) -> BTreeMap<Vec<u8>, Holder> {
    let mut names = BTreeMap::new();
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let entry = line.split(|&byte| byte == b'#').next().unwrap_or(line);
        let fields = entry
            .split(u8::is_ascii_whitespace)
            .filter(|field| !field.is_empty());
        for name in fields.skip(1) {
            let session = || owner(line).map(str::to_owned);
            let holder = || Holder {
                line: index + 1,
                session: session(),
            };
            names
                .entry(name.to_ascii_lowercase())
                .or_insert_with(holder);
        }
    }
    names
}

/// Gives the last line a line break if it has none.
fn terminate(bytes: &mut Vec<u8>, ending: Ending) -> Option<Unterminated> {
    if bytes.is_empty() || bytes.ends_with(b"\n") {
        return None;
    }
    let start = bytes
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |at| at + 1);
    let line = bytes[start..].to_vec();
    bytes.extend_from_slice(ending.bytes());
    Some(Unterminated { line, ending })
}

/// Returns the line break most lines have; `\n` when in doubt.
fn majority_ending(bytes: &[u8]) -> Ending {
    let (mut lines, mut crlf) = (0usize, 0usize);
    for line in bytes
        .split_inclusive(|&byte| byte == b'\n')
        .filter(|line| line.ends_with(b"\n"))
    {
        lines += 1;
        crlf += usize::from(line.ends_with(b"\r\n"));
    }
    if 2 * crlf > lines {
        Ending::CrLf
    } else {
        Ending::Lf
    }
}

impl Ending {
    fn bytes(self) -> &'static [u8] {
        match self {
            Self::Lf => b"\n",
            Self::CrLf => b"\r\n",
        }
    }
}

#[cfg(test)]
mod tests;
