//! The keys of tokens from a file, for a manager that has no API server to ask.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::keeper::{KeySource, Published};
use super::keys::{KeySet, MAX_DOCUMENT};

/// A JSON Web Key Set in a file, and the issuer whose keys they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile {
    /// The file, as `kubectl get --raw /openid/v1/jwks` prints it.
    pub path: PathBuf,
    /// The issuer that tokens have to name.
    pub issuer: String,
}

impl KeyFile {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read, is no key set, or has no key that can be used.
    pub fn read(&self) -> Result<Published> {
        let about = || format!("token keys {}", self.path.display());
        let length = std::fs::metadata(&self.path).with_context(about)?.len();
        ensure!(length <= MAX_DOCUMENT as u64, "{} is too large", about());
        let text = std::fs::read_to_string(&self.path).with_context(about)?;
        let keys = KeySet::from_json(&text).with_context(about)?;
        ensure!(!keys.is_empty(), "{} has no key that can be used", about());
        Ok(Published {
            issuer: self.issuer.clone(),
            keys,
        })
    }
}

impl KeySource for KeyFile {
    fn fetch(&self) -> BoxFuture<'_, Result<Published>> {
        // A small local file: reading it does not wait.
        async move { self.read() }.boxed()
    }
}
