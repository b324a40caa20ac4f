//! The program as a process, with what its users see of it: streams, DNS, probes, log.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use kubebridge_dns::message::{QueryOptions, answers, encode_query};
use kubebridge_dns::name::RecordType;
use kubebridge_proto::routes::{NamespaceState, RouteUpdate, ServiceRoute};
use kubebridge_proto::v1;
use kubebridge_proto::v1::traffic_manager_client::TrafficManagerClient;
use std::collections::BTreeMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tonic::Streaming;
use tonic::transport::Channel;
use traffic_manager::test_util::ApiServer;
use traffic_manager::test_util::issuer::Issuer;

use super::server::World;

/// A running manager; killed when dropped.
pub(super) struct Manager {
    child: Child,
    log: Receiver<String>,
    /// Who makes the tokens of its sessions.
    pub(super) api: ApiServer,
    pub(super) dns: SocketAddr,
    pub(super) grpc: SocketAddr,
    pub(super) admin: SocketAddr,
}

impl Manager {
    pub(super) fn start(world: &World, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_traffic-manager"))
            .env_clear()
            .env("KUBECONFIG", world.kubeconfig())
            .args(["serve", "--kubernetes"])
            .args(["--dns-listen=127.0.0.1:0", "--grpc-listen=127.0.0.1:0"])
            .args([
                "--admin-listen=127.0.0.1:0",
                "--search=default.svc.cluster.local",
            ])
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, log) = channel();
        std::thread::spawn(move || {
            let lines = stderr.lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        let mut addresses = ["dns", "grpc", "admin"].map(|listener| {
            let line = line_with(&log, &format!("listener=\"{listener}\""));
            let (_, address) = line.split_once("address=").unwrap();
            address.trim().parse().unwrap()
        });
        let [dns, grpc, admin] = &mut addresses;
        let (dns, grpc, admin) = (*dns, *grpc, *admin);
        Self {
            child,
            log,
            api: world.api.clone(),
            dns,
            grpc,
            admin,
        }
    }

    /// Returns the next log line with this in it.
    pub(super) fn line_with(&self, what: &str) -> String {
        line_with(&self.log, what)
    }

    /// Memory in use, in KiB.
    pub(super) fn rss(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.unwrap().trim().trim_end_matches(" kB");
        number.parse().unwrap()
    }

    pub(super) async fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        reply
    }

    /// Asks a probe until its reply contains this.
    pub(super) async fn until(&self, path: &str, what: &str) -> String {
        let mut tick = tokio::time::interval(Duration::from_millis(50));
        loop {
            tick.tick().await;
            let reply = self.get(path).await;
            if reply.contains(what) {
                return reply;
            }
        }
    }

    /// Asks for the address of a name over plain DNS.
    pub(super) async fn resolve(&self, name: &str) -> String {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let name = name.parse().unwrap();
        let query = encode_query(7, &name, RecordType::A, QueryOptions::default());
        socket.send_to(&query, self.dns).await.unwrap();
        let mut reply = [0; 1500];
        let length = socket.recv(&mut reply).await.unwrap();
        let parsed = answers(&reply[..length]).unwrap();
        let data = parsed
            .answers
            .iter()
            .map(|answer| format!(" {}", answer.data));
        format!("{}{}", parsed.code, data.collect::<String>())
    }

    /// Opens a session and its route stream.
    pub(super) async fn connect(&self) -> TrafficManagerClient<Channel> {
        TrafficManagerClient::connect(format!("http://{}", self.grpc))
            .await
            .unwrap()
    }

    pub(super) async fn routes(&self, namespaces: &[&str]) -> Routes {
        Routes::open(self.connect().await, self.api.issuer(), namespaces).await
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line_with(log: &Receiver<String>, what: &str) -> String {
    loop {
        let line = log.recv_timeout(Duration::from_secs(60)).unwrap();
        if line.contains(what) {
            return line;
        }
    }
}

/// What a client holds of one namespace.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) state: Option<NamespaceState>,
    pub(super) routes: BTreeMap<String, ServiceRoute>,
    pages: Vec<ServiceRoute>,
    /// Every name that was ever removed.
    pub(super) removed: Vec<String>,
}

/// A route stream with the tables it makes.
pub(super) struct Routes {
    frames: Streaming<v1::WatchNamespaceRoutesResponse>,
    pub(super) tables: BTreeMap<String, Table>,
}

impl Routes {
    /// Follows namespaces over a connection that may carry more streams.
    pub(super) async fn open(
        mut client: TrafficManagerClient<Channel>,
        issuer: &Issuer,
        namespaces: &[&str],
    ) -> Self {
        let names = || namespaces.iter().map(|name| (*name).to_owned());
        let request = v1::OpenSessionRequest {
            client_version: "0.1.0".to_owned(),
            namespaces: names().collect(),
            tokens: issuer.tokens(namespaces),
            ..Default::default()
        };
        let session_id = client
            .open_session(request)
            .await
            .unwrap()
            .into_inner()
            .session_id;
        let namespaces = names().map(|namespace| v1::NamespaceSubscription {
            namespace,
            revision: 0,
            restart: false,
        });
        let wanted = v1::WatchNamespaceRoutesRequest {
            session_id,
            namespaces: namespaces.collect(),
        };
        let frames = client
            .watch_namespace_routes(tokio_stream::once(wanted))
            .await
            .unwrap()
            .into_inner();
        Self {
            frames,
            tables: BTreeMap::new(),
        }
    }

    /// Reads until the tables are as wanted.
    pub(super) async fn until(&mut self, what: impl Fn(&BTreeMap<String, Table>) -> bool) {
        while !what(&self.tables) {
            let frame = self
                .frames
                .message()
                .await
                .unwrap()
                .expect("the stream ended");
            let update = RouteUpdate::try_from(frame).unwrap();
            let table = self
                .tables
                .entry(update.namespace().to_owned())
                .or_default();
            table.apply(update);
        }
    }
}

impl Table {
    pub(super) fn ip(&self, name: &str) -> Option<String> {
        Some(self.routes.get(name)?.cluster_ips.first()?.to_string())
    }

    fn apply(&mut self, update: RouteUpdate) {
        match update {
            RouteUpdate::State { state, .. } => self.state = Some(state),
            RouteUpdate::Page { routes, last, .. } => {
                self.pages.extend(routes);
                if last {
                    let pages = std::mem::take(&mut self.pages);
                    let next: BTreeMap<_, _> = pages
                        .into_iter()
                        .map(|route| (route.name.clone(), route))
                        .collect();
                    let gone = self.routes.keys().filter(|name| !next.contains_key(*name));
                    self.removed.extend(gone.cloned());
                    self.routes = next;
                }
            }
            RouteUpdate::Delta {
                upserts, deletes, ..
            } => {
                deletes
                    .iter()
                    .for_each(|name| drop(self.routes.remove(name)));
                self.removed.extend(deletes);
                self.routes
                    .extend(upserts.into_iter().map(|route| (route.name.clone(), route)));
            }
        }
    }
}
