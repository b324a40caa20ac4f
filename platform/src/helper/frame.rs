//! Messages on a unix stream socket: four octets of length, JSON, descriptors beside the first octet.
//!
//! The kernel says of each piece which user sent it; a piece of another user, or one with
//! descriptors that are not expected, ends the conversation. Knows nothing of what is said.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, sockopt,
};
use rustix::process::Uid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::error::{HelperError, Violation};
use super::{MAX_DESCRIPTORS, MAX_MESSAGE, MESSAGE_TIME};

/// The octets of a message's length.
const HEADER: usize = 4;

/// How much is read at a time: a message that never comes takes no more memory than it has sent.
const PIECE: usize = 64 * 1024;

/// What a sender's name takes in the control buffer, and the most descriptors with it.
const NAME_SPACE: usize = rustix::cmsg_space!(ScmCredentials(1));
const CONTROL_SPACE: usize = rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS), ScmCredentials(1));

/// Whether descriptors may come beside a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Descriptors {
    /// They are a breach of the rules.
    Refused,
    /// As many as [`MAX_DESCRIPTORS`].
    Taken,
}

/// A socket with messages.
#[derive(Debug)]
pub(super) struct Frames {
    stream: UnixStream,
    peer: Uid,
    descriptors: Descriptors,
    /// What has come of the next message, with its length before it.
    coming: Vec<u8>,
    beside: Vec<OwnedFd>,
}

/// One message.
#[derive(Debug)]
pub(super) struct Frame {
    json: Vec<u8>,
    /// What came beside it.
    pub(super) descriptors: Vec<OwnedFd>,
}

impl Frame {
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, HelperError> {
        let malformed = |error: serde_json::Error| Violation::Malformed(error.to_string());
        serde_json::from_slice(&self.json).map_err(|error| malformed(error).into())
    }
}

impl From<Violation> for HelperError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl Frames {
    /// Takes a socket whose messages are to be of `peer` alone.
    pub(super) fn new(
        socket: OwnedFd,
        peer: Uid,
        descriptors: Descriptors,
    ) -> Result<Self, HelperError> {
        let made = (|| {
            sockopt::set_socket_passcred(&socket, true)?;
            let stream = std::os::unix::net::UnixStream::from(socket);
            stream.set_nonblocking(true)?;
            UnixStream::from_std(stream)
        })();
        Ok(Self {
            stream: made.map_err(HelperError::Socket)?,
            peer,
            descriptors,
            coming: Vec::new(),
            beside: Vec::new(),
        })
    }

    /// Fails unless the socket was made by the user whose messages are taken.
    pub(super) fn check_maker(&self) -> Result<(), HelperError> {
        let maker = sockopt::socket_peercred(&self.stream)
            .map_err(|errno| HelperError::Socket(errno.into()))?;
        self.check_user(maker.uid)
    }

    fn check_user(&self, user: Uid) -> Result<(), HelperError> {
        if user == self.peer {
            return Ok(());
        }
        Err(Violation::User {
            expected: self.peer.as_raw(),
            found: user.as_raw(),
        }
        .into())
    }

    /// Waits for a message, as long as it takes, and for the rest of one that has begun; `None` when
    /// the other side is gone. May be dropped and called again.
    pub(super) async fn receive(&mut self) -> Result<Option<Frame>, HelperError> {
        if self.coming.is_empty() && !self.more(HEADER).await? {
            return Ok(None);
        }
        match timeout(MESSAGE_TIME, self.rest()).await {
            Ok(frame) => frame.map(Some),
            Err(_) => Err(Violation::Slow.into()),
        }
    }

    async fn rest(&mut self) -> Result<Frame, HelperError> {
        loop {
            let missing = match self.coming.first_chunk::<HEADER>() {
                None => HEADER - self.coming.len(),
                Some(length) => {
                    let length = u32::from_be_bytes(*length) as usize;
                    if length > MAX_MESSAGE {
                        return Err(Violation::Oversized(length as u64).into());
                    }
                    HEADER + length - self.coming.len()
                }
            };
            if missing == 0 {
                let mut json = std::mem::take(&mut self.coming);
                json.drain(..HEADER);
                let descriptors = std::mem::take(&mut self.beside);
                return Ok(Frame { json, descriptors });
            }
            if !self.more(missing).await? {
                return Err(Violation::Truncated.into());
            }
        }
    }

