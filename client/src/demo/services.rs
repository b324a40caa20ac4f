//! The demo's Services: a file of manifests in a folder of its own.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The demo's cluster domain.
pub(super) const DOMAIN: &str = "cluster.local";
/// The session's namespaces.
pub(super) const NAMESPACES: [&str; 2] = ["default", "shop"];
/// `authors` in `default`.
pub(super) const AUTHORS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));
/// The same after it was re-created.
pub(super) const AUTHORS_AGAIN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 99));
/// `authors` in `shop`.
pub(super) const SHOP_AUTHORS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 20));

/// The file, until it is dropped.
#[derive(Debug)]
pub(super) struct Services {
    folder: TempDir,
    file: PathBuf,
}

impl Services {
    /// Writes the Services of the start.
    pub(super) fn create() -> std::io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("kubebridge-demo-")
            .tempdir()?;
        let file = folder.path().join("services.yaml");
        let services = Self { folder, file };
        services.write(AUTHORS)?;
        Ok(services)
    }

    /// Returns the file.
    pub(super) fn path(&self) -> &Path {
        &self.file
    }

    /// Gives `authors` in `default` another address, as deleting and creating it would.
    pub(super) fn recreate_authors(&self) -> std::io::Result<()> {
        self.write(AUTHORS_AGAIN)
    }

    /// Replaces the file as a whole: the manager may read it at any moment.
    fn write(&self, authors: IpAddr) -> std::io::Result<()> {
        let next = self.folder.path().join("services.yaml.next");
        fs::write(&next, manifests(authors))?;
        fs::rename(next, &self.file)
    }
}

/// `docs` leads to a name of the cluster, so that the demo needs no network.
fn manifests(authors: IpAddr) -> String {
    let ports = "ports: [{ name: http, port: 80 }]";
    format!(
        "apiVersion: v1
kind: Service
metadata: {{ name: authors, namespace: default }}
spec: {{ clusterIP: {authors}, {ports} }}
---
apiVersion: v1
kind: Service
metadata: {{ name: db, namespace: default }}
spec: {{ clusterIP: None, {ports} }}
---
apiVersion: v1
kind: Service
metadata: {{ name: docs, namespace: default }}
spec: {{ type: ExternalName, externalName: authors.shop.svc.{DOMAIN} }}
---
apiVersion: v1
kind: Service
metadata: {{ name: authors, namespace: shop }}
spec: {{ clusterIP: {SHOP_AUTHORS}, {ports} }}
"
    )
}
