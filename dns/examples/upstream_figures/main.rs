//! Prints how long a dead upstream is felt, how soon it is used again, and what one costs that refuses everything.
//!
//! ```sh
//! cargo run -p kubebridge-dns --example upstream_figures -- failover [TRIALS]
//! cargo run -p kubebridge-dns --example upstream_figures -- refused [SECONDS]
//! ```
//!
//! Everything is on loopback sockets of this process, addresses 127.77.0.0/16; nothing of the machine
//! is read or changed.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program that prints figures and may stop at any error"
)]

mod asker;
mod failover;
mod refused;
mod server;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let figure = arguments.next().unwrap_or_default();
    let number = arguments.next().map(|text| text.parse().unwrap());
    match figure.as_str() {
        "failover" => failover::print(number.unwrap_or(200)).await,
        "refused" => refused::print(number.unwrap_or(60)).await,
        _ => println!("failover [TRIALS] or refused [SECONDS]"),
    }
}
