//! A link without a kernel: packets pass through a pair of sockets, and a socket on loopback stands
//! for the programs of the machine.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};

use kubebridge_platform::host::Link;
use kubebridge_platform::tun::{Packets, Tun};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::net::UdpSocket;

use crate::netstack::test_util::{datagram, read_datagram};

/// The laptop's address and the resolver's.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 19, 248, 1);
const RESOLVER: Ipv4Addr = Ipv4Addr::new(198, 19, 248, 2);

/// Makes a link, and says where its resolver is asked by UDP.
pub(crate) fn link() -> (Link, SocketAddr) {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (near, far) = socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap();
    let door = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    door.set_nonblocking(true).unwrap();
    let door = UdpSocket::from_std(door).unwrap();
    let asked = door.local_addr().unwrap();
    tokio::spawn(relay(door, Tun::from(near).packets().unwrap()));
    let link = Link {
        name: "kb0".to_owned(),
        index: 7,
        address: ADDRESS,
        address6: None,
        resolver: RESOLVER,
        prefix: 30,
        mtu: 16_000,
        tun: far.into(),
    };
    (link, asked)
}

/// Makes packets of datagrams and datagrams of packets, until the link is closed.
async fn relay(door: UdpSocket, packets: Packets) {
    let resolver = SocketAddr::from((RESOLVER, 53));
    let mut question = vec![0; 65_535];
    let mut packet = vec![0; 65_535];
    loop {
        tokio::select! {
            received = door.recv_from(&mut question) => {
                let (length, peer) = received.unwrap();
                let from = SocketAddr::from((ADDRESS, peer.port()));
                let packet = datagram(from, resolver, &question[..length]);
                if poll_fn(|cx| packets.poll_send(cx, &packet)).await.is_err() {
                    return;
                }
            }
            received = poll_fn(|cx| packets.poll_recv(cx, &mut packet)) => {
                let Ok(length @ 1..) = received else { return };
                let (from, to, answer) = read_datagram(&packet[..length]).unwrap();
                assert_eq!(from, resolver);
                let asker = (Ipv4Addr::LOCALHOST, to.port());
                door.send_to(&answer, asker).await.unwrap();
            }
        }
    }
}
