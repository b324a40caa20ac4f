//! `OpenSession`: who gets a session, and what it is told.

use std::collections::BTreeMap;

use kubebridge_proto::routes::PAGE_ROUTES;
use kubebridge_proto::session::{Limits, SessionInfo, SessionRequest};
use kubebridge_proto::v1;
use tokio::time::Instant;
use tonic::Status;
use tracing::{debug, info};

use super::exchange::MAX_IN_FLIGHT;
use super::{Service, invalid, unknown_session};
use crate::config::Auth;
use crate::sessions::{IDLE, MAX_NAMESPACES, Refused, Session};

/// Our own version, told to clients.
const VERSION: &str = env!("CARGO_PKG_VERSION");

// A page must not outgrow what a client takes in one message; see `PAGE_ROUTES`.
const _: () = assert!(PAGE_ROUTES <= 500);

pub(super) fn open(
    service: &Service,
    wire: v1::OpenSessionRequest,
) -> Result<v1::OpenSessionResponse, Status> {
    let request = SessionRequest::try_from(wire).map_err(|error| invalid(&error))?;
    match service.auth {
        Auth::PortForward => {}
        Auth::Token => {
            let message = "tokens are not built yet; \
                 hint: start the traffic-manager with `--auth port-forward`";
            return Err(Status::unauthenticated(message));
        }
    }
    let renewed = request.id.is_some();
    let client_version = request.client_version.clone();
    let session = service
        .sessions
        .open(request, Instant::now())
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
        pod_cidrs: Vec::new(),
        limits: Limits {
            idle: Some(IDLE),
            namespaces: u32::try_from(MAX_NAMESPACES).ok(),
            dns_in_flight: u32::try_from(MAX_IN_FLIGHT).ok(),
            flows: None,
        },
        fleet_defaults: BTreeMap::new(),
        minimum_client_version: None,
        recommended_client_version: None,
        expires_in: None,
    }
}

fn refused(refused: Refused) -> Status {
    match refused {
        Refused::Unknown => unknown_session(),
        Refused::Full => Status::resource_exhausted("too many sessions: try again later"),
        Refused::Invalid(reason) => Status::invalid_argument(reason),
    }
}
