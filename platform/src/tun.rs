//! The TUN device of a session: created here, or received as a descriptor from the helper.
//!
//! It makes the device, keeps it alive and moves its packets; addresses are `link.rs`, what the
//! packets mean is the data plane's. A device is never persistent: it is gone, with all that hangs
//! on it, when its owner is.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::task::{Context, Poll, ready};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::unix::AsyncFd;
use tun::{AbstractDevice, Configuration, Device};

/// An open TUN device; closing it (drop) removes the link.
pub struct Tun(Source);

/// Where the descriptor came from.
enum Source {
    /// We made the device.
    Device(Device),
    /// Somebody handed us the descriptor.
    Descriptor(OwnedFd),
}

impl Tun {
    /// Creates a device of this exact name, up, with `mtu`.
    pub fn create(name: &str, mtu: u16) -> Result<Self, tun::Error> {
        let mut configuration = Configuration::default();
        configuration.tun_name(name).mtu(mtu).up();
        tun::create(&configuration).map(|device| Self(Source::Device(device)))
    }

    /// Returns the interface index of a device made here, else `None`.
    pub fn index(&self) -> Option<u32> {
        match &self.0 {
            Source::Device(device) => u32::try_from(device.tun_index().ok()?).ok(),
            Source::Descriptor(_) => None,
        }
    }

    /// Returns the device's packets, within a tokio runtime.
    #[expect(
        deprecated,
        reason = "its successor is unsafe; a Tun keeps its one descriptor open as long as it lives"
    )]
    pub fn packets(self) -> io::Result<Packets> {
        match &self.0 {
            Source::Device(device) => device.set_nonblock()?,
            Source::Descriptor(descriptor) => {
                let flags = fcntl_getfl(descriptor)?;
                fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)?;
            }
        }
        AsyncFd::new(self).map(Packets)
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            Source::Device(device) => device.recv(buffer),
            Source::Descriptor(descriptor) => Ok(rustix::io::read(descriptor, buffer)?),
        }
    }

    fn write(&self, packet: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Source::Device(device) => device.send(packet),
            Source::Descriptor(descriptor) => Ok(rustix::io::write(descriptor, packet)?),
        }
    }
}

/// The IP packets of a device; dropping it closes the device.
#[derive(Debug)]
pub struct Packets(AsyncFd<Tun>);

impl Packets {
    /// Reads the next packet that the machine sends into the link, and returns its length.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            if let Ok(read) = guard.try_io(|device| device.get_ref().read(buffer)) {
                return Poll::Ready(read);
            }
        }
    }

    /// Gives the machine a packet as if it had come by the link.
    pub fn poll_send(&self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            if let Ok(written) = guard.try_io(|device| device.get_ref().write(packet)) {
                return Poll::Ready(written.map(|_| ()));
            }
        }
    }
}

impl From<OwnedFd> for Tun {
    fn from(descriptor: OwnedFd) -> Self {
        Self(Source::Descriptor(descriptor))
    }
}

impl AsRawFd for Tun {
    fn as_raw_fd(&self) -> RawFd {
        match &self.0 {
            Source::Device(device) => device.as_raw_fd(),
            Source::Descriptor(descriptor) => descriptor.as_raw_fd(),
        }
    }
}

impl IntoRawFd for Tun {
    fn into_raw_fd(self) -> RawFd {
        match self.0 {
            Source::Device(device) => device.into_raw_fd(),
            Source::Descriptor(descriptor) => descriptor.into_raw_fd(),
        }
    }
}

impl fmt::Debug for Tun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tun").field(&self.as_raw_fd()).finish()
    }
}
