//! Managers in memory, and a way to them that breaks when told to.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use h2::RecvStream;
use h2::server::SendResponse;
use kubebridge_proto::flow::{
    Attached, Budget, Datagrams, Ended, Failure, FailureKind, FlowId, Local, Meter, Open, Protocol,
    Reattach, Side, accepted, carry, carry_datagrams, echo_session, http2, queue, refused,
};
use kubebridge_proto::session::SessionInfo;
use parking_lot::Mutex;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::control::way::{BoxIo, Place, Way};
use crate::flows::{Flows, MOST_CONNECTIONS, Opener};
use crate::test_util::session_info;

/// Where everything comes back as it went.
pub(super) const ECHO: u16 = 7;
/// Where nobody listens.
pub(super) const REFUSED: u16 = 9;
/// Where nothing answers.
pub(super) const SILENT: u16 = 11;

pub(super) fn to(port: u16) -> std::net::SocketAddr {
    ([10, 96, 0, 1], port).into()
}

/// One end of a pipe as the local end of a flow.
pub(super) struct Pipe(DuplexStream);

pub(super) fn pipe() -> (Pipe, DuplexStream) {
    let (one, other) = duplex(64 * 1024);
    (Pipe(one), other)
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, octets)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl Local for Pipe {
    fn abort(&mut self) {}
}

type Resume = (SendResponse<Bytes>, RecvStream, u64);

/// A manager that serves what [`ECHO`] and the others say.
#[derive(Default)]
pub(super) struct Manager {
    parked: Mutex<BTreeMap<FlowId, mpsc::Sender<Resume>>>,
    /// The sessions it knows; all when empty.
    pub(super) sessions: Mutex<Vec<String>>,
    /// How flows of it ended.
    pub(super) ended: Mutex<Vec<Ended>>,
    /// Sessions that asked, in order.
    pub(super) asked: Mutex<Vec<String>>,
    /// Has it take nothing new over the connections it has.
    pub(super) drain: CancellationToken,
    /// Connections that are open.
    open: AtomicUsize,
}

struct Parked {
    resumes: mpsc::Receiver<Resume>,
    next: Option<Resume>,
}

impl Reattach for Parked {
    async fn reattach(&mut self, received: u64) -> Option<(Attached, u64)> {
        let next = match self.next.take() {
            Some(next) => next,
            None => timeout(Duration::from_secs(30), self.resumes.recv())
                .await
                .ok()??,
        };
        let (mut respond, receive, peer) = next;
        let send = respond
            .send_response(accepted(Some(received)), false)
            .ok()?;
        Some((Attached { send, receive }, peer))
    }

