//! How long to wait before the next attempt. Pure but for the jitter the caller passes in.

use std::time::Duration;

/// The first wait: a replaced pod is often back at once.
const FIRST: Duration = Duration::from_millis(200);
/// The longest wait: with a call's time on top the session is back within 5 s.
const LONGEST: Duration = Duration::from_secs(2);

/// Doubling waits between attempts.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Returns the next wait; `jitter` from 0 to 1 shortens it by up to half, so that the clients
    /// of a replaced manager do not come back all at once.
    pub(crate) fn next(&mut self, jitter: f64) -> Duration {
        let full = FIRST
            .saturating_mul(2_u32.saturating_pow(self.failures))
            .min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let shortened = full.mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0);
        shortened.max(FIRST)
    }

    /// Starts over after a success.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_a_fifth_of_a_second_to_two() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..6).map(|_| backoff.next(0.0).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 2000, 2000]);

        backoff.reset();
        assert_eq!(backoff.next(0.0).as_millis(), 200);
    }

    #[test]
    fn jitter_shortens_a_wait_by_half_at_most() {
        for (jitter, wanted) in [(0.0, 2000), (0.5, 1500), (1.0, 1000), (7.0, 1000)] {
            let mut backoff = Backoff { failures: 20 };
            assert_eq!(backoff.next(jitter).as_millis(), wanted);
        }
    }
}
