//! The open sessions and what each may see. Bounded; idle ones expire.
//!
//! Who may open one is decided by [`access`](crate::access). A session ends when its tokens expire
//! or nobody uses it, which is audited; its streams wait for that by their [`Lease`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use kubebridge_dns::message::answers;
use kubebridge_dns::name::{Name, NameError};
use kubebridge_dns::view::{PLAIN_VIEW_ID, View};
use kubebridge_proto::session::SessionRequest;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::access::Admission;
use crate::access::audit::{About, Audit, Closed};
use crate::access::claims::Proof;
use crate::egress::learned::{self, Learned};
use crate::egress::rules::Rules;
use crate::kubernetes::index::Index;

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

/// How often sessions that are over are looked for: what is audited is told this late at most.
const SWEEP: Duration = Duration::from_secs(5);

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
    /// The tokens of the session to renew have expired.
    Expired,
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
    audit: Arc<Audit>,
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
    opened: Instant,
    expires: watch::Sender<Option<Instant>>,
    admitted: Mutex<Admission>,
    learned: Mutex<Learned>,
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

/// Keeps a session from being idle while a stream of it is open, and tells the stream when its
/// tokens have expired.
#[derive(Debug)]
pub struct Lease {
    session: Arc<Session>,
    expires: watch::Receiver<Option<Instant>>,
}

impl Sessions {
    /// Makes an empty table; views of sessions follow the plain view.
    #[must_use]
    pub fn new(
        plain: watch::Receiver<Arc<View>>,
        view_ids: Arc<ViewIds>,
        audit: Arc<Audit>,
    ) -> Self {
        Self {
            table: DashMap::new(),
            plain,
            view_ids,
            audit,
        }
    }

    /// Opens a session that was admitted, or renews the one named in the request.
    ///
    /// # Errors
    /// When the session to renew is not there, there are too many, or a name cannot be used.
    pub fn open(
        &self,
        request: SessionRequest,
        admission: Admission,
        now: Instant,
    ) -> Result<Arc<Session>, Refused> {
        let version = request.client_version;
        let grant = Arc::new(grant(request.namespaces, &request.domains)?);
        let Some(id) = request.id else {
            let session = self.create(grant, admission, now)?;
            session.about(|about| self.audit.opened(about, &version));
            return Ok(session);
        };
        let session = self.find(&id, now)?;
        session.check(&grant)?;
        session.grant.send_replace(grant);
        session.expires.send_replace(admission.expires);
        *session.admitted.lock() = admission;
        session.about(|about| self.audit.renewed(about, &version));
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
    ///
    /// # Errors
    /// When there is none, or its tokens have expired.
    pub fn find(&self, id: &str, now: Instant) -> Result<Arc<Session>, Refused> {
        let session = Arc::clone(self.table.get(id).ok_or(Refused::Unknown)?.value());
        match session.is_over(now) {
            None => {
                session.use_.lock().last = now;
                Ok(session)
            }
            Some(Closed::Expired) => Err(Refused::Expired),
            Some(Closed::Idle | Closed::Shutdown) => Err(Refused::Unknown),
        }
    }

    /// Counts the sessions, those that are over too until they are swept.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.len()
    }

    /// Forgets the sessions that are over.
    pub fn sweep(&self, now: Instant) {
        self.table.retain(|_, session| match session.is_over(now) {
            Some(why) => {
                self.tell_closed(session, why, now);
                false
            }
            None => true,
        });
    }

