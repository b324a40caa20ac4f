//! The laptop's end of the data plane: IP packets of the session's link become flows.
//!
//! A user-space TCP/IP (smoltcp) answers for every address of the cluster. A connection is
//! answered only when its far end was dialled, with what the far end said. Which addresses lead
//! into the link is `routes`' business, how flows cross the tunnel the opener's.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kubebridge_dns::server::{Answering, Handler, Limits};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::flows::Opener;
use crate::reachable::Reachable;
use crate::task::Essential;
pub use counts::{Counts, PacketsStatus};
use datagrams::Datagrams;
use driver::Driver;
use flow::Wakes;
use fragments::Fragments;
use gate::Gate;
pub use io::PacketIo;
use outbox::Outbox;
use table::Table;

mod counts;
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
mod machine;
mod outbound;
mod outbox;
mod packet;
mod replies;
mod spare;
mod stream;
mod table;
#[cfg(test)]
pub(crate) mod test_util;
mod wire;

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
    counts: Counts,
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
        let counts = Counts::default();
        let driver = Driver {
            settings,
            io: Some(io),
            devices: replaced,
            returned,
            opener,
            dns: Arc::new(Answering::new(dns, Limits::default())),
            reachable,
            drops: Arc::clone(counts.drops()),
            counts: counts.clone(),
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
            counts,
        }
    }

    /// Goes on with another device in the place of one that is gone.
    pub async fn replace(&self, io: Io) {
        // A terminator that has ended is noticed by whoever waits for its end.
        let _ = self.devices.send(io).await;
    }

    /// What says how it is, for as long as somebody asks.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Waits until the terminator ends by itself, which it should not.
    pub async fn ended(&mut self) {
        self.task.ended().await;
    }

    /// Resets all flows, and gives back the device, whose closing removes the link.
    pub async fn stop(self) -> Option<Io> {
        self.task.stop(PATIENCE).await;
        let dropped = self.counts.status().dropped.into_iter();
        for (reason, packets) in dropped.filter(|(_, packets)| *packets > 0) {
            tracing::info!(reason, packets, "packets dropped");
        }
        self.returned.await.ok()
    }
}

#[cfg(test)]
mod tests;
