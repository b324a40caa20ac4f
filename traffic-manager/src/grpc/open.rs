//! `OpenSession`: who gets a session, and what it is told.

use std::collections::BTreeMap;

use kubebridge_proto::routes::PAGE_ROUTES;
use kubebridge_proto::session::{Limits, SessionInfo, SessionRequest};
use kubebridge_proto::v1;
use tokio::time::Instant;
use tonic::Status;
use tracing::{debug, info};

use super::exchange::MAX_IN_FLIGHT;
use super::{Service, invalid, refused};
use crate::access::{Admission, Denied};
use crate::sessions::{IDLE, MAX_NAMESPACES, Session};
use crate::tls::Peer;

/// Our own version, told to clients.
const VERSION: &str = env!("CARGO_PKG_VERSION");

// A page must not outgrow what a client takes in one message; see `PAGE_ROUTES`.
const _: () = assert!(PAGE_ROUTES <= 500);

pub(super) async fn open(
    service: &Service,
    peer: Option<Peer>,
    wire: v1::OpenSessionRequest,
) -> Result<v1::OpenSessionResponse, Status> {
    let request = SessionRequest::try_from(wire).map_err(|error| invalid(&error))?;
    if request.namespaces.len() > MAX_NAMESPACES {
        // Before a token of them is looked at.
        let found = request.namespaces.len();
        let message = format!("{found} namespaces, at most {MAX_NAMESPACES}");
        return Err(Status::invalid_argument(message));
    }
    let admission = match service.gate.admit(&request).await {
        Ok(admission) => Admission {
            certificate: peer.map(|peer| peer.certificate),
            ..admission
        },
        Err(Denied {
            reason,
            namespace,
            message,
        }) => {
            debug!(reason = reason.word(), "session denied");
            service.audit.session_denied(reason, namespace.as_deref());
            return Err(reason.status(message));
        }
    };
    let renewed = request.id.is_some();
    let client_version = request.client_version.clone();
    let session = service
        .sessions
        .open(request, admission, Instant::now())
        .map_err(refused)?;
    info!(
        sessions = service.sessions.count(),
        renewed, client_version, "session open"
    );
    debug!(namespaces = ?session.grant().borrow().namespaces, "session granted");
    Ok(describe(service, &session).into())
}

fn describe(service: &Service, session: &Session) -> SessionInfo {
    let view = session.view();
    SessionInfo {
        id: session.id().to_owned(),
        manager_version: VERSION.to_owned(),
        cluster_domain: view.cluster_domain.to_string(),
        search: view.search.iter().map(ToString::to_string).collect(),
        ndots: view.ndots,
        service_cidrs: service.ranges.borrow().iter().copied().collect(),
        pod_cidrs: service.data.pod_ranges(),
        limits: Limits {
            idle: Some(IDLE),
            namespaces: u32::try_from(MAX_NAMESPACES).ok(),
            dns_in_flight: u32::try_from(MAX_IN_FLIGHT).ok(),
            flows: Some(service.data.flows_per_session().into()),
        },
        fleet_defaults: BTreeMap::new(),
        minimum_client_version: None,
        recommended_client_version: None,
        expires_in: session.expires_in(Instant::now()),
    }
}
