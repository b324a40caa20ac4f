//! The open sessions and what each may see. Bounded; idle ones expire.
//!
//! Who may open one is decided by the gRPC layer. Times are given, so nothing here waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use kubebridge_dns::name::{Name, NameError};
use kubebridge_dns::view::{PLAIN_VIEW_ID, View};
use kubebridge_proto::session::SessionRequest;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// The most sessions at once: five times what one manager is measured with (condition W10).
pub const MAX_SESSIONS: usize = 1024;

/// The most namespaces in one session: each costs a look at every wake of its route stream, and
/// nobody works in more.
pub const MAX_NAMESPACES: usize = 64;

/// The most `--domain` suffixes in one session: the resolver compares them with every name.
pub const MAX_DOMAINS: usize = 32;

/// A session without a call or stream for this long is forgotten: a laptop that slept over lunch
/// opens a new one, which costs one round trip.
pub const IDLE: Duration = Duration::from_secs(600);

/// Hands out view ids, none twice, so that no cached answer crosses from one view to another.
#[derive(Debug)]
pub struct ViewIds(AtomicU64);

impl Default for ViewIds {
    fn default() -> Self {
        Self(AtomicU64::new(PLAIN_VIEW_ID + 1))
    }
}

impl ViewIds {
    /// Returns an id not returned before.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Why a session cannot be opened or renewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// There is no session with the id to renew.
    Unknown,
    /// There are [`MAX_SESSIONS`] already.
    Full,
    /// A name in the request cannot be used.
    Invalid(String),
}

/// What a session may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The namespaces; the first is the session's own.
    pub namespaces: Vec<String>,
    /// Suffixes outside the cluster domain it sends here.
    pub domains: Vec<Name>,
}

/// The open sessions.
#[derive(Debug)]
pub struct Sessions {
    table: DashMap<String, Arc<Session>>,
    plain: watch::Receiver<Arc<View>>,
    view_ids: Arc<ViewIds>,
}

/// One open session.
#[derive(Debug)]
pub struct Session {
    id: String,
    grant: watch::Sender<Arc<Grant>>,
    plain: watch::Receiver<Arc<View>>,
    view_ids: Arc<ViewIds>,
    view: Mutex<Cached>,
    use_: Mutex<Use>,
}

/// The session's view with what it was made of.
#[derive(Debug)]
struct Cached {
    grant: Arc<Grant>,
    plain: Arc<View>,
    view: Arc<View>,
}

#[derive(Debug)]
struct Use {
    last: Instant,
    streams: usize,
}

/// Keeps a session from expiring while a stream of it is open.
#[derive(Debug)]
pub struct Lease(Arc<Session>);

impl Sessions {
    /// Makes an empty table; views of sessions follow the plain view.
    #[must_use]
    pub fn new(plain: watch::Receiver<Arc<View>>, view_ids: Arc<ViewIds>) -> Self {
        Self {
            table: DashMap::new(),
            plain,
            view_ids,
        }
    }

    /// Opens a session, or renews the one named in the request.
    ///
    /// # Errors
    /// When the session to renew is not there, there are too many, or a name cannot be used.
    pub fn open(&self, request: SessionRequest, now: Instant) -> Result<Arc<Session>, Refused> {
        let grant = Arc::new(grant(request.namespaces, &request.domains)?);
        let Some(id) = request.id else {
            return self.create(grant, now);
        };
        let session = self.find(&id, now).ok_or(Refused::Unknown)?;
        session.check(&grant)?;
        session.grant.send_replace(grant);
        Ok(session)
    }

    /// Returns the suffixes outside the cluster domain that sessions send here.
    #[must_use]
    pub fn domains(&self) -> BTreeSet<Name> {
        let domains = |session: &Arc<Session>| session.grant.borrow().domains.clone();
        let sessions = self.table.iter();
        sessions.flat_map(|entry| domains(entry.value())).collect()
    }

    /// Finds a session and counts that as use of it.
    #[must_use]
    pub fn find(&self, id: &str, now: Instant) -> Option<Arc<Session>> {
        let session = Arc::clone(self.table.get(id)?.value());
        if session.is_expired(now) {
            self.table.remove(id);
            return None;
        }
        session.use_.lock().last = now;
        Some(session)
    }

