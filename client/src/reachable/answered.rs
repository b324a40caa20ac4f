//! Addresses that the cluster answers outside its own networks: they are routed before the answer
//! is given, so that a program that connects at once meets a route.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kubebridge_dns::message::answers;
use kubebridge_dns::name::Name;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use super::Reachable;

/// Answers waiting to be routed; with more on their way, the rest goes without.
const QUEUE: usize = 64;

/// How long an answer waits for its route: setting one takes milliseconds, and who asked waits
/// several seconds.
const WAIT: Duration = Duration::from_secs(1);

/// A host with less time left than this has its time renewed.
const RENEW: Duration = Duration::from_secs(30);

/// Addresses outside the networks, for a name of the cluster.
#[derive(Debug)]
pub struct Answered {
    /// The name.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// How long the answer is good.
    pub ttl: Duration,
    /// Told when they are routed, or will not be.
    pub done: Option<oneshot::Sender<()>>,
}

/// What the resolver tells answered addresses to.
#[derive(Clone, Debug)]
pub struct HostRoutes {
    reachable: watch::Receiver<Arc<Reachable>>,
    queue: mpsc::Sender<Answered>,
}

impl HostRoutes {
    /// Makes both ends.
    #[must_use]
    pub fn new(reachable: watch::Receiver<Arc<Reachable>>) -> (Self, mpsc::Receiver<Answered>) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        (Self { reachable, queue }, waiting)
    }

    /// Follows what the session carries connections to.
    #[must_use]
    pub fn reachable(&self) -> watch::Receiver<Arc<Reachable>> {
        self.reachable.clone()
    }

    /// Sees to it that the addresses of an answer are routed, as far as they may be.
    pub async fn admit(&self, name: &Name, reply: &[u8], now: Instant) {
        let Ok(reply) = answers(reply) else {
            return;
        };
        let (addresses, is_known) = {
            let reachable = self.reachable.borrow();
            let is_outside = |one: &IpAddr| !reachable.covers(*one) && !reachable.refuses(*one);
            let outside = reply.addresses().filter(is_outside);
            let addresses: Vec<_> = outside.collect();
            let lasts = |one: &IpAddr| {
                reachable
                    .host_until(*one)
                    .is_some_and(|end| end > now + RENEW)
            };
            if addresses.iter().all(lasts) {
                return;
            }
            let is_known = addresses
                .iter()
                .all(|one| reachable.host_until(*one).is_some());
            (addresses, is_known)
        };
        let ttl = reply.answers.iter().map(|answer| answer.ttl).min();
        let (done, routed) = oneshot::channel();
        let answered = Answered {
            name: name.to_string(),
            addresses,
            ttl: Duration::from_secs(ttl.unwrap_or_default().into()),
            done: (!is_known).then_some(done),
        };
        if self.queue.try_send(answered).is_err() {
            tracing::debug!("too many answered addresses wait for routes");
        } else if !is_known && timeout(WAIT, routed).await.is_err() {
            tracing::debug!(%name, "answered before its addresses were routed");
        }
    }
}

#[cfg(test)]
mod tests {
    use kubebridge_dns::test_util::Answer;

    use super::*;
    use crate::reachable::Holds;

    const NAME: &str = "docs.default.svc.cluster.local";

    fn reply(address: [u8; 4]) -> Vec<u8> {
        let name: Name = NAME.parse().unwrap();
        let options = kubebridge_dns::message::QueryOptions::default();
        let rtype = kubebridge_dns::name::RecordType::A;
        let query = kubebridge_dns::message::encode_query(7, &name, rtype, options);
        Answer::address(NAME, address).reply_to(&query)
    }

    fn reachable(hosts: &[(IpAddr, Instant)]) -> Reachable {
        let nets = vec!["10.96.0.0/16".parse().unwrap()];
        Reachable::new(nets, hosts.iter().copied().collect(), Holds::default())
    }

    #[tokio::test(start_paused = true)]
    async fn f11_an_address_outside_waits_for_its_route_and_others_do_not() {
        let (reachable, follow) = watch::channel(Arc::new(reachable(&[])));
        let (routes, mut queue) = HostRoutes::new(follow);
        let name: Name = NAME.parse().unwrap();

        routes
            .admit(&name, &reply([10, 96, 0, 7]), Instant::now())
            .await;
        assert!(queue.try_recv().is_err());
        routes.admit(&name, b"nonsense", Instant::now()).await;
        assert!(queue.try_recv().is_err());

        let outside = reply([203, 0, 113, 7]);
        let admitting = routes.admit(&name, &outside, Instant::now());
        let setting = async {
            let answered = queue.recv().await.unwrap();
            assert_eq!(answered.addresses, [IpAddr::from([203, 0, 113, 7])]);
            assert!(answered.ttl > Duration::ZERO);
            assert_eq!(answered.name.trim_end_matches('.'), NAME);
            answered.done.unwrap().send(()).unwrap();
        };
        let start = Instant::now();
        tokio::join!(admitting, setting);
        assert_eq!(start.elapsed(), Duration::ZERO);

        // Known for long yet: nothing to do. For little: renewed without waiting.
        let host = IpAddr::from([203, 0, 113, 7]);
        let ends = |seconds| [(host, Instant::now() + Duration::from_secs(seconds))];
        reachable.send_replace(Arc::new(self::reachable(&ends(60))));
        routes.admit(&name, &outside, Instant::now()).await;
        assert!(queue.try_recv().is_err());
        reachable.send_replace(Arc::new(self::reachable(&ends(10))));
        routes.admit(&name, &outside, Instant::now()).await;
        assert!(queue.try_recv().unwrap().done.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn f11_an_answer_is_given_even_if_nobody_sets_its_route() {
        let (_reachable, follow) = watch::channel(Arc::new(reachable(&[])));
        let (routes, mut queue) = HostRoutes::new(follow);
        let name: Name = NAME.parse().unwrap();
        let start = Instant::now();
        for last in 0..=QUEUE {
            routes
                .admit(&name, &reply([203, 0, 113, last as u8]), Instant::now())
                .await;
        }
        assert_eq!(start.elapsed(), WAIT * QUEUE as u32);
        queue.close();
        routes
            .admit(&name, &reply([203, 0, 113, 200]), Instant::now())
            .await;
        assert_eq!(start.elapsed(), WAIT * QUEUE as u32);
    }
}
