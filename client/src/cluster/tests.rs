//! A cluster whose API server is a script on loopback: credentials refused, rights missing,
//! gateways that break things.

use std::collections::VecDeque;
use std::fs;
use std::net::SocketAddr;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::control::way::Way;
use crate::failure::Exit;

/// An API server that gives one answer after the other and keeps what it was asked.
struct ApiServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    _task: AbortOnDropHandle<()>,
}

/// Status code and body.
type Answer = (u16, String);

impl ApiServer {
    async fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&asked);
        let mut answers = VecDeque::from(answers);
        let task = tokio::spawn(async move {
            while let Some((code, body)) = answers.pop_front() {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                // A request has a body where it says so, and none here is big.
                while !is_whole(&request) {
                    let count = stream.read_buf(&mut request).await.unwrap();
                    assert_ne!(count, 0, "half a request");
                }
                keep.lock().push(String::from_utf8(request).unwrap());
                let answer = format!(
                    "HTTP/1.1 {code} Some\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self {
            address,
            asked,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// The first lines of the requests, and who asked.
    fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock();
        let line = |request: &String| {
            let bearer = request.lines().find_map(|line| line.split_once("Bearer "));
            let words: Vec<_> = request.split(' ').take(2).collect();
            let path = words.join(" ");
            let path = path.split('?').next().unwrap_or_default().to_owned();
            match bearer {
                Some((_, token)) => format!("{path} as {token}"),
                None => path,
            }
        };
        asked.iter().map(line).collect()
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        let line = line.to_ascii_lowercase();
        line.strip_prefix("content-length: ")?.parse().ok()
    });
    body.len() >= length.unwrap_or(0)
}

fn refusal(code: u16, message: &str) -> Answer {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message,
    });
    (code, status.to_string())
}

fn pods(names: &[&str]) -> Answer {
    let items: Vec<_> = names
        .iter()
        .map(|name| {
            serde_json::json!({
                "metadata": {"name": name},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            })
        })
        .collect();
    let list =
        serde_json::json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items});
    (200, list.to_string())
}

fn review(allowed: bool) -> Answer {
    let review = serde_json::json!({
        "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "metadata": {}, "spec": {}, "status": {"allowed": allowed},
    });
    (201, review.to_string())
}

struct World {
    folder: TempDir,
    cluster: Arc<Cluster>,
}

impl World {
    /// A cluster at `server` for a user with these fields.
    async fn new(server: &str, user: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, server, user);
        let source = Source {
            file: Some(folder.path().join("config")),
            ..Source::default()
        };
        let originals = Arc::new(Originals::new(&[], &[]));
        let cluster = Arc::new(Cluster::load(source, originals).await.unwrap());
        Self { folder, cluster }
    }

    async fn dial(&self) -> Failure {
        let way = PortForward::new(Arc::clone(&self.cluster));
        let error = way.dial().await.unwrap_err();
        error.downcast::<Problem>().unwrap().into()
    }
}

fn write(folder: &TempDir, server: &str, user: &str) {
    let text = format!(
        "current-context: lab\n\
         clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: dev, user: {user}}}]\n\
         contexts: [{{name: lab, context: {{cluster: c, user: dev}}}}]\n"
    );
    fs::write(folder.path().join("config"), text).unwrap();
}

/// A plugin that gives `t1`, then `t2`, and so on.
fn counting_plugin(folder: &TempDir) -> String {
    let count = folder.path().join("count").display().to_string();
    let script = folder.path().join("login");
    let lines = format!(
        "#!/bin/sh\necho x >>{count}\necho \"{{apiVersion: client.authentication.k8s.io/v1, status: {{token: t$(wc -l <{count})}}}}\"\n"
    );
    fs::write(&script, lines).unwrap();
    format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: ['{}'], interactiveMode: Never}}}}",
        script.display()
    )
}

