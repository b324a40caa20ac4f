//! Polls something after those that are ready already.
//!
//! A connection is woken by each flow that has something for it. Polled at once, it would make a
//! record of TLS and a call of the kernel for each; when the others had their turn first, it takes
//! what they all have. While nobody else is ready this costs next to nothing.

use std::future::poll_fn;
use std::task::{Context, Poll};

use tokio::task::yield_now;

/// Polls until there is a result; after each time that something woke it, others come first.
pub async fn after_others<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    loop {
        if let Poll::Ready(result) = poll_fn(|context| Poll::Ready(poll(context))).await {
            return result;
        }
        woken().await;
        yield_now().await;
    }
}

/// Waits until it is polled again: what was polled before has left its waker.
async fn woken() {
    let mut is_first = true;
    poll_fn(|_| match std::mem::take(&mut is_first) {
        true => Poll::Pending,
        false => Poll::Ready(()),
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn what_many_give_is_taken_at_once() {
        let (giving, mut taking) = mpsc::channel(64);
        let rounds = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&rounds);
        let taker = tokio::spawn(async move {
            after_others(|context| {
                let mut some = Vec::new();
                let is_over = loop {
                    match taking.poll_recv(context) {
                        Poll::Ready(Some(number)) => some.push(number),
                        Poll::Ready(None) => break true,
                        Poll::Pending => break false,
                    }
                };
                taken.lock().push(some);
                if is_over {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
        });
        // The taker waits before anything is given.
        yield_now().await;
        for number in 0..8 {
            let giving = giving.clone();
            tokio::spawn(async move { giving.send(number).await });
        }
        drop(giving);
        taker.await.unwrap();
        let rounds = rounds.lock();
        assert!(rounds[0].is_empty());
        assert_eq!(rounds[1], (0..8).collect::<Vec<_>>());
    }
}
