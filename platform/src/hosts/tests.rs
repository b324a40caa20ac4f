use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

fn session() -> SessionId {
    "0a1b2c3d".parse().unwrap()
}

fn line(address: &str, names: &[&str]) -> HostsLine {
    let names = names.iter().map(|&name| name.to_owned()).collect();
    HostsLine {
        address: address.parse().unwrap(),
        names,
    }
}

fn authors() -> Vec<HostsLine> {
    vec![line("10.96.0.7", &["authors", "authors.default"])]
}

fn put(now: &[u8], wanted: &[HostsLine]) -> Edit {
    edit(now, &session(), wanted, "laptop.example", &Note::default()).unwrap()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

#[test]
fn lines_are_added_at_the_end_with_a_mark_each() {
    let wanted = [
        line("10.96.0.7", &["authors", "authors.default"]),
        line("fd00::7", &["authors"]),
    ];

    let edit = put(b"127.0.0.1 localhost\n", &wanted);

    assert_eq!(
        text(&edit.bytes),
        "127.0.0.1 localhost\n\
         10.96.0.7\tauthors authors.default # kubebridge:0a1b2c3d:1\n\
         fd00::7\tauthors # kubebridge:0a1b2c3d:2\n"
    );
    assert_eq!((edit.lines, edit.conflicts), (2, vec![]));
}

#[test]
fn a_changed_address_replaces_the_line_and_a_gone_service_loses_it() {
    let first = put(b"a\n", &authors());
    let moved = edit(
        &first.bytes,
        &session(),
        &[line("10.96.9.9", &["authors"])],
        "laptop",
        &first.note,
    )
    .unwrap();
    assert_eq!(
        text(&moved.bytes),
        "a\n10.96.9.9\tauthors # kubebridge:0a1b2c3d:1\n"
    );

    let gone = edit(&moved.bytes, &session(), &[], "laptop", &moved.note).unwrap();
    assert_eq!(text(&gone.bytes), "a\n");
}

#[test]
fn the_same_wish_gives_the_same_bytes() {
    let first = put(b"a", &authors());
    let second = edit(
        &first.bytes,
        &session(),
        &authors(),
        "laptop.example",
        &first.note,
    )
    .unwrap();
    assert_eq!(first, second);
}

#[test]
fn lines_that_are_there_stay_where_they_are() {
    let first = put(b"a\n", &authors());
    let now = [first.bytes.as_slice(), b"192.0.2.8 nas\n"].concat();
    let again = edit(&now, &session(), &authors(), "laptop", &first.note).unwrap();
    assert_eq!(again.bytes, now);
    // A line that lost its line break would swallow what is appended to it.
    let now = first.bytes.trim_ascii_end();
    let again = edit(now, &session(), &authors(), "laptop", &first.note).unwrap();
    assert_eq!(again.bytes, first.bytes);
}

#[test]
fn a_line_appended_by_another_tool_survives() {
    for original in ["127.0.0.1 localhost\n", "127.0.0.1 localhost", ""] {
        let edit = put(original.as_bytes(), &authors());
        let mut now = edit.bytes;
        now.extend_from_slice(b"192.168.1.5 nas\n");

        let left = remove(&now, &session(), &edit.note);

        assert!(text(&left).ends_with("192.168.1.5 nas\n"), "{original:?}");
        assert!(
            text(&left)
                .lines()
                .eq(original.lines().chain(["192.168.1.5 nas"])),
            "{original:?}"
        );
    }
}

#[test]
fn removing_gives_the_original_bytes_for_every_shape_of_file() {
    let long = "10.0.0.1 somewhere\n".repeat(100_000);
    let shapes: [&[u8]; 10] = [
        b"",
        b"\n",
        b"127.0.0.1 localhost",
        b"127.0.0.1 localhost\r\n::1 localhost\r\n",
        b"127.0.0.1 localhost\r\n::1 localhost",
        b"\xef\xbb\xbf127.0.0.1 localhost\n",
        b"\xef\xbb\xbf",
        b"a\0b\xff\xfe\n\n\n# x",
        b"abc\r",
        long.as_bytes(),
    ];
    for shape in shapes {
        let edit = put(shape, &authors());
        assert!(edit.bytes.ends_with(b"\n"));
        assert_ne!(edit.bytes, shape);
        assert!(
            remove(&edit.bytes, &session(), &edit.note) == shape,
            "{} bytes",
            shape.len()
        );
    }
}

#[test]
fn our_lines_use_the_line_break_of_most_lines() {
    assert!(put(b"a\r\nb\r\nc\n", &authors()).bytes.ends_with(b":1\r\n"));
    assert!(put(b"a\r\nb\n", &authors()).bytes.ends_with(b":1\n"));
    assert!(!put(b"a\r\nb\n", &authors()).bytes.ends_with(b":1\r\n"));
}

#[test]
fn services_named_like_the_words_of_a_mark_are_written() {
    for name in ["by", "added", "kubebridge", "for", "dev", "kb0", "svc"] {
        let first = put(b"127.0.0.1 localhost\n", &authors());
        let both = [authors(), vec![line("10.96.0.8", &[name])]].concat();
        let edit = edit(&first.bytes, &session(), &both, "laptop", &first.note).unwrap();
        assert!(
            text(&edit.bytes).contains(&format!("10.96.0.8\t{name} # ")),
            "{name}"
        );
        assert_eq!(edit.conflicts, [], "{name}");
    }
}

#[test]
fn names_with_an_owner_or_a_meaning_are_reported_and_not_written() {
    let foreign = b"127.0.0.1 localhost\n10.9.9.9 Redis cache.default # mine\n# 10.9.9.8 free\n";
    for (name, reason) in [
        ("localhost", "a name with a fixed meaning"),
        ("x.localhost", "a name with a fixed meaning"),
        ("wpad", "a name with a fixed meaning"),
        ("isatap", "a name with a fixed meaning"),
        ("laptop", "the name of this machine"),
        ("laptop.example", "the name of this machine"),
        ("redis", "line 2 has it"),
        ("cache.default", "line 2 has it"),
        (
            "authors.shop",
            "its last label is a public top-level domain",
        ),
    ] {
        let edit = put(foreign, &[line("10.96.0.7", &[name, "free"])]);
        let conflict = HostsConflict {
            name: name.to_owned(),
            reason: reason.to_owned(),
        };
        assert_eq!(edit.conflicts, [conflict]);
        assert!(
            text(&edit.bytes).ends_with("10.96.0.7\tfree # kubebridge:0a1b2c3d:1\n"),
            "{name}"
        );
    }
}

#[test]
fn a_full_service_name_may_be_below_a_public_domain() {
    let full = "authors.default.svc.k8s.example.com";
    assert_eq!(put(b"", &[line("10.96.0.7", &[full])]).conflicts, []);
    for name in ["www.example.com", "a.b.svc", "a.svc.example.com", "svc.com"] {
        let refused = put(b"", &[line("10.96.0.7", &[name])]).conflicts.len();
        assert_eq!(refused, usize::from(name != "a.b.svc"), "{name}");
    }
}

#[test]
fn addresses_that_no_service_has_are_never_written() {
    for address in [
        "0.0.0.0",
        "::",
        "127.0.0.1",
        "::1",
        "224.0.0.1",
        "255.255.255.255",
    ] {
        let edit = put(b"a\n", &[line(address, &["db"])]);
        assert_eq!(text(&edit.bytes), "a\n");
        assert_eq!(edit.conflicts.len(), 1, "{address}");
    }
}

#[test]
fn only_a_comment_that_is_exactly_our_mark_makes_a_line_ours() {
    for (line, ours) in [
        ("10.0.0.1 a # kubebridge:0a1b2c3d:1", true),
        ("10.0.0.1 a #kubebridge:0a1b2c3d:17  ", true),
        ("# 10.0.0.1 a # kubebridge:0a1b2c3d:1", true),
        ("10.0.0.1 a # kubebridge:0a1b2c3d:1\r", true),
        ("10.0.0.1 a # kubebridge:0a1b2c3d:", false),
        ("10.0.0.1 a # kubebridge:0a1b2c3d:1b", false),
        ("10.0.0.1 a # kubebridge:0a1b2c3d", false),
        ("10.0.0.1 a # kubebridge:ffffffff:1", false),
        ("10.0.0.1 a # see kubebridge:0a1b2c3d:1", false),
        ("10.0.0.1 a # kubebridge:0a1b2c3d:1 mine", false),
        ("10.0.0.1 kubebridge:0a1b2c3d:1", false),
        ("10.0.0.1 a # Kubebridge:0a1b2c3d:1", false),
    ] {
        let now = format!("x\n{line}\ny\n");
        let left = remove(now.as_bytes(), &session(), &Note::default());
        assert_eq!(
            text(&left),
            if ours { "x\ny\n" } else { now.as_str() },
            "{line}"
        );
    }
}

#[test]
fn lines_of_another_session_are_foreign_and_own_their_names() {
    let other = b"10.96.0.1\tauthors # kubebridge:ffffffff:1\n";
    let edit = put(other, &authors());
    assert_eq!(edit.conflicts[0].reason, "session ffffffff has it");
    assert_eq!(sessions(&edit.bytes).len(), 2);
    assert_eq!(remove(&edit.bytes, &session(), &edit.note), other);
}

#[test]
fn a_huge_file_gets_no_lines_but_loses_ours() {
    let mut huge = vec![b'x'; MAX_FOREIGN_BYTES + 1];
    assert_eq!(
        edit(&huge, &session(), &authors(), "", &Note::default()),
        Err(TooBig(huge.len()))
    );

    let size = huge.len();
    huge.extend_from_slice(b"\n10.0.0.1 a # kubebridge:0a1b2c3d:1\n");
    assert_eq!(
        edit(&huge, &session(), &[], "", &Note::default())
            .unwrap()
            .bytes
            .len(),
        size + 1
    );
}

#[test]
fn the_added_line_break_stays_when_another_tool_wrote_behind_it() {
    let edit = put(b"a", &authors());
    let now = text(&edit.bytes).replace("a\n", "a\nb\n");
    assert_eq!(remove(now.as_bytes(), &session(), &edit.note), b"a\nb\n");
}

#[test]
fn a_note_survives_the_journal() {
    let note = put(b"\xff\x00abc", &authors()).note;
    let text = serde_json::to_string(&note).unwrap();
    assert_eq!(serde_json::from_str::<Note>(&text).unwrap(), note);
}

/// Content as hosts files have it, and content as they should not.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"10.0.0.1 a b # note".to_vec()),
        Just(b"# kubebridge:0a1b2c3d".to_vec()),
        Just(b"10.0.0.2 c # kubebridge:ffffffff:3".to_vec()),
        Just(b"\xef\xbb\xbf".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

#[test]
fn a_lone_carriage_return_stays_when_two_sessions_have_come_and_gone() {
    let ids = [session(), "ffffffff".parse().unwrap()];
    let wanted = [HostsLine {
        address: "10.96.0.1".parse().unwrap(),
        names: vec!["authors".to_owned()],
    }];
    let first = edit(b"\r", &ids[0], &wanted, "laptop", &Note::default()).unwrap();
    let second = edit(&first.bytes, &ids[1], &wanted, "laptop", &Note::default()).unwrap();

    let left = remove(&second.bytes, &ids[0], &first.note);
    assert_eq!(remove(&left, &ids[1], &second.note), b"\r");
}

fn wishes() -> impl Strategy<Value = Vec<HostsLine>> {
    let one = (any::<u32>(), "[a-z]{1,5}(\\.[a-z]{2,4})?");
    let one = one.prop_map(|(address, name)| HostsLine {
        address: IpAddr::V4(address.into()),
        names: vec![name],
    });
    proptest::collection::vec(one, 0..5)
}

proptest! {
    #[test]
    fn removing_undoes_any_series_of_edits(original in content(), series in proptest::collection::vec(wishes(), 1..4)) {
        let (mut now, mut note) = (original.clone(), Note::default());
        for wanted in series {
            let edit = edit(&now, &session(), &wanted, "laptop", &note).unwrap();
            (now, note) = (edit.bytes, edit.note);
        }
        prop_assert_eq!(remove(&now, &session(), &note), original);
    }

    #[test]
    fn foreign_lines_are_never_changed(original in content(), wanted in wishes(), appended in content()) {
        let edit = edit(&original, &session(), &wanted, "laptop", &Note::default()).unwrap();
        let now = [edit.bytes, appended.clone()].concat();
        let left = remove(&now, &session(), &edit.note);
        let exact = [original.clone(), appended.clone()].concat();
        let kept = [original.clone(), b"\n".to_vec(), appended.clone()].concat();
        let kept_crlf = [original, b"\r\n".to_vec(), appended].concat();
        prop_assert!(left == exact || left == kept || left == kept_crlf);
    }

    #[test]
    fn two_sessions_and_another_tool_end_with_what_the_tool_and_the_user_wrote(
        original in content(),
        steps in proptest::collection::vec((0u8..3, wishes()), 1..8),
    ) {
        let ids = [session(), "ffffffff".parse().unwrap()];
        let original = text_without_marks(&original);
        let (mut now, mut notes) = (original.clone(), [Note::default(), Note::default()]);
        let mut appended = Vec::new();
        for (who, wanted) in steps {
            if who == 2 {
                now.extend_from_slice(b"192.0.2.8 nas\n");
                appended.extend_from_slice(b"192.0.2.8 nas\n");
            } else {
                let who = usize::from(who);
                let edit = edit(&now, &ids[who], &wanted, "laptop", &notes[who]).unwrap();
                (now, notes[who]) = (edit.bytes, edit.note);
            }
        }
        for (id, note) in ids.iter().zip(&notes) {
            now = remove(&now, id, note);
        }
        let breaks: [&[u8]; 3] = [b"", b"\n", b"\r\n"];
        let mut possible = breaks.map(|with| [original.as_slice(), with, &appended].concat()).to_vec();
        if appended.is_empty() {
            possible.truncate(1);
        }
        prop_assert!(possible.contains(&now), "{:?} of {:?}", now, original);
    }
}

/// Random content, without lines that belong to one of the two sessions.
fn text_without_marks(content: &[u8]) -> Vec<u8> {
    let lines = content.split_inclusive(|&byte| byte == b'\n');
    lines
        .filter(|line| owner(line).is_none())
        .collect::<Vec<_>>()
        .concat()
}
