//! Builds the conditions of a query from the fields of a filter that are set.

use std::collections::{BTreeMap, BTreeSet};

use crate::{BoxError, Cells, Entity, FromCell, HistoryFilter, Read, StoreError, Value};

/// The number of ids of one statement. The last one stands for those that are missing, so that
/// there is one statement to prepare.
const N_IDS: usize = 50;

/// Returns the entities with these ids, in no order. An id without an entity is left out.
pub(super) fn list_of_ids<'a, E: Entity, Id>(
    tx: &mut Read<'_>,
    ids: &'a [Id],
) -> Result<Vec<E>, StoreError>
where
    &'a Id: Into<Value<'a>>,
{
    let rest = of_ids();
    let mut found = Vec::new();
    for page in pages_of_ids(ids) {
        let args: Vec<Value<'a>> = page.map(Into::into).collect();
        found.extend(tx.list(&rest, &args)?);
    }
    Ok(found)
}

/// Returns one column of the entities with these ids. An id without an entity is left out.
pub(super) fn column_of_ids<E: Entity, Id, T>(
    tx: &mut Read<'_>,
    column: &str,
    ids: &BTreeSet<Id>,
) -> Result<BTreeMap<Id, T>, StoreError>
where
    Id: for<'r> FromCell<'r> + Ord,
    for<'a> &'a Id: Into<Value<'a>>,
    T: for<'r> FromCell<'r>,
{
    let sql = format!("SELECT id, {column} FROM {} {}", E::TABLE, of_ids());
    let ids: Vec<&Id> = ids.iter().collect();
    let mut values = BTreeMap::new();
    for page in pages_of_ids(&ids) {
        let args: Vec<Value<'_>> = page.map(|id| (*id).into()).collect();
        values.extend(tx.rows(E::NAME, &sql, &args, |cells| Ok((cells.get()?, cells.get()?)))?);
    }
    Ok(values)
}

/// Returns the end of a query for the ids of one page.
fn of_ids() -> String {
    let places: Vec<String> = (1..=N_IDS).map(|n| format!("?{n}")).collect();
    format!("WHERE id IN ({}) ORDER BY id", places.join(", "))
}

/// Returns these ids in groups for one statement each.
pub(super) fn pages_of_ids<Id>(ids: &[Id]) -> impl Iterator<Item = impl Iterator<Item = &Id>> {
    ids.chunks(N_IDS).map(|page| page.iter().chain(page.last().into_iter().cycle()).take(N_IDS))
}

/// Returns the text that ends the range of the ids that begin with `prefix`. Ids are ASCII, and no
/// character of an id is after `~`.
pub(super) fn end_of_prefix(prefix: &str) -> String {
    format!("{prefix}~")
}

/// Returns the id and the name of the first entity by id whose id begins with a text.
pub(super) fn find_with_prefix<E: Entity, Id>(
    tx: &mut Read<'_>,
    prefix: &str,
) -> Result<Option<(Id, String)>, StoreError>
where
    Id: for<'r> FromCell<'r>,
{
    let end = end_of_prefix(prefix);
    let table = E::TABLE;
    let sql =
        format!("SELECT id, name FROM {table} WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT 1");
    tx.row(E::NAME, &sql, &[prefix.into(), (&end).into()], |cells| Ok((cells.get()?, cells.get()?)))
}

#[derive(Default)]
pub(super) struct Filter<'a> {
    conditions: Vec<String>,
    args: Vec<Value<'a>>,
}

impl<'a> Filter<'a> {
    /// Adds a parameter and returns its placeholder.
    pub(super) fn arg(&mut self, value: impl Into<Value<'a>>) -> String {
        self.args.push(value.into());
        format!("?{}", self.args.len())
    }

    pub(super) fn is(&mut self, column: &str, value: impl Into<Value<'a>>) {
        let placeholder = self.arg(value);
        self.also(format!("{column} = {placeholder}"));
    }

    /// Adds the condition that the column has one of these values: at most those of one page,
    /// because each number of them makes another statement.
    pub(super) fn among<V: Into<Value<'a>>>(
        &mut self,
        column: &str,
        values: impl IntoIterator<Item = V>,
    ) {
        let condition = self.one_of(column, values).unwrap_or_else(|| "1 = 0".to_owned());
        self.also(condition);
    }

    /// Returns the condition that the column has one of these values; `None` without a value.
    pub(super) fn one_of<V: Into<Value<'a>>>(
        &mut self,
        column: &str,
        values: impl IntoIterator<Item = V>,
    ) -> Option<String> {
        let placeholders: Vec<String> = values.into_iter().map(|value| self.arg(value)).collect();
        (!placeholders.is_empty()).then(|| format!("{column} IN ({})", placeholders.join(", ")))
    }

    pub(super) fn also(&mut self, condition: impl Into<String>) {
        self.conditions.push(condition.into());
    }

    /// Adds the conditions that launches, sessions and executions have in common. A table that is
    /// joined with `table` may have a `launch_id`, too.
    pub(super) fn owner<Id>(&mut self, table: &str, wanted: &'a HistoryFilter<Id>) {
        if let Some(agent) = &wanted.agent {
            self.is("agent_id", agent);
        }
        if let Some(project) = &wanted.project {
            self.is("project_id", project);
        }
        if let Some(launch) = &wanted.launch {
            self.is(&format!("{table}.launch_id"), launch);
        }
    }

    fn joined(&self) -> String {
        if self.conditions.is_empty() { "1 = 1".to_owned() } else { self.conditions.join(" AND ") }
    }

    /// Returns the entities that meet all conditions. `rest` is what follows them.
    pub(super) fn list<E: Entity>(
        self,
        tx: &mut Read<'_>,
        rest: &str,
    ) -> Result<Vec<E>, StoreError> {
        tx.list(&format!("WHERE {} {rest}", self.joined()), &self.args)
    }

    /// Returns the rows of the query `start` that meet all conditions.
    pub(super) fn rows<T>(
        self,
        tx: &mut Read<'_>,
        name: &'static str,
        start: &str,
        rest: &str,
        read: impl FnMut(&mut Cells<'_>) -> Result<T, BoxError>,
    ) -> Result<Vec<T>, StoreError> {
        tx.rows(name, &format!("{start} WHERE {} {rest}", self.joined()), &self.args, read)
    }

    /// Returns at most `limit` entities, the newest first by the column `at`, that come after the
    /// row `after`.
    pub(super) fn newest<E: Entity>(
        mut self,
        tx: &mut Read<'_>,
        at: &str,
        after: Option<impl Into<Value<'a>>>,
        limit: usize,
    ) -> Result<Vec<E>, StoreError> {
        if let Some(after) = after {
            let after = self.arg(after);
            let table = E::TABLE;
            self.also(format!("({at}, id) < (SELECT {at}, id FROM {table} WHERE id = {after})"));
        }
        let limit = self.arg(limit);
        self.list(tx, &format!("ORDER BY {at} DESC, id DESC LIMIT {limit}"))
    }
}
