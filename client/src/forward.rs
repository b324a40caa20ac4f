//! `kubebridge forward`: ports of loopback that lead to one destination in the cluster each.
//!
//! The session serves them for as long as whoever asked keeps the control connection. A kernel's
//! listener accepts before anything is dialled, so a connection that leads nowhere is reset, and
//! the command says why. It knows neither sessions nor the control socket.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use kubebridge_proto::flow::Socket;
use rustix::net::sockopt::set_socket_linger;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::failure::{Exit, Failure};
use crate::flows::{BoxTcpFlow, Opener};
use crate::proxy::{Host, Place, Places, REST, Target};

/// Ports of one command: what a person types.
pub const MOST: usize = 32;
/// Connections at once of one command: more than a browser or a pool of a program has.
const CONNECTIONS: usize = 256;
/// How long the connections may take to be reset at the end, which waits for nobody.
const RESET: Duration = Duration::from_secs(1);

/// A port that shall lead into the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    to: Target,
    local: u16,
}

/// Reads `SVC[.NS]:PORT[=LOCAL]`.
impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (to, local) = match text.split_once('=') {
            Some((to, local)) => (to, Some(local)),
            None => (text, None),
        };
        let to = Target::parse(to).ok_or("expected SVC[.NS]:PORT[=LOCAL]")?;
        let local = match local {
            Some(local) => local
                .parse()
                .map_err(|_| format!("`{local}` is no port of this machine (0 is any)"))?,
            None => to.port,
        };
        Ok(Self { to, local })
    }
}

/// As it is written.
impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.to, self.local)
    }
}

/// The ports of one command.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct ForwardReport {
    /// The session's id.
    pub session: String,
    /// In the order asked for.
    pub forwards: Vec<ForwardedReport>,
}

/// One port.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct ForwardedReport {
    /// Where it listens on this machine.
    pub address: SocketAddr,
    /// Where it leads, `HOST:PORT`.
    pub to: String,
}

/// Ports that listen and are not served yet.
#[derive(Debug)]
pub struct Forwards {
    ports: Vec<Port>,
}

#[derive(Debug)]
struct Port {
    to: Target,
    listener: TcpListener,
    address: SocketAddr,
}

/// What connections are made with.
struct Means {
    opener: Arc<dyn Opener>,
    places: Arc<dyn Places>,
    troubles: mpsc::Sender<String>,
    room: Arc<Semaphore>,
    over: CancellationToken,
}

impl Forwards {
    /// Listens on all ports, or on none.
    ///
    /// # Errors
    ///
    /// A name is not of the cluster, or a port cannot be had: exit code 73 if it is in use.
    pub async fn listen(wanted: &[Wanted], places: &dyn Places) -> Result<Self, Failure> {
        if wanted.is_empty() || wanted.len() > MOST {
            return Err(Failure::usage(format!(
                "1 to {MOST} ports, not {}",
                wanted.len()
            )));
        }
        try_join_all(wanted.iter().map(|one| check(&one.to, places))).await?;
        let ports = try_join_all(wanted.iter().map(listen)).await?;
        Ok(Self { ports })
    }

    /// Tells where each listens.
    #[must_use]
    pub fn report(&self, session: &str) -> ForwardReport {
        let forwarded = |port: &Port| ForwardedReport {
            address: port.address,
            to: port.to.to_string(),
        };
        ForwardReport {
            session: session.to_owned(),
            forwards: self.ports.iter().map(forwarded).collect(),
        }
    }

    /// Serves until `over`, and resets what is open then. Connections that lead nowhere are told
    /// of to whoever listens, and to nobody while that one is slow.
    pub async fn serve(
        self,
        opener: Arc<dyn Opener>,
        places: Arc<dyn Places>,
        troubles: mpsc::Sender<String>,
        over: CancellationToken,
    ) {
        let means = Arc::new(Means {
            opener,
            places,
            troubles,
            room: Arc::new(Semaphore::new(CONNECTIONS)),
            over,
        });
        join_all(self.ports.into_iter().map(|port| serve(port, &means))).await;
    }
}

/// A name that nobody has is told before anything waits for connections to it.
async fn check(to: &Target, places: &dyn Places) -> Result<(), Failure> {
    // An address is the manager's to judge: networks are not always known.
    let Host::Name(name) = &to.host else {
        return Ok(());
    };
    match places.find(&to.host, to.port).await {
        // What cannot be looked up now is looked up for each connection.
        Place::Cluster(_) | Place::Unknown => Ok(()),
        Place::NoSuchName => Err(Failure::message(
            Exit::Other,
            format!("there is no {name} in the cluster"),
        )
        .with_hint("kubebridge routes shows the services of the session")),
        Place::Outside(_) => Err(Failure::usage(format!(
            "{name} is not a name of the cluster"
        ))),
    }
}

