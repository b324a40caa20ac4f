//! The conditions of the hosts file (H1–H8, H11) as named tests, on files as they are found.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

/// Writes, lets `meanwhile` happen, takes the lines out, and returns what is left.
fn after(original: &[u8], meanwhile: impl FnOnce(&str) -> String) -> String {
    let mut place = place(Some(original));
    place.write(&["authors", "db"]);
    let now = place.now();
    fs::write(place.path(), meanwhile(&now)).unwrap();
    place.write(&["authors", "db"]);
    place.write(&["authors"]);
    place.write(&[]);
    place.now()
}

/// Connects and disconnects; nothing may have changed but the time of the write.
fn leaves_no_trace(place: &mut Place) {
    let before = (place.snapshot(), target(place));
    place.write(&["authors"]);
    assert_ne!((place.snapshot(), target(place)), before);
    place.write(&["authors", "db"]);
    place.write(&[]);
    assert_eq!((place.snapshot(), target(place)), before);
    let left = fs::read_dir(place.sys.path("/etc")).unwrap();
    assert!(
        left.flatten()
            .all(|entry| !entry.file_name().to_string_lossy().contains("kubebridge"))
    );
}

fn target(place: &Place) -> Option<(Vec<u8>, u32, u32, u32)> {
    let metadata = fs::metadata(place.path()).ok()?;
    let bytes = fs::read(place.path()).ok()?;
    Some((bytes, metadata.mode(), metadata.uid(), metadata.gid()))
}

#[test]
fn h1_h2_a_changed_address_and_a_deleted_service_are_in_the_next_write() {
    let mut place = place(Some(b"127.0.0.1 localhost\n"));
    place.write(&["authors", "db"]);
    let moved = [HostsLine {
        address: "10.96.9.9".parse().unwrap(),
        names: vec!["authors".to_owned()],
    }];
    place.file.write(&moved, &mut place.journal).unwrap();
    assert_eq!(
        place.now(),
        "127.0.0.1 localhost\n10.96.9.9\tauthors # kubebridge:0a1b2c3d:1\n"
    );
}

#[test]
fn h3_what_others_append_while_connected_survives() {
    for original in ["127.0.0.1 localhost\n", "127.0.0.1 localhost", ""] {
        // As `echo … >>` does, as a tool that brings its own line break, and one that has none.
        for appended in ["192.0.2.8 nas\n", "\n192.0.2.8 nas\n", "192.0.2.8 nas"] {
            let left = after(original.as_bytes(), |now| format!("{now}{appended}"));
            let newline = if original.is_empty() || original.ends_with('\n') {
                ""
            } else {
                "\n"
            };
            assert_eq!(left, format!("{original}{newline}{appended}"));
        }
    }
}

#[test]
fn h3_blocks_of_other_tools_survive_wherever_they_are() {
    let block = "# Added by Docker Desktop\n192.0.2.3 host.docker.internal\n# End of section\n";
    let original = format!("127.0.0.1 localhost\n{block}");
    assert_eq!(after(original.as_bytes(), str::to_owned), original);
    // Another tool takes its block out and puts it back at the end, behind our lines.
    let moved = after(original.as_bytes(), |now| now.replace(block, "") + block);
    assert_eq!(moved, original);
    // Or in the middle of them.
    let split = after(b"127.0.0.1 localhost\n", |now| {
        now.replacen("10.96.0.7\tdb", &format!("{block}10.96.0.7\tdb"), 1)
    });
    assert_eq!(split, original);
}

