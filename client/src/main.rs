//! The binary `kubebridge`: parses, runs, and turns failures into an exit code.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use kubebridge_client::cli::{self, Parsed};
use kubebridge_client::failure::Failure;
use kubebridge_client::{background, command, helper, output};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if background::is_session(&arguments) {
        return background::session::start(&arguments);
    }
    match start(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            // Nobody is left to tell when stderr is gone.
            let _ = writeln!(std::io::stderr(), "kubebridge: {failure}");
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn start(arguments: &[OsString]) -> Result<u8, Failure> {
    if let Some(part) = helper::asked(arguments) {
        return helper::run(part).map(|()| 0);
    }
    match cli::parse(arguments)? {
        Parsed::Print(text) => {
            output::print(&text);
            Ok(0)
        }
        Parsed::Run(cli) => {
            output::start_log(cli.global.verbose);
            tokio::runtime::Runtime::new()?.block_on(command::run(&cli))
        }
    }
}
