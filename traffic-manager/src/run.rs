//! The program: logs, signals, and the order in which it ends.

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{debug, info, warn};
use tracing_subscriber::EnvFilter;

use crate::app;
use crate::config::{Config, LogFormat};

/// What is logged unless `RUST_LOG` says otherwise. kube logs each failed request as an error or
/// warning; the watches say once what matters of it.
const DEFAULT_FILTER: &str = "info,kube_client=off,kube_runtime=off";

/// Sends log lines to stderr.
pub fn start_logs(format: LogFormat) {
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => logs.with_ansi(false).init(),
        LogFormat::Json => logs.json().init(),
    }
}

/// Serves until SIGTERM or SIGINT, then drains; a second signal ends at once.
///
/// # Errors
/// When the program cannot start, or something essential ended.
pub async fn serve(config: Config) -> Result<()> {
    raise_open_files();
    let mut signals = Signals::new().context("cannot listen for signals")?;
    let mut running = app::start(config).await?;
    info!(version = env!("CARGO_PKG_VERSION"), "started");
    tokio::select! {
        ended = running.wait() => return ended,
        name = signals.next() => info!(signal = name, "signal"),
    }
    tokio::select! {
        () = running.shutdown() => {}
        name = signals.next() => info!(signal = name, "second signal, giving up"),
    }
    Ok(())
}

/// Takes as many descriptors as the pod may have: each flow is a socket, and where the limit is low
/// at first (1,024) it would be reached before any of our own.
fn raise_open_files() {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        ..limits
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => debug!(open_files = ?raised.current, "limit raised"),
        Err(error) => warn!(%error, "cannot raise the limit of open files"),
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self {
            terminate,
            interrupt,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
