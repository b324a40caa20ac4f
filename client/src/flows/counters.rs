//! What a session's flows have come to, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use kubebridge_proto::flow::{Ended, FailureKind, How};

use super::Failure;

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self) {
        self.add_many(1);
    }

    pub(super) fn add_many(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything that is counted.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) opened: Counter,
    /// Flows that went on over another connection.
    pub(super) resumed: Counter,
    /// Of these, moved though theirs was well.
    pub(super) moved: Counter,
    /// Flows that were reset because no other connection came in time.
    pub(super) lost: Counter,
    /// Flows that were reset by the laptop's program, and by the far end.
    pub(super) reset_here: Counter,
    pub(super) reset_there: Counter,
    /// Connections that were replaced.
    pub(super) replaced: Counter,
    /// Datagrams dropped where the way is slow.
    pub(super) dropped: Counter,
    pub(super) sent: Counter,
    pub(super) received: Counter,
    full: Counter,
    down: Counter,
    failed: [Counter; FailureKind::ALL.len()],
}

impl Counters {
    pub(super) fn note_failure(&self, failure: &Failure) {
        match failure {
            Failure::Manager(failure) => {
                let kinds = FailureKind::ALL.iter().zip(&self.failed);
                for (_, counter) in kinds.filter(|(kind, _)| **kind == failure.kind) {
                    counter.add();
                }
            }
            Failure::Full => self.full.add(),
            Failure::Down => self.down.add(),
        }
    }

    pub(super) fn note_end(&self, ended: &Ended) {
        self.sent.add_many(ended.sent);
        self.received.add_many(ended.received);
        match ended.how {
            How::LocalReset => self.reset_here.add(),
            How::PeerReset => self.reset_there.add(),
            How::Lost | How::Broken => self.lost.add(),
            How::Finished | How::Idle | How::Refused => {}
        }
    }

    /// Returns why flows were not opened, and how often; reasons that did not occur are left out.
    pub(super) fn failures(&self) -> Vec<(&'static str, u64)> {
        let of_manager = FailureKind::ALL.iter().zip(&self.failed);
        of_manager
            .map(|(kind, counter)| (kind.word(), counter))
            .chain([("too-many", &self.full), ("no-connection", &self.down)])
            .map(|(reason, counter)| (reason, counter.read()))
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f2_ends_that_are_none_are_counted_by_whose_they_were() {
        let counters = Counters::default();
        for (how, times) in [
            (How::Finished, 1),
            (How::LocalReset, 2),
            (How::PeerReset, 3),
            (How::Lost, 4),
            (How::Broken, 5),
            (How::Idle, 6),
            (How::Refused, 7),
        ] {
            for _ in 0..times {
                counters.note_end(&Ended {
                    sent: 1,
                    received: 0,
                    reached: 0,
                    how,
                });
            }
        }

        let resets = [&counters.reset_here, &counters.reset_there, &counters.lost];
        assert_eq!(resets.map(Counter::read), [2, 3, 9]);
        assert_eq!(counters.sent.read(), 28);
    }
}
