//! The credentials of people and scripts. A person makes a login link, a browser exchanges it for a
//! cookie, and scripts get tokens. All of them can be listed and revoked.
//!
//! The server shows a secret once, to the caller that asked for it. The store has its hash.

use std::sync::Arc;
use std::time::Duration;

use domain::credential::{COOKIE_LIFE, CredentialKind, LINK_LIFE, LinkFault, Role};
use domain::secret::OPERATOR_TOKEN_PREFIX;
use domain::{Credential, CredentialId, Refusal, Secret, Timestamp, limits};
use runtime::clock;
use runtime::nudge::{Nudges, sleep_until};
use store::StoreError;
use store::rows::{Transaction, credentials};

use super::core::Core;
use super::{ServiceError, Shared};

/// The credentials of people and scripts: links, cookies and tokens.
pub struct Credentials {
    core: Arc<Core>,
    /// Woken by each change of a credential.
    changed: Nudges<CredentialId>,
}

/// A new credential with the secret that only its bearer may know.
#[derive(Debug, Clone)]
pub struct MadeCredential {
    pub credential: Credential,
    pub secret: Secret,
}

impl Credentials {
    pub(super) fn new(shared: Shared) -> Self {
        let Shared { core, waiting, .. } = shared;
        Self { core, changed: waiting.credentials }
    }

    /// Creates a link with which one browser can log in, within [`LINK_LIFE`].
    ///
    /// # Errors
    /// The refusals of [`limits`].
    pub async fn make_link(&self, name: &str, role: Role) -> Result<MadeCredential, ServiceError> {
        let expires_at = self.core.now() + LINK_LIFE;
        self.make(CredentialKind::Link, name, role, Some(expires_at)).await
    }

    /// Creates a token for a script, valid for `life`, or until it is revoked.
    pub async fn make_token(
        &self,
        name: &str,
        role: Role,
        life: Option<Duration>,
    ) -> Result<MadeCredential, ServiceError> {
        let expires_at = life.map(|life| self.core.now() + life);
        self.make(CredentialKind::Token, name, role, expires_at).await
    }

    async fn make(
        &self,
        kind: CredentialKind,
        name: &str,
        role: Role,
        expires_at: Option<Timestamp>,
    ) -> Result<MadeCredential, ServiceError> {
        let name = limits::NAME.take(name)?.into_owned();
        let secret = self.new_secret();
        self.core.write(move |tx| Ok(add(tx, kind, &name, role, &secret, expires_at)?)).await
    }

    fn new_secret(&self) -> Secret {
        self.core.world.new_token(OPERATOR_TOKEN_PREFIX)
    }

    /// Returns the problem of a login link, if it has one. The link is not used up.
    ///
    /// # Errors
    /// `LinkNotValid`.
    pub async fn look_at_link(&self, link: &Secret) -> Result<Credential, ServiceError> {
        let link = link.token_hash();
        let now = self.core.now();
        self.core
            .read(move |tx| Ok(checked_link(credentials::find_by_secret(tx, &link)?, now)?))
            .await
    }

    /// Exchanges a login link for a cookie. If two browsers use the same link at once, one
    /// succeeds.
    ///
    /// # Errors
    /// `LinkNotValid`.
    pub async fn use_link(&self, link: &Secret) -> Result<MadeCredential, ServiceError> {
        let link = link.token_hash();
        let secret = self.new_secret();
        self.core
            .write(move |tx| {
                let found = credentials::find_by_secret(tx, &link)?;
                let now = tx.now();
                let link = checked_link(found, now)?;
                let kind = CredentialKind::Cookie;
                let expires_at = Some(now + COOKIE_LIFE);
                let name = link.name.clone();
                let role = link.role;
                let used = Credential { revoked_at: Some(now), last_used_at: Some(now), ..link };
                credentials::put(tx, &used)?;
                Ok(add(tx, kind, &name, role, &secret, expires_at)?)
            })
            .await
    }

