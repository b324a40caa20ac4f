//! `kubebridge demo`: a manager and a session in one process on loopback, and what they answer.
//!
//! Needs no cluster and no root, and changes nothing on the machine. The only module that may use
//! the traffic-manager as a library.

mod questions;
mod services;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kubebridge_platform::{Clock, Sys, read_host_dns};
use kubebridge_proto::session::SessionRequest;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use traffic_manager::app::{self, Running};
use traffic_manager::config::{Auth, Config, Namespaces, Resolution, Source};

use crate::cli::{DemoArgs, Global, Output};
use crate::connect::{STOPS, signals};
use crate::control::way::Reach;
use crate::control::{Control, dial, open_session};
use crate::failure::{Exit, Failure};
use crate::local_dns::{LocalDns, Serving};
use crate::originals::Originals;
use crate::output::{print, print_line};
use crate::routes::RouteTable;
use crate::zones::{ZoneNames, Zones};
use questions::{Answered, Question};
use services::{DOMAIN, NAMESPACES, Services};

/// How long a change may take to show: files are looked at every second or so.
const CHANGE_TIME: Duration = Duration::from_secs(10);

/// Runs the demo until its checks are done (`--once`) or it is stopped.
///
/// # Errors
///
/// The ports are taken, or an answer was not the expected one (exit code 1).
pub async fn demo(arguments: &DemoArgs, global: &Global) -> Result<(), Failure> {
    let (sender, mut stops) = mpsc::channel(STOPS);
    let _signals = signals(sender)?;
    tokio::select! {
        outcome = show(arguments, global.output) => outcome,
        _ = stops.recv() => Ok(()),
    }
}

async fn show(arguments: &DemoArgs, output: Output) -> Result<(), Failure> {
    let services = Services::create()?;
    let mut world = World::start(&services, arguments.dns_listen).await?;
    let checked = check(&mut world, &services, output).await;
    if arguments.once {
        world.stop().await;
        return checked;
    }
    checked?;
    if output == Output::Text {
        print(&questions::try_it(world.session_dns));
    }
    world.until_broken().await
}

/// Asks, changes a Service, asks again, and fails when an answer is wrong.
async fn check(world: &mut World, services: &Services, output: Output) -> Result<(), Failure> {
    let mut answers = world.ask(&questions::before()).await;
    if output == Output::Text {
        print_line(&format!("services of {}:", NAMESPACES.join(" and ")));
        print(&questions::table(&answers));
    }
    let took = world.recreate(services).await?;
    let after = world.ask(&questions::after()).await;
    if output == Output::Text {
        let millis = took.as_millis();
        print_line(&format!(
            "\nauthors re-created with another ClusterIP, seen after {millis} ms:"
        ));
        print(&questions::table(&after));
    }
    answers.extend(after);
    if output == Output::Json {
        print_line(&questions::json(&answers));
    }
    match answers.iter().filter(|one| !one.is_right()).count() {
        0 => Ok(()),
        wrong => Err(Failure::message(
            Exit::Other,
            format!("{wrong} of {} answers were not as expected", answers.len()),
        )),
    }
}

/// A manager, and a session's resolver in front of it.
struct World {
    manager: Running,
    control: Control,
    serving: Serving,
    manager_dns: SocketAddr,
    session_dns: SocketAddr,
}

impl World {
    async fn start(services: &Services, listen: SocketAddr) -> Result<Self, Failure> {
        let (udp, tcp) = bind(listen).await?;
        let session_dns = udp.local_addr()?;
        let manager = app::start(manager_config(services)?)
            .await
            .map_err(|error| Failure::new(Exit::Other, error).context("starting the manager"))?;
        let manager_dns = manager.dns.first().copied();
        let manager_dns = manager_dns
            .ok_or_else(|| Failure::message(Exit::Other, "the manager serves no DNS"))?;
        let (control, local) = session(manager.grpc).await?;
        Ok(Self {
            manager,
            control,
            serving: Serving::start(Arc::new(local), udp, tcp),
            manager_dns,
            session_dns,
        })
    }

    async fn ask(&self, questions: &[Question]) -> Vec<Answered> {
        let mut answers = Vec::new();
        for question in questions {
            answers.push(question.ask(self.manager_dns, self.session_dns).await);
        }
        answers
    }

