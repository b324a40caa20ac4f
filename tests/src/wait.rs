//! Waiting for something that can be observed, with a deadline that says what was awaited.
//!
//! The only place of the lab where time passes on purpose: between two looks.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::Instant;

/// The pause between two looks: far below what a person or a test would notice.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Looks until `look` succeeds; after `limit` the error names `what` and the last failure.
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match look() {
            Ok(seen) => return Ok(seen),
            Err(error) if Instant::now() >= deadline => {
                return Err(error).with_context(|| format!("waited {limit:?} in vain for {what}"));
            }
            Err(_) => std::thread::sleep(BETWEEN_LOOKS),
        }
    }
}
