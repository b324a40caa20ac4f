//! The laptop's end of a data connection, by hand, for the tests of this crate.

use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use kubebridge_proto::flow::{Attached, Failure, Open, echo_request, http2, resumed_at, verdict};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long anything may take that a test waits for.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for what surely comes, and says what it was when it does not.
pub(crate) async fn within<T>(what: &str, coming: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, coming).await {
        Ok(came) => came,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}

/// The other end of a data connection.
pub(crate) struct Laptop {
    pub(crate) requests: SendRequest<Bytes>,
    pub(crate) connection: JoinHandle<()>,
}

impl Laptop {
    pub(crate) async fn over<C>(near: C) -> Self
    where
        C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (requests, connection) = http2::client().handshake(near).await.unwrap();
        let connection = tokio::spawn(async move {
            // How it ends is the business of those whose streams it has.
            let _ = connection.await;
        });
        Self {
            requests,
            connection,
        }
    }

    /// Asks for a flow; `None` when the connection is lost.
    pub(crate) async fn ask(
        &self,
        open: &Open,
    ) -> Option<Result<(Attached, Option<u64>), Failure>> {
        let mut requests = self.requests.clone().ready().await.ok()?;
        let (response, send) = requests.send_request(open.request().unwrap(), false).ok()?;
        let response = response.await.ok()?;
        let received = resumed_at(&response).ok();
        let receive = match verdict(&response) {
            Ok(()) => response.into_body(),
            Err(failure) => return Some(Err(failure)),
        };
        Some(Ok((Attached { send, receive }, received)))
    }

    pub(crate) async fn open(&self, open: &Open) -> Result<Attached, Failure> {
        let asked = within("the flow's response", self.ask(open)).await;
        asked
            .expect("the connection is there")
            .map(|(stream, _)| stream)
    }

    pub(crate) async fn failure(&self, open: &Open) -> Failure {
        match self.open(open).await {
            Ok(_) => panic!("{open:?} is open"),
            Err(failure) => failure,
        }
    }

    /// Loses the connection, in the middle of whatever it carries.
    pub(crate) fn cut(self) {
        self.connection.abort();
    }

    /// Has octets sent back, and counts them; `None` when they are too many.
    pub(crate) async fn echo(&self, length: usize) -> Option<usize> {
        let mut requests = self.requests.clone().ready().await.unwrap();
        let (response, mut send) = requests.send_request(echo_request(), false).unwrap();
        send.send_data(vec![7; length].into(), true).unwrap();
        // The reset may come before the response is looked at.
        let mut body = within("a response", response).await.ok()?.into_body();
        let mut back = 0;
        while let Some(octets) = within("the echo", body.data()).await {
            back += octets.ok()?.len();
        }
        Some(back)
    }
}
