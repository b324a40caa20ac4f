//! The in-cluster program of kubebridge as a library, so that tests and the demo run it in-process.
//!
//! Services come in through [`kubernetes`] or [`manifests`], pass the [`feed`] into an index, and
//! leave as [`records`] for the resolver and as route streams over [`grpc`].

pub mod access;
pub mod admin;
pub mod app;
pub mod args;
pub mod config;
pub mod data;
pub mod dial;
pub mod dns;
pub mod egress;
pub mod failure;
pub mod feed;
pub mod file_watch;
pub mod grpc;
mod guard;
pub mod host_network;
pub mod kubernetes;
pub mod limit;
pub mod listeners;
pub mod manifests;
pub mod metrics;
mod own;
pub mod records;
pub mod run;
pub mod sessions;
mod source;
#[cfg(feature = "test-util")]
pub mod test_util;
pub mod tls;
pub mod upstreams;
