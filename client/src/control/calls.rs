//! Calls with one reply that people ask for: made over the channel that is up, never waiting for one that is not.

use std::net::SocketAddr;
use std::time::Duration;

use kubebridge_proto::explain::{ExplainRequest, Explanation, Freshness};
use kubebridge_proto::flow::Protocol;
use kubebridge_proto::probe::{ProbeRequest, Probed};
use kubebridge_proto::session::SessionInfo;
use kubebridge_proto::upstreams::UpstreamStatus;
use kubebridge_proto::v1;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::Client;

/// How long a call may take: the manager explains within 4.5 s, and the way is some more.
const CALL_TIME: Duration = Duration::from_secs(6);

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The manager is out of reach.
    #[error("the manager is out of reach")]
    TunnelDown,
    /// The manager does not know the call.
    #[error("the manager is too old to do this")]
    NotBuilt,
    /// It refused.
    #[error("the manager refused: {0}")]
    Refused(String),
    /// It did not answer in time.
    #[error("no reply within {CALL_TIME:?}")]
    Timeout,
}

/// Makes calls for people; cheap to clone.
#[derive(Clone, Debug)]
pub struct Calls {
    pub(super) line: watch::Receiver<Option<Client>>,
    pub(super) session: watch::Receiver<SessionInfo>,
}

impl Calls {
    /// Resolves a DNS message and has it explained.
    ///
    /// # Errors
    ///
    /// There is no explanation; the error says why.
    pub async fn explain(
        &self,
        query: Vec<u8>,
        freshness: Freshness,
    ) -> Result<Explanation, CallError> {
        let mut client = self.client()?;
        let request = ExplainRequest {
            session_id: self.session.borrow().id.clone(),
            query,
            freshness,
        };
        let response =
            match timeout(CALL_TIME, client.explain(v1::ExplainRequest::from(request))).await {
                Ok(response) => response.map_err(CallError::from)?,
                Err(_) => return Err(CallError::Timeout),
            };
        Explanation::try_from(response.into_inner())
            .map_err(|error| CallError::Refused(error.to_string()))
    }

    /// Asks what would become of a flow; a dial in the cluster is part of it.
    ///
    /// # Errors
    ///
    /// There is no answer; the error says why.
    pub async fn probe(
        &self,
        protocol: Protocol,
        destination: SocketAddr,
    ) -> Result<Probed, CallError> {
        let mut client = self.client()?;
        let request = ProbeRequest {
            session_id: self.session.borrow().id.clone(),
            protocol,
            destination,
        };
        match timeout(CALL_TIME, client.probe(v1::ProbeRequest::from(request))).await {
            Ok(response) => Ok(response.map_err(CallError::from)?.into_inner().into()),
            Err(_) => Err(CallError::Timeout),
        }
    }

    /// Asks for the health of the manager's upstreams, as it is now.
    ///
    /// # Errors
    ///
    /// There is no list; the error says why.
    pub async fn upstreams(&self) -> Result<Vec<UpstreamStatus>, CallError> {
        let mut client = self.client()?;
        let request = v1::WatchUpstreamsRequest {
            session_id: self.session.borrow().id.clone(),
        };
        let first = async {
            // The first list is the one of now; the stream ends when it is dropped.
            let mut lists = client.watch_upstreams(request).await?.into_inner();
            lists.message().await
        };
        let list = match timeout(CALL_TIME, first).await {
            Ok(list) => list?.ok_or(CallError::TunnelDown)?,
            Err(_) => return Err(CallError::Timeout),
        };
        let known = list.upstreams.into_iter().map(UpstreamStatus::try_from);
        // One that only a newer manager can describe is as if it were absent.
        Ok(known.filter_map(Result::ok).collect())
    }

    fn client(&self) -> Result<Client, CallError> {
        self.line.borrow().clone().ok_or(CallError::TunnelDown)
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::Unimplemented => Self::NotBuilt,
            // What the transport says when the channel breaks, and the manager when it ends.
            Code::Unavailable | Code::Cancelled | Code::Unknown => Self::TunnelDown,
            _ => Self::Refused(status.message().to_owned()),
        }
    }
}
