//! The namespaces of a session: which are wanted, which of them are lost, and how people change them.
//!
//! Pure but for the queue. Asking for tokens and telling the manager is [`renew`](super::renew)'s.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use super::{Client, OpenError};
use crate::access::{Lacking, Tokens};
use crate::cluster::Problem;
use crate::failure::{Exit, Failure};

/// Changes that wait for one another: people make them, one at a time.
const QUEUE: usize = 4;

/// The namespaces of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    wanted: Vec<String>,
    lost: BTreeMap<String, Lost>,
}

/// Why the session goes on without a namespace it had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The reason.
    pub why: String,
    /// What brings it back.
    pub help: Option<String>,
}

impl Namespaces {
    /// All of them, none lost.
    #[must_use]
    pub fn new(wanted: Vec<String>) -> Self {
        Self {
            wanted,
            lost: BTreeMap::new(),
        }
    }

    /// Those wanted, of which lasting reasons keep some away.
    ///
    /// # Errors
    ///
    /// None is left, or a token is only missing for now: the session has them all a while longer.
    pub(crate) fn with(wanted: Vec<String>, tokens: &Tokens) -> Result<Self, Lacking> {
        let passing = tokens.lacking.iter().find(|lacking| !lacking.lasting);
        let none_left = tokens.lacking.len() >= wanted.len();
        let first = tokens.lacking.first().filter(|_| none_left);
        if let Some(lacking) = passing.or(first) {
            return Err(lacking.clone());
        }
        let lost = |lacking: &Lacking| {
            let lost = Lost {
                why: lacking.why.clone(),
                help: lacking.help.clone(),
            };
            (lacking.namespace.clone(), lost)
        };
        let lost = tokens.lacking.iter().map(lost).collect();
        Ok(Self { wanted, lost })
    }

    /// Those the session is for, its own first.
    #[must_use]
    pub fn wanted(&self) -> &[String] {
        &self.wanted
    }

    /// Those it has to do without.
    #[must_use]
    pub fn lost(&self) -> &BTreeMap<String, Lost> {
        &self.lost
    }

    /// Those it has, in order.
    #[must_use]
    pub fn held(&self) -> Vec<String> {
        let held = self
            .wanted
            .iter()
            .filter(|name| !self.lost.contains_key(*name));
        held.cloned().collect()
    }
}

/// What people do to the namespaces of a session.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// It becomes the session's own; the others stay.
    Use(String),
    /// It is added behind the others.
    Add(String),
    /// It is taken out.
    Remove(String),
}

impl Change {
    /// The namespaces there are afterwards.
    ///
    /// # Errors
    ///
    /// It cannot be done; nothing was asked of anybody yet.
    pub fn apply(&self, wanted: &[String]) -> Result<Vec<String>, Failure> {
        let without = |name: &String| {
            let others = wanted.iter().filter(|other| *other != name);
            others.cloned().collect::<Vec<_>>()
        };
        Ok(match self {
            Self::Use(name) => {
                let mut all = without(name);
                all.insert(0, name.clone());
                all
            }
            Self::Add(name) if wanted.contains(name) => wanted.to_vec(),
            Self::Add(name) => [wanted, std::slice::from_ref(name)].concat(),
            Self::Remove(name) if wanted.first() == Some(name) => {
                let other = wanted.get(1).map_or("OTHER", String::as_str);
                let text = format!("{name} is the session's own namespace");
                return Err(Failure::message(Exit::Usage, text)
                    .with_hint(format!("kubebridge namespace use {other}, then remove it")));
            }
            Self::Remove(name) => without(name),
        })
    }

    /// The namespace that has to be had for it.
    #[must_use]
    pub fn needs(&self) -> Option<&str> {
        match self {
            Self::Use(name) | Self::Add(name) => Some(name),
            Self::Remove(_) => None,
        }
    }
}

/// One change on its way, and where to say what came of it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) change: Change,
    pub(super) reply: oneshot::Sender<Result<Vec<String>, Failure>>,
}

/// Has namespaces changed; cheap to clone.
#[derive(Clone, Debug)]
pub struct Changes {
    queue: mpsc::Sender<Asked>,
    line: watch::Receiver<Option<Client>>,
}

