//! The session's resolver between a manager and an original server, both on loopback.

use std::sync::atomic::{AtomicBool, Ordering};

use kubebridge_dns::message::{Parsed, QueryOptions, answers, encode_query};
use kubebridge_dns::name::RecordType;
use kubebridge_dns::test_util::{Answer, LoopbackServer, Record};
use kubebridge_proto::session::SessionRequest;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::*;
use crate::control::way::Reach;
use crate::control::{Control, dial, open_session};
use crate::session::Health;
use crate::test_util::fake_manager::{FakeManager, Script};
use crate::test_util::table_of;
use crate::zones::ZoneNames;

mod explained;

pub(crate) struct World {
    pub(crate) resolver: Arc<LocalDns>,
    pub(crate) control: Control,
    script: Arc<Script>,
    manager: Option<FakeManager>,
    originals: LoopbackServer,
    /// The names the cluster was asked for.
    asked: Arc<Mutex<Vec<String>>>,
    routes: watch::Sender<RouteTable>,
}

impl World {
    async fn new(cluster: Answer) -> Self {
        Self::with(move |packet| Some(cluster.reply_to(packet))).await
    }

    pub(crate) async fn with(
        cluster: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let script = Script::new(move |packet| {
            if let Checked::Query(query) = message::check(packet) {
                seen.lock().push(query.name.to_string());
            }
            cluster(packet)
        });
        let manager = FakeManager::start(&script).await;
        let originals =
            LoopbackServer::saying(Answer::address("www.example.com", [192, 0, 2, 1])).await;
        let request = SessionRequest {
            client_version: "0.1.0".to_owned(),
            id: None,
            namespaces: vec!["default".to_owned(), "shop".to_owned()],
            domains: Vec::new(),
            tokens: Vec::new(),
        };
        let reach = Reach::direct(manager.address);
        let channel = dial(&reach).await.unwrap();
        let session = open_session(&reach, channel.clone(), &request)
            .await
            .unwrap();
        let control = Control::start(reach, channel, request.clone(), session, Clock::fake().0);
        let table = table_of(&[("default", &["authors"]), ("shop", &["authors"])]);
        let (sender, routes) = watch::channel(table);
        let zones = ZoneNames {
            cluster_domain: "cluster.local".to_owned(),
            namespaces: request.namespaces,
            domains: Vec::new(),
            reverse: Vec::new(),
        };
        let resolver = Arc::new(LocalDns {
            hosts: None,
            zones: watch::channel(Arc::new(Zones::new(&zones).unwrap())).1,
            routes,
            exchange: control.exchange(),
            originals: Arc::new(Originals::new(&[originals.address()], &[])),
            stale: Arc::default(),
            clock: Clock::fake().0,
        });
        Self {
            resolver,
            control,
            script,
            manager: Some(manager),
            originals,
            asked,
            routes: sender,
        }
    }

    async fn ask(&self, name: &str) -> Parsed {
        let name = name.parse().unwrap();
        let query = encode_query(9, &name, RecordType::A, QueryOptions::default());
        answers(&self.resolver.answer(query).await.unwrap()).unwrap()
    }
}

fn authors() -> Answer {
    Answer::records(vec![
        Record::address("authors.default", [10, 96, 0, 7]).ttl(5),
    ])
}

#[tokio::test]
async fn cluster_names_are_answered_by_the_cluster_with_no_time_to_live() {
    let world = World::new(authors()).await;

    let reply = world.ask("authors.default").await;

    assert_eq!((reply.id, reply.code), (9, ResponseCode::NOERROR));
    assert_eq!(reply.answers[0].ttl, 0);
    assert_eq!(*world.asked.lock(), ["authors.default"]);
    assert!(world.originals.received().is_empty());
}

#[tokio::test]
async fn an_alias_in_the_cluster_is_given_as_addresses() {
    let records = vec![
        Record::cname("docs.default", "docs.example.net"),
        Record::address("docs.example.net", [192, 0, 2, 5]),
    ];
    let world = World::new(Answer::records(records)).await;

    let reply = world.ask("docs.default").await;

    assert_eq!(reply.answers.len(), 1);
    assert_eq!(reply.answers[0].owner.to_string(), "docs.default");
}

#[tokio::test]
async fn names_of_the_world_never_reach_the_cluster() {
    let world = World::new(authors()).await;

    for name in [
        "www.example.com",
        "example.shop",
        "www.example.com.default.svc.cluster.local",
    ] {
        world.ask(name).await;
    }

    assert_eq!(*world.asked.lock(), Vec::<String>::new());
    assert_eq!(world.originals.received().len(), 2);
}

#[tokio::test]
async fn single_labels_never_reach_the_original_servers() {
    let world = World::new(authors()).await;

    assert_eq!(world.ask("printer").await.code, ResponseCode::NXDOMAIN);
    assert_eq!(world.ask("shop").await.code, ResponseCode::NOERROR);
    assert_eq!(world.ask("authors").await.code, ResponseCode::NOERROR);

    assert_eq!(*world.asked.lock(), ["authors"]);
    assert!(world.originals.received().is_empty());
}

