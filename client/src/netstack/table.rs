//! The TCP flows there are, and when each wants to be polled.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use super::flow::Flow;
use super::packet::FlowKey;
use crate::reachable::Hold;

/// Flows by their ends.
#[derive(Debug, Default)]
pub(super) struct Table {
    flows: HashMap<FlowKey, Entry>,
    deadlines: BTreeSet<(Instant, FlowKey)>,
}

#[derive(Debug)]
struct Entry {
    flow: Arc<Flow>,
    deadline: Option<Instant>,
    /// The right to go there, for as long as the flow lives.
    _hold: Option<Hold>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    pub(super) fn find(&self, key: &FlowKey) -> Option<&Arc<Flow>> {
        self.flows.get(key).map(|entry| &entry.flow)
    }

    /// Adds a flow, in the place of one with the same ends.
    pub(super) fn insert(&mut self, flow: Arc<Flow>, hold: Option<Hold>) {
        let key = flow.key;
        self.remove_key(&key);
        let entry = Entry {
            flow,
            deadline: None,
            _hold: hold,
        };
        self.flows.insert(key, entry);
    }

    /// Forgets this flow, unless another one has its place.
    pub(super) fn remove(&mut self, flow: &Arc<Flow>) {
        if self.holds(flow) {
            self.remove_key(&flow.key);
        }
    }

    /// Notes when this flow wants to be polled.
    pub(super) fn schedule(&mut self, flow: &Arc<Flow>, deadline: Option<Instant>) {
        let Some(entry) = self.flows.get_mut(&flow.key) else {
            return;
        };
        if !Arc::ptr_eq(&entry.flow, flow) || entry.deadline == deadline {
            return;
        }
        if let Some(old) = std::mem::replace(&mut entry.deadline, deadline) {
            self.deadlines.remove(&(old, flow.key));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, flow.key));
        }
    }

    /// When the first flow wants to be polled.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Takes the next flow whose time has come.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Arc<Flow>> {
        let (deadline, key) = *self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        self.deadlines.pop_first();
        let entry = self.flows.get_mut(&key)?;
        entry.deadline = None;
        Some(Arc::clone(&entry.flow))
    }

    /// Gives all flows away.
    pub(super) fn drain(&mut self) -> Vec<Arc<Flow>> {
        self.deadlines.clear();
        let flows = std::mem::take(&mut self.flows);
        flows.into_values().map(|entry| entry.flow).collect()
    }

    fn holds(&self, flow: &Arc<Flow>) -> bool {
        self.find(&flow.key)
            .is_some_and(|found| Arc::ptr_eq(found, flow))
    }

    fn remove_key(&mut self, key: &FlowKey) {
        if let Some(entry) = self.flows.remove(key)
            && let Some(deadline) = entry.deadline
        {
            self.deadlines.remove(&(deadline, *key));
        }
    }
}