#[tokio::test]
async fn l19_a_plugin_is_run_again_when_its_token_is_refused() {
    let version = (200, r#"{"major": "1", "minor": "37", "gitVersion": "v1.37.2", "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}"#.to_owned());
    let server = ApiServer::start(vec![refusal(401, "Unauthorized"), version]).await;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{}", server.address);
    let world = World::new(&url, &counting_plugin(&folder)).await;

    assert_eq!(world.cluster.version().await.unwrap(), "v1.37.2");

    assert_eq!(server.asked(), ["GET /version as t1", "GET /version as t2"]);
    assert_eq!(world.cluster.authorisation().borrow().trouble, None);
}

#[tokio::test]
async fn l19_credentials_refused_twice_are_told_in_status_with_what_renews_them() {
    let server = ApiServer::start(vec![refusal(401, "no"), refusal(401, "no")]).await;
    let url = format!("http://{}", server.address);
    let world = World::new(&url, "{token: old}").await;

    let problem = world.cluster.version().await.unwrap_err();

    let standing = world.cluster.authorisation().borrow().clone();
    assert!(
        standing
            .trouble
            .unwrap()
            .contains("does not accept the credentials of context lab")
    );
    assert_eq!(standing.renew, "kubectl --context lab version");
    let failure = Failure::from(problem);
    assert_eq!(failure.exit, Exit::Privilege);
    assert!(failure.hint.unwrap().starts_with("log in again"));
}

#[tokio::test]
async fn l19_a_token_that_somebody_has_renewed_in_the_kubeconfig_is_used() {
    let server = ApiServer::start(vec![refusal(401, "no"), pods(&[])]).await;
    let url = format!("http://{}", server.address);
    let world = World::new(&url, "{token: old}").await;
    write(&world.folder, &url, "{token: new}");

    let failure = world.dial().await;

    assert!(
        failure.error.to_string().contains("no traffic-manager"),
        "{failure}"
    );
    assert_eq!(failure.hint.as_deref(), Some("kubebridge install"));
    assert_eq!(failure.exit, Exit::Unreachable);
    let path = "GET /api/v1/namespaces/kubebridge/pods";
    assert_eq!(
        server.asked(),
        [format!("{path} as old"), format!("{path} as new")]
    );
}

#[tokio::test]
async fn each_missing_right_is_named_by_verb_resource_and_namespace() {
    let forbidden = refusal(403, "pods is forbidden");
    let answers = vec![forbidden, review(false), review(true), review(false)];
    let server = ApiServer::start(answers).await;
    let world = World::new(&format!("http://{}", server.address), "{token: t}").await;

    let failure = world.dial().await;

    assert_eq!(failure.exit, Exit::Privilege);
    let text = failure.error.to_string();
    assert!(
        text.starts_with("user dev of context lab may not: "),
        "{text}"
    );
    // The reviews are asked at once: which connection comes first is not known.
    assert_eq!(text.matches(" pods").count(), 2, "{text}");
    assert!(
        failure
            .hint
            .unwrap()
            .contains("a Role in namespace kubebridge")
    );
}

#[tokio::test]
async fn a_gateway_that_blocks_websockets_is_named() {
    for answer in [
        refusal(400, "unable to upgrade: Upgrade request required"),
        (200, "{}".to_owned()),
        (501, "<html>not here</html>".to_owned()),
    ] {
        let server = ApiServer::start(vec![pods(&["manager-a"]), answer]).await;
        let world = World::new(&format!("http://{}", server.address), "{token: t}").await;

        let failure = world.dial().await;

        let text = failure.error.to_string();
        assert!(text.contains("does not let WebSockets through"), "{text}");
        assert!(text.contains("port-forward to pod manager-a"), "{text}");
        assert_eq!(failure.exit, Exit::Unreachable);
        assert!(failure.hint.unwrap().contains("Upgrade: websocket"));
    }
}

#[tokio::test]
async fn a_page_in_the_place_of_an_answer_is_not_shown() {
    let page = "<html>sign in here</html>".to_owned();
    let server = ApiServer::start(vec![(403, page)]).await;
    let world = World::new(&format!("http://{}", server.address), "{token: t}").await;

    let failure = world.dial().await;

    assert_eq!(failure.exit, Exit::Unreachable);
    let text = failure.error.to_string();
    assert!(
        text.ends_with("answered 403, and not as an API server does"),
        "{text}"
    );
}

#[tokio::test]
async fn a_pod_that_cannot_be_reached_is_passed_over() {
    let gone = || refusal(500, "error dialing backend: connection refused");
    let server = ApiServer::start(vec![pods(&["a", "b"]), gone(), gone()]).await;
    let world = World::new(&format!("http://{}", server.address), "{token: t}").await;

    let failure = world.dial().await;

    let text = failure.error.to_string();
    assert!(
        text.contains("answers 500: error dialing backend"),
        "{text}"
    );
    let path = |pod: &str| format!("GET /api/v1/namespaces/kubebridge/pods/{pod}/portforward as t");
    assert_eq!(server.asked()[1..], [path("a"), path("b")]);
}

#[tokio::test]
async fn an_api_server_that_is_not_there_is_named_with_its_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let world = World::new(&format!("https://{address}"), "{token: t}").await;

    let failure = world.dial().await;

    assert_eq!(failure.exit, Exit::Unreachable);
    let text = failure.error.to_string();
    assert!(text.contains(&format!("https://{address}: ")), "{text}");
    assert!(text.contains("refused"), "{text}");
    assert!(
        failure
            .hint
            .unwrap()
            .contains("kubectl --context lab version")
    );
}

