//! How often a session may dial. Pure: `now` is given.

use std::time::Duration;

use tokio::time::Instant;

/// Dials a second, over time: more than a load generator on a laptop reaches through the tunnel, for
/// whom a refused connection would be a wrong result. What it bounds is a program gone wild.
const PER_SECOND: u32 = 10_000;

/// Dials at once after a pause.
const BURST: u32 = 10_000;

/// A bucket of dials that fills with time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    /// When the bucket is full again. What is missing is so much time's worth.
    full_at: Instant,
}

impl Rate {
    pub(super) fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Takes one, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let one = Duration::from_secs(1) / PER_SECOND;
        let full_at = self.full_at.max(now) + one;
        let fits = full_at.duration_since(now) <= one * BURST;
        if fits {
            self.full_at = full_at;
        }
        fits
    }

    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_let_through_and_then_so_many_a_second() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        let taken = |rate: &mut Rate, now| (0..50_000).filter(|_| rate.take(now)).count();
        assert_eq!(taken(&mut rate, start), 10_000);
        assert!(!rate.is_full(start));
        let later = start + Duration::from_millis(100);
        assert_eq!(taken(&mut rate, later), 1_000);
        let much_later = later + Duration::from_secs(3600);
        assert!(rate.is_full(much_later));
        assert_eq!(taken(&mut rate, much_later), 10_000);
    }
}
