//! The entities of the store, one file each: their columns, how they are read and written, and
//! their queries.
//!
//! The SQL is the part that SQLite and PostgreSQL have in common; a test holds each statement to
//! it.

pub mod accounts;
pub mod agents;
pub mod assignments;
pub mod attention;
pub mod audit;
mod cells;
pub mod checks;
pub mod comments;
pub mod creation_digests;
pub mod credentials;
pub mod deletions;
pub mod events;
pub mod executions;
mod filter;
pub mod forge_items;
pub mod imports;
pub mod launch_retention;
pub mod launches;
pub mod messages;
pub mod notices;
pub mod output_tails;
pub mod pauses;
pub mod project_keys;
pub mod projects;
#[cfg(test)]
mod query_plan;
mod record;
pub mod samples;
pub mod sessions;
pub mod start_histories;
pub mod startable;
mod store;
pub mod tasks;
mod transaction;
pub mod workspaces;

pub use store::Store;
pub use transaction::{Context, Publish, Transaction, Wake};

use crate::domain::{Failure, InstanceKey, Outcome, Usage};
use crate::store::{BoxError, Cells, Value};

/// Reads the columns `agent_id, project_id, purpose`.
fn read_key(cells: &mut Cells<'_>) -> Result<InstanceKey, BoxError> {
    Ok(InstanceKey { agent: cells.get()?, project: cells.get()?, purpose: cells.get()? })
}

fn key_values(key: &InstanceKey) -> [Value<'_>; 3] {
    [(&key.agent).into(), (&key.project).into(), key.purpose.into()]
}

/// Reads the columns `outcome, outcome_reason`.
fn read_outcome(cells: &mut Cells<'_>) -> Result<Option<Outcome>, BoxError> {
    let outcome = cells.get::<Option<&str>>()?;
    let reason = cells.get::<Option<&str>>()?;
    let Some(outcome) = outcome else {
        return Ok(None);
    };
    let reason = || reason.ok_or_else(|| format!("the outcome `{outcome}` has no reason"));
    Ok(Some(match outcome {
        "completed" => Outcome::Completed,
        "blocked" => Outcome::Blocked,
        "failed" => Outcome::Failed,
        "stopped" => Outcome::Stopped(crate::store::word(reason()?)?),
        "exited_without_report" => Outcome::ExitedWithoutReport,
        "never_authenticated" => Outcome::NeverAuthenticated,
        "start_failed" => Outcome::StartFailed(reason()?.to_owned()),
        "timed_out" => Outcome::TimedOut(crate::store::word(reason()?)?),
        "lost" => Outcome::Lost,
        other => return Err(format!("`{other}` is not an outcome").into()),
    }))
}

fn outcome_values(outcome: Option<&Outcome>) -> [Value<'_>; 2] {
    [outcome.map(Outcome::as_str).into(), outcome.and_then(Outcome::reason).into()]
}

/// Reads the columns from `input_tokens` to `turns`.
fn read_usage(cells: &mut Cells<'_>) -> Result<Usage, BoxError> {
    Ok(Usage {
        input_tokens: cells.get()?,
        output_tokens: cells.get()?,
        cache_read_tokens: cells.get()?,
        cache_write_tokens: cells.get()?,
        cost_usd_micros: cells.get()?,
        turns: cells.get()?,
    })
}

fn usage_values(usage: Usage) -> [Value<'static>; 6] {
    [
        usage.input_tokens.into(),
        usage.output_tokens.into(),
        usage.cache_read_tokens.into(),
        usage.cache_write_tokens.into(),
        usage.cost_usd_micros.into(),
        usage.turns.into(),
    ]
}

/// Reads the columns `failure, failure_resets_at`.
fn read_failure(cells: &mut Cells<'_>) -> Result<Option<Failure>, BoxError> {
    let class = cells.get::<Option<_>>()?;
    let resets_at = cells.get()?;
    Ok(class.map(|class| Failure { class, resets_at }))
}

fn failure_values(failure: Option<Failure>) -> [Value<'static>; 2] {
    [
        failure.map(|failure| failure.class).into(),
        failure.and_then(|failure| failure.resets_at).into(),
    ]
}