    /// Reads one piece, of at most so many octets; `false` at the end.
    async fn more(&mut self, most: usize) -> Result<bool, HelperError> {
        let mut piece = vec![0; most.min(PIECE)];
        let descriptors = self.descriptors;
        let read = self.stream.async_io(Interest::READABLE, || {
            receive(&self.stream, &mut piece, descriptors)
        });
        let Piece {
            length,
            user,
            beside,
            cut,
        } = match read.await {
            Ok(piece) => piece,
            Err(error) if is_gone(&error) => return Ok(false),
            Err(error) => return Err(HelperError::Socket(error)),
        };
        if length == 0 {
            return Ok(false);
        }
        self.check_user(user.unwrap_or_else(|| Uid::from_raw(OVERFLOW_USER)))?;
        self.beside.extend(beside);
        if cut || self.beside.len() > MAX_DESCRIPTORS {
            return Err(Violation::Descriptors.into());
        }
        self.coming.extend_from_slice(&piece[..length]);
        Ok(true)
    }

    /// Sends a message, with descriptors beside it.
    pub(super) async fn send<T: Serialize>(
        &mut self,
        message: &T,
        beside: &[BorrowedFd<'_>],
    ) -> Result<(), HelperError> {
        let bytes = encode(message)?;
        let sending = async {
            let mut sent = self
                .stream
                .async_io(Interest::WRITABLE, || send(&self.stream, &bytes, beside))
                .await?;
            while sent < bytes.len() {
                sent += self.write(&bytes[sent..]).await?;
            }
            Ok(())
        };
        match timeout(MESSAGE_TIME, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if is_gone(&error) => Err(HelperError::Gone),
            Ok(Err(error)) => Err(HelperError::Socket(error)),
            Err(_) => Err(HelperError::Silent),
        }
    }

    /// Writes some of these octets; may be dropped, then none are written.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.stream.writable().await?;
            match self.stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return written,
            }
        }
    }

    /// Says that nothing more will be sent.
    pub(super) async fn close(&mut self) {
        // The other side may be gone.
        let _ = self.stream.shutdown().await;
    }
}

/// Whom the kernel names where it does not know who sent something.
const OVERFLOW_USER: u32 = 65_534;

/// A message as it is sent.
pub(super) fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, HelperError> {
    let mut bytes = vec![0; HEADER];
    serde_json::to_writer(&mut bytes, message).map_err(HelperError::Encode)?;
    let length = bytes.len() - HEADER;
    match u32::try_from(length) {
        Ok(short) if length <= MAX_MESSAGE => bytes[..HEADER].copy_from_slice(&short.to_be_bytes()),
        _ => return Err(HelperError::TooLong(length)),
    }
    Ok(bytes)
}

pub(super) fn is_gone(error: &io::Error) -> bool {
    [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset].contains(&error.kind())
}

/// What one read gave.
struct Piece {
    length: usize,
    user: Option<Uid>,
    beside: Vec<OwnedFd>,
    /// Whether there was more beside it than there was room for.
    cut: bool,
}

fn receive(socket: impl AsFd, into: &mut [u8], descriptors: Descriptors) -> io::Result<Piece> {
    let mut space = [MaybeUninit::uninit(); CONTROL_SPACE];
    let room = match descriptors {
        Descriptors::Refused => NAME_SPACE,
        Descriptors::Taken => CONTROL_SPACE,
    };
    let mut control = RecvAncillaryBuffer::new(&mut space[..room]);
    let read = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(into)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    )?;
    let mut piece = Piece {
        length: read.bytes,
        user: None,
        beside: Vec::new(),
        cut: read.flags.contains(ReturnFlags::CTRUNC),
    };
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmCredentials(name) => piece.user = Some(name.uid),
            RecvAncillaryMessage::ScmRights(descriptors) => piece.beside.extend(descriptors),
            _ => {}
        }
    }
    Ok(piece)
}

fn send(socket: impl AsFd, bytes: &[u8], beside: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); CONTROL_SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !beside.is_empty() && !control.push(SendAncillaryMessage::ScmRights(beside)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::net::sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        flags,
    )?)
}
