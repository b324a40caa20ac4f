//! The terminator on a real TUN, spoken to by the kernel's own TCP, UDP and ping. Each test runs in
//! a network namespace of its own; needs root and fails where it cannot run (`tests/run --fast`
//! leaves it out).
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are not in tests for clippy"
)]

#[path = "netstack/far.rs"]
mod far;
#[path = "netstack/laptop.rs"]
mod laptop;
#[path = "netstack/tcp.rs"]
mod tcp;
#[path = "netstack/udp.rs"]
mod udp;
