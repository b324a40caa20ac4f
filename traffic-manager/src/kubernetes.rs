//! The Kubernetes side: Services in, a table per namespace out.
//!
//! Only this folder names Kubernetes types. [`index`] is pure and fed by [`watch`] or by manifests;
//! nothing here knows about gRPC or DNS.

pub mod cidrs;
pub mod cluster;
pub mod endpoints;
mod follow;
pub mod index;
pub mod manifest;
pub mod namespaces;
pub mod nodes;
pub mod service;
pub mod slices;
pub mod token_keys;
pub mod watch;
