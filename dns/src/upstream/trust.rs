//! Which certificate authorities are trusted, and whether their files have changed since they were
//! read.
//!
//! Reads the authorities; what is done with them is `tls`'s business.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::RootCertStore;

/// Names the certificate authorities that encrypted upstreams must be certified by.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Trust {
    /// Whether those of the operating system count; where it has none, as in an image from
    /// scratch, Mozilla's take their place.
    pub system: bool,
    /// PEM files with authorities that count as well.
    pub ca_files: Vec<PathBuf>,
}

impl Default for Trust {
    /// Trusts the system's authorities alone.
    fn default() -> Self {
        Self {
            system: true,
            ca_files: Vec::new(),
        }
    }
}

/// Tells why the authorities could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file could not be read.
    #[error("cannot read CA file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("CA file {} holds no usable certificate: it must be PEM with at least one", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
    },
    /// Neither the system nor a file is trusted.
    #[error("no certificate authority is trusted: name a CA file or trust the system's")]
    Nobody,
}

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    identity: (u64, u64, i64, i64),
}

impl Trust {
    /// Returns the state of every file the authorities come from; a missing one has none.
    ///
    /// Stores that are not files (macOS, Windows) are read once.
    pub(super) fn stamps(&self) -> Vec<Option<Stamp>> {
        let mut stamps: Vec<_> = self.ca_files.iter().map(|path| Stamp::of(path)).collect();
        if self.system {
            let store = openssl_probe::probe();
            let places = store.cert_file.into_iter().chain(store.cert_dir);
            stamps.extend(places.map(|path| Stamp::of(&path)));
        }
        stamps
    }

    /// Reads the authorities. Takes milliseconds where the system's are many.
    pub(super) fn read(&self) -> Result<RootCertStore, TrustError> {
        if !self.system && self.ca_files.is_empty() {
            return Err(TrustError::Nobody);
        }
        let mut roots = RootCertStore::empty();
        if self.system {
            add_system(&mut roots);
        }
        for path in &self.ca_files {
            for certificate in read_file(path)? {
                let added = roots.add(certificate);
                added.map_err(|_| TrustError::Certificate { path: path.clone() })?;
            }
        }
        Ok(roots)
    }
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = path.metadata().ok()?;
        Some(Self {
            modified: metadata.modified().ok(),
            length: metadata.len(),
            identity: identity(&metadata),
        })
    }
}

#[cfg(unix)]
fn identity(metadata: &std::fs::Metadata) -> (u64, u64, i64, i64) {
    use std::os::unix::fs::MetadataExt;
    let (device, inode) = (metadata.dev(), metadata.ino());
    (device, inode, metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn identity(_: &std::fs::Metadata) -> (u64, u64, i64, i64) {
    (0, 0, 0, 0)
}

fn add_system(roots: &mut RootCertStore) {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!(%error, "part of the system's trust store is unusable");
    }
    let (added, ignored) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        tracing::debug!("no system trust store, using Mozilla's");
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    } else {
        tracing::debug!(added, ignored, "system trust store read");
    }
}

fn read_file(path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let unusable = |error| match error {
        pem::Error::Io(source) => TrustError::Read {
            path: path.to_owned(),
            source,
        },
        // The library's errors are non-exhaustive.
        _ => TrustError::Certificate {
            path: path.to_owned(),
        },
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(unusable)?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(unusable)?;
    if certificates.is_empty() {
        return Err(TrustError::Certificate {
            path: path.to_owned(),
        });
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests;
