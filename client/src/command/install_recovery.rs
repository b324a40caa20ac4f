//! `kubebridge install-recovery`: has the machine repair itself when it starts, or no longer.

use std::path::{Path, PathBuf};

use kubebridge_platform::Sys;
use kubebridge_platform::boot::{self, BootError, Installation, UNIT};

use crate::cli::{Global, InstallRecoveryArgs, Output};
use crate::failure::{Exit, Failure};
use crate::helper::safe_program;
use crate::output::{print, print_line};
use crate::progress::Reporter;
use crate::status::recovery_document;

/// Installs or removes it, or shows what would be written.
pub(super) fn run(arguments: &InstallRecoveryArgs, global: &Global) -> Result<(), Failure> {
    let sys = Sys::default();
    let reporter = Reporter::stderr(global.progress);
    if arguments.remove {
        must_be_root()?;
        let removed = boot::remove(&sys).map_err(failure)?;
        tell(global.output, &[], &removed);
        if removed.is_empty() {
            reporter.say("recovery at boot was not installed");
        }
        return Ok(());
    }
    let program = safe_program().map_err(|failure| {
        failure.with_hint("install kubebridge in /usr/local/bin, where only root can write")
    })?;
    let planned = boot::plan(&sys, &program).map_err(failure)?;
    if arguments.dry_run {
        show(global.output, &planned);
        reporter.say("nothing was written");
        return Ok(());
    }
    must_be_root()?;
    let written = boot::install(&sys, &planned).map_err(failure)?;
    tell(global.output, &written, &[]);
    if written.is_empty() {
        reporter.say("recovery at boot is installed already");
    } else {
        reporter.say(&format!(
            "{UNIT} runs `{} recover` when this machine starts",
            program.display()
        ));
    }
    Ok(())
}

fn must_be_root() -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::message(
        Exit::Privilege,
        "only root can change what this machine starts",
    )
    .with_hint("sudo kubebridge install-recovery"))
}

fn failure(error: BootError) -> Failure {
    let hint = match &error {
        BootError::NoSystemd => {
            "have whatever starts this machine run `kubebridge recover` as root, before the network"
                .to_owned()
        }
        BootError::Program(_) => "install kubebridge in /usr/local/bin".to_owned(),
        BootError::Foreign(path) => format!("look at {}, and move it away", path.display()),
        BootError::Files(_) => format!(
            "where /etc is not to be written, add {UNIT} by the tool that makes it: \
             kubebridge install-recovery --dry-run shows it"
        ),
    };
    Failure::new(Exit::HostOs, error).with_hint(hint)
}

/// Prints what would be written, and where.
fn show(output: Output, planned: &Installation) {
    match output {
        Output::Json => print_line(&recovery_document(Some(planned), &[], &[])),
        Output::Text => {
            let (unit, link) = (planned.unit.display(), planned.link.display());
            let target = planned.target.display();
            print(&format!(
                "# {unit}\n{}\n# {link} -> {target}\n",
                planned.content
            ));
        }
    }
}

/// Prints what was written and removed.
fn tell(output: Output, written: &[PathBuf], removed: &[PathBuf]) {
    if output == Output::Json {
        print_line(&recovery_document(None, written, removed));
        return;
    }
    let say = |what: &str, path: &Path| print_line(&format!("{what} {}", path.display()));
    written.iter().for_each(|path| say("written", path));
    removed.iter().for_each(|path| say("removed", path));
}
