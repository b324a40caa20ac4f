//! The task that owns the device: packets in, flows polled, packets out.
//!
//! Each round takes up to a batch of packets, then polls the flows that have something to do, then
//! writes; so a batch is confirmed once. Whom a packet belongs to is decided in `inbound`.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use kubebridge_dns::server::{Answering, Handler};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet, yield_now};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::counts::Counts;
use super::datagrams::{Arrived, DatagramKey, Datagrams};
use super::drops::{Drops, Reason};
use super::flow::{Flow, Outcome, Wakes};
use super::fragments::Fragments;
use super::gate::Gate;
use super::io::PacketIo;
use super::outbox::Outbox;
use super::packet::FlowKey;
use super::table::Table;
use crate::flows::{BoxTcpFlow, Failure, Opener};
use crate::reachable::Reachable;

/// How many packets are taken before flows are polled: one round's worth of work stays short.
const BATCH: usize = 64;

/// How long the device may take to take the last packets: less than the end may take in all.
const LAST: Duration = Duration::from_millis(500);

/// The longest packet there is.
const LONGEST: usize = 65_535;

/// Everything the task owns.
pub(super) struct Driver<Io, H> {
    pub(super) settings: Settings,
    pub(super) io: Option<Io>,
    pub(super) devices: mpsc::Receiver<Io>,
    /// Who gets the device in the end.
    pub(super) returned: oneshot::Sender<Io>,
    pub(super) opener: Arc<dyn Opener>,
    pub(super) dns: Arc<Answering<H>>,
    pub(super) reachable: watch::Receiver<Arc<Reachable>>,
    pub(super) drops: Arc<Drops>,
    /// For `status`.
    pub(super) counts: Counts,
    pub(super) wakes: Arc<Wakes>,
    pub(super) fragments: Fragments,
    pub(super) gate: Gate,
    pub(super) table: Table,
    pub(super) datagrams: Datagrams,
    /// The datagrams of far ends, and who brings them.
    pub(super) arriving: mpsc::Receiver<Arrived>,
    pub(super) arrivals: mpsc::Sender<Arrived>,
    pub(super) outbox: Outbox,
    pub(super) tasks: JoinSet<Done>,
    /// Flows that found no room in the outbox.
    pub(super) blocked: Vec<Arc<Flow>>,
    /// The number of the last datagram that was sent.
    pub(super) last_id: u32,
}

/// What a task of a flow came to.
pub(super) enum Done {
    /// The far end was dialled.
    Opened(FlowKey, Result<BoxTcpFlow, Failure>),
    /// A flow was carried to its end.
    Carried,
    /// The resolver answered a datagram, or has nothing to say.
    Answered(FlowKey, Option<Vec<u8>>),
    /// A flow of datagrams is over.
    Silent(DatagramKey, u64, Option<Failure>),
}

/// What the driver woke up for.
enum Event<Io> {
    Packet(usize),
    DeviceFailed(std::io::Error),
    Done(Result<Done, JoinError>),
    Arrived(Arrived),
    Replaced(Io),
    /// Flows to poll, or room to write.
    Work,
    Shutdown,
}

