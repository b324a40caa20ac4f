use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use rustix::io::Errno;

use super::*;
use crate::fault::Trouble;
use crate::hosts;

fn session() -> SessionId {
    "0a1b2c3d".parse().unwrap()
}

fn link(index: u32) -> Change {
    Change::Link {
        name: format!("kb{index}"),
    }
}

fn in_place() -> Change {
    Change::HostsInPlace {
        before: b"a\n\xff\0".to_vec(),
        after: vec![7; 100_000],
    }
}

struct Place {
    _folder: tempfile::TempDir,
    sys: Sys,
    path: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let sys = Sys {
        state_dir: folder.path().to_owned(),
        ..Sys::default()
    };
    Place {
        _folder: folder,
        path: sys.journal(&session()),
        sys,
    }
}

fn adopt(place: &Place) -> Option<Journal> {
    Journal::adopt(&place.path, &Faults::default()).unwrap()
}

#[test]
fn a_journal_is_private_and_says_what_is_pending() {
    let place = place();
    let mut journal = Journal::create(&place.sys, &session()).unwrap();
    let first = journal.intend(link(1)).unwrap();
    let second = journal.intend(link(2)).unwrap();
    journal.done(first);
    journal.done(second);
    journal.undone(first);
    journal.intend(in_place()).unwrap();

    let read = History::read(&fs::read(&place.path).unwrap());

    assert_eq!(
        fs::metadata(&place.path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(&read, journal.history());
    assert_eq!(read.opened, Some((session(), Owner::current())));
    let pending: Vec<_> = read
        .pending
        .iter()
        .map(|pending| (pending.seq, pending.done))
        .collect();
    assert_eq!(pending, [(1, true), (2, false)]);
    assert_eq!(read.pending[1].change, in_place());
}

#[test]
fn a_held_journal_is_not_adopted() {
    let place = place();
    let journal = Journal::create(&place.sys, &session()).unwrap();
    assert!(adopt(&place).is_none());
    drop(journal);
    assert!(adopt(&place).is_some());
}

#[test]
fn entries_after_a_torn_end_are_read() {
    let place = place();
    let mut journal = Journal::create(&place.sys, &session()).unwrap();
    let seq = journal.intend(link(1)).unwrap();
    drop(journal);
    let mut bytes = fs::read(&place.path).unwrap();
    bytes.extend_from_slice(b"00000020 1234");
    fs::write(&place.path, bytes).unwrap();

    let mut adopted = adopt(&place).unwrap();
    assert_eq!(adopted.history().pending.len(), 1);
    adopted.undone(seq);

    assert_eq!(History::read(&fs::read(&place.path).unwrap()).pending, []);
}

#[test]
fn closing_removes_the_file() {
    let place = place();
    Journal::create(&place.sys, &session())
        .unwrap()
        .close()
        .unwrap();
    assert!(!place.path.exists());
}

#[test]
fn a_big_journal_is_rewritten_with_what_is_pending() {
    let place = place();
    let mut journal = Journal::create(&place.sys, &session()).unwrap();
    journal.intend(link(1)).unwrap();
    for _ in 0..20 {
        let seq = journal.intend(in_place()).unwrap();
        journal.undone(seq);
    }
    assert!(fs::metadata(&place.path).unwrap().len() < 2 * COMPACT_BYTES);
    let history = History::read(&fs::read(&place.path).unwrap());
    assert_eq!(history.pending, journal.history().pending);
    assert_eq!(history.opened, journal.history().opened);
    assert!(adopt(&place).is_none());
}

#[test]
fn a_journal_is_seen_only_when_it_is_locked_and_says_whose_it_is() {
    for step in 0.. {
        let mut place = place();
        place.sys.faults = Faults::at(step, Trouble::Death);
        if Journal::create(&place.sys, &session()).is_ok() {
            break;
        }
        // Whatever a dead process left under the name is whole.
        if place.path.exists() {
            assert!(adopt(&place).unwrap().history().opened.is_some(), "{step}");
        }
    }
}

#[test]
fn a_journal_that_could_not_be_begun_leaves_nothing() {
    for (step, errno) in (0..5).flat_map(|step| [(step, Errno::NOSPC), (step, Errno::IO)]) {
        let mut place = place();
        place.sys.faults = Faults::at(step, Trouble::Once(errno));
        assert!(Journal::create(&place.sys, &session()).is_err(), "{step}");
        let left = fs::read_dir(place.sys.journals()).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{step} {errno}");
    }
}

#[test]
fn a_journal_without_its_first_line_is_known_by_its_name() {
    let place = place();
    Journal::create(&place.sys, &session()).unwrap();
    fs::write(&place.path, b"0000").unwrap();
    let adopted = adopt(&place).unwrap();
    assert_eq!(adopted.history().opened, None);
    assert_eq!(adopted.session(), Some(session()));
}

#[test]
fn on_a_full_disk_nothing_is_begun_but_what_was_begun_ends() {
    let mut place = place();
    place.sys.faults = Faults::none_but_count();
    let mut journal = Journal::create(&place.sys, &session()).unwrap();
    let seq = journal.intend(link(1)).unwrap();
    journal.faults = Faults::at(0, Trouble::FromThenOn(Errno::NOSPC));
    assert!(journal.intend(link(2)).is_err());
    journal.undone(seq);
    assert_eq!(journal.history().pending, []);
    journal.close().unwrap();
    assert!(!place.path.exists());
}

#[test]
fn a_number_is_not_given_twice_even_if_its_change_was_not_flushed() {
    let mut place = place();
    place.sys.faults = Faults::none_but_count();
    let mut journal = Journal::create(&place.sys, &session()).unwrap();
    journal.faults = Faults::at(1, Trouble::Once(Errno::IO));
    assert!(journal.intend(link(1)).is_err());
    let second = journal.intend(link(2)).unwrap();
    journal.undone(second);
    let pending = History::read(&fs::read(&place.path).unwrap()).pending;
    assert_eq!(pending.len(), 1);
    assert_eq!(pending[0].change, link(1));
}

proptest! {
    #[test]
    fn a_journal_cut_anywhere_gives_a_prefix_of_its_story(cut in 0usize..2000) {
        let entries = [
            Entry::Open { session: session(), owner: Owner::current() },
            Entry::Intend { seq: 0, change: link(1) },
            Entry::Done { seq: 0 },
            Entry::Intend { seq: 1, change: Change::Hosts { created: false, note: hosts::Note::default() } },
            Entry::Undone { seq: 1 },
        ];
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| encode(entry).unwrap()).collect();
        let cut = cut % (bytes.len() + 1);
        let whole = bytes[..cut].iter().filter(|&&byte| byte == b'\n').count();

        let mut expected = History::default();
        // A line that lost only its line break still checks.
        let unbroken = bytes.get(cut) == Some(&b'\n');
        for entry in &entries[..whole + usize::from(unbroken)] {
            expected.apply(entry.clone());
        }

        prop_assert_eq!(History::read(&bytes[..cut]), expected);
    }

    #[test]
    fn no_bytes_make_reading_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        History::read(&bytes);
    }
}
