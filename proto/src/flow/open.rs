//! The header blocks that open and answer a flow, as domain types.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};

use super::failure::{Failure, FailureKind};
use crate::error::InvalidMessage;

/// Where flows are asked for.
const FLOW_PATH: &str = "/flow";
/// Where a body is sent back as it came.
pub const ECHO_PATH: &str = "/echo";
/// What stands for the manager in the requests' URIs; it is dialled by other means.
const ORIGIN: &str = "http://traffic-manager";

const SESSION: &str = "kb-session";
const FLOW: &str = "kb-flow";
const PROTOCOL: &str = "kb-protocol";
const DESTINATION: &str = "kb-destination";
const RESUME: &str = "kb-resume";
const RECEIVED: &str = "kb-received";
const FAILURE: &str = "kb-failure";
const DETAIL: &str = "kb-detail";

/// The longest detail that is sent or believed: it is one line for people.
const MAX_DETAIL: usize = 200;

/// What a flow carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// A byte stream each way, each with its own end.
    Tcp,
    /// Datagrams.
    Udp,
    /// ICMP echo messages: each datagram is one, from its type on.
    Icmp,
}

impl Protocol {
    /// Returns the word on the wire.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

/// Names a flow over all the streams that carry it: random, chosen by the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId([u8; 16]);

impl FlowId {
    /// Takes random octets as a name.
    #[must_use]
    pub const fn new(random: [u8; 16]) -> Self {
        Self(random)
    }
}

impl fmt::Display for FlowId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for FlowId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "FlowId({self})")
    }
}

impl FromStr for FlowId {
    type Err = InvalidMessage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_hex = text.len() == 32 && text.bytes().all(|octet| octet.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16);
        match number {
            Ok(number) if is_hex => Ok(Self(number.to_be_bytes())),
            _ => Err(InvalidMessage::invalid(FLOW, text, "32 hex digits")),
        }
    }
}

/// A request for a flow, or to go on with one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// The session that asks.
    pub session: String,
    /// The flow's name.
    pub flow: FlowId,
    /// What it carries.
    pub protocol: Protocol,
    /// Where it goes; the port is 0 for ICMP.
    pub destination: SocketAddr,
    /// To go on with the flow: the octets (an end counts as one) that the client has received.
    pub resume: Option<u64>,
}

impl Open {
    /// Writes the header block.
    ///
    /// # Errors
    ///
    /// The session's id cannot stand in a header.
    pub fn request(&self) -> Result<Request<()>, http::Error> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{ORIGIN}{FLOW_PATH}"))
            .header(SESSION, &self.session)
            .header(FLOW, self.flow.to_string())
            .header(PROTOCOL, self.protocol.word())
            .header(DESTINATION, self.destination.to_string());
        if let Some(received) = self.resume {
            request = request.header(RESUME, received);
        }
        request.body(())
    }

    /// Reads the header block of a request; `None` when it asks for something else than a flow.
    ///
    /// # Errors
    ///
    /// A header is missing or means nothing.
    pub fn read<B>(request: &Request<B>) -> Result<Option<Self>, InvalidMessage> {
        if request.method() != Method::POST || request.uri().path() != FLOW_PATH {
            return Ok(None);
        }
        let headers = request.headers();
        let protocol = match required(headers, PROTOCOL)? {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "icmp" => Protocol::Icmp,
            other => return Err(InvalidMessage::invalid(PROTOCOL, other, "tcp, udp or icmp")),
        };
        let destination = required(headers, DESTINATION)?;
        let destination = destination.parse().map_err(|_| {
            InvalidMessage::invalid(DESTINATION, destination, "an address and a port")
        })?;
        Ok(Some(Self {
            session: required(headers, SESSION)?.to_owned(),
            flow: required(headers, FLOW)?.parse()?,
            protocol,
            destination,
            resume: offset(headers, RESUME)?,
        }))
    }
}

/// Makes the request whose body comes back as it is.
#[must_use]
pub fn echo_request() -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http::Uri::from_static("http://traffic-manager/echo");
    request
}

/// As [`echo_request`], of a manager that knows this session; another one refuses, as it would
/// refuse the session's flows.
///
/// # Errors
///
/// The session's id cannot stand in a header.
pub fn echo_request_of(session: &str) -> Result<Request<()>, http::Error> {
    let mut request = echo_request();
    let session = HeaderValue::from_str(session)?;
    request.headers_mut().insert(SESSION, session);
    Ok(request)
}

/// Reads which session the manager has to know to answer an echo, if it has to know any.
#[must_use]
pub fn echo_session<B>(request: &Request<B>) -> Option<&str> {
    text(request.headers(), SESSION)
}

/// Makes the answer to a flow that is open; with what was received of it so far where it goes on.
#[must_use]
pub fn accepted(received: Option<u64>) -> Response<()> {
    let mut response = Response::new(());
    if let Some(received) = received {
        let headers = response.headers_mut();
        headers.insert(RECEIVED, HeaderValue::from(received));
    }
    response
}

/// Makes the answer to a flow that is not open.
#[must_use]
pub fn refused(failure: &Failure) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = failure.kind.status();
    let headers = response.headers_mut();
    let word = HeaderValue::from_static(failure.kind.word());
    headers.insert(FAILURE, word);
    let detail = failure.detail.as_deref().map(shorten);
    if let Some(Ok(detail)) = detail.map(HeaderValue::from_str) {
        headers.insert(DETAIL, detail);
    }
    response
}

/// Reads whether a flow is open.
///
/// # Errors
///
/// It is not; a peer that does not say why has failed itself.
pub fn verdict<B>(response: &Response<B>) -> Result<(), Failure> {
    if response.status() == StatusCode::OK {
        return Ok(());
    }
    let headers = response.headers();
    let kind = text(headers, FAILURE).and_then(|word| word.parse().ok());
    Err(Failure {
        kind: kind.unwrap_or(FailureKind::Internal),
        detail: text(headers, DETAIL).map(|detail| shorten(detail).to_owned()),
    })
}

/// Reads how much the peer has of a flow that goes on.
///
/// # Errors
///
/// It does not say.
pub fn resumed_at<B>(response: &Response<B>) -> Result<u64, InvalidMessage> {
    offset(response.headers(), RECEIVED)?.ok_or(InvalidMessage::Missing { field: RECEIVED })
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn required<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, InvalidMessage> {
    text(headers, name).ok_or(InvalidMessage::Missing { field: name })
}

fn offset(headers: &HeaderMap, name: &'static str) -> Result<Option<u64>, InvalidMessage> {
    let Some(number) = text(headers, name) else {
        return Ok(None);
    };
    match number.parse() {
        Ok(offset) => Ok(Some(offset)),
        Err(_) => Err(InvalidMessage::invalid(name, number, "a number of octets")),
    }
}

fn shorten(detail: &str) -> &str {
    let end = detail
        .char_indices()
        .map(|(at, _)| at)
        .find(|at| *at >= MAX_DETAIL)
        .unwrap_or(detail.len());
    &detail[..end]
}

#[cfg(test)]
mod tests;
