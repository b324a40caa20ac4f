//! Record types and response codes as numbers with names; unknown ones keep their number (RFC 3597 §5).

use std::fmt;
use std::str::FromStr;

/// A record type or query type: the number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordType(pub u16);

/// A response code, its extended upper bits included (RFC 6891 §6.1.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResponseCode(pub u16);

/// Tells that a text is neither a known record type nor `TYPE` and a number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a record type")]
pub struct UnknownRecordType(String);

macro_rules! named_numbers {
    ($type:ident, $table:ident, $($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl $type {
            $($(#[$doc])* pub const $name: Self = Self($value);)*
        }
        const $table: &[($type, &str)] = &[$(($type::$name, stringify!($name)),)*];
    };
}

named_numbers! { RecordType, TYPE_NAMES,
    /// An IPv4 address.
    A = 1;
    /// An authoritative name server.
    NS = 2;
    /// The canonical name of an alias.
    CNAME = 5;
    /// The start of a zone of authority.
    SOA = 6;
    /// A pointer, mostly from an address to a name.
    PTR = 12;
    /// Host information; our answer to `ANY` (RFC 8482).
    HINFO = 13;
    /// A mail exchange.
    MX = 15;
    /// Text strings.
    TXT = 16;
    /// An IPv6 address.
    AAAA = 28;
    /// The location of a service (RFC 2782).
    SRV = 33;
    /// A rewriting rule (RFC 3403).
    NAPTR = 35;
    /// An alias of a whole subtree (RFC 6672).
    DNAME = 39;
    /// The EDNS pseudo-record (RFC 6891).
    OPT = 41;
    /// A delegation signer (RFC 4034).
    DS = 43;
    /// A signature (RFC 4034).
    RRSIG = 46;
    /// A denial of existence (RFC 4034).
    NSEC = 47;
    /// A zone key (RFC 4034).
    DNSKEY = 48;
    /// A hashed denial of existence (RFC 5155).
    NSEC3 = 50;
    /// A service binding (RFC 9460).
    SVCB = 64;
    /// A service binding for HTTPS (RFC 9460).
    HTTPS = 65;
    /// A transaction key (RFC 2930).
    TKEY = 249;
    /// A transaction signature (RFC 8945).
    TSIG = 250;
    /// An incremental zone transfer (RFC 1995).
    IXFR = 251;
    /// A zone transfer (RFC 5936).
    AXFR = 252;
    /// An obsolete query for mailboxes.
    MAILB = 253;
    /// An obsolete query for mail agents.
    MAILA = 254;
    /// A query for any type.
    ANY = 255;
    /// A certification authority authorisation (RFC 8659).
    CAA = 257;
}

named_numbers! { ResponseCode, CODE_NAMES,
    /// No error.
    NOERROR = 0;
    /// The query could not be understood.
    FORMERR = 1;
    /// The server failed.
    SERVFAIL = 2;
    /// The name does not exist.
    NXDOMAIN = 3;
    /// The kind of query is not implemented.
    NOTIMP = 4;
    /// The server refuses to answer.
    REFUSED = 5;
    /// The EDNS version is not known (RFC 6891).
    BADVERS = 16;
}

impl RecordType {
    /// Says whether this is an address type, A or AAAA.
    pub fn is_address(self) -> bool {
        self == Self::A || self == Self::AAAA
    }
}

impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match TYPE_NAMES.iter().find(|(value, _)| value == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "TYPE{}", self.0),
        }
    }
}

impl fmt::Debug for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RecordType {
    type Err = UnknownRecordType;

    fn from_str(text: &str) -> Result<Self, UnknownRecordType> {
        if let Some((value, _)) = TYPE_NAMES
            .iter()
            .find(|(_, name)| name.eq_ignore_ascii_case(text))
        {
            return Ok(*value);
        }
        let number = text
            .get(..4)
            .filter(|head| head.eq_ignore_ascii_case("TYPE"))
            .and_then(|_| text.get(4..));
        number
            .filter(|digits| digits.bytes().all(|octet| octet.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .map(Self)
            .ok_or_else(|| UnknownRecordType(text.to_owned()))
    }
}

impl fmt::Display for ResponseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CODE_NAMES.iter().find(|(value, _)| value == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "RCODE{}", self.0),
        }
    }
}

impl fmt::Debug for ResponseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_types_round_trip_through_text() {
        for (number, text) in [
            (1, "A"),
            (28, "AAAA"),
            (65, "HTTPS"),
            (65280, "TYPE65280"),
            (0, "TYPE0"),
        ] {
            assert_eq!(RecordType(number).to_string(), text);
            assert_eq!(text.parse(), Ok(RecordType(number)));
        }
        assert_eq!("aaaa".parse(), Ok(RecordType::AAAA));
        assert_eq!("type28".parse(), Ok(RecordType::AAAA));
    }

    #[test]
    fn unknown_type_text_is_refused() {
        for text in [
            "",
            "TYPE",
            "TYPE65536",
            "TYPE+1",
            "TYPE-1",
            "BOGUS",
            "typ\u{e9}1",
        ] {
            assert!(text.parse::<RecordType>().is_err(), "{text}");
        }
    }

    #[test]
    fn response_codes_show_their_names() {
        assert_eq!(ResponseCode::NXDOMAIN.to_string(), "NXDOMAIN");
        assert_eq!(ResponseCode(23).to_string(), "RCODE23");
    }
}
