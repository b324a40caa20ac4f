//! The Kubernetes API of the lab: etcd and kube-apiserver, with kubectl as the way to change it.
//!
//! No controllers and no nodes: Services exist, endpoints are applied by hand.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::{daemon::Daemon, machine::Machine, parts::Parts};

const START: Duration = Duration::from_secs(90);

/// The tokens of the lab's users; ServiceAccounts get theirs from the API.
const TOKENS: &str = "admin-token,admin,admin,system:masters\ncoredns-token,coredns,coredns\n";

/// What CoreDNS may do, as its own manifests give it.
const COREDNS_ROLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: coredns}
rules:
- {apiGroups: [''], resources: [services, endpoints, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: coredns}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: coredns}
";

/// The running API.
#[derive(Debug)]
pub struct ControlPlane {
    folder: PathBuf,
    address: String,
    kubectl: PathBuf,
    api: Daemon,
    #[expect(
        dead_code,
        reason = "kept so that its log is shown and it ends with the lab"
    )]
    etcd: Daemon,
}

impl ControlPlane {
    /// Starts both servers in `machine`, whose outside address is `address`, and waits for them.
    pub fn start(parts: &Parts, folder: &Path, machine: &Machine, address: &str) -> Result<Self> {
        make_keys(machine, folder, address)?;
        let logs = folder.join("logs");
        let mut command = machine.command(parts.path("ETCD")?);
        command
            .args([
                "--unsafe-no-fsync",
                "--data-dir=/run/etcd",
                "--log-level=warn",
            ])
            .args(["--listen-client-urls=http://127.0.0.1:2379"])
            .args(["--advertise-client-urls=http://127.0.0.1:2379"])
            .args(["--listen-peer-urls=http://127.0.0.1:2380"]);
        let etcd = Daemon::start("etcd", &logs, command)?;
        let api = Daemon::start(
            "kube-apiserver",
            &logs,
            api_command(parts, folder, machine, address)?,
        )?;
        let plane = Self {
            folder: folder.to_owned(),
            address: address.to_owned(),
            kubectl: parts.path("KUBECTL")?.to_owned(),
            api,
            etcd,
        };
        plane.write_kubeconfig("admin", "admin-token")?;
        plane.write_kubeconfig("coredns", "coredns-token")?;
        plane.api.until("the Kubernetes API", START, || {
            plane.kubectl(machine, &["get", "--raw=/readyz"])
        })?;
        plane.apply(machine, COREDNS_ROLE)?;
        Ok(plane)
    }

    /// Runs kubectl as the administrator, which must succeed, and gives what it printed.
    pub fn kubectl(&self, machine: &Machine, words: &[&str]) -> Result<String> {
        let said = self.kubectl_run_as(machine, "admin", words)?;
        ensure!(
            said.status.success(),
            "kubectl {words:?}: {}",
            String::from_utf8_lossy(&said.stderr)
        );
        Ok(String::from_utf8(said.stdout)?)
    }

