//! Records we hold ourselves: the Services of the index, told to the engine through a trait.
//!
//! A verdict from here settles a candidate and no upstream is asked about it. What a Service is,
//! and which names it has, is the implementor's business.

use std::net::IpAddr;

use crate::name::{Name, RecordType};

/// The TTL of answers and verdicts from our own records: CoreDNS's own for Services, so nothing downstream keeps them longer.
pub const LOCAL_TTL: u32 = 5;

/// Answers names from records we hold ourselves. Called for each candidate of a query that is not cached, so it must be quick and never block.
pub trait LocalRecords: Send + Sync + 'static {
    /// Looks one full name up; the case of `name` does not matter.
    fn lookup(&self, name: &Name, rtype: RecordType) -> Local;
}

/// The verdict of our own records about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Local {
    /// The name, or the type, is not ours to answer: ask the upstreams.
    NotMine,
    /// These addresses, of the family asked for.
    Addresses(Vec<IpAddr>),
    /// The name exists and has nothing of this type.
    NoData,
    /// The name is ours and does not exist (any more).
    NxDomain,
    /// The name is an alias; its target is resolved by the upstreams unless it is ours as well.
    Alias(Name),
    /// The names an address belongs to.
    Pointer(Vec<Name>),
}

/// Holds nothing: every name goes upstream.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLocalRecords;

impl LocalRecords for NoLocalRecords {
    fn lookup(&self, _name: &Name, _rtype: RecordType) -> Local {
        Local::NotMine
    }
}
