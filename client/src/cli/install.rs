//! The options of what installs: the same for `install`, `upgrade` and `manifest`.

use std::time::Duration;

use clap::Args;
use clap::builder::{BoolishValueParser, FalseyValueParser};

use super::values::Namespace;
use crate::install::image::Image;

/// What is installed.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct InstallationArgs {
    /// Let the manager read the Services of every namespace, by a ClusterRole
    #[arg(
        long,
        env = "KUBEBRIDGE_ALL_NAMESPACES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL",
        value_parser = BoolishValueParser::new()
    )]
    pub all_namespaces: Option<bool>,
    /// How many managers
    #[arg(
        long,
        value_name = "N",
        env = "KUBEBRIDGE_REPLICAS",
        value_parser = clap::value_parser!(u8).range(1..=5)
    )]
    pub replicas: Option<u8>,
    /// Image of the manager, best by digest: REGISTRY/NAME@sha256:DIGEST
    #[arg(long, value_name = "IMAGE", env = "KUBEBRIDGE_IMAGE")]
    pub image: Option<Image>,
    /// Registry to take the image from in place of its own: HOST:PORT/PATH, of which only HOST is needed
    #[arg(long, value_name = "REGISTRY", env = "KUBEBRIDGE_REGISTRY")]
    pub registry: Option<String>,
    /// Secret in the manager's namespace to pull the image with (repeatable)
    #[arg(
        long = "image-pull-secret",
        value_name = "NAME",
        env = "KUBEBRIDGE_IMAGE_PULL_SECRET",
        value_delimiter = ','
    )]
    pub image_pull_secrets: Vec<String>,
    /// Offer the manager's DNS to pods, by a Service
    #[arg(
        long,
        env = "KUBEBRIDGE_DNS_SERVICE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL",
        value_parser = BoolishValueParser::new()
    )]
    pub dns_service: Option<bool>,
    /// Secret with tls.crt, tls.key and ca.crt, for gRPC on the network; empty for none
    #[arg(long, value_name = "NAME", env = "KUBEBRIDGE_TLS_SECRET")]
    pub tls_secret: Option<String>,
    /// User who may open sessions (repeatable)
    #[arg(
        long = "allow-user",
        value_name = "USER",
        env = "KUBEBRIDGE_ALLOW_USER",
        value_delimiter = ','
    )]
    pub users: Vec<String>,
    /// Group whose members may open sessions (repeatable)
    #[arg(
        long = "allow-group",
        value_name = "GROUP",
        env = "KUBEBRIDGE_ALLOW_GROUP",
        value_delimiter = ','
    )]
    pub groups: Vec<String>,
}

/// Options of `install` and `upgrade`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct InstallArgs {
    /// What is installed.
    #[command(flatten)]
    pub installation: InstallationArgs,
    /// Show what would change, as the API server sees it, and change nothing
    #[arg(long, env = "KUBEBRIDGE_DRY_RUN", value_parser = FalseyValueParser::new())]
    pub dry_run: bool,
    /// Take over objects that belong to somebody else
    #[arg(long, env = "KUBEBRIDGE_FORCE", value_parser = FalseyValueParser::new())]
    pub force: bool,
    /// How long to wait until the managers are ready: 90s, 5m, or 0s for not at all
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "2m",
        env = "KUBEBRIDGE_WAIT",
        value_parser = duration
    )]
    pub wait: Duration,
}

/// Options of `uninstall`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct UninstallArgs {
    /// Show what would be removed, and remove nothing
    #[arg(long, env = "KUBEBRIDGE_DRY_RUN", value_parser = FalseyValueParser::new())]
    pub dry_run: bool,
    /// Remove also what belongs to somebody else by now
    #[arg(long, env = "KUBEBRIDGE_FORCE", value_parser = FalseyValueParser::new())]
    pub force: bool,
    /// How long to wait until all is gone: 90s, 5m, or 0s for not at all
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "2m",
        env = "KUBEBRIDGE_WAIT",
        value_parser = duration
    )]
    pub wait: Duration,
}

/// Options of `manifest`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct ManifestArgs {
    /// What is installed.
    #[command(flatten)]
    pub installation: InstallationArgs,
}

impl InstallationArgs {
    /// What the options say, with the namespaces of the program.
    #[must_use]
    pub fn wishes(&self, namespaces: &[Namespace]) -> crate::install::settings::Wishes {
        use crate::install::settings::{Scope, Wishes};
        let Self {
            all_namespaces,
            replicas,
            image,
            registry,
            image_pull_secrets,
            dns_service,
            tls_secret,
            users,
            groups,
        } = self;
        let scope = all_namespaces.map(|all| match all {
            true => Scope::ClusterWide,
            false => Scope::Namespaced,
        });
        Wishes {
            namespaces: namespaces.iter().map(ToString::to_string).collect(),
            scope,
            replicas: *replicas,
            image: image.clone(),
            registry: registry.clone(),
            image_pull_secrets: image_pull_secrets.clone(),
            dns_service: *dns_service,
            tls_secret: tls_secret.clone(),
            users: users.clone(),
            groups: groups.clone(),
        }
    }
}

/// The longest wait: more is a misunderstanding.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Reads `90s` or `5m`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: 90s, 5m, at most 60m");
    let (number, unit) = match (text.strip_suffix('s'), text.strip_suffix('m')) {
        (Some(number), _) => (number, 1),
        (None, Some(number)) => (number, 60),
        (None, None) => return Err(wrong()),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    let read = Duration::from_secs(u64::from(number) * unit);
    if read > LONGEST_WAIT {
        return Err(wrong());
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_in_seconds_or_minutes() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        for wrong in ["", "5", "-1s", "1h", "61m", "1.5s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    fn wishes(arguments: &[&str], file: &str) -> crate::install::settings::Wishes {
        let mut config = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut config, file.as_bytes()).unwrap();
        let path = config.path().to_str().unwrap();
        let all = ["kubebridge", "upgrade", "--config", path];
        let all = all
            .iter()
            .chain(arguments)
            .map(Into::into)
            .collect::<Vec<_>>();
        let super::super::Parsed::Run(cli) = super::super::parse(&all).unwrap() else {
            panic!("it is text")
        };
        let super::super::Command::Upgrade(install) = cli.command else {
            panic!("{:?}", cli.command)
        };
        install.installation.wishes(&cli.global.namespaces)
    }

    #[test]
    fn a_switch_says_yes_no_or_nothing() {
        let dns = |arguments: &[&str], file: &str| wishes(arguments, file).dns_service;
        assert_eq!(dns(&[], ""), None);
        assert_eq!(dns(&["--dns-service"], ""), Some(true));
        assert_eq!(dns(&["--dns-service=false"], ""), Some(false));
        assert_eq!(dns(&[], "dns-service: true\n"), Some(true));
        assert_eq!(dns(&[], "dns-service: false\n"), Some(false));
        assert_eq!(
            dns(&["--dns-service=false"], "dns-service: true\n"),
            Some(false)
        );
    }

    #[test]
    fn the_file_may_say_what_flags_say() {
        let said = wishes(
            &["-n", "shop"],
            "replicas: 3\nallow-group: [team, other]\nimage: registry.example/m:1\nall-namespaces: true\n",
        );
        assert_eq!(said.namespaces, ["shop"]);
        assert_eq!(said.replicas, Some(3));
        assert_eq!(said.groups, ["team", "other"]);
        assert_eq!(
            said.scope,
            Some(crate::install::settings::Scope::ClusterWide)
        );
        assert_eq!(said.image.unwrap().to_string(), "registry.example/m:1");
    }
}
