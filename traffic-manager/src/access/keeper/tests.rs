//! When keys are fetched, and what holds while they cannot be.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::time::advance;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::test_util::issuer::Issuer;

/// A source whose keys a test changes.
#[derive(Clone, Default)]
struct Source {
    fetched: Arc<AtomicUsize>,
    published: Arc<Mutex<Option<Published>>>,
}

impl KeySource for Source {
    fn fetch(&self) -> BoxFuture<'_, Result<Published>> {
        self.fetched.fetch_add(1, Ordering::Relaxed);
        let published = self.published.lock().clone();
        std::future::ready(published.ok_or_else(|| anyhow::anyhow!("Connection refused"))).boxed()
    }
}

impl Source {
    fn publish(&self, key_id: &str) {
        *self.published.lock() = Some(Issuer::new(key_id).published());
    }

    fn times(&self) -> usize {
        self.fetched.load(Ordering::Relaxed)
    }

    fn start(&self) -> (Keeper, AbortOnDropHandle<()>) {
        let (keeper, keeping) = Keeper::new(self.clone(), CancellationToken::new());
        (keeper, AbortOnDropHandle::new(tokio::spawn(keeping)))
    }
}

#[tokio::test(start_paused = true)]
async fn r1_after_a_rotation_a_new_key_is_known_within_ten_seconds() {
    let source = Source::default();
    source.publish("old");
    let (keeper, _keeping) = source.start();
    assert!(keeper.with_key("old").await.is_ok());
    source.publish("new");
    // Fetched a moment ago: whoever asks now is told to come again.
    let error = keeper.with_key("new").await.unwrap_err();
    assert_eq!(error.reason, Reason::KeyUnknown);
    advance(LEAST).await;
    assert!(keeper.with_key("new").await.is_ok());
    // The old one was withdrawn.
    assert!(keeper.with_key("old").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn r1_forged_keys_make_us_ask_at_most_every_ten_seconds() {
    let source = Source::default();
    source.publish("real");
    let (keeper, _keeping) = source.start();
    keeper.with_key("real").await.unwrap();
    let start = Instant::now();
    let before = source.times();
    while start.elapsed() < Duration::from_secs(100) {
        let all = (0..20).map(|number| {
            let keeper = keeper.clone();
            async move { keeper.with_key(&format!("forged-{number}")).await.is_ok() }
        });
        assert!(!futures::future::join_all(all).await.contains(&true));
        advance(Duration::from_millis(250)).await;
    }
    let asked = source.times() - before;
    assert!((5..=11).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn r1_keys_are_fetched_again_every_five_minutes() {
    let source = Source::default();
    source.publish("old");
    let (keeper, _keeping) = source.start();
    keeper.with_key("old").await.unwrap();
    source.publish("new");
    let mut held = keeper.held();
    let has_new = |held: &Held| {
        held.published
            .as_ref()
            .is_some_and(|one| one.keys.has("new"))
    };
    let start = Instant::now();
    held.wait_for(has_new).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), EVERY.as_secs());
}

#[tokio::test(start_paused = true)]
async fn w14_keys_stay_while_the_api_server_is_away_and_come_when_it_does() {
    let source = Source::default();
    let (keeper, _keeping) = source.start();
    let error = keeper.with_key("key").await.unwrap_err();
    assert_eq!(error.message, "the cluster's keys are not known yet");
    let trouble = keeper.held().borrow().trouble.clone();
    assert_eq!(trouble.as_deref(), Some("Connection refused"));
    source.publish("key");
    let mut held = keeper.held();
    held.wait_for(|held| held.published.is_some())
        .await
        .unwrap();
    assert!(keeper.with_key("key").await.is_ok());
    *source.published.lock() = None;
    advance(EVERY * 12).await;
    held.wait_for(|held| held.trouble.is_some()).await.unwrap();
    assert!(keeper.with_key("key").await.is_ok());
}
