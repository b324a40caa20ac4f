//! Sessions that break the rules, byte by byte: each is refused by its kind, and nothing is left.

use std::time::Duration;

use proptest::prelude::*;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// The session's end, spoken by hand.
struct Raw(tokio::net::UnixStream);

impl Raw {
    /// A session that took the machine and wrote a line, so that there is something to undo.
    async fn with_a_line(machine: &Machine) -> (Self, Serving) {
        let (socket, serving) = machine.helper();
        let mut raw = Self::new(socket);
        assert!(raw.hear().await.get("hello").is_some());
        raw.ask(1, json!({"take": {"session": "0a1b2c3d"}})).await;
        raw.ask(
            2,
            json!({"apply": serde_json::to_value(authors()).unwrap()}),
        )
        .await;
        for _ in 0..2 {
            let told = raw.hear().await;
            assert!(told["answer"]["outcome"].get("Ok").is_some(), "{told}");
        }
        assert_ne!(machine.hosts(), HOSTS);
        (raw, serving)
    }

    fn new(socket: OwnedFd) -> Self {
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(true).unwrap();
        Self(tokio::net::UnixStream::from_std(stream).unwrap())
    }

    async fn send(&mut self, bytes: &[u8]) {
        // It may be refused before all is sent.
        let _ = self.0.write_all(bytes).await;
    }

    async fn ask(&mut self, number: u64, ask: Value) {
        let text = json!({"number": number, "ask": ask}).to_string();
        self.send(&framed(text.as_bytes())).await;
    }

    /// Sends octets with descriptors beside them.
    fn pass(&self, bytes: &[u8], beside: &[std::os::fd::BorrowedFd<'_>]) {
        let mut space = vec![std::mem::MaybeUninit::uninit(); 4096];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(beside)));
        let piece = [std::io::IoSlice::new(bytes)];
        sendmsg(&self.0, &piece, &mut control, SendFlags::empty()).unwrap();
    }

    async fn hear(&mut self) -> Value {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).await.unwrap();
        let mut text = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut text).await.unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

fn framed(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap();
    [&length.to_be_bytes(), text].concat()
}

/// What a session sends, and how it is refused.
async fn refused(bytes: &[u8], ends: bool) -> Violation {
    let machine = Machine::new();
    let (mut raw, serving) = Raw::with_a_line(&machine).await;
    raw.send(bytes).await;
    if ends {
        raw.0.shutdown().await.unwrap();
    }
    let outcome = serving.await.unwrap();
    let Err(HelperError::Violation(violation)) = outcome else {
        panic!("not refused: {outcome:?}");
    };
    machine.must_be_untouched();
    let told = raw.hear().await;
    assert_eq!(told["refused"], serde_json::to_value(&violation).unwrap());
    violation
}

fn asked(number: u64, ask: &Value) -> Vec<u8> {
    let text = json!({"number": number, "ask": ask}).to_string();
    framed(text.as_bytes())
}

