//! The binary `kubebridge`: parses, runs, and turns failures into an exit code.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use kubebridge_client::cli::{self, Parsed};
use kubebridge_client::failure::Failure;
use kubebridge_client::{command, helper, output};

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody is left to tell when stderr is gone.
            let _ = writeln!(std::io::stderr(), "kubebridge: {failure}");
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn start() -> Result<(), Failure> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if helper::is_asked(&arguments) {
        return helper::run();
    }
    match cli::parse(&arguments)? {
        Parsed::Print(text) => {
            output::print(&text);
            Ok(())
        }
        Parsed::Run(cli) => {
            output::start_log(cli.global.verbose);
            tokio::runtime::Runtime::new()?.block_on(command::run(&cli))
        }
    }
}
