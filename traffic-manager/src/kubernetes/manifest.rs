//! Kubernetes manifests (YAML or JSON, several documents) → routes. Pure: text in, routes out.
//!
//! Kinds other than `Service` and `List` are passed over, so that a directory's worth of
//! manifests can be given as it is.

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::core::v1::Service;
use kubebridge_proto::routes::ServiceRoute;
use serde_json::Value;

use super::service::route;

/// The namespace of a manifest that names none, as with `kubectl apply`.
const DEFAULT_NAMESPACE: &str = "default";

/// The most documents in a file, and the most values in all of them: 10,000 Services as `kubectl`
/// writes them have 1,000,000 values, and the file is the operator's own.
const MAX_DOCUMENTS: usize = 100_000;
const MAX_NODES: usize = 10_000_000;

/// Reads the Services of a manifest.
///
/// # Errors
/// When the text is no YAML, or a Service in it cannot be routed; the error names the Service.
pub fn routes(text: &str) -> Result<Vec<ServiceRoute>> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: MAX_DOCUMENTS,
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
        },
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| one_line(&error))
        .context("not a YAML or JSON document")?;
    let mut routes: Vec<ServiceRoute> = Vec::new();
    for document in documents {
        collect(document, &mut routes)?;
    }
    routes.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    for pair in routes.windows(2) {
        if pair[0].namespace == pair[1].namespace && pair[0].name == pair[1].name {
            bail!(
                "Service {}/{} is there twice",
                pair[0].namespace,
                pair[0].name
            );
        }
    }
    Ok(routes)
}

/// Leaves out the picture of the text that comes with the error.
pub(crate) fn one_line(error: &serde_saphyr::Error) -> anyhow::Error {
    let message = error.to_string();
    let line = message.lines().next().unwrap_or("unreadable");
    anyhow!(line.strip_prefix("error: ").unwrap_or(line).to_owned())
}

fn collect(document: Value, routes: &mut Vec<ServiceRoute>) -> Result<()> {
    if document.is_null() {
        return Ok(());
    }
    let kind = document.get("kind").and_then(Value::as_str);
    match kind {
        Some("Service") => routes.push(service(document)?),
        Some("List" | "ServiceList") => {
            let Some(Value::Array(items)) = document.get("items").cloned() else {
                bail!("a {} has no items", kind.unwrap_or_default());
            };
            let implied = kind == Some("ServiceList");
            for mut item in items {
                if implied && let Value::Object(fields) = &mut item {
                    fields.entry("kind").or_insert_with(|| "Service".into());
                }
                collect(item, routes)?;
            }
        }
        Some(_) => {}
        None => bail!("a document has no kind"),
    }
    Ok(())
}

fn service(document: Value) -> Result<ServiceRoute> {
    let name = document
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or("?")
        .to_owned();
    let mut service: Service =
        serde_json::from_value(document).with_context(|| format!("Service {name} is malformed"))?;
    service
        .metadata
        .namespace
        .get_or_insert_with(|| DEFAULT_NAMESPACE.to_owned());
    route(service)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "\
apiVersion: v1
kind: Service
metadata: {name: authors}
spec: {clusterIP: 10.96.0.20, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: authors}
---
apiVersion: v1
kind: List
items:
- kind: Service
  metadata: {name: authors, namespace: shop}
  spec: {clusterIP: 10.96.0.21}
- kind: Service
  metadata: {name: db}
  spec: {clusterIP: None}
---
";

    fn names(text: &str) -> Vec<String> {
        let name = |route: &ServiceRoute| format!("{}/{}", route.namespace, route.name);
        routes(text).unwrap().iter().map(name).collect()
    }

    #[test]
    fn services_and_lists_are_read_and_other_kinds_passed_over() {
        assert_eq!(
            names(TWO),
            ["default/authors", "default/db", "shop/authors"]
        );
    }

    #[test]
    fn json_is_read_too() {
        let list = r#"{"kind":"ServiceList","items":[
            {"metadata":{"name":"a"},"spec":{"clusterIP":"10.0.0.1"}}]}"#;
        assert_eq!(names(list), ["default/a"]);
    }

    #[test]
    fn an_empty_file_has_no_services() {
        for text in ["", "---\n", "# only a comment\n"] {
            assert_eq!(names(text), [""; 0], "{text:?}");
        }
    }

    #[test]
    fn more_documents_than_the_parser_takes_by_default_are_read() {
        let document = |number: u32| {
            format!(
                "---\nkind: Service\nmetadata: {{name: s{number}}}\nspec: {{clusterIP: 10.0.0.1}}\n"
            )
        };
        let text: String = (0..1100).map(document).collect();
        assert_eq!(routes(&text).unwrap().len(), 1100);
    }

    #[test]
    fn errors_name_the_service() {
        let head = "kind: Service\nmetadata: {name: authors}\n";
        for (text, expected) in [
            (
                format!("{head}spec: {{}}\n"),
                "Service default/authors has no spec.clusterIP",
            ),
            (
                format!("{head}spec: {{ports: 7}}\n"),
                "Service authors is malformed",
            ),
            (
                format!("{head}spec: {{clusterIP: 10.0.0.1}}\n")
                    .repeat(2)
                    .replacen("}\nkind", "}\n---\nkind", 2),
                "Service default/authors is there twice",
            ),
            ("a: 1\n".to_owned(), "a document has no kind"),
            ("a: [\n".to_owned(), "not a YAML or JSON document"),
        ] {
            assert_eq!(routes(&text).unwrap_err().to_string(), expected, "{text}");
        }
    }
}
