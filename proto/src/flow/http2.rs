//! How HTTP/2 is set up on a data connection, alike at both ends.

use std::time::Duration;

use h2::{client, server};

/// What one flow may have under way. Flows are bounded by their own credit (256 KiB), so that this
/// never stops one; datagrams have no other bound.
const STREAM_WINDOW: u32 = 1024 * 1024;
/// What a connection may have under way: what a path of 1 Gbit/s and 100 ms holds, and a little.
/// What was received is released at once, so that a stalled flow takes none of it away.
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// The longest HTTP/2 frame: holds the longest datagram with its header.
const FRAME: u32 = 64 * 1024;
/// The most flows of one connection: above what a session may have (16,384 by setting).
const STREAMS: u32 = 20_000;
/// What HTTP/2 says it takes of one flow's datagrams: at least the longest, and no backlog.
const SEND_BUFFER: usize = 128 * 1024;
/// Headers of a flow take a few hundred octets.
const HEADERS: u32 = 8 * 1024;
/// Streams that were reset here and may still receive: connections that are closed by their
/// applications all the time are no abuse.
const RESET_STREAMS: usize = 1024;
/// How long a stream that was reset may still receive.
const RESET_TIME: Duration = Duration::from_secs(5);

/// Returns the set-up of the laptop's end.
#[must_use]
pub fn client() -> client::Builder {
    let mut builder = client::Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .max_header_list_size(HEADERS)
        .max_send_buffer_size(SEND_BUFFER)
        .initial_max_send_streams(STREAMS as usize)
        .max_concurrent_reset_streams(RESET_STREAMS)
        .reset_stream_duration(RESET_TIME)
        .max_local_error_reset_streams(None)
        .enable_push(false);
    builder
}

/// Returns the set-up of the manager's end.
#[must_use]
pub fn server() -> server::Builder {
    let mut builder = server::Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .max_header_list_size(HEADERS)
        .max_send_buffer_size(SEND_BUFFER)
        .max_concurrent_streams(STREAMS)
        .max_concurrent_reset_streams(RESET_STREAMS)
        .reset_stream_duration(RESET_TIME)
        .max_pending_accept_reset_streams(RESET_STREAMS);
    builder
}
