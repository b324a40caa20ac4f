//! The engine between real sockets, and clients that ask it over UDP and TCP.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kubebridge_dns::name::{Name, RecordType};
use kubebridge_dns::records::{Local, LocalRecords, NoLocalRecords};
use kubebridge_dns::resolver::{Asker, Resolver, ResolverConfig};
use kubebridge_dns::server::{Handler, Limits, Transport, serve};
use kubebridge_dns::test_util::{Answer, LoopbackServer, Received, name};
use kubebridge_dns::upstream::{Do53, PortPolicy, Upstream};
use kubebridge_dns::view::{BarePolicy, PlainView, View};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use crate::packet::{id, query, with_id};

/// The address clients ask from unless a test says otherwise.
pub(crate) const POD: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Clients here ask in sessions, whose namespaces are `default` and `shop`.
pub(crate) const LAPTOP: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
pub(crate) const SHOP_LAPTOP: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// Longer than any deadline of the engine: who waits this long waits for ever.
const PATIENCE: Duration = Duration::from_secs(20);

/// Our own records, as a table; what is not in it is not ours.
#[derive(Debug, Default)]
pub(crate) struct Table(BTreeMap<(Name, RecordType), Local>);

impl Table {
    pub(crate) fn with(mut self, owner: &str, rtype: RecordType, verdict: Local) -> Self {
        self.0.insert((name(owner), rtype), verdict);
        self
    }
}

impl LocalRecords for Table {
    fn lookup(&self, name: &Name, rtype: RecordType) -> Local {
        let found = self.0.get(&(name.clone(), rtype)).cloned();
        found.unwrap_or(Local::NotMine)
    }
}

/// Everything between a client and the upstreams.
pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) upstreams: Vec<LoopbackServer>,
    pub(crate) resolver: Arc<Resolver>,
    _stop: DropGuard,
    _serving: AbortOnDropHandle<std::io::Result<()>>,
}

/// What a world is made of.
pub(crate) struct Plan {
    pub(crate) upstreams: Vec<LoopbackServer>,
    pub(crate) local: Table,
    pub(crate) ports: PortPolicy,
    pub(crate) limits: Limits,
    pub(crate) cache_entries: usize,
}

struct Engaged {
    resolver: Arc<Resolver>,
    pod: Arc<View>,
    sessions: BTreeMap<IpAddr, Arc<View>>,
}

impl Handler for Engaged {
    async fn handle(&self, packet: Vec<u8>, peer: SocketAddr, _: Transport) -> Option<Vec<u8>> {
        let view = self.sessions.get(&peer.ip()).unwrap_or(&self.pod);
        let asker = Asker::at(peer, Arc::clone(view));
        self.resolver.answer(&packet, &asker).await
    }

    fn at_hand(&self, packet: &[u8], peer: SocketAddr, reply: &mut Vec<u8>) -> bool {
        let view = self.sessions.get(&peer.ip()).unwrap_or(&self.pod);
        self.resolver.answer_at_hand(packet, view, reply)
    }
}

/// The view of a pod in `default`, with a zone that is never expanded.
pub(crate) fn pod_view() -> View {
    let search = [
        "default.svc.cluster.local",
        "svc.cluster.local",
        "cluster.local",
    ];
    View::plain(PlainView {
        search: search.map(name).to_vec(),
        ndots: None,
        cluster_domain: None,
        absolute_zones: vec![name("example.org")],
        bare: BarePolicy::LastToUpstreams,
    })
}

impl Plan {
    pub(crate) fn of(upstreams: Vec<LoopbackServer>) -> Self {
        Self {
            upstreams,
            local: Table::default(),
            ports: PortPolicy::Pooled,
            limits: Limits::default(),
            cache_entries: 50_000,
        }
    }

