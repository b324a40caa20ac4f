//! A DNS server on real loopback sockets, UDP and TCP on one port, that does what a closure says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::{Answer, Kind, loopback};
use crate::server::Transport;

/// A query as it came.
#[derive(Debug, Clone)]
pub struct Received {
    /// How it came.
    pub transport: Transport,
    /// Whence it came.
    pub peer: SocketAddr,
    /// How many queries came before it, over either transport.
    pub number: usize,
    /// The message.
    pub message: Vec<u8>,
}

/// What the server does with a query.
#[derive(Debug, Clone)]
pub enum Action {
    /// Sends a message to the asker.
    Send(Vec<u8>),
    /// Sends a message after a while; what follows is done meanwhile.
    SendAfter(Duration, Vec<u8>),
    /// Sends a message to the asker from another port; over TCP the same as `Send`.
    SendFromElsewhere(Vec<u8>),
    /// Closes the TCP connection; over UDP nothing.
    Close,
}

/// A running server. Dropping it closes its sockets.
#[derive(Debug)]
pub struct LoopbackServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

type Script = dyn Fn(&Received) -> Vec<Action> + Send + Sync;

struct Shared {
    script: Box<Script>,
    received: Mutex<Vec<Received>>,
    count: watch::Sender<usize>,
    closed: watch::Sender<usize>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl LoopbackServer {
    /// Starts a server that does with each query what the closure says.
    ///
    /// # Panics
    ///
    /// Panics when loopback sockets cannot be had.
    pub async fn start<F>(script: F) -> Self
    where
        F: Fn(&Received) -> Vec<Action> + Send + Sync + 'static,
    {
        let (udp, tcp) = sockets().await;
        let address = udp.local_addr().expect("a bound socket");
        let shared = Arc::new(Shared {
            script: Box::new(script),
            received: Mutex::default(),
            count: watch::Sender::new(0),
            closed: watch::Sender::new(0),
        });
        let task = run(udp, tcp, Arc::clone(&shared));
        Self {
            address,
            shared,
            _task: AbortOnDropHandle::new(tokio::spawn(task)),
        }
    }

    /// Starts a server that says the same to everything.
    pub async fn saying(answer: Answer) -> Self {
        Self::start(move |query| answer.actions(query)).await
    }

    /// Returns the address of both sockets.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the queries that came so far.
    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().clone()
    }

    /// Waits until this many queries have come.
    pub async fn receives(&self, queries: usize) {
        let mut count = self.shared.count.subscribe();
        let enough = count.wait_for(|count| *count >= queries).await;
        enough.map(drop).expect("the server holds the sender");
    }

    /// Waits until this many TCP connections have been closed by either side.
    pub async fn sees_closed(&self, connections: usize) {
        let mut closed = self.shared.closed.subscribe();
        let enough = closed.wait_for(|closed| *closed >= connections).await;
        enough.map(drop).expect("the server holds the sender");
    }
}

impl Answer {
    /// Returns what a server does to give this answer; the TC flag is for UDP only.
    pub fn actions(&self, query: &Received) -> Vec<Action> {
        let mut answer = self.clone();
        answer.truncated &= query.transport == Transport::Udp;
        match self.kind {
            Kind::Silence => Vec::new(),
            Kind::Failure => vec![Action::Close],
            Kind::Reply if self.delay.is_zero() => {
                vec![Action::Send(answer.reply_to(&query.message))]
            }
            Kind::Reply => {
                let reply = answer.reply_to(&query.message);
                vec![Action::SendAfter(self.delay, reply)]
            }
        }
    }
}

/// Binds UDP and TCP to one port that is free for both.
async fn sockets() -> (UdpSocket, TcpListener) {
    loop {
        let tcp = TcpListener::bind(loopback()).await.expect("a TCP port");
        let address = tcp.local_addr().expect("a bound socket");
        if let Ok(udp) = UdpSocket::bind(address).await {
            return (udp, tcp);
        }
    }
}

async fn run(udp: UdpSocket, tcp: TcpListener, shared: Arc<Shared>) {
    let udp = Arc::new(udp);
    let elsewhere = UdpSocket::bind(loopback()).await.expect("a UDP port");
    let elsewhere = Arc::new(elsewhere);
    let mut buffer = vec![0; 65_535];
    let mut tasks: JoinSet<()> = JoinSet::new();
    loop {
        tokio::select! {
            received = udp.recv_from(&mut buffer) => {
                // An error is an ICMP message about an earlier reply.
                let Ok((length, peer)) = received else { continue };
                let actions = shared.receive(Transport::Udp, peer, &buffer[..length]);
                let sender = Sender::Udp { same: Arc::clone(&udp), other: Arc::clone(&elsewhere), peer };
                perform(actions, &sender, &mut tasks).await;
            }
            accepted = tcp.accept() => {
                let (stream, peer) = accepted.expect("a TCP connection");
                tasks.spawn(connection(stream, peer, Arc::clone(&shared)).map(drop));
            }
        }
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>) -> Option<()> {
    let (mut input, output) = stream.into_split();
    let output = Arc::new(tokio::sync::Mutex::new(output));
    let mut tasks = JoinSet::new();
    let open = async {
        loop {
            let length = input.read_u16().await.ok()?;
            let mut message = vec![0; usize::from(length)];
            input.read_exact(&mut message).await.ok()?;
            let actions = shared.receive(Transport::Tcp, peer, &message);
            let sender = Sender::Tcp(Arc::clone(&output));
            if !perform(actions, &sender, &mut tasks).await {
                return Some(());
            }
        }
    };
    let ended = open.await;
    shared.closed.send_modify(|closed| *closed += 1);
    ended
}

impl Shared {
    fn receive(&self, transport: Transport, peer: SocketAddr, message: &[u8]) -> Vec<Action> {
        let mut received = self.received.lock();
        let query = Received {
            transport,
            peer,
            number: received.len(),
            message: message.to_vec(),
        };
        received.push(query.clone());
        drop(received);
        let actions = (self.script)(&query);
        self.count.send_modify(|count| *count += 1);
        actions
    }
}

#[derive(Debug, Clone)]
enum Sender {
    Udp {
        same: Arc<UdpSocket>,
        other: Arc<UdpSocket>,
        peer: SocketAddr,
    },
    Tcp(Arc<tokio::sync::Mutex<tokio::net::tcp::OwnedWriteHalf>>),
}

/// Does what the script says; tells whether the connection stays open.
async fn perform(actions: Vec<Action>, sender: &Sender, tasks: &mut JoinSet<()>) -> bool {
    for action in actions {
        match action {
            Action::Send(message) => sender.send(message, false).await,
            Action::SendFromElsewhere(message) => sender.send(message, true).await,
            Action::SendAfter(delay, message) => {
                let sender = sender.clone();
                tasks.spawn(async move {
                    sleep(delay).await;
                    sender.send(message, false).await;
                });
            }
            Action::Close => return false,
        }
    }
    true
}

impl Sender {
    /// Sends a message; an asker that is gone is no concern of the server's.
    fn send(&self, message: Vec<u8>, elsewhere: bool) -> BoxFuture<'_, ()> {
        async move {
            match self {
                Self::Udp { same, other, peer } => {
                    let socket = if elsewhere { other } else { same };
                    let _ = socket.send_to(&message, *peer).await;
                }
                Self::Tcp(output) => {
                    let framed = crate::framing::frame(&message).expect("a message below 64 KiB");
                    let _ = output.lock().await.write_all(&framed).await;
                }
            }
        }
        .boxed()
    }
}
