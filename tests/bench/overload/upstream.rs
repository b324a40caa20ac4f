//! An upstream that knows a few names and keeps silent about all others.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;

/// What the first label of a known name begins with.
const KNOWN: &[u8] = b"known";
/// How long its answers may be kept: for longer than the program runs.
const TTL: u32 = 3600;

/// A running upstream; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    ended: Arc<AtomicBool>,
    answering: Option<JoinHandle<()>>,
}

/// The name of this number that the upstream knows.
pub(crate) fn known(number: usize) -> String {
    format!("known{number}.default.svc.cluster.local")
}

impl Upstream {
    pub(crate) fn start() -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let address = socket.local_addr()?;
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        let answering = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while !stop.load(Ordering::Acquire) {
                if let Ok((length, peer)) = socket.recv_from(&mut buffer)
                    && let Some(reply) = reply(&buffer[..length])
                {
                    // The manager may have closed the socket.
                    let _ = socket.send_to(&reply, peer);
                }
            }
        });
        Ok(Self {
            address,
            ended,
            answering: Some(answering),
        })
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(answering) = self.answering.take() {
            let _ = answering.join();
        }
    }
}

/// Answers a query for a known name with one address.
fn reply(query: &[u8]) -> Option<Vec<u8>> {
    let name = query.get(12..)?;
    let is_known = name.get(1..)?.to_ascii_lowercase().starts_with(KNOWN);
    let end = 12 + name.iter().position(|octet| *octet == 0)? + 1 + 4;
    let question = query.get(12..end).filter(|_| is_known)?;
    let mut reply = query[..2].to_vec();
    // A response, recursion desired and available; one question, one answer.
    reply.extend([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
    reply.extend_from_slice(question);
    reply.extend([0xc0, 12, 0, 1, 0, 1]);
    reply.extend(TTL.to_be_bytes());
    reply.extend([0, 4, 10, 96, 0, 1]);
    Some(reply)
}
