//! Secret texts: passkeys, tickets, tokens. `Debug` hides them, `reveal` is easy to find, and the
//! memory is wiped when they are dropped.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The prefix of session tokens. Redaction knows the prefixes of all tokens that this program
/// issues.
pub const SESSION_TOKEN_PREFIX: &str = "sess_";
/// The prefix of the token of a session that was opened on the Unix socket. Programs that know only
/// [`SESSION_TOKEN_PREFIX`] take it for any other session token.
pub const SOCKET_SESSION_TOKEN_PREFIX: &str = "sess_socket_";
pub const TICKET_PREFIX: &str = "tkt_";
pub const COORDINATOR_TOKEN_PREFIX: &str = "coord_";
pub const OPERATOR_TOKEN_PREFIX: &str = "op_";

/// The number of hexadecimal digits of a derived token: 160 bits.
const DERIVED_LENGTH: usize = 40;

/// A text that no log, error or argument list may show.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(SecretString::from(text.into()))
    }

    /// Returns the text itself. Each use is a place where a secret could leak.
    pub fn reveal(&self) -> &str {
        self.0.expose_secret()
    }

    /// Returns a token that only a holder of this secret can make. It is always the same for the
    /// same text. The hash is nested, so that the hash of a text cannot be extended to that of a
    /// longer text.
    pub fn derive(&self, prefix: &str, text: &str) -> Self {
        let keyed = |bytes: &[u8]| {
            Sha256::new().chain_update(self.reveal().as_bytes()).chain_update(bytes).finalize()
        };
        let mut token = hex(&keyed(&keyed(text.as_bytes())));
        token.truncate(DERIVED_LENGTH);
        Self::new(format!("{prefix}{token}"))
    }

    /// Returns the hash of a random token that a store keeps. It is enough to recognize the token,
    /// but not to use it.
    pub fn token_hash(&self) -> TokenHash {
        TokenHash(hex(&Sha256::digest(self.reveal().as_bytes())))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.reveal().as_bytes().ct_eq(other.reveal().as_bytes()).into()
    }
}

impl Eq for Secret {}

/// SHA-256 of a random token (at least 128 bits), in hexadecimal. It has no salt, because a random
/// token cannot be guessed from it.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct TokenHash(String);

impl TokenHash {
    /// Returns the hash that [`TokenHash::as_str`] gave. It is for stores.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The salted hash of a passkey, which a person may have chosen: `sha256$<salt>$<hash>`,
/// hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PasskeyHash(String);

impl PasskeyHash {
    pub fn new(passkey: &Secret, salt: [u8; 16]) -> Self {
        let salt = hex(&salt);
        let hash = salted(&salt, passkey);
        Self(format!("sha256${salt}${hash}"))
    }

    /// Returns the hash that [`PasskeyHash::as_str`] gave. It is for stores.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether `passkey` is the one that was hashed. It takes the same time either way.
    pub fn is_of(&self, passkey: &Secret) -> bool {
        let mut parts = self.0.split('$');
        let salt = parts.nth(1).unwrap_or_default();
        let hash = parts.next().unwrap_or_default();
        salted(salt, passkey).as_bytes().ct_eq(hash.as_bytes()).into()
    }

    /// Does the same work as [`PasskeyHash::is_of`] for an agent that does not exist, so that the
    /// time does not reveal it.
    pub fn none_is_of(passkey: &Secret) -> bool {
        Self(format!("sha256${}${}", "0".repeat(32), "0".repeat(64))).is_of(passkey)
    }
}

fn salted(salt: &str, passkey: &Secret) -> String {
    let mut hasher = Sha256::new();
    hasher.update(salt.as_bytes());
    hasher.update(passkey.reveal().as_bytes());
    hex(&hasher.finalize())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passkey_is_recognised_by_its_hash_only() {
        let hash = PasskeyHash::new(&Secret::new("open sesame"), [7; 16]);
        assert!(hash.is_of(&Secret::new("open sesame")));
        assert!(!hash.is_of(&Secret::new("open sesame ")));
        assert!(!hash.as_str().contains("sesame"));
        assert_ne!(hash, PasskeyHash::new(&Secret::new("open sesame"), [8; 16]));
        assert!(!PasskeyHash::none_is_of(&Secret::new("")));
    }

    #[test]
    fn a_derived_token_is_the_same_again_and_another_for_another_text_or_key() {
        let key = Secret::new("a key");
        let token = key.derive(TICKET_PREFIX, "lch_1");
        assert_eq!(token, key.derive(TICKET_PREFIX, "lch_1"));
        assert_ne!(token, key.derive(TICKET_PREFIX, "lch_2"));
        assert_ne!(token, Secret::new("another").derive(TICKET_PREFIX, "lch_1"));
        assert_eq!(token.reveal().len(), TICKET_PREFIX.len() + DERIVED_LENGTH);
    }

    #[test]
    fn a_secret_does_not_print_itself() {
        assert_eq!(format!("{:?}", Secret::new("hush")), "Secret(..)");
    }
}