async fn listen(wanted: &Wanted) -> Result<Port, Failure> {
    let at = (Ipv4Addr::LOCALHOST, wanted.local);
    let failed = |error| not_listening(wanted, error);
    let listener = TcpListener::bind(at).await.map_err(failed)?;
    Ok(Port {
        to: wanted.to.clone(),
        address: listener.local_addr().map_err(failed)?,
        listener,
    })
}

fn not_listening(wanted: &Wanted, error: io::Error) -> Failure {
    let Wanted { to, local } = wanted;
    let (exit, hint) = match error.kind() {
        io::ErrorKind::AddrInUse => (
            Exit::Busy,
            format!(
                "{to}=0 takes any free port; ss -lntp 'sport = :{local}' names who has this one"
            ),
        ),
        io::ErrorKind::PermissionDenied => (
            Exit::Privilege,
            format!("{to}=PORT with a port from 1024 on, or 0 for any"),
        ),
        _ => (Exit::HostOs, format!("{to}=0 takes any free port")),
    };
    Failure::new(exit, error)
        .context(format!("listening on 127.0.0.1:{local}"))
        .with_hint(hint)
}

async fn serve(port: Port, means: &Arc<Means>) {
    let Port { to, listener, .. } = port;
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = means.over.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "not accepted");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&means.room).try_acquire_owned() else {
            let _ = reset(&stream);
            means.tell(format!("{to}: {CONNECTIONS} connections are open already"));
            continue;
        };
        let (to, means) = (to.clone(), Arc::clone(means));
        let connection = async move {
            let _place = place;
            if let Err(why) = connect(stream, &to, &means).await {
                means.tell(format!("{to}: {why}"));
            }
        };
        connections.spawn(connection.in_current_span());
    }
    drop(listener);
    let ending = async { while connections.join_next().await.is_some() {} };
    // What does not end by itself ends with the set.
    let _ = timeout(RESET, ending).await;
}

impl Means {
    fn tell(&self, trouble: String) {
        tracing::debug!(%trouble, "forward");
        // Whoever reads slowly misses some.
        let _ = self.troubles.try_send(trouble);
    }
}

/// Carries one connection to its end.
async fn connect(stream: TcpStream, to: &Target, means: &Means) -> Result<(), String> {
    // A second descriptor, since the flow owns the first: what ends before its time is reset.
    let twin = stream.as_fd().try_clone_to_owned();
    let twin = twin.map_err(|error| error.to_string())?;
    // Small writes of the program go on as they come.
    let _ = stream.set_nodelay(true);
    let opened = tokio::select! {
        opened = open(to, means) => opened,
        () = means.over.cancelled() => Err("ended".to_owned()),
    };
    let flow = match opened {
        Ok(flow) => flow,
        Err(why) => {
            let _ = reset(&twin);
            return Err(why);
        }
    };
    let carrying = flow.carry(Box::new(Socket::new(stream)));
    tokio::select! {
        _ = carrying => {}
        () = means.over.cancelled() => { let _ = reset(&twin); }
    }
    Ok(())
}

/// Opens a flow to the first address that answers; the last failure tells of the others.
async fn open(to: &Target, means: &Means) -> Result<BoxTcpFlow, String> {
    let addresses = match &to.host {
        Host::Address(address) => vec![SocketAddr::new(*address, to.port)],
        Host::Name(_) => match means.places.find(&to.host, to.port).await {
            Place::Cluster(addresses) => addresses,
            Place::Outside(_) => return Err("not a name of the cluster any more".to_owned()),
            Place::NoSuchName => return Err("there is no such name".to_owned()),
            Place::Unknown => return Err("the name could not be resolved".to_owned()),
        },
    };
    let mut why = "it has no address".to_owned();
    for address in addresses {
        match means.opener.open_tcp(address).await {
            Ok(flow) => return Ok(flow),
            Err(failure) => why = format!("{address}: {failure}"),
        }
    }
    Err(why)
}

/// Has a socket send RST when it is closed.
fn reset(socket: &impl AsFd) -> rustix::io::Result<()> {
    set_socket_linger(socket, Some(Duration::ZERO))
}

#[cfg(test)]
mod tests;
