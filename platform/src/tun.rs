//! The TUN device of a session: created here, or received as a descriptor from the helper.
//!
//! It only makes the device and keeps it alive; addresses are `link.rs`, packets the data plane.
//! A device is never persistent: it is gone, with all that hangs on it, when its owner is.

use std::fmt;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

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