    /// Sweeps now and then until shutdown, and closes all sessions then.
    pub async fn sweep_until(self: Arc<Self>, shutdown: CancellationToken) {
        let mut ticks = interval(SWEEP);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                _ = ticks.tick() => self.sweep(Instant::now()),
            }
        }
        let now = Instant::now();
        self.table.retain(|_, session| {
            let why = session.is_over(now).unwrap_or(Closed::Shutdown);
            self.tell_closed(session, why, now);
            false
        });
    }

    fn tell_closed(&self, session: &Session, why: Closed, now: Instant) {
        let lasted = now.duration_since(session.opened);
        session.about(|about| self.audit.closed(about, why, lasted));
    }

    fn create(
        &self,
        grant: Arc<Grant>,
        admission: Admission,
        now: Instant,
    ) -> Result<Arc<Session>, Refused> {
        if self.table.len() >= MAX_SESSIONS {
            self.sweep(now);
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
            opened: now,
            expires: watch::Sender::new(admission.expires),
            admitted: Mutex::new(admission),
            learned: Mutex::default(),
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

    /// Returns how long the session's tokens are good for; `None` when there are none.
    #[must_use]
    pub fn expires_in(&self, now: Instant) -> Option<Duration> {
        let expires = *self.expires.borrow();
        expires.map(|at| at.saturating_duration_since(now))
    }

    /// Learns the addresses of an answer under the view it was given by.
    pub fn learn(&self, reply: &[u8], view: &View, index: &Index, rules: &Rules, now: Instant) {
        // Most answers have none; looking is cheaper than taking apart.
        let Ok(parsed) = answers(reply) else {
            return;
        };
        let Some((asked, _)) = &parsed.question else {
            return;
        };
        if parsed.addresses().next().is_none() {
            return;
        }
        let grant = Arc::clone(&self.grant.borrow());
        if let Some(origin) = learned::origin(asked, view, &grant, index, rules, now) {
            self.learned.lock().learn(&parsed, origin, now);
        }
    }

    /// Returns what the session has resolved.
    pub fn learned(&self) -> MutexGuard<'_, Learned> {
        self.learned.lock()
    }

    /// Keeps the session from being idle until the lease is dropped.
    #[must_use]
    pub fn lease(self: Arc<Self>) -> Lease {
        self.use_.lock().streams += 1;
        Lease {
            expires: self.expires.subscribe(),
            session: self,
        }
    }

    /// Returns the id of the token that proves a namespace, or else of the session's first one.
    #[must_use]
    pub fn token_of(&self, namespace: Option<&str>) -> Option<String> {
        let admitted = self.admitted.lock();
        let of_namespace = |proof: &&Proof| Some(proof.namespace.as_str()) == namespace;
        let proof = admitted.proofs.iter().find(of_namespace);
        let proof = proof.or_else(|| admitted.proofs.first());
        proof.map(|proof| proof.token_id.clone())
    }

    /// Has somebody told what the session is, for the audit log.
    fn about(&self, tell: impl FnOnce(About<'_>)) {
        let grant = Arc::clone(&self.grant.borrow());
        let admitted = self.admitted.lock();
        tell(About {
            id: &self.id,
            namespaces: &grant.namespaces,
            proofs: &admitted.proofs,
            certificate: admitted.certificate.as_deref(),
        });
    }

    fn check(&self, grant: &Grant) -> Result<(), Refused> {
        view(&self.plain.borrow(), grant, 0)
            .map(drop)
            .map_err(unusable)
    }

    fn is_over(&self, now: Instant) -> Option<Closed> {
        if self.expires.borrow().is_some_and(|at| at <= now) {
            return Some(Closed::Expired);
        }
        let use_ = self.use_.lock();
        let idle = use_.streams == 0 && now.duration_since(use_.last) >= IDLE;
        idle.then_some(Closed::Idle)
    }
}

impl Lease {
    /// Returns the session, without keeping it from being idle.
    #[must_use]
    pub fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session)
    }

    /// Tells whether the session's tokens have expired.
    #[must_use]
    pub fn is_expired(&self, now: Instant) -> bool {
        self.expires.borrow().is_some_and(|at| at <= now)
    }

    /// Waits until the session's tokens have expired, which a renewal puts off.
    pub async fn expired(&mut self) {
        loop {
            let at = *self.expires.borrow_and_update();
            tokio::select! {
                () = until(at) => return,
                // The session holds the sender.
                _ = self.expires.changed() => {}
            }
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl std::ops::Deref for Lease {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut use_ = self.session.use_.lock();
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
