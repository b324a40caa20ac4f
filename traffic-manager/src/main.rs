//! The `traffic-manager` program: crypto provider, command line, run, exit code.

use std::io::Write as _;
use std::process::ExitCode;

use traffic_manager::args::{self, Invocation};
use traffic_manager::upstreams::ask;
use traffic_manager::{failure, run};

fn main() -> ExitCode {
    // An error means that one is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ended = args::parse(std::env::args_os()).and_then(|invocation| match invocation {
        Invocation::Serve(config) => {
            run::start_logs(config.log_format);
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()?;
            runtime.block_on(run::serve(*config))
        }
        Invocation::Upstreams(ask) => ask::print(&ask, &mut std::io::stdout()),
        Invocation::Print(text) => Ok(std::io::stdout().write_all(text.as_bytes())?),
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let (text, code) = failure::report(&error);
            // With stderr gone there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::from(code)
        }
    }
}
