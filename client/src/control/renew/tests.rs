//! A session lives on over its tokens, on paused time.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use kubebridge_platform::Clock;
use kubebridge_proto::token::NamespaceToken;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::access::{Lacking, TokenSource, Tokens};
use crate::control::way::Reach;
use crate::control::{Control, Tunnel, open_session};
use crate::failure::Exit;
use crate::session::Health;
use crate::test_util::fake_manager::{Script, in_memory};

/// How long the tokens of these tests last.
const LASTS: Duration = Duration::from_secs(100);

/// Tokens with a number, unless there are none just now.
#[derive(Debug, Default)]
struct Numbered {
    made: AtomicUsize,
    fails: AtomicBool,
    /// Namespaces that lack a token for good.
    denied: Mutex<Vec<String>>,
}

impl TokenSource for Numbered {
    fn tokens<'a>(&'a self, namespaces: &'a [String]) -> BoxFuture<'a, anyhow::Result<Tokens>> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let token = |namespace: &String| NamespaceToken {
            namespace: namespace.clone(),
            token: format!("token-{number}"),
        };
        let denied = self.denied.lock();
        let lacking = |namespace: &String| Lacking {
            namespace: namespace.clone(),
            why: format!("no right to {namespace}"),
            help: Some(format!("kubebridge install --namespace {namespace}")),
            exit: Exit::Privilege,
            lasting: true,
        };
        let is_denied = |name: &&String| denied.contains(*name);
        let tokens = match self.fails.load(Ordering::Relaxed) {
            true => Err(anyhow::anyhow!("the login has expired")),
            false => Ok(Tokens {
                made: namespaces
                    .iter()
                    .filter(|name| !is_denied(name))
                    .map(token)
                    .collect(),
                lacking: namespaces.iter().filter(is_denied).map(lacking).collect(),
            }),
        };
        std::future::ready(tokens).boxed()
    }
}

fn names(of: &[&str]) -> Vec<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
}

struct World {
    script: Arc<Script>,
    tokens: Arc<Numbered>,
    control: Control,
    session: watch::Receiver<SessionInfo>,
}

impl World {
    async fn start() -> Self {
        Self::start_for(&["default"]).await
    }

    async fn start_for(namespaces: &[&str]) -> Self {
        let script = Script::new(|query| Some(query.to_vec()));
        script.info.lock().expires_in = Some(LASTS);
        script.remembers.store(true, Ordering::Relaxed);
        let tokens = Arc::new(Numbered::default());
        // Nobody is found by dialling again.
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let reach = Reach {
            tokens: Arc::clone(&tokens) as Arc<dyn TokenSource>,
            ..Reach::direct(nobody)
        };
        let request = SessionRequest {
            client_version: "0.1.0".to_owned(),
            id: None,
            namespaces: names(namespaces),
            domains: Vec::new(),
            tokens: Vec::new(),
        };
        let channel = in_memory(&script);
        let opened = open_session(&reach, channel.clone(), &request).await;
        let clock = Clock::fake().0;
        let control = Control::start(reach, channel, request, opened.unwrap(), clock);
        script.subscribed(1).await;
        Self {
            script,
            tokens,
            session: control.session(),
            control,
        }
    }

    async fn renewed(&mut self) {
        let renewed = timeout(LASTS * 2, self.session.changed()).await;
        renewed.expect("not renewed in time").unwrap();
    }

    /// What the manager was asked for, each time a session was opened or renewed.
    fn asked(&self) -> Vec<Vec<String>> {
        self.script.namespaces.lock().clone()
    }

    /// What the route stream is for, at its nth request.
    async fn subscribed(&self, times: usize) -> Vec<String> {
        let request = self.script.subscribed(times).await;
        let wanted = request.namespaces.into_iter();
        wanted.map(|wanted| wanted.namespace).collect()
    }

    async fn change(&self, change: Change) -> Result<Vec<String>, Failure> {
        let making = self.control.changes();
        timeout(LASTS, making.make(change)).await.expect("no word")
    }

    fn health(&self) -> Health {
        self.control.tunnel().borrow().health()
    }
}

