//! The smoothed round-trip time of an upstream, and how long to wait before sending again.
//!
//! Every query that is sent has its own id, so a reply is always timed against its own sending.

use std::time::Duration;

/// The shortest wait before a query is sent again: below it a slow answer would be asked twice.
const FLOOR: Duration = Duration::from_millis(200);
/// How many smoothed round trips an answer may take before its query counts as lost.
const PATIENCE: u32 = 3;
/// The weight of a new sample is one in this many (as TCP has it, RFC 6298 §2).
const SMOOTHING: u32 = 8;

/// A running estimate of the round-trip time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rtt(Option<Duration>);

impl Rtt {
    /// Takes in one measured round trip.
    pub(crate) fn sample(&mut self, measured: Duration) {
        self.0 = Some(match self.0 {
            None => measured,
            Some(smoothed) => (smoothed * (SMOOTHING - 1) + measured) / SMOOTHING,
        });
    }

    /// Returns the estimate, if anything was measured yet.
    pub(crate) fn smoothed(self) -> Option<Duration> {
        self.0
    }

    /// Returns how long to wait for an answer before the query is sent for the second time.
    pub(crate) fn resend_after(self) -> Duration {
        self.0.map_or(FLOOR, |rtt| FLOOR.max(rtt * PATIENCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_sent_again_after_three_round_trips_but_not_before_200_ms() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.resend_after(), Duration::from_millis(200));
        rtt.sample(Duration::from_millis(10));
        assert_eq!(rtt.resend_after(), Duration::from_millis(200));
        let mut rtt = Rtt::default();
        rtt.sample(Duration::from_millis(100));
        assert_eq!(rtt.resend_after(), Duration::from_millis(300));
    }

    #[test]
    fn one_slow_reply_moves_the_estimate_by_an_eighth() {
        let mut rtt = Rtt::default();
        rtt.sample(Duration::from_millis(80));
        rtt.sample(Duration::from_millis(160));
        assert_eq!(rtt.resend_after(), Duration::from_millis(270));
    }
}
