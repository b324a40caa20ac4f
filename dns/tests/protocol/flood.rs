//! P15 and P16: packets that nobody honest sends, in great number.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use kubebridge_dns::name::RecordType;
use kubebridge_dns::test_util::{Answer, LoopbackServer};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::net::UdpSocket;

use crate::packet::*;
use crate::world::*;

/// Packets without `KUBEBRIDGE_FUZZ_CASES`; with a million of them this takes some minutes.
const CASES: u32 = 100_000;
/// Packets sent before their replies are waited for: all fit into the socket's buffer.
const BATCH: u32 = 64;
/// The id of the queries that tell the end of a batch; no other packet has it.
const MARK: u16 = 0xfade;

fn cases() -> u32 {
    let given = std::env::var("KUBEBRIDGE_FUZZ_CASES").ok();
    given.map_or(CASES, |text| {
        text.parse().expect("KUBEBRIDGE_FUZZ_CASES is a number")
    })
}

/// Honest packets of many shapes, to be spoilt.
fn seeds() -> Vec<Vec<u8>> {
    let web = query("www.example.org", RecordType::A);
    let options = [
        option(8, b"\0\x01\x18\0\x0a\0\x01"),
        option(10, b"12345678"),
    ]
    .concat();
    let soa = b"\xc0\x0c\0\x06\0\x01\0\0\0\0\0\x16\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    vec![
        web.clone(),
        with_opt(&web, 4096, DO, &options),
        with_opt(&query("authors", RecordType::HTTPS), 512, 0, b""),
        query("1.0.96.10.in-addr.arpa", RecordType::PTR),
        with_count(
            &[query("example.org", RecordType::IXFR), soa.to_vec()].concat(),
            2,
            1,
        ),
        query("localhost", RecordType::ANY),
        Answer::address("www.example.org", [192, 0, 2, 1]).reply_to(&web),
    ]
}

fn next(random: &mut StdRng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut packet = if random.random_ratio(1, 4) {
        let mut bytes = vec![0; random.random_range(0..600)];
        random.fill(&mut bytes[..]);
        bytes
    } else {
        let mut packet = seeds[random.random_range(0..seeds.len())].clone();
        for _ in 0..random.random_range(0..6) {
            let at = random.random_range(0..packet.len());
            packet[at] = random.random();
        }
        if random.random_ratio(1, 8) {
            packet.truncate(random.random_range(0..packet.len()));
        }
        packet
    };
    if packet.len() > 1 && id(&[&packet[..], &[0; 2]].concat()) == MARK {
        packet[0] = 0;
    }
    packet
}

/// The resident memory of this process in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Counts what was sent and what came back under each id.
#[derive(Default)]
struct Counts(BTreeMap<u16, (u32, u32)>);

impl Counts {
    fn sent(&mut self, packet: &[u8]) {
        if packet.len() >= 2 {
            self.0.entry(id(packet)).or_default().0 += 1;
        }
    }

    fn received(&mut self, reply: &[u8]) {
        let (sent, received) = self.0.entry(id(reply)).or_default();
        *received += 1;
        assert!(received <= sent, "more replies than packets: {reply:?}");
        assert!(flags(reply) & 0x8000 != 0 && reply.len() <= 1232);
        parsed(reply);
    }
}

/// Set for the flood's own process.
const ALONE: &str = "KUBEBRIDGE_FLOOD_ALONE";

/// P16. Runs in a process of its own, since other tests would use memory beside it.
#[test]
fn random_and_mutated_packets_get_one_reply_at_most_and_leave_nothing_behind() {
    if std::env::var_os(ALONE).is_some() {
        return tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(flood());
    }
    let this = "flood::random_and_mutated_packets_get_one_reply_at_most_and_leave_nothing_behind";
    let alone = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", this, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = [alone.stdout, alone.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(
        alone.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

async fn flood() {
    let mut plan = Plan::of(vec![LoopbackServer::saying(Answer::nxdomain(".")).await]);
    plan.cache_entries = 1000;
    let world = plan.start().await;
    let socket = world.client(POD).await;
    let seed: u64 = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let seeds = seeds();
    let mark = with_id(&query("localhost", RecordType::A), MARK);
    let total = cases();
    let mut counts = Counts::default();
    let mut warm = 0;
    for batch in 0..total.div_ceil(BATCH) {
        for _ in 0..BATCH {
            let packet = next(&mut random, &seeds);
            counts.sent(&packet);
            socket.send(&packet).await.unwrap();
        }
        counts.sent(&mark);
        socket.send(&mark).await.unwrap();
        loop {
            let reply = receive(&socket).await;
            counts.received(&reply);
            if id(&reply) == MARK {
                break;
            }
        }
        if batch == total / BATCH / 4 {
            warm = resident();
        }
    }
    let grown = resident().saturating_sub(warm);
    let fake = u64::try_from(world.received().len()).unwrap() * 512;
    assert!(
        grown < (16 << 20) + fake,
        "seed {seed}: {grown} bytes more than after a quarter"
    );
    let replies: u32 = counts.0.values().map(|(_, received)| received).sum();
    assert!(replies > total / 4, "seed {seed}: {replies} replies");
}

/// A UDP datagram in an IPv4 packet, from port 0.
fn from_port_zero(to: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(28 + payload.len()).unwrap();
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1, 0, 0]);
    packet.extend(to.to_be_bytes());
    packet.extend((length - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

/// P15. Needs a raw socket, hence root; without it the test says so.
#[tokio::test]
async fn nothing_is_said_to_port_zero() {
    let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255)));
    let Ok(raw) = raw else {
        eprintln!("NOT RUN: port 0 as a source needs a raw socket (CAP_NET_RAW)");
        return;
    };
    raw.set_nonblocking(true).unwrap();
    let listener = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let heard = UdpSocket::from_std(std::net::UdpSocket::from(listener)).unwrap();
    let world = World::silent().await;
    let port = world.address.port();
    let to = SockAddr::from(std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    raw.send_to(
        &from_port_zero(port, &with_id(&query("localhost", RecordType::A), 0xdead)),
        &to,
    )
    .unwrap();
    // One that is answered comes behind it, so that silence is known without waiting.
    let socket = world.client(POD).await;
    socket
        .send(&with_id(&query("localhost", RecordType::A), 0xbeef))
        .await
        .unwrap();
    receive(&socket).await;
    let mut seen = Vec::new();
    let mut buffer = [0; 2048];
    while let Ok(length) = heard.try_recv(&mut buffer) {
        let udp = &buffer[20..length];
        if u16::from_be_bytes([udp[0], udp[1]]) == port
            || u16::from_be_bytes([udp[2], udp[3]]) == port
        {
            seen.push((id(&udp[8..]), udp[10] & 0x80 != 0));
        }
    }
    assert!(
        seen.contains(&(0xdead, false)),
        "the forged query was on the wire"
    );
    assert!(
        !seen.contains(&(0xdead, true)),
        "and was answered: {seen:x?}"
    );
    assert!(seen.contains(&(0xbeef, true)));
}
