//! Questions as HTTP/2 POST requests on one connection (RFC 8484 §4.1, RFC 9113).
//!
//! Dropping a question resets its stream. Opening the stream under it, TLS included, is its
//! transport's business.

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use self::pulse::{Listening, Pulse, keep_alive};
use super::ExchangeError;
use super::channel::{Age, Connection, Failure, SILENCE};
use super::reply::{answers, reply_id};
use super::wire::Wire;

mod pulse;

/// The media type of messages (RFC 8484 §6).
const DNS_MESSAGE: &str = "application/dns-message";
/// The longest reply: a DNS message is not longer.
const MAX_BODY: usize = 65_535;
/// What a server may send before we have taken it in: one reply of the longest kind per stream,
/// and sixteen on the connection.
const STREAM_WINDOW: u32 = 1 << 16;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// The header block we are ready to take: DoH servers send a few hundred bytes.
const MAX_HEADERS: u32 = 1 << 14;
/// How long a question waits before the server is asked whether it is there at all.
const PING_AFTER: Duration = Duration::from_millis(500);

/// One HTTP/2 connection, driven by a task of its own that ends with it.
#[derive(Debug)]
pub(super) struct Http2 {
    requests: SendRequest<Bytes>,
    uri: Uri,
    pulse: Arc<Pulse>,
    _driver: AbortOnDropHandle<()>,
}

impl Http2 {
    /// Begins HTTP/2 on an open stream; every question is a POST to the URI.
    pub(super) async fn new<S>(
        stream: S,
        uri: Uri,
        span: tracing::Span,
    ) -> Result<Self, ExchangeError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let pulse = Arc::new(Pulse::new(Instant::now()));
        let stream = Listening::new(stream, Arc::clone(&pulse));
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEADERS);
        let begun = builder.handshake(stream).await;
        let (requests, mut connection) = begun.map_err(|e| failure(e).into_error())?;
        let pings = connection.ping_pong().expect("taken only here");
        let ours = Arc::clone(&pulse);
        let driver = async move {
            tokio::select! {
                ended = connection => tracing::debug!(?ended, "upstream connection closed"),
                why = keep_alive(pings, &ours) => tracing::debug!(why, "closing upstream connection"),
            }
            ours.close();
        };
        Ok(Self {
            requests,
            uri,
            pulse,
            _driver: AbortOnDropHandle::new(tokio::spawn(driver.instrument(span))),
        })
    }

    async fn post(&self, query: Bytes) -> Result<Vec<u8>, Failure> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = Version::HTTP_2;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, DNS_MESSAGE.parse().expect("a header value"));
        headers.insert(ACCEPT, DNS_MESSAGE.parse().expect("a header value"));
        headers.insert(CONTENT_LENGTH, query.len().into());
        let requests = self.requests.clone().ready().await;
        let mut requests = requests.map_err(failure)?;
        let (response, mut body) = requests.send_request(request, false).map_err(failure)?;
        body.send_data(query, true).map_err(failure)?;
        let response = response.await.map_err(failure)?;
        check(&response).map_err(Failure::Final)?;
        read(response.into_body()).await
    }
}

impl Connection for Http2 {
    fn is_open(&self) -> bool {
        self.pulse.is_open() && self.pulse.silence(Instant::now()) < SILENCE
    }

    async fn ask(&self, wire: &mut Wire, age: Age) -> Result<Vec<u8>, Failure> {
        let question = wire.question();
        // The id is 0, for caches on the way (RFC 8484 §4.1); streams tell replies apart.
        let query = Bytes::copy_from_slice(wire.with_id(0));
        let sending = self.pulse.sending(Instant::now());
        let reply = self.post(query);
        tokio::pin!(reply);
        let reply = match timeout(PING_AFTER, &mut reply).await {
            Ok(reply) => reply,
            Err(_elapsed) => {
                self.pulse.ask();
                match timeout(SILENCE - PING_AFTER, &mut reply).await {
                    Ok(reply) => reply,
                    Err(_elapsed) if age == Age::Used && !sending.is_heard() => {
                        return Err(Failure::Stale(ExchangeError::Timeout));
                    }
                    Err(_elapsed) => reply.await,
                }
            }
        };
        let reply = reply?;
        if reply_id(&reply) != Some(0) || !answers(&reply, &question) {
            let reason = "it does not answer the question";
            return Err(Failure::Final(ExchangeError::Malformed(reason)));
        }
        Ok(reply)
    }
}

/// Refuses whatever cannot hold a DNS message.
fn check(response: &Response<RecvStream>) -> Result<(), ExchangeError> {
    if response.status() != StatusCode::OK {
        return Err(ExchangeError::HttpStatus(response.status().as_u16()));
    }
    if !is_dns_message(response.headers()) {
        return Err(ExchangeError::Malformed("its HTTP content type is not DNS"));
    }
    Ok(())
}

fn is_dns_message(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let essence = kind.and_then(|kind| kind.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case(DNS_MESSAGE))
}

async fn read(mut body: RecvStream) -> Result<Vec<u8>, Failure> {
    let mut message = Vec::new();
    while let Some(part) = body.data().await {
        let part = part.map_err(failure)?;
        if message.len() + part.len() > MAX_BODY {
            let reason = "longer than a DNS message can be";
            return Err(Failure::Final(ExchangeError::Malformed(reason)));
        }
        message.extend_from_slice(&part);
        let released = body.flow_control().release_capacity(part.len());
        released.map_err(failure)?;
    }
    Ok(message)
}

/// Tells what a failed request says about its connection.
fn failure(error: h2::Error) -> Failure {
    let unprocessed =
        error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM));
    if unprocessed {
        Failure::Unprocessed(ExchangeError::Closed)
    } else if error.is_remote() && error.is_reset() {
        Failure::Final(ExchangeError::Malformed("the HTTP request was reset"))
    } else {
        let error = match error.get_io() {
            Some(io) => io.kind().into(),
            None => io::Error::other(error),
        };
        Failure::Stale(ExchangeError::io("exchange HTTP with", error))
    }
}
