//! Reading the machine for the routes, setting them, and following what changes.

use kubebridge_platform::host::{Host, HostError, Kind};
use kubebridge_platform::routes::Known;
use tokio::time::{Duration, Instant, sleep_until};

use super::RoutesKeeper;
use crate::failure::Failure;
use crate::session::os::{Os, host_failure};
use crate::session::parts::Parts;

/// The least time between two looks through the Services.
const PACE: Duration = Duration::from_secs(1);

impl RoutesKeeper {
    /// Waits until something is to be done about routes. May be dropped and called again.
    pub(in crate::session) async fn due(&mut self, asleep: Duration) {
        let ends = self.hosts.next_end();
        let (not_before, is_idle) = (self.not_before, self.waiting.is_empty());
        let services = &mut self.services;
        let changed = async {
            sleep_until(not_before).await;
            if services.changed().await.is_err() {
                // The session notices elsewhere that the manager is not followed any more.
                std::future::pending::<()>().await;
            }
        };
        let over = async {
            match ends {
                // The clock of the hosts counts the time asleep, the timers' does not.
                Some(end) => sleep_until(end.checked_sub(asleep).unwrap_or(end)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(answered) = self.answered.recv(), if is_idle => self.waiting.push(answered),
            () = changed => {
                self.is_stale = true;
                self.not_before = Instant::now() + PACE;
            }
            () = over => {}
        }
    }
}

impl<O: Os> Parts<'_, O> {
    /// Reads anew what the machine uses, and plans by it.
    pub(in crate::session) async fn plan_routes(&mut self) -> Result<(), Failure> {
        let (Some(keeper), Some(found), Some(reach)) = (&mut self.routes, &self.found, &self.reach)
        else {
            return Ok(());
        };
        let way = reach.way.endpoints().await;
        if !way.is_empty() {
            keeper.way = way;
        }
        let servers = found.originals.servers();
        let known = Known {
            name_servers: servers.iter().map(|server| server.ip()).collect(),
            peers: keeper.choice.peers.clone(),
            cluster: keeper.way.clone(),
            link: self.link.as_ref().map(|link| link.index),
            ours: self.intent.routes.clone(),
        };
        let taken = self.os.read_taken(&known).await?;
        keeper.take(taken);
        keeper.observe();
        keeper.replan()?;
        self.tell_routes();
        Ok(())
    }

    /// Tells what is new about the plan.
    pub(in crate::session) fn tell_routes(&mut self) {
        let news = match &mut self.routes {
            Some(keeper) => keeper.news(),
            None => Vec::new(),
        };
        for one in news {
            self.warn_once(one);
        }
        self.note_routes(None);
    }

    fn note_routes(&self, error: Option<String>) {
        let Some(keeper) = &self.routes else {
            return;
        };
        let (report, hosts) = (keeper.report(), keeper.hosts());
        let applied = !self.intent.routes.is_empty();
        self.board.note(|facts| {
            facts.routing = report;
            facts.routing.applied = applied;
            facts.routing.error = error;
            facts.host_routes = hosts;
        });
    }

    /// Sets the routes that are planned, once there is a link.
    pub(in crate::session) async fn set_routes(&mut self) -> Result<(), Failure> {
        let has_link = self.link.is_some();
        let (Some(keeper), Some(host)) = (&mut self.routes, &mut self.host) else {
            return Ok(());
        };
        if !has_link {
            keeper.let_go();
            return Ok(());
        }
        let now = self.clock.now();
        keeper.renew_hosts(now);
        let wish = self.intent.clone().with_routes(keeper.routes());
        let wish = match wish.and_then(|wish| wish.with_given(keeper.given())) {
            Ok(wish) => wish,
            Err(error) => {
                keeper.let_go();
                return Err(host_failure(HostError::Intent(error)));
            }
        };
        if wish == self.intent {
            keeper.publish();
            self.note_routes(None);
            return Ok(());
        }
        match host.apply(&wish).await {
            Ok(applied) => {
                self.intent = wish;
                keeper.publish();
                self.note_applied(applied);
                self.note_routes(None);
                Ok(())
            }
            // The routes are set before the rest, which is tried again at the next drift.
            Err(error) if matches!(error.kind(), Kind::Dns | Kind::Hosts) => {
                tracing::warn!(error = %host_failure(error).error, "not as wanted");
                self.intent = wish;
                keeper.publish();
                self.note_routes(None);
                Ok(())
            }
            Err(error) => {
                keeper.let_go();
                let failure = host_failure(error);
                self.note_routes(Some(format!("{:#}", failure.error)));
                Err(failure)
            }
        }
    }

    /// Brings the routes up to date; what fails is tried again later.
    pub(in crate::session) async fn refresh_routes(&mut self) {
        let Some(keeper) = &mut self.routes else {
            return;
        };
        let is_changed = keeper.observe();
        let planned = if is_changed { keeper.replan() } else { Ok(()) };
        self.tell_routes();
        let outcome = match planned {
            Ok(()) => self.set_routes().await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = outcome {
            tracing::warn!(error = %format!("{:#}", failure.error), "routes not set");
            // The machine may not be as it was when it was read.
            self.replan_routes().await;
        }
    }

    /// Reads the machine again, plans and sets: it may be on another network, or another cluster.
    pub(in crate::session) async fn replan_routes(&mut self) {
        let outcome = match self.plan_routes().await {
            Ok(()) => self.set_routes().await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = outcome {
            let trouble = format!("{:#}", failure.error);
            tracing::warn!(error = %trouble, "routes not as wanted");
            self.note_routes(Some(trouble));
        }
    }
}