    pub(crate) async fn start(self) -> World {
        let transport = |server: &LoopbackServer| -> Arc<dyn Upstream> {
            Arc::new(Do53::new(server.address(), self.ports))
        };
        let mut config = ResolverConfig::new(self.upstreams.iter().map(transport).collect());
        config.cache_entries = self.cache_entries;
        let resolver = Resolver::new(config, Arc::new(self.local));
        let pod = pod_view();
        let session = |namespace: &str, id| {
            let domains = [name("example.org")];
            let view = pod.session(&[namespace.to_owned()], &domains, id);
            Arc::new(view.unwrap())
        };
        let handler = Engaged {
            resolver: Arc::clone(&resolver),
            sessions: BTreeMap::from([
                (LAPTOP.into(), session("default", 2)),
                (SHOP_LAPTOP.into(), session("shop", 3)),
            ]),
            pod: Arc::new(pod),
        };
        let upstreams = self.upstreams;
        World::around(Arc::new(handler), resolver, upstreams, self.limits).await
    }

    /// Starts the servers with another handler than the engine alone.
    pub(crate) async fn start_with<H: Handler>(self, handler: Arc<H>) -> World {
        let unused = Resolver::new(ResolverConfig::new(vec![]), Arc::new(NoLocalRecords));
        World::around(handler, unused, self.upstreams, self.limits).await
    }
}

impl World {
    async fn around<H: Handler>(
        handler: Arc<H>,
        resolver: Arc<Resolver>,
        upstreams: Vec<LoopbackServer>,
        limits: Limits,
    ) -> Self {
        let (udp, tcp) = sockets().await;
        let address = SocketAddr::from((POD, udp.local_addr().unwrap().port()));
        let stop = CancellationToken::new();
        let serving = serve(vec![udp], vec![tcp], handler, limits, stop.clone());
        Self {
            address,
            upstreams,
            resolver,
            _stop: stop.drop_guard(),
            _serving: AbortOnDropHandle::new(tokio::spawn(serving)),
        }
    }
}

/// Binds both transports to one port of every loopback address.
async fn sockets() -> (UdpSocket, TcpListener) {
    loop {
        let tcp = TcpListener::bind("0.0.0.0:0").await.unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
            return (udp, tcp);
        }
    }
}

impl World {
    /// Has one upstream that says the same to everything.
    pub(crate) async fn saying(answer: Answer) -> Self {
        Plan::of(vec![LoopbackServer::saying(answer).await])
            .start()
            .await
    }

    /// Has one upstream that answers by name (in lower case) and type; everything else does not exist.
    pub(crate) async fn scripted(script: Script) -> Self {
        Plan::of(vec![server(script).await]).start().await
    }

    /// Has one upstream that never says anything.
    pub(crate) async fn silent() -> Self {
        Self::saying(Answer::silence()).await
    }

    /// The queries the first upstream got, without the probes over TCP that a slow machine brings about.
    pub(crate) fn received(&self) -> Vec<Received> {
        let mut received = self.upstreams[0].received();
        let is_probe =
            |query: &Received| query.transport == Transport::Tcp && query.message[12] == 0;
        received.retain(|query| !is_probe(query));
        received
    }

