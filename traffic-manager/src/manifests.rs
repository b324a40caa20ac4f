//! `--services FILE`: the Services of a file of manifests, read again when it changes.
//!
//! A file that is broken at start is an error; one that breaks later leaves what was known.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use kubebridge_proto::routes::ServiceRoute;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::failure::{Exit, Failure};
use crate::feed::Feed;
use crate::file_watch::FileWatch;
use crate::kubernetes::index::Scope;
use crate::kubernetes::manifest;

/// What a usable file holds.
const HINT: &str = "it holds Kubernetes manifests of kind Service or List, as YAML or JSON; each Service \
    has a metadata.name and either a spec.clusterIP (an address, or None when headless) or the type \
    ExternalName with a spec.externalName";

/// A file of manifests that was read once.
#[derive(Debug)]
pub struct Manifests {
    path: PathBuf,
    watch: FileWatch,
}

impl Manifests {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// When it cannot be read, or something in it cannot be used; the error names the file.
    pub fn open(path: &Path) -> Result<(Self, Vec<ServiceRoute>)> {
        let watch = FileWatch::new(path);
        let routes = read(path).with_context(|| {
            Failure::new(
                Exit::File,
                format!("cannot use the services file {}", path.display()),
            )
            .hint(HINT)
        })?;
        Ok((
            Self {
                path: path.to_owned(),
                watch,
            },
            routes,
        ))
    }

    /// Feeds what the file holds whenever it changes, until shutdown.
    pub async fn follow(mut self, feed: Arc<Feed>, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.watch.changed() => {}
            }
            let path = self.path.clone();
            // Thousands of Services take a while to parse, which must not hold up an answer.
            let reading = tokio::task::spawn_blocking(move || read(&path));
            match reading.await.map_err(Into::into).and_then(|routes| routes) {
                Ok(routes) => {
                    info!(services = routes.len(), "services file read");
                    feed.reset(&Scope::All, routes);
                }
                Err(error) => {
                    let (file, error) = (self.path.display(), format!("{error:#}"));
                    warn!(%file, error, "services file is broken, the last good state stays");
                }
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<ServiceRoute>> {
    let text = std::fs::read_to_string(path).context("cannot read it")?;
    manifest::routes(&text)
}
