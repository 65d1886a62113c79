//! The ways in for people and scripts: one makes a login link, a browser uses it up for a cookie, scripts get tokens, and all of
//! it is listed and taken back. A secret is told once, to whoever asked for it; the store has its hash.

use std::time::Duration;

use tokio::time::Instant;

use crate::domain::credential::{COOKIE_LIFE, CredentialKind, LINK_LIFE, LinkFault, Role};
use crate::domain::secret::OPERATOR_TOKEN_PREFIX;
use crate::domain::{Credential, CredentialId, Refusal, Secret, Timestamp, limits};
use crate::nudge::sleep_until;
use crate::store::{Change, Commit, CommitError, StoreError};

use super::{Service, ServiceError};

/// A credential that was just made, with what only its bearer is to know.
#[derive(Debug, Clone)]
pub struct MadeCredential {
    pub credential: Credential,
    pub secret: Secret,
}

impl Service {
    /// Makes a link by which one browser may come in, within [`LINK_LIFE`].
    ///
    /// # Errors
    /// The refusals of [`limits`].
    pub async fn make_link(&self, name: &str, role: Role) -> Result<MadeCredential, ServiceError> {
        let expires_at = self.now() + LINK_LIFE;
        self.make_credential(CredentialKind::Link, name, role, Some(expires_at)).await
    }

    /// Makes a token for a script, good for `life`, or until it is revoked.
    ///
    /// # Errors
    /// The refusals of [`limits`].
    pub async fn make_token(
        &self,
        name: &str,
        role: Role,
        life: Option<Duration>,
    ) -> Result<MadeCredential, ServiceError> {
        let expires_at = life.map(|life| self.now() + life);
        self.make_credential(CredentialKind::Token, name, role, expires_at).await
    }

    async fn make_credential(
        &self,
        kind: CredentialKind,
        name: &str,
        role: Role,
        expires_at: Option<Timestamp>,
    ) -> Result<MadeCredential, ServiceError> {
        let name = limits::NAME.take(name)?;
        let made = self.new_credential(kind, &name, role, expires_at);
        let changes = vec![Change::Credential(made.credential.clone())];
        self.transact(|| async {
            Ok((Commit { expect: Vec::new(), changes: changes.clone() }, ()))
        })
        .await?;
        Ok(made)
    }

    fn new_credential(
        &self,
        kind: CredentialKind,
        name: &str,
        role: Role,
        expires_at: Option<Timestamp>,
    ) -> MadeCredential {
        let secret = self.world.new_token(OPERATOR_TOKEN_PREFIX);
        let credential = Credential {
            id: self.world.new_id(CredentialId::PREFIX),
            kind,
            name: name.to_owned(),
            role,
            secret: secret.token_hash(),
            created_at: self.now(),
            expires_at,
            last_used_at: None,
            revoked_at: None,
            revision: 0,
        };
        MadeCredential { credential, secret }
    }

    /// What is wrong with a login link, if anything. Uses nothing up.
    ///
    /// # Errors
    /// `LinkNotValid`.
    pub async fn look_at_link(&self, link: &Secret) -> Result<Credential, ServiceError> {
        let found = self.store.credential_by_secret(&link.token_hash()).await?;
        let fault =
            found.as_ref().map_or(Some(LinkFault::Unknown), |link| link.link_fault(self.now()));
        match (found, fault) {
            (Some(link), None) => Ok(link),
            (_, fault) => Err(Refusal::LinkNotValid(fault.unwrap_or(LinkFault::Unknown)).into()),
        }
    }

    /// Uses a login link up: a cookie for it. Of two who use the same link at once, one gets in.
    ///
    /// # Errors
    /// `LinkNotValid`.
    pub async fn use_link(&self, link: &Secret) -> Result<MadeCredential, ServiceError> {
        self.transact(|| async move {
            let link = self.look_at_link(link).await?;
            let now = self.now();
            let made = self.new_credential(
                CredentialKind::Cookie,
                &link.name,
                link.role,
                Some(now + COOKIE_LIFE),
            );
            let used = Credential { revoked_at: Some(now), last_used_at: Some(now), ..link };
            let changes =
                vec![Change::Credential(used), Change::Credential(made.credential.clone())];
            Ok((Commit { expect: Vec::new(), changes }, made))
        })
        .await
    }

    /// Who shows `secret`; `None` for nobody who may come in by this `kind`. Found by its hash: how long that takes says nothing
    /// about the secret.
    pub async fn credential_of(
        &self,
        kind: CredentialKind,
        secret: &Secret,
    ) -> Result<Option<Credential>, ServiceError> {
        let now = self.now();
        let found = self.store.credential_by_secret(&secret.token_hash()).await?;
        let Some(credential) = found.filter(|found| found.kind == kind && found.is_good(now))
        else {
            return Ok(None);
        };
        if credential.is_new_use(now) {
            let used = Credential { last_used_at: Some(now), ..credential.clone() };
            match self
                .commit(Commit { expect: Vec::new(), changes: vec![Change::Credential(used)] })
                .await
            {
                // Another request of the same bearer has written it, or it was revoked just now: the next request will see.
                Ok(()) | Err(CommitError::Outdated { .. } | CommitError::OpenLaunch { .. }) => {}
                // Who can be let in is let in, also where nothing can be written.
                Err(CommitError::Store(StoreError::Unavailable { .. })) => {}
                Err(CommitError::Store(error)) => return Err(error.into()),
            }
        }
        Ok(Some(credential))
    }

    /// Returns when nobody may come in by this credential any more, or when that can't be told. Cancel-safe.
    pub async fn credential_ended(&self, id: &CredentialId) {
        let mut changed = self.waiting.credentials.listen(id.clone());
        while let Ok(Some(credential)) = self.store.credential(id).await
            && credential.is_good(self.now())
        {
            let expires_at = credential.expires_at.map(|at| Instant::now() + at.since(self.now()));
            tokio::select! {
                () = changed.woken() => {}
                () = sleep_until(expires_at) => {}
            }
        }
    }

    /// All by which somebody may come in now, by creation.
    pub async fn credentials(&self) -> Result<Vec<Credential>, ServiceError> {
        let now = self.now();
        let all = self.store.credentials().await?;
        Ok(all.into_iter().filter(|credential| credential.is_good(now)).collect())
    }

    /// Makes a credential good for nothing. Repeating it changes nothing.
    ///
    /// # Errors
    /// `CredentialNotFound`.
    pub async fn revoke_credential(&self, id: &CredentialId) -> Result<Credential, ServiceError> {
        self.transact(|| async move {
            let found = self.store.credential(id).await?;
            let before =
                found.ok_or_else(|| Refusal::CredentialNotFound { credential: id.clone() })?;
            let after = Credential {
                revoked_at: Some(before.revoked_at.unwrap_or(self.now())),
                ..before.clone()
            };
            let changes =
                if after == before { Vec::new() } else { vec![Change::Credential(after.clone())] };
            Ok((Commit { expect: Vec::new(), changes }, after))
        })
        .await
    }

    /// Forgets what has ended and nobody asks for any more.
    pub(super) async fn forget_credentials(&self) -> Result<(), ServiceError> {
        let now = self.now();
        let all = self.store.credentials().await?;
        let old = all.into_iter().filter(|credential| credential.is_forgettable(now));
        let changes: Vec<Change> =
            old.map(|credential| Change::ForgetCredential(credential.id)).collect();
        self.transact(|| async {
            Ok((Commit { expect: Vec::new(), changes: changes.clone() }, ()))
        })
        .await
    }
}