impl<Io: PacketIo, H: Handler> Driver<Io, H> {
    /// Runs until shutdown, then resets what is open.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        let mut buffer = vec![0; LONGEST];
        loop {
            // Before any timer: what confirms a segment may have been waiting for us, not we for it.
            self.take_batch(&mut buffer).await;
            self.poll_flows();
            self.flush().await;
            self.counts.note(self.flows(), self.gate.len());
            match self.wait(&mut buffer, &shutdown).await {
                Event::Packet(length) => self.take_packet(&buffer[..length]),
                Event::DeviceFailed(error) => {
                    tracing::warn!(%error, "device lost");
                    self.io = None;
                }
                Event::Done(done) => self.take_done(done),
                Event::Arrived(arrived) => self.take_arrived(arrived),
                Event::Replaced(io) => self.io = Some(io),
                // Other flows that are ready have their turn first: then all is polled and written
                // in one round.
                Event::Work => yield_now().await,
                Event::Shutdown => break,
            }
        }
        self.end().await;
    }

    async fn wait(&mut self, buffer: &mut [u8], shutdown: &CancellationToken) -> Event<Io> {
        let Self {
            io,
            devices,
            outbox,
            drops,
            wakes,
            tasks,
            table,
            fragments,
            arriving,
            ..
        } = self;
        let deadline = [table.deadline(), fragments.deadline()];
        let deadline = deadline.into_iter().flatten().min();
        let has_room = !outbox.is_full();
        tokio::select! {
            () = shutdown.cancelled() => Event::Shutdown,
            event = device_event(io.as_mut(), outbox, drops, buffer) => event,
            () = wakes.notify.notified() => Event::Work,
            Some(done) = tasks.join_next() => Event::Done(done),
            Some(arrived) = arriving.recv(), if has_room => Event::Arrived(arrived),
            () = at(deadline) => Event::Work,
            Some(io) = devices.recv() => Event::Replaced(io),
        }
    }

    /// How many flows there are, those being opened too.
    pub(super) fn flows(&self) -> usize {
        self.table.len() + self.gate.len() + self.datagrams.len()
    }

    /// Takes the packets that are there.
    async fn take_batch(&mut self, buffer: &mut [u8]) {
        for _ in 0..BATCH {
            if self.outbox.is_full() {
                return;
            }
            let Some(io) = &mut self.io else { return };
            let next = poll_fn(|cx| Poll::Ready(io.poll_recv(cx, buffer))).await;
            // An error is met again when waiting.
            let Poll::Ready(Ok(length @ 1..)) = next else {
                return;
            };
            self.take_packet(&buffer[..length]);
        }
    }

    /// Polls the flows that were woken, whose time has come, or that had to wait for room.
    fn poll_flows(&mut self) {
        let now = Instant::now();
        let mut flows = std::mem::take(&mut self.blocked);
        flows.extend(self.wakes.take());
        for flow in flows {
            self.poll_flow(&flow, now);
        }
        while let Some(flow) = self.table.take_due(now) {
            self.poll_flow(&flow, now);
        }
        let expired = self.fragments.expire(now);
        if expired > 0 {
            self.drops.add(Reason::FragmentTimeout, expired);
        }
    }

    fn poll_flow(&mut self, flow: &Arc<Flow>, now: Instant) {
        match flow.poll(now, &mut self.outbox) {
            Outcome::Until(deadline) => self.table.schedule(flow, deadline),
            Outcome::Blocked => self.blocked.push(Arc::clone(flow)),
            Outcome::Over => self.table.remove(flow),
        }
    }

    /// Writes what the device takes now.
    async fn flush(&mut self) {
        let Self {
            io, outbox, drops, ..
        } = self;
        let Some(io) = io else { return };
        poll_fn(|cx| {
            let _: Poll<()> = poll_write(io, outbox, drops, cx);
            Poll::Ready(())
        })
        .await;
    }

    /// Polls flows and writes until all was said, as much at a time as there is room for.
    async fn write_all(&mut self) {
        loop {
            self.poll_flows();
            let Self {
                io, outbox, drops, ..
            } = self;
            let Some(io) = io else { return };
            poll_fn(|cx| poll_write(io, outbox, drops, cx)).await;
            if self.blocked.is_empty() {
                return;
            }
        }
    }

    fn take_arrived(&mut self, first: Arrived) {
        self.arrived(first);
        for _ in 1..BATCH {
            let Ok(next) = self.arriving.try_recv() else {
                return;
            };
            self.arrived(next);
        }
    }

    /// Resets all flows, so that no program waits for a tunnel that is gone.
    async fn end(mut self) {
        self.tasks.shutdown().await;
        for flow in self.table.drain() {
            flow.abort();
        }
        // A device that takes nothing any longer is not waited for.
        let _ = timeout(LAST, self.write_all()).await;
        if let Some(io) = self.io {
            // Where nobody waits for it, it is closed.
            let _ = self.returned.send(io);
        }
    }
}

/// Waits until the device has taken a packet, or has one for us while there is room for answers.
async fn device_event<Io: PacketIo>(
    io: Option<&mut Io>,
    outbox: &mut Outbox,
    drops: &Drops,
    buffer: &mut [u8],
) -> Event<Io> {
    let Some(io) = io else {
        return pending().await;
    };
    poll_fn(|cx| {
        if !outbox.is_empty() {
            let was_full = outbox.is_full();
            let _: Poll<()> = poll_write(io, outbox, drops, cx);
            if was_full && !outbox.is_full() {
                return Poll::Ready(Event::Work);
            }
        }
        if outbox.is_full() {
            return Poll::Pending;
        }
        io.poll_recv(cx, buffer).map(|received| match received {
            Ok(0) => Event::DeviceFailed(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => Event::Packet(length),
            Err(error) => Event::DeviceFailed(error),
        })
    })
    .await
}

/// Writes until all is written or the device takes no more.
fn poll_write<Io: PacketIo>(
    io: &mut Io,
    outbox: &mut Outbox,
    drops: &Drops,
    cx: &mut std::task::Context<'_>,
) -> Poll<()> {
    while let Some(packet) = outbox.first() {
        match io.poll_send(cx, packet) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "packet not taken by the device");
                drops.count(Reason::Device);
            }
        }
        outbox.remove_first();
    }
    Poll::Ready(())
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
