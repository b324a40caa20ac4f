//! The link as a flow's machine sees it: at most one packet in, and the outbox.

use smoltcp::phy::{
    Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken,
};
use smoltcp::time::Instant as StackInstant;

use super::outbox::Outbox;

/// What a link of this MTU is like.
pub(super) fn capabilities(mtu: usize) -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ip;
    capabilities.max_transmission_unit = mtu;
    // What the kernel gives us never crossed a wire.
    let mut checksum = ChecksumCapabilities::ignored();
    checksum.ipv4 = Checksum::Tx;
    checksum.tcp = Checksum::Tx;
    capabilities.checksum = checksum;
    capabilities
}

/// The device a machine sees during one call.
pub(super) struct Wire<'a> {
    /// The packet that is received.
    pub(super) incoming: Option<&'a [u8]>,
    /// Where packets are sent to.
    pub(super) out: &'a mut Outbox,
    pub(super) capabilities: &'a DeviceCapabilities,
}

pub(super) struct Received<'a>(&'a [u8]);

pub(super) struct Sending<'a>(&'a mut Outbox);

impl Device for Wire<'_> {
    type RxToken<'b>
        = Received<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Sending<'b>
    where
        Self: 'b;

    fn receive(&mut self, _: StackInstant) -> Option<(Received<'_>, Sending<'_>)> {
        let packet = self.incoming.take()?;
        Some((Received(packet), Sending(self.out)))
    }

    fn transmit(&mut self, _: StackInstant) -> Option<Sending<'_>> {
        (!self.out.is_full()).then_some(Sending(self.out))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities.clone()
    }
}

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, work: F) -> R {
        work(self.0)
    }
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, work: F) -> R {
        self.0.write(length, work)
    }
}
