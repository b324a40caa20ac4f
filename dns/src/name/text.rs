//! Names as text: `\.`, `\\` and `\DDD` escapes (RFC 1035 §5.1), trailing dot optional on the way in, absent on the way out.

use std::fmt;
use std::str::FromStr;

use super::{MAX_LABEL, Name, NameError};

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text == "." {
            return Ok(Self::root());
        }
        let mut wire = Vec::with_capacity(text.len() + 2);
        let mut label = Vec::with_capacity(MAX_LABEL);
        let mut octets = text.bytes();
        let mut ended_by_dot = false;
        while let Some(octet) = octets.next() {
            ended_by_dot = octet == b'.';
            match octet {
                b'.' => push_label(&mut wire, &mut label)?,
                b'\\' => label.push(escaped(&mut octets)?),
                b'!'..=b'~' => label.push(octet),
                _ => return Err(NameError::NotAscii),
            }
        }
        if !ended_by_dot {
            push_label(&mut wire, &mut label)?;
        }
        wire.push(0);
        Self::from_wire(&wire)
    }
}

fn push_label(wire: &mut Vec<u8>, label: &mut Vec<u8>) -> Result<(), NameError> {
    if label.is_empty() {
        return Err(NameError::EmptyLabel);
    }
    if label.len() > MAX_LABEL {
        return Err(NameError::LabelTooLong);
    }
    let length = u8::try_from(label.len()).map_err(|_| NameError::LabelTooLong)?;
    wire.push(length);
    wire.append(label);
    Ok(())
}

fn escaped(octets: &mut std::str::Bytes<'_>) -> Result<u8, NameError> {
    let first = octets.next().ok_or(NameError::BadEscape)?;
    if !first.is_ascii_digit() {
        return if matches!(first, b'!'..=b'~') {
            Ok(first)
        } else {
            Err(NameError::BadEscape)
        };
    }
    let mut value = u16::from(first - b'0');
    for _ in 0..2 {
        let digit = octets
            .next()
            .filter(u8::is_ascii_digit)
            .ok_or(NameError::BadEscape)?;
        value = value * 10 + u16::from(digit - b'0');
    }
    u8::try_from(value).map_err(|_| NameError::BadEscape)
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        for (index, label) in self.labels().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            for &octet in label {
                match octet {
                    b'.' | b'\\' => write!(f, "\\{}", char::from(octet))?,
                    b'!'..=b'~' => write!(f, "{}", char::from(octet))?,
                    _ => write!(f, "\\{octet:03}")?,
                }
            }
        }
        Ok(())
    }
}
