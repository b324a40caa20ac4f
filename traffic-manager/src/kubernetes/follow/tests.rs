//! A scripted API server in place of the network, for what a real one does only when it is broken.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use futures::FutureExt;
use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::*;
use crate::kubernetes::cluster::{CONNECT_TIMEOUT, Fresh};
use crate::metrics::Metrics;

#[test]
fn waits_double_up_to_ten_seconds() {
    let mut backoff = Backoff::default();
    let waits: Vec<_> = (0..8).map(|_| backoff.next(255).as_millis()).collect();
    assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
}

#[test]
fn jitter_takes_at_most_a_quarter() {
    assert_eq!(Backoff::default().next(0), Duration::from_millis(150));
    assert_eq!(Backoff::default().next(255), Duration::from_millis(200));
}

#[test]
fn a_right_granted_later_is_seen_within_thirty_seconds() {
    assert!(LONGEST_WAIT + TRIAL < Duration::from_secs(30));
    assert!(CONNECT_TIMEOUT < TRIAL);
}

#[test]
fn a_right_withdrawn_is_seen_within_thirty_seconds() {
    assert!(u64::from(WATCH_SECONDS) + 5 < 30);
}

/// What the server says to one request.
#[derive(Debug, Clone)]
enum Say {
    /// A list of Services by name, complete.
    List(&'static [&'static str]),
    /// A page of a list, with more to come.
    Page(&'static [&'static str]),
    /// A watch that sends these lines and ends.
    Watch(&'static [&'static str]),
    /// A watch that stays open and silent.
    Silence,
    /// An error with this code and reason.
    Fail(u16, &'static str),
    /// Something that is no JSON.
    Nonsense,
}

/// Requests as they came, and what is still to be said.
#[derive(Debug, Default)]
struct Script {
    says: VecDeque<Say>,
    asked: Vec<String>,
}

fn object(name: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"default","resourceVersion":"5"}},"spec":{{"clusterIP":"10.0.0.1"}}}}"#
    )
}

fn list(names: &[&str], more: &str) -> String {
    let items: Vec<_> = names.iter().map(|name| object(name)).collect();
    format!(
        r#"{{"kind":"ServiceList","apiVersion":"v1","metadata":{{"resourceVersion":"5","continue":"{more}"}},"items":[{}]}}"#,
        items.join(",")
    )
}

fn event(line: &str) -> String {
    match line.split_once(' ') {
        Some((kind, name)) => format!("{{\"type\":\"{kind}\",\"object\":{}}}\n", object(name)),
        // An error in the stream, as after a compaction.
        None => format!(
            "{{\"type\":\"ERROR\",\"object\":{{\"kind\":\"Status\",\"status\":\"Failure\",\"code\":{line},\"message\":\"x\",\"reason\":\"Expired\"}}}}\n"
        ),
    }
}

fn answer(say: &Say) -> Response<Body> {
    let (code, text) = match say {
        Say::List(names) => (200, list(names, "")),
        Say::Page(names) => (200, list(names, "next")),
        Say::Watch(lines) => (200, lines.iter().copied().map(event).collect()),
        Say::Silence => return Response::new(Body::from_stream(silence())),
        Say::Fail(code, reason) => {
            let fields = format!("\"code\":{code},\"reason\":\"{reason}\",\"message\":\"no\"");
            (
                *code,
                format!("{{\"kind\":\"Status\",\"status\":\"Failure\",{fields}}}"),
            )
        }
        Say::Nonsense => (200, "<html>".to_owned()),
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn silence() -> impl futures::Stream<Item = Result<Vec<u8>, Infallible>> {
    futures::stream::pending()
}

/// A followed server: what was seen, and what it was asked.
struct World {
    seen: mpsc::UnboundedReceiver<String>,
    script: Arc<Mutex<Script>>,
    shutdown: CancellationToken,
    following: tokio::task::JoinHandle<()>,
}

fn start(says: &[Say]) -> World {
    let script = Script {
        says: says.iter().cloned().collect(),
        asked: Vec::new(),
    };
    let script = Arc::new(Mutex::new(script));
    let server = Arc::clone(&script);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let mut script = server.lock();
        script
            .asked
            .push(request.uri().query().unwrap_or_default().to_owned());
        let say = script.says.pop_front().unwrap_or(Say::Silence);
        std::future::ready(Ok::<_, Infallible>(answer(&say)))
    });
    let client = Client::new(service, "default");
    let api = |client| -> Api<Service> { Api::namespaced(client, "default") };
    let (sender, seen) = mpsc::unbounded_channel();
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    let following = async move {
        let read = move || {
            let client = client.clone();
            let fresh = async move {
                Ok(Fresh {
                    client,
                    namespace: "default".to_owned(),
                    place: ("there".to_owned(), None),
                })
            };
            fresh.boxed()
        };
        let metrics = Arc::new(Metrics::new("0"));
        let cluster = Cluster::read(metrics, Box::new(read)).await.unwrap();
        follow(
            cluster,
            api,
            Need::Required("services"),
            stop,
            move |seen| {
                let _ = sender.send(describe(&seen));
            },
        )
        .await;
    };
    World {
        seen,
        script,
        shutdown,
        following: tokio::spawn(following),
    }
}

