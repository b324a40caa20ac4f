//! `kubebridge certs`: an authority, a manager's certificate and clients', for mutual TLS.
//!
//! Plain files in one folder, nothing overwritten, keys for the owner alone. An authority that is
//! there is used again, so that more clients can be added. What was made is checked the way the
//! other side will check it.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use serde_json::json;

use crate::cli::{CertsArgs, Global, Output};
use crate::failure::{Exit, Failure};
use crate::output::print_line;
use crate::progress::Reporter;

/// How long the authority is valid: longer than anybody wants to hand out a new one to everybody.
const AUTHORITY: Duration = Duration::from_secs(3650 * DAY);
const DAY: u64 = 86_400;

/// How long before now certificates begin, for clocks that are behind.
const BEFORE: Duration = Duration::from_secs(3600);

/// The name of our authorities; a certificate names its issuer by it.
const NAME: &str = "kubebridge authority";

/// Makes the files.
///
/// # Errors
///
/// One is there already, or cannot be written; exit code 78.
pub fn certs(arguments: &CertsArgs, global: &Global) -> std::result::Result<(), Failure> {
    let made = make(arguments).map_err(|error| {
        Failure::new(Exit::File, error)
            .with_hint("choose another --out or --client, or remove what is there")
    })?;
    match global.output {
        Output::Json => print_line(&json!({ "files": made }).to_string()),
        Output::Text => made.iter().for_each(|file| print_line(file)),
    }
    if arguments.hosts.is_empty() {
        Reporter::stderr(global.progress)
            .say("no certificate for a manager: --host HOST makes one");
    }
    Ok(())
}

/// What a certificate is for.
#[derive(Clone, Copy)]
enum For {
    Server,
    Client,
}

fn make(arguments: &CertsArgs) -> Result<Vec<String>> {
    let folder = &arguments.out;
    let clients = arguments.clients.iter().map(|name| name.to_string());
    let clients: Vec<String> = clients.collect();
    // All or nothing: what is in the way is found before anything is made.
    let server = (!arguments.hosts.is_empty()).then(|| "server".to_owned());
    for stem in server.iter().chain(&clients) {
        for ending in ["crt", "key"] {
            let path = folder.join(format!("{stem}.{ending}"));
            if path.exists() {
                bail!("{} is there already", path.display());
            }
        }
    }
    if clients
        .iter()
        .any(|name| ["ca", "server"].contains(&name.as_str()))
    {
        bail!("a client cannot be called ca or server");
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| folder.display().to_string())?;
    let mut made = Vec::new();
    let issuer = authority(folder, &mut made)?;
    let valid = Duration::from_secs(u64::from(arguments.days) * DAY);
    if server.is_some() {
        issue(
            folder,
            &issuer,
            "server",
            arguments.hosts.clone(),
            For::Server,
            valid,
            &mut made,
        )?;
    }
    for name in clients {
        issue(
            folder,
            &issuer,
            &name,
            Vec::new(),
            For::Client,
            valid,
            &mut made,
        )?;
    }
    Ok(made)
}

type Authority = Issuer<'static, KeyPair>;

/// Reads the folder's authority, or makes one.
fn authority(folder: &Path, made: &mut Vec<String>) -> Result<Authority> {
    let (cert, key) = (folder.join("ca.crt"), folder.join("ca.key"));
    let mut params = CertificateParams::new([])?;
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    match (cert.exists(), key.exists()) {
        (true, true) => {
            let about = || key.display().to_string();
            let text = std::fs::read_to_string(&key).with_context(about)?;
            let pair = KeyPair::from_pem(&text).with_context(about)?;
            Ok(Issuer::new(params, pair))
        }
        (false, false) => {
            span(&mut params, AUTHORITY);
            let pair = KeyPair::generate()?;
            let certificate = params.self_signed(&pair)?;
            write(&key, &pair.serialize_pem(), 0o600, made)?;
            write(&cert, &certificate.pem(), 0o644, made)?;
            Ok(Issuer::new(params, pair))
        }
        _ => bail!(
            "{} has one of ca.crt and ca.key without the other",
            folder.display()
        ),
    }
}

fn issue(
    folder: &Path,
    issuer: &Authority,
    name: &str,
    hosts: Vec<String>,
    usage: For,
    valid: Duration,
    made: &mut Vec<String>,
) -> Result<()> {
    let mut params = CertificateParams::new(hosts).context("--host")?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    params.extended_key_usages = vec![match usage {
        For::Server => ExtendedKeyUsagePurpose::ServerAuth,
        For::Client => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    span(&mut params, valid);
    let pair = KeyPair::generate()?;
    let certificate = params.signed_by(&pair, issuer)?;
    if let For::Client = usage {
        check(folder, certificate.der())?;
    }
    write(
        &folder.join(format!("{name}.key")),
        &pair.serialize_pem(),
        0o600,
        made,
    )?;
    write(
        &folder.join(format!("{name}.crt")),
        &certificate.pem(),
        0o644,
        made,
    )
}

/// Fails unless the folder's authority stands behind a certificate: it may be somebody else's.
fn check(folder: &Path, certificate: &CertificateDer<'_>) -> Result<()> {
    let path = folder.join("ca.crt");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&path).with_context(|| path.display().to_string())?)?;
    let provider = Arc::new(default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()?
        .verify_client_cert(certificate, &[], UnixTime::now())
        .with_context(|| format!("{} is no authority of `kubebridge certs`", path.display()))?;
    Ok(())
}

fn span(params: &mut CertificateParams, valid: Duration) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BEFORE);
    params.not_after = epoch + now + valid;
}

fn write(path: &Path, text: &str, mode: u32, made: &mut Vec<String>) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let about = || path.display().to_string();
    let mut file = options.open(path).with_context(about)?;
    file.write_all(text.as_bytes()).with_context(about)?;
    file.sync_all().with_context(about)?;
    made.push(about());
    Ok(())
}

#[cfg(test)]
mod tests;