#[tokio::test]
async fn without_the_tunnel_cluster_names_fail_and_others_resolve() {
    let mut world = World::new(authors()).await;
    let socket = world.manager.take().unwrap().die();
    let mut tunnel = world.control.tunnel();
    tunnel
        .wait_for(|tunnel| tunnel.health() == Health::Degraded)
        .await
        .unwrap();

    assert_eq!(
        world.ask("authors.default").await.code,
        ResponseCode::SERVFAIL
    );
    assert_eq!(
        world.ask("www.example.com").await.code,
        ResponseCode::NOERROR
    );

    drop(socket);
}

#[tokio::test]
async fn a_question_on_its_way_when_the_tunnel_breaks_gets_the_last_answer() {
    let asked_again = Arc::new(Notify::new());
    let bell = Arc::clone(&asked_again);
    let is_known = AtomicBool::new(false);
    let mut world = World::with(move |packet| {
        if is_known.swap(true, Ordering::Relaxed) {
            bell.notify_one();
            return None;
        }
        Some(authors().reply_to(packet))
    })
    .await;
    let first = world.ask("authors.default").await;
    let manager = world.manager.take().unwrap();

    let dying = async {
        asked_again.notified().await;
        manager.die()
    };
    let (second, _socket) = tokio::join!(world.ask("authors.default"), dying);

    assert_eq!(second.code, ResponseCode::NOERROR);
    assert_eq!(second.answers, first.answers);
}

#[tokio::test]
async fn without_the_tunnel_the_last_answer_stands_in_unless_the_routes_know_better() {
    let mut world = World::new(authors()).await;
    let first = world.ask("authors.default").await;
    let socket = world.manager.take().unwrap().die();
    let mut tunnel = world.control.tunnel();
    tunnel
        .wait_for(|tunnel| tunnel.health() == Health::Degraded)
        .await
        .unwrap();

    let stale = world.ask("AUTHORS.default").await;
    assert_eq!(stale.code, ResponseCode::NOERROR);
    assert_eq!(
        stale.addresses().collect::<Vec<_>>(),
        first.addresses().collect::<Vec<_>>()
    );
    assert_eq!(stale.answers[0].ttl, 0);
    assert_eq!(world.resolver.stale.given(), 1);
    assert_eq!(
        world.ask("books.default").await.code,
        ResponseCode::SERVFAIL
    );

    world
        .routes
        .send_replace(table_of(&[("default", &["books"]), ("shop", &[])]));
    assert_eq!(
        world.ask("authors.default").await.code,
        ResponseCode::SERVFAIL
    );
    drop(socket);
}

#[tokio::test]
async fn time_asleep_makes_an_answer_too_old() {
    let (clock, sleeper) = Clock::fake();
    let mut world = World::new(authors()).await;
    Arc::get_mut(&mut world.resolver).unwrap().clock = clock;
    world.ask("authors.default").await;
    let socket = world.manager.take().unwrap().die();
    let mut tunnel = world.control.tunnel();
    tunnel
        .wait_for(|tunnel| tunnel.health() == Health::Degraded)
        .await
        .unwrap();
    assert_eq!(
        world.ask("authors.default").await.code,
        ResponseCode::NOERROR
    );

    sleeper.sleep(Duration::from_secs(601));

    assert_eq!(
        world.ask("authors.default").await.code,
        ResponseCode::SERVFAIL
    );
    drop(socket);
}

#[tokio::test]
async fn what_is_no_query_is_not_forwarded() {
    let world = World::new(authors()).await;
    let mut response = encode_query(
        9,
        &"authors".parse().unwrap(),
        RecordType::A,
        QueryOptions::default(),
    );
    response[2] |= 0x80;

    assert_eq!(world.resolver.answer(vec![1, 2, 3]).await, None);
    assert_eq!(world.resolver.answer(response).await, None);
    assert!(world.asked.lock().is_empty() && world.originals.received().is_empty());
}

#[tokio::test]
async fn loops_07_a_query_that_comes_back_from_an_original_server_fails_at_once() {
    let world = World::new(authors()).await;
    let silent = LoopbackServer::saying(Answer::silence()).await;
    world.resolver.originals.replace(&[silent.address()]);
    let name = "www.example.com".parse().unwrap();
    let query = encode_query(9, &name, RecordType::A, QueryOptions::default());
    let resolver = Arc::clone(&world.resolver);
    let asking = tokio::spawn(async move { resolver.answer(query).await });
    silent.receives(1).await;

    // What the server got comes in again, as by a resolver of the machine that reads our settings.
    let sent = silent.received()[0].message.clone();
    let reply = world.resolver.answer(sent.clone()).await.unwrap();

    assert_eq!(answers(&reply).unwrap().code, ResponseCode::SERVFAIL);
    assert!(reply.ends_with(b"loop"), "{reply:?}");
    assert!(
        !sent.windows(4).any(|bytes| bytes == b"kb\0\x01"),
        "it tells of no process"
    );
    // The same question of a program, in its own spelling, is no loop: it is asked too.
    let own = encode_query(7, &name, RecordType::A, QueryOptions::default());
    let resolver = Arc::clone(&world.resolver);
    let second = tokio::spawn(async move { resolver.answer(own).await });
    silent.receives(2).await;
    asking.abort();
    second.abort();
}
