//! Which upstreams of a set were not asked, and why.

use std::sync::Arc;

use super::{Event, NotAsked, Recording};
use crate::name::Name;
use crate::upstreams::Member;

/// Tells, once for all names, which members may not be asked.
pub(crate) fn note_unfit(
    recording: &Recording,
    members: &[Arc<Member>],
    fit: &[Arc<Member>],
    name: &Name,
) {
    let Some(recorder) = recording else {
        return;
    };
    for member in members {
        if fit.iter().any(|one| Arc::ptr_eq(one, member)) {
            continue;
        }
        let because = if member.is_looped_for(name) {
            NotAsked::Looped
        } else if member.is_avoided() {
            NotAsked::Down
        } else {
            NotAsked::Allowance
        };
        recorder.push_once(Event::NotAsked {
            name: None,
            upstream: member.spec().clone(),
            because,
        });
    }
}

/// Tells which members never had their turn, since one before them answered.
pub(crate) fn note_spared(
    recording: &Recording,
    members: &[Arc<Member>],
    taken: usize,
    name: &Name,
) {
    let Some(recorder) = recording else {
        return;
    };
    // Without any turn the whole name was not needed, which is told of the name.
    let spared = if taken == 0 { &[] } else { &members[taken..] };
    for member in spared {
        recorder.push(Event::NotAsked {
            name: Some(name.clone()),
            upstream: member.spec().clone(),
            because: NotAsked::NotNeeded,
        });
    }
}
