//! One connection to a server, shared by all who ask it: opened when first needed, kept, and
//! replaced when it closes, falls silent, or its trust has changed.
//!
//! Knows nothing of protocols: a [`Transport`] opens connections, a [`Connection`] asks on one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::ExchangeError;
use super::wire::Wire;

/// How long a connection may stay silent after a question before a new one is tried: the path may
/// have gone without a word.
pub(super) const SILENCE: Duration = Duration::from_secs(1);
/// How long opening may take: three round trips and a lost packet on the worst of paths, and less
/// than anybody waits for an answer.
const OPENING: Duration = Duration::from_secs(3);
/// Connections to one server, counting abandoned ones on which somebody still waits.
const MAX_CONNECTIONS: usize = 8;

/// Opens connections to one server.
pub(super) trait Transport: fmt::Debug + Send + Sync + 'static {
    /// What it opens.
    type Connection: Connection;

    /// Opens a connection, ready for questions.
    fn open(&self) -> impl Future<Output = Result<Self::Connection, ExchangeError>> + Send;

    /// Returns a number that changes when open connections must not be used any more.
    fn generation(&self) -> u64;
}

/// Asks questions on one connection.
pub(super) trait Connection: fmt::Debug + Send + Sync + 'static {
    /// Tells whether another question has a chance.
    fn is_open(&self) -> bool;

    /// Asks; on a connection that has served before, for as long as it is not silent. The caller
    /// bounds the time.
    fn ask(
        &self,
        wire: &mut Wire,
        age: Age,
    ) -> impl Future<Output = Result<Vec<u8>, Failure>> + Send;
}

/// Whether a connection was opened for the question at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// Just opened: what it does is what the server does.
    New,
    /// Served before: it may have died since.
    Used,
}

/// Why an attempt on a connection gave nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// The connection failed: if it was a used one, a new one may do better.
    Stale(ExchangeError),
    /// The server says that it has not looked at the question: another connection may do better.
    Unprocessed(ExchangeError),
    /// The failure is the server's answer.
    Final(ExchangeError),
}

/// The connection to one server.
#[derive(Debug)]
pub(super) struct Channel<T: Transport> {
    transport: Arc<T>,
    permits: Arc<Semaphore>,
    current: Mutex<Option<Current<T::Connection>>>,
}

struct Current<C> {
    link: Opening<C>,
    generation: u64,
}

/// Ends with a connection for all who wait for it, whoever of them is still there.
type Opening<C> = Shared<BoxFuture<'static, Result<Arc<Link<C>>, ExchangeError>>>;

struct Link<C> {
    connection: C,
    _permit: OwnedSemaphorePermit,
}

impl<T: Transport> Channel<T> {
    /// Connects to nothing yet.
    pub(super) fn new(transport: T) -> Self {
        Self {
            transport: Arc::new(transport),
            permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            current: Mutex::new(None),
        }
    }

    /// Asks on the open connection, and once more on a new one when the old one proved dead. The
    /// caller bounds the time.
    pub(super) async fn ask(&self, wire: &mut Wire) -> Result<Vec<u8>, ExchangeError> {
        let (link, age) = self.link(None).await?;
        match (link.connection.ask(wire, age).await, age) {
            (Err(Failure::Stale(_)), Age::Used) | (Err(Failure::Unprocessed(_)), _) => {}
            (other, _) => return other.map_err(Failure::into_error),
        }
        let (link, age) = self.link(Some(&link)).await?;
        let answer = link.connection.ask(wire, age).await;
        answer.map_err(Failure::into_error)
    }

    /// Lets go of the connection, so that the next question opens a new one.
    pub(super) fn renew(&self) {
        *self.current.lock() = None;
    }

    /// Returns an open connection other than the given one.
    async fn link(
        &self,
        except: Option<&Arc<Link<T::Connection>>>,
    ) -> Result<(Arc<Link<T::Connection>>, Age), ExchangeError> {
        let opening = match self.usable(except)? {
            Found::Open(link) => return Ok((link, Age::Used)),
            Found::Opening(opening) => opening,
        };
        Ok((opening.await?, Age::New))
    }

    fn usable(
        &self,
        except: Option<&Arc<Link<T::Connection>>>,
    ) -> Result<Found<T::Connection>, ExchangeError> {
        let generation = self.transport.generation();
        let mut current = self.current.lock();
        if let Some(current) = current.as_ref().filter(|c| c.generation == generation) {
            match current.link.clone().now_or_never() {
                None => return Ok(Found::Opening(current.link.clone())),
                Some(Ok(link)) => {
                    let rejected = except.is_some_and(|dead| Arc::ptr_eq(dead, &link));
                    if link.connection.is_open() && !rejected {
                        return Ok(Found::Open(link));
                    }
                }
                Some(Err(_)) => {}
            }
        }
        *current = None;
        let link = self.open()?;
        *current = Some(Current {
            link: link.clone(),
            generation,
        });
        Ok(Found::Opening(link))
    }

    /// Opens a connection in a task of its own, for the one who asks first may not wait for it: a
    /// server slower than the others would never get a connection.
    fn open(&self) -> Result<Opening<T::Connection>, ExchangeError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_| ExchangeError::Overloaded)?;
        let transport = Arc::clone(&self.transport);
        let span = tracing::debug_span!("upstream_open", ?transport);
        let open = async move {
            let connection = timeout(OPENING, transport.open()).await;
            let connection = connection.unwrap_or(Err(ExchangeError::Timeout));
            if let Err(error) = &connection {
                tracing::debug!(%error, "upstream connection failed");
            }
            Ok(Arc::new(Link {
                connection: connection?,
                _permit: permit,
            }))
        };
        let task = AbortOnDropHandle::new(tokio::spawn(open.instrument(span)));
        // The task is aborted only with the channel, and then nobody waits.
        let opening = task.map(|ended| ended.unwrap_or(Err(ExchangeError::Closed)));
        Ok(opening.boxed().shared())
    }
}

enum Found<C> {
    Open(Arc<Link<C>>),
    Opening(Opening<C>),
}

impl Failure {
    pub(super) fn into_error(self) -> ExchangeError {
        match self {
            Self::Stale(error) | Self::Unprocessed(error) | Self::Final(error) => error,
        }
    }
}

impl<C> fmt::Debug for Current<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Current")
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}
