//! Connections of the kernel's own TCP.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::far::{IN_MEMORY, OCTETS};
use crate::laptop::{FLOWS, Laptop, on_a_laptop, run, soon};

/// An address of the cluster in either family, by its last octet.
fn cluster(is_v4: bool, last: u8) -> IpAddr {
    if is_v4 {
        Ipv4Addr::new(10, 96, 0, last).into()
    } else {
        Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, u16::from(last)).into()
    }
}

/// Listens on the far side and says where the laptop finds it.
async fn listen(is_v4: bool) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, (cluster(is_v4, 1), port).into())
}

/// Opens a connection and returns both ends.
async fn connect(is_v4: bool) -> (TcpStream, TcpStream) {
    let (listener, address) = listen(is_v4).await;
    let near = soon("the connection", TcpStream::connect(address)).await;
    let (far, _) = soon("the dial", listener.accept()).await.unwrap();
    (near.unwrap(), far)
}

async fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let read = stream.read_to_end(&mut all);
    soon("the end", read).await.unwrap();
    all
}

#[test]
fn f8_connections_carry_octets_both_ways_in_either_family() {
    let test = "tcp::f8_connections_carry_octets_both_ways_in_either_family";
    on_a_laptop(test, async |_laptop| {
        for is_v4 in [true, false] {
            let (mut near, mut far) = connect(is_v4).await;
            near.write_all(b"to the cluster").await.unwrap();
            let mut heard = [0; 14];
            soon("octets up", far.read_exact(&mut heard)).await.unwrap();
            far.write_all(b"to the laptop").await.unwrap();
            far.shutdown().await.unwrap();
            let all = read_all(&mut near).await;
            drop(near);
            let end = read_all(&mut far).await;

            assert_eq!(&heard, b"to the cluster");
            assert_eq!(all, b"to the laptop");
            assert_eq!(end, b"");
        }
    });
}

#[test]
fn f1_what_the_far_end_said_is_what_connect_says() {
    let test = "tcp::f1_what_the_far_end_said_is_what_connect_says";
    on_a_laptop(test, async |_laptop| {
        for is_v4 in [true, false] {
            let prohibited = if is_v4 {
                ErrorKind::HostUnreachable
            } else {
                ErrorKind::PermissionDenied
            };
            for (last, expected) in [
                (1, ErrorKind::ConnectionRefused),
                (0xf1, ErrorKind::HostUnreachable),
                (0xf2, ErrorKind::NetworkUnreachable),
                (0xf3, prohibited),
                (0xf5, ErrorKind::ConnectionRefused),
            ] {
                let connecting = TcpStream::connect((cluster(is_v4, last), 9));
                let error = soon("the refusal", connecting).await.unwrap_err();

                assert_eq!(error.kind(), expected, "{last:#x}: {error}");
            }
        }
    });
}

#[test]
fn f1_addresses_the_cluster_does_not_have_are_unreachable_and_not_dialled() {
    let test = "tcp::f1_addresses_the_cluster_does_not_have_are_unreachable_and_not_dialled";
    on_a_laptop(test, async |laptop| {
        for address in ["10.97.0.1:80", "[fd00:96:1::1]:80"] {
            let connecting = TcpStream::connect(address);
            let error = soon("the refusal", connecting).await.unwrap_err();

            assert_eq!(error.kind(), ErrorKind::HostUnreachable, "{address}");
        }
        assert!(laptop.far.dialled.borrow().is_empty());
    });
}

#[test]
fn f1_a_silent_far_end_is_left_to_the_programs_own_clock() {
    let test = "tcp::f1_a_silent_far_end_is_left_to_the_programs_own_clock";
    on_a_laptop(test, async |laptop| {
        let mut dialled = laptop.far.dialled.subscribe();
        let connecting = TcpStream::connect((cluster(true, 0xf4), 80));

        // The kernel asks again, and nothing but that happens.
        let again = dialled.wait_for(|dialled| dialled.len() >= 2);
        tokio::select! {
            biased;
            outcome = connecting => panic!("{outcome:?}"),
            again = soon("another SYN", again) => drop(again.unwrap()),
        }
    });
}

#[test]
fn f2_either_side_may_finish_first_and_go_on_reading() {
    let test = "tcp::f2_either_side_may_finish_first_and_go_on_reading";
    on_a_laptop(test, async |_laptop| {
        let (mut near, mut far) = connect(true).await;
        near.write_all(b"question").await.unwrap();
        near.shutdown().await.unwrap();
        assert_eq!(read_all(&mut far).await, b"question");
        far.write_all(b"answer").await.unwrap();
        drop(far);
        assert_eq!(read_all(&mut near).await, b"answer");

        let (mut near, mut far) = connect(true).await;
        far.write_all(b"greeting").await.unwrap();
        far.shutdown().await.unwrap();
        assert_eq!(read_all(&mut near).await, b"greeting");
        near.write_all(b"thanks").await.unwrap();
        drop(near);
        assert_eq!(read_all(&mut far).await, b"thanks");
    });
}