    /// Counts the sessions, expired ones too until somebody looks.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.len()
    }

    fn create(&self, grant: Arc<Grant>, now: Instant) -> Result<Arc<Session>, Refused> {
        if self.table.len() >= MAX_SESSIONS {
            self.table.retain(|_, session| !session.is_expired(now));
        }
        if self.table.len() >= MAX_SESSIONS {
            return Err(Refused::Full);
        }
        // Nobody guesses 128 random bits.
        let id = format!("{:032x}", rand::random::<u128>());
        let plain = Arc::clone(&self.plain.borrow());
        let view = Arc::new(view(&plain, &grant, self.view_ids.next()).map_err(unusable)?);
        let session = Arc::new(Session {
            id: id.clone(),
            grant: watch::Sender::new(Arc::clone(&grant)),
            plain: self.plain.clone(),
            view_ids: Arc::clone(&self.view_ids),
            view: Mutex::new(Cached { grant, plain, view }),
            use_: Mutex::new(Use {
                last: now,
                streams: 0,
            }),
        });
        self.table.insert(id, Arc::clone(&session));
        Ok(session)
    }
}

impl Session {
    /// Returns the id the client names the session by.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Follows what the session may see.
    #[must_use]
    pub fn grant(&self) -> watch::Receiver<Arc<Grant>> {
        self.grant.subscribe()
    }

    /// Returns the view the session's names are resolved under, as it is now.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        let grant = Arc::clone(&self.grant.borrow());
        let plain = Arc::clone(&self.plain.borrow());
        let mut cached = self.view.lock();
        if !Arc::ptr_eq(&cached.grant, &grant) || !Arc::ptr_eq(&cached.plain, &plain) {
            // A search list that cannot take the namespace leaves the view before in place: it
            // grants no more than the session was given then.
            if let Ok(view) = view(&plain, &grant, self.view_ids.next()) {
                *cached = Cached {
                    grant,
                    plain,
                    view: Arc::new(view),
                };
            }
        }
        Arc::clone(&cached.view)
    }

    /// Keeps the session open until the lease is dropped.
    #[must_use]
    pub fn lease(self: Arc<Self>) -> Lease {
        self.use_.lock().streams += 1;
        Lease(self)
    }

    fn check(&self, grant: &Grant) -> Result<(), Refused> {
        view(&self.plain.borrow(), grant, 0)
            .map(drop)
            .map_err(unusable)
    }

    fn is_expired(&self, now: Instant) -> bool {
        let use_ = self.use_.lock();
        use_.streams == 0 && now.duration_since(use_.last) >= IDLE
    }
}

impl std::ops::Deref for Lease {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut use_ = self.0.use_.lock();
        use_.streams -= 1;
        use_.last = Instant::now();
    }
}

fn grant(namespaces: Vec<String>, domains: &[String]) -> Result<Grant, Refused> {
    if namespaces.len() > MAX_NAMESPACES {
        let found = namespaces.len();
        return Err(Refused::Invalid(format!(
            "{found} namespaces, at most {MAX_NAMESPACES}"
        )));
    }
    if domains.len() > MAX_DOMAINS {
        return Err(Refused::Invalid(format!(
            "{} domains, at most {MAX_DOMAINS}",
            domains.len()
        )));
    }
    let parse = |text: &String| {
        text.parse::<Name>()
            .map_err(|error| Refused::Invalid(format!("domain {text:?}: {error}")))
    };
    let domains = domains.iter().map(parse).collect::<Result<_, _>>()?;
    Ok(Grant {
        namespaces,
        domains,
    })
}

fn view(plain: &View, grant: &Grant, id: u64) -> Result<View, NameError> {
    plain.session(&grant.namespaces, &grant.domains, id)
}

fn unusable(error: NameError) -> Refused {
    Refused::Invalid(format!(
        "the namespace does not fit the search list: {error}"
    ))
}

#[cfg(test)]
mod tests;
