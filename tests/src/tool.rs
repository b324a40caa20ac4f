//! dig, kdig and drill: one question each, and all they tell of the reply, in words that do not
//! depend on the tool.

use std::fmt;

use anyhow::{Context, Result, bail};

use crate::machine::Machine;

/// A program that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Of BIND.
    Dig,
    /// Of Knot DNS.
    Kdig,
    /// Of ldns.
    Drill,
}

/// What came back. Reads as `STATUS flags QUERY/ANSWER/AUTHORITY edns VERSION flags SIZE options;
/// owner TYPE data; …`, without TTLs: they differ with time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// NOERROR, BADVERS, …
    pub status: String,
    /// The flags of the header.
    pub flags: String,
    /// The counts of question, answer and authority section.
    pub counts: [u16; 3],
    /// Version, flags, size and options of its OPT record, if it has one.
    pub edns: Option<String>,
    /// The records, without TTL and class.
    pub records: Vec<String>,
    /// Their TTLs.
    pub ttls: Vec<u32>,
}

impl fmt::Display for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [query, answer, authority] = self.counts;
        write!(
            formatter,
            "{} {} {query}/{answer}/{authority}",
            self.status, self.flags
        )?;
        if let Some(edns) = &self.edns {
            write!(formatter, " edns {edns}")?;
        }
        self.records
            .iter()
            .try_for_each(|record| write!(formatter, "; {record}"))
    }
}

/// Asks the server at `port` of the machine's loopback once; no answer is an error.
pub fn ask(machine: &Machine, tool: Tool, port: u16, words: &[&str]) -> Result<Reply> {
    parse(&say(machine, tool, port, words)?)
}

