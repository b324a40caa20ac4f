use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;

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
    path: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions/0a1b2c3d.journal");
    Place {
        _folder: folder,
        path,
    }
}

#[test]
fn a_journal_is_private_and_says_what_is_pending() {
    let place = place();
    let mut journal = Journal::create(&place.path, &session()).unwrap();
    let first = journal.intend(link(1)).unwrap();
    let second = journal.intend(link(2)).unwrap();
    journal.done(first).unwrap();
    journal.done(second).unwrap();
    journal.undone(first).unwrap();
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
    let journal = Journal::create(&place.path, &session()).unwrap();
    assert!(Journal::adopt(&place.path).unwrap().is_none());
    drop(journal);
    assert!(Journal::adopt(&place.path).unwrap().is_some());
}

#[test]
fn entries_after_a_torn_end_are_read() {
    let place = place();
    let mut journal = Journal::create(&place.path, &session()).unwrap();
    let seq = journal.intend(link(1)).unwrap();
    drop(journal);
    let mut bytes = fs::read(&place.path).unwrap();
    bytes.extend_from_slice(b"00000020 1234");
    fs::write(&place.path, bytes).unwrap();

    let mut adopted = Journal::adopt(&place.path).unwrap().unwrap();
    assert_eq!(adopted.history().pending.len(), 1);
    adopted.undone(seq).unwrap();

    assert_eq!(History::read(&fs::read(&place.path).unwrap()).pending, []);
}

#[test]
fn closing_removes_the_file() {
    let place = place();
    Journal::create(&place.path, &session())
        .unwrap()
        .close()
        .unwrap();
    assert!(!place.path.exists());
}

#[test]
fn a_big_journal_is_rewritten_with_what_is_pending() {
    let place = place();
    let mut journal = Journal::create(&place.path, &session()).unwrap();
    journal.intend(link(1)).unwrap();
    for _ in 0..20 {
        let seq = journal.intend(in_place()).unwrap();
        journal.undone(seq).unwrap();
    }
    assert!(fs::metadata(&place.path).unwrap().len() < 2 * COMPACT_BYTES);
    let history = History::read(&fs::read(&place.path).unwrap());
    assert_eq!(history.pending, journal.history().pending);
    assert_eq!(history.opened, journal.history().opened);
    assert!(Journal::adopt(&place.path).unwrap().is_none());
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
            Entry::Close,
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
