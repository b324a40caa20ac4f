use super::*;

fn open() -> Open {
    Open {
        session: "s-1".to_owned(),
        flow: FlowId::new(*b"0123456789abcdef"),
        protocol: Protocol::Tcp,
        destination: "10.96.0.1:443".parse().unwrap(),
        resume: None,
    }
}

#[test]
fn a_request_is_read_as_it_was_written() {
    let v6 = "[fd00::1]:0".parse().unwrap();
    for (protocol, destination, resume) in [
        (Protocol::Tcp, open().destination, None),
        (Protocol::Tcp, open().destination, Some(u64::MAX)),
        (Protocol::Udp, open().destination, None),
        (Protocol::Icmp, v6, None),
    ] {
        let asked = Open {
            protocol,
            destination,
            resume,
            ..open()
        };
        let request = asked.request().unwrap();
        assert_eq!(Open::read(&request), Ok(Some(asked)));
    }
}

#[test]
fn a_request_for_something_else_is_no_flow() {
    assert_eq!(Open::read(&echo_request()), Ok(None));
    let mut get = open().request().unwrap();
    *get.method_mut() = Method::GET;
    assert_eq!(Open::read(&get), Ok(None));
}

#[test]
fn a_request_that_lacks_or_garbles_a_header_names_it() {
    for name in [SESSION, FLOW, PROTOCOL, DESTINATION] {
        let mut request = open().request().unwrap();
        request.headers_mut().remove(name);
        let missing = InvalidMessage::Missing { field: name };
        assert_eq!(Open::read(&request), Err(missing));
    }
    for (name, value) in [
        (FLOW, "0123456789abcdef0123456789abcde"),
        (FLOW, "+123456789abcdef0123456789abcdef"),
        (PROTOCOL, "sctp"),
        (DESTINATION, "authors.default:80"),
        (RESUME, "-1"),
    ] {
        let mut request = open().request().unwrap();
        let headers = request.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
        let error = Open::read(&request).unwrap_err().to_string();
        assert!(error.starts_with(name), "{error}");
    }
}

#[test]
fn a_failure_is_read_as_it_was_written() {
    for kind in FailureKind::ALL {
        for failure in [kind.into(), Failure::with_detail(kind, "no such port")] {
            assert_eq!(verdict(&refused(&failure)), Err(failure));
        }
    }
}

#[test]
fn a_detail_is_one_short_line() {
    let long = Failure::with_detail(FailureKind::Internal, "\u{e4}".repeat(500));
    let line = Failure::with_detail(FailureKind::Internal, "a\nb");
    let detail = verdict(&refused(&long)).unwrap_err().detail;
    assert!(detail.is_none_or(|detail| detail.len() <= MAX_DETAIL));
    assert_eq!(verdict(&refused(&line)).unwrap_err().detail, None);
}

#[test]
fn an_open_flow_says_how_much_of_it_was_received_when_it_goes_on() {
    assert_eq!(verdict(&accepted(None)), Ok(()));
    assert_eq!(resumed_at(&accepted(Some(7))), Ok(7));
    assert!(resumed_at(&accepted(None)).is_err());
}
