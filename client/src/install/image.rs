//! The image of the manager: a reference, best by digest, and the registry it is taken from. Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The image this build was released with; a build without one has to be told.
pub const RELEASED: Option<&str> = option_env!("KUBEBRIDGE_RELEASED_IMAGE");

/// The longest reference that is taken: what container runtimes allow for a name, and a digest.
const LONGEST: usize = 255 + 1 + 7 + 64;

/// A reference to an image, with the registry it is at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Image {
    registry: String,
    /// The name at the registry, with tag or digest or both.
    rest: String,
}

impl Image {
    /// Whether it always means the same image.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.rest.contains('@')
    }

    /// The same image at another registry, which may be a folder of one: `HOST[:PORT][/PATH]`.
    ///
    /// # Errors
    ///
    /// That is no registry.
    pub fn at(&self, registry: &str) -> Result<Self, String> {
        let registry = registry.trim_end_matches('/');
        format!("{registry}/{}", self.rest)
            .parse()
            .map_err(|_| format!("{registry:?} is no registry: HOST[:PORT][/PATH]"))
    }
}

impl FromStr for Image {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{text:?} is no image: {why}");
        if text.is_empty() || text.len() > LONGEST {
            return Err(wrong("it is empty or too long"));
        }
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        if let Some(digest) = digest {
            let hex = digest.strip_prefix("sha256:");
            let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            if !hex.is_some_and(|hex| hex.len() == 64 && hex.bytes().all(is_hex)) {
                return Err(wrong("a digest is sha256: and 64 hexadecimal digits"));
            }
        }
        let Some((registry, path)) = name.split_once('/').filter(|(first, _)| is_host(first))
        else {
            return Err(wrong(
                "it names no registry: HOST[:PORT]/NAME@sha256:DIGEST",
            ));
        };
        let (path, tag) = match path.rsplit_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (path, None),
        };
        let is_part = |part: &str| {
            let allowed = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte)
            };
            let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
            part.bytes().all(allowed) && ends(part.bytes().next()) && ends(part.bytes().last())
        };
        if !path.split('/').all(is_part) {
            return Err(wrong("names are of small letters, digits and ._-"));
        }
        let is_tag = |tag: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            (1..=128).contains(&tag.len()) && tag.bytes().all(allowed)
        };
        if !tag.is_none_or(is_tag) {
            return Err(wrong("a tag is of letters, digits and ._-"));
        }
        if tag.is_none() && digest.is_none() {
            return Err(wrong("it has neither digest nor tag"));
        }
        Ok(Self {
            registry: registry.to_owned(),
            rest: text[registry.len() + 1..].to_owned(),
        })
    }
}

/// Tells a registry's host from the first part of a name.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    !host.is_empty()
        && host.bytes().all(allowed)
        && port.is_none_or(is_port)
        && (host.contains('.') || host == "localhost" || port.is_some())
}

impl TryFrom<String> for Image {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Image> for String {
    fn from(image: Image) -> Self {
        image.to_string()
    }
}

impl fmt::Display for Image {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn an_image_has_a_registry_and_a_digest_or_a_tag() {
        let by_digest: Image = format!("registry.example/team/traffic-manager@{DIGEST}")
            .parse()
            .unwrap();
        assert!(by_digest.is_pinned());
        let by_tag: Image = "localhost:5000/traffic-manager:0.1.0".parse().unwrap();
        assert!(!by_tag.is_pinned());
        assert_eq!(by_tag.to_string(), "localhost:5000/traffic-manager:0.1.0");

        for wrong in [
            "",
            "traffic-manager",
            "traffic-manager:0.1.0",
            "team/traffic-manager:0.1.0",
            "registry.example/traffic-manager",
            "registry.example/traffic-manager@sha256:00",
            "registry.example/Traffic:1",
            "registry.example/a//b:1",
            "registry.example/a:b c",
            "https://registry.example/a:1",
            "registry.example:http/a:1",
        ] {
            assert!(wrong.parse::<Image>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn another_registry_keeps_name_and_digest() {
        let image: Image = format!("registry.example/team/traffic-manager:1@{DIGEST}")
            .parse()
            .unwrap();
        let moved = image.at("mirror.corp:5000/hub/").unwrap();
        let expected = format!("mirror.corp:5000/hub/team/traffic-manager:1@{DIGEST}");
        assert_eq!(moved.to_string(), expected);
        for wrong in ["", "hub", "https://mirror.corp", "mirror corp.example"] {
            assert!(image.at(wrong).is_err(), "{wrong}");
        }
    }
}
