//! A laptop's TCP: single segments by hand, and a whole one that is another smoltcp.

use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{DeviceCapabilities, Medium};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant as StackInstant;
use smoltcp::wire::{
    HardwareAddress, IpAddress, IpCidr, IpEndpoint, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
};
use tokio::time::Instant;

use super::super::packet::Protocol;
use super::*;

/// Builds a segment.
fn segment(from: &str, to: &str, control: TcpControl, numbers: (i32, Option<i32>)) -> Vec<u8> {
    let (from, to) = (at(from), at(to));
    let payload: &[u8] = match control {
        TcpControl::Psh => b"x",
        _ => b"",
    };
    let repr = TcpRepr {
        src_port: from.port(),
        dst_port: to.port(),
        control,
        seq_number: TcpSeqNumber(numbers.0),
        ack_number: numbers.1.map(TcpSeqNumber),
        window_len: 60_000,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload,
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(
        &mut TcpPacket::new_unchecked(&mut bytes[..]),
        &from.ip().into(),
        &to.ip().into(),
        &smoltcp::phy::ChecksumCapabilities::default(),
    );
    replies::packet(from.ip(), to.ip(), Protocol::Tcp, &bytes)
}

/// Builds a SYN.
pub(super) fn syn(from: &str, to: &str, number: i32) -> Vec<u8> {
    segment(from, to, TcpControl::Syn, (number, None))
}

/// Builds a segment of one octet, an `x`.
pub(super) fn data(from: &str, to: &str, number: i32, confirmed: i32) -> Vec<u8> {
    segment(from, to, TcpControl::Psh, (number, Some(confirmed)))
}

/// Builds a segment that only confirms.
pub(super) fn confirming(from: &str, to: &str, number: i32, confirmed: i32) -> Vec<u8> {
    segment(from, to, TcpControl::None, (number, Some(confirmed)))
}

/// Builds an end.
pub(super) fn end(from: &str, to: &str, number: i32, confirmed: i32) -> Vec<u8> {
    segment(from, to, TcpControl::Fin, (number, Some(confirmed)))
}

/// Builds a reset.
pub(super) fn reset(from: &str, to: &str, number: i32) -> Vec<u8> {
    segment(from, to, TcpControl::Rst, (number, None))
}

/// A laptop with one connection.
pub(super) struct Laptop {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    start: Instant,
}

struct Wire {
    device: Device,
    incoming: Option<Vec<u8>>,
}

impl Laptop {
    /// Begins a connection.
    pub(super) fn connect(device: Device, from: &str, to: &str) -> Self {
        let mut wire = Wire {
            device,
            incoming: None,
        };
        let config = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut wire, StackInstant::ZERO);
        let (from, to) = (at(from), at(to));
        interface.update_ip_addrs(|addresses| {
            let own = IpCidr::new(IpAddress::from(from.ip()), 30);
            addresses.push(own).unwrap();
        });
        let buffer = || SocketBuffer::new(vec![0; 64 * 1024]);
        let mut socket = Socket::new(buffer(), buffer());
        let far = IpEndpoint::from(to);
        socket
            .connect(interface.context(), far, from.port())
            .unwrap();
        let mut sockets = SocketSet::new(Vec::new());
        sockets.add(socket);
        Self {
            wire,
            interface,
            sockets,
            start: Instant::now(),
        }
    }

    /// Sends all octets and its end, and returns what came until the other end.
    pub(super) async fn exchange(&mut self, octets: &[u8]) -> Vec<u8> {
        let (mut sent, mut heard) = (0, Vec::new());
        loop {
            let time = self.start.elapsed().as_micros() as i64;
            let now = StackInstant::from_micros(time);
            self.interface.poll(now, &mut self.wire, &mut self.sockets);
            let (_, socket) = self.sockets.iter_mut().next().unwrap();
            let smoltcp::socket::Socket::Tcp(socket) = socket;
            if socket.can_send() && sent < octets.len() {
                sent += socket.send_slice(&octets[sent..]).unwrap();
                if sent == octets.len() {
                    socket.close();
                }
                continue;
            }
            while socket.can_recv() {
                socket
                    .recv(|piece| {
                        heard.extend_from_slice(piece);
                        (piece.len(), ())
                    })
                    .unwrap();
            }
            if matches!(socket.state(), State::TimeWait | State::Closed) {
                return heard;
            }
            let wait = self.interface.poll_delay(now, &self.sockets);
            let wait = wait.map_or(Duration::from_secs(60), Duration::from);
            let received = tokio::time::timeout(wait, self.wire.device.receive.recv()).await;
            self.wire.incoming = received.ok().flatten();
        }
    }
}

impl smoltcp::phy::Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending;

    fn receive(&mut self, _: StackInstant) -> Option<(Received, Sending)> {
        let packet = self.incoming.take()?;
        Some((Received(packet), Sending(self.device.send.clone())))
    }

    fn transmit(&mut self, _: StackInstant) -> Option<Sending> {
        Some(Sending(self.device.send.clone()))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        capabilities
    }
}

struct Received(Vec<u8>);

struct Sending(mpsc::Sender<Vec<u8>>);

impl smoltcp::phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, work: F) -> R {
        work(&self.0)
    }
}

impl smoltcp::phy::TxToken for Sending {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, work: F) -> R {
        let mut packet = vec![0; length];
        let result = work(&mut packet);
        // What does not fit is lost, as on a real link.
        let _ = self.0.try_send(packet);
        result
    }
}
