//! What arguments, environment and files become, and what is refused how.

use std::io::Write;

use kubebridge_proto::flow::Protocol;

use super::*;

fn run(arguments: &[&str]) -> Result<Cli, Failure> {
    let arguments: Vec<OsString> = std::iter::once("kubebridge")
        .chain(arguments.iter().copied())
        .map(OsString::from)
        .collect();
    match parse(&arguments)? {
        Parsed::Run(cli) => Ok(*cli),
        Parsed::Print(text) => panic!("printed {text}"),
    }
}

fn connect(arguments: &[&str]) -> (Global, ConnectArgs) {
    let cli = run(arguments).unwrap();
    match cli.command {
        Command::Connect(connect) => (cli.global, connect),
        other => panic!("{other:?}"),
    }
}

fn config(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn connect_has_the_defaults_of_the_design() {
    let (global, connect) = connect(&["connect"]);

    assert_eq!(connect.dns, DnsChoice::Auto);
    assert_eq!(connect.hosts, HostsForm::Namespaced);
    assert_eq!(connect.mode, Mode::Tun);
    assert_eq!(connect.manager, None);
    assert_eq!(global.output, Output::Text);
    assert!(global.namespaces.is_empty());
}

#[test]
fn namespaces_are_repeatable_and_keep_their_order() {
    let (global, _) = connect(&["-n", "shop", "connect", "-n", "default"]);
    let (both, _) = connect(&["connect", "-n", "shop", "-n", "default"]);

    let names = |global: &Global| {
        global
            .namespaces
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&both), ["shop", "default"]);
    assert!(!names(&global).is_empty());
}

#[test]
fn dns_takes_a_name_and_a_type() {
    let question = |arguments: &[&str]| match run(arguments).unwrap().command {
        Command::Dns(DnsCommand::Trace { question, fresh }) => {
            (question.name.to_string(), question.rtype.to_string(), fresh)
        }
        other => panic!("{other:?}"),
    };

    let plain = question(&["dns", "trace", "authors.default"]);
    assert_eq!(plain, ("authors.default".to_owned(), "A".to_owned(), false));
    let typed = question(&["dns", "trace", "authors.", "aaaa", "--fresh"]);
    assert_eq!(typed, ("authors".to_owned(), "AAAA".to_owned(), true));
    for wrong in [
        &["dns"][..],
        &["dns", "trace"],
        &["dns", "trace", "a..b"],
        &["dns", "query", "authors", "NOPE"],
        &["dns", "flush", "authors"],
    ] {
        assert_eq!(run(wrong).unwrap_err().exit, Exit::Usage, "{wrong:?}");
    }
}

#[test]
fn forward_and_trace_take_hosts_and_ports() {
    let forward = run(&["forward", "authors:9080", "db.shop:5432=0"]).unwrap();
    let ports = ["authors:9080=9080", "db.shop:5432=0"];
    let ports = ports.map(|text| text.parse().unwrap()).to_vec();
    assert_eq!(forward.command, Command::Forward(ForwardArgs { ports }));
    let trace = run(&["trace", "authors.shop:9080"]).unwrap();
    let target = "authors.shop:9080".parse().unwrap();
    let udp = false;
    assert_eq!(trace.command, Command::Trace(TraceArgs { target, udp }));
    for words in [
        &["trace", "dns.shop:53/udp"][..],
        &["trace", "--udp", "dns.shop:53"],
    ] {
        let Command::Trace(TraceArgs { target, udp }) = run(words).unwrap().command else {
            panic!("{words:?}");
        };
        let is_udp = udp || target.protocol == Protocol::Udp;
        assert!(is_udp && target.target.port == 53, "{words:?}");
    }
    for wrong in [
        &["forward"][..],
        &["forward", "authors"],
        &["forward", "authors:80=x"],
        &["trace", "authors"],
        &["trace", "fd00::1:80"],
        &["env", "x"],
    ] {
        assert_eq!(run(wrong).unwrap_err().exit, Exit::Usage, "{wrong:?}");
    }
}

