//! Whether systemd-resolved asks its servers in the clear.

use crate::dns::DnsError;
use crate::dns::bus::Bus;
use crate::sys::Sys;

/// What systemd-resolved does about encryption and signatures, for all links.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encryption {
    /// `no`, `opportunistic` or `yes`; `None` where it is too old to say.
    pub dns_over_tls: Option<String>,
    /// `no`, `allow-downgrade` or `yes`; `None` where it is too old to say.
    pub dnssec: Option<String>,
}

/// Asks systemd-resolved; `None` where it does not run.
///
/// # Errors
///
/// It runs and does not answer.
pub async fn encryption(sys: &Sys) -> Result<Option<Encryption>, DnsError> {
    let bus = Bus::connect(sys).await?;
    let Some(resolved) = bus.resolved().await? else {
        return Ok(None);
    };
    let [dns_over_tls, dnssec] = ["DNSOverTLS", "DNSSEC"].map(|name| resolved.setting(name));
    let (dns_over_tls, dnssec) = futures::join!(dns_over_tls, dnssec);
    Ok(Some(Encryption {
        dns_over_tls,
        dnssec,
    }))
}
