//! Names that nobody else asks for, by which an upstream is found to lead back to us.
//!
//! They are random, so that nobody can have us take an honest upstream for a loop, and lie in the
//! zone that is tried, because names elsewhere may be routed otherwise. They never end in a name
//! set aside for special use, which servers on the way may answer by themselves, and have so many
//! labels that nobody on the way tries a search list first, where they would be other names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use rand::Rng;
use tokio::time::Instant;

use crate::name::Name;
use crate::upstream::UpstreamSpec;

/// How long a probe may take to come back: longer than any resolver on the way waits.
const LIFE: Duration = Duration::from_secs(10);
/// Characters of a label: 36^20 is more than 2^100.
const LABEL: usize = 20;
/// Labels of a name in all: a pod's names with fewer dots than five are searched for.
const LABELS: usize = 6;
const CHARACTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// What a probe is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) upstream: UpstreamSpec,
    pub(super) zone: Name,
}

/// The probes that may still come back.
#[derive(Debug, Default)]
pub(super) struct Probes {
    under_way: RwLock<BTreeMap<Name, UnderWay>>,
    /// Whether there are any, so that other queries need not wait for the lock.
    any: AtomicBool,
}

#[derive(Debug)]
struct UnderWay {
    target: Arc<Target>,
    until: Instant,
    came_back: AtomicBool,
}

impl Probes {
    /// Enters a probe with a fresh name; `None` when no name fits below the zone.
    pub(super) fn open(&self, target: &Arc<Target>, now: Instant) -> Option<Name> {
        let name = fresh_name(&target.zone, &mut rand::rng())?;
        let mut under_way = self.under_way.write();
        under_way.retain(|_, probe| probe.until > now);
        let probe = UnderWay {
            target: Arc::clone(target),
            until: now + LIFE,
            came_back: AtomicBool::new(false),
        };
        under_way.insert(name.clone(), probe);
        self.any.store(true, Ordering::Release);
        Some(name)
    }

    /// Finds what a name was made to find out, and notes that it came back. Its spelling may have changed on the way.
    pub(super) fn find(&self, name: &Name, now: Instant) -> Option<Arc<Target>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let under_way = self.under_way.read();
        let probe = under_way.get(name).filter(|probe| probe.until > now)?;
        probe.came_back.store(true, Ordering::Release);
        Some(Arc::clone(&probe.target))
    }

    /// Says whether a probe has been found.
    pub(super) fn came_back(&self, name: &Name) -> bool {
        let under_way = self.under_way.read();
        let probe = under_way.get(name);
        probe.is_some_and(|probe| probe.came_back.load(Ordering::Acquire))
    }
}

/// Makes a name under a zone: one random label, or two of them under the root; between them and
/// the zone as many of one letter as it takes.
fn fresh_name(zone: &Name, random: &mut impl Rng) -> Option<Name> {
    let labels = if zone.is_root() { 2 } else { 1 };
    let fill = LABELS.saturating_sub(labels + zone.label_count());
    let mut wire = Vec::with_capacity(labels * (1 + LABEL) + 2 * fill + 1);
    for number in 0..labels {
        if number > 0 {
            wire.extend(b"\x01p".repeat(fill));
        }
        wire.push(u8::try_from(LABEL).ok()?);
        // A letter first: some servers take a name that begins with a digit for an address.
        wire.push(CHARACTERS[random.random_range(0..26)]);
        wire.extend((1..LABEL).map(|_| CHARACTERS[random.random_range(0..CHARACTERS.len())]));
    }
    if labels == 1 {
        wire.extend(b"\x01p".repeat(fill));
    }
    wire.push(0);
    Name::from_wire(&wire).ok()?.join(zone)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn target(zone: &str) -> Arc<Target> {
        Arc::new(Target {
            upstream: "10.96.0.10".parse().unwrap(),
            zone: zone.parse().unwrap(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_is_known_again_in_any_spelling_for_its_time() {
        let (probes, start) = (Probes::default(), Instant::now());
        let (first, second) = (target("corp.example"), target("."));
        let name = probes.open(&first, start).unwrap();
        let other = probes.open(&second, start + LIFE / 2).unwrap();
        assert!(name.ends_with(&first.zone));
        assert_eq!((name.dots(), other.dots()), (5, 5));
        let shouted = Name::from_wire(&name.as_wire().to_ascii_uppercase()).unwrap();
        let last = start + LIFE - Duration::from_millis(1);
        assert_eq!(probes.find(&shouted, last), Some(Arc::clone(&first)));
        assert_eq!(probes.find(&name, start + LIFE), None);
        assert_eq!(probes.find(&other, start + LIFE), Some(second));
        assert_eq!(probes.find(&first.zone, start), None);
    }

    #[test]
    fn a_zone_too_long_for_a_probe_has_none() {
        let label = "a".repeat(63);
        let zone = format!("{label}.{label}.{label}.{}", "b".repeat(50));
        assert_eq!(Probes::default().open(&target(&zone), Instant::now()), None);
    }

    proptest! {
        #[test]
        fn no_two_probes_have_one_name(one: u64, other: u64) {
            prop_assume!(one != other);
            let of = |seed| fresh_name(&Name::root(), &mut StdRng::seed_from_u64(seed)).unwrap();
            prop_assert_ne!(of(one), of(other));
        }
    }
}
