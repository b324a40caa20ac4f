//! IP networks as values: parsing, containment, overlap, reverse zones.
//!
//! Everything here is pure. The types always hold the network address, so two spellings of one
//! network are equal. Reading the machine's routes is `link.rs`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use reverse::{MAX_REVERSE_ZONES, ReverseZones, reverse_zones};

mod reverse;

/// What is wrong with a network given as text or parts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// The address part is no IP address of the wanted family.
    #[error("{0:?} is not an IP network (expected ADDRESS/PREFIX)")]
    Syntax(String),
    /// The prefix is longer than the address.
    #[error("prefix /{prefix} is too long for {address}")]
    Prefix {
        /// The address given.
        address: IpAddr,
        /// The prefix given.
        prefix: u8,
    },
}

/// An IPv4 network, held by its network address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ipv4Net {
    address: Ipv4Addr,
    prefix: u8,
}

/// An IPv6 network, held by its network address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ipv6Net {
    address: Ipv6Addr,
    prefix: u8,
}

/// An IP network of either family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum IpNet {
    /// An IPv4 network.
    V4(Ipv4Net),
    /// An IPv6 network.
    V6(Ipv6Net),
}

impl Ipv4Net {
    /// Makes the network of `prefix` bits that `address` lies in.
    pub fn new(address: Ipv4Addr, prefix: u8) -> Result<Self, NetError> {
        if prefix > 32 {
            let address = address.into();
            return Err(NetError::Prefix { address, prefix });
        }
        let address = Ipv4Addr::from_bits(address.to_bits() & mask4(prefix));
        Ok(Self { address, prefix })
    }

    /// Makes a network from parts known to be right, for constants.
    pub(crate) const fn known(address: Ipv4Addr, prefix: u8) -> Self {
        Self { address, prefix }
    }

    /// Returns the network address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns the prefix length.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Tells whether `address` lies in this network.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        address.to_bits() & mask4(self.prefix) == self.address.to_bits()
    }

    /// Tells whether the two networks share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }

    /// Yields the networks of `prefix` bits inside this one, in order; none if `prefix` is shorter.
    pub fn subnets(&self, prefix: u8) -> impl Iterator<Item = Self> {
        let wanted = (self.prefix..=32).contains(&prefix);
        let count = if wanted {
            1u64 << (prefix - self.prefix)
        } else {
            0
        };
        let start = u64::from(self.address.to_bits());
        (0..count).map(move |n| {
            let bits = start + (n << (32 - prefix));
            Self {
                address: Ipv4Addr::from_bits(bits as u32),
                prefix,
            }
        })
    }
}

impl Ipv6Net {
    /// Makes the network of `prefix` bits that `address` lies in.
    pub fn new(address: Ipv6Addr, prefix: u8) -> Result<Self, NetError> {
        if prefix > 128 {
            let address = address.into();
            return Err(NetError::Prefix { address, prefix });
        }
        let address = Ipv6Addr::from_bits(address.to_bits() & mask6(prefix));
        Ok(Self { address, prefix })
    }

    /// Returns the network address.
    pub fn address(&self) -> Ipv6Addr {
        self.address
    }

    /// Returns the prefix length.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Tells whether `address` lies in this network.
    pub fn contains(&self, address: Ipv6Addr) -> bool {
        address.to_bits() & mask6(self.prefix) == self.address.to_bits()
    }

    /// Tells whether the two networks share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

impl IpNet {
    /// Makes the network of `prefix` bits that `address` lies in.
    pub fn new(address: IpAddr, prefix: u8) -> Result<Self, NetError> {
        Ok(match address {
            IpAddr::V4(address) => Self::V4(Ipv4Net::new(address, prefix)?),
            IpAddr::V6(address) => Self::V6(Ipv6Net::new(address, prefix)?),
        })
    }

    /// Returns the prefix length.
    pub fn prefix(&self) -> u8 {
        match self {
            Self::V4(net) => net.prefix,
            Self::V6(net) => net.prefix,
        }
    }

    /// Tells whether `address` lies in this network; never across families.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self, address) {
            (Self::V4(net), IpAddr::V4(address)) => net.contains(address),
            (Self::V6(net), IpAddr::V6(address)) => net.contains(address),
            (Self::V4(_), IpAddr::V6(_)) | (Self::V6(_), IpAddr::V4(_)) => false,
        }
    }

    /// Tells whether the two networks share an address; never across families.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::V4(a), Self::V4(b)) => a.overlaps(b),
            (Self::V6(a), Self::V6(b)) => a.overlaps(b),
            (Self::V4(_), Self::V6(_)) | (Self::V6(_), Self::V4(_)) => false,
        }
    }
}

impl FromStr for Ipv4Net {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        let (address, prefix) = split(text, 32)?;
        Self::new(address, prefix)
    }
}

impl FromStr for Ipv6Net {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        let (address, prefix) = split(text, 128)?;
        Self::new(address, prefix)
    }
}

impl FromStr for IpNet {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        if text.contains(':') {
            text.parse().map(Self::V6)
        } else {
            text.parse().map(Self::V4)
        }
    }
}

/// Gives a network type its text forms (Display, Debug, serde) from its two parts.
macro_rules! text_forms {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", self.address, self.prefix)
            }
        }
        string_forms!($name);
    )*};
}

/// Derives Debug and the serde conversions from Display and FromStr.
macro_rules! string_forms {
    ($name:ident) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl From<$name> for String {
            fn from(net: $name) -> Self {
                net.to_string()
            }
        }
        impl TryFrom<String> for $name {
            type Error = NetError;

            fn try_from(text: String) -> Result<Self, NetError> {
                text.parse()
            }
        }
    };
}

text_forms!(Ipv4Net, Ipv6Net);
string_forms!(IpNet);

impl fmt::Display for IpNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(net) => net.fmt(f),
            Self::V6(net) => net.fmt(f),
        }
    }
}

impl From<Ipv4Net> for IpNet {
    fn from(net: Ipv4Net) -> Self {
        Self::V4(net)
    }
}

impl From<Ipv6Net> for IpNet {
    fn from(net: Ipv6Net) -> Self {
        Self::V6(net)
    }
}

/// Splits `ADDRESS[/PREFIX]`; a bare address is the network of itself.
fn split<A: FromStr>(text: &str, full: u8) -> Result<(A, u8), NetError> {
    let syntax = || NetError::Syntax(text.to_owned());
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => {
            let plain = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
            let prefix = prefix.parse().ok().filter(|_| plain);
            (address, prefix.ok_or_else(syntax)?)
        }
        None => (text, full),
    };
    Ok((address.parse().map_err(|_| syntax())?, prefix))
}

fn mask4(prefix: u8) -> u32 {
    u32::MAX.checked_shl(u32::from(32 - prefix)).unwrap_or(0)
}

fn mask6(prefix: u8) -> u128 {
    u128::MAX.checked_shl(u32::from(128 - prefix)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