    fn poll_replaced(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.next.is_none() {
            match ready!(self.resumes.poll_recv(context)) {
                Some(next) => self.next = Some(next),
                None => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }
}

impl Manager {
    pub(super) fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    async fn serve(self: Arc<Self>, stream: DuplexStream) {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.serve_to_its_end(stream).await;
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    async fn serve_to_its_end(self: &Arc<Self>, stream: DuplexStream) {
        let Ok(mut connection) = http2::server().handshake::<_, Bytes>(stream).await else {
            return;
        };
        let mut is_draining = false;
        loop {
            let next = tokio::select! {
                next = connection.accept() => next,
                () = self.drain.cancelled(), if !is_draining => {
                    is_draining = true;
                    connection.graceful_shutdown();
                    continue;
                }
            };
            let Some(Ok((request, respond))) = next else {
                return;
            };
            let open = Open::read(&request).unwrap();
            let session = echo_session(&request).map(str::to_owned);
            let receive = request.into_body();
            match open {
                None => {
                    let known = self.sessions.lock().clone();
                    let asked = session.filter(|_| !known.is_empty());
                    let answer = match asked.is_none_or(|asked| known.contains(&asked)) {
                        true => accepted(None),
                        false => refused(&Failure::from(FailureKind::Session)),
                    };
                    drop({ respond }.send_response(answer, true));
                }
                Some(open) => self.answer(open, respond, receive),
            }
        }
    }

    fn answer(self: &Arc<Self>, open: Open, mut respond: SendResponse<Bytes>, receive: RecvStream) {
        self.asked.lock().push(open.session.clone());
        let mut refuse = |kind: FailureKind| {
            let _ = respond.send_response(refused(&Failure::from(kind)), true);
        };
        let known = self.sessions.lock().clone();
        if !known.is_empty() && !known.contains(&open.session) {
            return refuse(FailureKind::Session);
        }
        if let Some(received) = open.resume {
            let parked = self.parked.lock().get(&open.flow).cloned();
            return match parked.filter(|parked| !parked.is_closed()) {
                Some(parked) => drop(parked.try_send((respond, receive, received))),
                None => refuse(FailureKind::Gone),
            };
        }
        match open.destination.port() {
            REFUSED if open.protocol == Protocol::Tcp => refuse(FailureKind::Refused),
            SILENT => {
                tokio::spawn(async move {
                    let _held = (respond, receive);
                    std::future::pending::<()>().await;
                });
            }
            _ => {
                let send = respond.send_response(accepted(None), false).unwrap();
                let stream = Attached { send, receive };
                tokio::spawn(Arc::clone(self).carry(open, stream));
            }
        }
    }

    async fn carry(self: Arc<Self>, open: Open, stream: Attached) {
        let ended = if open.protocol == Protocol::Tcp {
            let (near, far) = pipe();
            tokio::spawn(async move {
                let (mut read, mut write) = tokio::io::split(far);
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
            let (sender, resumes) = mpsc::channel(4);
            self.parked.lock().insert(open.flow, sender);
            let parked = Parked {
                resumes,
                next: None,
            };
            let memory = Budget::new(usize::MAX / 2);
            carry(
                Side::Answers,
                near,
                stream,
                parked,
                &memory,
                &Meter::default(),
            )
            .await
        } else {
            let idle = Duration::from_secs(60);
            let (input, output) = queue::channel();
            let socket = Mirror {
                refuses: open.destination.port() == REFUSED,
                input,
                output,
            };
            carry_datagrams(socket, stream, idle, &Meter::default()).await
        };
        self.ended.lock().push(ended);
    }
}

/// A socket whose peer sends everything back.
struct Mirror {
    refuses: bool,
    input: queue::Input,
    output: queue::Output,
}

impl Datagrams for Mirror {
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let datagram = ready!(self.output.poll_recv(context));
        if self.refuses {
            return Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into()));
        }
        Poll::Ready(Ok(datagram))
    }

    fn poll_send(&mut self, _: &mut Context<'_>, datagram: &[u8]) -> Poll<io::Result<()>> {
        let _ = self.input.send(Bytes::copy_from_slice(datagram));
        Poll::Ready(Ok(()))
    }
}

/// What the next connections will be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Good,
    /// Nothing ever comes.
    Silent,
    /// They cannot be opened.
    Refused,
}

/// A way to managers in memory.
pub(super) struct Wires {
    home: Mutex<Place>,
    pub(super) managers: Mutex<BTreeMap<Place, Arc<Manager>>>,
    /// Who take turns, where the way is to a balancer.
    behind: Mutex<Vec<Arc<Manager>>>,
    pub(super) mood: Mutex<Mood>,
    wires: Mutex<Vec<Wire>>,
    pub(super) opened: AtomicUsize,
}

struct Wire {
    copying: JoinHandle<()>,
    serving: JoinHandle<()>,
    silent: watch::Sender<bool>,
}

impl Wires {
    /// Cuts the connection that was opened as number so and so.
    pub(super) fn cut(&self, number: usize) {
        let wires = self.wires.lock();
        wires[number].copying.abort();
        wires[number].serving.abort();
    }

    /// Has a connection say nothing from now on.
    pub(super) fn silence(&self, number: usize) {
        self.wires.lock()[number].silent.send_replace(true);
    }

    /// Loses a connection, with or without a word.
    pub(super) fn lose(&self, number: usize, is_silent: bool) {
        if is_silent {
            self.silence(number);
        } else {
            self.cut(number);
        }
    }

    /// Has another manager serve from now on.
    pub(super) fn replace(&self, name: &str) -> Arc<Manager> {
        let place = Place::named(name);
        let manager = Arc::new(Manager::default());
        let mut managers = self.managers.lock();
        managers.insert(place.clone(), Arc::clone(&manager));
        *self.home.lock() = place;
        manager
    }

    /// Has the way lead to these in turn, who look like one.
    pub(super) fn balance(&self, managers: &[&Arc<Manager>]) {
        *self.behind.lock() = managers.iter().map(|one| Arc::clone(one)).collect();
        *self.home.lock() = Place::default();
    }

