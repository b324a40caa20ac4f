//! How many flows there may be, and how long they live.

use super::ends::{Never, program};
use super::*;
use crate::data::life::{GRACE, Over, over};
use tokio::io::AsyncReadExt as _;

#[tokio::test]
async fn f2_the_flow_over_the_cap_gets_the_limit_and_room_comes_back() {
    let world = World::with_flows(3);
    let listener = world.listener(SHOP).await;
    let laptop = world.connect().await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(laptop.open(&world.open_tcp(SHOP)).await.unwrap());
    }
    let failure = laptop.failure(&world.open_tcp(SHOP)).await;
    assert_eq!(failure.kind, FailureKind::Limit);
    assert_eq!(
        failure.detail.as_deref(),
        Some("too many flows of this session")
    );
    assert_eq!(world.script.dialled.lock().len(), 3);
    // Another session has its own.
    let other = open(&world.sessions, Admission::default());
    let mut of_other = world.open_tcp(SHOP);
    of_other.session = other.id().to_owned();
    let _other = laptop.open(&of_other).await.unwrap();
    let mut one = streams.pop().unwrap();
    one.send.send_reset(h2::Reason::CANCEL);
    drop(one);
    let again = async {
        loop {
            match laptop.open(&world.open_tcp(SHOP)).await {
                Ok(stream) => return stream,
                Err(failure) => assert_eq!(failure.kind, FailureKind::Limit),
            }
        }
    };
    streams.push(within("room", again).await);
    drop(listener);
}

#[tokio::test]
async fn a_name_is_used_by_one_flow_at_a_time() {
    let world = World::new();
    let _listener = world.listener(SHOP).await;
    let laptop = world.connect().await;
    let open = world.open_tcp(SHOP);
    let _stream = laptop.open(&open).await.unwrap();
    let failure = laptop.failure(&open).await;
    assert_eq!(failure.kind, FailureKind::Limit);
    assert_eq!(
        failure.detail.as_deref(),
        Some("there is a flow of this name")
    );
}

#[tokio::test]
async fn f2_eight_hundred_flows_are_held_with_a_raised_cap_and_the_next_one_is_over_it() {
    // UDP sockets: a test may not have two descriptors for each of so many TCP flows.
    let flows = 800;
    let world = World::with_flows(flows);
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    world.lead(SHOP_UDP, Ok(server.local_addr().unwrap()));
    let laptop = world.connect().await;
    let mut streams = Vec::new();
    for _ in 0..flows {
        streams.push(
            laptop
                .open(&world.open(Protocol::Udp, SHOP_UDP))
                .await
                .unwrap(),
        );
    }
    assert_eq!(world.data.shared.table.open(), usize::from(flows));
    let failure = laptop.failure(&world.open(Protocol::Udp, SHOP_UDP)).await;
    assert_eq!(failure.kind, FailureKind::Limit);
}

fn admission(expires_in: Duration) -> Admission {
    Admission {
        expires: Some(Instant::now() + expires_in),
        ..Admission::default()
    }
}

fn renewal(id: &str, namespaces: &[&str]) -> SessionRequest {
    SessionRequest {
        client_version: "0.1.0".to_owned(),
        id: Some(id.to_owned()),
        namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        domains: vec![],
        tokens: vec![],
    }
}

#[tokio::test(start_paused = true)]
async fn r3_a_flow_ends_ten_minutes_after_its_sessions_tokens() {
    let world = World::new();
    let hour = Duration::from_secs(3600);
    let session = open(&world.sessions, admission(hour));
    let start = Instant::now();
    let mut lease = Arc::clone(&session).lease();
    // A renewal puts it off.
    tokio::time::advance(hour / 2).await;
    let request = renewal(session.id(), &["shop"]);
    world
        .sessions
        .open(request, admission(hour), Instant::now())
        .unwrap();
    assert_eq!(over(&mut lease, Some("shop")).await, Over::Expired);
    assert_eq!(start.elapsed(), hour / 2 + hour + GRACE);
}

#[tokio::test(start_paused = true)]
async fn r3_a_flow_ends_ten_minutes_after_its_namespace_was_taken_out() {
    let world = World::new();
    let hour = Duration::from_secs(3600);
    let session = open(&world.sessions, admission(hour * 5));
    let renew = |namespaces: &[&str]| {
        let request = renewal(session.id(), namespaces);
        world
            .sessions
            .open(request, admission(hour * 5), Instant::now())
            .unwrap()
    };
    let mut lease = Arc::clone(&session).lease();
    let mut other = Arc::clone(&session).lease();
    renew(&["other"]);
    tokio::time::advance(GRACE / 2).await;
    let ending = over(&mut lease, Some("shop"));
    tokio::pin!(ending);
    tokio::select! {
        biased;
        _ = &mut ending => panic!("too early"),
        () = tokio::time::sleep(GRACE / 2) => {}
    }
    // It comes back, and goes again.
    renew(&["shop"]);
    tokio::select! {
        biased;
        _ = &mut ending => panic!("it came back"),
        () = tokio::time::sleep(GRACE * 2) => {}
    }
    let start = Instant::now();
    renew(&["other"]);
    assert_eq!(ending.await, Over::Withdrawn);
    assert_eq!(start.elapsed(), GRACE);
    // A flow to an address that was resolved belongs to none.
    tokio::select! {
        biased;
        _ = over(&mut other, None) => panic!("of no namespace"),
        () = tokio::time::sleep(GRACE * 2) => {}
    }
}

#[tokio::test]
async fn a_shutdown_refuses_new_flows_and_lets_open_ones_come_to_their_end() {
    let mut world = World::new();
    let listener = world.listener(SHOP).await;
    let laptop = world.connect().await;
    let open_flow = world.open_tcp(SHOP);
    let (stream, accepted) = tokio::join!(laptop.open(&open_flow), listener.accept());
    let (mut near, _, ended) = program(stream.unwrap(), Never);
    let mut far = accepted.unwrap().0;
    world.shutdown.cancel();
    // Refused by word, or by GOAWAY once that is there.
    match within("a response", laptop.ask(&world.open_tcp(SHOP))).await {
        Some(Ok(_)) => panic!("a new flow is open"),
        Some(Err(failure)) => assert_eq!(failure.kind, FailureKind::Session),
        None => {}
    }
    tokio::io::AsyncWriteExt::write_all(&mut far, b"last words")
        .await
        .unwrap();
    drop(far);
    let mut text = String::new();
    within("the last words", near.read_to_string(&mut text))
        .await
        .unwrap();
    assert_eq!(text, "last words");
    drop(near);
    assert_eq!(
        within("the end", ended).await.unwrap().how,
        kubebridge_proto::flow::How::Finished
    );
    assert_eq!(world.line("flow-close").await["reason"], "finished");
    within("the end of all", world.running).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_open_after_the_drain_window_is_cut() {
    let mut world = World::new();
    // Sockets that need no network to be made, as time does not wait for one here.
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    world.lead(SHOP_UDP, Ok(server.local_addr().unwrap()));
    let laptop = world.connect().await;
    let _stream = laptop
        .open(&world.open(Protocol::Udp, SHOP_UDP))
        .await
        .unwrap();
    let start = Instant::now();
    world.shutdown.cancel();
    (&mut world.running).await.unwrap();
    assert_eq!(start.elapsed(), DRAIN);
    assert_eq!(world.line("flow-close").await["reason"], "shutdown");
}
