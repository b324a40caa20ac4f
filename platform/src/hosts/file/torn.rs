//! Putting right what an interrupted write in place left, and telling that (purely) from what
//! somebody else wrote.

use std::path::Path;

use super::{HOSTS, MAX_TRIES};
use crate::fs::{FsError, Replaced, RootFs};
use crate::journal::{Change, Journal};

/// Puts right the writes in place that were interrupted, the last one first.
pub(super) fn repair(fs: &RootFs, journal: &mut Journal) -> Result<(), FsError> {
    for pending in journal.history().pending.clone().into_iter().rev() {
        if let Change::HostsInPlace { before, after } = &pending.change {
            repair_one(fs, before, after)?;
            journal.undone(pending.seq);
        }
    }
    Ok(())
}

fn repair_one(fs: &RootFs, before: &[u8], after: &[u8]) -> Result<(), FsError> {
    let path = Path::new(HOSTS);
    for _ in 0..MAX_TRIES {
        let now = fs.read(path)?.unwrap_or_default();
        let Some(whole) = mend(&now, before, after) else {
            return Ok(());
        };
        // Dying here leaves another mixture of the two, and the entry that says so.
        let replaced = fs.replace(path, Some(&now), &whole, &mut |_| Ok(()))?;
        if replaced != Replaced::Changed {
            tracing::info!("an interrupted write of the hosts file was taken back");
            return Ok(());
        }
    }
    Err(FsError::Contended(HOSTS.into()))
}

/// Returns what `now` should be if it is what an interrupted overwrite of `before` by `after`, or an
/// interrupted way back, leaves: at each place the byte of the one or of the other.
///
/// The file is cut to size last. So a shorter one than `before` is somebody else's, and a longer
/// one was being extended: there only bytes of `after` can be, or the zeros of a block that did not
/// reach the disk. If it was to get shorter, what stands behind its old end is somebody else's and
/// is kept.
fn mend(now: &[u8], before: &[u8], after: &[u8]) -> Option<Vec<u8>> {
    if now == before || now == after || now.len() < before.len() {
        return None;
    }
    let ours = if after.len() <= before.len() {
        before.len()
    } else {
        now.len()
    };
    let (torn, theirs) = now.split_at(ours);
    let mixed = |(at, byte): (usize, &u8)| {
        let (old, new) = (before.get(at), after.get(at));
        old == Some(byte) || new == Some(byte) || (old.is_none() && new.is_some() && *byte == 0)
    };
    let is_torn = torn != before && torn.iter().enumerate().all(mixed);
    is_torn.then(|| [before, theirs].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &[u8] = b"127.0.0.1 localhost\n10.0.0.1 other\n";
    const LONGER: &[u8] = b"127.0.0.1 localhost\n10.9.9.9 x\n10.96.0.7 authors\n";
    const SHORTER: &[u8] = b"127.0.0.1 localhost\n";

    fn over(now: &[u8], new: &[u8], bytes: usize) -> Vec<u8> {
        let mut file = new[..bytes].to_vec();
        file.extend_from_slice(now.get(bytes..).unwrap_or_default());
        file
    }

    #[test]
    fn an_interrupted_write_and_its_interrupted_repair_are_recognised_at_every_byte() {
        for after in [LONGER, SHORTER] {
            for cut in 0..=after.len() {
                let torn = over(BEFORE, after, cut);
                let whole = torn == BEFORE || torn == after;
                let expected = (!whole).then(|| BEFORE.to_vec());
                assert_eq!(mend(&torn, BEFORE, after), expected, "{cut}");
                for repaired in 0..=BEFORE.len() {
                    let torn = over(&torn, BEFORE, repaired);
                    let whole = torn == BEFORE || torn == after;
                    let expected = (!whole).then(|| BEFORE.to_vec());
                    assert_eq!(mend(&torn, BEFORE, after), expected, "{cut} {repaired}");
                }
            }
        }
    }

    #[test]
    fn a_block_that_did_not_reach_the_disk_is_recognised() {
        let mut torn = LONGER.to_vec();
        torn[40..].fill(0);
        assert_eq!(mend(&torn, BEFORE, LONGER).as_deref(), Some(BEFORE));
    }

    #[test]
    fn what_was_appended_to_a_file_that_was_to_get_shorter_is_kept() {
        let torn = [SHORTER, &BEFORE[SHORTER.len()..], b"theirs\n"].concat();
        assert_eq!(mend(&torn, BEFORE, SHORTER), None);
        let after = b"127.0.0.9 localhost\n";
        let torn = [&after[..], &BEFORE[after.len()..], b"theirs\n"].concat();
        let expected = [BEFORE, b"theirs\n"].concat();
        assert_eq!(mend(&torn, BEFORE, after), Some(expected));
    }

    #[test]
    fn what_somebody_else_wrote_is_not_torn() {
        for foreign in [
            b"127.0.0.1 localhost\n10.9.9.9 foreign\n".as_slice(),
            b"127.0.0.1 localhost\n10.0.0.1 other\n10.0.0.2 theirs\n",
            b"127.0.0.1 localhost\n10.0.0.1\n",
            b"",
        ] {
            assert_eq!(mend(foreign, BEFORE, LONGER), None, "{foreign:?}");
            assert_eq!(mend(foreign, BEFORE, SHORTER), None, "{foreign:?}");
        }
    }
}
