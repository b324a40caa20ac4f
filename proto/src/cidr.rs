//! Address ranges as they cross the wire.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::error::InvalidMessage;

/// An address range, always written with its network address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    network: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// Makes the range of `prefix` leading bits around `address`; `None` when there are not that many bits.
    #[must_use]
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let network = match address {
            IpAddr::V4(v4) if prefix <= 32 => {
                let mask = u32::MAX.checked_shl(u32::from(32 - prefix)).unwrap_or(0);
                IpAddr::V4((v4.to_bits() & mask).into())
            }
            IpAddr::V6(v6) if prefix <= 128 => {
                let mask = u128::MAX.checked_shl(u32::from(128 - prefix)).unwrap_or(0);
                IpAddr::V6((v6.to_bits() & mask).into())
            }
            IpAddr::V4(_) | IpAddr::V6(_) => return None,
        };
        Some(Self { network, prefix })
    }

    /// Returns the network address.
    #[must_use]
    pub fn network(&self) -> IpAddr {
        self.network
    }

    /// Returns the number of leading bits that are fixed.
    #[must_use]
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Tells whether an address lies in the range.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::new(address, self.prefix).is_some_and(|other| other == *self)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.network, self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = InvalidMessage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidMessage::invalid("cidr", text, "expected ADDRESS/PREFIX");
        let (address, prefix) = text.split_once('/').ok_or_else(invalid)?;
        let address = address.parse().map_err(|_| invalid())?;
        let prefix = prefix.parse().map_err(|_| invalid())?;
        Self::new(address, prefix).ok_or_else(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_normalised_to_its_network_address() {
        for (text, expected) in [
            ("10.96.7.9/12", "10.96.0.0/12"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("1.2.3.4/32", "1.2.3.4/32"),
            ("fd00:10::5/64", "fd00:10::/64"),
            ("::1/0", "::/0"),
        ] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), expected);
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_value() {
        for text in ["10.0.0.0", "10.0.0.0/33", "::/129", "a/8", "10.0.0.0/", ""] {
            let error = text.parse::<Cidr>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn containment_minds_the_family() {
        let range: Cidr = "10.96.0.0/12".parse().unwrap();
        assert!(range.contains("10.100.0.1".parse().unwrap()));
        assert!(!range.contains("10.112.0.1".parse().unwrap()));
        assert!(!range.contains("::1".parse().unwrap()));
    }
}
