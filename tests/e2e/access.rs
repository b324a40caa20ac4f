//! Sessions by tokens of a real API server: who gets one, what it sees, and what is written down.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use anyhow::{Result, bail, ensure};
use kubebridge_proto::token::Reason;
use kubebridge_tests::{
    caller::{Exchange, call, open, routes_denied},
    checks::Checks,
    control_plane::{ACCESS, AUDIENCE},
    dig::{Transport, dig},
    lab::{AUTHORS, Lab},
    product::{Attempt, Manager, NAMESPACES, Session, token_flags},
    secured::{listen, make_certificates, network_manager, tls_flags},
    wait::until,
};
use traffic_manager::test_util::issuer::Issuer;

const MANAGER: &str = "127.0.0.1:7080";

/// The namespaces beside the session's own.
const OTHERS: std::ops::RangeInclusive<u32> = 1..=49;

/// Until all that was counted is written: a window of ten seconds, on a busy machine.
const WRITTEN: Duration = Duration::from_secs(60);

/// Until new keys are known: one fetch in ten seconds, on a busy machine.
const KNOWN: Duration = Duration::from_secs(60);

/// The numbers of A, PTR, AAAA and SRV.
const TYPES: [u16; 4] = [1, 12, 28, 33];

const REFUSED: u8 = 5;
const NXDOMAIN: u8 = 3;

#[test]
fn r2_a_token_of_one_namespace_of_fifty_opens_that_one_alone() -> Result<()> {
    let lab = Lab::start()?;
    lab.api.apply(&lab.node, &others())?;
    lab.api.reader_of_all(&lab.node, "reader-of-all")?;
    let manager = Manager::launch(&lab, "reader-of-all", &["--all-namespaces"])?;
    manager.ready(&lab)?;
    lab.api.access_tokens(&lab.node, &["default", "shop"])?;
    let token =
        |namespace, account, audience| lab.api.token_of(&lab.node, namespace, account, audience);
    let good = token("default", ACCESS, AUDIENCE)?;
    let mut checks = Checks::new();

    let api = token("default", ACCESS, "https://lab.example")?;
    let account = token("default", "reader-of-all", AUDIENCE)?;
    let other = token("shop", ACCESS, AUDIENCE)?;
    let forged = Issuer::default().token("default").token;
    for (what, tokens, reason) in [
        ("no token", vec![], Reason::TokenMissing),
        (
            "a token for the API server",
            vec![("default", api.as_str())],
            Reason::TokenInvalid,
        ),
        (
            "a token of another account",
            vec![("default", &account)],
            Reason::TokenInvalid,
        ),
        (
            "a token of another namespace",
            vec![("default", &other)],
            Reason::TokenInvalid,
        ),
        (
            "a token of another cluster",
            vec![("default", &forged)],
            Reason::KeyUnknown,
        ),
    ] {
        let got = call(&lab.node, MANAGER, async |mut client| {
            open(&mut client, &["default"], &tokens).await
        });
        checks.that(what, same(got?, Err(Some(reason))));
    }

    let asked = call(&lab.node, MANAGER, async |mut client| {
        probe(&mut client, &good).await
    })?;
    checks.that(
        "every try is in the audit log",
        until("the counts", WRITTEN, || {
            let told = denials(&manager, "ExchangeDns")?;
            ensure!(told == asked, "told {told:?}, asked {asked:?}");
            Ok(())
        }),
    );
    let told = denials(&manager, "WatchNamespaceRoutes")?;
    checks.that(
        "each namespace of routes too",
        same(told.len(), asked.len()),
    );
    checks.that(
        "refused sessions too",
        same(denials(&manager, "OpenSession")?.len(), 1),
    );

    rotation(&lab, &good, &mut checks)?;
    checks.finish()?;
    lab.finish();
    Ok(())
}

