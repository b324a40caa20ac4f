use super::*;

fn settings(https_proxy: &str) -> ProxySettings {
    ProxySettings {
        https_proxy: Some(https_proxy.to_owned()),
        ..ProxySettings::default()
    }
}

fn way(settings: &ProxySettings) -> Result<Option<SocketAddr>, ProxyError> {
    let uri = Uri::from_static("https://dns.test/dns-query");
    let way = settings.way_to(&uri, SocketAddr::from(([10, 0, 0, 1], 443)))?;
    Ok(way.map(|proxy| proxy.address))
}

#[test]
fn a_proxy_is_written_as_an_address_with_or_without_scheme_and_port() {
    for (text, address) in [
        ("http://10.1.1.1:3128", "10.1.1.1:3128"),
        ("http://10.1.1.1:3128/", "10.1.1.1:3128"),
        ("http://10.1.1.1", "10.1.1.1:80"),
        ("10.1.1.1:3128", "10.1.1.1:3128"),
        ("http://u:p@[fd00::1]:3128", "[fd00::1]:3128"),
    ] {
        assert_eq!(
            way(&settings(text)),
            Ok(Some(address.parse().unwrap())),
            "{text}"
        );
    }
    assert_eq!(way(&settings("")), Ok(None));
    assert_eq!(way(&ProxySettings::default()), Ok(None));
}

#[test]
fn a_proxy_that_is_not_spoken_is_an_error_and_not_left_out() {
    for text in [
        "https://10.1.1.1",
        "socks5://10.1.1.1",
        "ftp://10.1.1.1",
        "http://",
        "::",
    ] {
        assert_eq!(way(&settings(text)), Err(ProxyError::Url), "{text}");
    }
}

#[test]
fn a_proxy_written_by_name_needs_an_address_found_elsewhere() {
    let mut settings = settings("http://Proxy.Corp:3128");
    assert_eq!(settings.host_name().as_deref(), Some("proxy.corp"));
    let error = way(&settings).unwrap_err();
    assert!(matches!(&error, ProxyError::HostName(name) if name == "Proxy.Corp"));
    settings
        .addresses
        .insert("proxy.corp".to_owned(), [10, 1, 1, 1].into());
    assert_eq!(way(&settings), Ok(Some("10.1.1.1:3128".parse().unwrap())));
}

#[test]
fn a_link_local_server_is_matched_without_its_scope() {
    let mut settings = settings("http://10.1.1.1");
    let uri = Uri::from_static("https://dns.test/dns-query");
    let address = "[fe80::1%3]:443".parse().unwrap();
    assert!(settings.way_to(&uri, address).unwrap().is_some());
    settings.no_proxy = Some("fe80::/10".to_owned());
    assert!(settings.way_to(&uri, address).unwrap().is_none());
}