    pub(super) fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Wires {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Wires")
    }
}

impl fmt::Display for Wires {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("wires")
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    silent: watch::Receiver<bool>,
) {
    let mut octets = vec![0; 16 * 1024];
    while let Ok(count) = from.read(&mut octets).await {
        if *silent.borrow() {
            std::future::pending::<()>().await;
        }
        if count == 0 || to.write_all(&octets[..count]).await.is_err() {
            return;
        }
    }
}

impl Way for Wires {
    fn endpoints(&self) -> BoxFuture<'_, Vec<std::net::IpAddr>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn dial(&self) -> BoxFuture<'_, anyhow::Result<Channel>> {
        async { anyhow::bail!("there is no gRPC here") }.boxed()
    }

    fn place(&self) -> Place {
        self.home.lock().clone()
    }

    fn raw<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, anyhow::Result<BoxIo>> {
        async move {
            let number = self.opened.fetch_add(1, Ordering::Relaxed);
            let mood = *self.mood.lock();
            let manager = match &self.behind.lock()[..] {
                [] => self.managers.lock().get(place).cloned(),
                behind => Some(Arc::clone(&behind[number % behind.len()])),
            };
            let manager = manager.filter(|_| mood != Mood::Refused);
            let manager = manager.ok_or_else(|| anyhow::anyhow!("no such manager"))?;
            let (ours, near) = duplex(256 * 1024);
            let (far, theirs) = duplex(256 * 1024);
            let silent = watch::Sender::new(mood == Mood::Silent);
            let (one, other) = (tokio::io::split(near), tokio::io::split(far));
            let (up, down) = (silent.subscribe(), silent.subscribe());
            let copying = tokio::spawn(async move {
                tokio::select! {
                    () = copy(one.0, other.1, up) => {}
                    () = copy(other.0, one.1, down) => {}
                }
            });
            let serving = tokio::spawn(manager.serve(theirs));
            self.wires.lock().push(Wire {
                copying,
                serving,
                silent,
            });
            Ok(Box::new(ours) as BoxIo)
        }
        .boxed()
    }
}

/// A session's flows over such a way.
pub(super) struct World {
    pub(super) wires: Arc<Wires>,
    pub(super) manager: Arc<Manager>,
    pub(super) session: watch::Sender<SessionInfo>,
    pub(super) flows: Arc<Flows>,
}

impl World {
    pub(super) fn start() -> Self {
        let wires = Arc::new(Wires {
            home: Mutex::default(),
            managers: Mutex::default(),
            behind: Mutex::default(),
            mood: Mutex::new(Mood::Good),
            wires: Mutex::default(),
            opened: AtomicUsize::new(0),
        });
        let manager = wires.replace("first");
        let session = watch::Sender::new(session_info(&["10.96.0.0/16"]));
        let way: Arc<dyn Way> = Arc::clone(&wires) as _;
        let flows = Flows::start(way, session.subscribe(), MOST_CONNECTIONS);
        Self {
            wires,
            manager,
            session,
            flows,
        }
    }

    /// Opens a flow that sends everything back.
    pub(super) async fn echo(&self) -> Talk {
        let opening = timeout(Duration::from_secs(20), self.flows.open_tcp(to(ECHO)));
        let flow = opening.await.expect("a verdict comes").unwrap();
        let (local, stream) = pipe();
        let carrying = tokio::spawn(flow.carry(Box::new(local)));
        Talk {
            stream: Some(stream),
            carrying,
        }
    }

    /// Waits until there are so many connections.
    pub(super) async fn connections(&self, wanted: usize) {
        let mut ready = self.flows.shared.ready.subscribe();
        let waiting = ready.wait_for(|ready| ready.len() == wanted);
        let reached = timeout(Duration::from_secs(120), waiting).await;
        reached.expect("so many connections").unwrap();
    }
}

/// A flow that sends everything back.
pub(super) struct Talk {
    pub(super) stream: Option<DuplexStream>,
    pub(super) carrying: JoinHandle<Ended>,
}

impl Talk {
    /// Sends octets and waits for them.
    pub(super) async fn say(&mut self, octets: &[u8]) {
        let stream = self.stream.as_mut().unwrap();
        let (mut read, mut write) = tokio::io::split(stream);
        let mut back = vec![0; octets.len()];
        let both = async {
            tokio::try_join!(write.write_all(octets), read.read_exact(&mut back)).unwrap();
        };
        timeout(Duration::from_secs(60), both)
            .await
            .expect("it comes back");
        assert!(back == octets, "what came back is something else");
    }

    /// Ends it and waits for the end.
    pub(super) async fn end(mut self) -> Ended {
        let mut stream = self.stream.take().unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty());
        let ended = timeout(Duration::from_secs(60), self.carrying).await;
        ended.expect("the flow ends").unwrap()
    }
}
