//! Connections: what is answered when, and what survives what. The laptop is another smoltcp.

use smoltcp::wire::{TcpControl, TcpPacket};

use super::laptop::{Laptop, syn};
use super::*;

/// Reads a packet as a TCP segment: its control, sequence and confirmed number.
pub(super) fn segment(packet: &[u8]) -> (TcpControl, i32, Option<i32>) {
    let packet = Packet::parse(packet).unwrap();
    let segment = TcpPacket::new_checked(packet.payload).unwrap();
    let control = match (segment.syn(), segment.rst(), segment.fin()) {
        (true, ..) => TcpControl::Syn,
        (_, true, _) => TcpControl::Rst,
        (.., true) => TcpControl::Fin,
        _ => TcpControl::None,
    };
    let confirmed = segment.ack().then(|| segment.ack_number().0);
    (control, segment.seq_number().0, confirmed)
}

#[tokio::test(start_paused = true)]
async fn f1_a_syn_is_dialled_once_and_answered_when_the_far_end_was_reached() {
    let mut world = World::new();
    let (reached, wait) = oneshot::channel();
    world.far.will(Fate::When(wait));
    world.device.send(syn(LAPTOP, SERVICE, 1000)).await;
    world.far.dialled(1).await;
    world.device.send(syn(LAPTOP, SERVICE, 1000)).await;
    world.device.silence(Duration::from_secs(4)).await;

    reached.send(()).unwrap();

    let answer = world.device.receive().await;
    let (control, _, confirmed) = segment(&answer);
    assert_eq!((control, confirmed), (TcpControl::Syn, Some(1001)));
    assert_eq!(*world.far.dialled.borrow(), [at(SERVICE)]);
}

#[tokio::test(start_paused = true)]
async fn f1_a_dial_without_an_answer_is_given_up_and_the_next_syn_dials_again() {
    let mut world = World::new();
    world.far.will(Fate::Hangs);
    world.device.send(syn(LAPTOP, SERVICE, 1000)).await;

    world.device.silence(Duration::from_secs(6)).await;
    assert_eq!(world.netstack.counts().status().flows, 0);
    world.device.send(syn(LAPTOP, SERVICE, 1000)).await;

    let answer = world.device.receive().await;
    assert_eq!(segment(&answer).0, TcpControl::Syn);
}

