//! A flow of datagrams as its user holds it: two bounded queues that drop the oldest.

use std::task::{Context, Poll};

use bytes::Bytes;
use kubebridge_proto::flow::queue::{self, Input, Output};

/// Datagrams to and from one destination. Dropping it ends the flow.
#[derive(Debug)]
pub struct DatagramFlow {
    to_peer: Input,
    from_peer: Output,
}

/// The other end of a [`DatagramFlow`]: what comes out of it, and what goes into it.
pub type DatagramEnds = (Output, Input);

impl DatagramFlow {
    /// Makes a flow and its other end.
    #[must_use]
    pub fn pair() -> (Self, DatagramEnds) {
        let (to_peer, out) = queue::channel();
        let (into, from_peer) = queue::channel();
        (Self { to_peer, from_peer }, (out, into))
    }

    /// Sends a datagram. Never waits: where the way is slow the oldest is dropped.
    ///
    /// # Errors
    ///
    /// The flow is over (idle, or the connection is lost); the datagram is given back, for another
    /// flow.
    pub fn send(&self, datagram: Bytes) -> Result<(), Bytes> {
        self.to_peer.send(datagram)
    }

    /// Whether the flow is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.to_peer.is_closed()
    }

    /// Takes a datagram that came; `None` when the flow is over.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.from_peer.poll_recv(context)
    }

    /// Waits for a datagram; `None` when the flow is over.
    pub async fn recv(&mut self) -> Option<Bytes> {
        self.from_peer.recv().await
    }

    /// Whether the flow is over because nobody listens at the destination: the program is told by
    /// an ICMP message.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.from_peer.is_refused()
    }

    /// Takes the two directions apart, for two tasks.
    #[must_use]
    pub fn split(self) -> (Input, Output) {
        (self.to_peer, self.from_peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_directions_end_with_either_end() {
        let (mut flow, (mut out, into)) = DatagramFlow::pair();
        flow.send(Bytes::from_static(b"question")).unwrap();
        into.send(Bytes::from_static(b"answer")).unwrap();

        assert_eq!(out.recv().await.unwrap(), "question");
        drop((out, into));

        assert_eq!(flow.recv().await.unwrap(), "answer");
        assert_eq!(flow.recv().await, None);
        assert!(flow.is_over());
    }
}
