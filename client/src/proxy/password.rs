//! The password of a session's proxy.

use std::fmt;

/// What a client of the proxy has to know. Its `Debug` does not tell.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

/// The user's name that goes with it: everybody's, as the password alone counts.
pub(crate) const USER: &str = "kubebridge";

impl Password {
    /// Makes one of 128 random bits.
    #[must_use]
    pub fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()))
    }

    /// Takes one that was made before.
    #[must_use]
    pub fn known(text: String) -> Self {
        Self(text)
    }

    /// The text, for the one who may connect.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether a user's name and password are the right ones; how long that takes says nothing.
    pub(crate) fn admits(&self, user: &[u8], password: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differing = own
            .iter()
            .zip(password)
            .fold(0, |sum, (own, given)| sum | (own ^ given));
        user == USER.as_bytes() && own.len() == password.len() && differing == 0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Password(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_password_is_right_and_it_is_never_shown() {
        let password = Password::known("0123abcd".to_owned());
        for (user, given, admitted) in [
            ("kubebridge", "0123abcd", true),
            ("kubebridge", "0123abce", false),
            ("kubebridge", "0123abc", false),
            ("kubebridge", "0123abcd0", false),
            ("kubebridge", "", false),
            ("root", "0123abcd", false),
        ] {
            assert_eq!(password.admits(user.as_bytes(), given.as_bytes()), admitted);
        }
        assert_eq!(format!("{password:?}"), "Password(..)");
        assert_ne!(Password::random(), Password::random());
        assert_eq!(Password::random().reveal().len(), 32);
    }
}