    /// Runs kubectl with the kubeconfig of `user` to its end, which may be a failure.
    pub fn kubectl_run_as(&self, machine: &Machine, user: &str, words: &[&str]) -> Result<Output> {
        let kubectl = self.kubectl.display().to_string();
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig(user).display());
        // Discovery is kept in the lab's folder, not in the home of who runs the tests.
        let cache = format!(
            "--cache-dir={}",
            self.folder.join("kubectl-cache").display()
        );
        let mut all = vec![
            kubectl.as_str(),
            &kubeconfig,
            &cache,
            "--request-timeout=20s",
        ];
        all.extend_from_slice(words);
        machine.run(&all)
    }

    /// Applies manifests.
    pub fn apply(&self, machine: &Machine, manifests: &str) -> Result<()> {
        let mut applying = machine
            .command("timeout")
            .args(["-s", "KILL", "40"])
            .arg(&self.kubectl)
            .arg("--kubeconfig")
            .arg(self.kubeconfig("admin"))
            .arg("--cache-dir")
            .arg(self.folder.join("kubectl-cache"))
            .args(["apply", "--validate=ignore", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        applying
            .stdin
            .take()
            .context("kubectl has no input")?
            .write_all(manifests.as_bytes())?;
        let applied = applying.wait_with_output()?;
        ensure!(
            applied.status.success(),
            "kubectl apply: {}",
            String::from_utf8_lossy(&applied.stderr)
        );
        Ok(())
    }

    /// Makes a ServiceAccount that may list and watch Services in `namespaces` and nothing else,
    /// and writes a kubeconfig with a token of it.
    pub fn service_reader(
        &self,
        machine: &Machine,
        name: &str,
        namespaces: &[&str],
    ) -> Result<PathBuf> {
        let mut manifests = format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}, namespace: default}}\n"
        );
        for namespace in namespaces {
            manifests.push_str(&format!(
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
- {{kind: ServiceAccount, name: {name}, namespace: default}}
"
            ));
        }
        self.apply(machine, &manifests)?;
        let token = self.kubectl(machine, &["create", "token", name, "-n", "default"])?;
        self.write_kubeconfig(name, token.trim())
    }

    /// The kubeconfig of `user`.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.folder.join(format!("{user}.kubeconfig"))
    }

    fn write_kubeconfig(&self, user: &str, token: &str) -> Result<PathBuf> {
        let path = self.kubeconfig(user);
        fs::write(
            &path,
            format!(
                "apiVersion: v1
kind: Config
current-context: lab
clusters: [{{name: lab, cluster: {{server: 'https://{}:6443', certificate-authority: '{}'}}}}]
users: [{{name: {user}, user: {{token: '{token}'}}}}]
contexts: [{{name: lab, context: {{cluster: lab, user: {user}}}}}]
",
                self.address,
                self.folder.join("ca.crt").display()
            ),
        )?;
        Ok(path)
    }
}

/// Makes a certificate authority, the server's certificate and the ServiceAccount signing key.
fn make_keys(machine: &Machine, folder: &Path, address: &str) -> Result<()> {
    fs::write(folder.join("tokens.csv"), TOKENS)?;
    machine.shell(&format!(
        "cd {folder}
exec 2>openssl.log
new() {{ openssl ecparam -name prime256v1 -genkey -noout -out $1.key; }}
new ca; new api; new accounts
openssl req -x509 -new -key ca.key -subj /CN=lab-ca -days 30 -out ca.crt
openssl req -new -key api.key -subj /CN=kube-apiserver -out api.csr
printf 'subjectAltName=IP:{address},IP:127.0.0.1,IP:10.96.0.1' >api.ext
openssl x509 -req -in api.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 \
  -extfile api.ext -out api.crt",
        folder = folder.display()
    ))?;
    Ok(())
}

fn api_command(
    parts: &Parts,
    folder: &Path,
    machine: &Machine,
    address: &str,
) -> Result<std::process::Command> {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut command = machine.command(parts.path("KUBE_APISERVER")?);
    command
        .args(["--etcd-servers=http://127.0.0.1:2379", "--secure-port=6443"])
        .arg(format!("--bind-address={address}"))
        .arg(format!("--advertise-address={address}"))
        .arg(format!("--tls-cert-file={}", file("api.crt")))
        .arg(format!("--tls-private-key-file={}", file("api.key")))
        .arg(format!("--client-ca-file={}", file("ca.crt")))
        .arg(format!("--token-auth-file={}", file("tokens.csv")))
        .arg(format!("--service-account-key-file={}", file("accounts.key")))
        .arg(format!("--service-account-signing-key-file={}", file("accounts.key")))
        .arg("--service-account-issuer=https://lab.example")
        .arg(format!("--cert-dir={}", file("certs")))
        .args(["--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16"])
        // No controllers here that would make the tokens this plugin wants.
        .args(["--disable-admission-plugins=ServiceAccount", "--profiling=false"]);
    Ok(command)
}
