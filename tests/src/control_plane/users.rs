//! Who uses the Kubernetes API: `ServiceAccounts` with rights and tokens, and their kubeconfigs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;

use super::ControlPlane;
use crate::machine::Machine;

/// The namespace of the accounts, which no test removes.
const HOME: &str = "default";

/// The account whose tokens give a session its namespace.
pub const ACCESS: &str = "kubebridge-access";

/// Who these tokens are for.
pub const AUDIENCE: &str = "kubebridge";

impl ControlPlane {
    /// Makes a `ServiceAccount` that may list and watch Services in `namespaces` and nothing
    /// else, and writes a kubeconfig that names a file with a token of it, as a pod has one.
    pub fn service_reader(
        &self,
        machine: &Machine,
        name: &str,
        namespaces: &[&str],
    ) -> Result<PathBuf> {
        let mut manifests = account(name);
        for namespace in namespaces {
            manifests.push_str(&role(name, namespace));
        }
        self.apply(machine, &manifests)?;
        self.with_token(machine, name)
    }

    /// As [`service_reader`](Self::service_reader), for all namespaces there are and will be.
    pub fn reader_of_all(&self, machine: &Machine, name: &str) -> Result<PathBuf> {
        let rights = format!(
            "---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {name}}}
rules:
- {{apiGroups: [''], resources: [services, namespaces], verbs: [list, watch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {name}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {name}}}
subjects:
- {{kind: ServiceAccount, name: {name}, namespace: {HOME}}}
"
        );
        self.apply(machine, &(account(name) + &rights))?;
        self.with_token(machine, name)
    }

    /// Replaces the token in the file of `user` by one of the account `successor`, and removes
    /// the account it was of: the old token is worth nothing from then on.
    pub fn rotate_token(
        &self,
        machine: &Machine,
        user: &str,
        successor: &str,
        namespaces: &[&str],
    ) -> Result<()> {
        self.service_reader(machine, successor, namespaces)?;
        // As the kubelet does it: a new file in the place of the old one.
        fs::rename(self.token(successor), self.token(user))?;
        self.kubectl(machine, &["delete", "serviceaccount", user, "-n", HOME])?;
        Ok(())
    }

    /// Files with tokens that give sessions these namespaces: of the ServiceAccount
    /// `kubebridge-access` in each, made by TokenRequest when there is none yet.
    pub fn access_tokens(
        &self,
        machine: &Machine,
        namespaces: &[&str],
    ) -> Result<Vec<(String, PathBuf)>> {
        let file = |namespace: &str| self.token(&format!("access-{namespace}"));
        let missing = |namespace: &&&str| !file(namespace).exists();
        let missing: Vec<_> = namespaces.iter().filter(missing).collect();
        if !missing.is_empty() {
            let missing: Vec<&str> = missing.iter().map(|name| **name).collect();
            self.access_accounts(machine, &missing)?;
        }
        for namespace in missing {
            let token = self.token_of(machine, namespace, ACCESS, AUDIENCE)?;
            fs::write(file(namespace), token)?;
        }
        let each = |namespace: &&str| ((*namespace).to_owned(), file(namespace));
        Ok(namespaces.iter().map(each).collect())
    }

    /// Makes the ServiceAccount `kubebridge-access` in each of these namespaces.
    pub fn access_accounts(&self, machine: &Machine, namespaces: &[&str]) -> Result<()> {
        let accounts = namespaces.iter().map(|name| account_in(ACCESS, name));
        self.apply(machine, &accounts.collect::<Vec<_>>().join("---\n"))
    }

    /// Forgets the tokens of [`access_tokens`](Self::access_tokens), so that others are made.
    pub fn forget_access_tokens(&self, namespaces: &[&str]) -> Result<()> {
        for namespace in namespaces {
            fs::remove_file(self.token(&format!("access-{namespace}")))?;
        }
        Ok(())
    }

    /// Makes a token of a ServiceAccount by TokenRequest.
    pub fn token_of(
        &self,
        machine: &Machine,
        namespace: &str,
        account: &str,
        audience: &str,
    ) -> Result<String> {
        let words = ["create", "token", account, "-n", namespace];
        let audience = ["--audience", audience, "--duration", "1h"];
        let token = self.kubectl(machine, &[&words[..], &audience].concat())?;
        Ok(token.trim().to_owned())
    }

    /// Takes the right to read the Services of `namespace` from the account `name`.
    pub fn withdraw(&self, machine: &Machine, name: &str, namespace: &str) -> Result<()> {
        self.kubectl(machine, &["delete", "rolebinding", name, "-n", namespace])?;
        Ok(())
    }

    /// Gives the account `name` the right to read the Services of `namespace`.
    pub fn grant(&self, machine: &Machine, name: &str, namespace: &str) -> Result<()> {
        self.apply(machine, &role(name, namespace))
    }

    /// The kubeconfig of `user`.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.folder.join(format!("{user}.kubeconfig"))
    }

    fn token(&self, user: &str) -> PathBuf {
        self.folder.join(format!("{user}.token"))
    }

    fn with_token(&self, machine: &Machine, name: &str) -> Result<PathBuf> {
        let token = self.kubectl(machine, &["create", "token", name, "-n", HOME])?;
        let file = self.token(name);
        fs::write(&file, token.trim())?;
        self.write_kubeconfig(name, &format!("tokenFile: '{}'", file.display()))
    }

    /// Writes the kubeconfig of `user`, who proves himself by `credential`.
    pub fn write_kubeconfig(&self, user: &str, credential: &str) -> Result<PathBuf> {
        let path = self.kubeconfig(user);
        fs::write(
            &path,
            kubeconfig(
                &super::api_host(self.families),
                &self.folder,
                user,
                credential,
            ),
        )?;
        Ok(path)
    }
}

fn kubeconfig(host: &str, folder: &Path, user: &str, credential: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
current-context: lab
clusters: [{{name: lab, cluster: {{server: 'https://{host}:6443', certificate-authority: '{}'}}}}]
users: [{{name: {user}, user: {{{credential}}}}}]
contexts: [{{name: lab, context: {{cluster: lab, user: {user}}}}}]
",
        folder.join("ca.crt").display()
    )
}

fn account(name: &str) -> String {
    account_in(name, HOME)
}

fn account_in(name: &str, namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}, namespace: {namespace}}}\n"
    )
}

fn role(name: &str, namespace: &str) -> String {
    format!(
        "---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: {name}, namespace: {namespace}}}
rules:
- {{apiGroups: [''], resources: [services], verbs: [list, watch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: {name}, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {name}}}
subjects:
- {{kind: ServiceAccount, name: {name}, namespace: {HOME}}}
"
    )
}
