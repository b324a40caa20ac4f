//! A DNS server with every odd record (BIND), over plain DNS and TLS, for a manager to ask.
//!
//! It has the whole tree of names, so that what is not in it does not exist. Its certificate is of
//! an authority in a folder, and can be made anew by another one.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;
use rustix::process::Signal;

use crate::{daemon::Daemon, machine::Machine};

const START: Duration = Duration::from_secs(30);
const END: Duration = Duration::from_secs(10);

/// Where it answers plain DNS.
pub const PLAIN: &str = "127.0.0.1:5300";
/// Where it answers DNS over TLS, and the name it proves there.
pub const TLS: &str = "tls://127.0.0.1:8530#dns.example";
/// The text records of `long.example`: more than fit a datagram, and no more than BIND takes.
pub const LONG_RECORDS: usize = 90;

const ZONE: &str = "$TTL 300
. SOA ns.example. host.example. 1 7200 1800 86400 30
. NS ns.example.
ns.example. A 127.0.0.1
a.example. A 192.0.2.1
a.example. AAAA 2001:db8::1
odd.example. TYPE65280 \\# 5 00DEADBEEF
web.example. HTTPS 1 . alpn=\"h2,h3\" port=8443 key65333=\"x\"
alias.example. CNAME a.example.
broken.example. CNAME gone.example.
*.many.example. A 192.0.2.7
";

/// The running server.
#[derive(Debug)]
pub struct NameServer {
    folder: PathBuf,
    daemon: Daemon,
}

impl NameServer {
    /// Starts it in `machine`, with its files in `folder`.
    pub fn start(machine: &Machine, folder: &Path) -> Result<Self> {
        let mut zone = ZONE.to_owned();
        for number in 0..LONG_RECORDS {
            zone += &format!("long.example. TXT \"{number} {}\"\n", "x".repeat(220));
        }
        fs::write(folder.join("zone"), zone)?;
        fs::write(folder.join("named.conf"), configuration(folder))?;
        certify(machine, folder, "ca")?;
        Ok(Self {
            folder: folder.to_owned(),
            daemon: launch(machine, folder)?,
        })
    }

    /// The file with the authority of this `title`.
    pub fn authority(&self, title: &str) -> PathBuf {
        self.folder.join(format!("{title}.crt"))
    }

    /// Starts it again with a certificate of another, new authority.
    pub fn start_again_certified_by(self, machine: &Machine, title: &str) -> Result<Self> {
        self.daemon.signal(Signal::KILL)?;
        self.daemon.ended(END)?;
        certify(machine, &self.folder, title)?;
        Ok(Self {
            daemon: launch(machine, &self.folder)?,
            folder: self.folder,
        })
    }
}

fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "tls t {{ cert-file \"{folder}/dns.crt\"; key-file \"{folder}/dns.key\"; protocols {{ TLSv1.3; }}; }};
controls {{ }};
options {{
    directory \"{folder}\"; pid-file none; session-keyfile none;
    listen-on port 5300 {{ 127.0.0.1; }};
    listen-on port 8530 tls t {{ 127.0.0.1; }};
    listen-on-v6 {{ none; }};
    recursion no; dnssec-validation no; notify no;
}};
zone \".\" {{ type primary; file \"zone\"; }};
"
    )
}

fn launch(machine: &Machine, folder: &Path) -> Result<Daemon> {
    let mut command = machine.command("named");
    command.arg("-g").arg("-c").arg(folder.join("named.conf"));
    let daemon = Daemon::start("named", &folder.join("logs"), command)?;
    daemon.until_line("BIND to serve", START, |line| line.ends_with(" running"))?;
    Ok(daemon)
}

/// Makes an authority and a certificate of it, in place of the one before.
fn certify(machine: &Machine, folder: &Path, title: &str) -> Result<()> {
    machine.shell(&format!(
        "cd {folder}
exec 2>openssl.log
new() {{ openssl ecparam -name prime256v1 -genkey -noout -out $1.key; }}
new {title}
openssl req -x509 -new -key {title}.key -subj '/CN={title} of the lab' -days 30 -out {title}.crt
new dns
openssl req -new -key dns.key -subj /CN=dns.example -out dns.csr
printf subjectAltName=DNS:dns.example >dns.ext
openssl x509 -req -in dns.csr -CA {title}.crt -CAkey {title}.key -CAcreateserial -days 30 \
  -extfile dns.ext -out dns.crt",
        folder = folder.display()
    ))?;
    Ok(())
}
