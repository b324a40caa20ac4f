//! Spellings by which a name of ours is recognised when it comes back (0x20). Pure.
//!
//! Forwarders mostly keep the case of names. A spelling says something only when nobody else would
//! have chosen it: names with few letters are not tagged at all.

use rand::Rng;

use crate::name::Name;

/// Fewer letters have fewer than 4,096 spellings, and some asker's own may be among them.
pub(crate) const FEWEST_LETTERS: usize = 12;
/// In how many letters a tag differs from each waiter's spelling: resolvers on the way that change
/// one letter or the first of each label do not make one of the other.
pub(crate) const FEWEST_DIFFERENCES: usize = 4;
/// One draw in fourteen is too near to a spelling that must be avoided; with a few of them, this
/// many draws fail once in billions.
const DRAWS: usize = 16;

/// Draws a spelling of `name` that differs from `avoid` and is neither all lower nor all upper case;
/// `None` for a name with too few letters.
pub(crate) fn tagged(name: &Name, avoid: &Name, random: &mut impl Rng) -> Option<Name> {
    if letters(name.as_wire()) < FEWEST_LETTERS {
        return None;
    }
    (0..DRAWS)
        .map(|_| drawn(name.as_wire(), random))
        .find(|wire| is_mixed(wire) && differences(wire, avoid.as_wire()) >= FEWEST_DIFFERENCES)
        .and_then(|wire| Name::from_wire(&wire).ok())
}

/// Says whether a spelling could be a tag: it has letters of both cases. Asked of every query, so
/// that all common spellings cost nothing more.
pub(crate) fn is_mixed(wire: &[u8]) -> bool {
    wire.iter().any(u8::is_ascii_uppercase) && wire.iter().any(u8::is_ascii_lowercase)
}

/// Length octets are at most 63, so none looks like a letter.
fn letters(wire: &[u8]) -> usize {
    wire.iter()
        .filter(|octet| octet.is_ascii_alphabetic())
        .count()
}

fn drawn(wire: &[u8], random: &mut impl Rng) -> Vec<u8> {
    let mut bits = 0u64;
    let mut left = 0;
    let mut flip = || {
        if left == 0 {
            (bits, left) = (random.random(), u64::BITS);
        }
        left -= 1;
        bits >> left & 1 == 1
    };
    let spelled = wire.iter().map(|octet| match octet {
        b'a'..=b'z' | b'A'..=b'Z' if flip() => octet ^ 0x20,
        _ => *octet,
    });
    spelled.collect()
}

fn differences(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).filter(|(a, b)| a != b).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn loops_09_names_of_fewer_than_twelve_letters_are_not_tagged() {
        let mut random = StdRng::seed_from_u64(1);
        for (text, tagged_) in [
            (".", false),
            ("github.com", false),
            ("www.shop.de", false),
            ("abcde.fghijk", false),
            ("abcdef.ghijkl", true),
            ("1.0.96.10.in-addr.arpa", false),
            ("authors.default.svc.cluster.local", true),
            ("a1b2c3d4e5f6g7h8i9j0k.l", true),
        ] {
            let asked = name(text);
            assert_eq!(
                tagged(&asked, &asked, &mut random).is_some(),
                tagged_,
                "{text}"
            );
        }
    }

    #[test]
    fn common_spellings_are_no_tags() {
        for (text, mixed) in [
            ("authors.default.svc", false),
            ("AUTHORS.DEFAULT.SVC", false),
            ("Authors.default.svc", true),
            ("10.96", false),
        ] {
            assert_eq!(is_mixed(name(text).as_wire()), mixed, "{text}");
        }
    }

    proptest! {
        #[test]
        fn loops_10_a_tag_is_the_same_name_in_a_spelling_of_nobody_else(
            text in "[a-z0-9]{1,20}\\.[a-z]{6,20}\\.[a-z]{6,20}",
            spelling: u64,
            seed: u64,
        ) {
            let asked = name(&text);
            let own = drawn(asked.as_wire(), &mut StdRng::seed_from_u64(spelling));
            let own = Name::from_wire(&own).unwrap();
            let tag = tagged(&asked, &own, &mut StdRng::seed_from_u64(seed)).unwrap();
            prop_assert_eq!(&tag, &asked);
            prop_assert!(differences(tag.as_wire(), own.as_wire()) >= FEWEST_DIFFERENCES);
            prop_assert!(is_mixed(tag.as_wire()));
        }
    }
}
