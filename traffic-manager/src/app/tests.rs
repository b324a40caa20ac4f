//! The whole manager in-process over loopback, fed by a file of manifests or by hand.

use std::path::PathBuf;
use std::time::Duration;

use kubebridge_dns::message::{self, QueryOptions};
use kubebridge_dns::name::RecordType;
use kubebridge_proto::names::check_label;
use kubebridge_proto::routes::RouteUpdate;
use kubebridge_proto::session::SessionInfo;
use kubebridge_proto::v1;
use kubebridge_proto::v1::traffic_manager_client::TrafficManagerClient;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::*;
use crate::access::key_file::KeyFile;
use crate::config::{AuditLog, Auth, Namespaces, Resolution};
use crate::test_util::issuer::{ISSUER, Issuer};

mod access;
mod dns;
mod expiry;
mod explain;
mod flows;
mod lifecycle;
mod newer;
mod races;
mod routes;
mod sessions;
mod upstreams;

/// How long anything may take that a test waits for: no measure of it, but the end of a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for what surely comes, and says what it was when it does not.
async fn within<T>(what: &str, coming: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, coming).await {
        Ok(came) => came,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}

/// Services of two namespaces, of every kind.
const MANIFEST: &str = "\
kind: List
items:
- {kind: Service, metadata: {name: authors}, spec: {clusterIP: 10.96.0.20, ports: [{port: 80}]}}
- {kind: Service, metadata: {name: dual}, spec: {clusterIPs: [10.96.0.22, 'fd00::22']}}
- {kind: Service, metadata: {name: balanced}, spec: {type: LoadBalancer, clusterIP: 10.96.0.23}}
- {kind: Service, metadata: {name: db}, spec: {clusterIP: None}}
- {kind: Service, metadata: {name: docs}, spec: {type: ExternalName, externalName: docs.example}}
- {kind: Service, metadata: {name: authors, namespace: shop}, spec: {clusterIP: 10.96.0.21}}
";

/// A running manager with the file it takes its Services from.
struct World {
    running: Running,
    directory: TempDir,
    client: Client,
    issuer: Issuer,
    audit: mpsc::Receiver<String>,
}

type Client = TrafficManagerClient<Channel>;

impl World {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("services.yaml");
        std::fs::write(&file, MANIFEST).unwrap();
        let issuer = Issuer::default();
        let keys = directory.path().join("keys.json");
        std::fs::write(&keys, issuer.jwks()).unwrap();
        let (lines, audit) = mpsc::channel(1024);
        let mut config = loopback(Source::Manifests {
            file,
            namespaces: Namespaces::All,
        });
        config.token_keys = Some(KeyFile {
            path: keys,
            issuer: ISSUER.to_owned(),
        });
        config.audit = AuditLog::Lines(lines);
        change(&mut config);
        let running = start(config).await.unwrap();
        let client = connect(running.grpc).await;
        Self {
            running,
            directory,
            client,
            issuer,
            audit,
        }
    }

    /// Starts a manager of one namespace, which needs no tokens (R5).
    async fn start_of_one(namespace: &str) -> Self {
        Self::start_with(|config| {
            config.auth = Auth::PortForward;
            config.token_keys = None;
            if let Source::Manifests { namespaces, .. } = &mut config.source {
                *namespaces = Namespaces::These([namespace.to_owned()].into());
            }
        })
        .await
    }

    /// Replaces the file at once, as an editor does.
    fn write(&self, text: &str) {
        let new = self.directory.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("services.yaml")
    }

    async fn open(&mut self, namespaces: &[&str]) -> SessionInfo {
        self.try_open(None, namespaces).await.unwrap()
    }

    /// Opens or renews a session with a token for each namespace that can have one.
    async fn try_open(
        &mut self,
        id: Option<&str>,
        namespaces: &[&str],
    ) -> Result<SessionInfo, Status> {
        let valid = |name: &&&str| check_label("namespace", name).is_ok();
        let proven: Vec<_> = namespaces.iter().filter(valid).copied().collect();
        let tokens = self.issuer.tokens(&proven);
        open(&mut self.client, id, namespaces, tokens).await
    }
}

fn loopback(source: Source) -> Config {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let search = [
        "kubebridge.svc.cluster.local",
        "svc.cluster.local",
        "cluster.local",
    ];
    Config {
        dns_listen: vec![any],
        grpc_listen: any,
        admin_listen: any,
        resolution: Resolution {
            resolv_conf: None,
            search: search
                .iter()
                .map(|domain| domain.parse().unwrap())
                .collect(),
            ..Resolution::default()
        },
        source,
        ..Config::default()
    }
}

async fn connect(address: SocketAddr) -> Client {
    TrafficManagerClient::connect(format!("http://{address}"))
        .await
        .unwrap()
}

async fn open(
    client: &mut Client,
    id: Option<&str>,
    namespaces: &[&str],
    tokens: Vec<v1::NamespaceToken>,
) -> Result<SessionInfo, Status> {
    let request = v1::OpenSessionRequest {
        client_version: "0.1.0".to_owned(),
        session_id: id.unwrap_or_default().to_owned(),
        namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        tokens,
        ..v1::OpenSessionRequest::default()
    };
    let answer = client.open_session(request).await?;
    Ok(SessionInfo::try_from(answer.into_inner()).unwrap())
}

/// One open route stream.
struct Routes {
    wanted: mpsc::Sender<v1::WatchNamespaceRoutesRequest>,
    frames: Streaming<v1::WatchNamespaceRoutesResponse>,
}

impl Routes {
    async fn open(client: &mut Client, session: &str, wanted: &[(&str, u64)]) -> Self {
        let (sender, requests) = mpsc::channel(4);
        sender.send(wants(session, wanted)).await.unwrap();
        let frames = client
            .watch_namespace_routes(ReceiverStream::new(requests))
            .await
            .unwrap();
        Self {
            wanted: sender,
            frames: frames.into_inner(),
        }
    }

    async fn want(&self, wanted: &[(&str, u64)]) {
        self.wanted.send(wants("", wanted)).await.unwrap();
    }

    async fn next(&mut self) -> RouteUpdate {
        let frame = within("a frame of routes", self.frames.message()).await;
        let frame = frame.unwrap().expect("the stream ended");
        RouteUpdate::try_from(frame).unwrap()
    }

    async fn failure(&mut self) -> Status {
        loop {
            match self.frames.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended well"),
                Err(status) => return status,
            }
        }
    }
}

fn wants(session: &str, wanted: &[(&str, u64)]) -> v1::WatchNamespaceRoutesRequest {
    let subscription = |(namespace, revision): &(&str, u64)| v1::NamespaceSubscription {
        namespace: (*namespace).to_owned(),
        revision: *revision,
        restart: false,
    };
    v1::WatchNamespaceRoutesRequest {
        session_id: session.to_owned(),
        namespaces: wanted.iter().map(subscription).collect(),
    }
}

fn query(name: &str, rtype: RecordType) -> Vec<u8> {
    message::encode_query(7, &name.parse().unwrap(), rtype, QueryOptions::default())
}

/// Writes a reply as its code and its answers.
fn text(reply: &[u8]) -> String {
    let parsed = message::answers(reply).unwrap();
    let answers = parsed
        .answers
        .iter()
        .map(|answer| format!(" {}={}", answer.rtype, answer.data));
    format!("{}{}", parsed.code, answers.collect::<String>())
}
