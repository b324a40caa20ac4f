//! Pointing the machine at the resolver, and whether programs then resolve.

use super::resolver::probe_name;
use super::{missing, summary};
use crate::cli::HostsForm;
use crate::failure::Failure;
use crate::session::os::Os;
use crate::session::parts::Parts;

pub(in crate::session) async fn point_os<O: Os>(
    parts: &mut Parts<'_, O>,
) -> Result<String, Failure> {
    let found = parts.found.as_ref().ok_or_else(|| missing("host DNS"))?;
    if !found.points_os {
        return Ok("not changed".to_owned());
    }
    let plan = parts.dns_plan().ok_or_else(|| missing("link"))?;
    parts.warn_of_missing_reverse(&plan);
    parts.want_dns(plan)?;
    let changes = parts.apply().await?;
    parts.board.note(|facts| facts.dns.applied = true);
    Ok(summary(&changes, "already so"))
}

pub(in crate::session) async fn hosts<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let form = parts.config.hosts;
    parts
        .board
        .note(|facts| form_words(form).clone_into(&mut facts.hosts.form));
    if form == HostsForm::Off {
        return Ok("off".to_owned());
    }
    parts.hosts = Some(parts.hosts_keeper().await?);
    match parts.write_hosts().await {
        Ok(lines) => Ok(format!("{lines} lines")),
        // A hosts file that cannot be written is tried again; names resolve by DNS meanwhile.
        Err(failure) if parts.intent.dns.is_some() => {
            parts.warn_once(format!("no hosts lines: {:#}", failure.error));
            Ok("not written".to_owned())
        }
        Err(failure) => Err(failure),
    }
}

pub(in crate::session) async fn verify<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let cluster = parts.cluster.as_ref().ok_or_else(|| missing("session"))?;
    let found = parts.found.as_ref().ok_or_else(|| missing("host DNS"))?;
    if !found.points_os {
        return Ok("skipped (system DNS not changed)".to_owned());
    }
    let name = probe_name(&cluster.session.cluster_domain)?.to_string();
    let outcome = parts.os.resolve(&name).await?;
    Ok(format!("{name} {outcome}"))
}

fn form_words(form: HostsForm) -> &'static str {
    match form {
        HostsForm::Off => "off",
        HostsForm::Short => "short",
        HostsForm::Namespaced => "namespaced",
        HostsForm::Fqdn => "fqdn",
    }
}
