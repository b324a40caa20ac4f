use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

use proptest::prelude::*;

use super::{Name, NameError};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

#[test]
fn text_round_trips_with_escapes() {
    for (text, shown) in [
        (".", "."),
        ("authors", "authors"),
        (
            "authors.default.svc.cluster.local.",
            "authors.default.svc.cluster.local",
        ),
        ("WwW.Example", "WwW.Example"),
        (r"a\.b.example", r"a\.b.example"),
        (r"a\\b.example", r"a\\b.example"),
        (r"\000\255\032.x", r"\000\255\032.x"),
        (r"\065.x", "A.x"),
        ("_http._tcp.x", "_http._tcp.x"),
    ] {
        assert_eq!(name(text).to_string(), shown, "{text}");
        assert_eq!(name(shown), name(text));
    }
}

#[test]
fn an_escaped_dot_is_no_label_boundary() {
    let escaped = name(r"a\.b.example");
    assert_eq!(escaped.label_count(), 2);
    assert_eq!(escaped.dots(), 1);
    assert!(!escaped.ends_with(&name("b.example")));
    assert_eq!(escaped.labels().next().unwrap(), b"a.b");
}

#[test]
fn bad_text_is_refused_with_the_reason() {
    let long_label = "a".repeat(64);
    let long_name = [
        "a".repeat(63),
        "b".repeat(63),
        "c".repeat(63),
        "d".repeat(62),
    ]
    .join(".");
    for (text, error) in [
        ("", NameError::EmptyLabel),
        ("..", NameError::EmptyLabel),
        (".a", NameError::EmptyLabel),
        ("a..b", NameError::EmptyLabel),
        (r"a\", NameError::BadEscape),
        (r"a\25", NameError::BadEscape),
        (r"a\256", NameError::BadEscape),
        ("a b", NameError::NotAscii),
        ("b\u{fc}cher", NameError::NotAscii),
        (long_label.as_str(), NameError::LabelTooLong),
        (long_name.as_str(), NameError::TooLong),
    ] {
        assert_eq!(text.parse::<Name>(), Err(error), "{text}");
    }
}

#[test]
fn a_name_of_255_octets_is_taken() {
    let longest = [
        "a".repeat(63),
        "b".repeat(63),
        "c".repeat(63),
        "d".repeat(61),
    ]
    .join(".");
    assert_eq!(name(&longest).as_wire().len(), 255);
}

#[test]
fn bad_wire_is_refused() {
    for (wire, error) in [
        (&b""[..], NameError::BadEnd),
        (b"\x01a", NameError::BadEnd),
        (b"\x02a", NameError::BadEnd),
        (b"\x01a\x00\x00", NameError::BadEnd),
        (b"\xc0\x0c", NameError::BadLabelType),
        (b"\x40a\x00", NameError::BadLabelType),
    ] {
        assert_eq!(Name::from_wire(wire), Err(error), "{wire:?}");
    }
}

#[test]
fn comparison_and_hash_ignore_case() {
    let (upper, lower) = (name("WEB.Example"), name("web.example"));
    assert_eq!(upper, lower);
    let state = RandomState::new();
    assert_eq!(state.hash_one(&upper), state.hash_one(&lower));
    assert_eq!(BTreeSet::from([upper.clone(), lower]).len(), 1);
    assert_eq!(upper.to_lowercase().to_string(), "web.example");
    assert_eq!(upper.to_string(), "WEB.Example");
}

#[test]
fn suffixes_match_on_label_boundaries() {
    let full = name("authors.default.svc.Cluster.LOCAL");
    assert!(full.ends_with(&name("cluster.local")));
    assert!(full.ends_with(&full));
    assert!(full.ends_with(&Name::root()));
    assert!(!full.ends_with(&name("uster.local")));
    assert!(!name("local").ends_with(&name("cluster.local")));
    assert_eq!(
        full.strip_suffix(&name("svc.cluster.local")),
        Some(name("authors.default"))
    );
    assert_eq!(full.strip_suffix(&full), Some(Name::root()));
    assert_eq!(full.strip_suffix(&name("example")), None);
}

#[test]
fn joining_beyond_255_octets_gives_nothing() {
    let label = "a".repeat(63);
    let long = name(&[label.as_str(); 3].join("."));
    assert_eq!(
        long.join(&name(&"b".repeat(61))).unwrap().as_wire().len(),
        255
    );
    assert_eq!(long.join(&name(&"b".repeat(62))), None);
    assert_eq!(name("a").join(&Name::root()), Some(name("a")));
    assert_eq!(Name::root().join(&name("a")), Some(name("a")));
}

#[test]
fn dots_and_parents() {
    assert_eq!(Name::root().dots(), 0);
    assert_eq!(name("a").dots(), 0);
    assert_eq!(name("a.b.c").dots(), 2);
    assert_eq!(name("a.b").parent(), Some(name("b")));
    assert_eq!(name("a").parent(), Some(Name::root()));
    assert_eq!(Name::root().parent(), None);
}

proptest! {
    #[test]
    fn any_labels_survive_text(labels in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..6)) {
        let mut wire = Vec::new();
        for label in &labels {
            wire.push(u8::try_from(label.len()).unwrap());
            wire.extend_from_slice(label);
        }
        wire.push(0);
        let built = Name::from_wire(&wire).unwrap();
        let again: Name = built.to_string().parse().unwrap();
        prop_assert_eq!(built.as_wire(), again.as_wire());
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), text in ".{0,80}") {
        let _ = Name::from_wire(&bytes);
        let _ = text.parse::<Name>();
    }
}