fn others() -> String {
    let mut text = String::new();
    for number in OTHERS {
        let of = format!("n{number:02}");
        let meta = |name: &str| format!("metadata: {{name: {name}, namespace: {of}}}");
        write!(
            text,
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {of}}}\n\
             ---\napiVersion: v1\nkind: Service\n{}\n\
             spec: {{clusterIP: 10.96.20.{number}, ports: [{{name: http, port: 80}}]}}\n\
             ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: authors-1, namespace: {of}, labels: {{kubernetes.io/service-name: authors}}}}\n\
             addressType: IPv4\nports: [{{name: http, port: 80}}]\n\
             endpoints: [{{addresses: [10.244.20.{number}], conditions: {{ready: true}}}}]\n",
            meta("authors")
        )
        .expect("writing to a String cannot fail");
    }
    text
}

/// Asks for every form of every name of the others with a token of `default`, and returns how often
/// each namespace was asked for.
async fn probe(
    client: &mut kubebridge_tests::caller::Client,
    token: &str,
) -> Result<BTreeMap<String, u64>> {
    let opened = open(client, &["default"], &[("default", token)]).await?;
    let Ok(session) = opened else {
        bail!("no session: {opened:?}")
    };
    let mut exchange = Exchange::open(client, &session).await?;
    let own = exchange.ask("authors.default.svc.cluster.local", 1).await?;
    ensure!(own == (0, 1), "our own name: {own:?}");
    let mut asked = BTreeMap::new();
    for number in OTHERS {
        let of = format!("n{number:02}");
        let mut names = [
            "authors.NS",
            "authors.NS.svc",
            "authors.NS.svc.cluster.local",
            "AUTHORS.NS.SVC.CLUSTER.LOCAL",
            "NS.svc.cluster.local",
            "*.NS.svc.cluster.local",
            "_http._tcp.authors.NS.svc.cluster.local",
            "10-244-20-1.authors.NS.svc.cluster.local",
            "10-244-20-1.NS.pod.cluster.local",
        ]
        .map(|name| name.replace("NS", &of))
        .to_vec();
        names.push(format!("{number}.20.96.10.in-addr.arpa"));
        for name in names {
            let types = if name.ends_with(".arpa") {
                &[12][..]
            } else {
                &TYPES
            };
            for kind in types {
                let (code, records) = exchange.ask(&name, *kind).await?;
                let denied = [REFUSED, NXDOMAIN].contains(&code) && records == 0;
                ensure!(denied, "{name} {kind}: {code} with {records} records");
                *asked.entry(of.clone()).or_insert(0) += 1;
            }
        }
        // What a pod behind the Service would be found by; CoreDNS knows it.
        let pod = format!("{number}.20.244.10.in-addr.arpa");
        let (_, records) = exchange.ask(&pod, 12).await?;
        ensure!(records == 0, "{pod}: {records} records");
        routes_denied(client, &session, &of).await?;
    }
    Ok(asked)
}

/// How often each namespace was denied, by the audit log.
fn denials(manager: &Manager, call: &str) -> Result<BTreeMap<String, u64>> {
    let mut told = BTreeMap::new();
    for line in manager.audit()? {
        if line["event"] == "denied" && line["call"] == call {
            let Some(namespace) = line["namespace"].as_str() else {
                continue;
            };
            *told.entry(namespace.to_owned()).or_insert(0) += line["count"].as_u64().unwrap_or(0);
        }
    }
    Ok(told)
}

