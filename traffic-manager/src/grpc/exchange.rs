//! `ExchangeDns`: DNS messages of a session, answered side by side and matched by tag.

use futures::{Stream, StreamExt, stream};
use kubebridge_dns::resolver::Asker;
use kubebridge_proto::v1;
use kubebridge_proto::v1::dns_failure::Reason;
use kubebridge_proto::v1::exchange_dns_response::Outcome;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::{Status, Streaming};
use tracing::debug;

use super::{Service, denied, expired, expiry};
use crate::metrics::Way;
use crate::sessions::Lease;

/// The most queries of one stream worked on at once. A browser opening a page asks some fifty
/// names, of three types each; what comes on top waits in the client's send window.
pub(super) const MAX_IN_FLIGHT: usize = 256;

type Answered = Result<v1::ExchangeDnsResponse, Status>;

/// One open exchange; dropping it cancels what is in flight.
struct Exchange {
    service: Service,
    requests: Option<Streaming<v1::ExchangeDnsRequest>>,
    session: Option<Lease>,
    answers: JoinSet<v1::ExchangeDnsResponse>,
    failed: bool,
}

pub(super) fn stream(
    service: Service,
    requests: Streaming<v1::ExchangeDnsRequest>,
) -> impl Stream<Item = Answered> + Send {
    let exchange = Exchange {
        service,
        requests: Some(requests),
        session: None,
        answers: JoinSet::new(),
        failed: false,
    };
    stream::unfold(exchange, |mut exchange| async move {
        if exchange.failed {
            return None;
        }
        let answered = exchange.next().await?;
        exchange.failed = answered.is_err();
        Some((answered, exchange))
    })
}

impl Exchange {
    async fn next(&mut self) -> Option<Answered> {
        loop {
            let room = self.answers.len() < MAX_IN_FLIGHT;
            if self.requests.is_none() && self.answers.is_empty() {
                return None;
            }
            tokio::select! {
                biased;
                // Nothing more is told to whom the right was taken away.
                () = expiry(self.session.as_mut()) => return Some(Err(expired())),
                Some(answer) = self.answers.join_next() => match answer {
                    Ok(answer) => return Some(Ok(answer)),
                    Err(error) => return Some(Err(Status::internal(error.to_string()))),
                },
                // What is in flight is still answered.
                () = self.service.shutdown.cancelled(), if self.requests.is_some() => {
                    self.requests = None;
                }
                request = next_request(&mut self.requests), if room => match request {
                    None => self.requests = None,
                    Some(Err(status)) => {
                        debug!(%status, "exchange broken off");
                        return Some(Err(status));
                    }
                    Some(Ok(request)) => {
                        if let Err(status) = self.start(request) {
                            return Some(Err(status));
                        }
                    }
                },
            }
        }
    }

    fn start(&mut self, request: v1::ExchangeDnsRequest) -> Result<(), Status> {
        let session = match &self.session {
            Some(session) => session,
            None => self
                .session
                .insert(self.service.session(&request.session_id)?.lease()),
        };
        let asker = Asker::new(session.view());
        let (service, session) = (self.service.clone(), session.session());
        self.answers.spawn(async move {
            let query = service.metrics.query(Way::Grpc);
            let reply = service.resolver.answer(&request.query, &asker).await;
            query.answered(reply.as_deref());
            let call = (&service, "ExchangeDns");
            denied::tell(
                call,
                &session,
                &request.query,
                reply.as_deref(),
                &asker.view,
            );
            if let Some(reply) = &reply {
                let (index, rules) = (&service.index, &service.data.egress().rules);
                session.learn(reply, &asker.view, index, rules, Instant::now());
            }
            let outcome = match reply {
                Some(reply) => Outcome::Reply(reply),
                None => Outcome::Failure(v1::DnsFailure {
                    reason: Reason::NotAQuery.into(),
                    detail: "not a DNS query".to_owned(),
                }),
            };
            v1::ExchangeDnsResponse {
                tag: request.tag,
                outcome: Some(outcome),
            }
        });
        Ok(())
    }
}

async fn next_request(
    requests: &mut Option<Streaming<v1::ExchangeDnsRequest>>,
) -> Option<Result<v1::ExchangeDnsRequest, Status>> {
    match requests {
        Some(requests) => requests.next().await,
        None => std::future::pending().await,
    }
}
