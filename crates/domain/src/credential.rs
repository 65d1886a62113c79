//! Credentials of people and scripts over the network: login links that are used once, the cookies
//! that browsers get for them, and tokens.
//!
//! ```text
//!  link ─ used once, within LINK_LIFE ─► cookie, for COOKIE_LIFE   token, until expired or revoked
//! ```
//!
//! Each kind is good for its own purpose only. A link in an `Authorization` header, or a token in a
//! cookie, is refused.

use std::time::Duration;

use super::id::CredentialId;
use super::secret::TokenHash;
use super::time::Timestamp;
use super::words::words;

/// The time for which a login link may be used.
pub const LINK_LIFE: Duration = Duration::from_mins(10);
/// The time for which a browser stays logged in.
pub const COOKIE_LIFE: Duration = Duration::from_hours(30 * 24);
/// The time for which a credential is kept after its end, so that its holder can be told why it is
/// refused.
pub const REMEMBERED: Duration = Duration::from_hours(24);
/// A use is recorded only if the recorded one is older than this, so that not every request is a
/// write.
pub const USE_GRAIN: Duration = Duration::from_mins(5);

words! {
    /// The rights of a person or a script that is logged in.
    pub enum Role as "role" {
        /// Everything.
        Operator = "operator",
        /// Look, and change nothing.
        Viewer = "viewer",
    }
}

words! {
    /// The use of a secret.
    pub enum CredentialKind as "kind of credential" {
        /// For one login, in a browser.
        Link = "link",
        /// A login of a browser, made from a link.
        Cookie = "cookie",
        /// For scripts.
        Token = "token",
    }
}

/// One credential. Only a hash of its secret is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    pub id: CredentialId,
    pub kind: CredentialKind,
    /// The name of the owner, as people write it. It is not unique.
    pub name: String,
    pub role: Role,
    pub secret: TokenHash,
    pub created_at: Timestamp,
    /// The end of its validity. `None` if it is valid until it is revoked.
    pub expires_at: Option<Timestamp>,
    /// The last use, precise to [`USE_GRAIN`].
    pub last_used_at: Option<Timestamp>,
    /// The time when the credential was revoked, logged out, or used up.
    pub revoked_at: Option<Timestamp>,
    pub revision: i64,
}

/// The reason why a login link is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkFault {
    #[error("is not known here")]
    Unknown,
    #[error("was used already, or revoked")]
    Used,
    #[error("has expired")]
    Expired,
}

impl Credential {
    /// Returns whether the credential is valid at `now`.
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && !self.has_expired(now)
    }

    fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Returns why the credential is not a usable login link; `None` if it is one.
    pub fn link_fault(&self, now: Timestamp) -> Option<LinkFault> {
        match self {
            Self { kind: CredentialKind::Cookie | CredentialKind::Token, .. } => {
                Some(LinkFault::Unknown)
            }
            Self { revoked_at: Some(_), .. } => Some(LinkFault::Used),
            _ => self.has_expired(now).then_some(LinkFault::Expired),
        }
    }

    /// Returns whether the credential ended so long ago that it need not be kept.
    pub fn is_forgettable(&self, now: Timestamp) -> bool {
        let ended_at = [self.revoked_at, self.expires_at].into_iter().flatten().min();
        ended_at.is_some_and(|at| now.since(at) > REMEMBERED)
    }

    /// Returns whether a use at `now` must be recorded.
    pub fn is_new_use(&self, now: Timestamp) -> bool {
        self.last_used_at.is_none_or(|last| now.since(last) > USE_GRAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    fn link() -> Credential {
        Credential {
            id: "key_1".parse().unwrap(),
            kind: CredentialKind::Link,
            name: "Ann".to_owned(),
            role: Role::Operator,
            secret: Secret::new("op_x").token_hash(),
            created_at: Timestamp::from_millis(0),
            expires_at: Some(Timestamp::from_millis(1000)),
            last_used_at: None,
            revoked_at: None,
            revision: 1,
        }
    }

    #[track_caller]
    fn check(credential: &Credential, at: i64, expected: Option<LinkFault>) {
        let now = Timestamp::from_millis(at);
        assert_eq!(credential.link_fault(now), expected);
        if credential.kind == CredentialKind::Link {
            assert_eq!(credential.is_good(now), expected.is_none());
        }
    }

    #[test]
    fn a_link_is_good_once_and_for_a_time() {
        check(&link(), 999, None);
        check(&link(), 1000, Some(LinkFault::Expired));
        let used = Credential { revoked_at: Some(Timestamp::from_millis(5)), ..link() };
        check(&used, 6, Some(LinkFault::Used));
        check(&used, 1000, Some(LinkFault::Used));
        check(&Credential { kind: CredentialKind::Token, ..link() }, 1, Some(LinkFault::Unknown));
        check(&Credential { kind: CredentialKind::Cookie, ..link() }, 1, Some(LinkFault::Unknown));
    }

    #[test]
    fn what_has_ended_is_remembered_for_a_while() {
        let at = |after: Duration| Timestamp::from_millis(1000) + after;
        assert!(!link().is_forgettable(at(REMEMBERED)));
        assert!(link().is_forgettable(at(REMEMBERED + Duration::from_millis(1))));
        let endless = Credential { expires_at: None, ..link() };
        assert!(!endless.is_forgettable(at(Duration::from_hours(100_000))));
        let revoked = Credential { revoked_at: Some(Timestamp::from_millis(0)), ..endless };
        assert!(revoked.is_forgettable(at(REMEMBERED)));
    }
}
