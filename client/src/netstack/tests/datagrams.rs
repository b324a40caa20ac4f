//! Datagrams, echoes and what is neither.

use super::*;

async fn ends(world: &World) -> DatagramEnds {
    loop {
        if let Some(ends) = world.far.datagrams.lock().pop_front() {
            return ends;
        }
        tokio::task::yield_now().await;
    }
}

fn question(port: u16, payload: &[u8]) -> Vec<u8> {
    datagram(at(LAPTOP), ([10, 96, 0, 1], port).into(), payload)
}

#[tokio::test(start_paused = true)]
async fn f6_a_silent_flow_ends_and_the_next_datagram_opens_another() {
    for (port, idle) in [(9000, 60), (53, 10)] {
        let mut world = World::new();
        world.device.send(question(port, b"one")).await;
        let (mut out, into) = ends(&world).await;
        assert_eq!(out.recv().await.unwrap(), "one");

        tokio::time::sleep(Duration::from_secs(idle - 1)).await;
        into.send(Bytes::from_static(b"answer")).unwrap();
        let answer = read_datagram(&world.device.receive().await).unwrap();
        assert_eq!(
            answer,
            (
                ([10, 96, 0, 1], port).into(),
                at(LAPTOP),
                b"answer".to_vec()
            )
        );
        tokio::time::sleep(Duration::from_secs(idle - 1)).await;
        assert_eq!(world.netstack.counts().status().flows, 1);
        assert!(out.recv().now_or_never().is_none());

        assert_eq!(out.recv().await, None);
        world.device.send(question(port, b"two")).await;
        let (mut out, _into) = ends(&world).await;
        assert_eq!(out.recv().await.unwrap(), "two");
        assert_eq!(world.netstack.counts().status().flows, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn f6_while_the_far_end_is_opened_the_oldest_datagrams_give_way() {
    let mut world = World::new();
    let (reached, wait) = oneshot::channel();
    world.far.will(Fate::When(wait));
    world.device.send(question(9000, &[0])).await;
    world.far.dialled(1).await;
    for number in 1..100 {
        world.device.send(question(9000, &[number])).await;
    }
    // The answer to what came last tells that all was taken.
    let resolver = at("198.19.248.2:53");
    world
        .device
        .send(datagram(at(LAPTOP), resolver, &[7; 40]))
        .await;
    world.device.receive().await;

    reached.send(()).unwrap();

    let (mut out, into) = ends(&world).await;
    for number in 100 - 64..100 {
        assert_eq!(out.recv().await.unwrap()[..], [number]);
    }
    assert!(out.recv().now_or_never().is_none());
    drop((out, into));
    while world.netstack.counts().status().flows > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.dropped("datagram-queue"), 36);
}

#[tokio::test(start_paused = true)]
async fn f6_a_far_end_that_is_not_opened_in_time_is_given_up_with_what_waited() {
    let world = World::new();
    world.far.will(Fate::Hangs);
    world.device.send(question(9000, &[0])).await;
    world.far.dialled(1).await;

    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(world.netstack.counts().status().flows, 0);
    world.device.send(question(9000, &[200])).await;

    let (mut out, _into) = ends(&world).await;
    assert_eq!(out.recv().await.unwrap()[..], [200]);
}

#[tokio::test(start_paused = true)]
async fn f6_refused_datagrams_are_answered_by_icmp() {
    for (kind, code) in [
        (FailureKind::Refused, Some(3)),
        (FailureKind::HostUnreachable, Some(1)),
        (FailureKind::NetworkUnreachable, Some(0)),
        (FailureKind::Denied, Some(13)),
        (FailureKind::Timeout, None),
    ] {
        let mut world = World::new();
        world.far.will(Fate::Fails(kind));
        world.device.send(question(9000, b"hello")).await;
        world.far.dialled(1).await;

        match code {
            Some(code) => {
                let packet = world.device.receive().await;
                let packet = Packet::parse(&packet).unwrap();
                assert_eq!(packet.payload[..2], [3, code], "{kind}");
                assert_eq!(packet.payload[28..32], [0x9c, 0x40, 0x23, 0x28]);
            }
            None => world.device.silence(Duration::from_secs(60)).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn f6_a_flow_whose_far_end_is_refused_later_is_told() {
    let mut world = World::new();
    world.device.send(question(9000, b"hello")).await;
    let (_out, into) = ends(&world).await;

    into.refuse();

    let packet = world.device.receive().await;
    assert_eq!(Packet::parse(&packet).unwrap().payload[..2], [3, 3]);
}

#[tokio::test(start_paused = true)]
async fn f6_a_flow_ends_when_the_laptop_says_that_its_program_is_gone() {
    for (laptop, service) in [
        (LAPTOP, "10.96.0.1:9000"),
        ("[fd6f::1]:40000", "[fd00:96::1]:9000"),
    ] {
        let mut world = World::new();
        let (laptop, service) = (at(laptop), at(service));
        world.device.send(datagram(laptop, service, b"one")).await;
        let (mut out, into) = ends(&world).await;
        assert_eq!(out.recv().await.unwrap(), "one");
        into.send(Bytes::from_static(b"answer")).unwrap();
        let answer = world.device.receive().await;
        let answer = Packet::parse(&answer).unwrap();
        let gone = replies::unreachable(&answer, replies::Unreachable::Port).unwrap();

        // A host says it of itself alone, and of its own datagrams alone.
        let other = SocketAddr::new(service.ip(), 9001);
        let elsewhere = datagram(other, laptop, b"answer");
        let elsewhere = Packet::parse(&elsewhere).unwrap();
        let why = replies::Unreachable::Port;
        let unknown = replies::unreachable(&elsewhere, why).unwrap();
        world.device.send(unknown).await;
        let host = replies::unreachable(&answer, replies::Unreachable::Host).unwrap();
        world.device.send(host).await;
        world.device.silence(Duration::from_secs(1)).await;
        assert!(out.recv().now_or_never().is_none());

        world.device.send(gone).await;

        assert_eq!(out.recv().await, None);
        assert_eq!(world.netstack.counts().status().flows, 0);
        assert_eq!(world.dropped("no-flow"), 1);
        world.device.send(datagram(laptop, service, b"two")).await;
        let (mut out, _into) = ends(&world).await;
        assert_eq!(out.recv().await.unwrap(), "two");
    }
}

#[tokio::test(start_paused = true)]
async fn f6_the_resolver_is_asked_in_process_and_other_ports_are_closed() {
    let mut world = World::new();
    let resolver = at("198.19.248.2:53");
    let query = [7; 40];

    world
        .device
        .send(datagram(at(LAPTOP), resolver, &query))
        .await;
    let answer = read_datagram(&world.device.receive().await).unwrap();
    assert_eq!(answer, (resolver, at(LAPTOP), query.to_vec()));

    world
        .device
        .send(datagram(at(LAPTOP), at("198.19.248.2:54"), &query))
        .await;
    let packet = world.device.receive().await;
    assert_eq!(Packet::parse(&packet).unwrap().payload[..2], [3, 3]);
    assert!(world.far.dialled.borrow().is_empty());
}

#[tokio::test(start_paused = true)]
async fn f6_a_packet_that_stays_incomplete_is_counted_and_forgotten() {
    let world = World::new();
    let whole = question(9000, &[1; 4000]);
    let pieces = cut::cut(whole, 1500, 1);
    world.device.send(pieces[0].clone()).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(world.dropped("fragment-timeout"), 1);

    for piece in pieces {
        world.device.send(piece).await;
    }
    let (mut out, _into) = ends(&world).await;
    assert_eq!(out.recv().await.unwrap()[..], [1; 4000]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_carried_is_answered_or_counted() {
    let mut world = World::new();
    // GRE to the cluster; a datagram to everybody; one to an address the cluster does not have.
    let [from, to] = [at(LAPTOP).ip(), at(SERVICE).ip()];
    let gre = replies::packet(from, to, packet::Protocol::Other(47), b"whatever");
    world.device.send(gre).await;
    let answer = world.device.receive().await;
    assert_eq!(Packet::parse(&answer).unwrap().payload[..2], [3, 2]);

    let everybody = at("255.255.255.255:9");
    world
        .device
        .send(datagram(at(LAPTOP), everybody, b""))
        .await;
    world
        .device
        .send(datagram(at(LAPTOP), at("203.0.113.1:9"), b""))
        .await;
    let answer = world.device.receive().await;
    assert_eq!(Packet::parse(&answer).unwrap().payload[..2], [3, 1]);
    for (word, count) in [("protocol", 1), ("not-unicast", 1), ("outside", 1)] {
        assert_eq!(world.dropped(word), count, "{word}");
    }
    assert!(world.far.dialled.borrow().is_empty());
}

#[tokio::test(start_paused = true)]
async fn datagrams_beyond_the_bound_of_flows_are_counted() {
    let world = World::new();
    for port in (1000..).take(FLOWS + 5) {
        let from = SocketAddr::new(at(LAPTOP).ip(), port);
        world
            .device
            .send(datagram(from, at(SERVICE), b"hello"))
            .await;
    }
    world.far.dialled(FLOWS).await;

    while world.dropped("flow-limit") < 5 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.netstack.counts().status().flows, FLOWS);
    assert_eq!(world.far.dialled.borrow().len(), FLOWS);
}
