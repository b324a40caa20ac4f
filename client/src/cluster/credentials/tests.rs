//! When a plugin is run, and when not.

use std::path::Path;

use super::*;

/// A plugin that counts its runs in a file and gives the count as its token; `more` goes before.
fn counting(folder: &Path, more: &str, expiry: &str) -> ExecConfig {
    let count = folder.join("count").display().to_string();
    let script = format!(
        "echo x >>{count}; {more}
echo \"{{apiVersion: client.authentication.k8s.io/v1, status: {{token: t$(wc -l <{count}), expirationTimestamp: '{expiry}'}}}}\""
    );
    ExecConfig {
        api_version: Some("client.authentication.k8s.io/v1".to_owned()),
        command: Some("/bin/sh".to_owned()),
        args: Some(vec!["-c".to_owned(), script]),
        ..ExecConfig::default()
    }
}

const LATER: &str = "2099-01-01T00:00:00Z";
const PAST: &str = "2020-01-01T00:00:00Z";

fn runs(folder: &Path) -> usize {
    let count = std::fs::read_to_string(folder.join("count"));
    count.unwrap_or_default().lines().count()
}

#[tokio::test]
async fn l19_all_who_ask_share_one_run_and_keep_its_result_to_its_expiry() {
    let folder = tempfile::tempdir().unwrap();
    let exec = counting(folder.path(), "", LATER);
    let credentials = Credentials::default();

    let asking = (0..20).map(|_| credentials.current(&exec, "dev"));
    let given = futures::future::join_all(asking).await;
    let again = credentials.current(&exec, "dev").await.unwrap();

    assert_eq!(runs(folder.path()), 1);
    for one in given {
        assert!(Arc::ptr_eq(&one.unwrap(), &again));
    }
}

#[tokio::test]
async fn l19_what_has_expired_is_asked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let exec = counting(folder.path(), "", PAST);
    let credentials = Credentials::default();
    for count in 1..=2 {
        credentials.current(&exec, "dev").await.unwrap();
        assert_eq!(runs(folder.path()), count);
    }
}

#[test]
fn a_credential_is_no_longer_good_a_little_before_it_ends() {
    let issued = |expiry: Option<&str>| Issued {
        token: Some("t".to_owned()),
        certificate: None,
        expiry: expiry.map(|text| text.parse().unwrap()),
    };
    let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
    assert!(is_good(&issued(Some("2026-11-29T12:00:11Z")), now));
    assert!(!is_good(&issued(Some("2026-11-29T12:00:10Z")), now));
    assert!(is_good(&issued(None), now));
}

#[tokio::test]
async fn l19_what_is_refused_is_asked_for_again_once() {
    let folder = tempfile::tempdir().unwrap();
    let exec = counting(folder.path(), "", LATER);
    let credentials = Credentials::default();
    let first = credentials.current(&exec, "dev").await.unwrap();
    credentials.reject(&first);
    let second = credentials.current(&exec, "dev").await.unwrap();
    // Late news of the first does not touch the second.
    credentials.reject(&first);
    let third = credentials.current(&exec, "dev").await.unwrap();
    assert!(!Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&second, &third));
    assert_eq!(runs(folder.path()), 2);
}

#[tokio::test]
async fn l19_a_run_that_nobody_waits_for_any_longer_is_still_of_use() {
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let started = folder.path().join("count");
    let wait = format!("until [ -e {} ]; do sleep 0.01; done", go.display());
    let exec = counting(folder.path(), &wait, LATER);
    let credentials = Credentials::default();
    {
        let asking = credentials.current(&exec, "dev");
        tokio::pin!(asking);
        // It is given up once the plugin is at work.
        loop {
            tokio::select! {
                biased;
                outcome = &mut asking => panic!("it ended: {outcome:?}"),
                () = tokio::task::yield_now() => if started.exists() { break },
            }
        }
    }
    std::fs::write(go, "").unwrap();
    credentials.current(&exec, "dev").await.unwrap();
    assert_eq!(runs(folder.path()), 1);
}

#[tokio::test]
async fn a_plugin_that_failed_is_left_alone_for_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let exec = counting(folder.path(), "exit 1", LATER);
    let credentials = Credentials::default();
    let first = credentials.current(&exec, "dev").await.unwrap_err();
    let second = credentials.current(&exec, "dev").await.unwrap_err();
    assert_eq!(first, second);
    assert_eq!(runs(folder.path()), 1);

    tokio::time::pause();
    tokio::time::advance(PAUSE).await;
    tokio::time::resume();
    credentials.current(&exec, "dev").await.unwrap_err();
    assert_eq!(runs(folder.path()), 2);
}
