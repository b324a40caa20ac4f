//! `kubebridge doctor`: looks at everything that can be wrong between a program and a Service, and
//! says what is, why, and what helps.
//!
//! Each check is two halves: a reading of something (files, the kernel, systemd-resolved, sessions),
//! and a pure judgement of it, which is a table in its tests. It needs no session, cluster, manager
//! or root; what it cannot see it says so of. It changes nothing: what helps is left to the person.

pub mod check;
pub mod document;
pub mod finding;
mod machine;
pub mod report;
mod run;
mod session;
mod target;
pub(crate) mod text;
pub mod wanted;
mod ways;

pub use check::Check;
pub use document::doctor_document;
pub use finding::{Finding, Verdict};
pub use report::Report;
pub(crate) use run::{Asked, MOST_TARGETS, examine};
