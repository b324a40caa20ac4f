//! The in-cluster program of kubebridge as a library, so that tests and the demo run it in-process.

pub mod feed;
pub mod kubernetes;
