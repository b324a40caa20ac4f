//! `kubebridge trace HOST:PORT`: has a session follow the way; 1 where something is in it.

use super::which::Reach;
use super::{ask_all, leftovers, no_session, print, print_leftovers, print_line};
use crate::cli::{Global, Output, TraceArgs};
use crate::failure::Failure;
use crate::inquiry::path::is_well;
use crate::inquiry::text::path_text;
use crate::status::trace_document;

/// Shows the way, and returns the exit code.
pub(super) async fn run(arguments: &TraceArgs, global: &Global) -> Result<u8, Failure> {
    let target = match arguments.udp {
        true => &arguments.target.clone().with_udp(),
        false => &arguments.target,
    };
    let reports = ask_all(global, Reach::One, |session| session.path(target)).await?;
    let left = leftovers().await;
    match global.output {
        Output::Json => print_line(&trace_document(&reports, &left)),
        Output::Text => {
            let shown: Vec<_> = reports.iter().map(path_text).collect();
            print(&shown.join("\n"));
            print_leftovers(&left);
            if reports.is_empty() {
                return Err(no_session());
            }
        }
    }
    let is_well = reports.iter().all(|report| is_well(&report.verdict));
    Ok(u8::from(!is_well))
}
