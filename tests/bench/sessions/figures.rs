//! Percentiles, and a limit beside what was found.

use std::time::Duration;

/// Durations, sorted when they are looked at.
#[derive(Debug, Default, Clone)]
pub(crate) struct Sample(Vec<Duration>);

impl Sample {
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The smallest that at least this share of all do not exceed.
    pub(crate) fn percentile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        let rank = (sorted.len() as f64 * share).ceil() as usize;
        let last = sorted.len().saturating_sub(1);
        let found = sorted.get(rank.saturating_sub(1).min(last));
        found.copied().unwrap_or_default()
    }

    pub(crate) fn most(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }
}

/// Prints whether a limit was kept, and tells it.
pub(crate) fn limit(words: &str, kept: bool) -> bool {
    println!("{} {words}", if kept { "ok    " } else { "MISSED" });
    kept
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
