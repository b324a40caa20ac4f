//! HTTP CONNECT (RFC 9110 §9.3.6) with Basic credentials (RFC 7617).
//!
//! No other method: a proxy that reads and rewrites requests would see what it need not.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::dial::{Refusal, dial};
use super::password::Password;
use super::request::Target;
use super::{HANDSHAKE, Shared};

/// The longest head of a request: a CONNECT has a line and a few fields.
const HEAD: usize = 16 * 1024;
/// Fields in it.
const FIELDS: usize = 64;

/// What is said to a client that is not connected.
#[derive(Debug, PartialEq, Eq)]
struct Answer(u16, &'static str, String);

pub(crate) async fn serve(mut stream: TcpStream, shared: &Shared) -> Result<()> {
    let head = timeout(HANDSHAKE, read_head(&mut stream)).await??;
    let target = match asked(&head, &shared.password) {
        Ok(target) => target,
        Err(answer) => return refuse(stream, answer).await,
    };
    match dial(&target, shared).await {
        Ok(dialled) => {
            let granted = b"HTTP/1.1 200 Connection established\r\n\r\n";
            stream.write_all(granted).await?;
            dialled.carry(stream).await;
            Ok(())
        }
        Err(refusal) => refuse(stream, answer(&target, refusal)).await,
    }
}

/// Reads a head to its end and not an octet further: what follows is the tunnel's.
async fn read_head(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut head = Vec::with_capacity(512);
    while !head.ends_with(b"\r\n\r\n") {
        anyhow::ensure!(head.len() < HEAD, "the head is too long");
        head.push(stream.read_u8().await?);
    }
    Ok(head)
}

/// Reads a request, which has to be a CONNECT with the right password.
fn asked(head: &[u8], password: &Password) -> Result<Target, Answer> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let bad = |what: &str| Answer(400, "Bad Request", what.to_owned());
    if !request.parse(head).is_ok_and(|parsed| parsed.is_complete()) {
        return Err(bad("this is a proxy for SOCKS5 and HTTP CONNECT"));
    }
    let credentials = request
        .headers
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("proxy-authorization"));
    if !credentials.is_some_and(|field| is_right(field.value, password)) {
        let words = "the password is in the output of `kubebridge env`".to_owned();
        return Err(Answer(407, "Proxy Authentication Required", words));
    }
    if request.method != Some("CONNECT") {
        let words = "only CONNECT is served: use socks5h://, or https".to_owned();
        return Err(Answer(405, "Method Not Allowed", words));
    }
    Target::parse(request.path.unwrap_or_default()).ok_or_else(|| bad("CONNECT wants HOST:PORT"))
}

fn is_right(value: &[u8], password: &Password) -> bool {
    let Some((scheme, encoded)) = value.split_at_checked(6) else {
        return false;
    };
    let decoded = STANDARD.decode(encoded.trim_ascii());
    let Ok(decoded) = decoded else { return false };
    let mut parts = decoded.splitn(2, |octet| *octet == b':');
    let (user, given) = (parts.next(), parts.next());
    scheme.eq_ignore_ascii_case(b"basic ")
        && password.admits(user.unwrap_or_default(), given.unwrap_or_default())
}

fn answer(target: &Target, refusal: Refusal) -> Answer {
    let words = format!("{target}: {}", refusal.words());
    match refusal {
        Refusal::Prohibited => Answer(403, "Forbidden", words),
        Refusal::Timeout => Answer(504, "Gateway Timeout", words),
        Refusal::NoSuchName
        | Refusal::NameNotResolved
        | Refusal::Refused
        | Refusal::HostUnreachable
        | Refusal::NetworkUnreachable => Answer(502, "Bad Gateway", words),
    }
}

async fn refuse(mut stream: TcpStream, answer: Answer) -> Result<()> {
    let Answer(code, reason, words) = answer;
    let challenge = match code {
        407 => "Proxy-Authenticate: Basic realm=\"kubebridge\"\r\n",
        405 => "Allow: CONNECT\r\n",
        _ => "",
    };
    let length = words.len() + 1;
    let reply = format!(
        "HTTP/1.1 {code} {reason}\r\n{challenge}Content-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{words}\n"
    );
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_with_the_password_is_granted_and_nothing_else() {
        let password = Password::known("secret".to_owned());
        let right = format!(
            "Proxy-Authorization: Basic {}",
            STANDARD.encode("kubebridge:secret")
        );
        let wrong = format!(
            "Proxy-Authorization: Basic {}",
            STANDARD.encode("kubebridge:Secret")
        );
        for (line, field, outcome) in [
            ("CONNECT db:5432", right.as_str(), Ok("db:5432")),
            ("CONNECT [fd00::1]:80", &right, Ok("[fd00::1]:80")),
            (
                "CONNECT db:5432",
                &right.replace("Basic", "bAsIc"),
                Ok("db:5432"),
            ),
            ("CONNECT db:5432", &wrong, Err(407)),
            ("CONNECT db:5432", "Proxy-Authorization: Basic %", Err(407)),
            ("CONNECT db:5432", "Proxy-Authorization: x", Err(407)),
            ("CONNECT db:5432", "Host: db", Err(407)),
            ("GET http://db/", &right, Err(405)),
            ("CONNECT db", &right, Err(400)),
        ] {
            let head = format!("{line} HTTP/1.1\r\n{field}\r\n\r\n");
            let got = asked(head.as_bytes(), &password);
            let got = got
                .map(|target| target.to_string())
                .map_err(|answer| answer.0);
            assert_eq!(got, outcome.map(str::to_owned), "{line} {field}");
        }
        assert_eq!(
            asked(b"\x16\x03\x01\r\n\r\n", &password).unwrap_err().0,
            400
        );
    }
}
