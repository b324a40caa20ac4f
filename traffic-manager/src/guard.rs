//! What stands between the network and a session: who is admitted, TLS, and the audit log, opened
//! from the configuration and kept up by tasks.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::access::Gate;
use crate::access::audit::Audit;
use crate::access::keeper::{Held, Keeper, KeySource};
use crate::access::wall::Wall;
use crate::app::{Tasks, done, spawn};
use crate::config::{AuditLog, Auth, Config};
use crate::failure::{Exit, Failure};
use crate::kubernetes::index::Served;
use crate::kubernetes::token_keys::TokenKeys;
use crate::source::Opened;
use crate::tls::Current;

/// What guards the gRPC listener.
#[derive(Debug)]
pub(crate) struct Guarded {
    pub(crate) gate: Gate,
    pub(crate) audit: Arc<Audit>,
    /// The keys of tokens, for readiness; `None` where none are fetched.
    pub(crate) keys: Option<watch::Receiver<Held>>,
    pub(crate) tls: Option<Current>,
}

impl Guarded {
    pub(crate) fn open(
        config: &Config,
        opened: &Opened,
        shutdown: &CancellationToken,
        tasks: &mut Tasks,
    ) -> Result<Self> {
        let tls = match &config.tls {
            None => None,
            Some(files) => {
                let (current, following) = files.clone().follow(shutdown.clone())?;
                spawn(tasks, "certificates", done(following));
                Some(current)
            }
        };
        let (gate, keys) = gate(config, opened, shutdown, tasks)?;
        Ok(Self {
            gate,
            audit: audit(&config.audit, shutdown, tasks)?,
            keys,
            tls,
        })
    }
}

type Keys = Option<watch::Receiver<Held>>;

fn gate(
    config: &Config,
    opened: &Opened,
    shutdown: &CancellationToken,
    tasks: &mut Tasks,
) -> Result<(Gate, Keys)> {
    let tokens = |keeper: Keeper| {
        let held = keeper.held();
        let wall = Wall::System;
        (Gate::Tokens { keeper, wall }, Some(held))
    };
    match (config.auth, &config.token_keys, opened) {
        (Auth::Demo, _, _) => Ok((Gate::Demo, None)),
        (Auth::PortForward, _, _) => Ok((own(config, opened)?, None)),
        (Auth::Token, Some(file), _) => {
            // A file that makes no sense is told at once, not when somebody needs it.
            if let Err(error) = file.read() {
                let hint = "kubectl get --raw /openid/v1/jwks prints such a file";
                return Err(
                    error.context(Failure::new(Exit::File, "cannot use --token-keys").hint(hint))
                );
            }
            Ok(tokens(keeper(file.clone(), shutdown, tasks)))
        }
        (Auth::Token, None, Opened::Cluster { cluster, .. }) => {
            let source = TokenKeys(cluster.clone());
            Ok(tokens(keeper(source, shutdown, tasks)))
        }
        (Auth::Token, None, Opened::Nothing | Opened::Manifests { .. }) => {
            warn!("no keys to verify tokens with: sessions are refused");
            Ok((Gate::NoKeys, None))
        }
    }
}

fn keeper(source: impl KeySource, shutdown: &CancellationToken, tasks: &mut Tasks) -> Keeper {
    let (keeper, keeping) = Keeper::new(source, shutdown.clone());
    spawn(tasks, "token keys", done(keeping));
    keeper
}

/// Names the only namespace that needs no token (R5).
fn own(config: &Config, opened: &Opened) -> Result<Gate> {
    if let Served::Namespaces(served) = opened.served()
        && served.len() == 1
    {
        let named = config.own_namespace()?;
        if named.is_none_or(|named| served.contains(&named)) {
            return Ok(Gate::Own(served));
        }
    }
    match (opened, config.own_namespace()?) {
        (Opened::Nothing, Some(own)) => Ok(Gate::Own([own].into())),
        _ => Err(Failure::new(
            Exit::Usage,
            "--auth port-forward serves the manager's own namespace alone",
        )
        .hint("use --auth token")
        .into()),
    }
}

fn audit(log: &AuditLog, shutdown: &CancellationToken, tasks: &mut Tasks) -> Result<Arc<Audit>> {
    let audit = match log {
        AuditLog::Off => Audit::new(None, Wall::System),
        AuditLog::Lines(lines) => Audit::new(Some(lines.clone()), Wall::System),
        AuditLog::Stdout => {
            // As a file, whose writes wait on a thread of their own.
            let descriptor = std::io::stdout().as_fd().try_clone_to_owned();
            let descriptor = descriptor.context("cannot write the audit log to stdout")?;
            let file = tokio::fs::File::from_std(descriptor.into());
            let (audit, writing) = Audit::to(file, Wall::System, shutdown.clone());
            spawn(tasks, "audit log", done(writing));
            audit
        }
    };
    let audit = Arc::new(audit);
    let flushing = Arc::clone(&audit).flush_until(shutdown.clone());
    spawn(tasks, "audit", done(flushing));
    Ok(audit)
}
