//! A TCP relay from a port on the laptop's loopback to one on the cluster node's: the shape of a
//! port-forward, with a record of every byte that went to the cluster.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use parking_lot::Mutex;

use crate::machine::{Machine, enter_network};

/// Bytes kept of what went to the cluster.
const RECORD: usize = 64 * 1024 * 1024;

/// The relay; it ends with the test process.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    sent: Arc<Mutex<Vec<u8>>>,
    pairs: Arc<Mutex<Vec<Pair>>>,
}

/// One connection: both of its ends, and whether bytes go through.
#[derive(Debug)]
struct Pair {
    near: TcpStream,
    far: TcpStream,
    is_frozen: Arc<AtomicBool>,
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
        let pairs = Arc::default();
        let (record, all) = (Arc::clone(&sent), Arc::clone(&pairs));
        thread::spawn(move || -> Result<()> {
            enter_network(node)?;
            for near in listener.incoming() {
                let near = near?;
                // A refused connection is seen by the laptop as one closed at once.
                if let Ok(far) = TcpStream::connect(target) {
                    join(near, far, &record, &all)?;
                }
            }
            Ok(())
        });
        Ok(Self {
            address,
            sent,
            pairs,
        })
    }

    /// Where it listens on the laptop.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks every connection there is: both ends see a reset. Gives how many those were.
    pub fn cut(&self) -> usize {
        let pairs = std::mem::take(&mut *self.pairs.lock());
        let alive = pairs.iter().filter(|pair| pair.near.peer_addr().is_ok());
        let count = alive.count();
        for pair in &pairs {
            // Neither thread says goodbye: the last copy of a socket that is closed resets it.
            pair.is_frozen.store(true, Ordering::Release);
            for end in [&pair.near, &pair.far] {
                let _ = rustix::net::sockopt::set_socket_linger(end, Some(Duration::ZERO));
                let _ = end.shutdown(Shutdown::Read);
            }
        }
        count
    }

    /// Lets nothing through any more on the connections there are, which stay open: what goes in
    /// is lost, as where a path has died. New ones are not concerned. Gives how many those were.
    pub fn freeze(&self) -> usize {
        let pairs = self.pairs.lock();
        for pair in pairs.iter() {
            pair.is_frozen.store(true, Ordering::Release);
        }
        pairs.len()
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
fn join(
    near: TcpStream,
    far: TcpStream,
    record: &Arc<Mutex<Vec<u8>>>,
    pairs: &Mutex<Vec<Pair>>,
) -> Result<()> {
    // A small write waits for nothing, as in a port-forward.
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_again, far_again) = (near.try_clone()?, far.try_clone()?);
    let is_frozen = Arc::new(AtomicBool::new(false));
    pairs.lock().push(Pair {
        near: near.try_clone()?,
        far: far.try_clone()?,
        is_frozen: Arc::clone(&is_frozen),
    });
    let (record, frozen) = (Arc::clone(record), Arc::clone(&is_frozen));
    thread::spawn(move || {
        copy(near, far, &frozen, |bytes| {
            let mut record = record.lock();
            // The beginning is enough for those who look for names in it.
            if record.len() < RECORD {
                record.extend_from_slice(bytes);
            }
        });
    });
    thread::spawn(move || copy(far_again, near_again, &is_frozen, |_| ()));
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream, is_frozen: &AtomicBool, seen: impl Fn(&[u8])) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if is_frozen.load(Ordering::Acquire) {
            continue;
        }
        seen(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // Of a dead path not even the end is heard.
    if !is_frozen.load(Ordering::Acquire) {
        let _ = to.shutdown(Shutdown::Write);
    }
}