/// Asks as [`ask`] does, and gives what the tool printed.
pub fn say(machine: &Machine, tool: Tool, port: u16, words: &[&str]) -> Result<String> {
    let port = port.to_string();
    let first: &[&str] = match tool {
        // What its defaults would add to the question is left to `words`.
        Tool::Dig => &[
            "dig",
            "@127.0.0.1",
            "-p",
            &port,
            "+tries=1",
            "+time=10",
            "+noedns",
            "+noednsneg",
            "+nocookie",
            "+noad",
            "+noidnin",
            "+noidnout",
        ],
        Tool::Kdig => &[
            "kdig",
            "@127.0.0.1",
            "-p",
            &port,
            "+retry=0",
            "+time=10",
            "+noidn",
        ],
        Tool::Drill => &["drill", "-p", &port, "@127.0.0.1"],
    };
    let output = machine.run(&[first, words].concat())?;
    // kdig tells of refused transfers by its exit code; what it printed is what counts.
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn parse(text: &str) -> Result<Reply> {
    let after = |start: &str| {
        let (_, rest) = text
            .split_once(start)
            .with_context(|| format!("no {start:?} in: {text}"))?;
        let end = rest.find([',', ';', '\n']).unwrap_or(rest.len());
        Ok::<_, anyhow::Error>(rest[..end].trim().to_owned())
    };
    let status = after("status: ").or_else(|_| after("rcode: "))?;
    let mut flags = after(";; flags: ").or_else(|_| after(";; Flags: "))?;
    if text.contains("; MBZ: ") {
        flags += " mbz";
    }
    let counts = ["QUERY: ", "ANSWER: ", "AUTHORITY: "];
    let mut numbers = [0; 3];
    for (number, name) in numbers.iter_mut().zip(counts) {
        *number = after(name)?.parse()?;
    }
    let (mut records, mut ttls) = (Vec::new(), Vec::new());
    for line in text.lines() {
        if line.trim().is_empty() || line.starts_with(';') {
            continue;
        }
        let words: Vec<_> = line.split_whitespace().collect();
        let [owner, ttl, _, kind, data @ ..] = words.as_slice() else {
            bail!("not a record: {line:?} in: {text}");
        };
        ttls.push(ttl.parse()?);
        records.push(
            format!("{owner} {kind} {}", data.join(" "))
                .trim_end()
                .to_owned(),
        );
    }
    Ok(Reply {
        status,
        flags,
        counts: numbers,
        edns: edns(text),
        records,
        ttls,
    })
}

/// Reads `; EDNS: version: 0, flags: do; udp: 1232` of dig, `;; Version: 0; flags: do; UDP size:
/// 1232 B; ext-rcode: NOERROR` of kdig and `;; EDNS: version 0; flags: do ; udp: 1232` of drill,
/// with the lines of options that follow.
fn edns(text: &str) -> Option<String> {
    let is_edns = |line: &str| {
        let line = line.trim_start_matches(';').trim_start();
        line.starts_with("EDNS: version") || line.starts_with("Version: ")
    };
    let mut lines = text.lines().skip_while(|line| !is_edns(line));
    let line = lines.next()?.trim_start_matches(';').trim();
    let mut words: Vec<_> = line
        .split([' ', ',', ';', ':'])
        .filter(|word| !word.is_empty() && !NOISE.contains(word))
        .collect();
    // drill tells of its OPT record last, and of no options.
    if text.contains("PSEUDOSECTION") {
        words.extend(lines.take_while(|line| line.starts_with(';') && !line.contains("SECTION:")));
    }
    Some(words.join(" "))
}

/// Words around the numbers.
const NOISE: [&str; 11] = [
    "EDNS",
    "version",
    "Version",
    "flags",
    "udp",
    "UDP",
    "size",
    "B",
    "ext-rcode",
    "NOERROR",
    "BADVERS",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_is_read_to_the_same_words() {
        let dig = ";; ->>HEADER<<- opcode: QUERY, status: NOERROR, id: 1
;; flags: qr rd ra; QUERY: 1, ANSWER: 1, AUTHORITY: 0, ADDITIONAL: 1

;; OPT PSEUDOSECTION:
; EDNS: version: 0, flags: do; udp: 1232
;; QUESTION SECTION:
;a.example.\t\t\tIN\tA

;; ANSWER SECTION:
a.example.\t\t30\tIN\tA\t192.0.2.1

;; Query time: 0 msec
";
        let kdig = ";; ->>HEADER<<- opcode: QUERY; status: NOERROR; id: 1
;; Flags: qr rd ra; QUERY: 1; ANSWER: 1; AUTHORITY: 0; ADDITIONAL: 1

;; EDNS PSEUDOSECTION:
;; Version: 0; flags: do; UDP size: 1232 B; ext-rcode: NOERROR

;; QUESTION SECTION:
;; a.example.          \t\tIN\tA

;; ANSWER SECTION:
a.example.          \t30\tIN\tA\t192.0.2.1

;; Received 54 B
";
        let drill = ";; ->>HEADER<<- opcode: QUERY, rcode: NOERROR, id: 1
;; flags: qr rd ra ; QUERY: 1, ANSWER: 1, AUTHORITY: 0, ADDITIONAL: 0 
;; QUESTION SECTION:
;; a.example.\tIN\tA

;; ANSWER SECTION:
a.example.\t30\tIN\tA\t192.0.2.1

;; ADDITIONAL SECTION:

;; Query time: 0 msec
;; EDNS: version 0; flags: do ; udp: 1232
;; SERVER: 127.0.0.1
;; WHEN: Sun Nov 29 19:17:26 2026
;; MSG SIZE  rcvd: 54
";
        for text in [dig, kdig, drill] {
            let reply = parse(text).unwrap();
            assert_eq!(
                reply.to_string(),
                "NOERROR qr rd ra 1/1/0 edns 0 do 1232; a.example. A 192.0.2.1"
            );
            assert_eq!(reply.ttls, [30]);
        }
    }

    #[test]
    fn an_option_that_came_back_is_seen() {
        let text = ";; ->>HEADER<<- opcode: QUERY, status: BADVERS, id: 1
;; flags: qr rd ra; QUERY: 1, ANSWER: 0, AUTHORITY: 0, ADDITIONAL: 1

;; OPT PSEUDOSECTION:
; EDNS: version: 0, flags:; udp: 1232
; EDE: 22 (No Reachable Authority)
;; QUESTION SECTION:
;a.example.\t\t\tIN\tA
";
        assert_eq!(
            parse(text).unwrap().to_string(),
            "BADVERS qr rd ra 1/0/0 edns 0 1232 ; EDE: 22 (No Reachable Authority)"
        );
    }
}