/// The signer of tokens is replaced, by a key of another kind, and then withdrawn.
fn rotation(lab: &Lab, old: &str, checks: &mut Checks) -> Result<()> {
    lab.api.kill_api()?;
    lab.api.add_signer(&lab.node)?;
    lab.api.start_api(&lab.node)?;
    // The manager's own token is renewed too, as a kubelet does it.
    lab.api.reader_of_all(&lab.node, "reader-of-all")?;
    let new = lab.api.token_of(&lab.node, "default", ACCESS, AUDIENCE)?;
    ensure!(
        new.split('.').next() != old.split('.').next(),
        "the signer is the same"
    );
    let opens = |token: &str| -> Result<Result<String, Option<Reason>>> {
        call(&lab.node, MANAGER, async |mut client| {
            open(&mut client, &["default"], &[("default", token)]).await
        })
    };
    checks.that(
        "a token by the new key",
        until("the new key", KNOWN, || {
            opens(&new)?
                .map(drop)
                .map_err(|reason| anyhow::anyhow!("{reason:?}"))
        }),
    );
    checks.that(
        "one by the old key, still published",
        match opens(old)? {
            Ok(_) => Ok(()),
            Err(reason) => Err(anyhow::anyhow!("{reason:?}")),
        },
    );
    lab.api.kill_api()?;
    lab.api.withdraw_signer()?;
    lab.api.start_api(&lab.node)?;
    let forged = Issuer::new("unheard-of").token("default").token;
    checks.that(
        "one by the old key, withdrawn",
        until("the old key to go", KNOWN, || {
            // A key nobody knows has the manager look for it.
            same(opens(&forged)?, Err(Some(Reason::KeyUnknown)))?;
            same(opens(old)?, Err(Some(Reason::KeyUnknown)))
        }),
    );
    checks.that(
        "one by the new key, alone",
        opens(&new)?
            .map(drop)
            .map_err(|reason| anyhow::anyhow!("{reason:?}")),
    );
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(got: T, wanted: T) -> Result<()> {
    ensure!(got == wanted, "got {got:?}, wanted {wanted:?}");
    Ok(())
}

#[test]
fn a_session_over_a_network_takes_a_certificate_and_a_token() -> Result<()> {
    let lab = Lab::start()?;
    make_certificates(&lab, "certs")?;
    make_certificates(&lab, "strange")?;
    let manager = network_manager(&lab)?;
    let tokens = token_flags(&lab, &NAMESPACES)?;
    let mut checks = Checks::new();
    refused(&lab, &tokens, &mut checks)?;

    let options = [tls_flags(&lab, "certs", "certs"), tokens].concat();
    let session: Session<'_> = attempt(&lab, &options)?.connected()?;
    let resolver = session.resolver()?;
    let name = "authors.default.svc.cluster.local";
    checks.equal(
        "a name",
        dig(lab.laptop.on(), &resolver, Transport::Udp, name, "A").map(|got| got.to_string()),
        &format!("NOERROR {name}. A {AUTHORS}"),
    );
    let opened = manager.audit()?;
    let opened = opened.iter().find(|line| line["event"] == "open");
    checks.that(
        "the certificate is in the audit log",
        match opened {
            Some(line) if line["certificate"].as_str().map(str::len) == Some(64) => Ok(()),
            other => Err(anyhow::anyhow!("{other:?}")),
        },
    );
    checks.that("the end", session.end_at_once());
    checks.finish()?;
    lab.finish();
    Ok(())
}

fn attempt<'lab>(lab: &'lab Lab, options: &[String]) -> Result<Attempt<'lab>> {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Attempt::start_with(lab, &NAMESPACES, &options)
}

fn refused(lab: &Lab, tokens: &[String], checks: &mut Checks) -> Result<()> {
    let plain = vec![format!("--manager={}", listen())];
    for (what, connection, tokens, code, said) in [
        (
            "without a token",
            tls_flags(lab, "certs", "certs"),
            &[][..],
            77,
            "there is no token",
        ),
        (
            "with a strange certificate",
            tls_flags(lab, "strange", "certs"),
            tokens,
            69,
            "traffic-manager at",
        ),
        (
            "to a strange server",
            tls_flags(lab, "certs", "strange"),
            tokens,
            69,
            "invalid peer certificate",
        ),
        ("without TLS", plain, tokens, 64, "over a network it needs"),
    ] {
        let attempt = attempt(lab, &[connection, tokens.to_vec()].concat())?;
        let ended = attempt.ended()?.code();
        let log = attempt.said()?;
        let right = ended == Some(code) && log.contains(said);
        let outcome = match right {
            true => Ok(()),
            false => Err(anyhow::anyhow!("{ended:?}: {log}")),
        };
        checks.that(what, outcome);
    }
    Ok(())
}
