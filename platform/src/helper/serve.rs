//! The helper's side: takes questions one by one, and undoes everything at the end.
//!
//! It reads nothing but the socket and the machine. What may be done to the machine is decided where
//! it is done ([`LocalHost`]); here is decided who may ask, and in which order.

use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use rustix::process::Uid;
use tokio::time::{sleep, timeout};

use super::PROTOCOL;
use super::error::{HelperError, Trouble, Violation};
use super::frame::{Descriptors, Frame, Frames};
use super::message::{Asked, Done, MadeAnew, OpenedLink, Request, Told, VerifiedMachine};
use crate::host::{Host, HostError, Link, Verified};
use crate::local::LocalHost;
use crate::recover::recover;
use crate::sys::Sys;

/// How long a session may take to end by itself when the helper is told to end: its resolver
/// answers on for 6 s.
const GRACE: Duration = Duration::from_secs(15);

/// How often taking back is tried when nobody is left to be told, and the pause between.
const UNDO_TRIES: u32 = 3;
const UNDO_PAUSE: Duration = Duration::from_millis(200);

/// Serves one session of the user `peer` on `socket` until it is gone, then takes back everything.
///
/// `told_to_end` is what ends the helper while the session lives: the session is given time to end
/// first.
pub async fn serve(
    socket: OwnedFd,
    sys: Sys,
    peer: Uid,
    told_to_end: impl Future<Output = ()>,
) -> Result<(), HelperError> {
    let mut helper = Helper {
        frames: Frames::new(socket, peer, Descriptors::Refused)?,
        sys,
        stage: Stage::New,
        number: 0,
    };
    let outcome = helper.until_end(told_to_end).await;
    let undone = helper.undo_all().await;
    if let Err(HelperError::Violation(violation)) = &outcome {
        // Whoever broke the rules may not read, either.
        let refused = Told::Refused(violation.clone());
        let _ = helper.frames.send(&refused, &[]).await;
    }
    helper.frames.close().await;
    outcome.and(undone)
}

struct Helper {
    frames: Frames,
    sys: Sys,
    stage: Stage,
    /// The number of the last question.
    number: u64,
}

/// What was done so far.
enum Stage {
    /// Nothing.
    New,
    /// The machine was taken, and a link opened or not yet.
    Taken {
        host: Box<LocalHost>,
        has_link: bool,
    },
    /// Everything was taken back.
    Over,
}

impl Stage {
    fn host(&mut self) -> Option<&mut LocalHost> {
        match self {
            Self::Taken { host, .. } => Some(host),
            Self::New | Self::Over => None,
        }
    }

    /// Whether an operation may come now.
    fn admits(&self, request: &Request) -> bool {
        match (self, request) {
            (Self::New, Request::Take { .. } | Request::Recover) => true,
            (Self::Taken { has_link, .. }, Request::Recover) => !has_link,
            (
                Self::Taken { .. },
                Request::Claim(_)
                | Request::Open(_)
                | Request::Apply(_)
                | Request::Verify
                | Request::Undo,
            ) => true,
            (Self::New | Self::Taken { .. } | Self::Over, _) => false,
        }
    }
}

impl Helper {
    async fn until_end(
        &mut self,
        told_to_end: impl Future<Output = ()>,
    ) -> Result<(), HelperError> {
        self.frames.check_maker()?;
        let hello = Told::Hello { protocol: PROTOCOL };
        self.frames.send(&hello, &[]).await?;
        tokio::pin!(told_to_end);
        loop {
            let frame = tokio::select! {
                frame = self.frames.receive() => frame?,
                () = &mut told_to_end => break,
            };
            match frame {
                Some(frame) => self.attend(&frame).await?,
                None => return Ok(()),
            }
        }
        self.frames.send(&Told::Ending, &[]).await?;
        let last = async {
            while let Some(frame) = self.frames.receive().await? {
                self.attend(&frame).await?;
            }
            Ok(())
        };
        // A session that does not end in time has had its chance.
        timeout(GRACE, last).await.unwrap_or(Ok(()))
    }

