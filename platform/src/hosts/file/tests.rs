use std::fs;
use std::path::PathBuf;

use super::*;
use crate::fault::Faults;
use crate::fs::{Kind, Snapshot};

mod fixtures;

struct Place {
    _folder: tempfile::TempDir,
    sys: Sys,
    journal: Journal,
    file: HostsFile,
}

fn session() -> SessionId {
    "0a1b2c3d".parse().unwrap()
}

fn place(hosts: Option<&[u8]>) -> Place {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let sys = Sys {
        root: at("root"),
        bus_address: None,
        state_dir: at("state"),
        runtime_dir: at("run"),
        faults: Faults::default(),
    };
    for made in ["root/etc", "run"] {
        fs::create_dir_all(at(made)).unwrap();
    }
    if let Some(bytes) = hosts {
        fs::write(at("root/etc/hosts"), bytes).unwrap();
    }
    let journal = Journal::create(&sys, &session()).unwrap();
    let file = HostsFile::new(&sys, session(), None);
    Place {
        _folder: folder,
        sys,
        journal,
        file,
    }
}

impl Place {
    fn path(&self) -> PathBuf {
        self.sys.path("/etc/hosts")
    }

    fn write(&mut self, names: &[&str]) -> Written {
        let line = |name: &&str| HostsLine {
            address: "10.96.0.7".parse().unwrap(),
            names: vec![(*name).to_owned()],
        };
        let wanted: Vec<_> = names.iter().map(line).collect();
        self.file.write(&wanted, &mut self.journal).unwrap()
    }

    fn now(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    fn snapshot(&self) -> Snapshot {
        RootFs::new(&self.sys)
            .snapshot(Path::new("/etc/hosts"))
            .unwrap()
    }

    /// The same session seen by a process that knows only the journal.
    fn after_a_crash(self) -> Self {
        let Self {
            _folder,
            sys,
            journal,
            ..
        } = self;
        drop(journal);
        let journal = Journal::adopt(&sys.journal(&session()), &sys.faults)
            .unwrap()
            .unwrap();
        let file = HostsFile::new(&sys, session(), Some(&journal));
        Self {
            _folder,
            sys,
            journal,
            file,
        }
    }
}

#[test]
fn lines_come_change_and_go_and_the_file_is_as_before() {
    for original in ["127.0.0.1 localhost\n", "127.0.0.1 localhost", ""] {
        let mut place = place(Some(original.as_bytes()));
        let before = place.snapshot();
        assert_eq!(
            place.write(&["authors"]),
            Written {
                changed: true,
                lines: 1,
                conflicts: vec![]
            }
        );
        assert!(place.write(&["authors", "db"]).changed);
        // Counted from 0 where the file had to be given a line break.
        let number = if original.ends_with("localhost") {
            1
        } else {
            2
        };
        let line = format!("10.96.0.7\tdb # kubebridge:0a1b2c3d:{number}\n");
        assert!(place.now().ends_with(&line));
        assert!(place.write(&[]).changed);
        assert_eq!(place.snapshot(), before, "{original:?}");
        assert_eq!(place.journal.history().pending, []);
    }
}

#[test]
fn an_unchanged_wish_writes_nothing() {
    let mut place = place(Some(b"a\n"));
    place.write(&["authors"]);
    let written = fs::metadata(place.path()).unwrap().modified().unwrap();
    assert!(!place.write(&["authors"]).changed);
    assert_eq!(
        fs::metadata(place.path()).unwrap().modified().unwrap(),
        written
    );
}

#[test]
fn a_crashed_session_is_undone_from_its_journal_alone() {
    for original in ["127.0.0.1 localhost\n", "127.0.0.1 localhost", ""] {
        let mut place = place(Some(original.as_bytes()));
        let before = place.snapshot();
        place.write(&["authors"]);
        let mut later = place.after_a_crash();
        later.write(&[]);
        assert_eq!(later.snapshot(), before, "{original:?}");
        assert!(!later.write(&[]).changed);
    }
}

#[test]
fn a_file_we_made_goes_again_unless_someone_wrote_into_it() {
    let mut place = place(None);
    place.write(&["authors"]);
    place.write(&[]);
    assert_eq!(place.snapshot().kind, Kind::Absent);

    place.write(&["authors"]);
    fs::write(place.path(), place.now() + "10.1.1.1 theirs\n").unwrap();
    place.write(&[]);
    assert_eq!(place.now(), "10.1.1.1 theirs\n");
}

#[test]
fn a_torn_write_in_place_is_put_right_at_the_next_write() {
    let mut place = place(Some(b"aaaa\nccbb\n"));
    let (before, after) = (b"aaaa\nbbbb\n".to_vec(), b"aaaa\ncccc\ndddd\n".to_vec());
    let torn = Change::HostsInPlace { before, after };
    place.journal.intend(torn).unwrap();
    assert!(!place.file.clear(&mut place.journal).unwrap().changed);
    assert_eq!(place.now(), "aaaa\nbbbb\n");
    assert_eq!(place.journal.history().pending, []);
}

#[test]
fn a_file_with_two_names_is_edited_and_restored_in_place() {
    let mut place = place(Some(b"a"));
    fs::hard_link(place.path(), place.sys.path("/etc/second")).unwrap();
    place.write(&["authors"]);
    assert_eq!(
        fs::read(place.sys.path("/etc/second")).unwrap(),
        fs::read(place.path()).unwrap()
    );
    place.write(&[]);
    assert_eq!(fs::read(place.sys.path("/etc/second")).unwrap(), b"a");
    assert_eq!(place.journal.history().pending, []);
}

#[test]
fn a_held_lock_stops_the_write() {
    let mut place = place(Some(b"a\n"));
    let _held = Lock::try_acquire(&place.sys.hosts_lock(), &Faults::default())
        .unwrap()
        .unwrap();
    let failed = place.file.write(&[], &mut place.journal);
    assert!(matches!(failed, Err(HostsError::File(FsError::Locked(_)))));
    assert_eq!(place.now(), "a\n");
}
