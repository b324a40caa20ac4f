//! What applying would change, as people read it: a unified diff of YAML. Pure.

use serde_json::Value;
use similar::TextDiff;

use super::object::Identity;

/// What the API server keeps about every object, and no manifest says.
const KEPT: [&str; 6] = [
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
];

/// Shows how an object differs from what it would become; empty when it does not.
///
/// # Errors
///
/// An object cannot be written as YAML.
pub fn difference(
    identity: &Identity,
    before: Option<&Value>,
    after: Option<&Value>,
) -> anyhow::Result<String> {
    let (old, new) = (text(before)?, text(after)?);
    let name = |object: Option<&Value>| match object {
        Some(_) => identity.to_string(),
        None => "/dev/null".to_owned(),
    };
    Ok(TextDiff::from_lines(old.as_str(), new.as_str())
        .unified_diff()
        .context_radius(3)
        .header(&name(before), &name(after))
        .to_string())
}

/// Whether there is a difference that a manifest could make.
#[must_use]
pub fn is_same(before: &Value, after: &Value) -> bool {
    stripped(before) == stripped(after)
}

fn text(object: Option<&Value>) -> anyhow::Result<String> {
    match object {
        Some(object) => Ok(serde_saphyr::to_string(&stripped(object))?),
        None => Ok(String::new()),
    }
}

fn stripped(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for name in KEPT {
            metadata.remove(name);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::install::object::Object;

    fn role(verbs: &[&str], version: &str) -> Value {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "user", "namespace": "shop", "resourceVersion": version},
            "rules": [{"resources": ["pods"], "verbs": verbs}],
        })
    }

    fn shown(before: Option<&Value>, after: Option<&Value>) -> String {
        let object = Object::read(role(&[], "1")).unwrap();
        difference(&object.identity, before, after).unwrap()
    }

    #[test]
    fn a_difference_shows_the_lines_that_change_and_not_what_the_server_counts() {
        let (old, new) = (role(&["list"], "1"), role(&["list", "watch"], "2"));
        let text = shown(Some(&old), Some(&new));
        assert!(
            text.starts_with("--- Role shop/user\n+++ Role shop/user\n@@ "),
            "{text}"
        );
        let changed: Vec<_> = text
            .lines()
            .skip(2)
            .filter(|line| line.starts_with(['+', '-']))
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(changed, ["+ - watch"]);
        assert!(!text.contains("resourceVersion"));
    }

    #[test]
    fn nothing_is_shown_where_nothing_changes() {
        assert_eq!(shown(Some(&role(&[], "1")), Some(&role(&[], "2"))), "");
        assert!(is_same(&role(&[], "1"), &role(&[], "2")));
    }

    #[test]
    fn what_is_new_and_what_goes_are_shown_whole() {
        let object = role(&["list"], "1");
        let (new, gone) = (shown(None, Some(&object)), shown(Some(&object), None));
        assert!(
            new.starts_with("--- /dev/null\n+++ Role shop/user\n"),
            "{new}"
        );
        assert!(
            gone.starts_with("--- Role shop/user\n+++ /dev/null\n"),
            "{gone}"
        );
        assert_eq!(new.lines().count(), gone.lines().count());
    }
}
