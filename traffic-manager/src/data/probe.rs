//! What would become of a flow, for people who wonder: the same decisions and the same dial, and the
//! socket closed at once. Counts as a dial of the session.

use kubebridge_proto::flow::{Failure, Protocol};
use kubebridge_proto::probe::{Dial, Endpoints, Probed, Service, Verdict};
use kubebridge_proto::routes::NamespaceState;
use std::net::SocketAddr;
use tokio::time::Instant;

use super::{Data, flow};
use crate::egress::{Allowed, Dialled};
use crate::kubernetes::index::ServiceKey;
use crate::sessions::Session;

/// The session dials too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooOften;

impl Data {
    /// Decides and dials as for a flow of the session.
    ///
    /// # Errors
    /// When the session dials too often.
    pub async fn probe(
        &self,
        session: &Session,
        protocol: Protocol,
        to: SocketAddr,
    ) -> Result<Probed, TooOften> {
        let now = Instant::now();
        let counted = self.shared.table.dials(session.id(), now);
        counted.map_err(|_| TooOften)?;
        let to = Dialled::of(protocol, to);
        let granted = |key: &ServiceKey| {
            let grant = session.grant();
            let grant = grant.borrow();
            grant.namespaces.contains(&key.namespace)
        };
        match self.judge(session, to, now) {
            Err(denied) => Ok(Probed {
                verdict: Verdict::Denied(denied.reason.word().to_owned()),
                service: denied.service.filter(granted).map(|key| self.service(key)),
                dial: None,
            }),
            Ok(Allowed { to, because }) => {
                let service = because.service().cloned().filter(granted);
                Ok(Probed {
                    verdict: Verdict::Allowed(because.word().to_owned()),
                    service: service.map(|key| self.service(key)),
                    dial: Some(self.dial_and_close(to).await),
                })
            }
        }
    }

    async fn dial_and_close(&self, to: Dialled) -> Dial {
        let start = Instant::now();
        let dialled: Result<_, Failure> = flow::dial(self, to).await;
        Dial {
            failure: dialled.err(),
            took: start.elapsed(),
        }
    }

    fn service(&self, key: ServiceKey) -> Service {
        let all = &self.shared.parts.egress.endpoints;
        let endpoints = match all.state(&key.namespace) {
            NamespaceState::Synced => {
                let of_it = all.of(&key);
                let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
                let ready = of_it.iter().filter(|endpoint| endpoint.ready).count();
                Endpoints::Known {
                    ready: count(ready),
                    total: count(of_it.len()),
                }
            }
            NamespaceState::Waiting => Endpoints::Unknown("not listed yet".to_owned()),
            NamespaceState::Forbidden { verb, resource } => {
                Endpoints::Unknown(format!("the manager may not {verb} {resource}"))
            }
            NamespaceState::NoSource => {
                Endpoints::Unknown("the manager has no source of endpoints".to_owned())
            }
        };
        Service {
            namespace: key.namespace,
            name: key.name,
            endpoints,
        }
    }
}
