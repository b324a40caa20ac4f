//! Time that goes on while the machine sleeps.
//!
//! tokio's clock, like the monotonic clock under it, stops during suspend: a TTL of 30 s would
//! outlive a night. [`Clock::now`] adds the time asleep. Pure code takes the instant as an argument.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::time::{Instant, sleep};

/// A difference of the two clocks below this is the time between reading them.
const NOISE: Duration = Duration::from_millis(100);

/// How soon after waking a sleeper on this clock notices.
const NOTICE: Duration = Duration::from_secs(1);

/// A clock that counts time asleep.
#[derive(Clone)]
pub struct Clock {
    source: Source,
    /// What the source said at first, and the longest sleep seen since; time never goes back.
    first: Duration,
    seen: Arc<Mutex<Duration>>,
}

#[derive(Clone)]
enum Source {
    System,
    Fake(Arc<Mutex<Duration>>),
}

/// What makes a fake clock's machine sleep.
#[derive(Clone)]
pub struct Sleeper(Arc<Mutex<Duration>>);

impl Clock {
    /// Makes the clock of this machine.
    pub fn system() -> Self {
        Self::new(Source::System)
    }

    /// Makes a clock whose machine sleeps when told to; awake it follows tokio's clock, paused or
    /// not.
    pub fn fake() -> (Self, Sleeper) {
        let asleep = Arc::new(Mutex::new(Duration::ZERO));
        let clock = Self::new(Source::Fake(Arc::clone(&asleep)));
        (clock, Sleeper(asleep))
    }

    fn new(source: Source) -> Self {
        Self {
            first: source.asleep(),
            source,
            seen: Arc::new(Mutex::new(Duration::ZERO)),
        }
    }

    /// Returns the present, which lies ahead of tokio's by the time asleep since the clock was made.
    pub fn now(&self) -> Instant {
        Instant::now() + self.asleep()
    }

    /// Returns how long the machine slept since the clock was made.
    pub fn asleep(&self) -> Duration {
        let asleep = self.source.asleep().saturating_sub(self.first);
        let mut seen = self.seen.lock();
        if asleep >= *seen + NOISE {
            *seen = asleep;
        }
        *seen
    }

    /// Waits until an instant of this clock; after a sleep it is late by a second at most.
    pub async fn sleep_until(&self, deadline: Instant) {
        loop {
            let left = deadline.saturating_duration_since(self.now());
            if left.is_zero() {
                return;
            }
            sleep(left.min(NOTICE)).await;
        }
    }
}

impl Source {
    /// Returns the time asleep since boot.
    fn asleep(&self) -> Duration {
        match self {
            Self::System => {
                let monotonic = duration(clock_gettime(ClockId::Monotonic));
                duration(clock_gettime(ClockId::Boottime)).saturating_sub(monotonic)
            }
            Self::Fake(asleep) => *asleep.lock(),
        }
    }
}

fn duration(time: Timespec) -> Duration {
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

impl Sleeper {
    /// Lets the machine sleep for a while.
    pub fn sleep(&self, time: Duration) {
        *self.0.lock() += time;
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

impl fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleeper").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_asleep_counts() {
        let (clock, sleeper) = Clock::fake();
        let start = clock.now();
        tokio::time::advance(Duration::from_secs(5)).await;
        sleeper.sleep(Duration::from_secs(60));
        assert_eq!(clock.now() - start, Duration::from_secs(65));
        assert_eq!(clock.clone().asleep(), Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_passed_during_sleep_is_noticed_within_a_second() {
        let (clock, sleeper) = Clock::fake();
        let deadline = clock.now() + Duration::from_secs(3600);
        let awake = Instant::now();
        let waiting = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(deadline).await }
        });
        tokio::task::yield_now().await;
        sleeper.sleep(Duration::from_secs(7200));
        waiting.await.unwrap();
        assert!(awake.elapsed() <= NOTICE);
    }

    #[test]
    fn the_system_clock_never_goes_back() {
        let clock = Clock::system();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let _guard = runtime.enter();
        let mut last = clock.now();
        for _ in 0..1000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        assert!(clock.asleep() < Duration::from_secs(3600));
    }
}
