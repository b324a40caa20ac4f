//! Waiting for something that can be observed, with a deadline that says what was awaited.
//!
//! The only place of the lab where time passes on purpose: between two looks, or while a fault lasts.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::Instant;

/// The pause between two looks: far below what a person or a test would notice.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The pause where the moment counts.
const BETWEEN_CLOSE_LOOKS: Duration = Duration::from_millis(1);

/// Looks until `look` succeeds; after `limit` the error names `what` and the last failure.
pub fn until<T>(what: &str, limit: Duration, look: impl FnMut() -> Result<T>) -> Result<T> {
    looking(BETWEEN_LOOKS, what, limit, look)
}

/// As [`until`], but misses nothing that lasts longer than a millisecond or two.
pub fn until_closely<T>(what: &str, limit: Duration, look: impl FnMut() -> Result<T>) -> Result<T> {
    looking(BETWEEN_CLOSE_LOOKS, what, limit, look)
}

/// Lets time pass: for a fault that has to last, never to wait for an effect.
pub fn last(duration: Duration) {
    std::thread::sleep(duration);
}

fn looking<T>(
    pause: Duration,
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match look() {
            Ok(seen) => return Ok(seen),
            Err(error) if Instant::now() >= deadline => {
                return Err(error).with_context(|| format!("waited {limit:?} in vain for {what}"));
            }
            Err(_) => std::thread::sleep(pause),
        }
    }
}
