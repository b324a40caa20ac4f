//! SOCKS5 (RFC 1928) with a user's name and a password (RFC 1929): CONNECT and UDP ASSOCIATE.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::dial::{Refusal, dial};
use super::request::{Host, Target};
use super::{HANDSHAKE, Shared, udp};

/// The first octet of every message but those of the password's sub-negotiation.
pub(crate) const VERSION: u8 = 5;
/// The version of the password's sub-negotiation.
const PASSWORD_VERSION: u8 = 1;
/// The method "user's name and password", and that none is acceptable.
const BY_PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;

const CONNECT: u8 = 1;
const UDP_ASSOCIATE: u8 = 3;

const NOT_SUPPORTED: u8 = 7;
const BAD_ADDRESS: u8 = 8;

const V4: u8 = 1;
const NAME: u8 = 3;
const V6: u8 = 4;

/// A request, once the client is known.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Connect(Target),
    Associate,
    /// Not to be had, with the code that says so.
    Not(u8),
}

pub(crate) async fn serve(mut stream: TcpStream, shared: &Shared) -> Result<()> {
    let asked = async {
        if !is_admitted(&mut stream, shared).await? {
            return Ok(None);
        }
        read_request(&mut stream).await.map(Some)
    };
    let Some(request) = timeout(HANDSHAKE, asked).await?? else {
        return Ok(());
    };
    match request {
        Request::Connect(target) => match dial(&target, shared).await {
            Ok(dialled) => {
                stream.write_all(&reply(0, unspecified())).await?;
                dialled.carry(stream).await;
            }
            Err(refusal) => {
                stream
                    .write_all(&reply(code(refusal), unspecified()))
                    .await?;
            }
        },
        Request::Associate => udp::associate(stream, shared).await?,
        Request::Not(code) => stream.write_all(&reply(code, unspecified())).await?,
    }
    Ok(())
}

/// Agrees on the password as the method, and looks at it.
async fn is_admitted(stream: &mut TcpStream, shared: &Shared) -> io::Result<bool> {
    let _version = stream.read_u8().await?;
    let methods = counted(stream).await?;
    if !methods.contains(&BY_PASSWORD) {
        stream.write_all(&[VERSION, NO_METHOD]).await?;
        return Ok(false);
    }
    stream.write_all(&[VERSION, BY_PASSWORD]).await?;
    let is_right_version = stream.read_u8().await? == PASSWORD_VERSION;
    let (user, password) = (counted(stream).await?, counted(stream).await?);
    let admitted = is_right_version && shared.password.admits(&user, &password);
    let verdict = [PASSWORD_VERSION, u8::from(!admitted)];
    stream.write_all(&verdict).await?;
    Ok(admitted)
}

/// Reads octets with their number in front.
async fn counted(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut octets = vec![0; stream.read_u8().await?.into()];
    stream.read_exact(&mut octets).await?;
    Ok(octets)
}

async fn read_request(stream: &mut TcpStream) -> Result<Request> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [version, command, _, kind] = head;
    if version != VERSION {
        bail!("version {version} in a request");
    }
    let host = match kind {
        V4 => Some(Host::Address(
            Ipv4Addr::from(stream.read_u32().await?).into(),
        )),
        V6 => Some(Host::Address(
            Ipv6Addr::from(stream.read_u128().await?).into(),
        )),
        NAME => {
            let name = counted(stream).await?;
            std::str::from_utf8(&name).ok().and_then(Host::parse)
        }
        _ => return Ok(Request::Not(BAD_ADDRESS)),
    };
    let port = stream.read_u16().await?;
    Ok(match (command, host) {
        (CONNECT, Some(host)) if port != 0 => Request::Connect(Target { host, port }),
        (CONNECT, _) => Request::Not(BAD_ADDRESS),
        // Where it will send from is not known to every client, and not needed.
        (UDP_ASSOCIATE, _) => Request::Associate,
        _ => Request::Not(NOT_SUPPORTED),
    })
}

fn code(refusal: Refusal) -> u8 {
    match refusal {
        Refusal::Prohibited => 2,
        Refusal::NetworkUnreachable => 3,
        Refusal::NoSuchName | Refusal::NameNotResolved | Refusal::HostUnreachable => 4,
        Refusal::Refused => 5,
        Refusal::Timeout => 6,
    }
}

fn unspecified() -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, 0).into()
}

/// Makes a reply; `address` is where the client's datagrams go.
pub(crate) fn reply(code: u8, address: SocketAddr) -> Vec<u8> {
    let mut message = vec![VERSION, code, 0];
    put_address(&mut message, address);
    message
}

/// Writes kind, address and port.
pub(crate) fn put_address(message: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            message.push(V4);
            message.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            message.push(V6);
            message.extend(ip.octets());
        }
    }
    message.extend(address.port().to_be_bytes());
}

/// Reads the head of a datagram (RFC 1928 §7): where it goes, and where its data begins. Fragments
/// are nobody's business.
pub(crate) fn read_datagram(packet: &[u8]) -> Option<(Target, usize)> {
    let [0, 0, 0, kind, rest @ ..] = packet else {
        return None;
    };
    let (host, length) = match *kind {
        V4 => {
            let octets: [u8; 4] = rest.get(..4)?.try_into().ok()?;
            (Host::Address(Ipv4Addr::from(octets).into()), 4)
        }
        V6 => {
            let octets: [u8; 16] = rest.get(..16)?.try_into().ok()?;
            (Host::Address(Ipv6Addr::from(octets).into()), 16)
        }
        NAME => {
            let count = usize::from(*rest.first()?);
            let name = std::str::from_utf8(rest.get(1..=count)?).ok()?;
            (Host::parse(name)?, 1 + count)
        }
        _ => return None,
    };
    let port: [u8; 2] = rest.get(length..length + 2)?.try_into().ok()?;
    let target = Target {
        host,
        port: u16::from_be_bytes(port),
    };
    (target.port != 0).then_some((target, 4 + length + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_datagram_says_where_it_goes() {
        let mut packet = vec![0, 0, 0];
        put_address(&mut packet, "10.96.0.10:53".parse().unwrap());
        packet.extend(b"data");
        let read = |packet: &[u8]| read_datagram(packet).map(|(to, at)| (to.to_string(), at));
        assert_eq!(read(&packet), Some(("10.96.0.10:53".to_owned(), 10)));
        let mut v6 = vec![0, 0, 0];
        put_address(&mut v6, "[fd00::1]:80".parse().unwrap());
        assert_eq!(read(&v6), Some(("[fd00::1]:80".to_owned(), 22)));
        let name = b"\0\0\0\x03\x02db\x15\x38x";
        assert_eq!(read(name), Some(("db:5432".to_owned(), 9)));
        // A fragment, and what is cut short anywhere.
        assert_eq!(read(b"\0\0\x01\x03\x02db\x15\x38x"), None);
        for packet in [&packet[..10], &v6, &name[..9]] {
            for length in 0..packet.len() {
                assert_eq!(read(&packet[..length]), None, "{packet:?} {length}");
            }
        }
    }
}
