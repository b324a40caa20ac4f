//! Which settings lead through which proxy.

use super::*;

fn environment(https: &str, no: &str) -> ProxyEnvironment {
    let set = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ProxyEnvironment {
        https: set(https),
        http: None,
        no: set(no),
    }
}

fn chosen(server: &str, proxy_url: Option<&str>, environment: &ProxyEnvironment) -> String {
    match choose(&server.parse().unwrap(), proxy_url, environment) {
        Ok(Some(proxy)) => proxy.to_string(),
        Ok(None) => "direct".to_owned(),
        Err(error) => error,
    }
}

#[test]
fn l19_no_proxy_is_matched_against_the_api_servers_host() {
    const API: &str = "https://api.corp.example:6443";
    const PROXY: &str = "http://proxy.corp.example:3128";
    let table = [
        (API, "", PROXY),
        (API, "corp.example", "direct"),
        (API, ".corp.example", "direct"),
        (API, "*.corp.example", "direct"),
        (API, "other.example, api.corp.example", "direct"),
        (API, "api.corp.example:6443", "direct"),
        (API, "api.corp.example:443", PROXY),
        (API, "*", "direct"),
        // The proxy's own host does not matter.
        (API, "proxy.corp.example", PROXY),
        ("https://198.51.100.10:6443", "198.51.100.0/24", "direct"),
        ("https://198.51.100.10:6443", "198.51.100.11", PROXY),
        ("https://[2001:db8::1]:6443", "2001:db8::/32", "direct"),
        ("https://[2001:db8::1]:6443", "", PROXY),
        // As every Go program, loopback goes by no proxy.
        ("https://127.0.0.1:6443", "", "direct"),
        ("https://localhost:6443", "", "direct"),
        ("https://[::1]:6443", "", "direct"),
    ];
    for (server, no, wanted) in table {
        assert_eq!(
            chosen(server, None, &environment(PROXY, no)),
            wanted,
            "{server} with NO_PROXY={no}"
        );
    }
}

#[test]
fn l19_the_kubeconfigs_proxy_url_goes_before_the_environment() {
    let environment = environment("http://other.example:1", "*");
    for (url, wanted) in [
        ("http://user:secret@10.0.0.1:3128", "http://10.0.0.1:3128"),
        ("https://proxy.example", "https://proxy.example"),
        ("socks5://127.0.0.1:1080", "socks5://127.0.0.1:1080"),
        ("", "direct"),
    ] {
        let got = chosen("https://api.example", Some(url), &environment);
        assert_eq!(got, wanted, "{url}");
    }
    let proxy = choose(
        &"https://api.example".parse().unwrap(),
        Some("http://user:secret@10.0.0.1:3128"),
        &environment,
    );
    let proxy = proxy.unwrap().unwrap();
    assert!(proxy.authorization.is_some());
    assert!(!format!("{proxy:?}").contains("secret"));
}

#[test]
fn a_setting_that_is_no_proxy_is_named() {
    for url in ["ftp://proxy.example", "http://", "::"] {
        let got = chosen(
            "https://api.example",
            Some(url),
            &ProxyEnvironment::default(),
        );
        assert!(
            got.starts_with("proxy-url is not of the form"),
            "{url}: {got}"
        );
        let got = chosen("https://api.example", None, &environment(url, ""));
        assert!(
            got.starts_with("HTTPS_PROXY is not of the form"),
            "{url}: {got}"
        );
    }
}

#[test]
fn the_upper_case_variable_goes_first_and_an_empty_one_says_nothing() {
    let read = |pairs: &'static [(&str, &str)]| {
        ProxyEnvironment::read(move |name| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    };
    let both = read(&[
        ("HTTPS_PROXY", "a"),
        ("https_proxy", "b"),
        ("no_proxy", "c"),
    ]);
    assert_eq!(both.https.as_deref(), Some("a"));
    assert_eq!(both.no.as_deref(), Some("c"));
    let lower = read(&[("HTTPS_PROXY", ""), ("https_proxy", "b"), ("NO_PROXY", "")]);
    assert_eq!((lower.https.as_deref(), lower.no), (Some("b"), None));
}
