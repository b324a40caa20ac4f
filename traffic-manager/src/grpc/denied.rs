//! What a DNS exchange denied a session, for the audit log: from query, reply and view.
//!
//! Told are names of the cluster alone. A name that is only perhaps one (`authors.prod`, which a
//! search would find) is told when the namespace is known; otherwise it may be anybody's.

use kubebridge_dns::message::{Checked, Query, check};
use kubebridge_dns::name::{Name, ResponseCode};
use kubebridge_dns::view::View;
use kubebridge_proto::names::check_label;

use super::Service;
use crate::kubernetes::index::Index;
use crate::records::reverse_address;
use crate::sessions::Session;

/// A name that was not answered because its namespace is not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Denied {
    /// `None` when it is no label, as in a wildcard, or not known.
    namespace: Option<String>,
    /// The label in front of it, where that is one.
    service: Option<String>,
}

/// Writes down what an exchange denied a session, if anything.
pub(super) fn tell(
    (service, call): (&Service, &'static str),
    session: &Session,
    packet: &[u8],
    reply: Option<&[u8]>,
    view: &View,
) {
    let denied = reply.and_then(|reply| denied(packet, reply, view, &service.index));
    if let Some(Denied {
        namespace,
        service: name,
    }) = denied
    {
        let (namespace, name) = (namespace.as_deref(), name.as_deref());
        service
            .audit
            .call_denied(session.id(), call, namespace, name);
    }
}

/// Says what was denied, if anything was.
fn denied(packet: &[u8], reply: &[u8], view: &View, index: &Index) -> Option<Denied> {
    let code = ResponseCode(u16::from(reply.get(3)? & 0x0f));
    let negative = [
        ResponseCode::REFUSED,
        ResponseCode::NXDOMAIN,
        ResponseCode::SERVFAIL,
    ];
    if !negative.contains(&code) {
        return None;
    }
    let Checked::Query(Query { name, .. }) = check(packet) else {
        return None;
    };
    if let Some(namespace) = view.ungranted(&name) {
        return Some(of(&name, &namespace, view));
    }
    if code == ResponseCode::REFUSED && name.ends_with(&view.cluster_domain) {
        // An alias of a granted name leads to one that is not.
        return Some(Denied {
            namespace: None,
            service: None,
        });
    }
    if let Some(address) = reverse_address(&name) {
        let keys = index.pointers(address);
        let key = keys.into_iter().find(|key| {
            let name = crate::records::full_name(key, &view.cluster_domain);
            name.is_some_and(|name| view.ungranted(&name).is_some())
        });
        return key
            .filter(|_| code == ResponseCode::REFUSED)
            .map(|key| Denied {
                namespace: Some(key.namespace),
                service: Some(key.name),
            });
    }
    let known = index.names();
    let known = known.borrow();
    view.left_out(&name).iter().find_map(|name| {
        let namespace = view.ungranted(name).filter(|name| known.contains(name))?;
        Some(of(name, &namespace, view))
    })
}

/// Takes a name of the cluster apart.
fn of(name: &Name, namespace: &str, view: &View) -> Denied {
    let label = |text: &str| check_label("name", text).is_ok().then(|| text.to_owned());
    let relative = name.strip_suffix(&view.cluster_domain);
    // `SERVICE.NAMESPACE.svc`, and perhaps more in front.
    let service = relative.and_then(|relative| {
        let count = relative.label_count();
        let octets = relative.labels().nth(count.checked_sub(3)?)?;
        label(&str::from_utf8(octets).ok()?.to_ascii_lowercase())
    });
    Denied {
        namespace: label(namespace),
        service,
    }
}

#[cfg(test)]
mod tests;
