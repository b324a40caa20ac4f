//! Destinations that reset connections before they have said anything: what a service mesh does to
//! a client without a certificate, and an application that does not like its client.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// How many destinations are remembered: more than a person wonders about.
const MOST: usize = 64;

/// A destination that did so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbruptStatus {
    /// Where to.
    pub destination: SocketAddr,
    /// How often.
    pub count: u64,
    /// How long ago the last time was.
    pub ago_millis: u64,
}

/// Remembers them; the one that did it longest ago makes room.
#[derive(Debug, Default)]
pub(super) struct Abrupt(Mutex<BTreeMap<SocketAddr, (u64, Instant)>>);

impl Abrupt {
    /// Notes a connection that was reset so.
    pub(super) fn note(&self, destination: SocketAddr, now: Instant) {
        let mut known = self.0.lock();
        if known.len() >= MOST && !known.contains_key(&destination) {
            let oldest = known.iter().min_by_key(|(_, (_, last))| *last);
            if let Some(oldest) = oldest.map(|(destination, _)| *destination) {
                known.remove(&oldest);
            }
        }
        let (count, last) = known.entry(destination).or_insert((0, now));
        (*count, *last) = (*count + 1, now);
    }

    /// Tells of all.
    pub(super) fn status(&self, now: Instant) -> Vec<AbruptStatus> {
        let known = self.0.lock();
        let each = known.iter();
        each.map(|(destination, (count, last))| {
            let ago = now.saturating_duration_since(*last).as_millis();
            AbruptStatus {
                destination: *destination,
                count: *count,
                ago_millis: u64::try_from(ago).unwrap_or(u64::MAX),
            }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(port: u16) -> SocketAddr {
        ([10, 96, 0, 1], port).into()
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_destinations_are_remembered_and_no_more_than_there_is_room_for() {
        let abrupt = Abrupt::default();
        for port in 0..100 {
            abrupt.note(at(port), Instant::now());
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        abrupt.note(at(99), Instant::now());
        let told = abrupt.status(Instant::now());
        assert_eq!(told.len(), MOST);
        assert_eq!(told[0].destination, at(36));
        let last = AbruptStatus {
            destination: at(99),
            count: 2,
            ago_millis: 0,
        };
        assert_eq!(told.last(), Some(&last));
    }
}
