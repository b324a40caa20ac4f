//! Both ends of connections that are looked at closely, for tests and figures of the data plane.
//!
//! `peer serve PORT` answers TCP and UDP on all addresses. Every other word is a client of it and
//! prints one line of what it saw; wrong or missing bytes end it with status 1. It knows nothing
//! of kubebridge: the same words measure the direct path.

mod client;
mod errno;
mod grpc;
mod load;
mod pattern;
mod server;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const USAGE: &str = "peer serve PORT
peer down|up ADDR:PORT BYTES FLOWS   moves so many bytes in each of so many connections
peer ping ADDR:PORT COUNT            times 1-byte round trips over one connection
peer rate ADDR:PORT SECONDS FLOWS    opens connections, each for one byte and back
peer hold ADDR:PORT FLOWS            echoes in many connections until its input ends
peer idle ADDR:PORT FLOWS            opens connections, says so, waits until its input ends
peer load ADDR:PORT UDP-ADDR:PORT CLOSED-ADDR:PORT LANES
                                     does all that a flow can do until its input ends
peer half|reset|tiny|stall ADDR:PORT one connection that ends, or goes on, in this way
peer connect ADDR:PORT               prints `connected`, or the name of the error
peer grpc HOST:PORT COUNT            calls `Echo` of a manager, with payloads that grow
peer udp ADDR:PORT BYTES COUNT       echoes datagrams of this size";

#[tokio::main]
async fn main() -> Result<()> {
    let limits = getrlimit(Resource::Nofile);
    let current = limits.maximum;
    setrlimit(Resource::Nofile, Rlimit { current, ..limits })?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let said = match words.as_slice() {
        ["serve", port] => server::serve(port.parse()?).await?,
        ["down", to, bytes, flows] => client::down(at(to)?, bytes.parse()?, flows.parse()?).await?,
        ["up", to, bytes, flows] => client::up(at(to)?, bytes.parse()?, flows.parse()?).await?,
        ["ping", to, count] => client::ping(at(to)?, count.parse()?).await?,
        ["rate", to, seconds, flows] => {
            let time = Duration::from_secs(seconds.parse()?);
            client::rate(at(to)?, time, flows.parse()?).await?
        }
        ["hold", to, flows] => client::hold(at(to)?, flows.parse()?).await?,
        ["idle", to, flows] => client::idle(at(to)?, flows.parse()?).await?,
        ["load", open, datagrams, closed, lanes] => {
            let places = load::Places {
                open: at(open)?,
                datagrams: at(datagrams)?,
                closed: at(closed)?,
            };
            load::load(places, lanes.parse()?).await?
        }
        ["half", to] => client::half_close(at(to)?).await?,
        ["reset", to] => client::reset(at(to)?).await?,
        ["tiny", to] => client::tiny(at(to)?).await?,
        ["stall", to] => client::stall(at(to)?).await?,
        ["grpc", to, count] => grpc::echo(to, count.parse()?).await?,
        ["connect", to] => client::connect(at(to)?).await,
        ["udp", to, bytes, count] => client::udp(at(to)?, bytes.parse()?, count.parse()?).await?,
        _ => bail!("usage:\n{USAGE}"),
    };
    say(&said);
    Ok(())
}

/// Names are looked up as the machine does it.
fn at(text: &str) -> Result<SocketAddr> {
    let mut found = text.to_socket_addrs().with_context(|| text.to_owned())?;
    found.next().with_context(|| format!("no address: {text}"))
}

#[expect(clippy::print_stdout, reason = "it is what the program is for")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}
