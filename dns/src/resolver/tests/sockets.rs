//! The engine between the real servers and the real transport, on loopback sockets and several threads.

use std::net::SocketAddr;

use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;

use super::*;
use crate::server::{Handler, Limits, Transport, serve};
use crate::test_util::LoopbackServer;
use crate::upstream::{Do53, PortPolicy};

struct Engaged {
    resolver: Arc<Resolver>,
    view: Arc<View>,
}

impl Handler for Engaged {
    async fn handle(&self, packet: Vec<u8>, peer: SocketAddr, _: Transport) -> Option<Vec<u8>> {
        let asker = Asker::at(peer, Arc::clone(&self.view));
        self.resolver.answer(&packet, &asker).await
    }
}

struct Served {
    address: SocketAddr,
    upstream: LoopbackServer,
    _stop: DropGuard,
    _serving: JoinHandle<std::io::Result<()>>,
}

async fn served(answer: Answer) -> Served {
    let upstream = LoopbackServer::saying(answer).await;
    let transport: Arc<dyn Upstream> = Arc::new(Do53::new(upstream.address(), PortPolicy::Pooled));
    let resolver = Resolver::new(
        ResolverConfig::new(vec![transport]),
        Arc::new(Table::default()),
    );
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let udp = UdpSocket::bind(address).await.unwrap();
    let stop = CancellationToken::new();
    let handler = Arc::new(Engaged {
        resolver,
        view: pod(),
    });
    let serving = tokio::spawn(serve(
        vec![udp],
        vec![tcp],
        handler,
        Limits::default(),
        stop.clone(),
    ));
    Served {
        address,
        upstream,
        _stop: stop.drop_guard(),
        _serving: serving,
    }
}

impl Served {
    async fn over_udp(&self, packet: &[u8]) -> Vec<u8> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(packet, self.address).await.unwrap();
        let mut reply = vec![0; 65_535];
        let waiting = tokio::time::timeout(Duration::from_secs(20), socket.recv(&mut reply));
        let length = waiting.await.expect("a reply in time").unwrap();
        reply.truncate(length);
        reply
    }

    async fn over_tcp(&self, packet: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream
            .write_u16(u16::try_from(packet.len()).unwrap())
            .await
            .unwrap();
        stream.write_all(packet).await.unwrap();
        let mut reply = vec![0; stream.read_u16().await.unwrap().into()];
        stream.read_exact(&mut reply).await.unwrap();
        reply
    }
}

fn endpoints() -> Answer {
    let records: Vec<Record> = (0..90)
        .map(|last| Record::address(SERVICE, v4(last)))
        .collect();
    Answer::records(records)
}

#[tokio::test]
async fn a_large_answer_is_whole_over_tcp_and_cut_to_the_askers_size_over_udp() {
    let served = served(endpoints()).await;
    let edns = encode_query(1, &name(SERVICE), RecordType::A, QueryOptions::default());
    let plain = QueryOptions {
        edns: false,
        ..QueryOptions::default()
    };
    let plain = encode_query(2, &name(SERVICE), RecordType::A, plain);
    for (packet, limit) in [(&edns, 1232), (&plain, 512)] {
        let whole = answers(&served.over_tcp(packet).await).unwrap();
        assert_eq!((whole.answers.len(), whole.flags.truncated), (90, false));
        let wire = served.over_udp(packet).await;
        let cut = answers(&wire).unwrap();
        assert!(wire.len() <= limit && cut.flags.truncated);
        assert_eq!(cut.edns, whole.edns);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_askers_at_once_are_all_answered() {
    let served = Arc::new(served(Answer::address(SERVICE, v4(1)).after(ms(2))).await);
    let ask = |index: u16| {
        let served = Arc::clone(&served);
        async move {
            let packet = encode_query(
                index,
                &name(SERVICE),
                RecordType::A,
                QueryOptions::default(),
            );
            let reply = answers(&served.over_udp(&packet).await).unwrap();
            assert_eq!((reply.id, reply.code), (index, ResponseCode::NOERROR));
        }
    };
    join_all((0..200).map(|index| tokio::spawn(ask(index))))
        .await
        .into_iter()
        .for_each(Result::unwrap);
    assert_eq!(served.upstream.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_that_ask_purge_and_leave_never_strand_anyone() {
    let world = Arc::new(World::new([upstream().with(
        SERVICE,
        RecordType::A,
        Answer::records([Record::address(SERVICE, v4(1)).ttl(0)]).after(ms(1)),
    )]));
    let ask = |index: u64| {
        let world = Arc::clone(&world);
        async move {
            for round in 0..50 {
                let asked = if index.is_multiple_of(2) {
                    "authors"
                } else {
                    SERVICE
                };
                let patience = Duration::from_micros(200 * ((index + round) % 40));
                let _ = tokio::time::timeout(patience, world.ask(asked, RecordType::A)).await;
                if round % 10 == index % 10 {
                    world.resolver.purge(&name(SERVICE));
                }
            }
            let last =
                tokio::time::timeout(Duration::from_secs(20), world.ask(SERVICE, RecordType::A))
                    .await;
            assert_eq!(last.expect("an answer").code, ResponseCode::NOERROR);
        }
    };
    join_all((0..40).map(|index| tokio::spawn(ask(index))))
        .await
        .into_iter()
        .for_each(Result::unwrap);
}
