//! The contract between the laptop and the traffic-manager: gRPC, `kubebridge.v1`, and flows.
//!
//! [`v1`] is generated from `kubebridge/v1/traffic.proto`, which is the documentation of every call.
//! The other modules turn its messages into domain types once, at the edge, and back. [`flow`] is
//! the data plane beside it, with what both ends of a flow do alike. Nothing here opens a
//! connection or decides who may have one.

pub mod cidr;
pub mod codec;
pub mod error;
pub mod explain;
pub mod flow;
pub mod names;
pub mod probe;
pub mod routes;
pub mod session;
#[cfg(feature = "test-util")]
pub mod test_util;
pub mod token;
pub mod upstreams;

/// The generated messages, client and server of `kubebridge.v1`.
#[expect(
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::default_trait_access,
    clippy::too_many_lines,
    reason = "generated code"
)]
pub mod v1 {
    tonic::include_proto!("kubebridge.v1");
}

/// The contract as an encoded `FileDescriptorSet`, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
