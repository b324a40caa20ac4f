//! Tokens of the ServiceAccount `kubebridge-access`, one for each namespace a session wants.
//!
//! They say what a session may see; the user's own credentials never leave for the manager.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::StreamExt;
use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use kubebridge_proto::token::NamespaceToken;

use super::problem::{Kind, Problem};
use super::rights;
use super::{ACCOUNT, Cluster};
use crate::access::{TokenSource, Tokens};

/// Whom the tokens are for.
const AUDIENCE: &str = "kubebridge";
/// How long they are wanted for (design, R1); the API server may give less.
const LIFE_SECONDS: i64 = 3600;
/// Requests under way at once: enough to hide round trips, few enough for an API server's limits.
const AT_ONCE: usize = 8;
/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Makes tokens by TokenRequest.
#[derive(Debug)]
pub struct AccountTokens {
    cluster: Arc<Cluster>,
}

impl AccountTokens {
    /// Makes the source of a cluster's tokens.
    #[must_use]
    pub fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster }
    }

    async fn token(&self, namespace: String) -> Result<NamespaceToken, Problem> {
        let namespace = namespace.as_str();
        let doing = format!("token for namespace {namespace}");
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(vec![AUDIENCE.to_owned()]),
                expiration_seconds: Some(LIFE_SECONDS),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let made = self
            .cluster
            .ask(&doing, PATIENCE, |client| {
                let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
                let request = &request;
                async move {
                    accounts
                        .create_token_request(ACCOUNT, &PostParams::default(), request)
                        .await
                }
            })
            .await;
        let made = match made {
            Ok(made) => made,
            Err(problem) if problem.kind == Kind::Missing => {
                return Err(Problem::new(
                    Kind::Missing,
                    format!("namespace {namespace} has no ServiceAccount {ACCOUNT}: kubebridge is not installed for it"),
                )
                .with_hint(format!("kubebridge install --namespace {namespace}")));
            }
            Err(problem) if problem.kind == Kind::Forbidden => {
                let right = rights::of_token(namespace);
                return Err(self.cluster.name_missing(problem, &[right]).await);
            }
            Err(problem) => return Err(problem),
        };
        let token = made.status.and_then(|status| status.token).ok_or_else(|| {
            Problem::new(
                Kind::Unreachable,
                format!("{doing}: the API server made none"),
            )
        })?;
        Ok(NamespaceToken {
            namespace: namespace.to_owned(),
            token,
        })
    }
}

impl TokenSource for AccountTokens {
    fn tokens<'a>(&'a self, namespaces: &'a [String]) -> BoxFuture<'a, anyhow::Result<Tokens>> {
        async move {
            let made: Vec<_> = futures::stream::iter(namespaces.to_vec())
                .map(|namespace| async {
                    let made = self.token(namespace.clone()).await;
                    made.map_err(|problem| (namespace, problem))
                })
                .buffered(AT_ONCE)
                .collect()
                .await;
            let mut tokens = Tokens::default();
            let mut first = None;
            for outcome in made {
                match outcome {
                    Ok(token) => tokens.made.push(token),
                    Err((namespace, problem)) => {
                        tracing::debug!(%problem, "no token");
                        first.get_or_insert_with(|| problem.clone());
                        tokens.lacking.push(problem.lacking(namespace));
                    }
                }
            }
            match first {
                // Nobody could be asked: that is no matter of the namespaces.
                Some(problem)
                    if tokens.made.is_empty()
                        && matches!(
                            problem.kind,
                            Kind::Unreachable | Kind::Untrusted | Kind::Unauthorized
                        ) =>
                {
                    Err(problem.into())
                }
                // A manager that asks for no tokens needs none; one that does says which.
                _ => Ok(tokens),
            }
        }
        .boxed()
    }
}
