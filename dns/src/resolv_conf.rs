//! Reads `resolv.conf`, as resolvers do rather than as resolv.conf(5) says: leading blanks, comments
//! behind values, CRLF and any number of servers are accepted, since such files exist and work.
//!
//! Pure: bytes in, values out. What cannot be used is left out with a warning, never an error;
//! a file without servers gives none, and the caller decides. Options other than `ndots`, `timeout`
//! and `attempts` concern the C library's own way of asking and are ignored.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::name::Name;

/// The largest `ndots` glibc takes (`RES_MAXNDOTS`).
const MAX_NDOTS: u8 = 15;
/// The largest `timeout` glibc takes, in seconds (`RES_MAXRETRANS`).
const MAX_TIMEOUT: u8 = 30;
/// The largest `attempts` glibc takes (`RES_MAXRETRY`).
const MAX_ATTEMPTS: u8 = 5;
/// Kubernetes allows 32 search domains in a pod; nobody means more.
const MAX_SEARCH: usize = 32;

/// Holds what a `resolv.conf` says; an option it does not mention is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvConf {
    /// The servers in the order of the file, without repetitions.
    pub nameservers: Vec<Nameserver>,
    /// The search domains of the last `search` or `domain` line, without the root.
    pub search: Vec<Name>,
    /// How many dots make a name be tried as it is first.
    pub ndots: Option<u8>,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// How often the servers are gone through.
    pub attempts: Option<u8>,
    /// What could not be used, with line numbers.
    pub warnings: Vec<String>,
}

/// Names a server by address, with the interface of a link-local one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nameserver {
    /// The address; IPv4 written as IPv6 is IPv4 here.
    pub address: IpAddr,
    /// The interface name or index behind the `%`.
    pub scope: Option<String>,
}

/// Reads the content of a `resolv.conf`.
pub fn parse(bytes: &[u8]) -> ResolvConf {
    let mut config = ResolvConf::default();
    for (index, raw) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let mut warnings = Vec::new();
        let line = clean(raw, &mut warnings);
        config.line(&line, &mut warnings);
        let number = index + 1;
        let numbered = warnings.iter().map(|text| format!("line {number}: {text}"));
        config.warnings.extend(numbered);
    }
    config
}

/// Cuts a line at its comment, or at a NUL as the C library would, and makes it text.
fn clean(raw: &[u8], warnings: &mut Vec<String>) -> String {
    let before = |ends: fn(&u8) -> bool, line| <[u8]>::split(line, ends).next().unwrap_or_default();
    let value = before(|byte| matches!(byte, b'#' | b';'), raw);
    let text = before(|byte| *byte == 0, value);
    if text.len() < value.len() {
        warnings.push("the rest after a NUL byte is ignored".to_owned());
    }
    if str::from_utf8(text).is_err() {
        warnings.push("bytes that are not UTF-8".to_owned());
    }
    String::from_utf8_lossy(text).into_owned()
}

impl ResolvConf {
    fn line(&mut self, line: &str, warnings: &mut Vec<String>) {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("nameserver") => self.nameserver(words.next(), warnings),
            Some("domain") => self.search(words.next().into_iter(), warnings),
            Some("search") => self.search(words, warnings),
            Some("options") => words.for_each(|option| self.option(option, warnings)),
            // Known to one C library or another, and of no meaning here.
            Some("sortlist" | "lookup" | "family" | "port") | None => {}
            Some(other) => warnings.push(format!("unknown keyword `{other}`")),
        }
    }

    fn nameserver(&mut self, word: Option<&str>, warnings: &mut Vec<String>) {
        match word.map(Nameserver::from_str) {
            Some(Ok(server)) if self.nameservers.contains(&server) => {}
            Some(Ok(server)) => self.nameservers.push(server),
            Some(Err(error)) => warnings.push(error.to_string()),
            None => warnings.push("nameserver without an address".to_owned()),
        }
    }

    fn search<'a, I>(&mut self, words: I, warnings: &mut Vec<String>)
    where
        I: Iterator<Item = &'a str>,
    {
        let mut words = words.peekable();
        // Like glibc, a line without a domain changes nothing; `search .` is how to want none.
        if words.peek().is_none() {
            return;
        }
        self.search.clear();
        for word in words {
            match word.parse::<Name>() {
                Ok(domain) if domain.is_root() || self.search.contains(&domain) => {}
                Ok(_) if self.search.len() == MAX_SEARCH => {
                    warnings.push(format!("more than {MAX_SEARCH} search domains"));
                    return;
                }
                Ok(domain) => self.search.push(domain),
                Err(error) => warnings.push(format!("search domain `{word}`: {error}")),
            }
        }
    }

    fn option(&mut self, option: &str, warnings: &mut Vec<String>) {
        let Some((key, value)) = option.split_once(':') else {
            return;
        };
        let number = value.parse::<u32>();
        let clamped = |least: u8, most: u8| {
            let number = number.clone().ok()?;
            Some(u8::try_from(number).unwrap_or(most).clamp(least, most))
        };
        let taken = match key {
            "ndots" => replace(&mut self.ndots, clamped(0, MAX_NDOTS)),
            "timeout" => {
                let seconds = clamped(1, MAX_TIMEOUT);
                let timeout = seconds.map(|seconds| Duration::from_secs(seconds.into()));
                replace(&mut self.timeout, timeout)
            }
            "attempts" => replace(&mut self.attempts, clamped(1, MAX_ATTEMPTS)),
            _ => true,
        };
        if !taken {
            warnings.push(format!("option `{option}` has no number"));
        }
    }
}

/// Overwrites the old value if there is a new one; tells whether there is.
fn replace<T>(old: &mut Option<T>, new: Option<T>) -> bool {
    let present = new.is_some();
    *old = new.or_else(|| old.take());
    present
}

/// Tells that a word is not the address of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nameserver `{0}` is not an IP address")]
pub struct NotAnAddress(String);

impl FromStr for Nameserver {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || NotAnAddress(text.to_owned());
        let (address, scope) = match text.split_once('%') {
            Some((_, "")) => return Err(bad()),
            Some((address, scope)) => (address, Some(scope.to_owned())),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let address = address.to_canonical();
        if scope.is_some() && address.is_ipv4() {
            return Err(bad());
        }
        Ok(Self { address, scope })
    }
}

impl fmt::Display for Nameserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            Some(scope) => write!(f, "{}%{scope}", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}

#[cfg(test)]
mod tests;
