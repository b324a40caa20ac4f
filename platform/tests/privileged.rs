//! The real parts: TUN devices, addresses, sockets, mounts and systemd-resolved itself, each test
//! in namespaces of its own. Needs root, and systemd-resolved unpacked by `tests/setup`; fails
//! where it cannot run (`tests/run --fast` leaves it out).
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are not in tests for clippy"
)]

#[path = "privileged/drift.rs"]
mod drift;
#[path = "privileged/files.rs"]
mod files;
#[path = "privileged/helper.rs"]
mod helper;
#[path = "privileged/machine.rs"]
mod machine;
#[path = "privileged/routes.rs"]
mod routes;
#[path = "privileged/session.rs"]
mod session;
