//! What is asked with each tool, and the reply that the conditions want.

/// How a question travels, in the words of dig and kdig.
pub(super) const TRANSPORTS: [&str; 2] = ["+notcp", "+tcp"];

/// The root's SOA record, which stands for `SOA` at the end of a reply.
pub(super) const SOA: &str = ". SOA ns.example. host.example. 1 7200 1800 86400 30";

/// Condition, question, reply.
pub(super) type Row = (&'static str, &'static str, &'static str);

/// What dig and kdig can both ask.
pub(super) const ROWS: &[Row] = &[
    (
        "E1",
        "a.example A",
        "NOERROR qr rd ra 1/1/0; a.example. A 192.0.2.1",
    ),
    (
        "E2",
        "a.example A +edns=0",
        "NOERROR qr rd ra 1/1/0 edns 0 1232; a.example. A 192.0.2.1",
    ),
    (
        "E2 DO",
        "a.example A +dnssec",
        "NOERROR qr rd ra 1/1/0 edns 0 do 1232; a.example. A 192.0.2.1",
    ),
    (
        "E2 NXDOMAIN",
        "gone.example A +edns=0",
        "NXDOMAIN qr rd ra 1/0/1 edns 0 1232; SOA",
    ),
    (
        "E3",
        "a.example A +edns=1",
        "BADVERS qr rd ra 1/0/0 edns 0 1232",
    ),
    (
        "E5",
        "a.example A +bufsize=100",
        "NOERROR qr rd ra 1/1/0 edns 0 1232; a.example. A 192.0.2.1",
    ),
    (
        "E6",
        "a.example A +edns=0 +ednsopt=65001:beef",
        "NOERROR qr rd ra 1/1/0 edns 0 1232; a.example. A 192.0.2.1",
    ),
    (
        "E7",
        "a.example A +nsid +padding=64 +subnet=192.0.2.0/24 +cookie=0011223344556677",
        "NOERROR qr rd ra 1/1/0 edns 0 1232; a.example. A 192.0.2.1",
    ),
    (
        "P9",
        "a.example A +zflag",
        "NOERROR qr rd ra 1/1/0; a.example. A 192.0.2.1",
    ),
    ("P10 CH", "version.bind TXT CH", "REFUSED qr rd ra 1/0/0"),
    ("P10 HS", "-c CLASS4 a.example A", "REFUSED qr rd ra 1/0/0"),
    (
        "P12",
        "odd.example TYPE65280",
        "NOERROR qr rd ra 1/1/0; odd.example. TYPE65280 \\# 5 00DEADBEEF",
    ),
    ("P13", ". NS", "NOERROR qr rd ra 1/1/0; . NS ns.example."),
    (
        "P14 not kept",
        "never.example A +norec",
        "REFUSED qr ra 1/0/0",
    ),
    (
        "P14 kept",
        "a.example A +norec",
        "NOERROR qr ra 1/1/0; a.example. A 192.0.2.1",
    ),
    (
        "P14 ours",
        "authors.default.svc.cluster.local A +norec",
        "NOERROR qr aa ra 1/1/0; authors.default.svc.cluster.local. A 10.96.1.1",
    ),
    (
        "K5",
        "broken.example A",
        "NXDOMAIN qr rd ra 1/1/1; broken.example. CNAME gone.example.; SOA",
    ),
    (
        "K13",
        "alias.example A",
        "NOERROR qr rd ra 1/2/0; alias.example. CNAME a.example.; a.example. A 192.0.2.1",
    ),
    (
        "N1",
        "a.example ANY",
        "NOERROR qr rd ra 1/1/0; a.example. HINFO \"RFC8482\" \"\"",
    ),
    (
        "N3",
        "localhost A",
        "NOERROR qr aa rd ra 1/1/0; localhost. A 127.0.0.1",
    ),
    (
        "N3 below",
        "x.localhost AAAA",
        "NOERROR qr aa rd ra 1/1/0; x.localhost. AAAA ::1",
    ),
    (
        "N3 invalid",
        "no.invalid A",
        "NXDOMAIN qr aa rd ra 1/0/1; no.invalid. SOA . . 1 5 5 5 5",
    ),
    (
        "N3 onion",
        "x.onion A",
        "NXDOMAIN qr aa rd ra 1/0/1; x.onion. SOA . . 1 5 5 5 5",
    ),
    (
        "N4",
        "_dns.resolver.arpa TYPE64",
        "NOERROR qr aa rd ra 1/0/1; _dns.resolver.arpa. SOA . . 1 5 5 5 5",
    ),
    (
        "N5",
        "1.1.96.10.in-addr.arpa PTR",
        "NOERROR qr aa rd ra 1/1/0; 1.1.96.10.in-addr.arpa. PTR authors.default.svc.cluster.local.",
    ),
    (
        "N6",
        "cluster.local DS",
        "NOERROR qr aa rd ra 1/0/1; cluster.local. SOA . . 1 5 5 5 5",
    ),
    ("N7", "a.example SRV", "NOERROR qr rd ra 1/0/1; SOA"),
    (
        "N8",
        "authors A",
        "NOERROR qr aa rd ra 1/1/0; authors. A 10.96.1.1",
    ),
    (
        "N8",
        "authors.default A",
        "NOERROR qr aa rd ra 1/1/0; authors.default. A 10.96.1.1",
    ),
    (
        "N8 NODATA",
        "authors AAAA",
        "NOERROR qr aa rd ra 1/0/1; authors. SOA . . 1 5 5 5 5",
    ),
];

/// What only dig can ask, or prints as it is.
pub(super) const DIG_ROWS: &[Row] = &[
    (
        "P4 NOTIFY",
        "a.example A +opcode=NOTIFY",
        "NOTIMP qr rd ra 1/0/0",
    ),
    (
        "P4 STATUS",
        "a.example A +opcode=STATUS",
        "NOTIMP qr rd ra 1/0/0",
    ),
    ("P4 15", "a.example A +opcode=15", "NOTIMP qr rd ra 1/0/0"),
    ("P5", "+header-only", "FORMERR qr rd ra 0/0/0"),
    ("P11 0", "a.example TYPE0", "FORMERR qr rd ra 1/0/0"),
    ("P11 OPT", "a.example TYPE41", "FORMERR qr rd ra 1/0/0"),
    ("P11 TKEY", "a.example TYPE249", "FORMERR qr rd ra 1/0/0"),
    ("P11 TSIG", "a.example TYPE250", "FORMERR qr rd ra 1/0/0"),
    ("P11 MAILB", "a.example TYPE253", "NOTIMP qr rd ra 1/0/0"),
    ("P11 MAILA", "a.example TYPE254", "NOTIMP qr rd ra 1/0/0"),
    (
        "E8",
        "a.example A +edns=0 +subnet=0",
        "NOERROR qr rd ra 1/1/0 edns 0 1232; a.example. A 192.0.2.1",
    ),
    (
        "E9",
        "a.example A +edns=0 +cookie=aabb",
        "FORMERR qr rd ra 1/0/0 edns 0 1232",
    ),
    (
        "E10",
        "a.example A +edns=0 +keepalive",
        "NOERROR qr rd ra 1/1/0 edns 0 1232; a.example. A 192.0.2.1",
    ),
    (
        "Q1",
        "AuThOrS.dEfAuLt A",
        "NOERROR qr aa rd ra 1/1/0; AuThOrS.dEfAuLt. A 10.96.1.1",
    ),
    (
        "Q1",
        "A.eXaMpLe A",
        "NOERROR qr rd ra 1/1/0; A.eXaMpLe. A 192.0.2.1",
    ),
    (
        "N2",
        "web.example HTTPS",
        "NOERROR qr rd ra 1/1/0; web.example. HTTPS 1 . alpn=\"h2,h3\" port=8443 key65333=\"x\"",
    ),
];

pub(super) const KDIG_ROWS: &[Row] = &[(
    "N2",
    "web.example HTTPS",
    "NOERROR qr rd ra 1/1/0; web.example. HTTPS 1 . alpn=h2,h3 port=8443 key65333=\"x\"",
)];

/// drill chooses its transport by `-t`, and knows few options.
pub(super) const DRILL_ROWS: &[Row] = &[
    (
        "E1",
        "a.example A",
        "NOERROR qr rd ra 1/1/0; a.example. A 192.0.2.1",
    ),
    ("P10", "version.bind CH TXT", "REFUSED qr rd ra 1/0/0"),
    (
        "Q1",
        "AuThOrS A",
        "NOERROR qr aa rd ra 1/1/0; AuThOrS. A 10.96.1.1",
    ),
    ("N7", "a.example SRV", "NOERROR qr rd ra 1/0/1; SOA"),
];
