//! `kubebridge env`: what sends programs to the proxy of a session.

use super::which::{Reach, chosen};
use super::{no_session, print, print_line};
use crate::cli::{Global, Output};
use crate::failure::Failure;
use crate::status::env_document;

/// Prints the variables, with the password in them.
pub(super) async fn run(global: &Global) -> Result<(), Failure> {
    let mut found = chosen(global, Reach::One).await?;
    let session = found.pop().ok_or_else(no_session)?;
    let report = session.env().await?;
    match global.output {
        Output::Json => print_line(&env_document(&[report])),
        Output::Text => print(&report.text()),
    }
    Ok(())
}
