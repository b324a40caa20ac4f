//! How soon a dead channel is noticed, and that a slow one is not taken for dead.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use tokio::sync::watch;

use super::*;
use crate::control::Tunnel;
use crate::control::exchange::{self, AskError, Exchange};

/// Condition 4 of the lifecycle: with traffic waiting, and without.
const BUSY: Duration = Duration::from_secs(3);
const IDLE: Duration = Duration::from_secs(10);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A channel that answers after its round trip, until it dies without a sound.
struct Path {
    round_trip: Duration,
    dies: Instant,
    echoes: Cell<u32>,
    heard: RefCell<Vec<Duration>>,
}

impl Path {
    fn new(round_trip: Duration, lives: Duration) -> Self {
        Self {
            round_trip,
            dies: Instant::now() + lives,
            echoes: Cell::new(0),
            heard: RefCell::default(),
        }
    }

    async fn echo(&self) -> Result<(), Status> {
        self.echoes.set(self.echoes.get() + 1);
        sleep(self.round_trip).await;
        if Instant::now() >= self.dies {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn watch(&self, suspicion: &Notify) -> anyhow::Error {
        let heard = |took| self.heard.borrow_mut().push(took);
        watch_echo(|| self.echo(), heard, suspicion).await
    }
}

/// Queries that no reply will ever come to.
fn unanswered(suspicion: &Arc<Notify>) -> (Exchange, impl Sized) {
    let (sender, tunnel) = watch::channel(Tunnel::Up {
        seen: Instant::now(),
        round_trip: None,
    });
    let (exchange, asks) = exchange::channel(tunnel, Arc::clone(suspicion));
    (exchange, (sender, asks))
}

/// How long it takes from a query that waits for its reply to the notice.
async fn notice(round_trip: Duration, lives: Duration) -> Duration {
    let path = Path::new(round_trip, lives);
    let suspicion = Arc::new(Notify::new());
    let (exchange, _kept) = unanswered(&suspicion);
    let asking = async {
        sleep_until(path.dies).await;
        let asked = Instant::now();
        assert_eq!(exchange.ask(vec![1]).await, Err(AskError::Timeout));
        asked
    };
    let noticing = async {
        let error = path.watch(&suspicion).await;
        assert_eq!(error.to_string(), "2 echoes without a reply");
        Instant::now()
    };
    let (asked, noticed) = tokio::join!(asking, noticing);
    noticed - asked
}

/// Moments for a channel to die: before the first reply, between echoes, with one on its way.
fn moments() -> impl Iterator<Item = Duration> {
    (0..6500).step_by(50).map(ms)
}

#[tokio::test(start_paused = true)]
async fn lifecycle_4_a_dead_channel_with_traffic_waiting_is_noticed_in_three_seconds() {
    for round_trip in [0, 1, 50, 125, 250, 600, 1000, 1700].map(ms) {
        for lives in moments() {
            let took = notice(round_trip, lives).await;
            assert!(took < BUSY, "{round_trip:?} after {lives:?}: {took:?}");
        }
    }
    assert_eq!(notice(ms(1), ms(1000)).await, ms(2000));
}

#[tokio::test(start_paused = true)]
async fn lifecycle_4_a_dead_idle_channel_is_noticed_in_ten_seconds() {
    for round_trip in [0, 1, 250, 1700].map(ms) {
        for lives in moments() {
            let path = Path::new(round_trip, lives);

            let error = path.watch(&Notify::new()).await;

            assert_eq!(error.to_string(), "2 echoes without a reply");
            let took = Instant::now() - path.dies;
            assert!(took < IDLE, "{round_trip:?} after {lives:?}: {took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_echo_is_asked_for_every_four_seconds() {
    let path = Path::new(ms(1), Duration::MAX / 4);

    let watching = tokio::time::timeout(ms(12_500), path.watch(&Notify::new())).await;

    assert!(watching.is_err());
    assert_eq!(*path.heard.borrow(), vec![ms(1); 4]);
}

#[tokio::test(start_paused = true)]
async fn doubt_asks_for_an_echo_at_once() {
    let path = Path::new(ms(1), Duration::MAX / 4);
    let suspicion = Notify::new();
    let doubting = async {
        sleep(ms(1000)).await;
        suspicion.notify_one();
        sleep(ms(2)).await;
    };

    tokio::select! {
        _ = path.watch(&suspicion) => unreachable!("the channel lives"),
        () = doubting => {}
    }

    assert_eq!(path.heard.borrow().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_slow_channel_under_constant_doubt_is_not_taken_for_dead() {
    for round_trip in [300, 600, 1000, 1700].map(ms) {
        let path = Path::new(round_trip, Duration::MAX / 4);
        let suspicion = Notify::new();
        let doubting = async {
            for _ in 0..600 {
                sleep(ms(100)).await;
                suspicion.notify_one();
            }
        };

        tokio::select! {
            error = path.watch(&suspicion) => panic!("{round_trip:?}: {error:#}"),
            () = doubting => {}
        }

        // One at a time, each as old as its own sending says.
        assert!(path.heard.borrow().iter().all(|took| *took >= round_trip));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_echo_breaks_the_channel_at_once() {
    let start = Instant::now();
    let refuse = || async { Err(Status::unavailable("gone")) };

    let error = watch_echo(refuse, |_| {}, &Notify::new()).await;

    assert_eq!(error.to_string(), "echo failed: gone");
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_was_on_its_way_when_doubt_came_is_no_proof() {
    let start = Instant::now();
    let path = Path::new(ms(100), ms(120));
    let suspicion = Notify::new();
    let doubting = async {
        sleep(ms(50)).await;
        suspicion.notify_one();
    };

    tokio::join!(path.watch(&suspicion), doubting);

    assert_eq!(*path.heard.borrow(), [ms(100)]);
    assert!(
        start.elapsed() <= Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
}
