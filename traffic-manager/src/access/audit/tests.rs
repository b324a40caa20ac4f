//! What the audit log has, to the letter, and what it never has.

use std::pin::Pin;
use std::task::{Context, Poll};

use serde_json::Value;

use super::*;

fn audit() -> (Audit, mpsc::Receiver<String>) {
    let (sender, lines) = mpsc::channel(8);
    (Audit::new(Some(sender), Wall::at(1_800_000_000)), lines)
}

const ID: &str = "00112233445566778899aabbccddeeff";

fn proofs() -> Vec<Proof> {
    vec![Proof {
        namespace: "shop".to_owned(),
        token_id: "0dd3".to_owned(),
        account_uid: "11aa".to_owned(),
        expires: 1_800_003_600,
    }]
}

#[tokio::test(start_paused = true)]
async fn r4_the_lines_are_as_documented() {
    let (audit, mut lines) = audit();
    let (namespaces, proofs) = (["shop".to_owned()], proofs());
    let about = About {
        id: ID,
        namespaces: &namespaces,
        proofs: &proofs,
        certificate: None,
    };
    audit.opened(about, "0.1.0");
    audit.renewed(about, "0.1.0");
    audit.closed(about, Closed::Expired, Duration::from_secs(3600));
    audit.session_denied(Reason::TokenExpired, Some("prod"));
    audit.call_denied(ID, "ExchangeDns", Some("prod"), Some("authors"));
    let documentation = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/security.md");
    let documentation = std::fs::read_to_string(documentation).unwrap();
    for event in ["open", "renew", "close", "denied", "denied"] {
        let line = lines.recv().await.unwrap();
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["event"], event, "{line}");
        assert!(
            documentation.contains(line.trim_end()),
            "docs/security.md lacks:\n{line}"
        );
        assert!(!line.contains(&ID[SHOWN..]), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn r4_lines_that_nobody_reads_are_counted() {
    let (audit, mut lines) = audit();
    for number in 0..20 {
        audit.session_denied(Reason::TokenMissing, Some(&format!("n{number}")));
    }
    for _ in 0..8 {
        let line: Value = serde_json::from_str(&lines.recv().await.unwrap()).unwrap();
        assert!(line.get("lost").is_none(), "{line}");
    }
    audit.session_denied(Reason::TokenMissing, Some("later"));
    let line: Value = serde_json::from_str(&lines.recv().await.unwrap()).unwrap();
    assert_eq!(line["lost"], 12, "{line}");
}

#[tokio::test(start_paused = true)]
async fn r4_denials_add_up_at_shutdown_and_are_written_to_the_end() {
    let (near, mut far) = tokio::io::duplex(64);
    let shutdown = CancellationToken::new();
    let (audit, writing) = Audit::to(near, Wall::at(0), shutdown.clone());
    let audit = Arc::new(audit);
    let writing = tokio::spawn(writing);
    let flushing = tokio::spawn(Arc::clone(&audit).flush_until(shutdown.clone()));
    for _ in 0..500 {
        audit.call_denied(ID, "ExchangeDns", Some("prod"), None);
    }
    drop(audit);
    let reading = tokio::spawn(async move {
        use tokio::io::AsyncReadExt as _;
        let mut text = String::new();
        far.read_to_string(&mut text).await.unwrap();
        text
    });
    shutdown.cancel();
    flushing.await.unwrap();
    writing.await.unwrap();
    let text = reading.await.unwrap();
    let counts = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["count"].as_u64().unwrap()
    });
    assert_eq!(counts.collect::<Vec<_>>(), [1, 499]);
}

/// A file that keeps what each call wrote.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<String>>>);

impl AsyncWrite for Calls {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let text = String::from_utf8(octets.to_vec()).unwrap();
        self.0.lock().push(text);
        Poll::Ready(Ok(octets.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn r4_the_first_line_is_written_at_once_and_those_soon_after_it_together() {
    let (calls, shutdown) = (Calls::default(), CancellationToken::new());
    let (audit, writing) = Audit::to(calls.clone(), Wall::at(0), shutdown.clone());
    let writing = tokio::spawn(writing);
    let deny = |number: usize| {
        audit.session_denied(Reason::TokenMissing, Some(&format!("n{number}")));
    };
    deny(0);
    tokio::task::yield_now().await;
    assert_eq!(calls.0.lock().len(), 1);
    for number in 1..=100 {
        deny(number);
        tokio::task::yield_now().await;
    }
    assert_eq!(calls.0.lock().len(), 1);
    sleep(REST).await;
    tokio::task::yield_now().await;
    let lines = |call: usize| calls.0.lock()[call].lines().count();
    assert_eq!((lines(0), lines(1)), (1, 100));
    shutdown.cancel();
    drop(audit);
    writing.await.unwrap();
}
