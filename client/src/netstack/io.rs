//! Where packets come from and go to: the session's TUN, or an in-memory pair in tests.

use std::io;
use std::task::{Context, Poll};

use kubebridge_platform::tun::Packets;

/// Whole IP packets, one at a time.
pub trait PacketIo: Send + 'static {
    /// Takes the next packet of the laptop and returns its length.
    ///
    /// # Errors
    ///
    /// The device is gone.
    fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Gives the laptop a packet.
    ///
    /// # Errors
    ///
    /// The laptop did not take this packet, or the device is gone.
    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>>;
}

impl PacketIo for Packets {
    fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Self::poll_recv(self, cx, buffer)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        Self::poll_send(self, cx, packet)
    }
}