#[tokio::test(start_paused = true)]
async fn r3_a_session_is_renewed_at_eighty_percent_with_fresh_tokens_and_its_streams_go_on() {
    let mut world = World::start().await;
    let start = Instant::now();
    world.renewed().await;
    assert_eq!(start.elapsed().as_secs(), 80);
    world.renewed().await;
    assert_eq!(start.elapsed().as_secs(), 160);
    let sessions = ["", "session-0", "session-0"];
    assert_eq!(*world.script.opened.lock(), sessions);
    let tokens = [["token-0"], ["token-1"], ["token-2"]];
    assert_eq!(*world.script.tokens.lock(), tokens);
    assert_eq!(world.script.subscriptions.borrow().len(), 1);
    assert_eq!(world.health(), Health::Good);
    world.control.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lifecycle_19_while_there_are_no_tokens_the_live_tunnel_stays_and_renewal_is_tried_again() {
    let mut world = World::start().await;
    let start = Instant::now();
    world.tokens.fails.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(95)).await;
    assert_eq!(world.health(), Health::Good);
    assert_eq!(*world.script.opened.lock(), [""]);
    world.tokens.fails.store(false, Ordering::Relaxed);
    world.renewed().await;
    assert_eq!(start.elapsed().as_secs(), 80 + RETRY.as_secs());
    assert_eq!(*world.script.opened.lock(), ["", "session-0"]);
    world.control.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r3_a_session_that_the_manager_ended_is_opened_anew() {
    let world = World::start().await;
    *world.script.refusal.lock() = Some(Reason::SessionExpired.status("over"));
    let mut tunnel = world.control.tunnel();
    let down = timeout(
        LASTS,
        tunnel.wait_for(|tunnel| tunnel.health() == Health::Degraded),
    );
    let down = down.await.expect("not noticed in time").unwrap().clone();
    // Dialling again, which leads nowhere here.
    let Tunnel::Down { reason, .. } = down else {
        panic!("{down:?}")
    };
    assert!(reason.contains("over"), "{reason}");
    world.control.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r3_a_namespace_without_a_token_is_lost_alone_and_comes_back() {
    let mut world = World::start_for(&["default", "shop"]).await;
    world.subscribed(1).await;
    let start = Instant::now();
    *world.tokens.denied.lock() = names(&["shop"]);

    world.renewed().await;
    assert_eq!(start.elapsed().as_secs(), 80);
    assert_eq!(world.asked()[1], ["default"]);
    assert_eq!(world.subscribed(2).await, ["default"]);
    let namespaces = world.control.namespaces().borrow().clone();
    let help = namespaces.lost()["shop"].help.as_deref();
    assert_eq!(help, Some("kubebridge install --namespace shop"));
    assert_eq!(namespaces.wanted(), ["default", "shop"]);
    // It is looked for every 30 s, by itself.
    let before = world.tokens.made.load(Ordering::Relaxed);
    sleep(RETRY * 2 + Duration::from_secs(1)).await;
    assert_eq!(world.tokens.made.load(Ordering::Relaxed), before + 2);
    assert_eq!(world.asked().len(), 2);

    world.tokens.denied.lock().clear();
    world.renewed().await;
    assert_eq!(world.asked()[2], ["default", "shop"]);
    assert_eq!(world.subscribed(3).await, ["default", "shop"]);
    assert!(world.control.namespaces().borrow().lost().is_empty());
    world.control.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r3_a_session_that_has_no_token_at_all_keeps_what_it_has_for_a_while() {
    let mut world = World::start_for(&["default", "shop"]).await;
    *world.tokens.denied.lock() = names(&["default", "shop"]);
    sleep(Duration::from_secs(95)).await;
    assert_eq!(world.asked().len(), 1);
    assert!(world.control.namespaces().borrow().lost().is_empty());
    world.tokens.denied.lock().clear();
    world.renewed().await;
    assert_eq!(world.asked().len(), 2);
    world.control.stop().await;
}

#[tokio::test(start_paused = true)]
async fn w12_namespaces_are_added_used_and_removed_on_the_open_channel() {
    let world = World::start().await;
    let table = [
        (Change::Add("shop".to_owned()), &["default", "shop"][..]),
        (Change::Use("shop".to_owned()), &["shop", "default"]),
        (Change::Remove("default".to_owned()), &["shop"]),
    ];
    for (number, (change, wanted)) in table.into_iter().enumerate() {
        let got = world.change(change.clone()).await.unwrap();
        assert_eq!(got, names(wanted), "{change:?}");
        assert_eq!(world.asked()[number + 1], names(wanted));
        let mut subscribed = world.subscribed(number + 2).await;
        subscribed.sort();
        let mut sorted = names(wanted);
        sorted.sort();
        assert_eq!(subscribed, sorted);
        let covered: Vec<_> = {
            let routes = world.control.routes();
            let table = routes.borrow();
            table
                .namespaces()
                .map(|(name, _)| name.to_owned())
                .collect()
        };
        assert_eq!(covered, sorted);
    }
    let sessions = ["", "session-0", "session-0", "session-0"];
    assert_eq!(*world.script.opened.lock(), sessions);
    assert_eq!(world.health(), Health::Good);
    world.control.stop().await;
}

#[tokio::test(start_paused = true)]
async fn w12_a_denied_namespace_leaves_everything_as_it_was_and_is_named() {
    let world = World::start().await;
    *world.tokens.denied.lock() = names(&["prod"]);
    let refused = world.change(Change::Use("prod".to_owned())).await;
    let failure = refused.unwrap_err();
    assert_eq!(failure.error.to_string(), "no right to prod");
    assert_eq!(failure.exit, Exit::Privilege);
    assert!(failure.hint.is_some());
    // The manager was not asked, and when it is, its word counts.
    assert_eq!(world.asked().len(), 1);
    let refusal = Reason::NamespaceNotServed.status("not served here");
    *world.script.refusal.lock() = Some(refusal);
    let refused = world.change(Change::Add("shop".to_owned())).await;
    let words = format!("{:#}", refused.unwrap_err().error);
    assert_eq!(words, "the manager refused: not served here");
    let namespaces = world.control.namespaces().borrow().clone();
    assert_eq!(namespaces, Namespaces::new(names(&["default"])));
    assert_eq!(world.script.subscriptions.borrow().len(), 1);
    assert_eq!(world.health(), Health::Good);
    world.control.stop().await;
}
