//! DNS messages as bytes: what a query asks, the replies we make ourselves, and the edits made to wire forms.
//!
//! Every packet is walked by our own reader, which checks the frame (names, counts, lengths) and
//! leaves record data alone, so that types nobody here knows pass byte-exact (RFC 3597).
//! hickory-proto is used for one thing only, showing record data as text.
//! Nothing here decides what the answer to a question is.

mod again;
mod answers;
mod build;
mod check;
mod edns;
mod fit;
mod flatten;
mod header;
mod origin;
mod plain;
mod rdata;
mod reply;
mod respell;
#[cfg(test)]
mod tests;
mod ttl;
mod wire;

use crate::name::{Name, RecordType, ResponseCode};

pub use again::answer_again;
pub use answers::{Answer, Data, Flags, Parsed, answers};
pub use check::{Checked, check};
pub use edns::Edns;
pub use fit::fit_udp;
pub use flatten::flatten_addresses;
pub use origin::Origin;
pub use ttl::zero_ttls;

pub(crate) use build::Builder;
pub(crate) use edns::ExtendedError;
pub(crate) use fit::payload_of;
pub(crate) use header::{Header, flags};
pub(crate) use plain::PlainQuery;
pub(crate) use rdata::{name_positions, names_in};
pub(crate) use reply::{Record, Reply};
pub(crate) use respell::{has_result, respell};
pub(crate) use wire::{Frame, Located};

/// The class of the internet, the only one served.
pub const CLASS_IN: u16 = 1;

/// The EDNS payload size we announce, and the most we send over UDP: fits every path without fragments (DNS flag day 2020).
pub const UDP_PAYLOAD: u16 = 1232;

/// The largest UDP message to an asker without EDNS (RFC 1035 §4.2.1).
pub const UDP_PAYLOAD_WITHOUT_EDNS: u16 = 512;

/// A well-formed question from a client, of a kind that we answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The client's message id.
    pub id: u16,
    /// Whether recursion is desired (RD).
    pub rd: bool,
    /// Whether the client understands the AD flag (RFC 6840 §5.7).
    pub ad: bool,
    /// Whether checking is disabled (CD).
    pub cd: bool,
    /// The name asked, in the asker's case.
    pub name: Name,
    /// The type asked.
    pub rtype: RecordType,
    /// The class asked, always [`CLASS_IN`] after [`check`].
    pub class: u16,
    /// What the client's OPT record said, if it sent one.
    pub edns: Option<Edns>,
}

impl Query {
    /// Says whether the client wants DNSSEC records (DO).
    pub fn dnssec_ok(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec_ok)
    }
}

/// What made bytes no DNS message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The message ends inside its header, a name or a record.
    #[error("message is cut short")]
    Cut,
    /// A name has a bad label, a pointer that does not go backwards, or more than 255 octets.
    #[error("message holds a malformed name")]
    BadName,
    /// Bytes follow the last record.
    #[error("message has trailing bytes")]
    Trailing,
    /// Record data does not have the form its type demands.
    #[error("message holds malformed record data")]
    BadData,
    /// The OPT record is repeated, misplaced or malformed.
    #[error("message holds a malformed OPT record")]
    BadEdns,
}

/// How a query of our own is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryOptions {
    /// The class asked.
    pub class: u16,
    /// Whether our OPT record asks for DNSSEC records (DO).
    pub dnssec_ok: bool,
    /// Whether the server is told not to validate (CD).
    pub checking_disabled: bool,
    /// Whether an OPT record is sent at all; some old servers cannot take one.
    pub edns: bool,
    /// What our OPT record tells other parts of ours about where the query began.
    pub origin: Option<Origin>,
}

impl Default for QueryOptions {
    fn default() -> Self {
        Self {
            class: CLASS_IN,
            dnssec_ok: false,
            checking_disabled: false,
            edns: true,
            origin: None,
        }
    }
}

/// Makes a query of our own: RD and AD set (RFC 6840 §5.7), our own OPT record, nothing of any client's.
pub fn encode_query(id: u16, name: &Name, rtype: RecordType, options: QueryOptions) -> Vec<u8> {
    let checking = if options.checking_disabled {
        flags::CD
    } else {
        0
    };
    let mut header = Header {
        id,
        flags: flags::RD | flags::AD | checking,
        counts: [1, 0, 0, 0],
    };
    let mut wire = Vec::with_capacity(Header::LENGTH + name.as_wire().len() + 4 + Edns::LENGTH);
    header.counts[3] = u16::from(options.edns);
    header.write(&mut wire);
    push_question(&mut wire, name, rtype, options.class);
    if options.edns {
        Edns::ours(options.dnssec_ok).write_from(&mut wire, options.origin);
    }
    wire
}

/// Makes a reply without records: the question as asked, the code, and our OPT record if the query had one.
pub fn error_reply(query: &Query, code: ResponseCode) -> Vec<u8> {
    error_reply_saying(query, code, None)
}

/// Makes a reply without records that says why, if the query had an OPT record.
pub(crate) fn error_reply_saying(
    query: &Query,
    code: ResponseCode,
    reason: Option<ExtendedError>,
) -> Vec<u8> {
    let mut wire =
        Vec::with_capacity(Header::LENGTH + query.name.as_wire().len() + 4 + Edns::LENGTH);
    let mut header = Header {
        id: query.id,
        flags: reply_flags(query.into(), code),
        counts: [1, 0, 0, 0],
    };
    header.counts[3] = u16::from(query.edns.is_some());
    header.write(&mut wire);
    push_question(&mut wire, &query.name, query.rtype, query.class);
    if query.edns.is_some() {
        Edns::ours(query.dnssec_ok()).write_saying(&mut wire, code, reason);
    }
    wire
}

/// Gives the flags of every reply: QR and RA set, RD and CD copied, the lower bits of the code.
pub(crate) fn reply_flags(query: PlainQuery<'_>, code: ResponseCode) -> u16 {
    let rd = if query.rd { flags::RD } else { 0 };
    let cd = if query.cd { flags::CD } else { 0 };
    flags::QR | flags::RA | rd | cd | (code.0 & flags::RCODE)
}

pub(crate) fn push_question(wire: &mut Vec<u8>, name: &Name, rtype: RecordType, class: u16) {
    wire.extend_from_slice(name.as_wire());
    wire.extend_from_slice(&rtype.0.to_be_bytes());
    wire.extend_from_slice(&class.to_be_bytes());
}
