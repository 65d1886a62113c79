//! Credentials of people and scripts. The store has the hash of each secret.

use crate::domain::secret::TokenHash;
use crate::domain::{Credential, CredentialId};
use crate::store::{BoxError, Cells, Entity, Read, StoreError, Value};

use super::audit::{Audited, Fields, plain};
use super::{Transaction, Wake};

impl Entity for Credential {
    const NAME: &'static str = "credential";
    const TABLE: &'static str = "credentials";
    const COLUMNS: &'static str =
        "id, kind, name, role, secret_hash, created_at, expires_at, last_used_at, revoked_at";

    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError> {
        Ok(Self {
            id: cells.get()?,
            kind: cells.get()?,
            name: cells.get()?,
            role: cells.get()?,
            secret: cells.get()?,
            created_at: cells.get()?,
            expires_at: cells.get()?,
            last_used_at: cells.get()?,
            revoked_at: cells.get()?,
            revision: cells.get()?,
        })
    }

    fn values(&self) -> Vec<Value<'_>> {
        vec![
            (&self.id).into(),
            self.kind.into(),
            (&self.name).into(),
            self.role.into(),
            (&self.secret).into(),
            self.created_at.into(),
            self.expires_at.into(),
            self.last_used_at.into(),
            self.revoked_at.into(),
        ]
    }

    fn revision(&self) -> i64 {
        self.revision
    }
}

impl Audited for Credential {
    fn shown(&self) -> Fields {
        Fields::from([
            ("kind", plain(self.kind)),
            ("name", plain(&self.name)),
            ("role", plain(self.role)),
            ("expires_at", plain(self.expires_at)),
            ("revoked_at", plain(self.revoked_at)),
        ])
    }
}

pub fn get(tx: &mut Read<'_>, id: &CredentialId) -> Result<Option<Credential>, StoreError> {
    tx.find("WHERE id = ?1", &[id.into()])
}

/// Returns the newest credential with this secret, whether it is valid or not.
pub fn find_by_secret(
    tx: &mut Read<'_>,
    secret: &TokenHash,
) -> Result<Option<Credential>, StoreError> {
    let rest = "WHERE secret_hash = ?1 ORDER BY created_at DESC, id DESC LIMIT 1";
    tx.find(rest, &[secret.into()])
}

/// Returns all credentials by creation, then id.
pub fn list(tx: &mut Read<'_>) -> Result<Vec<Credential>, StoreError> {
    tx.list("ORDER BY created_at, id", &[])
}

/// Forgets a credential, if it exists.
pub fn forget(tx: &mut Transaction<'_>, id: &CredentialId) -> Result<(), StoreError> {
    tx.execute("DELETE FROM credentials WHERE id = ?1", &[id.into()]).map(drop)
}

/// Writes a credential.
pub fn put(tx: &mut Transaction<'_>, credential: &Credential) -> Result<(), StoreError> {
    tx.replace_audited(credential, &credential.id, |tx| get(tx, &credential.id))?;
    tx.wake(Wake::Credential(credential.id.clone()));
    Ok(())
}
