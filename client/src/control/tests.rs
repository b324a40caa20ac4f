//! The way to a manager that is replaced, falls silent or skips changes.

use std::net::{Ipv4Addr, SocketAddr};

use kubebridge_proto::routes::{NamespaceState, RouteUpdate};

use super::*;
use crate::control::exchange::AskError;
use crate::session::Health;
use crate::test_util::fake_manager::{FakeManager, Mood, Script, in_memory};
use crate::test_util::{cluster_ip, within};

/// An address where nobody listens.
const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

fn request() -> SessionRequest {
    SessionRequest {
        client_version: "0.1.0".to_owned(),
        id: None,
        namespaces: vec!["default".to_owned()],
        domains: Vec::new(),
        tokens: Vec::new(),
    }
}

fn reversed() -> Arc<Script> {
    Script::new(|query| Some(query.iter().rev().copied().collect()))
}

async fn control(manager: &FakeManager) -> Control {
    let reach = Reach::direct(manager.address);
    let channel = dial(&reach).await.unwrap();
    let session = open_session(&reach, channel.clone(), &request())
        .await
        .unwrap();
    Control::start(reach, channel, request(), session, Clock::fake().0)
}

/// Control over a pipe, on paused time; when that breaks, nobody is found by dialling.
async fn control_in_memory(script: &Arc<Script>) -> Control {
    let channel = in_memory(script);
    let reach = Reach::direct(NOBODY);
    let session = open_session(&reach, channel.clone(), &request())
        .await
        .unwrap();
    Control::start(reach, channel, request(), session, Clock::fake().0)
}

fn page(revision: u64, names: &[&str]) -> RouteUpdate {
    RouteUpdate::Page {
        namespace: "default".to_owned(),
        revision,
        routes: names
            .iter()
            .map(|name| cluster_ip("default", name, "10.96.0.7"))
            .collect(),
        last: true,
    }
}

