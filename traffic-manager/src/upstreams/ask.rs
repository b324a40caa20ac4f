//! `traffic-manager upstreams`: asks a running manager over its admin port.
//!
//! One short request without a runtime or an HTTP library: the answer is read to its end and at
//! most to a bound.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::report::Report;
use crate::failure::{Exit, Failure};

/// How long the manager may take for each step, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer: a thousand upstreams with long errors.
const LONGEST: u64 = 1 << 20;

/// Whom to ask, and how to print it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The admin port of the manager.
    pub admin: SocketAddr,
    /// How to print what it says.
    pub output: Output,
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// A table for people.
    Text,
    /// The manager's JSON, as it came.
    Json,
}

/// Asks, writes the answer, and fails when no upstream is good.
///
/// # Errors
/// With exit code 69 when no manager answers, with 1 when none of its upstreams does.
pub fn print(ask: &Ask, to: &mut impl Write) -> Result<()> {
    let unreachable = || {
        Failure::new(
            Exit::Unreachable,
            format!("no traffic-manager answers at {}", ask.admin),
        )
        .hint("run it in the pod (`kubectl exec`), or name the port with --admin ADDR:PORT")
    };
    let reply = exchange(ask.admin).with_context(unreachable)?;
    let body = body(&reply).with_context(unreachable)?;
    let report: Report = serde_json::from_str(body)
        .context("its answer is not a list of upstreams")
        .with_context(unreachable)?;
    match ask.output {
        Output::Text => to.write_all(report.table().as_bytes())?,
        Output::Json => to.write_all(body.as_bytes())?,
    }
    to.flush()?;
    if report.upstreams.is_empty() {
        return Ok(());
    }
    if !report.has_a_good_one() {
        return Err(Failure::new(Exit::Other, "no upstream is good").into());
    }
    Ok(())
}

fn exchange(admin: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // HTTP/1.0: the answer comes in one piece and the connection ends with it.
    write!(stream, "GET /upstreams HTTP/1.0\r\nHost: {admin}\r\n\r\n")?;
    let mut reply = String::new();
    stream.take(LONGEST).read_to_string(&mut reply)?;
    Ok(reply)
}

/// Returns the body of a good HTTP answer.
fn body(reply: &str) -> Result<&str> {
    let (head, body) = reply
        .split_once("\r\n\r\n")
        .ok_or_else(|| anyhow!("it does not speak HTTP"))?;
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(body),
        _ => Err(anyhow!("it says {status:?}: {}", body.trim())),
    }
}
