//! A background task the session cannot do without.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Owns a task: notices when it ends by itself, and ends it.
#[derive(Debug)]
pub struct Essential {
    name: &'static str,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
    has_ended: bool,
}

impl Essential {
    /// Takes over a task that ends when `shutdown` is cancelled.
    #[must_use]
    pub fn new(name: &'static str, shutdown: CancellationToken, task: JoinHandle<()>) -> Self {
        Self {
            name,
            shutdown,
            task,
            has_ended: false,
        }
    }

    /// Waits until the task ends by itself, which it should not. May be dropped and called again.
    pub async fn ended(&mut self) {
        if !self.has_ended {
            let outcome = (&mut self.task).await;
            self.has_ended = true;
            tracing::error!(task = self.name, ?outcome, "essential task ended");
        }
    }

    /// Ends the task, by force when it does not end in time.
    pub async fn stop(mut self, patience: Duration) {
        self.shutdown.cancel();
        if !self.has_ended && timeout(patience, &mut self.task).await.is_err() {
            tracing::warn!(task = self.name, "task ended by force");
        }
    }
}

/// A last resort: [`Essential::stop`] is the plan.
impl Drop for Essential {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_noticed_and_can_still_be_stopped() {
        let task = tokio::spawn(async { panic!("a test") });
        let mut essential = Essential::new("test", CancellationToken::new(), task);

        essential.ended().await;

        essential.ended().await;
        essential.stop(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_listen_is_ended_by_force() {
        let task = tokio::spawn(std::future::pending());
        let essential = Essential::new("test", CancellationToken::new(), task);

        essential.stop(Duration::from_secs(1)).await;
    }
}
