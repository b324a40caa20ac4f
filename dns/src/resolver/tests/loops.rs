//! Queries that come back (conditions/loops.md), with upstreams that send them back to a resolver.

use std::net::SocketAddr;
use std::sync::Weak;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::timeout_at;

use super::*;
use crate::loops::OwnAddresses;
use crate::upstream::{ExchangeError, OutgoingQuery, UpstreamSpec};
use crate::upstreams::{UpstreamState, UpstreamStatus};

mod probing;
mod rings;

/// A forwarder that sends what it is asked on to a resolver, and answers itself what it does not.
struct Mirror {
    spec: UpstreamSpec,
    state: Mutex<Reflection>,
}

#[derive(Default)]
struct Reflection {
    to: Weak<Resolver>,
    /// Names under these come back; of the others it says that they do not exist.
    zones: Vec<Name>,
    /// Names under these are answered with an address all the same.
    held: Vec<Name>,
    folds_case: bool,
    drops_options: bool,
    asked: Vec<OutgoingQuery>,
}

impl Mirror {
    fn new(spec: &str) -> Arc<Self> {
        Arc::new(Self {
            spec: spec.parse().unwrap(),
            state: Mutex::new(Reflection {
                zones: vec![Name::root()],
                ..Reflection::default()
            }),
        })
    }

    fn set(self: &Arc<Self>, change: impl FnOnce(&mut Reflection)) -> Arc<Self> {
        change(&mut self.state.lock());
        Arc::clone(self)
    }

    fn lead_to(&self, resolver: &Arc<Resolver>) {
        self.state.lock().to = Arc::downgrade(resolver);
    }

    fn asked(&self) -> Vec<OutgoingQuery> {
        self.state.lock().asked.clone()
    }

    /// What was asked but the probes, as text in lower case.
    fn asked_names(&self) -> Vec<String> {
        let asked = self.asked();
        let questions = asked.iter().filter(|query| !is_probe(query));
        questions
            .map(|query| query.name.to_lowercase().to_string())
            .collect()
    }

    fn probes(&self) -> usize {
        self.asked().iter().filter(|query| is_probe(query)).count()
    }

    /// Enters the query; returns it as it goes on, and where to.
    fn take(&self, query: &OutgoingQuery) -> (Vec<u8>, Option<Arc<Resolver>>, Answer) {
        let mut state = self.state.lock();
        state.asked.push(query.clone());
        let spelled = if state.folds_case {
            query.name.to_lowercase()
        } else {
            query.name.clone()
        };
        let options = QueryOptions {
            origin: query.origin.filter(|_| !state.drops_options),
            ..QueryOptions::default()
        };
        let packet = encode_query(rand::random(), &spelled, query.rtype, options);
        let under = |zones: &[Name]| zones.iter().any(|zone| query.name.ends_with(zone));
        let held = under(&state.held);
        let on = (!held && under(&state.zones)).then(|| state.to.upgrade());
        let answer = if held {
            Answer::address(&query.name.to_string(), [192, 0, 2, 7])
        } else {
            Answer::nxdomain(".")
        };
        (packet, on.flatten(), answer)
    }
}

fn is_probe(query: &OutgoingQuery) -> bool {
    query.origin.is_some_and(|origin| origin.probe)
}

impl Upstream for Mirror {
    fn spec(&self) -> &UpstreamSpec {
        &self.spec
    }

    fn exchange<'a>(
        &'a self,
        query: &'a OutgoingQuery,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Vec<u8>, ExchangeError>> {
        async move {
            let (packet, on, answer) = self.take(query);
            let Some(resolver) = on else {
                return Ok(answer.reply_to(&packet));
            };
            let asker = Asker::at(SocketAddr::new(self.spec.address.ip(), 40_000), pod());
            let reply = timeout_at(deadline, resolver.answer(&packet, &asker)).await;
            reply
                .map_err(|_| ExchangeError::Timeout)?
                .ok_or(ExchangeError::Timeout)
        }
        .boxed()
    }
}

/// Makes a resolver of mirrors that all lead back to it, and of other upstreams.
fn looped(mirrors: &[Arc<Mirror>], others: &[Arc<ScriptedUpstream>]) -> Arc<Resolver> {
    let mirrors_ = mirrors
        .iter()
        .map(|one| Arc::clone(one) as Arc<dyn Upstream>);
    let others = others
        .iter()
        .map(|one| Arc::clone(one) as Arc<dyn Upstream>);
    let config = ResolverConfig::new(mirrors_.chain(others).collect());
    let resolver = Resolver::new(config, Arc::new(Table::default()));
    mirrors.iter().for_each(|mirror| mirror.lead_to(&resolver));
    resolver
}

async fn ask(resolver: &Arc<Resolver>, text: &str) -> Vec<u8> {
    let packet = encode_query(7, &name(text), RecordType::A, QueryOptions::default());
    resolver.answer(&packet, &Asker::new(pod())).await.unwrap()
}