    /// Gives `authors` another address and waits until the session knows.
    async fn recreate(&mut self, services: &Services) -> Result<Duration, Failure> {
        let start = Instant::now();
        let mut routes = self.control.routes();
        services.recreate_authors()?;
        let address = services::AUTHORS_AGAIN;
        let shown = routes.wait_for(|table| {
            let authors = table.service("default", "authors");
            authors.is_some_and(|route| route.cluster_ips.contains(&address))
        });
        match timeout(CHANGE_TIME, shown).await {
            Ok(_) => Ok(start.elapsed()),
            Err(_) => Err(Failure::message(
                Exit::Other,
                "the changed service did not show",
            )),
        }
    }

    async fn until_broken(&mut self) -> Result<(), Failure> {
        tokio::select! {
            ended = self.manager.wait() => {
                ended.map_err(|error| Failure::new(Exit::Other, error).context("the manager"))
            }
            () = self.serving.ended() => Err(Failure::message(Exit::Other, "the session's resolver ended")),
        }
    }

    async fn stop(self) {
        self.serving.stop().await;
        self.control.stop().await;
        self.manager.shutdown().await;
    }
}

async fn bind(listen: SocketAddr) -> Result<(UdpSocket, TcpListener), Failure> {
    let busy = |error: std::io::Error| {
        Failure::new(Exit::Busy, error)
            .context(format!("listening on {listen}"))
            .with_hint("--dns-listen 127.0.0.1:PORT takes another port")
    };
    let tcp = TcpListener::bind(listen).await.map_err(busy)?;
    // The same port, also when the system chose it.
    let udp = UdpSocket::bind(tcp.local_addr()?).await.map_err(busy)?;
    Ok((udp, tcp))
}

fn manager_config(services: &Services) -> Result<Config, Failure> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let name = |text: String| {
        let parsed = text.parse();
        parsed.map_err(|error| Failure::message(Exit::Other, format!("{text}: {error}")))
    };
    let suffixes = [
        format!("default.svc.{DOMAIN}"),
        format!("svc.{DOMAIN}"),
        DOMAIN.to_owned(),
    ];
    Ok(Config {
        dns_listen: vec![any],
        grpc_listen: any,
        admin_listen: any,
        resolution: Resolution {
            resolv_conf: None,
            search: suffixes.into_iter().map(name).collect::<Result<_, _>>()?,
            cluster_domain: Some(name(DOMAIN.to_owned())?),
            ..Resolution::default()
        },
        source: Source::Manifests {
            file: services.path().to_owned(),
            namespaces: Namespaces::All,
        },
        auth: Auth::Demo,
        ..Config::default()
    })
}

/// Opens a session as `connect` does, and makes its resolver.
async fn session(manager: SocketAddr) -> Result<(Control, LocalDns), Failure> {
    let unreachable =
        |error: anyhow::Error| Failure::new(Exit::Unreachable, error).context("the demo's manager");
    let namespaces = NAMESPACES.map(str::to_owned).to_vec();
    let request = SessionRequest {
        client_version: env!("CARGO_PKG_VERSION").to_owned(),
        id: None,
        namespaces: namespaces.clone(),
        domains: Vec::new(),
        tokens: Vec::new(),
    };
    let reach = Reach::direct(manager);
    let channel = dial(&reach).await.map_err(unreachable)?;
    let opened = open_session(&reach, channel.clone(), &request).await;
    let session = opened.map_err(|error| unreachable(error.into()))?;
    let zones = Zones::new(&ZoneNames {
        cluster_domain: session.cluster_domain.clone(),
        namespaces,
        domains: Vec::new(),
        reverse: Vec::new(),
    })?;
    let control = Control::start(reach, channel, request, session, Clock::system());
    let mut routes = control.routes();
    let settled = routes.wait_for(RouteTable::is_settled);
    if timeout(CHANGE_TIME, settled).await.is_err() {
        return Err(Failure::message(
            Exit::Other,
            "the manager did not send its services",
        ));
    }
    // Read only: names outside resolve as the machine resolves them.
    let originals = match read_host_dns(&Sys::default()).await {
        Ok(found) => Originals::new(&found.servers, &found.search),
        Err(_) => Originals::new(&[], &[]),
    };
    let local = LocalDns {
        hosts: None,
        zones: watch::channel(Arc::new(zones)).1,
        routes: control.routes(),
        exchange: control.exchange(),
        originals: Arc::new(originals),
        stale: Arc::default(),
        clock: Clock::system(),
    };
    Ok((control, local))
}

#[cfg(test)]
mod tests;
