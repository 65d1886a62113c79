//! Accounts behind providers that were parked. An account without a row has nothing to remember.

use crate::domain::Account;
use crate::domain::account::{Parked, Probe};
use crate::store::{BoxError, Cells, Entity, Read, StoreError, Value};

impl Entity for Account {
    const NAME: &'static str = "account";
    const TABLE: &'static str = "accounts";
    const COLUMNS: &'static str = "ai_type, parked_class, parked_since, parked_until, n_parked, \
        probe_launch_id, probe_at";

    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError> {
        let ai_type = cells.get()?;
        let parked = read_parked(cells)?;
        Ok(Self { ai_type, parked, revision: cells.get()? })
    }

    fn values(&self) -> Vec<Value<'_>> {
        let parked = self.parked.as_ref();
        let probe = parked.and_then(|parked| parked.probe.as_ref());
        vec![
            (&self.ai_type).into(),
            parked.map(|parked| parked.class.as_str()).into(),
            parked.map(|parked| parked.since).into(),
            parked.map(|parked| parked.until).into(),
            parked.map(|parked| parked.n_failures).into(),
            probe.map(|probe| probe.launch.as_str()).into(),
            probe.map(|probe| probe.at).into(),
        ]
    }

    fn revision(&self) -> i64 {
        self.revision
    }
}

/// The columns from `parked_class` to `probe_at`.
pub(super) fn read_parked(cells: &mut Cells<'_>) -> Result<Option<Parked>, BoxError> {
    let class = cells.optional_word()?;
    let (since, until) = (cells.get::<Option<_>>()?, cells.get::<Option<_>>()?);
    let n_failures = cells.get::<Option<_>>()?;
    let (launch, at) = (cells.optional_parsed()?, cells.get::<Option<_>>()?);
    let Some(class) = class else {
        return Ok(None);
    };
    let complete = || -> Option<Parked> {
        Some(Parked {
            class,
            since: since?,
            until: until?,
            n_failures: n_failures?,
            probe: launch.zip(at).map(|(launch, at)| Probe { launch, at }),
        })
    };
    complete().map(Some).ok_or_else(|| "a parked account has a NULL".into())
}

/// Returns the account of an `ai_type`; a fresh one if nothing is remembered.
pub fn get(tx: &mut Read<'_>, ai_type: &str) -> Result<Account, StoreError> {
    let found = tx.find("WHERE ai_type = ?1", &[ai_type.into()])?;
    Ok(found.unwrap_or_else(|| Account::new(ai_type.to_owned())))
}

/// Returns the parked accounts by `ai_type`.
pub fn list_parked(tx: &mut Read<'_>) -> Result<Vec<Account>, StoreError> {
    tx.list("WHERE parked_class IS NOT NULL ORDER BY ai_type", &[])
}
