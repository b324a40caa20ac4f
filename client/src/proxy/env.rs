//! The variables that send programs to a proxy.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::Password;
use super::password::USER;

/// Destinations that programs reach by themselves.
const NO_PROXY: &str = "localhost,127.0.0.1,::1";

/// What the clients of a session's proxy have to know; the password is part of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct EnvReport {
    /// The session's id.
    pub session: String,
    /// Where the proxy listens.
    pub address: SocketAddr,
    /// The variables.
    pub variables: BTreeMap<String, String>,
}

impl EnvReport {
    /// Makes the variables. Programs do not agree on whether they are written small.
    #[must_use]
    pub fn new(session: &str, address: SocketAddr, password: &Password) -> Self {
        let url = |scheme| format!("{scheme}://{USER}:{}@{address}", password.reveal());
        // Names are the proxy's to look up (`h`). Without TLS there is no CONNECT: SOCKS for that.
        let all = [
            ("ALL_PROXY", url("socks5h")),
            ("HTTPS_PROXY", url("http")),
            ("HTTP_PROXY", url("socks5h")),
            ("NO_PROXY", NO_PROXY.to_owned()),
        ];
        let both = |(name, value): (&str, String)| {
            [
                (name.to_lowercase(), value.clone()),
                (name.to_owned(), value),
            ]
        };
        Self {
            session: session.to_owned(),
            address,
            variables: all.into_iter().flat_map(both).collect(),
        }
    }

    /// Writes them for a shell. Nothing in the values needs more than quotes.
    #[must_use]
    pub fn text(&self) -> String {
        let lines = self.variables.iter();
        lines
            .map(|(name, value)| format!("export {name}='{value}'\n"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_variables_in_both_spellings() {
        let password = Password::known("secret".to_owned());
        let report = EnvReport::new("0a1b2c3d", "127.0.0.1:4711".parse().unwrap(), &password);

        assert_eq!(
            report.text(),
            "export ALL_PROXY='socks5h://kubebridge:secret@127.0.0.1:4711'
export HTTPS_PROXY='http://kubebridge:secret@127.0.0.1:4711'
export HTTP_PROXY='socks5h://kubebridge:secret@127.0.0.1:4711'
export NO_PROXY='localhost,127.0.0.1,::1'
export all_proxy='socks5h://kubebridge:secret@127.0.0.1:4711'
export http_proxy='socks5h://kubebridge:secret@127.0.0.1:4711'
export https_proxy='http://kubebridge:secret@127.0.0.1:4711'
export no_proxy='localhost,127.0.0.1,::1'
"
        );
    }
}
