//! `kubebridge dns …`: asks every session of this machine about names, and shows what they say.

use kubebridge_platform::{Sys, flush_caches};

use super::which::Reach;
use super::{ask_all, leftovers, no_session, print_leftovers};
use crate::cli::{DnsCommand, Global, Output, QuestionArgs};
use crate::failure::Failure;
use crate::inquiry::text::{flush_text, query_text, trace_text, upstreams_text};
use crate::output::{print, print_line};
use crate::progress::Reporter;
use crate::status::client::Session;
use crate::status::{
    Leftovers, dns_flush_document, dns_query_document, dns_trace_document, dns_upstreams_document,
};

/// Runs one of the commands.
pub(super) async fn run(command: &DnsCommand, global: &Global) -> Result<(), Failure> {
    match command {
        DnsCommand::Trace { question, fresh } => {
            let (name, rtype) = words(question);
            let reports = ask_all(global, Reach::One, |session| {
                let (name, rtype, fresh) = (name.clone(), rtype.clone(), *fresh);
                async move { session.trace(&name, &rtype, fresh).await }
            });
            show(global, &reports.await?, dns_trace_document, trace_text).await
        }
        DnsCommand::Query { question } => {
            let (name, rtype) = words(question);
            let reports = ask_all(global, Reach::One, |session| {
                let (name, rtype) = (name.clone(), rtype.clone());
                async move { session.query(&name, &rtype).await }
            });
            show(global, &reports.await?, dns_query_document, query_text).await
        }
        DnsCommand::Flush => flush(global).await,
        DnsCommand::Upstreams => {
            let reports = ask_all(global, Reach::One, Session::upstreams).await?;
            show(global, &reports, dns_upstreams_document, upstreams_text).await
        }
    }
}

/// The system's caches are emptied without a session too: what they hold may be older than it.
async fn flush(global: &Global) -> Result<(), Failure> {
    let reports = ask_all(global, Reach::All, Session::flush).await?;
    flush_caches(&Sys::default()).await;
    let reporter = Reporter::stderr(global.progress);
    reporter.say("the system was told to empty its DNS cache");
    show(global, &reports, dns_flush_document, flush_text).await
}

fn words(question: &QuestionArgs) -> (String, String) {
    (question.name.to_string(), question.rtype.to_string())
}

/// Prints what the sessions said; without a session that is a failure, as for `routes`.
async fn show<T>(
    global: &Global,
    reports: &[T],
    document: fn(&[T], &Leftovers) -> String,
    text: fn(&T) -> String,
) -> Result<(), Failure> {
    let left = leftovers().await;
    match global.output {
        Output::Json => print_line(&document(reports, &left)),
        Output::Text => {
            let shown: Vec<_> = reports.iter().map(text).collect();
            print(&shown.join("\n"));
            print_leftovers(&left);
            if reports.is_empty() {
                return Err(no_session());
            }
        }
    }
    Ok(())
}
