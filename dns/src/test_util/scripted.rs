//! An upstream without sockets: it answers from a script and tells what it was asked.

use std::collections::BTreeMap;
use std::fmt;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Answer, Kind, name};
use crate::message::{QueryOptions, encode_query};
use crate::name::{Name, RecordType};
use crate::upstream::{ExchangeError, OutgoingQuery, Upstream, UpstreamSpec};

/// Answers by name and type from a script; what is not in it gets NXDOMAIN.
pub struct ScriptedUpstream {
    spec: UpstreamSpec,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    script: BTreeMap<(Name, RecordType), Answer>,
    otherwise: Answer,
    asked: Vec<OutgoingQuery>,
    cancelled: usize,
    in_flight: usize,
}

impl ScriptedUpstream {
    /// Stands for the server that is written like this.
    ///
    /// # Panics
    ///
    /// Panics when the text is no upstream.
    pub fn new(spec: &str) -> Self {
        Self {
            spec: spec.parse().expect("an upstream"),
            state: Mutex::new(State {
                script: BTreeMap::new(),
                otherwise: Answer::nxdomain("."),
                asked: Vec::new(),
                cancelled: 0,
                in_flight: 0,
            }),
        }
    }

    /// Adds an answer to the script.
    #[must_use]
    pub fn with(self, owner: &str, rtype: RecordType, answer: Answer) -> Self {
        self.set(owner, rtype, answer);
        self
    }

    /// Changes what is said to everything that is not in the script.
    #[must_use]
    pub fn otherwise(self, answer: Answer) -> Self {
        self.set_otherwise(answer);
        self
    }

    /// Adds or changes an answer; questions asked before keep the old one.
    pub fn set(&self, owner: &str, rtype: RecordType, answer: Answer) {
        let key = (name(owner), rtype);
        self.state.lock().script.insert(key, answer);
    }

    /// Changes what is said to everything that is not in the script.
    pub fn set_otherwise(&self, answer: Answer) {
        self.state.lock().otherwise = answer;
    }

    /// Returns everything asked so far, in order.
    pub fn asked(&self) -> Vec<OutgoingQuery> {
        self.state.lock().asked.clone()
    }

    /// Returns the names asked so far, in order, as text in lower case.
    pub fn asked_names(&self) -> Vec<String> {
        let state = self.state.lock();
        let text = |query: &OutgoingQuery| query.name.to_lowercase().to_string();
        state.asked.iter().map(text).collect()
    }

    /// Counts the exchanges that were dropped before they ended.
    pub fn cancelled(&self) -> usize {
        self.state.lock().cancelled
    }

    /// Counts the exchanges that have neither ended nor been dropped.
    pub fn in_flight(&self) -> usize {
        self.state.lock().in_flight
    }

    fn begin(&self, query: &OutgoingQuery) -> (Answer, InFlight<'_>) {
        let mut state = self.state.lock();
        state.asked.push(query.clone());
        state.in_flight += 1;
        let key = (query.name.clone(), query.rtype);
        let answer = state.script.get(&key).unwrap_or(&state.otherwise).clone();
        let in_flight = InFlight {
            state: &self.state,
            ended: false,
        };
        (answer, in_flight)
    }
}

/// Counts an exchange as cancelled when it is dropped before its end.
struct InFlight<'a> {
    state: &'a Mutex<State>,
    ended: bool,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.in_flight -= 1;
        state.cancelled += usize::from(!self.ended);
    }
}

impl Upstream for ScriptedUpstream {
    fn spec(&self) -> &UpstreamSpec {
        &self.spec
    }

    fn exchange<'a>(
        &'a self,
        query: &'a OutgoingQuery,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Vec<u8>, ExchangeError>> {
        async move {
            let (answer, mut in_flight) = self.begin(query);
            let ready = Instant::now() + answer.delay;
            let said = timeout_at(deadline, sleep_until(ready)).await;
            if said.is_ok() && answer.kind == Kind::Silence {
                sleep_until(deadline).await;
            }
            in_flight.ended = true;
            match answer.kind {
                Kind::Reply if said.is_ok() => Ok(answer.reply_to(&encode(query))),
                Kind::Failure if said.is_ok() => Err(ExchangeError::io(
                    "exchange packets with",
                    std::io::ErrorKind::ConnectionRefused.into(),
                )),
                Kind::Reply | Kind::Failure | Kind::Silence => Err(ExchangeError::Timeout),
            }
        }
        .boxed()
    }
}

/// Encodes the query as a transport would, under a random id.
fn encode(query: &OutgoingQuery) -> Vec<u8> {
    let options = QueryOptions {
        class: query.class,
        dnssec_ok: query.dnssec_ok,
        checking_disabled: query.checking_disabled,
        edns: true,
        origin: query.origin,
    };
    encode_query(rand::random(), &query.name, query.rtype, options)
}

impl fmt::Debug for ScriptedUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScriptedUpstream({})", self.spec)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;
    use crate::message::answers;
    use crate::name::ResponseCode;

    fn query(text: &str) -> OutgoingQuery {
        OutgoingQuery::new(name(text), RecordType::A)
    }

    #[tokio::test(start_paused = true)]
    async fn it_answers_from_the_script_after_the_delay() {
        let second = Duration::from_secs(1);
        let answer = Answer::address("a.test", [10, 0, 0, 1]).after(second);
        let upstream = ScriptedUpstream::new("10.9.9.9").with("a.test", RecordType::A, answer);
        let start = Instant::now();

        let reply = upstream
            .exchange(&query("A.test"), start + 2 * second)
            .await;

        let reply = answers(&reply.unwrap()).unwrap();
        assert_eq!(start.elapsed(), second);
        assert_eq!(
            reply.addresses().collect::<Vec<_>>(),
            [IpAddr::from([10, 0, 0, 1])]
        );
        let other = upstream
            .exchange(&query("b.test"), start + 2 * second)
            .await;
        assert_eq!(
            answers(&other.unwrap()).unwrap().code,
            ResponseCode::NXDOMAIN
        );
        assert_eq!(upstream.asked_names(), ["a.test", "b.test"]);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_lasts_until_the_deadline_and_a_dropped_exchange_is_counted() {
        let upstream = ScriptedUpstream::new("10.9.9.9").otherwise(Answer::silence());
        let deadline = Instant::now() + Duration::from_secs(2);
        let asked = query("a.test");

        let first = upstream.exchange(&asked, deadline).await;

        assert!(matches!(first, Err(ExchangeError::Timeout)));
        assert_eq!(Instant::now(), deadline);
        let later = deadline + Duration::from_secs(9);
        let dropped = upstream.exchange(&asked, later).now_or_never();
        assert!(dropped.is_none());
        assert_eq!((upstream.cancelled(), upstream.in_flight()), (1, 0));
    }
}