/// Makes the two ends of the queue.
pub(super) fn channel(line: watch::Receiver<Option<Client>>) -> (Changes, mpsc::Receiver<Asked>) {
    let (queue, asked) = mpsc::channel(QUEUE);
    (Changes { queue, line }, asked)
}

impl Changes {
    /// Changes the namespaces, and returns those there are then.
    ///
    /// # Errors
    ///
    /// They are as they were; the failure says why.
    pub async fn make(&self, change: Change) -> Result<Vec<String>, Failure> {
        if self.line.borrow().is_none() {
            return Err(away());
        }
        let (reply, came) = oneshot::channel();
        let asked = Asked { change, reply };
        self.queue.try_send(asked).map_err(|_| {
            let text = "other changes of namespaces are under way";
            Failure::message(Exit::Busy, text).with_hint("try again")
        })?;
        came.await.unwrap_or_else(|_| Err(away()))
    }
}

/// Says to those who wait that nobody is there to ask.
pub(super) fn refuse_waiting(asked: &mut mpsc::Receiver<Asked>) {
    while let Ok(Asked { reply, .. }) = asked.try_recv() {
        // Whoever asked may have given up.
        let _ = reply.send(Err(away()));
    }
}

fn away() -> Failure {
    Failure::message(Exit::Unreachable, "the manager is out of reach")
        .with_hint("kubebridge status says since when and why")
}

/// Says why a session cannot have the namespaces asked for.
pub(super) fn refused(error: OpenError) -> Failure {
    match error {
        OpenError::Lacking(lacking) => lacking.into(),
        OpenError::Tokens(error) => match error.downcast::<Problem>() {
            Ok(problem) => problem.into(),
            Err(error) => Failure::new(Exit::Privilege, error),
        },
        OpenError::Refused(status) => {
            let exit = match status.code() {
                tonic::Code::InvalidArgument => Exit::Usage,
                tonic::Code::PermissionDenied | tonic::Code::Unauthenticated => Exit::Privilege,
                _ => Exit::Unreachable,
            };
            Failure::message(exit, status.message().to_owned())
                .context("the manager refused")
                .with_hint("ask whoever runs the manager for the namespaces you may use")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    fn lacking(namespace: &str, lasting: bool) -> Lacking {
        Lacking {
            namespace: namespace.to_owned(),
            why: format!("no right to {namespace}"),
            help: None,
            exit: Exit::Privilege,
            lasting,
        }
    }

    #[test]
    fn a_change_puts_the_own_namespace_first_and_leaves_the_others_in_order() {
        let change = |name: &str| name.to_owned();
        let table = [
            (Change::Use(change("c")), &["c", "a", "b"][..]),
            (Change::Use(change("a")), &["a", "b"]),
            (Change::Use(change("b")), &["b", "a"]),
            (Change::Add(change("c")), &["a", "b", "c"]),
            (Change::Add(change("b")), &["a", "b"]),
            (Change::Remove(change("b")), &["a"]),
            (Change::Remove(change("c")), &["a", "b"]),
        ];
        for (change, wanted) in table {
            let got = change.apply(&names(&["a", "b"])).unwrap();
            assert_eq!(got, names(wanted), "{change:?}");
        }
    }

    #[test]
    fn the_own_namespace_is_not_removed_and_it_is_said_what_to_do() {
        let remove = Change::Remove("a".to_owned());
        let failure = remove.apply(&names(&["a", "b"])).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.hint.unwrap().contains("namespace use b"));
        assert!(remove.apply(&names(&["a"])).is_err());
    }

    #[test]
    fn what_lastingly_lacks_a_token_is_lost_and_the_others_are_held() {
        let tokens = |lacking: &[Lacking]| Tokens {
            made: Vec::new(),
            lacking: lacking.to_vec(),
        };
        let all = names(&["a", "b"]);
        let some = Namespaces::with(all.clone(), &tokens(&[lacking("a", true)])).unwrap();
        assert_eq!((some.held(), some.wanted()), (names(&["b"]), &all[..]));
        assert_eq!(some.lost()["a"].why, "no right to a");

        let passing = Namespaces::with(all.clone(), &tokens(&[lacking("b", false)]));
        assert_eq!(passing.unwrap_err().namespace, "b");
        let none = tokens(&[lacking("a", true), lacking("b", true)]);
        assert_eq!(Namespaces::with(all, &none).unwrap_err().namespace, "a");
    }
}