    /// Returns the credential of `secret`; `None` if no valid credential of this `kind` has it. The
    /// credential is found by its hash, so the time of the search reveals nothing about the secret.
    pub async fn find(
        &self,
        kind: CredentialKind,
        secret: &Secret,
    ) -> Result<Option<Credential>, ServiceError> {
        let secret = secret.token_hash();
        let now = self.core.now();
        let found = self.core.read(move |tx| Ok(credentials::find_by_secret(tx, &secret)?)).await?;
        let Some(credential) = found.filter(|found| found.kind == kind && found.is_good(now))
        else {
            return Ok(None);
        };
        if credential.is_new_use(now) {
            match self.note_use(credential.id.clone()).await {
                // A valid credential is accepted even if the store cannot be written.
                Ok(()) | Err(ServiceError::Store(StoreError::Unavailable { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(credential))
    }

    async fn note_use(&self, id: CredentialId) -> Result<(), ServiceError> {
        self.core
            .write(move |tx| {
                let now = tx.now();
                // Another request of the same bearer may have noted the use. If the credential was
                // revoked just now, the next request sees that.
                let is_news = |found: &Credential| found.is_good(now) && found.is_new_use(now);
                if let Some(found) = credentials::get(tx, &id)?.filter(is_news) {
                    credentials::put(tx, &Credential { last_used_at: Some(now), ..found })?;
                }
                Ok(())
            })
            .await
    }

    /// Returns when this credential is not valid any more, or when the store cannot be read.
    /// Cancel-safe.
    pub async fn ended(&self, id: &CredentialId) {
        let mut changed = self.changed.listen(id.clone());
        let look = || {
            let id = id.clone();
            self.core.read(move |tx| Ok(credentials::get(tx, &id)?))
        };
        while let Ok(Some(credential)) = look().await
            && credential.is_good(self.core.now())
        {
            let expires_at =
                credential.expires_at.map(|at| clock::now() + at.since(self.core.now()));
            tokio::select! {
                () = changed.woken() => {}
                () = sleep_until(expires_at) => {}
            }
        }
    }

    /// Returns all valid credentials, by creation.
    pub async fn list(&self) -> Result<Vec<Credential>, ServiceError> {
        let now = self.core.now();
        self.core
            .read(move |tx| {
                let mut all = credentials::list(tx)?;
                all.retain(|credential| credential.is_good(now));
                Ok(all)
            })
            .await
    }

    /// Revokes a credential. Repeating it changes nothing.
    ///
    /// # Errors
    /// `CredentialNotFound`.
    pub async fn revoke(&self, id: &CredentialId) -> Result<Credential, ServiceError> {
        let id = id.clone();
        self.core
            .write(move |tx| {
                let found = credentials::get(tx, &id)?;
                let before =
                    found.ok_or_else(|| Refusal::CredentialNotFound { credential: id.clone() })?;
                let revoked_at = Some(before.revoked_at.unwrap_or(tx.now()));
                let after = Credential { revoked_at, ..before.clone() };
                if after != before {
                    credentials::put(tx, &after)?;
                }
                Ok(after)
            })
            .await
    }
}

/// Deletes ended credentials that are old enough to be forgotten.
pub(super) async fn forget_old(core: &Core) -> Result<(), ServiceError> {
    let now = core.now();
    let mut old = core.read(|tx| Ok(credentials::list(tx)?)).await?;
    old.retain(|credential| credential.is_forgettable(now));
    if old.is_empty() {
        return Ok(());
    }
    core.write(move |tx| {
        for credential in &old {
            credentials::forget(tx, &credential.id)?;
        }
        Ok(())
    })
    .await
}

/// Adds a credential with this secret.
fn add(
    tx: &mut Transaction<'_>,
    kind: CredentialKind,
    name: &str,
    role: Role,
    secret: &Secret,
    expires_at: Option<Timestamp>,
) -> Result<MadeCredential, StoreError> {
    let credential = Credential {
        id: tx.new_id(CredentialId::PREFIX),
        kind,
        name: name.to_owned(),
        role,
        secret: secret.token_hash(),
        created_at: tx.now(),
        expires_at,
        last_used_at: None,
        revoked_at: None,
        revision: 0,
    };
    credentials::put(tx, &credential)?;
    Ok(MadeCredential { credential, secret: secret.clone() })
}

/// Returns the link, unless something is wrong with it.
fn checked_link(found: Option<Credential>, now: Timestamp) -> Result<Credential, Refusal> {
    let Some(link) = found else {
        return Err(Refusal::LinkNotValid(LinkFault::Unknown));
    };
    match link.link_fault(now) {
        Some(fault) => Err(Refusal::LinkNotValid(fault)),
        None => Ok(link),
    }
}
