//! What people and programs are told about objects that changed.

use serde::Serialize;
use serde_json::{Value, json};

use super::difference::difference;
use super::object::{Identity, Object};
use crate::cli::Output;
use crate::failure::Failure;
use crate::output::{print, print_line};
use crate::progress::Reporter;
use std::time::Duration;

/// What became of an object, or would.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Created,
    Changed,
    Unchanged,
    Removed,
    Left,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Removed => "removed",
            Self::Left => "left",
        }
    }
}

/// One object's change.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    #[serde(flatten)]
    identity: Identity,
    pub(super) change: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip)]
    before: Option<Value>,
    #[serde(skip)]
    after: Option<Value>,
}

impl Change {
    pub(super) fn new(
        identity: &Identity,
        change: Kind,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> Self {
        Self {
            identity: identity.clone(),
            change,
            reason: None,
            before: before.cloned(),
            after: after.cloned(),
        }
    }

    /// The change of an object that stays though it was to go.
    pub(super) fn left(identity: &Identity, reason: String) -> Self {
        Self {
            reason: Some(reason),
            ..Self::new(identity, Kind::Left, None, None)
        }
    }

    fn difference(&self) -> Result<String, Failure> {
        if matches!(self.change, Kind::Unchanged | Kind::Left) {
            return Ok(String::new());
        }
        let text = difference(&self.identity, self.before.as_ref(), self.after.as_ref());
        Ok(text?)
    }
}

/// Prints what would change.
pub(super) fn dry_run(changes: &[Change], output: Output) -> Result<(), Failure> {
    match output {
        Output::Text => {
            for change in changes {
                print(&change.difference()?);
                if let Some(reason) = &change.reason {
                    print_line(&format!("# left: {}: {reason}", change.identity));
                }
            }
        }
        Output::Json => {
            let mut items = Vec::new();
            for change in changes {
                let mut item = serde_json::to_value(change).map_err(anyhow::Error::from)?;
                item["diff"] = change.difference()?.into();
                items.push(item);
            }
            print_line(&document(json!(items), true));
        }
    }
    Ok(())
}

/// Tells what has changed.
pub(super) fn done(changes: &[Change], reporter: &Reporter, output: Output) -> Result<(), Failure> {
    for change in changes {
        let word = change.change.word();
        let detail = match &change.reason {
            Some(reason) => format!("{word}: {reason}"),
            None => word.to_owned(),
        };
        reporter.step(&change.identity.to_string(), &detail, Duration::ZERO);
    }
    if output == Output::Json {
        let items = serde_json::to_value(changes).map_err(anyhow::Error::from)?;
        print_line(&document(items, false));
    }
    Ok(())
}

fn document(objects: Value, dry_run: bool) -> String {
    json!({ "schema": "kubebridge.install/v1", "dry_run": dry_run, "objects": objects }).to_string()
}

/// The manifests as one object of kind List, as `kubectl apply` takes it.
pub(super) fn list(objects: &[Object]) -> Result<String, Failure> {
    let items: Vec<_> = objects.iter().map(|object| &object.body).collect();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    Ok(serde_json::to_string_pretty(&list).map_err(anyhow::Error::from)?)
}
