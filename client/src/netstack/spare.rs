//! Sockets of flows that are over, kept to be used again.
//!
//! Their buffers are memory of the system's own, asked for and given back at each flow: what that
//! costs is felt where connections are opened all the time. Only sockets are kept whose buffers
//! are hardly in memory, so that what is kept is little.

use parking_lot::Mutex;
use smoltcp::socket::tcp::{Socket, SocketBuffer};

/// What a flow holds on its way in and out: enough for 1 Gbit/s at a millisecond between kernel
/// and stream. Pages are only used once data has been in them.
pub(super) const BUFFER: usize = 128 * 1024;

/// How many are kept: as many as are opened at once by a busy program.
const SPARE: usize = 64;

/// A flow that has moved more than this has used too much memory for its socket to be kept.
const LITTLE: usize = 16 * 1024;

/// The sockets.
#[derive(Debug, Default)]
pub(super) struct Spare {
    sockets: Mutex<Vec<Socket<'static>>>,
}

impl Spare {
    /// Returns a closed socket.
    pub(super) fn take(&self) -> Socket<'static> {
        let kept = self.sockets.lock().pop();
        kept.unwrap_or_else(|| {
            let buffer = || SocketBuffer::new(vec![0; BUFFER]);
            Socket::new(buffer(), buffer())
        })
    }

    /// Keeps the socket of a flow that has moved so many octets, if it is worth it.
    pub(super) fn keep(&self, mut socket: Socket<'static>, moved: usize) {
        if moved > LITTLE {
            return;
        }
        socket.abort();
        let mut sockets = self.sockets.lock();
        if sockets.len() < SPARE {
            sockets.push(socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_that_moved_little_are_kept_up_to_a_number() {
        let spare = Spare::default();
        let sockets: Vec<_> = (0..=SPARE).map(|_| spare.take()).collect();
        for socket in sockets {
            spare.keep(socket, LITTLE);
        }
        assert_eq!(spare.sockets.lock().len(), SPARE);
        spare.take();
        spare.keep(spare.take(), LITTLE + 1);
        assert_eq!(spare.sockets.lock().len(), SPARE - 2);
    }
}
