//! The session's resolver at its address: questions answered from packets and flows, no socket.

use std::sync::Arc;
use std::time::Duration;

use kubebridge_dns::server::{Answering, Handler};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::flow::Flow;
use super::stream::FlowStream;

/// The port of DNS.
pub(super) const PORT: u16 = 53;

/// How long a client may take to close a connection that was closed to it.
const CLOSING: Duration = Duration::from_secs(2);

/// Answers the questions of one connection.
pub(super) async fn serve<H: Handler>(answering: Arc<Answering<H>>, flow: Arc<Flow>) {
    let peer = flow.key.source;
    let mut stream = FlowStream::new(flow);
    // The driver ends this task when it ends.
    let shutdown = CancellationToken::new();
    answering.stream(&mut stream, peer, shutdown).await;
    // A stream dropped before its client has closed resets what the client may still be reading.
    let mut rest = [0; 512];
    let closing =
        async { while matches!(stream.read(&mut rest).await, Ok(length) if length > 0) {} };
    let _ = timeout(CLOSING, closing).await;
}
