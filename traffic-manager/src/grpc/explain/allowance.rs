//! How much a session may ask for in a while. `now` is an argument; nothing waits.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// What a session may ask for at once: a script that traces some names in several types.
const BURST: u32 = 20;
/// How soon one more is allowed: ten a second are more than anybody reads.
const EVERY: Duration = Duration::from_millis(100);

/// The allowances of all sessions; those that are whole again are forgotten, so there are no more
/// than sessions that asked within the last two seconds.
#[derive(Debug, Default)]
pub(super) struct Allowances(Mutex<BTreeMap<String, Allowance>>);

/// What one session may still ask for.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    left: u32,
    /// Up to when it has been made whole.
    counted: Instant,
}

impl Allowances {
    /// Takes one out of a session's allowance, if there is one.
    pub(super) fn take(&self, session: &str, now: Instant) -> bool {
        let mut all = self.0.lock();
        if !all.contains_key(session) {
            all.retain(|_, allowance| allowance.refilled(now).left < BURST);
        }
        let whole = Allowance {
            left: BURST,
            counted: now,
        };
        let allowance = all.entry(session.to_owned()).or_insert(whole);
        *allowance = allowance.refilled(now);
        let granted = allowance.left > 0;
        allowance.left = allowance.left.saturating_sub(1);
        granted
    }
}

impl Allowance {
    fn refilled(self, now: Instant) -> Self {
        let since = now.saturating_duration_since(self.counted);
        let more = u32::try_from(since.as_millis() / EVERY.as_millis()).unwrap_or(BURST);
        let more = more.min(BURST);
        let left = (self.left + more).min(BURST);
        let counted = if left == BURST {
            now
        } else {
            self.counted + EVERY * more
        };
        Self { left, counted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_may_ask_in_bursts_and_then_ten_times_a_second() {
        let allowances = Allowances::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        for _ in 0..BURST {
            assert!(allowances.take("a", at(0)));
        }
        for (millis, granted) in [
            (0, false),
            (99, false),
            (100, true),
            (150, false),
            (200, true),
        ] {
            assert_eq!(allowances.take("a", at(millis)), granted, "{millis} ms");
        }
        assert!(allowances.take("b", at(200)), "another session has its own");
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_that_ask_no_more_are_forgotten() {
        let allowances = Allowances::default();
        let start = Instant::now();
        for number in 0..100 {
            allowances.take(&number.to_string(), start);
        }

        allowances.take("later", start + Duration::from_secs(3));

        assert_eq!(allowances.0.lock().len(), 1);
    }
}
