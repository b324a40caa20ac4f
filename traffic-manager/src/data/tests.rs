//! Flows over real HTTP/2 and real sockets on loopback; addresses of the cluster lead there.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use futures::future::BoxFuture;
use kubebridge_dns::name::Name;
use kubebridge_dns::view::{BarePolicy, PlainView, View};
use kubebridge_proto::flow::{
    Attached, Failure, FailureKind, FlowId, Open, Protocol, Socket, verdict,
};
use kubebridge_proto::routes::{PortProtocol, ServiceKind, ServicePort, ServiceRoute};
use kubebridge_proto::session::SessionRequest;
use parking_lot::Mutex;
use tokio::io::{DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::laptop::{Laptop, within};
use super::*;
use crate::access::Admission;
use crate::access::wall::Wall;
use crate::dial::packets::{Packets, Pings};
use crate::dial::{Dial, Sockets};
use crate::egress::never::Ours;
use crate::egress::rules::Rules;
use crate::kubernetes::endpoints::Endpoints;
use crate::kubernetes::index::{Index, Scope, Served};
use crate::kubernetes::nodes::Nodes;
use crate::sessions::{Session, ViewIds};

mod cluster;
mod ends;
mod limits;
mod resumed;

/// Dials where a script says an address of the cluster is, as kube-proxy would, and remembers what
/// was dialled.
#[derive(Debug, Default)]
struct Script {
    places: Mutex<BTreeMap<SocketAddr, Result<SocketAddr, FailureKind>>>,
    dialled: Mutex<Vec<SocketAddr>>,
}

impl Script {
    fn place(&self, to: SocketAddr) -> Result<SocketAddr, Failure> {
        self.dialled.lock().push(to);
        let place = self.places.lock().get(&to).copied();
        let nowhere = FailureKind::HostUnreachable;
        place.unwrap_or(Err(nowhere)).map_err(Failure::from)
    }
}

impl Dial for Script {
    fn tcp(&self, to: SocketAddr) -> BoxFuture<'_, Result<Socket, Failure>> {
        Box::pin(async move { Sockets.tcp(self.place(to)?).await })
    }

    fn udp(&self, to: SocketAddr) -> BoxFuture<'_, Result<Packets, Failure>> {
        Box::pin(async move { Sockets.udp(self.place(to)?).await })
    }

    fn ping(&self, to: IpAddr) -> BoxFuture<'_, Result<Pings, Failure>> {
        Box::pin(async move {
            self.place((to, 0).into())?;
            Err(FailureKind::Denied.into())
        })
    }
}

/// What serves flows, with one session of namespace `shop`.
struct World {
    data: Data,
    sessions: Arc<Sessions>,
    session: Arc<Session>,
    script: Arc<Script>,
    audit: mpsc::Receiver<String>,
    shutdown: CancellationToken,
    running: JoinHandle<()>,
    _senders: Vec<Box<dyn std::any::Any>>,
}

fn service(namespace: &str, name: &str, address: &str) -> ServiceRoute {
    let port = |port, protocol| ServicePort {
        name: format!("p{port}"),
        protocol,
        port,
    };
    ServiceRoute {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        kind: ServiceKind::ClusterIp,
        cluster_ips: vec![address.parse().unwrap()],
        ports: vec![
            port(80, PortProtocol::Tcp),
            port(81, PortProtocol::Tcp),
            port(5353, PortProtocol::Udp),
        ],
        external_name: None,
    }
}

/// The address of the Service that the session has.
const SHOP: &str = "10.96.0.20:80";
const SHOP_UDP: &str = "10.96.0.20:5353";

impl World {
    fn new() -> Self {
        Self::with_flows(16)
    }

    fn with_flows(flows_per_session: u16) -> Self {
        let (lines, audit) = mpsc::channel(4096);
        let audit_log = Arc::new(Audit::new(Some(lines), Wall::System));
        let plain = View::plain(PlainView {
            search: vec![],
            ndots: None,
            cluster_domain: None,
            absolute_zones: vec![],
            bare: BarePolicy::Never,
        });
        let plain = watch::Sender::new(Arc::new(plain));
        let view_ids = Arc::new(ViewIds::default());
        let sessions = Arc::new(Sessions::new(
            plain.subscribe(),
            view_ids,
            Arc::clone(&audit_log),
        ));
        let index = Arc::new(Index::new(Served::All, 1));
        let routes = vec![
            service("shop", "authors", "10.96.0.20"),
            service("prod", "authors", "10.96.0.21"),
            service("default", "kubernetes", "10.96.0.1"),
        ];
        index.reset(&Scope::All, routes, Instant::now());
        let nodes = watch::Sender::new(Arc::new(Nodes::default()));
        let ours = watch::Sender::new(Arc::new(Ours::default()));
        let ranges = watch::Sender::new(Arc::default());
        let script = Arc::new(Script::default());
        let shutdown = CancellationToken::new();
        let egress = Egress {
            rules: Arc::new(Rules::default()),
            index,
            endpoints: Arc::new(Endpoints::default()),
            ranges: ranges.subscribe(),
            nodes: nodes.subscribe(),
            ours: ours.subscribe(),
        };
        let dial: Arc<dyn Dial> = script.clone();
        let data = Data::new(Parts {
            sessions: Arc::clone(&sessions),
            egress,
            dial,
            flows_per_session,
            audit: audit_log,
            counts: crate::metrics::Metrics::new("0").flows(),
            shutdown: shutdown.clone(),
        });
        let session = open(&sessions, Admission::default());
        let running = tokio::spawn(data.clone().run());
        Self {
            data,
            sessions,
            session,
            script,
            audit,
            shutdown,
            running,
            _senders: vec![
                Box::new(nodes),
                Box::new(ours),
                Box::new(ranges),
                Box::new(plain),
            ],
        }
    }

    /// Makes an address of the cluster lead to a listener.
    async fn listener(&self, address: &str) -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.lead(address, Ok(listener.local_addr().unwrap()));
        listener
    }

    fn lead(&self, address: &str, place: Result<SocketAddr, FailureKind>) {
        self.script
            .places
            .lock()
            .insert(address.parse().unwrap(), place);
    }

    /// Opens a data connection.
    async fn connect(&self) -> Laptop {
        let (near, far) = duplex(256 * 1024);
        self.data.serve(far);
        Laptop::over(near).await
    }

    fn open_tcp(&self, to: &str) -> Open {
        self.open(Protocol::Tcp, to)
    }

    fn open(&self, protocol: Protocol, to: &str) -> Open {
        Open {
            session: self.session.id().to_owned(),
            flow: FlowId::new(rand::random()),
            protocol,
            destination: to.parse().unwrap(),
            resume: None,
        }
    }

    /// Returns the lines of the audit log so far that contain a word.
    fn lines(&mut self, word: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while let Ok(line) = self.audit.try_recv() {
            lines.push(line);
        }
        lines.retain(|line| line.contains(word));
        lines
    }

    /// Waits for a line of the audit log that contains a word.
    async fn line(&mut self, word: &str) -> serde_json::Value {
        let found = async {
            loop {
                let line = self.audit.recv().await.unwrap();
                if line.contains(word) {
                    return serde_json::from_str(&line).unwrap();
                }
            }
        };
        within(word, found).await
    }
}

fn open(sessions: &Sessions, admission: Admission) -> Arc<Session> {
    let request = SessionRequest {
        client_version: "0.1.0".to_owned(),
        id: None,
        namespaces: vec!["shop".to_owned()],
        domains: vec!["corp.example".to_owned()],
        tokens: vec![],
    };
    sessions.open(request, admission, Instant::now()).unwrap()
}
