//! Which of the rights that `connect` needs are missing, asked after something was forbidden.
//!
//! The API server itself is asked for each right, so that what is named is exact whatever the
//! version checks; only where it does not answer do its words of refusal stand for themselves.

use futures::future::join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

use super::{ACCOUNT, HOME};

/// One right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Right {
    pub(super) verb: &'static str,
    resource: &'static str,
    subresource: Option<&'static str>,
    namespace: String,
    /// Only of this object, where the right may be given for it alone.
    name: Option<&'static str>,
}

impl Right {
    const fn new(verb: &'static str, resource: &'static str, namespace: String) -> Self {
        Self {
            verb,
            resource,
            subresource: None,
            namespace,
            name: None,
        }
    }

    /// `RESOURCE[/SUBRESOURCE]`.
    fn target(&self) -> String {
        match self.subresource {
            Some(subresource) => format!("{}/{subresource}", self.resource),
            None => self.resource.to_owned(),
        }
    }
}

/// What reaching the manager needs. Of `get` and `create` on port-forwards the API server checks
/// one or the other or both, by its version and by how it is asked.
pub(super) fn of_reach() -> Vec<Right> {
    let home = || HOME.to_owned();
    let forward = |verb| Right {
        subresource: Some("portforward"),
        ..Right::new(verb, "pods", home())
    };
    vec![
        Right::new("list", "pods", home()),
        forward("get"),
        forward("create"),
    ]
}

/// What a token for a namespace needs.
pub(super) fn of_token(namespace: &str) -> Right {
    Right {
        subresource: Some("token"),
        name: Some(ACCOUNT),
        ..Right::new("create", "serviceaccounts", namespace.to_owned())
    }
}

/// Asks which of `rights` the user does not have; `None` when that is not answered.
pub(super) async fn missing(client: &Client, rights: &[Right]) -> Option<Vec<Right>> {
    let asked = rights.iter().map(|right| has(client, right));
    let mut missing = Vec::new();
    for (right, has) in rights.iter().zip(join_all(asked).await) {
        if !has? {
            missing.push(right.clone());
        }
    }
    Some(missing)
}

async fn has(client: &Client, right: &Right) -> Option<bool> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some(right.verb.to_owned()),
                group: Some(String::new()),
                resource: Some(right.resource.to_owned()),
                subresource: right.subresource.map(str::to_owned),
                namespace: Some(right.namespace.clone()),
                name: right.name.map(str::to_owned),
                ..ResourceAttributes::default()
            }),
            non_resource_attributes: None,
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await.ok()?;
    Some(answer.status?.allowed)
}

/// Names rights in a sentence: `get pods/portforward, list pods in namespace kubebridge`.
pub(super) fn words(rights: &[Right]) -> String {
    grouped(rights)
        .iter()
        .map(|(namespace, rights)| {
            let rights: Vec<_> = rights
                .iter()
                .map(|right| format!("{} {}", right.verb, right.target()))
                .collect();
            format!("{} in namespace {namespace}", rights.join(", "))
        })
        .collect::<Vec<_>>()
        .join("; ")
}

/// The rules of a Role that give the rights, as YAML on one line.
pub(super) fn role(rights: &[Right]) -> String {
    grouped(rights)
        .iter()
        .map(|(namespace, rights)| {
            let rules: Vec<_> = rights.iter().map(|right| rule(right)).collect();
            format!(
                "a Role in namespace {namespace} with rules: [{}]",
                rules.join(", ")
            )
        })
        .collect::<Vec<_>>()
        .join("; ")
}

fn rule(right: &Right) -> String {
    let name = right
        .name
        .map_or_else(String::new, |name| format!(", resourceNames: [{name}]"));
    format!(
        "{{apiGroups: [''], resources: [{}], verbs: [{}]{name}}}",
        right.target(),
        right.verb
    )
}

fn grouped(rights: &[Right]) -> Vec<(&str, Vec<&Right>)> {
    let mut groups: Vec<(&str, Vec<&Right>)> = Vec::new();
    for right in rights {
        match groups.iter_mut().find(|(name, _)| *name == right.namespace) {
            Some((_, group)) => group.push(right),
            None => groups.push((&right.namespace, vec![right])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rights_are_named_by_verb_resource_and_namespace() {
        let mut rights = of_reach();
        rights.remove(1);
        rights.push(of_token("shop"));
        assert_eq!(
            words(&rights),
            "list pods, create pods/portforward in namespace kubebridge; \
             create serviceaccounts/token in namespace shop"
        );
        assert_eq!(
            role(&rights[1..]),
            "a Role in namespace kubebridge with rules: \
             [{apiGroups: [''], resources: [pods/portforward], verbs: [create]}]; \
             a Role in namespace shop with rules: \
             [{apiGroups: [''], resources: [serviceaccounts/token], verbs: [create], \
             resourceNames: [kubebridge-access]}]"
        );
    }
}
