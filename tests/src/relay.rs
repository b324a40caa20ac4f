//! A TCP relay from a port on the laptop's loopback to one on the cluster node's: the shape of a
//! port-forward, with a record of every byte that went to the cluster.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use anyhow::{Context, Result, anyhow};
use parking_lot::Mutex;

use crate::machine::{Machine, enter_network};

/// The relay; it ends with the test process.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Relay {
    /// Listens on a free loopback port of `laptop`; connections go to `target` in `node`.
    pub fn start(laptop: &Machine, node: &Machine, target: &'static str) -> Result<Self> {
        let (laptop, node) = (laptop.process(), node.process());
        // The listener stays in the network it was made in, whichever thread accepts.
        let listener = thread::spawn(move || -> Result<TcpListener> {
            enter_network(laptop)?;
            TcpListener::bind("127.0.0.1:0").context("listen on the laptop")
        })
        .join()
        .map_err(|_| anyhow!("the listening thread died"))??;
        let address = listener.local_addr()?;
        let sent = Arc::default();
        let record = Arc::clone(&sent);
        thread::spawn(move || -> Result<()> {
            enter_network(node)?;
            for near in listener.incoming() {
                let near = near?;
                // A refused connection is seen by the laptop as one closed at once.
                if let Ok(far) = TcpStream::connect(target) {
                    join(near, far, &record)?;
                }
            }
            Ok(())
        });
        Ok(Self { address, sent })
    }

    /// Where it listens on the laptop.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether a DNS message with the question or name `name` went to the cluster.
    pub fn carried(&self, name: &str) -> bool {
        let wire: Vec<u8> = name
            .split('.')
            .flat_map(|label| {
                let length = u8::try_from(label.len()).unwrap_or(0);
                std::iter::once(length).chain(label.bytes())
            })
            .chain([0])
            .collect();
        self.sent
            .lock()
            .windows(wire.len())
            .any(|bytes| bytes.eq_ignore_ascii_case(&wire))
    }
}

/// Copies both ways, in two threads that end with the connection.
fn join(near: TcpStream, far: TcpStream, record: &Arc<Mutex<Vec<u8>>>) -> Result<()> {
    // A small write waits for nothing, as in a port-forward.
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_again, far_again) = (near.try_clone()?, far.try_clone()?);
    let record = Arc::clone(record);
    thread::spawn(move || copy(near, far, |bytes| record.lock().extend_from_slice(bytes)));
    thread::spawn(move || copy(far_again, near_again, |_| ()));
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream, seen: impl Fn(&[u8])) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        seen(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