    /// The names the first upstream was asked.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.received().iter().map(asked_name).collect()
    }

    pub(crate) async fn client(&self, from: Ipv4Addr) -> UdpSocket {
        let socket = UdpSocket::bind((from, 0)).await.unwrap();
        socket.connect(self.address).await.unwrap();
        socket
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    pub(crate) async fn connect_from(&self, from: Ipv4Addr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    pub(crate) async fn ask_from(&self, from: Ipv4Addr, how: Transport, packet: &[u8]) -> Vec<u8> {
        match how {
            Transport::Udp => {
                let socket = self.client(from).await;
                socket.send(packet).await.unwrap();
                receive(&socket).await
            }
            Transport::Tcp => {
                let mut stream = self.connect_from(from).await;
                send_frame(&mut stream, packet).await;
                receive_frame(&mut stream).await.expect("a reply")
            }
        }
    }

    pub(crate) async fn ask(&self, how: Transport, packet: &[u8]) -> Vec<u8> {
        self.ask_from(POD, how, packet).await
    }

    pub(crate) async fn udp(&self, packet: &[u8]) -> Vec<u8> {
        self.ask(Transport::Udp, packet).await
    }

    pub(crate) async fn tcp(&self, packet: &[u8]) -> Vec<u8> {
        self.ask(Transport::Tcp, packet).await
    }

    /// Checks that packets get no reply: only the questions sent after them are answered.
    pub(crate) async fn says_nothing_to(&self, packets: &[Vec<u8>]) {
        let known = query("localhost", RecordType::A);
        let socket = self.client(POD).await;
        for packet in packets {
            socket.send(packet).await.unwrap();
        }
        for number in 1..=8 {
            socket
                .send(&with_id(&known, 0x7700 + number))
                .await
                .unwrap();
        }
        let mut stream = self.connect().await;
        for packet in packets.iter().filter(|packet| packet.len() >= 12) {
            send_frame(&mut stream, packet).await;
        }
        send_frame(&mut stream, &with_id(&known, 0x7701)).await;
        for _ in 0..8 {
            assert_eq!(id(&receive(&socket).await) & 0xff00, 0x7700);
        }
        assert_eq!(id(&receive_frame(&mut stream).await.unwrap()), 0x7701);
        assert!(socket.try_recv(&mut [0; 512]).is_err());
    }
}

/// The ways a client can ask, and where the answer comes from.
pub(crate) const TRANSPORTS: [Transport; 2] = [Transport::Udp, Transport::Tcp];

/// Asks a question every way: cold over each transport in a world of its own, then twice more over both, from the cache if it was kept.
pub(crate) async fn everywhere<F: Future<Output = World>>(
    start: impl Fn() -> F,
    packet: &[u8],
    check: impl Fn(&str, &World, &[u8]),
) {
    for cold in TRANSPORTS {
        let world = start().await;
        let reply = world.ask(cold, packet).await;
        check(&format!("cold over {cold:?}"), &world, &reply);
        for warm in TRANSPORTS {
            let reply = world.ask(warm, packet).await;
            let what = format!("over {warm:?}, asked before over {cold:?}");
            check(&what, &world, &reply);
        }
    }
}

/// What an upstream says, by name in lower case and type.
pub(crate) type Script = Vec<(&'static str, RecordType, Answer)>;

/// Starts a server with a script; what is not in it does not exist.
pub(crate) async fn server(script: Script) -> LoopbackServer {
    LoopbackServer::start(move |received| {
        let (asked, rtype) = (asked_name(received).to_lowercase(), asked_type(received));
        let known = script
            .iter()
            .find(|(name, known_type, _)| *name == asked && *known_type == rtype);
        match known {
            Some((_, _, answer)) => answer.actions(received),
            None => Answer::nxdomain(".").actions(received),
        }
    })
    .await
}

/// The name of a query in lower case: its spelling is drawn at random.
pub(crate) fn asked_name(received: &Received) -> String {
    let question = crate::packet::question_of(&received.message);
    let name = Name::from_wire(&question[..question.len() - 4]).unwrap();
    name.to_lowercase().to_string()
}

pub(crate) fn asked_type(received: &Received) -> RecordType {
    let question = crate::packet::question_of(&received.message);
    let [.., high, low, _, _] = question else {
        unreachable!("a question ends in type and class")
    };
    RecordType(u16::from_be_bytes([*high, *low]))
}

/// Lets time pass for everything that looks at the clock.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

pub(crate) async fn pass_seconds(seconds: u64) {
    pass(Duration::from_secs(seconds)).await;
}

pub(crate) async fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut reply = vec![0; 65_535];
    let received = timeout(PATIENCE, socket.recv(&mut reply)).await;
    let length = received.expect("a reply in time").unwrap();
    reply.truncate(length);
    reply
}

pub(crate) async fn send_frame(stream: &mut TcpStream, message: &[u8]) {
    let length = u16::try_from(message.len()).unwrap();
    let framed = [&length.to_be_bytes()[..], message].concat();
    stream.write_all(&framed).await.unwrap();
}

/// Reads one message; `None` when the server has closed the connection.
pub(crate) async fn receive_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let receiving = async {
        let length = stream.read_u16().await.ok()?;
        let mut message = vec![0; length.into()];
        stream.read_exact(&mut message).await.ok()?;
        Some(message)
    };
    timeout(PATIENCE, receiving)
        .await
        .expect("the server acts in time")
}
