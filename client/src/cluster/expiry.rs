//! Until when a certificate or a token may be used, as it says itself. Pure.
//!
//! Judges nothing: no signature is checked here. Only for words, and for when to ask for another.

use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::civil::DateTime;
use k8s_openapi::jiff::tz::TimeZone;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The end of the first certificate of a PEM text.
pub(super) fn of_certificate(pem: &str) -> Option<Timestamp> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    not_after(&certificate)
}

/// The `exp` of a JSON Web Token.
pub(super) fn of_token(token: &str) -> Option<Timestamp> {
    let mut payload: String = token
        .split('.')
        .nth(1)?
        .chars()
        .map(|character| match character {
            '-' => '+',
            '_' => '/',
            other => other,
        })
        .collect();
    while !payload.len().is_multiple_of(4) {
        payload.push('=');
    }
    let ByteString(json) = serde_json::from_value(payload.into()).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&json).ok()?;
    Timestamp::from_second(claims.get("exp")?.as_i64()?).ok()
}

/// Certificate { TBSCertificate { [0] version, serial, algorithm, issuer, validity { … } } }
fn not_after(der: &[u8]) -> Option<Timestamp> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let (tag, certificate, _) = element(der)?;
    let (inner, body, _) = element(certificate)?;
    if tag != SEQUENCE || inner != SEQUENCE {
        return None;
    }
    let mut rest = body;
    let (first, _, after) = element(rest)?;
    if first == VERSION {
        rest = after;
    }
    for _ in ["serial", "algorithm", "issuer"] {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest)?;
    let (_, _, after) = element(validity)?;
    let (tag, text, _) = element(after)?;
    time(tag, std::str::from_utf8(text).ok()?)
}

/// Splits the first element off: its tag, its content, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    const LONG: u8 = 0x80;
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < LONG {
        (usize::from(first), rest)
    } else {
        let (octets, rest) = rest.split_at_checked(usize::from(first - LONG))?;
        if octets.len() > size_of::<u32>() {
            return None;
        }
        let length = octets
            .iter()
            .fold(0, |length, octet| length << 8 | usize::from(*octet));
        (length, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// RFC 5280, 4.1.2.5: UTCTime until 2049, GeneralizedTime from then on, both in UTC with seconds.
fn time(tag: u8, text: &str) -> Option<Timestamp> {
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;
    let full = match tag {
        UTC_TIME => {
            let year: u8 = text.get(..2)?.parse().ok()?;
            let century = if year < 50 { "20" } else { "19" };
            format!("{century}{text}")
        }
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", full).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(year: i32) -> String {
        let mut parameters = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(year, 2, 3);
        let key = rcgen::KeyPair::generate().unwrap();
        parameters.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn the_end_of_a_certificate_is_read_before_and_after_2050() {
        for (year, wanted) in [
            (2031, "2031-02-03T00:00:00Z"),
            (2061, "2061-02-03T00:00:00Z"),
        ] {
            let end = of_certificate(&certificate(year)).unwrap();
            assert_eq!(end.to_string(), wanted);
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        let whole = CertificateDer::from_pem_slice(certificate(2031).as_bytes()).unwrap();
        for length in 0..120 {
            assert_eq!(not_after(&whole[..length]), None);
        }
        assert_eq!(of_certificate("no PEM"), None);
    }

    #[test]
    fn the_end_of_a_token_is_its_exp() {
        // {"alg":"none"}.{"sub":"dev?>","exp":1900000000}
        let token = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJkZXY_PiIsImV4cCI6MTkwMDAwMDAwMH0.sig";
        assert_eq!(of_token(token).unwrap().as_second(), 1_900_000_000);
        for opaque in ["", "opaque", "a.b.c", "a.e30.c"] {
            assert_eq!(of_token(opaque), None, "{opaque}");
        }
    }
}
