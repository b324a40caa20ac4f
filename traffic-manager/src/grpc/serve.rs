//! The gRPC server on its listener: limits, keepalive, health, graceful end.

use std::io;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{Stream, StreamExt as _};
use kubebridge_proto::v1::traffic_manager_server::TrafficManagerServer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};

use super::Service;
use crate::data::{self, Data, peek};
use crate::limit::Limited;
use crate::sessions::MAX_SESSIONS;
use crate::tls::{Current, Secured, Speaks, secure};

/// The largest message a client may send: a DNS message of 65,535 octets and its envelope.
const MAX_REQUEST: usize = 128 * 1024;

/// The most connections: one for each session that is possible, one more for who looks around, and
/// those of the data plane.
const MAX_CONNECTIONS: usize = 2 * MAX_SESSIONS + data::MAX_CONNECTIONS;

/// The most calls at once on one connection; a client has four, the rest is head room.
const MAX_CALLS: u32 = 256;

/// How often a quiet connection is tried, and how long it may take to show that it lives: a laptop
/// that fell asleep is gone within half a minute.
const KEEPALIVE: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Windows for a link of 100 ms round trip at some 80 Mbit/s a stream.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Serves a listener until the service's shutdown, then until the open calls have ended.
///
/// # Errors
/// When the server cannot go on.
pub async fn serve(listener: TcpListener, tls: Option<Current>, service: Service) -> Result<()> {
    let reflection = if listener.local_addr()?.ip().is_loopback() {
        Reflection::On
    } else {
        Reflection::Off
    };
    let listener = Limited::new(listener, MAX_CONNECTIONS);
    match tls {
        None => {
            let incoming = peek::grpc(listener.connections(), service.data.clone());
            serve_on(incoming, reflection, service).await
        }
        Some(current) => {
            let data = service.data.clone();
            let incoming = secure(listener, current).filter_map(move |connection| {
                let grpc = connection.map(|connection| by_protocol(connection, &data));
                std::future::ready(grpc.transpose())
            });
            serve_on(incoming, reflection, service).await
        }
    }
}

/// Keeps what speaks gRPC, and has the data plane served.
fn by_protocol(connection: Secured, data: &Data) -> Option<Secured> {
    match connection.speaks() {
        Speaks::Grpc => Some(connection),
        Speaks::Data => {
            data.serve(connection);
            None
        }
    }
}

/// Whether the service describes itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reflection {
    /// To whoever asks.
    On,
    /// Not at all.
    Off,
}

/// Serves connections as they come, until the service's shutdown.
///
/// # Errors
/// When the server cannot go on.
pub async fn serve_on<C>(
    incoming: impl Stream<Item = io::Result<C>>,
    reflection: Reflection,
    service: Service,
) -> Result<()>
where
    C: AsyncRead + AsyncWrite + Connected + Send + Unpin + 'static,
{
    let shutdown = service.shutdown.clone();
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<TrafficManagerServer<Service>>().await;
    let ending = async move {
        shutdown.cancelled().await;
        health
            .set_not_serving::<TrafficManagerServer<Service>>()
            .await;
    };
    let reflection = match reflection {
        Reflection::On => Some(described()?),
        Reflection::Off => None,
    };
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_CALLS)
        .add_service(health_service)
        .add_optional_service(reflection)
        .add_service(TrafficManagerServer::new(service).max_decoding_message_size(MAX_REQUEST))
        .serve_with_incoming_shutdown(incoming, ending)
        .await
        .context("gRPC server failed")
}

/// Makes the service that describes the contract, for `grpcurl` and the like. Only where nobody
/// but people on this machine, or behind its port-forward, can ask.
fn described() -> Result<ServerReflectionServer<impl ServerReflection>> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(kubebridge_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .context("cannot describe the contract")
}
