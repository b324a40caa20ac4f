//! The TUN device of a session: created here, or received as a descriptor from the helper.
//!
//! It makes the device, keeps it alive and moves its packets; addresses are `link.rs`, what the
//! packets mean is the data plane's. A device is never persistent: it is gone, with all that hangs
//! on it, when its owner is.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
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
        reason = "its successor is unsafe; an OwnedFd keeps the descriptor open as long as needed"
    )]
    pub fn packets(self) -> io::Result<Packets> {
        let descriptor = OwnedFd::from(self);
        let flags = fcntl_getfl(&descriptor)?;
        fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?;
        AsyncFd::new(descriptor).map(Packets)
    }
}

/// The IP packets of a device; dropping it closes the device.
#[derive(Debug)]
pub struct Packets(AsyncFd<OwnedFd>);

impl Packets {
    /// Reads the next packet that the machine sends into the link, and returns its length.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            if let Ok(read) =
                guard.try_io(|device| Ok(rustix::io::read(device.get_ref(), &mut *buffer)?))
            {
                return Poll::Ready(read);
            }
        }
    }

    /// Gives the machine a packet as if it had come by the link.
    pub fn poll_send(&self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            if let Ok(written) =
                guard.try_io(|device| Ok(rustix::io::write(device.get_ref(), packet)?))
            {
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

/// Gives the descriptor away, to pass it to another process: the link lives as long as one copy.
impl From<Tun> for OwnedFd {
    #[expect(
        unsafe_code,
        reason = "the tun crate gives its descriptor away as a number only"
    )]
    fn from(tun: Tun) -> Self {
        match tun.0 {
            // SAFETY: `into_raw_fd` gives up the open descriptor, and nobody else has it.
            Source::Device(device) => unsafe { Self::from_raw_fd(device.into_raw_fd()) },
            Source::Descriptor(descriptor) => descriptor,
        }
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
