//! The upstream behind DoT and DoH alike: one shared connection, asked as plain DNS is, and never
//! anything less when it fails.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::channel::{Channel, Transport};
use super::reply::Verdict;
use super::wire::{AskOnce, ServerMemory, Wire};
use super::{ExchangeError, OutgoingQuery, Upstream, UpstreamSpec};

/// Speaks to one server over an encrypted connection.
#[derive(Debug)]
pub(super) struct Encrypted<T: Transport> {
    spec: UpstreamSpec,
    channel: Arc<Channel<T>>,
    memory: ServerMemory,
}

impl<T: Transport> Encrypted<T> {
    /// Shares the channel with others that speak to the same server in the same way.
    pub(super) fn new(spec: UpstreamSpec, channel: Arc<Channel<T>>) -> Self {
        Self {
            spec,
            channel,
            memory: ServerMemory::default(),
        }
    }
}

impl<T: Transport> AskOnce for Encrypted<T> {
    async fn ask_once(&self, mut wire: Wire) -> Result<(Vec<u8>, Verdict), ExchangeError> {
        let reply = self.channel.ask(&mut wire).await?;
        wire.judge_whole(reply)
    }
}

impl<T: Transport> Upstream for Encrypted<T> {
    fn spec(&self) -> &UpstreamSpec {
        &self.spec
    }

    fn keeps_case(&self) -> bool {
        self.memory.keeps_case(Instant::now())
    }

    fn exchange<'a>(
        &'a self,
        query: &'a OutgoingQuery,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Vec<u8>, ExchangeError>> {
        self.memory.ask(self, query, deadline).boxed()
    }
}

#[cfg(test)]
mod tests;
