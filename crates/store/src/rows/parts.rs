//! The records that several entities contain.

use crate::{BoxError, Cells, Value, word};
use domain::{Failure, InstanceKey, Outcome, Usage};

use super::record::{Record, record};

record! {
    InstanceKey {
        agent = "agent_id";
        project = "project_id";
        purpose;
    }
}

/// Rows have no columns for usage. `with usage of` reads it from `launch_spend`, which only a
/// report changes.
impl Record for Usage {
    fn columns() -> Vec<&'static str> {
        Vec::new()
    }

    fn read(_: &mut Cells<'_>) -> Result<Self, BoxError> {
        Ok(Self::default())
    }

    fn values(&self) -> Vec<Value<'_>> {
        Vec::new()
    }
}

impl Record for Option<Outcome> {
    fn columns() -> Vec<&'static str> {
        vec!["outcome", "outcome_reason"]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError> {
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
            "stopped" => Outcome::Stopped(word(reason()?)?),
            "exited_without_report" => Outcome::ExitedWithoutReport,
            "never_authenticated" => Outcome::NeverAuthenticated,
            "start_failed" => Outcome::StartFailed(reason()?.to_owned()),
            "timed_out" => Outcome::TimedOut(word(reason()?)?),
            "lost" => Outcome::Lost,
            other => return Err(format!("`{other}` is not an outcome").into()),
        }))
    }

    fn values(&self) -> Vec<Value<'_>> {
        let outcome = self.as_ref();
        vec![outcome.map(Outcome::as_str).into(), outcome.and_then(Outcome::reason).into()]
    }
}

impl Record for Option<Failure> {
    fn columns() -> Vec<&'static str> {
        vec!["failure", "failure_resets_at"]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError> {
        let class = cells.get::<Option<_>>()?;
        let resets_at = cells.get()?;
        Ok(class.map(|class| Failure { class, resets_at }))
    }

    fn values(&self) -> Vec<Value<'_>> {
        vec![
            self.map(|failure| failure.class).into(),
            self.and_then(|failure| failure.resets_at).into(),
        ]
    }
}
