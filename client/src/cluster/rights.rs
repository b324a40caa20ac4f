//! Which of the rights that something needs are missing, asked after it was forbidden.
//!
//! The API server itself is asked for each right, so that what is named is exact whatever the
//! version checks; only where it does not answer do its words of refusal stand for themselves.

use std::borrow::Cow;

use futures::StreamExt;
use futures::stream;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

use super::{ACCOUNT, HOME};
use crate::install::object::Identity;

/// Questions under way at once: enough to hide round trips, few enough for an API server's limits.
const AT_ONCE: usize = 8;

/// One right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Right {
    /// `None` is the whole cluster.
    namespace: Option<String>,
    group: Cow<'static, str>,
    resource: Cow<'static, str>,
    subresource: Option<&'static str>,
    pub(super) verb: &'static str,
    /// Only of this object, where the right may be given for it alone.
    name: Option<&'static str>,
}

impl Right {
    fn new(verb: &'static str, resource: &'static str, namespace: String) -> Self {
        Self {
            namespace: Some(namespace),
            group: "".into(),
            resource: resource.into(),
            subresource: None,
            verb,
            name: None,
        }
    }

    /// The right to do something with objects like this one, where it is.
    pub(super) fn on(verb: &'static str, identity: &Identity) -> Self {
        Self {
            namespace: identity.namespace.clone(),
            group: identity.group().to_owned().into(),
            resource: identity.resource().into(),
            subresource: None,
            verb,
            name: None,
        }
    }

    /// `RESOURCE[.GROUP][/SUBRESOURCE]`.
    fn target(&self) -> String {
        let mut target = self.resource.clone().into_owned();
        if !self.group.is_empty() {
            target = format!("{target}.{}", self.group);
        }
        match self.subresource {
            Some(subresource) => format!("{target}/{subresource}"),
            None => target,
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
    let asked: Vec<_> = rights.iter().map(|right| has(client, right)).collect();
    let answers: Vec<_> = stream::iter(asked).buffered(AT_ONCE).collect().await;
    let mut missing = Vec::new();
    for (right, has) in rights.iter().zip(answers) {
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
                group: Some(right.group.clone().into_owned()),
                resource: Some(right.resource.clone().into_owned()),
                subresource: right.subresource.map(str::to_owned),
                namespace: right.namespace.clone(),
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
            match namespace {
                Some(namespace) => format!("{} in namespace {namespace}", rights.join(", ")),
                None => format!("{} in the whole cluster", rights.join(", ")),
            }
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
            let kind = match namespace {
                Some(namespace) => format!("Role in namespace {namespace}"),
                None => "ClusterRole".to_owned(),
            };
            format!("a {kind} with rules: [{}]", rules.join(", "))
        })
        .collect::<Vec<_>>()
        .join("; ")
}

fn rule(right: &Right) -> String {
    let name = right
        .name
        .map_or_else(String::new, |name| format!(", resourceNames: [{name}]"));
    let resource = match right.subresource {
        Some(subresource) => format!("{}/{subresource}", right.resource),
        None => right.resource.clone().into_owned(),
    };
    format!(
        "{{apiGroups: ['{}'], resources: [{resource}], verbs: [{}]{name}}}",
        right.group, right.verb
    )
}

fn grouped(rights: &[Right]) -> Vec<(Option<&str>, Vec<&Right>)> {
    let mut groups: Vec<(Option<&str>, Vec<&Right>)> = Vec::new();
    for right in rights {
        let namespace = right.namespace.as_deref();
        match groups.iter_mut().find(|(name, _)| *name == namespace) {
            Some((_, group)) => group.push(right),
            None => groups.push((namespace, vec![right])),
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
    #[test]
    fn rights_to_other_apis_and_to_the_whole_cluster_are_named_with_both() {
        let on = |verb, kind: &str, namespace: Option<&str>| {
            let identity = Identity {
                api_version: "rbac.authorization.k8s.io/v1".to_owned(),
                kind: kind.to_owned(),
                namespace: namespace.map(str::to_owned),
                name: "x".to_owned(),
            };
            Right::on(verb, &identity)
        };
        let rights = [
            on("patch", "Role", Some("shop")),
            on("create", "ClusterRole", None),
        ];
        assert_eq!(
            words(&rights),
            "patch roles.rbac.authorization.k8s.io in namespace shop; \
             create clusterroles.rbac.authorization.k8s.io in the whole cluster"
        );
        assert_eq!(
            role(&rights[1..]),
            "a ClusterRole with rules: [{apiGroups: ['rbac.authorization.k8s.io'], \
             resources: [clusterroles], verbs: [create]}]"
        );
    }
}
