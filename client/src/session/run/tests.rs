//! Whole sessions on a machine that only writes down what is done to it.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kubebridge_dns::test_util::{Answer, LoopbackServer};
use kubebridge_platform::host::{HostDnsMode, HostError, HostsConflict, Relinked, Verified};
use kubebridge_platform::intent::Intent;
use kubebridge_proto::routes::{NamespaceState, RouteUpdate};
use tokio::task::JoinHandle;

use super::*;
use crate::access::TokenFiles;
use crate::cli::{DnsChoice, HostsForm, Mode, Progress};
use crate::connect::{ANY_PORT, Target};
use crate::control::namespaces::Change;
use crate::probe::{Finding, ask};
use crate::session::routes::RouteChoice;
use crate::status::NamespacesReport;
use crate::status::client::sessions;
use crate::test_util::cluster_ip;
use crate::test_util::fake_manager::{FakeManager, Script};
use crate::test_util::fake_os::{Deed, FakeOs};

/// A session of a fake machine with a fake manager, and an original server that answers `outside`.
struct World {
    os: Arc<FakeOs>,
    script: Arc<Script>,
    manager: Option<FakeManager>,
    originals: LoopbackServer,
    config: Config,
    stop: mpsc::Sender<Stop>,
    stops: Option<mpsc::Receiver<Stop>>,
}

/// The cluster answers every question with one address.
fn cluster_answer(query: &[u8]) -> Vec<u8> {
    Answer::address("kubernetes.default.svc.cluster.local", [10, 96, 0, 1]).reply_to(query)
}

fn at(address: SocketAddr) -> Target {
    Target::Address {
        address: address.into(),
        tls: None,
    }
}

impl World {
    async fn new(change: impl FnOnce(&mut FakeOs, &mut Config)) -> Self {
        let script = Script::new(|query| Some(cluster_answer(query)));
        let manager = FakeManager::start(&script).await;
        let originals = LoopbackServer::saying(Answer::nxdomain(".")).await;
        let mut os = FakeOs::new(vec![originals.address()]);
        let mut config = Config {
            target: at(manager.address),
            namespaces: vec!["default".to_owned()],
            domains: Vec::new(),
            mode: Mode::Tun,
            dns: DnsChoice::Auto,
            hosts: HostsForm::Namespaced,
            probe: None,
            tun_cidr: None,
            data_connections: 4,
            proxy_listen: ANY_PORT,
            routes: RouteChoice::default(),
            token_files: TokenFiles::default(),
            output: Output::Text,
        };
        change(&mut os, &mut config);
        let (stop, stops) = mpsc::channel(4);
        Self {
            os: Arc::new(os),
            script,
            manager: Some(manager),
            originals,
            config,
            stop,
            stops: Some(stops),
        }
    }

    /// Starts the session and sends it a complete namespace with `authors`.
    async fn start(&mut self) -> JoinHandle<Result<(), Failure>> {
        let task = self.start_without_routes();
        self.script.subscribed(1).await;
        let namespace = "default".to_owned();
        let state = NamespaceState::Synced;
        self.script
            .send(RouteUpdate::State { namespace, state })
            .await;
        self.script.send(page(1, &[("authors", "10.96.0.7")])).await;
        task
    }

    fn start_without_routes(&mut self) -> JoinHandle<Result<(), Failure>> {
        let os = Arc::clone(&self.os);
        let (config, sender) = (self.config.clone(), self.stop.clone());
        let stops = self.stops.take().unwrap();
        let surroundings = Surroundings {
            reporter: Arc::new(Reporter::new(Progress::Quiet, Box::new(std::io::sink()))),
            stop_sender: sender,
            stops,
            connected: None,
            log: None,
        };
        tokio::spawn(async move { run(&*os, config, surroundings).await })
    }

    /// Waits for a state, asked over the control socket as `kubebridge status` does.
    async fn until_state(&self, wanted: &str) {
        let mut intent = self.os.intent();
        loop {
            for session in sessions(self.os.runtime.path()).await.unwrap() {
                if session
                    .status()
                    .await
                    .is_ok_and(|status| status.state == wanted)
                {
                    return;
                }
            }
            // Something the session does to the machine, or a moment of the others' work.
            let _ = tokio::time::timeout(Duration::from_millis(20), intent.changed()).await;
        }
    }

