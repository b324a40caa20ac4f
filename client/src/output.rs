//! stdout for data, stderr for the log.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;

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
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    // A second start, in tests, keeps the first.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(false)
        // It would panic where stderr is gone, in the middle of undoing.
        .log_internal_errors(false)
        .try_init();
}