#[tokio::test]
async fn messages_that_are_none_are_refused() {
    let spec = |more: Value| {
        let mut spec = json!({"cidr": null, "avoid": [], "mtu": 1500});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"open": spec})
    };
    for bytes in [
        framed(b""),
        framed(b"{"),
        framed(b"\0\0\0\0"),
        framed(b"null"),
        framed(br#"{"number":3,"ask":"verify"} "x""#),
        framed(br#"{"number":3,"ask":"verify","also":"undo"}"#),
        framed(br#"{"number":-3,"ask":"verify"}"#),
        asked(3, &json!({"exec": "/bin/sh"})),
        asked(3, &json!({"take": {"session": "../../../etc/cron.d/x"}})),
        asked(
            3,
            &json!({"take": {"session": "0a1b2c3d", "runtime": "/etc"}}),
        ),
        // A link has no name but the one it is given.
        asked(3, &spec(json!({"name": "lo"}))),
        asked(3, &spec(json!({"name": "eth0"}))),
        asked(3, &spec(json!({"mtu": 70_000}))),
        asked(3, &spec(json!({"cidr": "10.0.0.1/33"}))),
        asked(
            3,
            &json!({"apply": {"dns": null, "hosts": [], "path": "/etc/shadow"}}),
        ),
    ] {
        let violation = refused(&bytes, false).await;
        let is_malformed = matches!(violation, Violation::Malformed(_));
        assert!(is_malformed, "{violation:?} {}", bytes.escape_ascii());
    }
}

#[tokio::test]
async fn messages_that_are_too_long_or_end_too_early_are_refused() {
    let longest = u32::try_from(MAX_MESSAGE).unwrap();
    for (bytes, expected) in [
        (
            u32::MAX.to_be_bytes().to_vec(),
            Violation::Oversized(u64::from(u32::MAX)),
        ),
        (
            (longest + 1).to_be_bytes().to_vec(),
            Violation::Oversized(u64::from(longest) + 1),
        ),
        (vec![0], Violation::Truncated),
        (vec![0, 0, 0, 9], Violation::Truncated),
        (vec![0, 0, 0, 9, b'{'], Violation::Truncated),
    ] {
        assert_eq!(refused(&bytes, true).await, expected);
    }
}

#[tokio::test]
async fn messages_out_of_order_or_sent_again_are_refused() {
    let number = |found| Violation::Number { expected: 3, found };
    let order = |label: &str| Violation::Order(label.to_owned());
    for (bytes, expected) in [
        (asked(2, &json!("verify")), number(2)),
        (
            asked(1, &json!({"take": {"session": "0a1b2c3d"}})),
            number(1),
        ),
        (asked(4, &json!("verify")), number(4)),
        (asked(0, &json!("verify")), number(0)),
        (asked(u64::MAX, &json!("undo")), number(u64::MAX)),
        (
            asked(3, &json!({"take": {"session": "0a1b2c3e"}})),
            order("take"),
        ),
    ] {
        assert_eq!(refused(&bytes, false).await, expected);
    }
}

#[tokio::test]
async fn nothing_is_done_before_the_machine_is_taken_and_after_it_is_given_back() {
    let spec = json!({"open": {"cidr": null, "avoid": [], "mtu": 1500}});
    let apply = json!({"apply": serde_json::to_value(authors()).unwrap()});
    for early in [&spec, &apply, &json!("verify"), &json!("undo")] {
        let machine = Machine::new();
        let (socket, serving) = machine.helper();
        let mut raw = Raw::new(socket);
        raw.send(&asked(1, early)).await;
        let outcome = serving.await.unwrap();
        let is_order = matches!(outcome, Err(HelperError::Violation(Violation::Order(_))));
        assert!(is_order, "{early}: {outcome:?}");
        machine.must_be_untouched();
    }
    for late in [&spec, &apply, &json!("recover"), &json!("undo")] {
        let undone = [asked(3, &json!("undo")), asked(4, late)].concat();
        let machine = Machine::new();
        let (mut raw, serving) = Raw::with_a_line(&machine).await;
        raw.send(&undone).await;
        let outcome = serving.await.unwrap();
        let is_order = matches!(outcome, Err(HelperError::Violation(Violation::Order(_))));
        assert!(is_order, "{late}: {outcome:?}");
        machine.must_be_untouched();
    }
}

#[tokio::test]
async fn descriptors_are_refused_and_closed() {
    for count in [1, 3, 200] {
        let machine = Machine::new();
        let (raw, serving) = Raw::with_a_line(&machine).await;
        let (watched, passed) = std::io::pipe().unwrap();
        raw.pass(&asked(3, &json!("verify")), &vec![passed.as_fd(); count]);

        let outcome = serving.await.unwrap();

        let is_it = matches!(outcome, Err(HelperError::Violation(Violation::Descriptors)));
        assert!(is_it, "{count}: {outcome:?}");
        machine.must_be_untouched();
        drop(passed);
        // Every copy is closed: the pipe is at its end.
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut &watched, &mut rest).unwrap();
        assert!(rest.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_come_to_its_end_is_not_waited_for() {
    let violation = refused(&[0, 0, 0, 9, b'{'], false).await;
    assert_eq!(violation, Violation::Slow);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_never_reads_is_undone() {
    let machine = Machine::new();
    let (mut raw, serving) = Raw::with_a_line(&machine).await;
    let flood = async {
        for number in 3.. {
            let bytes = asked(number, &json!("verify"));
            if raw.0.write_all(&bytes).await.is_err() {
                break;
            }
        }
    };

    let (outcome, ()) = tokio::join!(serving, flood);

    let outcome = outcome.unwrap();
    let is_it = matches!(outcome, Err(HelperError::Silent | HelperError::Gone));
    assert!(is_it, "{outcome:?}");
    machine.must_be_untouched();
}

#[tokio::test]
async fn an_intent_beyond_the_bounds_is_refused_and_the_session_goes_on() {
    let machine = Machine::new();
    let (mut host, _serving) = machine.session().await;
    let line = |number: u32| HostsLine {
        address: std::net::Ipv4Addr::from_bits(0x0a60_0000 + number).into(),
        names: vec![format!("a-{number}")],
    };
    let intent = |count: u32| Intent {
        hosts: (0..count).map(line).collect(),
        ..Intent::default()
    };

    let error = host.apply(&intent(65_537)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Intent);
    let error = host.apply(&intent(1_000_000)).await.unwrap_err();
    let is_long = matches!(error, HostError::Helper(HelperError::TooLong(_)));
    assert!(is_long, "{error:?}");

    assert_eq!(machine.hosts(), HOSTS);
    assert!(host.apply(&authors()).await.is_ok());
}

/// A session that is gone in the middle of what it asked for: the helper ends it, then undoes it.
#[tokio::test]
async fn a_session_that_goes_at_any_octet_is_undone() {
    let whole = [
        asked(1, &json!({"take": {"session": "0a1b2c3d"}})),
        asked(
            2,
            &json!({"apply": serde_json::to_value(authors()).unwrap()}),
        ),
        asked(3, &json!("verify")),
    ]
    .concat();
    for cut in (0..=whole.len()).step_by(7) {
        let machine = Machine::new();
        let (socket, serving) = machine.helper();
        let mut raw = Raw::new(socket);
        raw.send(&whole[..cut]).await;
        drop(raw);
        let _ = serving.await.unwrap();
        machine.must_be_untouched();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_sent_nothing_is_left(messages in prop::collection::vec(message(), 0..6)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let machine = Machine::new();
            let (socket, serving) = machine.helper();
            let mut raw = Raw::new(socket);
            for bytes in &messages {
                raw.send(bytes).await;
            }
            drop(raw);
            let ended = tokio::time::timeout(Duration::from_secs(60), serving).await;
            let _ = ended.expect("the helper ends").unwrap();
            machine.must_be_untouched();
        });
    }
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    let number = 0..5_u64;
    let ask = prop_oneof![
        Just(json!({"take": {"session": "0a1b2c3d"}})),
        Just(json!({"apply": serde_json::to_value(authors()).unwrap()})),
        Just(json!("recover")),
        Just(json!("verify")),
        Just(json!("undo")),
        Just(json!({"undo": null})),
    ];
    let whole = (number, ask).prop_map(|(number, ask)| asked(number, &ask));
    prop_oneof![
        4 => whole,
        1 => prop::collection::vec(any::<u8>(), 0..64),
        1 => prop::collection::vec(any::<u8>(), 0..64).prop_map(|text| framed(&text)),
    ]
}
