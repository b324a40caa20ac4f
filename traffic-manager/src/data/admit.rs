//! Who gets a flow: the session is known, the destination allowed, and there is room.

use std::sync::Arc;

use kubebridge_proto::flow::{Failure, FailureKind, Open};
use tokio::time::Instant;

use super::Data;
use super::table::Slot;
use crate::access::audit::flows::About;
use crate::egress::{Allowed, Dialled, Dialler};
use crate::sessions::{Lease, Refused, Session};

/// A flow that may be dialled.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) lease: Lease,
    pub(super) slot: Slot,
    pub(super) to: Dialled,
    pub(super) about: About,
}

impl Data {
    /// Finds the session of a request.
    pub(super) fn session(&self, id: &str, now: Instant) -> Result<Arc<Session>, Failure> {
        let parts = &self.shared.parts;
        if parts.shutdown.is_cancelled() {
            let detail = "this manager ends";
            return Err(Failure::with_detail(FailureKind::Session, detail));
        }
        parts.sessions.find(id, now).map_err(|refused| {
            let detail = match refused {
                Refused::Expired => "the session's tokens expired",
                Refused::Unknown | Refused::Full | Refused::Invalid(_) => "no such session",
            };
            Failure::with_detail(FailureKind::Session, detail)
        })
    }

    /// Decides whether a session may dial, and has it written down when it may not.
    pub(super) fn judge(
        &self,
        session: &Session,
        to: Dialled,
        now: Instant,
    ) -> Result<Allowed, crate::egress::Denied> {
        let parts = &self.shared.parts;
        let grant = Arc::clone(&session.grant().borrow());
        let learned = session.learned();
        let dialler = Dialler {
            grant: &grant,
            learned: &learned,
        };
        let judged = parts.egress.judge(dialler, to, now);
        drop(learned);
        if let Err(denied) = &judged {
            parts.audit.flow_denied(session.id(), denied);
        }
        judged
    }

    /// Decides about a new flow, and makes room for it.
    pub(super) fn admit(&self, open: &Open, now: Instant) -> Result<Admitted, Failure> {
        let session = self.session(&open.session, now)?;
        let Allowed { to, because } = self
            .judge(&session, Dialled::of(open.protocol, open.destination), now)
            .map_err(|denied| Failure::with_detail(FailureKind::Denied, denied.reason.word()))?;
        let slot = self.shared.table.admit(session.id(), open.flow, now);
        let slot = slot.map_err(|full| Failure::with_detail(FailureKind::Limit, full.word()))?;
        let (flow, protocol) = (open.flow.to_string(), open.protocol.word());
        Ok(Admitted {
            about: About::new(&session, &flow, protocol, because, to.port()),
            lease: session.lease(),
            slot,
            to,
        })
    }
}