/// Fails unless the reply is SERVFAIL, available for recursion, and says why.
fn assert_loop(reply: &[u8]) {
    assert_eq!(reply[3], 0x82, "RA and SERVFAIL");
    assert!(reply.ends_with(b"\0\x0f\0\x06\0\0loop"), "{reply:?}");
}

const LONG: &str = "authors.default.svc.cluster.local";

#[tokio::test(start_paused = true)]
async fn loops_01_our_own_socket_is_never_asked_and_another_upstream_answers_at_once() {
    let own = Mirror::new("127.0.0.1:1053");
    let real = Arc::new(upstream().with(LONG, RecordType::A, Answer::address(LONG, v4(1))));
    let resolver = looped(std::slice::from_ref(&own), std::slice::from_ref(&real));
    resolver.loops().set_addresses(OwnAddresses {
        bound: ["0.0.0.0:1053".parse().unwrap()].into(),
        ..OwnAddresses::default()
    });
    let begun = Instant::now();
    let reply = answers(&ask(&resolver, "authors").await).unwrap();
    assert_eq!(shown(&reply), ["authors A 10.96.0.1"]);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(own.asked().is_empty());
    assert_eq!(
        resolver.upstreams().status()[0].state,
        UpstreamState::Looped
    );

    resolver.set_upstreams(vec![Arc::clone(&own) as Arc<dyn Upstream>]);
    assert_loop(&ask(&resolver, "authors").await);
    assert!(own.asked().is_empty(), "also in the next set");
}

#[tokio::test(start_paused = true)]
async fn loops_02_loopback_with_another_port_is_kept() {
    let sidecar = Mirror::new("127.0.0.1:5353").set(|state| {
        state.zones.clear();
        state.held = vec![name(LONG)];
    });
    let resolver = looped(std::slice::from_ref(&sidecar), &[]);
    resolver.loops().set_addresses(OwnAddresses {
        bound: ["[::]:1053".parse().unwrap()].into(),
        ..OwnAddresses::default()
    });
    let reply = answers(&ask(&resolver, LONG).await).unwrap();
    assert_eq!(shown(&reply), [format!("{LONG} A 192.0.2.7")]);
}

#[tokio::test(start_paused = true)]
async fn loops_03_an_address_that_becomes_ours_is_left_out_and_comes_back_when_it_goes() {
    let node = Mirror::new("198.51.100.10").set(|state| state.zones.clear());
    let resolver = looped(std::slice::from_ref(&node), &[]);
    let with = |local: &[&str]| OwnAddresses {
        bound: ["0.0.0.0:53".parse().unwrap()].into(),
        local: local.iter().map(|text| text.parse().unwrap()).collect(),
        ..OwnAddresses::default()
    };
    let state = || resolver.upstreams().status()[0].state;
    resolver.loops().set_addresses(with(&["10.244.1.11"]));
    assert_ne!(state(), UpstreamState::Looped);
    resolver
        .loops()
        .set_addresses(with(&["10.244.1.11", "198.51.100.10"]));
    assert_eq!(state(), UpstreamState::Looped);
    assert_loop(&ask(&resolver, LONG).await);
    resolver.loops().set_addresses(with(&["10.244.1.11"]));
    assert_ne!(state(), UpstreamState::Looped);
    let reply = answers(&ask(&resolver, LONG).await).unwrap();
    assert_eq!(reply.code, ResponseCode::NXDOMAIN);
}

#[tokio::test(start_paused = true)]
async fn loops_04_the_address_of_our_own_service_is_left_out_and_again_when_it_is_another() {
    let service = Mirror::new("10.96.0.53");
    let resolver = looped(std::slice::from_ref(&service), &[]);
    let published = |text: &str| OwnAddresses {
        bound: ["0.0.0.0:1053".parse().unwrap()].into(),
        published: [text.parse().unwrap()].into(),
        ..OwnAddresses::default()
    };
    resolver.loops().set_addresses(published("10.96.0.53:53"));
    assert_loop(&ask(&resolver, LONG).await);
    assert!(service.asked().is_empty());
    // The Service was made anew under another address: what has the old one now is not us.
    service.set(|state| state.zones.clear());
    resolver.loops().set_addresses(published("10.96.0.54:53"));
    let reply = answers(&ask(&resolver, LONG).await).unwrap();
    assert_eq!(reply.code, ResponseCode::NXDOMAIN);
}