#[test]
fn wrong_arguments_exit_64_and_name_what_is_wrong() {
    let table: [(&[&str], &str); 12] = [
        (&["connect", "--hostz", "off"], "--hostz"),
        (&["connect", "--hosts", "maybe"], "maybe"),
        (&["connect", "--manager", "nowhere"], "nowhere"),
        (&["connect", "-n", "Shop"], "namespace"),
        (&["conect"], "conect"),
        (&[], "subcommand"),
        (&["connect", "--include-cidr", "10.0.0.0/99"], "/99"),
        (&["connect", "--mode=vpn"], "vpn"),
        (
            &["connect", "--dns", "takeover"],
            "--dns takeover is not built yet",
        ),
        (&["gather-logs"], "the command gather-logs is not built yet"),
        (&["connect", "--retake"], "--retake is not built yet"),
        (&["status", "--once"], "--once"),
    ];
    for (arguments, wanted) in table {
        let failure = run(arguments).unwrap_err();

        assert_eq!(failure.exit, Exit::Usage, "{arguments:?}");
        let text = failure.error.to_string();
        assert!(text.contains(wanted), "{arguments:?}: {text}");
        assert!(!text.contains('\n'), "{text}");
    }
}

#[test]
fn commands_that_are_not_there_yet_are_not_listed() {
    let arguments = [OsString::from("kubebridge"), OsString::from("--help")];
    let Parsed::Print(help) = parse(&arguments).unwrap() else {
        panic!("no help")
    };

    assert!(help.contains("connect") && help.contains("doctor"));
    assert!(!help.contains("completions") && !help.contains("gather-logs"));
}

#[test]
fn a_flag_beats_the_file_and_the_file_beats_the_default() {
    let file = config(
        "mode: proxy\nhosts: off\ndns: hosts-only\nmanager: 127.0.0.1:7080\nnamespace: [shop, default]\nforeground: true\ninclude-cidr: [172.20.7.9/16, 'fd00::/112']\nexclude-cidr: 10.96.7.1\n",
    );
    let path = file.path().to_str().unwrap();

    let (global, connect) = connect(&["connect", "--config", path, "--dns", "off"]);

    assert_eq!(connect.dns, DnsChoice::Off);
    assert_eq!(connect.hosts, HostsForm::Off);
    assert_eq!(connect.manager, Some("127.0.0.1:7080".parse().unwrap()));
    assert_eq!(connect.mode, Mode::Proxy);
    assert!(connect.foreground);
    let words = |nets: &[kubebridge_platform::IpNet]| format!("{nets:?}");
    assert_eq!(words(&connect.include), "[172.20.0.0/16, fd00::/112]");
    assert_eq!(words(&connect.exclude), "[10.96.7.1/32]");
    assert_eq!(global.namespaces.len(), 2);
    assert_eq!(global.namespaces[0].as_str(), "shop");
}

#[test]
fn a_key_of_another_command_is_left_to_it() {
    let file = config("once: true\n");

    let cli = run(&["status", "--config", file.path().to_str().unwrap()]).unwrap();

    assert_eq!(cli.command, Command::Status);
}

#[test]
fn a_bad_file_exits_78_and_names_the_key() {
    let table = [
        (
            "hostss: off\n",
            "unknown key `hostss`, the nearest is `hosts`",
        ),
        ("retake: a\n", "the key `retake` is not built yet"),
        ("hosts: sometimes\n", "sometimes"),
        ("foreground: perhaps\n", "`foreground` is true or false"),
        ("hosts: {a: b}\n", "`hosts` has no usable value"),
        ("- a\n- b\n", "configuration file"),
        ("hosts: [off\n", "configuration file"),
    ];
    for (text, wanted) in table {
        let file = config(text);

        let failure = run(&["connect", "--config", file.path().to_str().unwrap()]).unwrap_err();

        assert_eq!(failure.exit, Exit::File, "{text}");
        let said = failure.to_string();
        assert!(said.contains(wanted), "{text}: {said}");
        assert_eq!(said.lines().count(), 1, "{text}: {said}");
    }
}

#[test]
fn a_missing_file_exits_78() {
    let failure = run(&["connect", "--config", "/nonexistent/kubebridge.yaml"]).unwrap_err();

    assert_eq!(failure.exit, Exit::File);
    assert!(failure.to_string().contains("/nonexistent/kubebridge.yaml"));
}
