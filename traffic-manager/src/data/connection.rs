//! One data connection: HTTP/2 streams in, each handed to a task of its own.

use std::time::Duration;

use bytes::Bytes;
use h2::server::Connection;
use h2::{Ping, PingPong};
use kubebridge_proto::flow::{after_others, http2};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};
use tracing::{Instrument, debug, debug_span};

use super::{CUT, Data, flow};

/// How long a client may take to begin HTTP/2.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How often a connection is tried, and how long it may take to show that it lives. The laptop
/// looks more often; this frees what a laptop that fell asleep leaves behind.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves a connection until it is lost or closed; at a shutdown until its streams have ended.
pub(super) async fn serve<C>(data: Data, connection: C)
where
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let cut = data.shared.cut.clone();
    // The flows are cut first, and the connection tells the laptop.
    let dropped = async {
        cut.cancelled().await;
        sleep(CUT).await;
    };
    tokio::select! {
        () = dropped => {}
        () = Box::pin(serve_until_lost(data, connection)) => {}
    }
}

async fn serve_until_lost<C>(data: Data, connection: C)
where
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let shaking = http2::server().handshake::<_, Bytes>(connection);
    let mut connection = match timeout(HANDSHAKE, shaking).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return debug!(%error, "handshake failed"),
        Err(_) => return debug!("handshake timed out"),
    };
    let silence = silence(connection.ping_pong());
    tokio::pin!(silence);
    let shutdown = data.shared.parts.shutdown.clone();
    let mut draining = false;
    loop {
        tokio::select! {
            accepted = after_others(|context| connection.poll_accept(context)) => match accepted {
                None => return,
                Some(Err(error)) => return debug!(%error, "connection lost"),
                Some(Ok((request, respond))) => {
                    let answering = flow::answer(data.clone(), request, respond);
                    let answering = answering.instrument(debug_span!("flow"));
                    data.shared.tasks.spawn(answering);
                }
            },
            () = shutdown.cancelled(), if !draining => {
                draining = true;
                connection.graceful_shutdown();
            }
            () = &mut silence => {
                debug!("connection is silent");
                abrupt(&mut connection);
                return;
            }
        }
    }
}

/// Ends what is left of a connection that does not answer.
fn abrupt<C>(connection: &mut Connection<C, Bytes>)
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    connection.abrupt_shutdown(h2::Reason::NO_ERROR);
}

/// Waits until a ping is not answered in time.
async fn silence(pings: Option<PingPong>) {
    let Some(mut pings) = pings else {
        return std::future::pending().await;
    };
    loop {
        sleep(KEEPALIVE).await;
        match timeout(KEEPALIVE_TIMEOUT, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}
