//! Counts denials, so that each is told and none of a flood fills the log. Pure: `now` is given.
//!
//! The first one of a session, call and namespace is told at once; the others like it are counted
//! and told together when a window ends. What is counted adds up to what happened.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// How long denials of a kind are counted before their number is told.
pub const WINDOW: Duration = Duration::from_secs(10);

/// The most namespaces told apart in one window of a session: whoever asks for more names of
/// namespaces than a large cluster has makes them up. The rest is told as one number.
const NAMESPACES: usize = 256;

/// The most kinds counted at once, of all sessions: some 2 MB, and 800 lines a second at worst.
const KINDS: usize = 8192;

/// Who was denied what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// The session, as lines name it; `None` when there was none yet.
    pub session: Option<String>,
    /// The call.
    pub call: &'static str,
    /// The kind of reason.
    pub reason: &'static str,
}

/// Denials to tell in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// Who was denied what.
    pub subject: Subject,
    /// The namespace, where it is one of the cluster's names.
    pub namespace: Option<String>,
    /// The Service asked for last, where there is one.
    pub service: Option<String>,
    /// How often, in this line.
    pub count: u64,
}

#[derive(Debug)]
struct Counted {
    since: Instant,
    service: Option<String>,
    count: u64,
}

/// Denials of the windows that are open.
#[derive(Debug, Default)]
pub struct Denials(BTreeMap<(Subject, Option<String>), Counted>);

impl Denials {
    /// Counts one, and returns what is to be told of it at once.
    pub fn count(
        &mut self,
        subject: Subject,
        namespace: Option<&str>,
        service: Option<&str>,
        now: Instant,
    ) -> Option<Denial> {
        let mut key = (subject, namespace.map(str::to_owned));
        if !self.0.contains_key(&key) && self.is_full(&key.0) {
            key.1 = None;
        }
        let service = service.filter(|_| key.1.is_some()).map(str::to_owned);
        if let Some(counted) = self.0.get_mut(&key) {
            counted.count += 1;
            counted.service = service.or_else(|| counted.service.take());
            return None;
        }
        if self.0.len() >= KINDS {
            // Not even the session is told apart any more.
            key.0.session = None;
            key.1 = None;
        }
        let counted = Counted {
            since: now,
            service: None,
            count: 0,
        };
        if let Some(counted) = self.0.get_mut(&key) {
            counted.count += 1;
            return None;
        }
        self.0.insert(key.clone(), counted);
        let (subject, namespace) = key;
        Some(Denial {
            subject,
            namespace,
            service,
            count: 1,
        })
    }

    /// Takes out what was counted in windows that are over.
    pub fn due(&mut self, now: Instant) -> Vec<Denial> {
        self.take(|counted| now.duration_since(counted.since) >= WINDOW)
    }

    /// Takes everything out.
    pub fn all(&mut self) -> Vec<Denial> {
        self.take(|_| true)
    }

    fn is_full(&self, subject: &Subject) -> bool {
        let first = (subject.clone(), None);
        let of_it = self
            .0
            .range(first..)
            .take_while(|((other, _), _)| other == subject);
        of_it.take(NAMESPACES).count() >= NAMESPACES
    }

    fn take(&mut self, is_due: impl Fn(&Counted) -> bool) -> Vec<Denial> {
        let mut told = Vec::new();
        self.0.retain(|(subject, namespace), counted| {
            let due = is_due(counted);
            if due && counted.count > 0 {
                told.push(Denial {
                    subject: subject.clone(),
                    namespace: namespace.clone(),
                    service: counted.service.take(),
                    count: counted.count,
                });
            }
            !due
        });
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(session: &str) -> Subject {
        Subject {
            session: Some(session.to_owned()),
            call: "ExchangeDns",
            reason: "namespace-not-granted",
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_is_told_at_once_and_the_others_as_a_number() {
        let mut denials = Denials::default();
        let now = Instant::now();
        let first = denials.count(subject("a"), Some("prod"), Some("db"), now);
        let first = first.unwrap();
        assert_eq!(
            (first.namespace.as_deref(), first.service.as_deref()),
            (Some("prod"), Some("db"))
        );
        for _ in 0..1000 {
            assert_eq!(
                denials.count(subject("a"), Some("prod"), Some("web"), now),
                None
            );
        }
        assert!(
            denials
                .count(subject("a"), Some("stage"), None, now)
                .is_some()
        );
        assert!(
            denials
                .count(subject("b"), Some("prod"), None, now)
                .is_some()
        );
        assert_eq!(denials.due(now), []);
        let due = denials.due(now + WINDOW);
        assert_eq!(due.len(), 1);
        assert_eq!(
            (due[0].count, due[0].service.as_deref()),
            (1000, Some("web"))
        );
        assert!(
            denials
                .count(subject("a"), Some("prod"), None, now)
                .is_some()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_names_are_made_up_the_lines_are_bounded_and_add_up() {
        let mut denials = Denials::default();
        let now = Instant::now();
        let mut told = Vec::new();
        let asked = 100_000;
        for number in 0..asked {
            let session = subject(&format!("s{}", number % 64));
            let namespace = format!("n{number}");
            told.extend(denials.count(session, Some(&namespace), Some("x"), now));
        }
        assert!(denials.0.len() <= KINDS + 1, "{}", denials.0.len());
        told.extend(denials.due(now + WINDOW));
        assert!(told.len() <= 2 * (KINDS + 1), "{}", told.len());
        assert_eq!(told.iter().map(|denial| denial.count).sum::<u64>(), asked);
        assert!(denials.0.is_empty());
    }
}
