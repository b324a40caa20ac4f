//! What the terminator counts, for `status`: written by its task, read by whoever asks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use super::drops::{Drops, Reason};

/// How the packets of a session's link do.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct PacketsStatus {
    /// Flows there are, those being opened too.
    pub flows: usize,
    /// Connections that wait for what the far end says.
    pub half_open: usize,
    /// Packets dropped, by each reason there is.
    pub dropped: BTreeMap<String, u64>,
}

/// The numbers.
#[derive(Debug, Default)]
struct Numbers {
    drops: Arc<Drops>,
    flows: AtomicUsize,
    half_open: AtomicUsize,
}

/// Reads and writes the numbers; a clone is the same numbers.
#[derive(Clone, Debug, Default)]
pub struct Counts(Arc<Numbers>);

impl Counts {
    /// The counters of dropped packets.
    pub(super) fn drops(&self) -> &Arc<Drops> {
        &self.0.drops
    }

    /// Notes how many flows there are, and how many connections among them are being opened.
    pub(super) fn note(&self, flows: usize, half_open: usize) {
        self.0.flows.store(flows, Ordering::Relaxed);
        self.0.half_open.store(half_open, Ordering::Relaxed);
    }

    /// Says how it is now.
    #[must_use]
    pub fn status(&self) -> PacketsStatus {
        let of = |reason: Reason| (reason.word().to_owned(), self.0.drops.of(reason));
        PacketsStatus {
            flows: self.0.flows.load(Ordering::Relaxed),
            half_open: self.0.half_open.load(Ordering::Relaxed),
            dropped: Reason::ALL.map(of).into(),
        }
    }
}
