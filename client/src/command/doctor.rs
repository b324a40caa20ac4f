//! `kubebridge doctor`: looks at this machine, its sessions and the ways it is asked for.

use super::{print, print_line};
use crate::cli::{DoctorArgs, Global, Output};
use crate::doctor::text::doctor_text;
use crate::doctor::{Asked, doctor_document, examine};

/// Shows what is found, and returns the exit code: 0 unless something fails.
pub(super) async fn run(arguments: &DoctorArgs, global: &Global) -> u8 {
    let asked = Asked {
        targets: arguments.targets.clone(),
        probes: arguments.probes.clone(),
        include: arguments.include.clone(),
        exclude: arguments.exclude.clone(),
        session: global.session.as_ref().map(ToString::to_string),
        context: global.context.clone(),
        kubeconfig: global.kubeconfig.clone(),
    };
    let report = Box::pin(examine(&asked)).await;
    match global.output {
        Output::Json => print_line(&doctor_document(&report)),
        Output::Text => print(&doctor_text(&report, global.verbose > 0)),
    }
    report.exit()
}
