//! The keys of the Kubernetes API: who may come in, and how the server proves who it is.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;

use super::ControlPlane;
use crate::machine::Machine;

/// The tokens of the lab's users; ServiceAccounts get theirs from the API.
const TOKENS: &str =
    "admin-token,admin,admin,system:masters\ncoredns-token,coredns,coredns\ndev-token,dev,dev\n";

/// The shell function that makes a key.
const NEW_KEY: &str = "new() { openssl ecparam -name prime256v1 -genkey -noout -out $1.key; }";

/// Makes a certificate authority, the server's certificate and the `ServiceAccount` signing key.
pub(super) fn make(machine: &Machine, folder: &Path, address: &str) -> Result<()> {
    fs::write(folder.join("tokens.csv"), TOKENS)?;
    machine.shell(&format!(
        "cd {folder}
exec 2>openssl.log
{NEW_KEY}
new accounts
printf 'subjectAltName=IP:{address},IP:127.0.0.1,IP:10.96.0.1' >api.ext",
        folder = folder.display()
    ))?;
    new_authority(machine, folder)?;
    new_certificate(machine, folder)?;
    new_node_certificates(machine, folder, address)
}

/// Makes what the API server and the node's kubelet know each other by.
fn new_node_certificates(machine: &Machine, folder: &Path, address: &str) -> Result<()> {
    // An authority of their own, so that the cluster's can be replaced without the node.
    machine.shell(&format!(
        "cd {folder}
exec 2>openssl.log
{NEW_KEY}
cp ca.crt node-ca.crt
printf 'subjectAltName=IP:{address}' >kubelet.ext
sign() {{ openssl x509 -req -in $1.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 \
  -extfile $2 -out $1.crt; }}
new kubelet
openssl req -new -key kubelet.key -subj /O=system:nodes/CN=system:node:node -out kubelet.csr
sign kubelet kubelet.ext
new api-client
openssl req -new -key api-client.key -subj /CN=kube-apiserver-kubelet-client -out api-client.csr
sign api-client /dev/null",
        folder = folder.display()
    ))?;
    Ok(())
}

/// What signs the tokens of ServiceAccounts: an EC key, then an RSA key beside it, then that alone.
const SIGNERS: [&str; 2] = ["accounts.key", "accounts-rsa.key"];

/// The flags that say with which keys tokens are signed and verified: all there are, the last signs.
pub(super) fn of_accounts(folder: &Path) -> Vec<String> {
    let there = SIGNERS.map(|name| folder.join(name));
    let there: Vec<_> = there.iter().filter(|key| key.exists()).collect();
    let verifying = there
        .iter()
        .map(|key| format!("--service-account-key-file={}", key.display()));
    let signing = there
        .last()
        .map(|key| format!("--service-account-signing-key-file={}", key.display()));
    verifying.chain(signing).collect()
}

impl ControlPlane {
    /// Has the tokens of ServiceAccounts signed by an RSA key from the server's next start on. The
    /// key of before is still published.
    pub fn add_signer(&self, machine: &Machine) -> Result<()> {
        let key = self.folder.join(SIGNERS[1]).display().to_string();
        machine.output(&["openssl", "genrsa", "-out", &key, "2048"])?;
        Ok(())
    }

    /// Withdraws the first key, at the server's next start.
    pub fn withdraw_signer(&self) -> Result<()> {
        fs::remove_file(self.folder.join(SIGNERS[0]))?;
        Ok(())
    }

    /// Makes a certificate by which `user` may come in; the files of it and of its key.
    pub fn client_certificate(&self, machine: &Machine, user: &str) -> Result<(PathBuf, PathBuf)> {
        machine.shell(&format!(
            "cd {folder}
exec 2>openssl.log
{NEW_KEY}
new {user}
openssl req -new -key {user}.key -subj /CN={user} -out {user}.csr
printf 'extendedKeyUsage=clientAuth' >client.ext
openssl x509 -req -in {user}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 \
  -extfile client.ext -out {user}.crt",
            folder = self.folder.display()
        ))?;
        let file = |kind: &str| self.folder.join(format!("{user}.{kind}"));
        Ok((file("crt"), file("key")))
    }

    /// Gives the server another key and certificate of the same authority, for its next start.
    pub fn renew_certificate(&self, machine: &Machine) -> Result<()> {
        new_certificate(machine, &self.folder)
    }

    /// Gives the cluster another authority, and the server a certificate of it, for its next
    /// start. The file that the kubeconfigs name for it is replaced.
    pub fn renew_authority(&self, machine: &Machine) -> Result<()> {
        new_authority(machine, &self.folder)?;
        new_certificate(machine, &self.folder)
    }
}

fn new_authority(machine: &Machine, folder: &Path) -> Result<()> {
    machine.shell(&format!(
        "cd {folder}
exec 2>openssl.log
{NEW_KEY}
new ca
openssl req -x509 -new -key ca.key -subj /CN=lab-ca -days 30 -out ca.new
mv ca.new ca.crt",
        folder = folder.display()
    ))?;
    Ok(())
}

fn new_certificate(machine: &Machine, folder: &Path) -> Result<()> {
    machine.shell(&format!(
        "cd {folder}
exec 2>openssl.log
{NEW_KEY}
new api
openssl req -new -key api.key -subj /CN=kube-apiserver -out api.csr
openssl x509 -req -in api.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 \
  -extfile api.ext -out api.crt",
        folder = folder.display()
    ))?;
    Ok(())
}
