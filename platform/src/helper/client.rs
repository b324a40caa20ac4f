//! `HelperHost`: the machine, as a session without rights changes it.
//!
//! A call may be dropped half-way, as any of a [`Host`]; the helper does what it was asked, and the
//! next call passes over the answer.

use std::os::fd::OwnedFd;

use rustix::process::Uid;
use tokio::time::timeout;

use super::error::{HelperError, Violation};
use super::frame::{Descriptors, Frame, Frames, encode, is_gone};
use super::message::{Asked, Done, MadeAnew, OpenedLink, Request, Told, VerifiedMachine};
use super::{MESSAGE_TIME, OPERATION_TIME, PROTOCOL};
use crate::claims::Claims;
use crate::host::{Applied, Host, HostError, Link, LinkSpec, Relinked, Undone, Verified};
use crate::intent::Intent;
use crate::recover::Recovered;
use crate::sys::SessionId;

/// This machine, changed by a helper.
#[derive(Debug)]
pub struct HelperHost {
    frames: Frames,
    /// The number of the last question.
    number: u64,
    /// What of questions is not sent yet.
    outgoing: Vec<u8>,
    state: State,
}

/// The number of a question, and what came of it.
type Answer = (u64, Result<Done, HostError>);

/// How the helper stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Working,
    /// It wants to end.
    Ending,
    Gone,
}

impl HelperHost {
    /// Takes the session's end of the socket, and waits until the helper, which must run as `root`,
    /// says that it is there.
    pub async fn start(socket: OwnedFd, root: Uid) -> Result<Self, HelperError> {
        let mut frames = Frames::new(socket, root, Descriptors::Taken)?;
        let frame = frames.receive().await?.ok_or(HelperError::Gone)?;
        match frame.read()? {
            Told::Hello { protocol: PROTOCOL } => Ok(Self {
                frames,
                number: 0,
                outgoing: Vec::new(),
                state: State::Working,
            }),
            Told::Hello { protocol } => Err(HelperError::Version(protocol)),
            Told::Refused(violation) => Err(violation.into()),
            Told::Answer { .. } | Told::Ending => Err(Violation::Order("an answer".into()).into()),
        }
    }

