//! Certificates in files, as daemons read them.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

/// A certificate authority whose file lies in a folder.
pub(crate) struct Authority {
    pub(crate) file: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Validity {
    Now,
    Past,
    Future,
}

impl Authority {
    pub(crate) fn new(folder: &Path, title: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let file = folder.join(format!("{title}.pem"));
        fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Self { file, issuer }
    }

    /// Certifies a name; the title tells the files apart.
    pub(crate) fn certify(&self, title: &str, name: &str, validity: Validity) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        match validity {
            Validity::Now => {}
            Validity::Past => params.not_after = date_time_ymd(2020, 1, 1),
            Validity::Future => params.not_before = date_time_ymd(3000, 1, 1),
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let identity = Identity {
            certificate: self.file.with_file_name(format!("{title}.crt")),
            key: self.file.with_file_name(format!("{title}.key")),
        };
        fs::write(&identity.certificate, certificate.pem()).unwrap();
        fs::write(&identity.key, key.serialize_pem()).unwrap();
        identity
    }
}