#[tokio::test(start_paused = true)]
async fn f1_each_failure_has_its_answer() {
    for (kind, code) in [
        (FailureKind::HostUnreachable, 1),
        (FailureKind::NetworkUnreachable, 0),
        (FailureKind::Denied, 13),
    ] {
        let mut world = World::new();
        world.far.will(Fate::Fails(kind));
        world.device.send(syn(LAPTOP, SERVICE, 1000)).await;

        let answer = world.device.receive().await;
        let packet = Packet::parse(&answer).unwrap();
        assert_eq!(packet.payload[..2], [3, code], "{kind}");
    }
    for kind in [FailureKind::Refused, FailureKind::Limit] {
        let mut world = World::new();
        world.far.will(Fate::Fails(kind));
        world.device.send(syn(LAPTOP, SERVICE, 1000)).await;

        let answer = world.device.receive().await;
        assert_eq!(segment(&answer), (TcpControl::Rst, 0, Some(1001)), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn connections_being_opened_are_bounded() {
    let world = World::new();
    for port in (1000..).take(gate::HALF_OPEN + 3) {
        world.far.will(Fate::Hangs);
        let from = format!("198.19.248.1:{port}");
        world.device.send(syn(&from, SERVICE, 1)).await;
    }

    while world.dropped("half-open") < 3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.far.dialled.borrow().len(), gate::HALF_OPEN);
}

#[tokio::test(start_paused = true)]
async fn a_connection_given_up_while_it_is_dialled_is_not_answered() {
    let mut world = World::new();
    let (reached, wait) = oneshot::channel();
    world.far.will(Fate::When(wait));
    world.device.send(syn(LAPTOP, SERVICE, 1000)).await;
    world.far.dialled(1).await;
    world
        .device
        .send(laptop::reset(LAPTOP, SERVICE, 1001))
        .await;
    while world.netstack.counts().status().flows > 0 {
        tokio::task::yield_now().await;
    }

    reached.send(()).unwrap();

    world.device.silence(Duration::from_secs(30)).await;
}

#[tokio::test(start_paused = true)]
async fn f2_a_segment_of_no_connection_is_reset() {
    let mut world = World::new();
    world
        .device
        .send(laptop::data(LAPTOP, SERVICE, 1000, 77))
        .await;

    let answer = world.device.receive().await;

    assert_eq!(segment(&answer), (TcpControl::Rst, 77, None));
    assert_eq!(world.dropped("no-flow"), 1);
}

#[tokio::test(start_paused = true)]
async fn octets_go_both_ways_though_the_laptop_takes_one_packet_at_a_time() {
    let world = World::with_room(1);
    let octets: Vec<u8> = (0..1_000_000).map(|index| (index % 251) as u8).collect();
    let World {
        device,
        far,
        netstack: _netstack,
        ..
    } = world;
    let mut laptop = Laptop::connect(device, LAPTOP, SERVICE);
    let (sent, expected) = (octets.clone(), octets.clone());
    let far_side = async move {
        far.dialled(1).await;
        let end = far.far_ends.lock().pop_front().unwrap();
        let (mut read, mut write) = tokio::io::split(end);
        let mut heard = Vec::new();
        let writing = async {
            write.write_all(&sent).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let (_, ()) = tokio::join!(read.read_to_end(&mut heard), writing);
        heard
    };
    let (heard_there, heard_here) = tokio::join!(far_side, laptop.exchange(&octets));

    assert!(heard_there == expected);
    assert!(heard_here == expected);
}

#[tokio::test(start_paused = true)]
async fn flows_go_on_over_another_device() {
    let mut world = World::new();
    world.device.send(syn(LAPTOP, SERVICE, 1000)).await;
    let (_, sequence, _) = segment(&world.device.receive().await);
    world
        .device
        .send(laptop::data(LAPTOP, SERVICE, 1001, sequence + 1))
        .await;
    let confirmed = world.device.receive().await;
    assert_eq!(segment(&confirmed).2, Some(1002));
    // Nothing is said twice, and a keep-alive only when its time has come.
    world.device.silence(Duration::from_secs(119)).await;
    let (_, probe, _) = segment(&world.device.receive().await);
    assert_eq!(probe, sequence);

    let (memory, other) = device(16);
    drop(std::mem::replace(&mut world.device, other));
    world.netstack.replace(memory).await;
    world
        .device
        .send(laptop::data(LAPTOP, SERVICE, 1002, sequence + 1))
        .await;

    assert_eq!(segment(&world.device.receive().await).2, Some(1003));
    let mut end = world.far.far_ends.lock().pop_front().unwrap();
    let mut heard = [0; 2];
    end.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"xx");
}

#[tokio::test(start_paused = true)]
async fn f2_open_flows_are_reset_when_the_session_ends_and_the_device_is_given_back() {
    let mut world = World::new();
    world.device.send(syn(LAPTOP, SERVICE, 1000)).await;
    let (_, sequence, _) = segment(&world.device.receive().await);
    world
        .device
        .send(laptop::data(LAPTOP, SERVICE, 1001, sequence + 1))
        .await;
    world.device.receive().await;

    let device = world.netstack.stop().await;

    let (control, number, _) = segment(&world.device.receive().await);
    assert_eq!((control, number), (TcpControl::Rst, sequence + 1));
    assert!(device.is_some());
}

#[tokio::test(start_paused = true)]
async fn f2_every_open_flow_is_reset_when_the_session_ends_however_many_there_are() {
    let mut world = World::new();
    let ports = 1000..1400;
    for port in ports.clone() {
        let from = format!("198.19.248.1:{port}");
        world.device.send(syn(&from, SERVICE, 1000)).await;
        let (_, sequence, _) = segment(&world.device.receive().await);
        let confirmed = laptop::confirming(&from, SERVICE, 1001, sequence + 1);
        world.device.send(confirmed).await;
    }

    world.netstack.stop().await;

    for port in ports {
        let heard = world.device.receive.try_recv();
        let heard = heard.unwrap_or_else(|_| panic!("no reset before that of port {port}"));
        assert_eq!(segment(&heard).0, TcpControl::Rst);
    }
}

#[tokio::test(start_paused = true)]
async fn the_resolver_is_never_dialled() {
    let mut world = World::new();
    world
        .device
        .send(syn(LAPTOP, "198.19.248.2:53", 1000))
        .await;
    assert_eq!(segment(&world.device.receive().await).0, TcpControl::Syn);

    world
        .device
        .send(syn(LAPTOP, "198.19.248.2:80", 1000))
        .await;
    assert_eq!(segment(&world.device.receive().await).0, TcpControl::Rst);
    assert!(world.far.dialled.borrow().is_empty());
}
