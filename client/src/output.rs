//! stdout for data, stderr for the log.

use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Writes text to stdout as it is.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    // A reader that went away (`| head`) is no failure.
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// Writes a line to stdout.
pub fn print_line(text: &str) {
    print(&format!("{text}\n"));
}

/// Starts the log on stderr: warnings, and more with each `-v`; `RUST_LOG` overrides.
pub fn start_log(verbose: u8) {
    // A second start, in tests, keeps the first.
    let _ = tracing_subscriber::registry()
        .with(layer(io::stderr).with_filter(filter(verbose)))
        .try_init();
}

/// Starts the log of a session in the background: what [`start_log`] would write goes to `told`,
/// and that and what people ask for afterwards to `kept`.
pub(crate) fn start_session_log<K, T>(verbose: u8, kept: K, told: T)
where
    K: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
    T: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let _ = tracing_subscriber::registry()
        .with(layer(told).with_filter(filter(verbose)))
        .with(layer(kept).with_filter(filter(verbose.max(1))))
        .try_init();
}

fn layer<S, W>(writer: W) -> impl Layer<S>
where
    S: tracing::Subscriber + for<'span> tracing_subscriber::registry::LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + 'static,
{
    tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(false)
        // It would panic where stderr is gone, in the middle of undoing.
        .log_internal_errors(false)
}

fn filter(verbose: u8) -> EnvFilter {
    let level = match verbose {
        // The demo's manager warns of what a demo is.
        0 => "warn,traffic_manager=error",
        1 => "info",
        2 => {
            "info,kubebridge=debug,kubebridge_client=debug,kubebridge_dns=debug,kubebridge_platform=debug"
        }
        _ => {
            "debug,kubebridge=trace,kubebridge_client=trace,kubebridge_dns=trace,kubebridge_platform=trace"
        }
    };
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level))
}
