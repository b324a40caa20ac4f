//! Scripted upstreams for tests: [`ScriptedUpstream`] stands in for a transport and works under
//! tokio's paused clock; [`LoopbackServer`] is a server on real loopback sockets.
//!
//! Both are told what to say with [`Answer`] and remember what they were asked. Built for tests of
//! this crate and, with the feature `test-util`, of others; nothing here judges what it is sent.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::message::Edns;
use crate::name::{Name, RecordType, ResponseCode};
use crate::upstream::HEADER;

pub mod fuzz;
mod scripted;
mod server;

pub use scripted::ScriptedUpstream;
pub use server::{Action, LoopbackServer, Received};

/// The TTL of records made without one.
pub const TTL: u32 = 30;

/// Parses a name that is right by construction.
///
/// # Panics
///
/// Panics when the text is not a domain name.
pub fn name(text: &str) -> Name {
    text.parse().expect("a domain name")
}

/// A record of a scripted answer.
#[derive(Debug, Clone)]
pub struct Record {
    /// The owner.
    pub owner: Name,
    /// The type; the class is always IN.
    pub rtype: RecordType,
    /// The time to live.
    pub ttl: u32,
    /// The record data in wire form.
    pub data: Vec<u8>,
}

/// What a scripted upstream says to a question, and when.
#[derive(Debug, Clone)]
pub struct Answer {
    pub(crate) kind: Kind,
    pub(crate) code: ResponseCode,
    pub(crate) truncated: bool,
    pub(crate) edns: bool,
    pub(crate) answer: Vec<Record>,
    pub(crate) authority: Vec<Record>,
    pub(crate) additional: Vec<Record>,
    pub(crate) delay: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Reply,
    Silence,
    Failure,
}

impl Record {
    /// Makes a record with the usual TTL.
    pub fn new(owner: &str, rtype: RecordType, data: impl Into<Vec<u8>>) -> Self {
        Self {
            owner: name(owner),
            rtype,
            ttl: TTL,
            data: data.into(),
        }
    }

    /// Makes an A or AAAA record.
    pub fn address(owner: &str, address: impl Into<IpAddr>) -> Self {
        match address.into() {
            IpAddr::V4(v4) => Self::new(owner, RecordType::A, v4.octets()),
            IpAddr::V6(v6) => Self::new(owner, RecordType::AAAA, v6.octets()),
        }
    }

    /// Makes an alias.
    pub fn cname(owner: &str, target: &str) -> Self {
        Self::new(owner, RecordType::CNAME, name(target).as_wire())
    }

    /// Makes the SOA of a zone; negative answers live for the smaller of its TTL and `minimum`.
    pub fn soa(zone: &str, ttl: u32, minimum: u32) -> Self {
        let mut data = name("ns").as_wire().to_vec();
        data.extend_from_slice(name("hostmaster").as_wire());
        for number in [1, 7200, 1800, 86_400, minimum] {
            data.extend_from_slice(&u32::to_be_bytes(number));
        }
        Self::new(zone, RecordType::SOA, data).ttl(ttl)
    }

    /// Changes the TTL.
    #[must_use]
    pub fn ttl(mut self, ttl: u32) -> Self {
        self.ttl = ttl;
        self
    }

    fn write(&self, wire: &mut Vec<u8>, asked: &Name) {
        if self.owner == *asked && !asked.is_root() {
            wire.extend_from_slice(b"\xc0\x0c");
        } else {
            wire.extend_from_slice(self.owner.as_wire());
        }
        wire.extend_from_slice(&self.rtype.0.to_be_bytes());
        wire.extend_from_slice(b"\0\x01");
        wire.extend_from_slice(&self.ttl.to_be_bytes());
        let length = u16::try_from(self.data.len()).expect("record data below 64 KiB");
        wire.extend_from_slice(&length.to_be_bytes());
        wire.extend_from_slice(&self.data);
    }
}