#[test]
fn f2_both_sides_may_finish_at_once() {
    on_a_laptop("tcp::f2_both_sides_may_finish_at_once", async |laptop| {
        for _ in 0..50 {
            let (mut near, mut far) = connect(true).await;
            let (one, other) = tokio::join!(near.shutdown(), far.shutdown());
            one.unwrap();
            other.unwrap();
            assert_eq!(read_all(&mut near).await, b"");
            assert_eq!(read_all(&mut far).await, b"");
        }
        flows_end(&laptop).await;
    });
}

#[test]
fn f2_resets_are_carried_both_ways() {
    on_a_laptop("tcp::f2_resets_are_carried_both_ways", async |_laptop| {
        let (mut near, far) = connect(true).await;
        far.set_zero_linger().unwrap();
        drop(far);
        let error = soon("the reset", near.read(&mut [0])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);

        let (near, mut far) = connect(true).await;
        near.set_zero_linger().unwrap();
        drop(near);
        let error = soon("the reset", far.read(&mut [0])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn f2_octets_written_one_at_a_time_and_a_reader_that_stalls_lose_nothing() {
    let test = "tcp::f2_octets_written_one_at_a_time_and_a_reader_that_stalls_lose_nothing";
    on_a_laptop(test, async |_laptop| {
        let (mut near, mut far) = connect(true).await;
        far.set_nodelay(true).unwrap();
        let single: Vec<u8> = (0..500).map(|number| number as u8).collect();
        for octet in &single {
            far.write_all(&[*octet]).await.unwrap();
        }
        // Nobody reads at the laptop, until nothing more fits anywhere on the way.
        let block = vec![7; 64 * 1024];
        let mut stalled = 0;
        let mut quiet = 0;
        while quiet < 200 {
            match far.try_write(&block) {
                Ok(written) => (stalled, quiet) = (stalled + written, 0),
                Err(_) => {
                    quiet += 1;
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            }
        }
        far.shutdown().await.unwrap();

        let all = read_all(&mut near).await;

        assert_eq!(all.len(), single.len() + stalled);
        assert_eq!(all[..500], single);
        assert!(all[500..].iter().all(|octet| *octet == 7));
    });
}

#[test]
fn f2_a_flow_over_the_bound_is_reset_and_ended_flows_make_room() {
    let test = "tcp::f2_a_flow_over_the_bound_is_reset_and_ended_flows_make_room";
    on_a_laptop(test, async |laptop| {
        let (listener, address) = listen(true).await;
        let mut open = Vec::new();
        for _ in 0..FLOWS {
            let near = soon("a connection", TcpStream::connect(address)).await;
            open.push((near.unwrap(), listener.accept().await.unwrap()));
        }

        let error = soon("the reset", TcpStream::connect(address)).await;
        let error = error.unwrap_err();
        drop(open);
        flows_end(&laptop).await;

        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        soon("a connection", TcpStream::connect(address))
            .await
            .unwrap();
    });
}

#[test]
fn f12_no_octet_is_sent_to_the_laptop_twice() {
    let test = "tcp::f12_no_octet_is_sent_to_the_laptop_twice";
    on_a_laptop(test, async |_laptop| {
        let transfers = (0..4).map(|port| async move {
            let near = TcpStream::connect((IN_MEMORY, 1000 + port)).await.unwrap();
            let (mut read, mut write) = near.into_split();
            let sending = async move {
                let mut pattern = tokio::io::repeat(9).take(OCTETS as u64);
                tokio::io::copy(&mut pattern, &mut write).await.unwrap();
                write.shutdown().await.unwrap();
            };
            let mut sink = tokio::io::sink();
            let (received, ()) = tokio::join!(tokio::io::copy(&mut read, &mut sink), sending);
            assert_eq!(received.unwrap(), OCTETS as u64);
        });
        soon("all octets", futures::future::join_all(transfers)).await;

        let duplicates = counter("TCPDSACKOldSent");

        // A timer may fire on a machine that stood still; retransmission as a habit may not be.
        let segments = 4 * OCTETS as u64 / 16_000;
        assert!(duplicates <= segments / 100, "{duplicates} of {segments}");
    });
}

#[test]
fn programs_are_told_when_the_session_ends() {
    let test = "tcp::programs_are_told_when_the_session_ends";
    on_a_laptop(test, async |laptop| {
        let (mut near, _far) = connect(true).await;

        laptop.netstack.stop().await;

        let error = soon("the reset", near.read(&mut [0])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

/// Waits until the terminator has no flow.
async fn flows_end(laptop: &Laptop) {
    let ended = async {
        while laptop.netstack.counts().status().flows > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    soon("the end of all flows", ended).await;
}

/// Returns one of the kernel's extended TCP counters.
fn counter(name: &str) -> u64 {
    let text = run("grep TcpExt: /proc/net/netstat");
    let mut lines = text.lines().map(|line| line.split_whitespace());
    let (names, mut values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.into_iter().position(|found| found == name).unwrap();
    values.nth(place).unwrap().parse().unwrap()
}
