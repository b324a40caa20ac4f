//! The laptop's end of the data plane: IP packets of the session's link become flows.
//!
//! A user-space TCP/IP (smoltcp) answers for every address of the cluster. A connection is
//! answered only when its far end was dialled, with what the far end said. Which addresses lead
//! into the link is `routes`' business, how flows cross the tunnel the opener's.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kubebridge_dns::server::{Answering, Handler, Limits};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::flows::Opener;
use crate::reachable::Reachable;
use crate::task::Essential;
use datagrams::Datagrams;
use driver::Driver;
use drops::{Drops, Reason};
use flow::Wakes;
use fragments::Fragments;
use gate::Gate;
pub use io::PacketIo;
use outbox::Outbox;
use table::Table;

mod cut;
mod datagrams;
mod dns;
mod driver;
mod drops;
mod flow;
mod fragments;
mod gate;
mod inbound;
mod io;
mod outbound;
mod outbox;
mod packet;
mod replies;
mod stream;
mod table;
#[cfg(test)]
pub(crate) mod test_util;

/// How long the end may take: resets are written at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many datagrams of far ends wait for the driver: a burst; then they are dropped.
const ARRIVALS: usize = 256;

/// What the terminator works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The link's MTU.
    pub mtu: usize,
    /// The address of the session's resolver.
    pub resolver: IpAddr,
    /// How many flows the laptop may have at once.
    pub flows: usize,
}

/// The running terminator.
#[derive(Debug)]
pub struct Netstack<Io> {
    task: Essential,
    devices: mpsc::Sender<Io>,
    returned: oneshot::Receiver<Io>,
    drops: Arc<Drops>,
    open: Arc<AtomicUsize>,
}

/// What the terminator has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// How many flows there are, those being opened too.
    pub flows: usize,
    /// How many packets were dropped for each reason there was, by its word.
    pub drops: Vec<(&'static str, u64)>,
}

impl<Io: PacketIo> Netstack<Io> {
    /// Starts terminating the flows of a device.
    #[must_use]
    pub fn start<H: Handler>(
        io: Io,
        settings: Settings,
        opener: Arc<dyn Opener>,
        reachable: watch::Receiver<Arc<Reachable>>,
        dns: Arc<H>,
    ) -> Self {
        let (devices, replaced) = mpsc::channel(1);
        let (returned, returning) = oneshot::channel();
        let (arrivals, arriving) = mpsc::channel(ARRIVALS);
        let drops = Arc::new(Drops::default());
        let open = Arc::new(AtomicUsize::new(0));
        let driver = Driver {
            settings,
            io: Some(io),
            devices: replaced,
            returned,
            opener,
            dns: Arc::new(Answering::new(dns, Limits::default())),
            reachable,
            drops: Arc::clone(&drops),
            open: Arc::clone(&open),
            wakes: Arc::new(Wakes::new()),
            fragments: Fragments::default(),
            gate: Gate::default(),
            table: Table::default(),
            datagrams: Datagrams::default(),
            arriving,
            arrivals,
            outbox: Outbox::default(),
            tasks: JoinSet::new(),
            blocked: Vec::new(),
            last_id: rand::random(),
        };
        let shutdown = CancellationToken::new();
        let running = driver.run(shutdown.clone());
        let task = tokio::spawn(running.instrument(tracing::info_span!("netstack")));
        Self {
            task: Essential::new("netstack", shutdown, task),
            devices,
            returned: returning,
            drops,
            open,
        }
    }

    /// Goes on with another device in the place of one that is gone.
    pub async fn replace(&self, io: Io) {
        // A terminator that has ended is noticed by whoever waits for its end.
        let _ = self.devices.send(io).await;
    }

    /// Says how it is.
    #[must_use]
    pub fn status(&self) -> Status {
        let counted = Reason::ALL.map(|reason| (reason.word(), self.drops.of(reason)));
        Status {
            flows: self.open.load(Ordering::Relaxed),
            drops: counted
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }

    /// Waits until the terminator ends by itself, which it should not.
    pub async fn ended(&mut self) {
        self.task.ended().await;
    }

    /// Resets all flows, and gives back the device, whose closing removes the link.
    pub async fn stop(self) -> Option<Io> {
        self.task.stop(PATIENCE).await;
        for (reason, packets) in counted(&self.drops) {
            tracing::info!(reason, packets, "packets dropped");
        }
        self.returned.await.ok()
    }
}

/// The counters that have counted, by the words of their reasons.
fn counted(drops: &Drops) -> Vec<(&'static str, u64)> {
    let all = Reason::ALL.into_iter();
    let all = all.map(|reason| (reason.word(), drops.of(reason)));
    all.filter(|(_, packets)| *packets > 0).collect()
}

#[cfg(test)]
mod tests;
