use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use super::ask::{Ask, Output, print};
use super::report::Report;
use super::*;
use crate::failure;

/// An upstream as nothing but its state tells it.
pub(crate) fn status(id: u32, spec: &str, state: UpstreamState) -> UpstreamStatus {
    UpstreamStatus {
        id,
        spec: spec.parse().unwrap(),
        state,
        fails: 0,
        last_error: None,
        rtt: None,
        last_ok: None,
        looped_zones: Vec::new(),
    }
}

/// One upstream of each kind, at this time.
fn all_kinds(now: Instant) -> Vec<UpstreamStatus> {
    let healthy = UpstreamStatus {
        rtt: Some(Duration::from_micros(1234)),
        last_ok: Some(now),
        ..status(1, "10.96.0.10", UpstreamState::Healthy)
    };
    let down = UpstreamStatus {
        fails: 7,
        last_error: Some("no reply in time".to_owned()),
        rtt: Some(Duration::from_millis(12)),
        last_ok: Some(now),
        ..status(2, "tls://9.9.9.9#dns.quad9.net", UpstreamState::Unhealthy)
    };
    let looped = UpstreamStatus {
        looped_zones: ["cluster.local", "shop"]
            .map(|zone| zone.parse().unwrap())
            .to_vec(),
        ..status(3, "[2001:db8::1]:5353", UpstreamState::Looped)
    };
    let unknown = status(
        4,
        "https://1.1.1.1#cloudflare-dns.com",
        UpstreamState::Unknown,
    );
    vec![healthy, down, looped, unknown]
}

#[tokio::test(start_paused = true)]
async fn the_json_is_as_it_was_promised() {
    let now = Instant::now();
    let report = Report::of(&all_kinds(now), now + Duration::from_millis(2500));

    let golden = include_str!("golden/upstreams.json");
    assert_eq!(report.json(), golden);
    assert_eq!(serde_json::from_str::<Report>(golden).unwrap(), report);
}

#[tokio::test(start_paused = true)]
async fn the_table_has_a_line_for_each() {
    let now = Instant::now();
    let report = Report::of(&all_kinds(now), now + Duration::from_millis(2500));
    assert_eq!(report.table(), include_str!("golden/upstreams.txt"));
}

#[test]
fn a_field_that_a_newer_manager_adds_is_passed_over() {
    let golden = include_str!("golden/upstreams.json");
    let newer = golden.replacen("{\"id\":1", "{\"colour\":\"red\",\"id\":1", 1);
    assert_ne!(newer, golden);
    assert!(serde_json::from_str::<Report>(&newer).is_ok());
}

#[test]
fn names_are_resolved_through_healthy_ones_and_those_looped_for_some_zone() {
    use UpstreamState::{Healthy, Looped, Unhealthy, Unknown};
    for (state, zones, good) in [
        (Unknown, vec![], false),
        (Healthy, vec![], true),
        (Unhealthy, vec![], false),
        (Looped, vec!["cluster.local"], true),
        (Looped, vec!["cluster.local", "."], false),
    ] {
        let one = UpstreamStatus {
            looped_zones: zones.iter().map(|zone| zone.parse().unwrap()).collect(),
            ..status(1, "10.96.0.10", state)
        };
        assert_eq!(is_good(&one), good, "{state:?} {zones:?}");
        let report = Report::of(&[one], Instant::now());
        assert_eq!(report.has_a_good_one(), good, "{state:?} {zones:?}");
    }
}

/// What the command prints for an answer, its line on stderr and its exit code.
fn printed(answer: &str, output: Output) -> (String, String, u8) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = listener.local_addr().unwrap();
    let answer = answer.to_owned();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = String::new();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        while lines.read_line(&mut request).unwrap() > 2 {}
        stream.write_all(answer.as_bytes()).unwrap();
        request
    });
    let mut text = Vec::new();
    let ended = print(&Ask { admin, output }, &mut text);
    let request = server.join().unwrap();
    assert!(
        request.starts_with("GET /upstreams HTTP/1.0\r\n"),
        "{request}"
    );
    let (said, code) = match ended {
        Ok(()) => (String::new(), 0),
        Err(error) => failure::report(&error),
    };
    (String::from_utf8(text).unwrap(), said, code)
}

#[test]
fn the_command_prints_what_the_manager_says_and_tells_by_its_exit_code_whether_one_is_good() {
    let golden = include_str!("golden/upstreams.json");
    let ok =
        |body: &str| format!("HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{body}");
    let (text, said, code) = printed(&ok(golden), Output::Json);
    assert_eq!((text.as_str(), said.as_str(), code), (golden, "", 0));
    let (text, _, code) = printed(&ok(golden), Output::Text);
    assert_eq!(
        (text.as_str(), code),
        (include_str!("golden/upstreams.txt"), 0)
    );

    let down = golden
        .replace("\"healthy\"", "\"unhealthy\"")
        .replace("\"looped\"", "\"unknown\"");
    let (text, said, code) = printed(&ok(&down), Output::Json);
    assert_eq!(text, down);
    assert_eq!((said.as_str(), code), ("error: no upstream is good", 1));

    let none = "{\"schema\":\"kubebridge.upstreams/v1\",\"upstreams\":[]}\n";
    let (_, said, code) = printed(&ok(none), Output::Text);
    assert_eq!((said.as_str(), code), ("", 0));
}

#[test]
fn whoever_is_no_manager_is_exit_69_with_what_it_said() {
    for (answer, expected) in [
        ("SSH-2.0-x\r\n", "it does not speak HTTP"),
        (
            "HTTP/1.1 403 Forbidden\r\n\r\nfrom loopback only\n",
            "it says \"HTTP/1.1 403 Forbidden\": from loopback only",
        ),
        (
            "HTTP/1.0 200 OK\r\n\r\nhello",
            "its answer is not a list of upstreams",
        ),
    ] {
        let (text, said, code) = printed(answer, Output::Text);
        assert_eq!((text.as_str(), code), ("", 69), "{said}");
        assert!(
            said.contains(expected) && said.contains("\nhint: "),
            "{said}"
        );
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = listener.local_addr().unwrap();
    drop(listener);
    let ask = Ask {
        admin,
        output: Output::Text,
    };
    let (said, code) = failure::report(&print(&ask, &mut Vec::new()).unwrap_err());
    assert_eq!(code, 69);
    assert!(
        said.starts_with(&format!("error: no traffic-manager answers at {admin}: ")),
        "{said}"
    );
}
