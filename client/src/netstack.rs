//! The laptop's end of the data plane: IP packets of the session's link become flows.
//!
//! A user-space TCP/IP (smoltcp) answers for every address of the cluster. A connection is
//! answered only when its far end was dialled, with what the far end said. Which addresses lead
//! into the link is `routes`' business, how flows cross the tunnel the opener's.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::task::Essential;
use driver::Driver;
pub use drops::{Drops, Reason};
use flow::Wakes;
use gate::Gate;
pub use io::PacketIo;
use opener::Opener;
use outbox::Outbox;
use reachable::Reachable;
use table::Table;

mod cut;
mod driver;
mod drops;
mod flow;
mod fragments;
mod gate;
mod inbound;
mod io;
pub mod opener;
mod outbox;
mod packet;
pub mod reachable;
mod replies;
mod stream;
mod table;

/// How long the end may take: resets are written at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the terminator works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The link's MTU.
    pub mtu: usize,
    /// How many flows the laptop may have at once.
    pub flows: usize,
}

/// The running terminator.
#[derive(Debug)]
pub struct Netstack<Io> {
    task: Essential,
    devices: mpsc::Sender<Io>,
    drops: Arc<Drops>,
}

impl<Io: PacketIo> Netstack<Io> {
    /// Starts terminating the flows of a device.
    #[must_use]
    pub fn start(
        io: Io,
        settings: Settings,
        opener: Arc<dyn Opener>,
        reachable: watch::Receiver<Arc<Reachable>>,
    ) -> Self {
        let (devices, replaced) = mpsc::channel(1);
        let drops = Arc::new(Drops::default());
        let driver = Driver {
            settings,
            io: Some(io),
            devices: replaced,
            opener,
            reachable,
            drops: Arc::clone(&drops),
            wakes: Arc::new(Wakes::new()),
            gate: Gate::default(),
            table: Table::default(),
            outbox: Outbox::default(),
            tasks: JoinSet::new(),
            blocked: Vec::new(),
        };
        let shutdown = CancellationToken::new();
        let running = driver.run(shutdown.clone());
        let task = tokio::spawn(running.instrument(tracing::info_span!("netstack")));
        Self {
            task: Essential::new("netstack", shutdown, task),
            devices,
            drops,
        }
    }

    /// Goes on with another device in the place of one that is gone.
    pub async fn replace(&self, io: Io) {
        // A terminator that has ended is noticed by whoever waits for its end.
        let _ = self.devices.send(io).await;
    }

    /// Returns the counters of dropped packets.
    #[must_use]
    pub fn drops(&self) -> &Arc<Drops> {
        &self.drops
    }

    /// Waits until the terminator ends by itself, which it should not.
    pub async fn ended(&mut self) {
        self.task.ended().await;
    }

    /// Resets all flows and closes the device.
    pub async fn stop(self) {
        self.task.stop(PATIENCE).await;
    }
}
