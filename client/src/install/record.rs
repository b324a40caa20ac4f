//! What is kept in the cluster about an installation: its settings, and every object that was
//! applied. Pure.
//!
//! It says what may be removed: nothing that is not in it ever is. While objects are being changed
//! it holds those of before and those to come.

use anyhow::{Context, Result, bail};
use kubebridge_proto::names::parse_version;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::manifests::{MANAGED_BY, labels};
use super::object::{Identity, Object};
use super::settings::{HOME, Settings};

/// The name of the ConfigMap.
pub const NAME: &str = "kubebridge-install";

/// The form of what is kept.
const FORM: &str = "kubebridge.install/v1";

/// An object that was applied, or is about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What it is.
    #[serde(flatten)]
    pub identity: Identity,
    /// Which one of that name, once it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// The record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    form: String,
    /// Which version of the program wrote it.
    pub version: String,
    /// What was chosen.
    pub settings: Settings,
    /// The objects, in the order they are applied in.
    pub objects: Vec<Entry>,
    /// Which state of the ConfigMap was read: writing it fails when it is another by then.
    #[serde(skip)]
    state: Option<String>,
}

impl Record {
    /// Makes the record of an installation by this version.
    #[must_use]
    pub fn new(settings: Settings, objects: Vec<Entry>) -> Self {
        Self {
            form: FORM.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings,
            objects,
            state: None,
        }
    }

    /// The same, to be written only in the place of the one that was read.
    #[must_use]
    pub fn after(self, read: Option<&Self>) -> Self {
        Self {
            state: read.and_then(|read| read.state.clone()),
            ..self
        }
    }

    /// Whether a newer version than `program` has written it.
    #[must_use]
    pub fn is_newer_than(&self, program: &str) -> bool {
        let read = |text: &str| parse_version("version", text).ok();
        read(&self.version) > read(program)
    }

    /// Says where the record is.
    #[must_use]
    pub fn identity() -> Identity {
        Identity {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: Some(HOME.to_owned()),
            name: NAME.to_owned(),
        }
    }

    /// Reads the ConfigMap.
    ///
    /// # Errors
    ///
    /// Somebody has written there what is no record, or a newer version has.
    pub fn read(config_map: &Value) -> Result<Self> {
        let text = config_map["data"]["record"].as_str();
        let about = || format!("ConfigMap {HOME}/{NAME}");
        let value: Value = text
            .context("it has no record")
            .and_then(|text| Ok(serde_json::from_str(text)?))
            .with_context(about)?;
        if value["form"] != FORM {
            bail!(
                "{} is of the form {}, and this version knows {FORM}: use a newer kubebridge",
                about(),
                value["form"]
            );
        }
        let read: Self = serde_json::from_value(value).with_context(about)?;
        let state = config_map["metadata"]["resourceVersion"].as_str();
        Ok(Self {
            state: state.map(str::to_owned),
            ..read
        })
    }

    /// Writes the ConfigMap.
    ///
    /// # Errors
    ///
    /// It cannot be written as JSON.
    pub fn object(&self) -> Result<Object> {
        let mut metadata = json!({ "name": NAME, "namespace": HOME, "labels": labels() });
        metadata["labels"][MANAGED_BY] = super::owner::FIELD_MANAGER.into();
        if let Some(state) = &self.state {
            metadata["resourceVersion"] = state.as_str().into();
        }
        let body = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": { "record": serde_json::to_string_pretty(self)? },
        });
        Object::read(body).context("the record has no name")
    }

    /// The entries that another set of objects does not have.
    pub fn without<'a>(&'a self, kept: &'a [Identity]) -> impl Iterator<Item = &'a Entry> {
        let is_gone = |entry: &&Entry| !kept.contains(&entry.identity);
        self.objects.iter().filter(is_gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::settings::{Lists, Wishes};

    fn record(names: &[&str]) -> Record {
        let settings = Wishes::default()
            .complete(None, Lists::Add, "shop", Some("registry.example/m:1"))
            .unwrap();
        let entry = |name: &&str| Entry {
            identity: Identity {
                name: (*name).to_owned(),
                ..Record::identity()
            },
            uid: Some("1".to_owned()),
        };
        Record::new(settings, names.iter().map(entry).collect())
    }

    #[test]
    fn what_is_written_is_read_back() {
        let record = record(&["a", "b"]);
        let object = record.object().unwrap();
        assert_eq!(object.identity, Record::identity());
        assert_eq!(Record::read(&object.body).unwrap(), record);
    }

    #[test]
    fn what_is_no_record_or_a_newer_one_is_refused() {
        let error = |body: &Value| format!("{:#}", Record::read(body).unwrap_err());
        assert!(error(&json!({})).contains("ConfigMap kubebridge/kubebridge-install"));
        assert!(error(&json!({"data": {"record": "{"}})).contains("kubebridge-install"));
        let newer = json!({"data": {"record": "{\"form\": \"kubebridge.install/v2\"}"}});
        assert!(error(&newer).contains("use a newer kubebridge"));
    }

    #[test]
    fn install_a_record_is_written_in_the_place_of_the_one_that_was_read_alone() {
        let mut there = record(&["a"]).object().unwrap().body;
        there["metadata"]["resourceVersion"] = "7".into();
        let read = Record::read(&there).unwrap();

        let state =
            |record: Record| record.object().unwrap().body["metadata"]["resourceVersion"].clone();
        assert_eq!(state(record(&["b"]).after(Some(&read))), "7");
        assert_eq!(state(record(&["b"]).after(None)), Value::Null);
    }

    #[test]
    fn install_a_record_of_a_newer_version_is_known() {
        let mut of = record(&[]);
        for (version, is_newer) in [
            ("0.9.0", false),
            ("1.2.0", false),
            ("1.2.1", true),
            ("1.10.0", true),
        ] {
            version.clone_into(&mut of.version);
            assert_eq!(of.is_newer_than("1.2.0"), is_newer, "{version}");
        }
    }

    #[test]
    fn what_a_new_set_leaves_out_is_known() {
        let old = record(&["a", "b", "c"]);
        let kept: Vec<_> = record(&["c", "a"])
            .objects
            .into_iter()
            .map(|entry| entry.identity)
            .collect();
        let names: Vec<_> = old
            .without(&kept)
            .map(|entry| entry.identity.name.as_str())
            .collect();
        assert_eq!(names, ["b"]);
    }
}
