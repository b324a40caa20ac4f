//! One DNS question asked with dig, and its answer as data.

use std::fmt;

use anyhow::{Context, Result, bail};

use crate::machine::Machine;

/// How the question travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// One datagram each way.
    Udp,
    /// A connection of its own.
    Tcp,
}

/// What came back. Reads as `STATUS owner TYPE data; …`, without TTLs: they differ with time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The response code: NOERROR, NXDOMAIN, …
    pub status: String,
    /// The answer section.
    pub records: Vec<Record>,
}

/// One record of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whose it is.
    pub owner: String,
    /// How long it may be kept, in seconds.
    pub ttl: u32,
    /// A, CNAME, …
    pub kind: String,
    /// The rest of the line.
    pub data: String,
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.status)?;
        for (index, record) in self.records.iter().enumerate() {
            let between = if index == 0 { "" } else { ";" };
            let Record {
                owner, kind, data, ..
            } = record;
            write!(formatter, "{between} {owner} {kind} {data}")?;
        }
        Ok(())
    }
}

/// Asks `server` (`ADDRESS` or `ADDRESS#PORT`) for `name` once; no answer is an error.
pub fn dig(
    machine: &Machine,
    server: &str,
    transport: Transport,
    name: &str,
    kind: &str,
) -> Result<Answer> {
    let (address, port) = server.split_once('#').unwrap_or((server, "53"));
    let server = format!("@{address}");
    let transport = match transport {
        Transport::Udp => "+notcp",
        Transport::Tcp => "+tcp",
    };
    let words = [
        "dig",
        &server,
        "-p",
        port,
        transport,
        "+tries=1",
        "+time=15",
        "+noall",
        "+comments",
        "+answer",
        name,
        kind,
    ];
    parse(&machine.output(&words)?)
}

fn parse(text: &str) -> Result<Answer> {
    let status = text
        .split_once("status: ")
        .and_then(|(_, rest)| rest.split(',').next())
        .with_context(|| format!("dig printed no status: {text}"))?;
    let mut records = Vec::new();
    for line in text.lines() {
        if line.is_empty() || line.starts_with(';') {
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some(owner), Some(ttl), Some(_), Some(kind)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            bail!("dig printed {line:?}");
        };
        records.push(Record {
            owner: owner.to_owned(),
            ttl: ttl.parse()?,
            kind: kind.to_owned(),
            data: words.collect::<Vec<_>>().join(" "),
        });
    }
    Ok(Answer {
        status: status.to_owned(),
        records,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_dig_is_read_record_by_record() {
        let text = ";; Got answer:
;; ->>HEADER<<- opcode: QUERY, status: NOERROR, id: 1
;; flags: qr rd ra; QUERY: 1, ANSWER: 2, AUTHORITY: 0, ADDITIONAL: 1

;; ANSWER SECTION:
docs.\t\t0\tIN\tCNAME\tdocs.example.net.
docs.example.net.\t5\tIN\tA\t203.0.113.90
";

        let answer = parse(text).unwrap();

        assert_eq!(
            answer.to_string(),
            "NOERROR docs. CNAME docs.example.net.; docs.example.net. A 203.0.113.90"
        );
        assert_eq!(answer.records[1].ttl, 5);
    }
}
