//! Calls of the manager's gRPC from within a machine's network, for what the client never asks.

use anyhow::{Context, Result, anyhow};
use kubebridge_proto::v1::{
    ExchangeDnsRequest, NamespaceSubscription, OpenSessionRequest, WatchNamespaceRoutesRequest,
    exchange_dns_response::Outcome, traffic_manager_client::TrafficManagerClient,
};
use kubebridge_proto::{token::Reason, v1};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming, transport::Channel};

use crate::{machine::Machine, wire};

/// The client of the manager's calls.
pub type Client = TrafficManagerClient<Channel>;

/// Connects to `manager` (`ADDRESS:PORT`) in the network of `machine`, and does `what`.
pub fn call<T, F, Called>(machine: &Machine, manager: &str, what: F) -> Result<T>
where
    T: Send,
    F: FnOnce(Client) -> Called + Send,
    Called: Future<Output = Result<T>>,
{
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            machine.enter_network()?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let client = Client::connect(format!("http://{manager}")).await;
                what(client.with_context(|| format!("connect to {manager}"))?).await
            })
        });
        calling.join().map_err(|_| anyhow!("the caller panicked"))?
    })
}

/// Opens a session for namespaces with these tokens, and gives its id or why there is none.
pub async fn open(
    client: &mut Client,
    namespaces: &[&str],
    tokens: &[(&str, &str)],
) -> Result<Result<String, Option<Reason>>> {
    let token = |(namespace, token): &(&str, &str)| v1::NamespaceToken {
        namespace: (*namespace).to_owned(),
        token: (*token).to_owned(),
    };
    let request = OpenSessionRequest {
        client_version: env!("CARGO_PKG_VERSION").to_owned(),
        namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        tokens: tokens.iter().map(token).collect(),
        ..OpenSessionRequest::default()
    };
    match client.open_session(request).await {
        Ok(answer) => Ok(Ok(answer.into_inner().session_id)),
        Err(status) => match Reason::of(&status) {
            Some(reason) => Ok(Err(Some(reason))),
            None if status.code() == Code::Unauthenticated => Ok(Err(None)),
            None => Err(status.into()),
        },
    }
}

/// Fails unless the routes of `namespace` are denied to the session.
pub async fn routes_denied(client: &mut Client, session: &str, namespace: &str) -> Result<()> {
    let wanted = WatchNamespaceRoutesRequest {
        session_id: session.to_owned(),
        namespaces: vec![NamespaceSubscription {
            namespace: namespace.to_owned(),
            ..NamespaceSubscription::default()
        }],
    };
    let frames = client
        .watch_namespace_routes(tokio_stream::once(wanted))
        .await?;
    match frames.into_inner().message().await {
        Err(status) if status.code() == Code::PermissionDenied => Ok(()),
        other => Err(anyhow!("the routes of {namespace}: {other:?}")),
    }
}

/// An open exchange of DNS messages.
#[derive(Debug)]
pub struct Exchange {
    queries: mpsc::Sender<ExchangeDnsRequest>,
    replies: Streaming<v1::ExchangeDnsResponse>,
    session: String,
}

impl Exchange {
    /// Opens one for a session.
    pub async fn open(client: &mut Client, session: &str) -> Result<Self> {
        let (queries, requests) = mpsc::channel(1);
        let replies = client.exchange_dns(ReceiverStream::new(requests)).await?;
        Ok(Self {
            queries,
            replies: replies.into_inner(),
            session: session.to_owned(),
        })
    }

    /// Asks one question; gives the response code and how many records came back.
    pub async fn ask(&mut self, name: &str, kind: u16) -> Result<(u8, u16)> {
        let request = ExchangeDnsRequest {
            session_id: self.session.clone(),
            tag: 1,
            query: wire::question(7, name, kind),
        };
        self.queries.send(request).await?;
        let reply = self.replies.message().await?.context("the stream ended")?;
        let Some(Outcome::Reply(reply)) = reply.outcome else {
            return Err(anyhow!("{name}: {:?}", reply.outcome));
        };
        let (_, code) = wire::head(&reply).context("no DNS message")?;
        Ok((code, u16::from_be_bytes([reply[6], reply[7]])))
    }
}
