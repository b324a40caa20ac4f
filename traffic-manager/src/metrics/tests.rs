use super::*;

#[test]
fn a_reply_is_counted_by_the_way_and_the_code() {
    let metrics = Metrics::new("1.2.3");
    let reply = |code: u8| vec![0, 1, 0x81, 0x80 | code, 0, 1];
    for (way, reply) in [
        (Way::Udp, Some(reply(0))),
        (Way::Udp, Some(reply(0))),
        (Way::Tcp, Some(reply(3))),
        (Way::Grpc, Some(reply(9))),
        (Way::Grpc, Some(vec![1])),
        (Way::Udp, None),
    ] {
        metrics.query(way).answered(reply.as_deref());
    }
    let mut text = String::new();
    prometheus_text::encode(&mut text, &metrics.registry).unwrap();
    for line in [
        "kubebridge_dns_queries_total{transport=\"udp\",rcode=\"NOERROR\"} 2",
        "kubebridge_dns_queries_total{transport=\"tcp\",rcode=\"NXDOMAIN\"} 1",
        "kubebridge_dns_queries_total{transport=\"grpc\",rcode=\"other\"} 2",
        "kubebridge_dns_queries_total{transport=\"udp\",rcode=\"none\"} 1",
        "kubebridge_dns_queries_total{transport=\"udp\",rcode=\"REFUSED\"} 0",
        "kubebridge_dns_in_flight 0",
        "kubebridge_build_info{version=\"1.2.3\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn a_query_in_flight_is_counted_until_it_is_answered_or_given_up() {
    let metrics = Metrics::new("0");
    let first = metrics.query(Way::Udp);
    let second = metrics.query(Way::Grpc);
    assert_eq!(metrics.in_flight.get(), 2);
    drop(first);
    second.answered(None);
    assert_eq!(metrics.in_flight.get(), 0);
}