fn names(routes: &watch::Receiver<RouteTable>) -> Vec<String> {
    let table = routes.borrow();
    table
        .services("default")
        .map(|route| route.name.clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn queries_come_back_answered() {
    let script = reversed();
    let control = control_in_memory(&script).await;
    let exchange = control.exchange();

    let all = futures::future::join_all((0..100_u8).map(|n| exchange.ask(vec![n, 0]))).await;

    for (n, reply) in all.into_iter().enumerate() {
        assert_eq!(reply, Ok(vec![0, u8::try_from(n).unwrap()]));
    }
    control.stop().await;
}

#[tokio::test]
async fn nobody_listening_is_an_error_at_once() {
    let script = reversed();
    let address = FakeManager::start(&script).await.address;
    let vacant = SocketAddr::new(address.ip(), 1);

    assert!(dial(&Reach::direct(vacant)).await.is_err());
}

async fn until(tunnel: &mut watch::Receiver<Tunnel>, health: Health) {
    within("the tunnel changes", async {
        tunnel
            .wait_for(|tunnel| tunnel.health() == health)
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lifecycle_4_a_manager_that_falls_silent_is_noticed_in_three_seconds() {
    let script = reversed();
    let control = control_in_memory(&script).await;
    let mut tunnel = control.tunnel();
    assert!(control.exchange().ask(vec![1, 2]).await.is_ok());

    script.mood.send_replace(Mood::Silent);
    let start = Instant::now();
    assert_eq!(
        control.exchange().ask(vec![1, 2]).await,
        Err(AskError::Timeout)
    );
    until(&mut tunnel, Health::Degraded).await;

    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_manager_that_falls_silent_fails_queries_until_it_speaks_again() {
    let script = reversed();
    let manager = FakeManager::start(&script).await;
    let control = control(&manager).await;
    let mut tunnel = control.tunnel();
    assert!(control.exchange().ask(vec![1, 2]).await.is_ok());

    script.mood.send_replace(Mood::Silent);
    assert!(control.exchange().ask(vec![1, 2]).await.is_err());
    until(&mut tunnel, Health::Degraded).await;
    assert_eq!(
        control.exchange().ask(vec![1, 2]).await,
        Err(AskError::TunnelDown)
    );

    script.mood.send_replace(Mood::Willing);
    until(&mut tunnel, Health::Good).await;
    assert!(control.exchange().ask(vec![1, 2]).await.is_ok());
    control.stop().await;
}

#[tokio::test]
async fn after_a_replaced_manager_the_session_is_reopened_and_what_is_gone_is_withdrawn() {
    let script = reversed();
    let manager = FakeManager::start(&script).await;
    let control = control(&manager).await;
    let mut routes = control.routes();
    script.subscribed(1).await;
    script.send(page(5, &["authors", "stale"])).await;
    routes
        .wait_for(|table| table.is_known("default"))
        .await
        .unwrap();

    let socket = manager.die();
    let mut tunnel = control.tunnel();
    tunnel
        .wait_for(|tunnel| tunnel.health() == Health::Degraded)
        .await
        .unwrap();
    assert_eq!(names(&routes), ["authors", "stale"]);
    let _manager = FakeManager::serve(&script, socket);
    let again = script.subscribed(2).await;
    script.send(page(9, &["authors"])).await;
    routes
        .wait_for(|table| table.service("default", "stale").is_none())
        .await
        .unwrap();

    assert_eq!(again.session_id, "session-1");
    assert_eq!(again.namespaces[0].revision, 5);
    assert_eq!(*script.opened.lock(), ["", "session-0", ""]);
    assert_eq!(names(&routes), ["authors"]);
    control.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_gap_makes_the_client_ask_for_the_namespace_afresh() {
    let script = reversed();
    let control = control_in_memory(&script).await;
    let mut routes = control.routes();
    script.subscribed(1).await;
    script.send(page(5, &["authors"])).await;
    script
        .send(RouteUpdate::Delta {
            namespace: "default".to_owned(),
            base_revision: 6,
            revision: 7,
            upserts: Vec::new(),
            deletes: vec!["authors".to_owned()],
        })
        .await;

    let again = script.subscribed(2).await;
    assert!(again.namespaces[0].restart);
    assert_eq!(names(&routes), ["authors"]);

    script.send(page(7, &["books"])).await;
    routes
        .wait_for(|table| table.service("default", "books").is_some())
        .await
        .unwrap();
    control.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_state_of_a_namespace_is_passed_on() {
    let script = reversed();
    let control = control_in_memory(&script).await;
    let mut routes = control.routes();
    script.subscribed(1).await;

    let state = NamespaceState::Forbidden {
        verb: "list".to_owned(),
        resource: "services".to_owned(),
    };
    script
        .send(RouteUpdate::State {
            namespace: "default".to_owned(),
            state: state.clone(),
        })
        .await;

    let table = routes.wait_for(RouteTable::is_settled).await.unwrap();
    assert_eq!(table.namespaces().next().unwrap().1.state(), Some(&state));
    drop(table);
    control.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_makes_no_sense_leaves_names_resolving() {
    let script = reversed();
    let control = control_in_memory(&script).await;
    script.subscribed(1).await;
    let mut tunnel = control.tunnel();
    tunnel.mark_unchanged();

    let frames = script.frames.lock().clone().unwrap();
    frames.send(Ok(unreadable())).await.unwrap();
    // The stream is given up.
    frames.closed().await;

    assert_eq!(control.exchange().ask(vec![1, 2]).await, Ok(vec![2, 1]));
    assert_eq!(tunnel.borrow().health(), Health::Good);
    assert_eq!(*script.opened.lock(), [""]);
    control.stop().await;
}

/// A frame of a known kind without what it needs.
fn unreadable() -> kubebridge_proto::v1::WatchNamespaceRoutesResponse {
    let mut frame = page(5, &["authors"]).into();
    let kubebridge_proto::v1::WatchNamespaceRoutesResponse { namespace, .. } = &mut frame;
    namespace.clear();
    frame
}

#[tokio::test]
async fn a_manager_that_no_longer_works_with_this_client_keeps_the_session_degraded() {
    let script = reversed();
    let manager = FakeManager::start(&script).await;
    let control = control(&manager).await;
    let mut tunnel = control.tunnel();

    script.info.lock().minimum_client_version = Some("999.0.0".to_owned());
    let socket = manager.die();
    let _manager = FakeManager::serve(&script, socket);

    let refused = |tunnel: &Tunnel| match tunnel {
        Tunnel::Down { reason, .. } => reason.contains("999.0.0 and above"),
        Tunnel::Up { .. } => false,
    };
    tunnel.wait_for(refused).await.unwrap();
    control.stop().await;
}

#[tokio::test(start_paused = true)]
async fn doubt_asks_for_an_echo_at_once() {
    let script = reversed();
    let control = control_in_memory(&script).await;
    let mut tunnel = control.tunnel();
    let is_heard = |tunnel: &Tunnel| {
        matches!(
            tunnel,
            Tunnel::Up {
                round_trip: Some(_),
                ..
            }
        )
    };
    tunnel.wait_for(is_heard).await.unwrap();
    let start = Instant::now();

    control.doubt();
    tunnel.changed().await.unwrap();

    assert_eq!(start.elapsed(), Duration::ZERO);
}