#[test]
fn h3_lines_of_ours_that_were_reordered_commented_out_or_reformatted_go() {
    let original = "127.0.0.1 localhost\n192.0.2.7 printer\n";
    let reversed = |now: &str| {
        now.lines()
            .rev()
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    assert_eq!(
        after(original.as_bytes(), reversed),
        "192.0.2.7 printer\n127.0.0.1 localhost\n"
    );
    let commented = |now: &str| now.replace("10.96.0.7", "# 10.96.0.7");
    assert_eq!(after(original.as_bytes(), commented), original);
    let tabs = |now: &str| now.replace('\t', "    ").replace(" # kube", "\t#kube");
    assert_eq!(after(original.as_bytes(), tabs), original);
    let crlf = |now: &str| now.replace('\n', "\r\n");
    assert_eq!(
        after(original.as_bytes(), crlf),
        original.replace('\n', "\r\n")
    );
    let without_the_last_break = |now: &str| now.trim_end().to_owned();
    assert_eq!(after(original.as_bytes(), without_the_last_break), original);
}

#[test]
fn h3_a_file_that_someone_replaced_as_a_whole_gets_the_lines_and_loses_them_again() {
    assert_eq!(
        after(b"127.0.0.1 localhost", |_| "192.0.2.1 new".to_owned()),
        "192.0.2.1 new"
    );
    assert_eq!(after(b"127.0.0.1 localhost", |_| String::new()), "");
}

#[test]
fn h5_of_two_sessions_the_first_in_the_file_has_the_name_and_the_other_inherits_it() {
    let mut first = place(Some(b"127.0.0.1 localhost\n"));
    first.write(&["authors"]);
    let id: SessionId = "ffffffff".parse().unwrap();
    let mut journal = Journal::create(&first.sys, &id).unwrap();
    let mut second = HostsFile::new(&first.sys, id, None);
    let wanted = ["authors", "cart"].map(|name| HostsLine {
        address: "10.97.0.1".parse().unwrap(),
        names: vec![name.to_owned()],
    });

    let written = second.write(&wanted, &mut journal).unwrap();
    assert_eq!(written.conflicts[0].reason, "session 0a1b2c3d has it");
    // The owner stays the owner, however often either writes.
    first.write(&["authors", "db"]);
    assert!(!second.write(&wanted, &mut journal).unwrap().changed);
    assert!(
        first
            .now()
            .contains("10.96.0.7\tauthors # kubebridge:0a1b2c3d:1\n")
    );
    assert!(
        first
            .now()
            .contains("10.97.0.1\tcart # kubebridge:ffffffff:1\n")
    );

    first.write(&[]);
    // The other one is told by its watch of the file, and verifies.
    let written = second.write(&wanted, &mut journal).unwrap();
    assert_eq!((written.changed, written.conflicts), (true, vec![]));
    assert_eq!(
        first.now(),
        "127.0.0.1 localhost\n10.97.0.1\tauthors # kubebridge:ffffffff:1\n\
         10.97.0.1\tcart # kubebridge:ffffffff:2\n"
    );
    second.clear(&mut journal).unwrap();
    assert_eq!(first.now(), "127.0.0.1 localhost\n");
}

#[test]
fn h5_two_sessions_leave_in_any_order_without_a_trace() {
    for original in ["127.0.0.1 localhost\n", "127.0.0.1 localhost", ""] {
        for first_leaves_first in [true, false] {
            let mut first = place(Some(original.as_bytes()));
            let before = first.snapshot();
            first.write(&["authors"]);
            let id: SessionId = "ffffffff".parse().unwrap();
            let mut journal = Journal::create(&first.sys, &id).unwrap();
            let mut second = HostsFile::new(&first.sys, id, None);
            let wanted = [HostsLine {
                address: "10.97.0.1".parse().unwrap(),
                names: vec!["cart".to_owned()],
            }];
            second.write(&wanted, &mut journal).unwrap();
            if first_leaves_first {
                first.write(&[]);
                second.clear(&mut journal).unwrap();
            } else {
                second.clear(&mut journal).unwrap();
                first.write(&[]);
            }
            assert_eq!(
                first.snapshot(),
                before,
                "{original:?} {first_leaves_first}"
            );
        }
    }
}

#[test]
fn h7_a_foreign_writer_that_won_the_last_instant_is_answered_by_the_next_write() {
    let mut place = place(Some(b"127.0.0.1 localhost\n"));
    place.write(&["authors"]);
    // It had read the file before our lines were there.
    fs::write(place.path(), "127.0.0.1 localhost\n192.0.2.8 nas\n").unwrap();
    assert!(place.write(&["authors"]).changed);
    assert!(
        place
            .now()
            .starts_with("127.0.0.1 localhost\n192.0.2.8 nas\n10.96.0.7\tauthors")
    );
    assert!(!place.write(&["authors"]).changed);
}

#[test]
fn h8_every_shape_of_content_is_restored() {
    let long = "192.0.2.1 somewhere\n".repeat(100_000);
    let shapes: [&[u8]; 9] = [
        b"",
        b"127.0.0.1 localhost",
        b"127.0.0.1 localhost\r\n::1 localhost\r\n",
        b"127.0.0.1 localhost\r\n::1 localhost",
        b"\xef\xbb\xbf127.0.0.1 localhost\n",
        b"\xef\xbb\xbf",
        b"127.0.0.1 local\0host\n\xff\xfe invalid\n",
        b"\n\n127.0.0.1 localhost\n\n\n",
        long.as_bytes(),
    ];
    for shape in shapes {
        leaves_no_trace(&mut place(Some(shape)));
    }
    leaves_no_trace(&mut place(None));
}

#[test]
fn h8_links_relative_absolute_and_chained_are_kept() {
    for chain in [
        &["real"][..],
        &["/etc/real"],
        &["../etc/one", "./two", "/etc/../etc/real"],
        &["/data/hosts"],
    ] {
        let mut place = place(None);
        fs::create_dir(place.sys.path("/data")).unwrap();
        let mut link = place.path();
        for target in chain {
            symlink(target, &link).unwrap();
            link = place.sys.path(Path::new("/etc").join(target));
        }
        fs::write(&link, "127.0.0.1 localhost").unwrap();
        let inside = RootFs::new(&place.sys);
        let read = || inside.read(Path::new(HOSTS)).unwrap().unwrap();
        let before = (place.snapshot(), read());

        place.write(&["authors"]);
        assert_ne!(read(), before.1, "{chain:?}");
        place.write(&[]);
        assert_eq!((place.snapshot(), read()), before, "{chain:?}");
    }
}

#[test]
fn h8_a_link_that_leads_nowhere_leads_nowhere_again() {
    let mut place = place(None);
    symlink("missing", place.path()).unwrap();
    let before = place.snapshot();
    place.write(&["authors"]);
    assert!(place.sys.path("/etc/missing").exists());
    place.write(&[]);
    assert!(!place.sys.path("/etc/missing").exists());
    assert_eq!(place.snapshot(), before);
}

#[test]
fn h8_mode_attributes_and_second_names_are_kept() {
    for mode in [0o600, 0o444, 0o640, 0o664] {
        let mut place = place(Some(b"127.0.0.1 localhost"));
        fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
        leaves_no_trace(&mut place);
    }
    let mut place = place(Some(b"127.0.0.1 localhost"));
    fs::hard_link(place.path(), place.sys.path("/etc/second")).unwrap();
    xattr::set(place.path(), "user.note", b"mine").unwrap();
    let inode = fs::metadata(place.path()).unwrap().ino();
    leaves_no_trace(&mut place);
    assert_eq!(fs::metadata(place.path()).unwrap().ino(), inode);
    assert_eq!(
        xattr::get(place.path(), "user.note").unwrap().unwrap(),
        b"mine"
    );
}

#[test]
fn h7_attributes_are_there_while_connected_too() {
    let mut place = place(Some(b"127.0.0.1 localhost"));
    xattr::set(place.path(), "user.note", b"mine").unwrap();
    place.write(&["authors"]);
    assert_eq!(
        xattr::get(place.path(), "user.note").unwrap().unwrap(),
        b"mine"
    );
}

#[test]
fn h11_both_families_are_written_and_no_address_is_no_line() {
    let mut place = place(Some(b"127.0.0.1 localhost\n"));
    let line = |address: &str| HostsLine {
        address: address.parse().unwrap(),
        names: vec!["authors".to_owned()],
    };
    let wanted = ["10.96.0.7", "fd00::7", "0.0.0.0", "::"].map(line);
    let written = place.file.write(&wanted, &mut place.journal).unwrap();
    assert_eq!(written.lines, 2);
    assert!(place.now().contains("10.96.0.7\tauthors #"));
    assert!(place.now().contains("fd00::7\tauthors #"));
}

#[test]
fn h9_ten_thousand_lines_that_are_there_are_not_written_again() {
    let mut place = place(Some(b"127.0.0.1 localhost\n"));
    let names: Vec<_> = (0..10_000)
        .map(|number| format!("service-{number}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(place.write(&names).lines, 10_000);
    let inode = fs::metadata(place.path()).unwrap().ino();
    let steps = Faults::none_but_count();
    place.file.fs = RootFs::new(&Sys {
        faults: steps.clone(),
        ..place.sys.clone()
    });
    assert!(!place.write(&names).changed);
    assert_eq!(steps.steps(), ["read"]);
    assert_eq!(fs::metadata(place.path()).unwrap().ino(), inode);
}
