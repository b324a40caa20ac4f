//! A laptop, a manager and wires between them, all in memory on a paused clock.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use h2::server::SendResponse;
use parking_lot::Mutex;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::flow::{
    Attached, Budget, Ended, FlowId, Local, Meter, Open, Protocol, Reattach, Side, accepted, carry,
    http2, resumed_at, verdict,
};

/// How long a flow waits for another stream.
const RESUME: Duration = Duration::from_secs(30);
/// How long a silent wire goes unnoticed.
const UNHEARD: Duration = Duration::from_secs(8);
/// How long anything may take before a test gives up; the clock is paused.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A local end whose program has the other side of a pipe, and may reset it.
pub(super) struct Pipe {
    stream: DuplexStream,
    reset: Arc<Mutex<Reset>>,
}

#[derive(Default)]
struct Reset {
    by_program: bool,
    by_flow: bool,
    waiting: Vec<Waker>,
}

/// The program at a local end.
pub(super) struct Program {
    pub(super) stream: DuplexStream,
    reset: Arc<Mutex<Reset>>,
}

impl Program {
    /// Resets the connection.
    pub(super) fn reset(&self) {
        let mut reset = self.reset.lock();
        reset.by_program = true;
        reset.waiting.drain(..).for_each(Waker::wake);
    }

    /// Whether the connection was reset from the other side.
    pub(super) fn was_reset(&self) -> bool {
        self.reset.lock().by_flow
    }

    /// Writes octets, ends, and returns all that comes.
    pub(super) async fn exchange(self, octets: Vec<u8>, piece: usize) -> Vec<u8> {
        let (mut read, mut write) = tokio::io::split(self.stream);
        let writing = async {
            for piece in octets.chunks(piece) {
                if write.write_all(piece).await.is_err() {
                    return;
                }
            }
            let _ = write.shutdown().await;
        };
        let mut all = Vec::new();
        let (_, read) = tokio::join!(writing, read.read_to_end(&mut all));
        read.unwrap();
        all
    }
}

pub(super) fn pipe(size: usize) -> (Pipe, Program) {
    let (stream, other) = duplex(size);
    let reset = Arc::new(Mutex::new(Reset::default()));
    let program = Program {
        stream: other,
        reset: Arc::clone(&reset),
    };
    (Pipe { stream, reset }, program)
}

impl Pipe {
    fn check(&self, context: &Context<'_>) -> io::Result<()> {
        let mut reset = self.reset.lock();
        if reset.by_program {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        reset.waiting.push(context.waker().clone());
        Ok(())
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, octets)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Local for Pipe {
    fn abort(&mut self) {
        self.reset.lock().by_flow = true;
    }

    fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.check(context) {
            Ok(()) => Poll::Pending,
            Err(_) => Poll::Ready(()),
        }
    }
}

/// How a wire ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wire {
    /// After so many octets, of both directions together.
    pub(super) after: usize,
    /// It says nothing then; else both ends see it.
    pub(super) is_silent: bool,
}

impl Wire {
    pub(super) const WHOLE: Self = Self {
        after: usize::MAX,
        is_silent: false,
    };
}

/// Copies between two streams until the wire ends; a silent one stays, and tells.
async fn run_wire(
    mut one: DuplexStream,
    mut other: DuplexStream,
    wire: Wire,
    silent: oneshot::Sender<()>,
) {
    let mut left = wire.after;
    let (mut up, mut down) = ([0; 4096], [0; 4096]);
    while left > 0 {
        let most = left.min(4096);
        let copied = tokio::select! {
            read = one.read(&mut up[..most]) => {
                let count = read.unwrap_or(0);
                other.write_all(&up[..count]).await.map(|()| count)
            }
            read = other.read(&mut down[..most]) => {
                let count = read.unwrap_or(0);
                one.write_all(&down[..count]).await.map(|()| count)
            }
        };
        match copied {
            Ok(count) if count > 0 => left -= count,
            _ => return,
        }
    }
    if wire.is_silent {
        let _ = silent.send(());
        std::future::pending::<()>().await;
    }
}

type Resume = (SendResponse<Bytes>, RecvStream, u64);

/// The manager: one flow, and whoever wants to go on with it.
pub(super) struct Manager {
    flow: Mutex<Option<(Pipe, mpsc::Receiver<Resume>)>>,
    resumes: mpsc::Sender<Resume>,
    budget: Budget,
    ended: Mutex<Option<JoinHandle<Ended>>>,
}

struct Parked {
    resumes: mpsc::Receiver<Resume>,
    next: Option<Resume>,
}