    /// Does what one message asks, and answers.
    async fn attend(&mut self, frame: &Frame) -> Result<(), HelperError> {
        let Asked { number, ask } = frame.read::<Asked>()?;
        let expected = self.number + 1;
        if number != expected {
            return Err(Violation::Number {
                expected,
                found: number,
            }
            .into());
        }
        if !self.stage.admits(&ask) {
            return Err(Violation::Order(ask.label().to_owned()).into());
        }
        self.number = number;
        // A panic is an error like any other: the journal knows what was done.
        let done = AssertUnwindSafe(self.carry_out(ask)).catch_unwind().await;
        let (outcome, beside) = match done.unwrap_or(Err(HostError::Worker)) {
            Ok((done, beside)) => (Ok(done), beside),
            Err(error) => (Err(Trouble::from(error)), Vec::new()),
        };
        let beside: Vec<BorrowedFd<'_>> = beside.iter().map(AsFd::as_fd).collect();
        let outcome = Box::new(outcome);
        let answer = Told::Answer { number, outcome };
        self.frames.send(&answer, &beside).await
    }

    async fn carry_out(&mut self, request: Request) -> Result<(Done, Vec<OwnedFd>), HostError> {
        let alone = |done| (done, Vec::new());
        if let Request::Take { session } = request {
            let host = LocalHost::new(self.sys.clone(), session)?;
            self.stage = Stage::Taken {
                host: Box::new(host),
                has_link: false,
            };
            return Ok(alone(Done::Taken));
        }
        let Stage::Taken { host, has_link } = &mut self.stage else {
            // Only to repair, for nobody's session.
            return Ok(alone(Done::Recovered(recover(&self.sys).await?)));
        };
        Ok(match request {
            Request::Recover => alone(Done::Recovered(host.recover().await?)),
            Request::Claim(claims) => {
                host.claim(&claims).await?;
                alone(Done::Claimed)
            }
            Request::Open(spec) => {
                *has_link = true;
                let (link, beside) = opened(host.open(&spec).await?);
                (Done::Opened(link), beside)
            }
            Request::Apply(intent) => alone(Done::Applied(host.apply(&intent).await?)),
            Request::Verify => {
                let (verified, beside) = verified(host.verify().await);
                (Done::Verified(verified), beside)
            }
            Request::Undo => {
                let undone = host.undo().await?;
                // Whoever hears of it may take the machine at once.
                self.stage = Stage::Over;
                alone(Done::Undone(undone))
            }
            Request::Take { .. } => return Err(HostError::Ended),
        })
    }

    /// Takes back everything; what cannot be is in the journal.
    async fn undo_all(&mut self) -> Result<(), HelperError> {
        let Some(host) = self.stage.host() else {
            return Ok(());
        };
        let mut outcome = Ok(());
        for attempt in 1..=UNDO_TRIES {
            outcome = host.undo().await.map(drop);
            if outcome.is_ok() || attempt == UNDO_TRIES {
                break;
            }
            sleep(UNDO_PAUSE).await;
        }
        self.stage = Stage::Over;
        outcome.map_err(|error| HelperError::Undo(Box::new(error)))
    }
}

fn opened(link: Link) -> (OpenedLink, Vec<OwnedFd>) {
    let Link {
        name,
        index,
        address,
        address6,
        resolver,
        prefix,
        mtu,
        tun,
    } = link;
    let link = OpenedLink {
        name,
        index,
        address,
        address6,
        resolver,
        prefix,
        mtu,
    };
    (link, vec![tun.into()])
}

fn verified(verified: Verified) -> (VerifiedMachine, Vec<OwnedFd>) {
    let Verified {
        repairs,
        conflicts,
        withheld,
        link,
        troubles,
    } = verified;
    let mut beside = Vec::new();
    let link = link.map(|link| {
        beside.push(link.tun.into());
        MadeAnew {
            name: link.name,
            index: link.index,
        }
    });
    let machine = VerifiedMachine {
        repairs,
        conflicts,
        withheld,
        link,
        troubles: troubles.into_iter().map(Trouble::from).collect(),
    };
    (machine, beside)
}
