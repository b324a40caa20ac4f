//! The time of day, by which tokens expire, and how audit lines write it.
//!
//! Only here is the system's clock read for it, so that tests can let an hour pass at once.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A clock that tells the time of day.
#[derive(Debug, Clone, Copy)]
pub enum Wall {
    /// The system's.
    System,
    /// One that began at an instant and goes on with tokio's clock, paused or not.
    Since(Instant, Duration),
}

impl Wall {
    /// Returns a clock that shows so many seconds since 1970 now.
    #[must_use]
    pub fn at(unix: u64) -> Self {
        Self::Since(Instant::now(), Duration::from_secs(unix))
    }

    /// Returns the seconds since 1970.
    #[must_use]
    pub fn unix(&self) -> u64 {
        self.since_epoch().as_secs()
    }

    /// Returns the time as RFC 3339 has it, to the millisecond.
    #[must_use]
    pub fn text(&self) -> String {
        let now = self.since_epoch();
        let seconds = text(now.as_secs());
        let whole = seconds.strip_suffix('Z').unwrap_or(&seconds);
        format!("{whole}.{:03}Z", now.subsec_millis())
    }

    fn since_epoch(&self) -> Duration {
        match self {
            Self::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
            Self::Since(start, began) => *began + start.elapsed(),
        }
    }
}

/// Writes seconds since 1970 as RFC 3339 has them.
#[must_use]
pub fn text(unix: u64) -> String {
    let (days, second) = (unix / 86_400, unix % 86_400);
    // Days are counted from 1 March of the year 0, so that a leap day is the last of its year; 400
    // years have 146,097 days.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_written_as_dates() {
        for (unix, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(text(unix), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_of_tests_goes_on_with_tokios() {
        let wall = Wall::at(1_000);
        tokio::time::advance(Duration::from_millis(3_600_250)).await;
        assert_eq!(wall.unix(), 4_600);
        assert_eq!(wall.text(), "1970-01-01T01:16:40.250Z");
    }
}
