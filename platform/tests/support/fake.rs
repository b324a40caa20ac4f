//! A private bus, run by a real dbus-daemon, with stand-ins for systemd-resolved, systemd-networkd
//! and logind on it that do as told and write down what they were asked.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use futures::StreamExt;
use kubebridge_platform::Sys;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use zbus::{Connection, Message, MessageStream, OwnedObjectPath, Variant, connection, message};

/// The name of the stand-in for systemd-resolved.
pub(crate) const RESOLVED: &str = "org.freedesktop.resolve1";
/// The name of the stand-in for systemd-networkd.
pub(crate) const NETWORKD: &str = "org.freedesktop.network1";
/// The name of the stand-in for logind.
pub(crate) const LOGIND: &str = "org.freedesktop.login1";

const PATH: &str = "/org/freedesktop/resolve1";

/// The bus; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Bus {
    folder: tempfile::TempDir,
    daemon: Child,
}

impl Bus {
    /// Starts a dbus-daemon.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let daemon = Self::start_daemon(folder.path());
        Self { folder, daemon }
    }

    /// Ends the dbus-daemon and starts it again in the same place.
    pub(crate) fn restart(mut self) -> Self {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
        std::fs::remove_file(self.folder.path().join("bus")).unwrap();
        self.daemon = Self::start_daemon(self.folder.path());
        self
    }

    fn start_daemon(folder: &Path) -> Child {
        let socket = folder.join("bus");
        let file = folder.join("bus.conf");
        let text = format!(
            r#"<busconfig><type>system</type><listen>unix:path={}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*"/>
<allow receive_sender="*"/></policy></busconfig>"#,
            socket.display()
        );
        std::fs::write(&file, text).unwrap();
        let mut daemon = Command::new("dbus-daemon")
            .args(["--nofork", "--nopidfile", "--print-address=1"])
            .arg(format!("--config-file={}", file.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It prints its address once it listens.
        let mut line = String::new();
        let output = daemon.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert!(line.starts_with("unix:"), "{line}");
        daemon
    }

    /// Returns a machine whose system bus this is.
    pub(crate) fn sys(&self) -> Sys {
        let at = |name: &str| self.folder.path().join(name);
        std::fs::create_dir_all(at("root/etc")).unwrap();
        Sys {
            root: at("root"),
            bus_address: Some(self.address()),
            state_dir: at("state"),
            runtime_dir: at("run"),
            ..Sys::default()
        }
    }

    fn address(&self) -> String {
        format!("unix:path={}", self.folder.path().join("bus").display())
    }

    /// Connects a stand-in under a name.
    pub(crate) async fn serve(&self, name: &'static str) -> Service {
        self.serve_with(name, Arc::default()).await
    }

    /// Connects a stand-in that continues another one's life.
    pub(crate) async fn serve_with(&self, name: &'static str, state: Arc<Mutex<State>>) -> Service {
        let address = self.address();
        let builder = connection::Builder::address(address.as_str());
        let connection = builder.build().await.unwrap();
        let calls = MessageStream::from(&connection);
        let task = tokio::spawn(answer(connection.clone(), calls, Arc::clone(&state)));
        connection.request_name(name).await.unwrap();
        Service {
            connection,
            state,
            task,
        }
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        drop(self.daemon.kill());
        drop(self.daemon.wait());
    }
}

/// A stand-in on the bus.
#[derive(Debug)]
pub(crate) struct Service {
    connection: Connection,
    /// What it knows and how it behaves.
    pub(crate) state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

/// What a stand-in knows and how it behaves.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The calls that change something, in order.
    pub(crate) calls: Vec<String>,
    /// The links it has settings of.
    pub(crate) links: BTreeMap<i32, Link>,
    /// How often each method is still refused, and with which error.
    pub(crate) refusals: BTreeMap<&'static str, (usize, &'static str)>,
    /// The methods that never answer.
    pub(crate) hanging: BTreeSet<&'static str>,
    /// The methods that say yes and do nothing.
    pub(crate) deaf: BTreeSet<&'static str>,
}

/// A server as it goes over the bus: family, address, port, TLS name.
type Server = (i32, Vec<u8>, u16, String);

/// The settings of a link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// Its servers.
    pub(crate) servers: Vec<Server>,
    /// Its domains.
    pub(crate) domains: Vec<(String, bool)>,
    /// Whether it takes names without a domain.
    pub(crate) default_route: Option<bool>,
}

impl Service {
    /// Ends the stand-in, as if its process had.
    pub(crate) async fn stop(self) -> Arc<Mutex<State>> {
        self.task.abort();
        self.connection.close().await.unwrap();
        self.state
    }

    /// Refuses a method so many times.
    pub(crate) fn refuse(&self, method: &'static str, times: usize, error: &'static str) {
        self.state.lock().refusals.insert(method, (times, error));
    }

    /// Returns the calls so far, and forgets them.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().calls)
    }

    /// Returns the settings of a link.
    pub(crate) fn link(&self, index: i32) -> Link {
        self.state
            .lock()
            .links
            .get(&index)
            .cloned()
            .unwrap_or_default()
    }

    /// Does what `resolvectl revert` does, and says so as systemd-resolved 252 does.
    pub(crate) async fn revert_by_someone_else(&self, index: i32) {
        self.state.lock().links.remove(&index);
        let none: BTreeMap<&str, Variant<'_>> = BTreeMap::from([("DNS", Variant::from("…"))]);
        let body = (
            "org.freedesktop.resolve1.Manager",
            none,
            Vec::<String>::new(),
        );
        self.emit(
            PATH,
            "org.freedesktop.DBus.Properties",
            "PropertiesChanged",
            &body,
        )
        .await;
    }

    /// Says that the machine is about to sleep, or woke up.
    pub(crate) async fn prepare_for_sleep(&self, going: bool) {
        let path = "/org/freedesktop/login1";
        let interface = "org.freedesktop.login1.Manager";
        self.emit(path, interface, "PrepareForSleep", &(going,))
            .await;
    }

    async fn emit<B>(&self, path: &str, interface: &str, member: &str, body: &B)
    where
        B: serde::Serialize + zbus::DynamicType,
    {
        let nobody = None::<&str>;
        let emitted = self
            .connection
            .emit_signal(nobody, path, interface, member, body);
        emitted.await.unwrap();
    }
}