    async fn ask(&self, name: &str) -> Finding {
        let resolver: SocketAddr = self.os.resolver().borrow().unwrap();
        let rtype = kubebridge_dns::name::RecordType::A;
        ask(
            resolver,
            &name.parse().unwrap(),
            rtype,
            Duration::from_secs(5),
        )
        .await
        .unwrap()
    }
}

fn page(revision: u64, services: &[(&str, &str)]) -> RouteUpdate {
    RouteUpdate::Page {
        namespace: "default".to_owned(),
        revision,
        routes: services
            .iter()
            .map(|(name, address)| cluster_ip("default", name, address))
            .collect(),
        last: true,
    }
}

/// What is left while the resolver answers on: names lead somewhere until the link goes.
fn routes_only() -> Intent {
    let routes = vec!["10.96.0.0/16".parse().unwrap()];
    Intent::default().with_routes(routes).unwrap()
}

fn hosts(intent: &Intent) -> Vec<String> {
    intent
        .hosts
        .iter()
        .map(|line| format!("{} {}", line.address, line.names.join(" ")))
        .collect()
}

#[tokio::test]
async fn a_session_points_the_machine_at_its_resolver_and_takes_it_back() {
    let mut world =
        World::new(|_, config| config.probe = Some("www.example.com".parse().unwrap())).await;

    let session = world.start().await;
    world.until_state("connected").await;
    let intent = world.os.intent().borrow().clone();
    assert_eq!(hosts(&intent), ["10.96.0.7 authors authors.default"]);
    assert_eq!(intent.dns.unwrap().namespaces, ["default"]);
    assert_eq!(
        world.ask("authors.default").await,
        Finding::Addresses(vec![[10, 96, 0, 1].into()])
    );
    assert_eq!(world.ask("www.example.com").await, Finding::NoSuchName);

    world.stop.send(Stop::Signal).await.unwrap();
    world.until_state("ending").await;
    world.stop.send(Stop::Signal).await.unwrap();
    session.await.unwrap().unwrap();

    let deeds = world.os.deeds();
    assert_eq!(
        deeds[..3],
        [Deed::Recovered, Deed::Opened, Deed::Applied(routes_only())]
    );
    assert!(
        matches!(&deeds[3], Deed::Applied(intent) if intent.dns.is_some() && intent.hosts.is_empty())
    );
    assert!(
        matches!(&deeds[4], Deed::Applied(intent) if intent.dns.is_some() && !intent.hosts.is_empty())
    );
    assert_eq!(
        deeds[5..],
        [Deed::Resolved, Deed::Applied(routes_only()), Deed::Undone]
    );
    assert!(sessions(world.os.runtime.path()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_changed_and_a_deleted_service_show_in_the_hosts_lines() {
    let mut world = World::new(|_, _| {}).await;
    let session = world.start().await;
    world.until_state("connected").await;
    let mut intent = world.os.intent();

    world
        .script
        .send(page(2, &[("authors", "10.96.0.8"), ("books", "10.96.0.9")]))
        .await;
    let both = [
        "10.96.0.8 authors authors.default",
        "10.96.0.9 books books.default",
    ];
    intent
        .wait_for(|intent| hosts(intent) == both)
        .await
        .unwrap();

    world.script.send(page(3, &[("books", "10.96.0.9")])).await;
    intent
        .wait_for(|intent| hosts(intent) == both[1..])
        .await
        .unwrap();

    session.abort();
}

#[tokio::test]
async fn a_name_that_resolved_before_is_left_alone_and_listed() {
    let mut world = World::new(|os, _| os.search = vec!["lan".to_owned()]).await;
    drop(std::mem::replace(
        &mut world.originals,
        LoopbackServer::saying(Answer::nxdomain(".")).await,
    ));
    let known = LoopbackServer::saying(Answer::address("authors.lan", [192, 0, 2, 7])).await;
    Arc::get_mut(&mut world.os).unwrap().servers = vec![known.address()];

    let session = world.start().await;
    world.until_state("connected").await;

    assert_eq!(hosts(&world.os.intent().borrow()), Vec::<String>::new());
    let status = sessions(world.os.runtime.path())
        .await
        .unwrap()
        .remove(0)
        .status()
        .await
        .unwrap();
    let names: Vec<_> = status
        .hosts
        .conflicts
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert!(names.contains(&"authors"), "{names:?}");
    session.abort();
}

#[tokio::test]
async fn without_split_dns_there_are_hosts_lines_only() {
    let mut world = World::new(|os, _| os.mode = HostDnsMode::Plain).await;

    let session = world.start().await;
    world.until_state("connected").await;

    let intent = world.os.intent().borrow().clone();
    assert_eq!(intent.dns, None);
    assert_eq!(hosts(&intent).len(), 1);
    session.abort();
}

impl World {
    async fn status(&self) -> crate::status::StatusReport {
        let mut found = sessions(self.os.runtime.path()).await.unwrap();
        found.remove(0).status().await.unwrap()
    }
}

#[tokio::test]
async fn what_somebody_changed_is_put_back_and_told() {
    let mut world = World::new(|_, _| {}).await;
    let session = world.start().await;
    world.until_state("connected").await;
    let mut verifications = world.os.verifications();
    // The look after the first write.
    verifications.wait_for(|count| *count == 1).await.unwrap();
    let device = std::fs::File::open("/dev/null").unwrap();
    world.os.will_verify(Verified {
        withheld: None,
        repairs: vec!["link kb1 made anew".to_owned()],
        conflicts: vec![HostsConflict {
            name: "books".to_owned(),
            reason: "a line of somebody else".to_owned(),
        }],
        link: Some(Relinked {
            name: "kb1".to_owned(),
            index: 8,
            tun: std::os::fd::OwnedFd::from(device).into(),
        }),
        troubles: vec![HostError::NoLink],
    });

    world.os.disturb();
    verifications.wait_for(|count| *count == 2).await.unwrap();

    // The second look comes by itself and finds nothing.
    verifications.wait_for(|count| *count == 3).await.unwrap();
    let status = world.status().await;
    assert_eq!(status.repairs.count, 1);
    assert_eq!(status.repairs.last[0].what, "link kb1 made anew");
    assert_eq!(status.dns.link.as_deref(), Some("kb1 198.19.248.1/30"));
    session.abort();
}

#[tokio::test]
async fn after_a_sleep_the_machine_is_looked_at_and_the_manager_asked() {
    let mut world = World::new(|_, config| config.hosts = HostsForm::Off).await;
    let session = world.start().await;
    world.until_state("connected").await;
    let mut verifications = world.os.verifications();

    world.os.sleeper.sleep(Duration::from_secs(3600));
    verifications.wait_for(|count| *count == 1).await.unwrap();

    let status = world.status().await;
    assert!(status.uptime_seconds >= 3600, "{}", status.uptime_seconds);
    let tunnel = status.tunnel.unwrap();
    assert!(tunnel.up);
    session.abort();
}

#[tokio::test]
async fn after_a_reconnect_the_networks_are_those_the_manager_knows_now() {
    let mut world = World::new(|_, _| {}).await;
    let session = world.start().await;
    world.until_state("connected").await;
    let mut intent = world.os.intent();
    let before = intent.borrow_and_update().clone();
    assert_eq!(before.dns.as_ref().unwrap().reverse, ["96.10.in-addr.arpa"]);
    let name = "7.0.112.10.in-addr.arpa";
    assert_eq!(world.ask(name).await, Finding::NoSuchName);

    world.script.info.lock().service_cidrs = vec!["10.112.0.0/16".parse().unwrap()];
    let socket = world.manager.take().unwrap().die();
    world.manager = Some(FakeManager::serve(&world.script, socket));

    let after = intent.wait_for(|intent| intent.dns != before.dns);
    let after = after.await.unwrap();
    let dns = after.dns.as_ref().unwrap();
    assert_eq!(dns.reverse, ["112.10.in-addr.arpa"]);
    assert_eq!(dns.routes, before.dns.unwrap().routes);
    assert_eq!(after.hosts, before.hosts);
    drop(after);
    assert_eq!(
        world.ask(name).await,
        Finding::Addresses(vec![[10, 96, 0, 1].into()])
    );
    session.abort();
}

mod namespaces;
mod proxying;
mod routing;
mod undone;
