//! What the administrator sets with `--egress`, beside the Services that are always there.

use std::fmt;
use std::str::FromStr;

use kubebridge_dns::name::Name;
use kubebridge_proto::cidr::Cidr;

/// One value of `--egress`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// Services of granted namespaces, their endpoints, and what was resolved: the default, and
    /// part of every other setting.
    Services,
    /// Pods on any port.
    Pods,
    /// A range of addresses.
    Range(Cidr),
    /// A suffix whose addresses a session may dial; with one of these, no other suffix.
    Domain(Name),
    /// No suffix outside the cluster at all.
    NoDomain,
    /// A range of addresses that nobody may dial.
    Except(Cidr),
}

/// All values together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Pods on any port.
    pub pods: bool,
    /// Ranges of addresses.
    pub ranges: Vec<Cidr>,
    /// The suffixes whose addresses may be dialled; `None` for those the sessions name.
    pub domains: Option<Vec<Name>>,
    /// Ranges nobody may dial.
    pub except: Vec<Cidr>,
}

impl Rules {
    /// Says whether the addresses of a name outside the cluster may be dialled.
    #[must_use]
    pub fn takes(&self, name: &Name) -> bool {
        match &self.domains {
            None => true,
            Some(domains) => domains.iter().any(|domain| name.ends_with(domain)),
        }
    }

    /// Returns the values that make these rules.
    #[must_use]
    pub fn values(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        if self.pods {
            rules.push(Rule::Pods);
        }
        rules.extend(self.ranges.iter().copied().map(Rule::Range));
        match self.domains.as_deref() {
            None => {}
            Some([]) => rules.push(Rule::NoDomain),
            Some(domains) => rules.extend(domains.iter().cloned().map(Rule::Domain)),
        }
        rules.extend(self.except.iter().copied().map(Rule::Except));
        rules
    }
}

impl FromIterator<Rule> for Rules {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        let mut all = Self::default();
        for rule in rules {
            match rule {
                Rule::Services => {}
                Rule::Pods => all.pods = true,
                Rule::Range(range) => all.ranges.push(range),
                Rule::Domain(name) => all.domains.get_or_insert_default().push(name),
                Rule::NoDomain => drop(all.domains.get_or_insert_default()),
                Rule::Except(range) => all.except.push(range),
            }
        }
        all
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            "expected services, pods, cidr=ADDRESS/PREFIX, domains=SUFFIX, domains=none \
             or except=ADDRESS/PREFIX"
                .to_owned()
        };
        let range = |text: &str| text.parse::<Cidr>().map_err(|error| error.to_string());
        match text.split_once('=') {
            None if text == "services" => Ok(Self::Services),
            None if text == "pods" => Ok(Self::Pods),
            Some(("cidr", text)) => range(text).map(Self::Range),
            Some(("except", text)) => range(text).map(Self::Except),
            Some(("domains", "none")) => Ok(Self::NoDomain),
            Some(("domains", text)) => match text.parse::<Name>() {
                Ok(name) if !name.is_root() => Ok(Self::Domain(name)),
                Ok(_) => Err("a suffix other than the root is needed".to_owned()),
                Err(error) => Err(error.to_string()),
            },
            None | Some(_) => Err(expected()),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Services => formatter.write_str("services"),
            Self::Pods => formatter.write_str("pods"),
            Self::Range(range) => write!(formatter, "cidr={range}"),
            Self::Domain(name) => write!(formatter, "domains={name}"),
            Self::NoDomain => formatter.write_str("domains=none"),
            Self::Except(range) => write!(formatter, "except={range}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Rules {
        texts
            .iter()
            .map(|text| text.parse::<Rule>().unwrap())
            .collect()
    }

    #[test]
    fn values_are_read_and_written_back() {
        let all = rules(&[
            "services",
            "pods",
            "cidr=10.1.2.3/8",
            "cidr=fd00::/8",
            "domains=corp.example",
            "except=10.9.0.0/16",
        ]);
        let texts: Vec<_> = all.values().iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "pods",
                "cidr=10.0.0.0/8",
                "cidr=fd00::/8",
                "domains=corp.example",
                "except=10.9.0.0/16"
            ]
        );
        let again: Vec<&str> = texts.iter().map(String::as_str).collect();
        assert_eq!(rules(&again), all);
        assert_eq!(rules(&["services"]), Rules::default());
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "",
            "all",
            "cidr",
            "cidr=10.0.0.0",
            "domains=.",
            "domains=",
            "pods=1",
            "except=a/8",
        ] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
    }

    #[test]
    fn suffixes_outside_the_cluster_are_those_of_the_sessions_unless_some_are_set() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let db = name("db.corp.example");
        assert!(rules(&[]).takes(&db));
        assert!(rules(&["domains=corp.example"]).takes(&db));
        assert!(!rules(&["domains=other.example"]).takes(&db));
        assert!(!rules(&["domains=none"]).takes(&db));
        assert!(!rules(&["domains=orp.example"]).takes(&db));
    }
}
