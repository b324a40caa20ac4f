//! `Explain`: one answer with the steps that led to it, under the session's view like any other.
//!
//! It is for people who wonder, so it is bounded: by session in time, and for all in number. What a
//! step means is `dns`'s; here it is put into the contract's words.

use std::sync::Arc;

use kubebridge_dns::explain::{CacheUse, Step, Trace};
use kubebridge_dns::resolver::Asker;
use kubebridge_proto::explain::{ExplainRequest, ExplainStep, Explanation, Freshness};
use kubebridge_proto::v1;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tonic::Status;

use self::allowance::Allowances;
use super::{Service, denied, invalid};
use crate::metrics::Way;

mod allowance;

/// Explanations at once: an explained query may leave the cache aside, and then costs up to 64
/// upstream queries; this many are a small part of what the resolver may have under way.
const AT_ONCE: usize = 16;

/// What is explained now, and how much each session may still ask for.
#[derive(Debug)]
pub struct Explains {
    room: Arc<Semaphore>,
    allowances: Allowances,
}

impl Default for Explains {
    fn default() -> Self {
        Self {
            room: Arc::new(Semaphore::new(AT_ONCE)),
            allowances: Allowances::default(),
        }
    }
}

impl Explains {
    /// Takes a place, which is free again when what is returned is dropped.
    fn begin(&self, session: &str, now: Instant) -> Result<OwnedSemaphorePermit, Status> {
        if !self.allowances.take(session, now) {
            let message = "the session asks for explanations too often: try again in a second";
            return Err(Status::resource_exhausted(message));
        }
        let place = Arc::clone(&self.room).try_acquire_owned();
        place.map_err(|_| {
            let message = "too many explanations are under way: try again in a second";
            Status::resource_exhausted(message)
        })
    }
}

pub(super) async fn explain(
    service: &Service,
    wire: v1::ExplainRequest,
) -> Result<v1::ExplainResponse, Status> {
    let request = ExplainRequest::try_from(wire).map_err(|error| invalid(&error))?;
    let session = service.session(&request.session_id)?.lease();
    let _place = service.explains.begin(session.id(), Instant::now())?;
    let asker = Asker::new(session.view());
    let cache_use = match request.freshness {
        Freshness::Cached => CacheUse::Normal,
        Freshness::Fresh => CacheUse::Bypass,
    };
    let counted = service.metrics.query(Way::Grpc);
    let explained = service.resolver.explain(&request.query, &asker, cache_use);
    let (reply, trace) = explained.await;
    counted.answered(reply.as_deref());
    let call = (service, "Explain");
    denied::tell(
        call,
        &session,
        &request.query,
        reply.as_deref(),
        &asker.view,
    );
    let reply = reply.ok_or_else(|| Status::invalid_argument("query is not a DNS query"))?;
    Ok(explanation(reply, &trace).into())
}

fn explanation(reply: Vec<u8>, trace: &Trace) -> Explanation {
    Explanation {
        reply,
        steps: trace.steps.iter().map(step).collect(),
        left_out: u32::try_from(trace.left_out).unwrap_or(u32::MAX),
    }
}

fn step(step: &Step) -> ExplainStep {
    let event = &step.event;
    ExplainStep {
        at: step.at,
        stage: event.stage().to_owned(),
        name: event.name().map(ToString::to_string),
        upstream: event.upstream().map(ToString::to_string),
        outcome: event.outcome(),
        took: event.took(),
        rcode: event.code().map(|code| code.to_string()),
        decides: event.decides(),
        rank: event.rank().and_then(|rank| u32::try_from(rank).ok()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonic::Code;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn explanations_at_once_are_bounded_for_all_sessions_together() {
        let explains = Explains::default();
        let now = Instant::now();
        let mut places = Vec::new();
        for number in 0..AT_ONCE {
            places.push(explains.begin(&number.to_string(), now).unwrap());
        }

        let refused = explains.begin("one more", now).unwrap_err();

        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("too many"), "{refused}");
        places.pop();
        assert!(
            explains
                .begin("one more", now + Duration::from_secs(1))
                .is_ok()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_asks_too_often_is_told_to_wait_and_others_are_not() {
        let explains = Explains::default();
        let now = Instant::now();
        let refused = loop {
            if let Err(refused) = explains.begin("eager", now) {
                break refused;
            }
        };

        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("too often"), "{refused}");
        assert!(explains.begin("calm", now).is_ok());
    }
}