impl Reattach for Parked {
    async fn reattach(&mut self, received: u64) -> Option<(Attached, u64)> {
        let next = match self.next.take() {
            Some(next) => next,
            None => timeout(RESUME, self.resumes.recv()).await.ok()??,
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
    async fn serve(self: Arc<Self>, stream: DuplexStream) {
        let Ok(mut connection) = http2::server().handshake::<_, Bytes>(stream).await else {
            return;
        };
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let open = Open::read(&request).unwrap().unwrap();
            let receive = request.into_body();
            if let Some(received) = open.resume {
                let _ = self.resumes.send((respond, receive, received)).await;
                continue;
            }
            let Some((local, resumes)) = self.flow.lock().take() else {
                continue;
            };
            let Ok(send) = respond.send_response(accepted(None), false) else {
                continue;
            };
            let budget = self.budget.clone();
            let parked = Parked {
                resumes,
                next: None,
            };
            let carrying = tokio::spawn(async move {
                let stream = Attached { send, receive };
                carry(
                    Side::Answers,
                    local,
                    stream,
                    parked,
                    &budget,
                    &Meter::default(),
                )
                .await
            });
            *self.ended.lock() = Some(carrying);
        }
    }
}

/// The laptop's way to the manager: one wire after the other.
pub(super) struct Laptop {
    manager: Arc<Manager>,
    wires: std::vec::IntoIter<Wire>,
    connection: Option<JoinHandle<()>>,
    serving: Option<JoinHandle<()>>,
    /// Whether the last wire said nothing at its end.
    is_silent: bool,
}

impl Laptop {
    async fn request(&mut self, resume: Option<u64>) -> Option<(Attached, Option<u64>)> {
        if let Some(connection) = self.connection.take() {
            connection.abort();
        }
        // A manager behind a silent wire is not told that it is dead.
        if let Some(serving) = self.serving.take().filter(|_| !self.is_silent) {
            serving.abort();
        }
        let wire = self.wires.next().unwrap_or(Wire::WHOLE);
        self.is_silent = wire.is_silent;
        let (ours, one) = duplex(64 * 1024);
        let (other, theirs) = duplex(64 * 1024);
        let (silence, silent) = oneshot::channel();
        tokio::spawn(run_wire(one, other, wire, silence));
        self.serving = Some(tokio::spawn(Arc::clone(&self.manager).serve(theirs)));
        let handshake = http2::client().handshake::<_, Bytes>(ours);
        let (requests, connection) = timeout(UNHEARD, handshake).await.ok()?.ok()?;
        self.connection = Some(tokio::spawn(async move {
            // Echoes would notice a silent wire.
            let noticed = async {
                match silent.await {
                    Ok(()) => sleep(UNHEARD).await,
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = connection => {}
                () = noticed => {}
            }
        }));
        let asking = self.ask(requests, resume);
        timeout(UNHEARD, asking).await.ok()?
    }

    async fn ask(
        &self,
        mut requests: SendRequest<Bytes>,
        resume: Option<u64>,
    ) -> Option<(Attached, Option<u64>)> {
        let request = open(resume).request().unwrap();
        let (response, send) = requests.send_request(request, false).ok()?;
        let response = response.await.ok()?;
        verdict(&response).unwrap();
        let received = resume.map(|_| resumed_at(&response).unwrap());
        let receive = response.into_body();
        Some((Attached { send, receive }, received))
    }
}

impl Reattach for Laptop {
    async fn reattach(&mut self, received: u64) -> Option<(Attached, u64)> {
        for _ in 0..50 {
            if let Some((stream, peer)) = self.request(Some(received)).await {
                return Some((stream, peer.unwrap()));
            }
        }
        None
    }
}

/// A flow between two programs.
pub(super) struct World {
    pub(super) laptop: Program,
    pub(super) service: Program,
    pub(super) laptop_memory: Budget,
    pub(super) manager_memory: Budget,
    pub(super) meter: Arc<Meter>,
    manager: Arc<Manager>,
    carrying: JoinHandle<Ended>,
}

impl World {
    /// Opens a flow over the first of these wires that holds for long enough.
    pub(super) async fn open(wires: Vec<Wire>, memory: usize, pipes: usize) -> Self {
        let (near, laptop) = pipe(pipes);
        let (far, service) = pipe(pipes);
        let (laptop_memory, manager_memory) = (Budget::new(memory), Budget::new(memory));
        let (sender, resumes) = mpsc::channel(4);
        let manager = Arc::new(Manager {
            flow: Mutex::new(Some((far, resumes))),
            resumes: sender,
            budget: manager_memory.clone(),
            ended: Mutex::default(),
        });
        let mut way = Laptop {
            manager: Arc::clone(&manager),
            wires: wires.into_iter(),
            connection: None,
            serving: None,
            is_silent: false,
        };
        let (stream, _) = way.request(None).await.unwrap();
        let (memory, meter) = (laptop_memory.clone(), Arc::new(Meter::default()));
        let metered = Arc::clone(&meter);
        let carrying =
            tokio::spawn(
                async move { carry(Side::Asks, near, stream, way, &memory, &metered).await },
            );
        Self {
            laptop,
            service,
            laptop_memory,
            manager_memory,
            meter,
            manager,
            carrying,
        }
    }

    /// Waits for both ends of the flow: the laptop's and the manager's.
    pub(super) async fn ended(carrying: Carrying) -> (Ended, Ended) {
        let both = async {
            let laptop = carrying.laptop.await.unwrap();
            let manager = carrying.manager.ended.lock().take().unwrap();
            (laptop, manager.await.unwrap())
        };
        timeout(PATIENCE, both).await.expect("the flow ends")
    }

    /// Takes the programs and what carries apart.
    pub(super) fn split(self) -> (Program, Program, Carrying) {
        let carrying = Carrying {
            laptop: self.carrying,
            manager: self.manager,
        };
        (self.laptop, self.service, carrying)
    }
}

/// What the laptop asks for.
pub(super) fn open(resume: Option<u64>) -> Open {
    Open {
        session: "session".to_owned(),
        flow: FlowId::new([7; 16]),
        protocol: Protocol::Tcp,
        destination: "10.96.0.1:80".parse().unwrap(),
        resume,
    }
}

/// The two tasks of a flow.
pub(super) struct Carrying {
    laptop: JoinHandle<Ended>,
    manager: Arc<Manager>,
}

/// Octets that are not like each other.
pub(super) fn octets(count: usize, seed: usize) -> Vec<u8> {
    (0..count)
        .map(|at| ((at + seed) * 31 % 251) as u8)
        .collect()
}