#[tokio::test]
async fn a_failing_plugin_ends_nothing_but_is_told() {
    let user = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: [-c, 'echo log in first >&2; exit 1']}}";
    let world = World::new("https://192.0.2.1", user).await;

    let failure = world.dial().await;

    assert_eq!(failure.exit, Exit::Privilege);
    assert!(
        failure
            .error
            .to_string()
            .ends_with("exit status: 1: log in first"),
        "{failure}"
    );
    let standing = world.cluster.authorisation().borrow().clone();
    assert!(standing.trouble.unwrap().contains("log in first"));
    assert!(standing.renew.starts_with("/bin/sh -c "));
}

#[tokio::test]
async fn l19_status_says_when_what_stands_in_the_kubeconfig_ends() {
    // {"alg":"none"}.{"sub":"dev","exp":1900000000}
    let token = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJkZXYiLCJleHAiOjE5MDAwMDAwMDB9.sig";
    let world = World::new("https://192.0.2.1", &format!("{{token: {token}}}")).await;
    let standing = world.cluster.authorisation().borrow().clone();
    assert_eq!(standing.until.as_deref(), Some("2030-03-17T17:46:40Z"));

    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.not_after = rcgen::date_time_ymd(2031, 5, 6);
    let file = world.folder.path().join("dev.crt");
    fs::write(&file, parameters.self_signed(&key).unwrap().pem()).unwrap();
    let user = format!("{{client-certificate: '{}'}}", file.display());
    let world = World::new("https://192.0.2.1", &user).await;
    let standing = world.cluster.authorisation().borrow().clone();
    assert_eq!(standing.until.as_deref(), Some("2031-05-06T00:00:00Z"));
}

#[tokio::test]
async fn the_api_servers_name_is_one_to_probe_where_it_is_a_name_of_dns() {
    for (server, wanted) in [
        ("https://api.example:6443", Some("api.example")),
        ("https://192.0.2.1:6443", None),
        ("https://[2001:db8::1]:6443", None),
        ("https://localhost:6443", None),
    ] {
        let world = World::new(server, "{token: t}").await;
        let host = world.cluster.host().map(|name| name.to_string());
        let host = host.as_deref().map(|name| name.trim_end_matches('.'));
        assert_eq!(host, wanted, "{server}");
    }
}