#[tokio::test(start_paused = true)]
async fn loops_09_a_name_that_comes_back_as_it_was_spelled_fails_at_once() {
    for asked in [LONG, "authors", "www.example.org", "authors.default"] {
        let mirror = Mirror::new("10.96.0.10").set(|state| state.drops_options = true);
        let resolver = looped(std::slice::from_ref(&mirror), &[]);
        let begun = Instant::now();
        assert_loop(&ask(&resolver, asked).await);
        assert_eq!(begun.elapsed(), Duration::ZERO, "{asked}");
        let sent = mirror.asked_names();
        assert!(sent.len() <= 4, "candidates only: {sent:?}");
        let before = sent.len();
        assert_loop(&ask(&resolver, asked).await);
        assert!(
            mirror.asked_names().len() > before,
            "{asked}: nothing is remembered"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn loops_09_a_short_name_from_the_address_of_its_upstream_fails_at_once() {
    let mirror = Mirror::new("10.96.0.10").set(|state| {
        state.folds_case = true;
        state.drops_options = true;
    });
    let resolver = looped(std::slice::from_ref(&mirror), &[]);
    let begun = Instant::now();
    assert_loop(&ask(&resolver, "1.0.96.10.in-addr.arpa").await);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(mirror.asked().len(), 1);
}

/// D15: {self, real}, where one query became 901 elsewhere.
#[tokio::test(start_paused = true)]
async fn loops_10_the_flight_that_is_looped_completes_through_other_branches() {
    let mirror = Mirror::new("10.96.0.10").set(|state| state.drops_options = true);
    let answer = Answer::address(LONG, v4(1)).after(ms(100));
    let real = Arc::new(upstream().with(LONG, RecordType::A, answer));
    let resolver = looped(std::slice::from_ref(&mirror), std::slice::from_ref(&real));
    let begun = Instant::now();
    let reply = answers(&ask(&resolver, "authors").await).unwrap();
    assert_eq!(shown(&reply), ["authors A 10.96.0.1"]);
    assert_eq!(begun.elapsed(), ms(100), "what came back waits for nothing");
    let candidates = pod().search.len() + 1;
    assert!(real.asked().len() <= candidates, "{:?}", real.asked_names());
    assert!(
        mirror.asked().len() <= candidates,
        "{:?}",
        mirror.asked_names()
    );
}

#[tokio::test(start_paused = true)]
async fn loops_10_followers_with_a_spelling_of_their_own_are_never_taken_for_loops() {
    let answer = Answer::address(LONG, v4(1)).after(ms(50));
    let real = Arc::new(upstream().with(LONG, RecordType::A, answer));
    let resolver = looped(&[], std::slice::from_ref(&real));
    let spellings = [
        LONG,
        "AUTHORS.DEFAULT.SVC.CLUSTER.LOCAL",
        "AuThOrS.dEfAuLt.SvC.cLuStEr.LoCaL",
    ];
    let begun = Instant::now();
    let replies = futures::future::join_all(spellings.map(|text| ask(&resolver, text))).await;
    for (reply, text) in replies.iter().zip(spellings) {
        assert_eq!(
            shown(&answers(reply).unwrap()),
            [format!("{text} A 10.96.0.1")]
        );
    }
    assert_eq!(begun.elapsed(), ms(50));
    assert_eq!(real.asked().len(), 1);
    // Whoever sits at the upstream's address and asks the same in its own spelling is a client too.
    let packet = encode_query(
        7,
        &name("Authors.default.svc.Cluster.local"),
        RecordType::A,
        QueryOptions::default(),
    );
    resolver.flush();
    let client = Asker::at("10.96.0.10:4711".parse().unwrap(), pod());
    let (first, second) = tokio::join!(ask(&resolver, LONG), resolver.answer(&packet, &client));
    assert_eq!(answers(&first).unwrap().answers.len(), 1);
    assert_eq!(answers(&second.unwrap()).unwrap().answers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn loops_11_aliases_that_go_in_a_circle_fail_at_once_and_nothing_is_kept() {
    let alias = |to: &str| Local::Alias(name(to));
    let of = |text: &str| format!("{text}.default.svc.cluster.local");
    let mut table = Table::default()
        .with(&of("a"), RecordType::A, alias(&of("b")))
        .with(&of("b"), RecordType::A, alias(&of("A")))
        .with(&of("self"), RecordType::A, alias(&of("self")))
        .with(&of("out"), RecordType::A, alias("out.example.net"))
        .with(&of("deep0"), RecordType::A, alias(&of("deep1")));
    for depth in 1..12 {
        table = table.with(
            &of(&format!("deep{depth}")),
            RecordType::A,
            alias(&of(&format!("deep{}", depth + 1))),
        );
    }
    let back = Answer::records([Record::cname("out.example.net", &of("out"))]);
    let there = Answer::records([
        Record::cname("one.example.net", "two.example.net"),
        Record::cname("two.example.net", "one.example.net"),
    ]);
    let outside = upstream()
        .with("out.example.net", RecordType::A, back)
        .with("one.example.net", RecordType::A, there);
    let world = World::with([outside], table, |_| {});
    for asked in ["a", "self", "deep0", "out", "one.example.net"] {
        for _ in 0..2 {
            let begun = Instant::now();
            let packet = encode_query(7, &name(asked), RecordType::A, QueryOptions::default());
            assert_loop(&world.raw(&packet, &pod()).await);
            assert_eq!(begun.elapsed(), Duration::ZERO, "{asked}");
        }
    }
    let asked = world.asked();
    for outside in ["out.example.net", "one.example.net"] {
        let times = asked.iter().filter(|name| *name == outside).count();
        assert_eq!(times, 2, "asked again, for nothing was kept: {asked:?}");
    }
}