    /// Takes the machine for one session, as [`LocalHost::new`](crate::LocalHost::new) does.
    pub async fn take(&mut self, session: &SessionId) -> Result<(), HostError> {
        let session = session.clone();
        match self.ask(Request::Take { session }).await? {
            (Done::Taken, _) => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Tells whether the helper is known to be gone.
    pub fn is_gone(&self) -> bool {
        self.state == State::Gone
    }

    /// Asks, and waits for the answer.
    async fn ask(&mut self, request: Request) -> Result<(Done, Vec<OwnedFd>), HostError> {
        if self.state == State::Gone {
            return Err(HelperError::Gone.into());
        }
        let number = self.number + 1;
        let asked = encode(&Asked {
            number,
            ask: request,
        })?;
        self.number = number;
        self.outgoing.extend(asked);
        match timeout(MESSAGE_TIME + OPERATION_TIME, self.exchange(number)).await {
            Ok(Ok((outcome, descriptors))) => Ok((outcome?, descriptors)),
            Ok(Err(error)) => {
                self.state = State::Gone;
                Err(error.into())
            }
            Err(_) => {
                self.state = State::Gone;
                Err(HelperError::Silent.into())
            }
        }
    }

    async fn exchange(
        &mut self,
        number: u64,
    ) -> Result<(Result<Done, HostError>, Vec<OwnedFd>), HelperError> {
        while !self.outgoing.is_empty() {
            match self.frames.write(&self.outgoing).await {
                Ok(sent) => drop(self.outgoing.drain(..sent)),
                // It may have said why.
                Err(error) if is_gone(&error) => break,
                Err(error) => return Err(HelperError::Socket(error)),
            }
        }
        loop {
            let frame = self.frames.receive().await?.ok_or(HelperError::Gone)?;
            if let Some((answered, outcome)) = self.answer(&frame)?
                && answered == number
            {
                return Ok((outcome, frame.descriptors));
            }
        }
    }

    /// Reads what the helper says; `None` if it is no answer.
    fn answer(&mut self, frame: &Frame) -> Result<Option<Answer>, HelperError> {
        match frame.read()? {
            Told::Answer { number, outcome } => {
                Ok(Some((number, (*outcome).map_err(HostError::from))))
            }
            Told::Ending => {
                self.state = State::Ending;
                Ok(None)
            }
            Told::Refused(violation) => Err(violation.into()),
            Told::Hello { .. } => Err(Violation::Order("hello".to_owned()).into()),
        }
    }
}

impl Host for HelperHost {
    async fn recover(&mut self) -> Result<Vec<Recovered>, HostError> {
        match self.ask(Request::Recover).await? {
            (Done::Recovered(recovered), _) => Ok(recovered),
            _ => Err(unexpected()),
        }
    }

    async fn claim(&mut self, claims: &Claims) -> Result<(), HostError> {
        match self.ask(Request::Claim(claims.clone())).await? {
            (Done::Claimed, _) => Ok(()),
            _ => Err(unexpected()),
        }
    }

    async fn open(&mut self, spec: &LinkSpec) -> Result<Link, HostError> {
        match self.ask(Request::Open(spec.clone())).await? {
            (Done::Opened(link), descriptors) => link_of(link, descriptors),
            _ => Err(unexpected()),
        }
    }

    async fn apply(&mut self, intent: &Intent) -> Result<Applied, HostError> {
        match self.ask(Request::Apply(intent.clone())).await? {
            (Done::Applied(applied), _) => Ok(applied),
            _ => Err(unexpected()),
        }
    }

    async fn verify(&mut self) -> Verified {
        let verified = match self.ask(Request::Verify).await {
            Ok((Done::Verified(verified), descriptors)) => verified_of(verified, descriptors),
            Ok(_) => Err(unexpected()),
            Err(error) => Err(error),
        };
        verified.unwrap_or_else(|error| Verified {
            troubles: vec![error],
            ..Verified::default()
        })
    }

    async fn undo(&mut self) -> Result<Undone, HostError> {
        match self.ask(Request::Undo).await? {
            (Done::Undone(undone), _) => Ok(undone),
            _ => Err(unexpected()),
        }
    }

    async fn lost(&mut self) {
        while self.state == State::Working {
            let said = match self.frames.receive().await {
                Ok(Some(frame)) => self.answer(&frame).map(drop),
                Ok(None) => Err(HelperError::Gone),
                Err(error) => Err(error),
            };
            if let Err(error) = said {
                tracing::warn!(%error, "the privileged helper is lost");
                self.state = State::Gone;
            }
        }
    }
}

fn link_of(link: OpenedLink, descriptors: Vec<OwnedFd>) -> Result<Link, HostError> {
    let Ok([tun]) = <[OwnedFd; 1]>::try_from(descriptors) else {
        return Err(HelperError::from(Violation::Descriptors).into());
    };
    let OpenedLink {
        name,
        index,
        address,
        address6,
        resolver,
        prefix,
        mtu,
    } = link;
    Ok(Link {
        name,
        index,
        address,
        address6,
        resolver,
        prefix,
        mtu,
        tun: tun.into(),
    })
}

fn verified_of(
    verified: VerifiedMachine,
    mut descriptors: Vec<OwnedFd>,
) -> Result<Verified, HostError> {
    let VerifiedMachine {
        repairs,
        conflicts,
        withheld,
        link,
        troubles,
    } = verified;
    let link = match (link, descriptors.pop()) {
        (Some(MadeAnew { name, index }), Some(tun)) => Some(Relinked {
            name,
            index,
            tun: tun.into(),
        }),
        (None, None) => None,
        _ => return Err(HelperError::from(Violation::Descriptors).into()),
    };
    Ok(Verified {
        repairs,
        conflicts,
        withheld,
        link,
        troubles: troubles.into_iter().map(HostError::from).collect(),
    })
}

fn unexpected() -> HostError {
    HelperError::from(Violation::Order("another operation's answer".to_owned())).into()
}
