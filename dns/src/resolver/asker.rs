//! Who asks: the view that applies, and where the query came from.
//!
//! Nothing is decided here.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::view::View;

/// Whoever a query is answered for.
#[derive(Debug, Clone)]
pub struct Asker {
    /// The rules that apply to it.
    pub view: Arc<View>,
    /// Where its packet came from; `None` for a session, whose queries come over gRPC.
    pub address: Option<SocketAddr>,
}

impl Asker {
    /// Makes an asker without an address, as a session's is.
    #[must_use]
    pub fn new(view: Arc<View>) -> Self {
        Self {
            view,
            address: None,
        }
    }

    /// Makes the sender of a packet an asker.
    #[must_use]
    pub fn at(address: SocketAddr, view: Arc<View>) -> Self {
        Self {
            view,
            address: Some(address),
        }
    }
}