fn describe(seen: &Seen<Service>) -> String {
    match seen {
        Seen::Restart => "restart".to_owned(),
        Seen::Listed(service) => format!("listed {}", service.name_any()),
        Seen::Synced => "synced".to_owned(),
        Seen::Changed(service) => format!("changed {}", service.name_any()),
        Seen::Removed(service) => format!("removed {}", service.name_any()),
        Seen::Forbidden { verb } => format!("forbidden {verb}"),
        Seen::Away { .. } => "away".to_owned(),
        Seen::Recovered => "recovered".to_owned(),
    }
}

impl World {
    async fn sees(&mut self, expected: &[&str]) {
        for (at, expected) in expected.iter().enumerate() {
            let seen = self.seen.recv().await.unwrap();
            assert_eq!(
                seen,
                *expected,
                "at {at}, asked {:?}",
                self.script.lock().asked
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_in_pages_is_followed_by_changes() {
    let says = [
        Say::Page(&["a"]),
        Say::List(&["b"]),
        Say::Watch(&["ADDED c", "MODIFIED a", "DELETED b"]),
    ];
    let mut world = start(&says);
    world
        .sees(&["restart", "listed a", "listed b", "synced"])
        .await;
    world.sees(&["changed c", "changed a", "removed b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_is_resumed_without_a_list() {
    let says = [
        Say::List(&["a"]),
        Say::Watch(&["ADDED b"]),
        Say::Watch(&["ADDED c"]),
    ];
    let mut world = start(&says);
    world
        .sees(&["restart", "listed a", "synced", "changed b", "changed c"])
        .await;
    let asked = world.script.lock().asked.clone();
    let lists = asked
        .iter()
        .filter(|query| !query.contains("watch=true"))
        .count();
    assert_eq!(lists, 1, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn after_410_there_is_a_fresh_list() {
    let says = [
        Say::List(&["a", "b"]),
        Say::Watch(&["410"]),
        Say::List(&["b"]),
        Say::Silence,
    ];
    let mut world = start(&says);
    world
        .sees(&["restart", "listed a", "listed b", "synced", "away"])
        .await;
    world
        .sees(&["restart", "recovered", "listed b", "synced"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_starts_again_from_its_first_page() {
    let says = [
        Say::Page(&["a"]),
        Say::Fail(500, "InternalError"),
        Say::Page(&["a"]),
        Say::List(&["b"]),
    ];
    let mut world = start(&says);
    world.sees(&["restart", "listed a", "away"]).await;
    let mut rest = Vec::new();
    while rest.last().map(String::as_str) != Some("synced") {
        rest.push(world.seen.recv().await.unwrap());
    }
    let listed: Vec<_> = rest
        .iter()
        .filter(|seen| seen.starts_with("listed"))
        .collect();
    // Whatever was listed before, a restart or the rest of the list makes it whole.
    assert!(listed.iter().any(|seen| *seen == "listed b"), "{rest:?}");
    assert!(
        rest.contains(&"restart".to_owned()) == (listed.len() == 2),
        "{rest:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_to_list_is_forbidden_until_it_is_granted() {
    let says = [
        Say::Fail(403, "Forbidden"),
        Say::Fail(403, "Forbidden"),
        Say::List(&["a"]),
        Say::Silence,
    ];
    let mut world = start(&says);
    let started = Instant::now();
    world
        .sees(&["restart", "forbidden list", "restart", "forbidden list"])
        .await;
    world
        .sees(&["restart", "recovered", "listed a", "synced"])
        .await;
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_to_watch_is_forbidden_and_ends_quietly() {
    let says = [Say::List(&["a"]), Say::Fail(403, "Forbidden"), Say::Silence];
    let mut world = start(&says);
    world
        .sees(&["restart", "listed a", "synced", "forbidden watch"])
        .await;
    // Nothing is listed again: the watch goes on where it was.
    world.sees(&["recovered"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_right_granted_after_a_long_time_is_seen_within_thirty_seconds() {
    let world = start(&vec![Say::Fail(403, "Forbidden"); 100]);
    let mut world = world;
    for _ in 0..40 {
        world.seen.recv().await.unwrap();
    }
    world.script.lock().says = [Say::List(&[]), Say::Silence].into();
    let granted = Instant::now();
    while world.seen.recv().await.unwrap() != "synced" {}
    assert!(
        granted.elapsed() <= Duration::from_secs(30),
        "{:?}",
        granted.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_talks_nonsense_is_away() {
    let says = [
        Say::Nonsense,
        Say::Fail(503, "ServiceUnavailable"),
        Say::List(&["a"]),
    ];
    let mut world = start(&says);
    world
        .sees(&["restart", "away", "restart", "away", "restart"])
        .await;
    world.sees(&["recovered", "listed a", "synced"]).await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_a_silent_watch_and_a_wait() {
    for says in [vec![Say::List(&["a"])], vec![Say::Nonsense; 50]] {
        let mut world = start(&says);
        world.sees(&["restart"]).await;
        world.shutdown.cancel();
        world.following.await.unwrap();
    }
}
