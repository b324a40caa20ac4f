//! How a session proves what it may see: one token for each of its namespaces.
//!
//! Where tokens come from is a [`TokenSource`]; when they are needed again is decided in
//! [`control`](crate::control). Nothing here judges a token: the manager does.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use anyhow::Context;
use futures::FutureExt;
use futures::future::BoxFuture;
use kubebridge_proto::token::{MAX_TOKEN, NamespaceToken};

use crate::failure::{Exit, Failure};

/// Makes or finds the tokens of namespaces, fresh ones at each call.
pub trait TokenSource: fmt::Debug + Send + Sync + 'static {
    /// Returns a token for each of the namespaces it has one for, and why it has none for others;
    /// whether one is needed is the manager's to say.
    fn tokens<'a>(&'a self, namespaces: &'a [String]) -> BoxFuture<'a, anyhow::Result<Tokens>>;
}

/// What came of asking for tokens.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    /// The tokens.
    pub made: Vec<NamespaceToken>,
    /// The namespaces that have none.
    pub lacking: Vec<Lacking>,
}

/// Why a namespace has no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Lacking {
    /// The namespace.
    pub namespace: String,
    /// The reason.
    pub why: String,
    /// What helps.
    pub help: Option<String>,
    /// The exit code it leads to.
    pub exit: Exit,
    /// Whether it stays so until somebody changes something.
    pub lasting: bool,
}

impl From<Lacking> for Failure {
    fn from(lacking: Lacking) -> Self {
        let failure = Self::message(lacking.exit, lacking.why);
        match lacking.help {
            Some(help) => failure.with_hint(help),
            None => failure,
        }
    }
}

/// No tokens: the manager asks for none, having been started with `--auth port-forward`.
#[derive(Clone, Copy, Debug)]
pub struct NoTokens;

impl TokenSource for NoTokens {
    fn tokens<'a>(&'a self, _namespaces: &'a [String]) -> BoxFuture<'a, anyhow::Result<Tokens>> {
        std::future::ready(Ok(Tokens::default())).boxed()
    }
}

/// Tokens in files that somebody else keeps fresh, by namespace; read anew each time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenFiles(pub BTreeMap<String, PathBuf>);

impl TokenSource for TokenFiles {
    fn tokens<'a>(&'a self, namespaces: &'a [String]) -> BoxFuture<'a, anyhow::Result<Tokens>> {
        async move {
            let mut tokens = Tokens::default();
            for namespace in namespaces {
                let why = match self.0.get(namespace) {
                    Some(path) if path.exists() => {
                        tokens.made.push(read(namespace, path).await?);
                        continue;
                    }
                    Some(path) => format!("its file {} is not there", path.display()),
                    None => "no --token names it".to_owned(),
                };
                tokens.lacking.push(Lacking {
                    namespace: namespace.clone(),
                    why: format!("there is no token for namespace {namespace}: {why}"),
                    help: Some(format!(
                        "connect with --token {namespace}=FILE: each namespace needs a token of its ServiceAccount kubebridge-access"
                    )),
                    exit: Exit::Privilege,
                    lasting: true,
                });
            }
            Ok(tokens)
        }
        .boxed()
    }
}

async fn read(namespace: &str, path: &PathBuf) -> anyhow::Result<NamespaceToken> {
    let about = || format!("token file {} of namespace {namespace}", path.display());
    let text = tokio::fs::read_to_string(path).await.with_context(about)?;
    let token = text.trim();
    // The file's text is not told: it may be somebody's key.
    if token.is_empty() || token.len() > MAX_TOKEN || token.contains(char::is_whitespace) {
        return Err(anyhow::anyhow!("it holds no token").context(about()));
    }
    Ok(NamespaceToken {
        namespace: namespace.to_owned(),
        token: token.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(of: &[(&str, PathBuf)]) -> TokenFiles {
        let entry = |(namespace, path): &(&str, PathBuf)| ((*namespace).to_owned(), path.clone());
        TokenFiles(of.iter().map(entry).collect())
    }

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test]
    async fn a_token_file_is_read_anew_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop");
        let source = files(&[
            ("shop", path.clone()),
            ("other", folder.path().join("none")),
        ]);
        for text in ["first\n", "second"] {
            std::fs::write(&path, text).unwrap();
            let tokens = source.tokens(&names(&["shop", "unknown"])).await.unwrap();
            assert_eq!(tokens.made.len(), 1);
            assert_eq!(tokens.made[0].namespace, "shop");
            assert_eq!(tokens.made[0].token, text.trim());
            let [lacking] = &tokens.lacking[..] else {
                panic!("{tokens:?}")
            };
            assert!(
                lacking
                    .why
                    .ends_with("namespace unknown: no --token names it")
            );
        }
    }

    #[tokio::test]
    async fn a_file_that_holds_no_token_is_named_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop");
        for text in ["", "PRIVATE KEY\nsecret", &"secret".repeat(MAX_TOKEN)] {
            std::fs::write(&path, text).unwrap();
            let source = files(&[("shop", path.clone())]);
            let error = source.tokens(&names(&["shop"])).await.unwrap_err();
            let told = format!("{error:#}");
            assert!(
                told.contains("of namespace shop: it holds no token"),
                "{told}"
            );
            assert!(!told.contains("secret"), "{told}");
        }
        let absent = files(&[("shop", folder.path().join("none"))]);
        let tokens = absent.tokens(&names(&["shop"])).await.unwrap();
        assert!(tokens.lacking[0].why.ends_with("none is not there"));
    }
}
