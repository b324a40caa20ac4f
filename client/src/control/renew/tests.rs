//! A session lives on over its tokens, on paused time.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use kubebridge_platform::Clock;
use kubebridge_proto::token::NamespaceToken;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::*;
use crate::access::TokenSource;
use crate::control::way::Reach;
use crate::control::{Control, Tunnel, open_session};
use crate::session::Health;
use crate::test_util::fake_manager::{Script, in_memory};

/// How long the tokens of these tests last.
const LASTS: Duration = Duration::from_secs(100);

/// Tokens with a number, unless there are none just now.
#[derive(Debug, Default)]
struct Numbered {
    made: AtomicUsize,
    fails: AtomicBool,
}

impl TokenSource for Numbered {
    fn tokens<'a>(
        &'a self,
        namespaces: &'a [String],
    ) -> BoxFuture<'a, anyhow::Result<Vec<NamespaceToken>>> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let token = |namespace: &String| NamespaceToken {
            namespace: namespace.clone(),
            token: format!("token-{number}"),
        };
        let tokens = match self.fails.load(Ordering::Relaxed) {
            true => Err(anyhow::anyhow!("the login has expired")),
            false => Ok(namespaces.iter().map(token).collect()),
        };
        std::future::ready(tokens).boxed()
    }
}

struct World {
    script: Arc<Script>,
    tokens: Arc<Numbered>,
    control: Control,
    session: watch::Receiver<SessionInfo>,
}

impl World {
    async fn start() -> Self {
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
            namespaces: vec!["default".to_owned()],
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
