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
mod quic;
mod server;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const USAGE: &str = "peer serve PORT
peer down|up ADDR:PORT BYTES FLOWS   moves so many bytes in each of so many connections
peer down-for|up-for ADDR:PORT SECONDS FLOWS   moves what there is time for
peer ping ADDR:PORT COUNT            times 1-byte round trips over one connection
peer rate ADDR:PORT SECONDS FLOWS    opens connections, each for one byte and back
peer hold ADDR:PORT FLOWS            echoes in many connections until its input ends
peer idle ADDR:PORT FLOWS            opens connections, says so, waits until its input ends
peer load ADDR:PORT UDP-ADDR:PORT CLOSED-ADDR:PORT LANES
                                     does all that a flow can do until its input ends
peer half|reset|tiny|stall ADDR:PORT one connection that ends, or goes on, in this way
peer connect ADDR:PORT               prints `connected`, or the name of the error
peer grpc HOST:PORT COUNT            calls `Echo` of a manager, with payloads that grow
peer udp ADDR:PORT BYTES COUNT       echoes datagrams of this size
peer udp-connect ADDR:PORT           sends datagrams until one is answered, or an error is told
peer udp-leave ADDR:PORT             has datagrams sent without end, and closes its socket
peer quic-serve PORT CERTIFICATE      answers QUIC, and writes its certificate
peer quic ADDR:PORT CERTIFICATE BYTES STREAMS   moves bytes there and back over QUIC
-4 or -6 before these                takes an address of that family";

#[tokio::main]
async fn main() -> Result<()> {
    let limits = getrlimit(Resource::Nofile);
    let current = limits.maximum;
    setrlimit(Resource::Nofile, Rlimit { current, ..limits })?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (family, words) = match words.as_slice() {
        [flag @ ("-4" | "-6"), rest @ ..] => (Some(*flag), rest),
        all => (None, all),
    };
    let at = |text: &str| at(text, family);
    let said = match words {
        ["serve", port] => server::serve(port.parse()?).await?,
        ["quic-serve", port, certificate] => {
            quic::serve(port.parse()?, Path::new(certificate)).await?
        }
        ["quic", to, certificate, bytes, streams] => {
            let (bytes, streams) = (bytes.parse()?, streams.parse()?);
            quic::both_ways(at(to)?, Path::new(certificate), bytes, streams).await?
        }
        ["down", to, bytes, flows] => client::down(at(to)?, bytes.parse()?, flows.parse()?).await?,
        ["up", to, bytes, flows] => client::up(at(to)?, bytes.parse()?, flows.parse()?).await?,
        ["down-for", to, seconds, flows] => {
            let time = Duration::from_secs(seconds.parse()?);
            client::down_for(at(to)?, time, flows.parse()?).await?
        }
        ["up-for", to, seconds, flows] => {
            let time = Duration::from_secs(seconds.parse()?);
            client::up_for(at(to)?, time, flows.parse()?).await?
        }
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
        ["udp-connect", to] => client::udp_connect(at(to)?).await?,
        ["udp-leave", to] => client::udp_leave(at(to)?).await?,
        ["udp", to, bytes, count] => client::udp(at(to)?, bytes.parse()?, count.parse()?).await?,
        _ => bail!("usage:\n{USAGE}"),
    };
    say(&said);
    Ok(())
}

/// Names are looked up as the machine does it.
fn at(text: &str, family: Option<&str>) -> Result<SocketAddr> {
    let mut found = text.to_socket_addrs().with_context(|| text.to_owned())?;
    let wanted = |address: &SocketAddr| match family {
        Some("-4") => address.is_ipv4(),
        Some(_) => address.is_ipv6(),
        None => true,
    };
    let found = found.find(wanted);
    found.with_context(|| format!("no address: {text}"))
}

#[expect(clippy::print_stdout, reason = "it is what the program is for")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}
