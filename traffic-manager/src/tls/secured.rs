//! A connection whose client showed a certificate, for the gRPC server.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use kubebridge_proto::flow::ReadAhead;
use ring::digest::{SHA256, digest};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::limit::Connection;

/// A connection over mutual TLS.
#[derive(Debug)]
pub struct Secured {
    stream: TlsStream<ReadAhead<Connection>>,
    peer: Peer,
    speaks: Speaks,
}

/// What was agreed on during the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// gRPC.
    Grpc,
    /// The data plane.
    Data,
}

/// Who is at the other end, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The SHA-256 of the client's certificate, in hexadecimal.
    pub certificate: String,
}

impl Secured {
    pub(super) fn new(stream: TlsStream<ReadAhead<Connection>>, speaks: Speaks) -> Self {
        let certificate = stream.get_ref().1.peer_certificates();
        let octets = certificate
            .and_then(<[_]>::first)
            .map_or(&[][..], AsRef::as_ref);
        let digest = digest(&SHA256, octets);
        let hex = |octet: &u8| format!("{octet:02x}");
        let certificate = digest.as_ref().iter().map(hex).collect();
        Self {
            stream,
            peer: Peer { certificate },
            speaks,
        }
    }

    /// Returns what the connection speaks.
    #[must_use]
    pub fn speaks(&self) -> Speaks {
        self.speaks
    }
}

impl Connected for Secured {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, octets)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