impl Answer {
    /// Says NOERROR with these records.
    pub fn records(answer: impl Into<Vec<Record>>) -> Self {
        let reply = Self::code(ResponseCode::NOERROR);
        Self {
            answer: answer.into(),
            ..reply
        }
    }

    /// Says NOERROR with one address of the name.
    pub fn address(owner: &str, address: impl Into<IpAddr>) -> Self {
        Self::records([Record::address(owner, address)])
    }

    /// Says NOERROR without records, except the SOA of a zone.
    pub fn nodata(zone: &str) -> Self {
        Self::records([]).authority([Record::soa(zone, TTL, TTL)])
    }

    /// Says NXDOMAIN with the SOA of a zone.
    pub fn nxdomain(zone: &str) -> Self {
        Self::code(ResponseCode::NXDOMAIN).authority([Record::soa(zone, TTL, TTL)])
    }

    /// Says a response code and nothing else.
    pub fn code(code: ResponseCode) -> Self {
        Self {
            kind: Kind::Reply,
            code,
            truncated: false,
            edns: true,
            answer: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
            delay: Duration::ZERO,
        }
    }

    /// Never says anything.
    pub fn silence() -> Self {
        Self {
            kind: Kind::Silence,
            ..Self::code(ResponseCode::NOERROR)
        }
    }

    /// Fails as if the server's port were closed.
    pub fn failure() -> Self {
        Self {
            kind: Kind::Failure,
            ..Self::code(ResponseCode::NOERROR)
        }
    }

    /// Waits before saying it.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Puts records into the authority section.
    #[must_use]
    pub fn authority(mut self, records: impl Into<Vec<Record>>) -> Self {
        self.authority = records.into();
        self
    }

    /// Puts records into the additional section, behind the OPT if there is one.
    #[must_use]
    pub fn additional(mut self, records: impl Into<Vec<Record>>) -> Self {
        self.additional = records.into();
        self
    }

    /// Sets the TC flag.
    #[must_use]
    pub fn truncated(mut self) -> Self {
        self.truncated = true;
        self
    }

    /// Leaves the OPT out even if the query has one, like a server from before EDNS.
    #[must_use]
    pub fn without_edns(mut self) -> Self {
        self.edns = false;
        self
    }

    /// Returns the reply to a query in wire form, with the query's id and question.
    ///
    /// # Panics
    ///
    /// Panics when the query has no question; the tests send none like that.
    pub fn reply_to(&self, query: &[u8]) -> Vec<u8> {
        let (asked, question_end) = question(query).expect("a query with one question");
        let edns = self.edns && query[11] > 0;
        let mut wire = query[..question_end].to_vec();
        // QR, RD and TC; RA and CD; one question.
        wire[2] = 0x80 | query[2] & 0x01 | u8::from(self.truncated) << 1;
        wire[3] = 0x80 | query[3] & 0x10 | self.code.0.to_be_bytes()[1] & 0x0f;
        let sections = [&self.answer, &self.authority, &self.additional];
        for (index, records) in sections.into_iter().enumerate() {
            let opt = usize::from(edns && index == 2);
            let count = u16::try_from(records.len() + opt).expect("fewer than 65,536 records");
            wire[6 + 2 * index..8 + 2 * index].copy_from_slice(&count.to_be_bytes());
            if opt == 1 {
                Edns::ours(false).write(&mut wire, self.code);
            }
            for record in records {
                record.write(&mut wire, &asked);
            }
        }
        wire
    }
}

/// Returns the asked name and where the question ends.
pub(crate) fn question(query: &[u8]) -> Option<(Name, usize)> {
    let mut end = HEADER;
    loop {
        let length = *query.get(end)?;
        end += 1 + usize::from(length);
        if length == 0 {
            break;
        }
    }
    let asked = Name::from_wire(&query[HEADER..end]).ok()?;
    Some((asked, end + 4))
}

/// Makes an address on loopback, with any port.
pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}
