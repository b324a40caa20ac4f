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

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::host::HostsConflict;
use crate::intent::HostsLine;
use crate::sys::SessionId;

use admit::admit;

mod admit;
pub mod file;

/// The biggest foreign content that lines are added to: a hosts file this size is somebody's
/// mistake, and rewriting it on every change would be ours.
pub const MAX_FOREIGN_BYTES: usize = 16 * 1024 * 1024;

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

/// Splits wanted lines into those that could be written to `now` and the names that could not.
pub fn admitted(now: &[u8], wanted: &[HostsLine]) -> (Vec<HostsLine>, Vec<HostsConflict>) {
    admit(now, wanted, &file::host_name())
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
    let mut given = None;
    let mut marked = false;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        match mark(line) {
            Some((_, number)) => {
                marked = true;
                if number == "0" {
                    given = Some(ending_of(line));
                }
            }
            None if marked => return None,
            None => last = line,
        }
    }
    // It gave the line the break of its own lines; a `\r` before that may be the line's own.
    let ending = given?;
    let line = last.strip_suffix(ending.bytes())?.to_vec();
    Some(Unterminated { line, ending })
}

fn ending_of(line: &[u8]) -> Ending {
    if line.ends_with(b"\r\n") {
        Ending::CrLf
    } else {
        Ending::Lf
    }
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