async fn answer(connection: Connection, mut calls: MessageStream, state: Arc<Mutex<State>>) {
    while let Some(Ok(call)) = calls.next().await {
        if call.message_type() != message::Type::MethodCall {
            continue;
        }
        let header = call.header();
        let reply = state.lock().handle(&call);
        let sent = match reply {
            Reply::Nothing => Ok(()),
            Reply::Error(name) => connection.reply_error(&header, name, &("as told",)).await,
            Reply::Done => connection.reply(&header, &()).await,
            Reply::Path(path) => connection.reply(&header, &(path,)).await,
            Reply::Property(value) => connection.reply(&header, &(value,)).await,
        };
        sent.unwrap();
    }
}

enum Reply {
    Nothing,
    Error(&'static str),
    Done,
    Path(OwnedObjectPath),
    Property(Variant<'static>),
}

impl State {
    fn handle(&mut self, call: &Message) -> Reply {
        let header = call.header();
        let member = header.member().unwrap().to_string();
        if self.hanging.contains(member.as_str()) {
            return Reply::Nothing;
        }
        if let Some((times, error)) = self.refusals.get_mut(member.as_str())
            && *times > 0
        {
            *times -= 1;
            self.calls.push(format!("{member} refused"));
            return Reply::Error(error);
        }
        match member.as_str() {
            "GetLink" => {
                let index: i32 = call.body().deserialize::<(i32,)>().unwrap().0;
                let path = format!("{PATH}/link/{index}");
                Reply::Path(path.try_into().unwrap())
            }
            "Get" => {
                let (_, name): (String, String) = call.body().deserialize().unwrap();
                let link = header.path().unwrap().rsplit('/').next().unwrap().parse();
                self.property(&name, link.ok())
            }
            "Hello" | "Ping" => Reply::Done,
            _ => self.set(&member, call),
        }
    }

    fn property(&self, name: &str, link: Option<i32>) -> Reply {
        let Some(index) = link else {
            return Reply::Property(match name {
                "Domains" => self.domains().into(),
                "DNSEx" | "FallbackDNSEx" => Vec::<(i32, i32, Vec<u8>, u16, String)>::new().into(),
                _ => Variant::from("stub"),
            });
        };
        let link = self.links.get(&index).cloned().unwrap_or_default();
        let takes_any = link.domains.iter().all(|(_, routing)| !routing);
        Reply::Property(match name {
            "DNSEx" => link.servers.into(),
            "Domains" => link.domains.into(),
            "DefaultRoute" => link.default_route.unwrap_or(takes_any).into(),
            "ScopesMask" => u64::from(!link.servers.is_empty()).into(),
            _ => return Reply::Error("org.freedesktop.DBus.Error.UnknownProperty"),
        })
    }

    fn domains(&self) -> Vec<(i32, String, bool)> {
        let links = self.links.iter();
        links
            .flat_map(|(index, link)| {
                let mine = |(name, routing): &(String, bool)| (*index, name.clone(), *routing);
                link.domains.iter().map(mine).collect::<Vec<_>>()
            })
            .collect()
    }

    fn set(&mut self, member: &str, call: &Message) -> Reply {
        let body = call.body();
        let deaf = self.deaf.contains(member);
        let mut ignored = BTreeMap::new();
        let links = if deaf { &mut ignored } else { &mut self.links };
        let said = match member {
            "SetLinkDNSEx" => {
                let (index, servers): (i32, Vec<Server>) = body.deserialize().unwrap();
                let said: Vec<_> = servers.iter().map(|server| text(&server.1)).collect();
                links.entry(index).or_default().servers = servers;
                said.join(" ")
            }
            "SetLinkDNS" => {
                let (index, servers): (i32, Vec<(i32, Vec<u8>)>) = body.deserialize().unwrap();
                let said: Vec<_> = servers.iter().map(|server| text(&server.1)).collect();
                let full = servers
                    .into_iter()
                    .map(|(family, octets)| (family, octets, 0, String::new()));
                links.entry(index).or_default().servers = full.collect();
                said.join(" ")
            }
            "SetLinkDomains" => {
                let (index, domains): (i32, Vec<(String, bool)>) = body.deserialize().unwrap();
                let mark = |routing: &bool| if *routing { "~" } else { "" };
                let said = domains
                    .iter()
                    .map(|(name, routing)| format!("{}{name}", mark(routing)));
                let said: Vec<_> = said.collect();
                links.entry(index).or_default().domains = domains;
                said.join(" ")
            }
            "SetLinkDefaultRoute" => {
                let (index, yes): (i32, bool) = body.deserialize().unwrap();
                links.entry(index).or_default().default_route = Some(yes);
                yes.to_string()
            }
            "RevertLink" | "RevertLinkDNS" => {
                let (index,): (i32,) = body.deserialize().unwrap();
                links.remove(&index);
                String::new()
            }
            "FlushCaches" => String::new(),
            _ => body.deserialize::<(i32, String)>().unwrap().1,
        };
        self.calls
            .push(format!("{member} {said}").trim().to_owned());
        Reply::Done
    }
}

fn text(octets: &[u8]) -> String {
    let four = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    let any = four.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from));
    any.unwrap().to_string()
}
