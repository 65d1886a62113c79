//! `save_context`: the notes of an agent about its work, for its own next run or for the next agent
//! of the task.

use domain::limits;
use domain::{Purpose, Refusal};
use store::rows::executions;

use super::Tasks;
use super::mine::new_execution;
use crate::sessions::caller::fence;
use crate::{Caller, ServiceError};

/// The texts to be kept. A text that is `None` stays as it was saved before.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    pub progress: Option<String>,
    pub findings: Option<String>,
    pub next_steps: Option<String>,
}

impl Tasks {
    /// Stores `saved` with the work of `caller` on its task, and returns the next instruction.
    /// Repeating it changes nothing.
    ///
    /// # Errors
    /// `NoTaskToSave` in a chat and before a task was asked for; `Invalid` if nothing is given; the
    /// refusals of [`limits`].
    pub async fn save_context(
        &self,
        caller: &Caller,
        saved: &Progress,
    ) -> Result<&'static str, ServiceError> {
        let progress =
            self.core.redacted_taken(limits::PROGRESS.take_optional(saved.progress.as_deref())?);
        let findings =
            self.core.redacted_taken(limits::FINDINGS.take_optional(saved.findings.as_deref())?);
        let next_steps = self
            .core
            .redacted_taken(limits::NEXT_STEPS.take_optional(saved.next_steps.as_deref())?);
        if [&progress, &findings, &next_steps].into_iter().all(Option::is_none) {
            return Err(Refusal::Invalid(
                "nothing to save: give progress, findings or next_steps".to_owned(),
            )
            .into());
        }
        let caller = caller.clone();
        let guidance = self.core.guidance();
        self.core
            .write(move |tx| {
                let launch = fence(tx, &caller)?;
                let task = launch.task.clone().filter(|_| launch.key.purpose == Purpose::Task);
                let task = task.ok_or(Refusal::NoTaskToSave)?;
                let executions = executions::list_of_launch(tx, &launch.id)?;
                let before = executions.into_iter().find(|execution| execution.task == task);
                let mut after = before.clone().unwrap_or_else(|| new_execution(tx, &launch, &task));
                for (kept, new) in [
                    (&mut after.progress, &progress),
                    (&mut after.findings, &findings),
                    (&mut after.next_steps, &next_steps),
                ] {
                    if let Some(new) = new {
                        *kept = Some(new.clone());
                    }
                }
                if before.as_ref() != Some(&after) {
                    executions::put(tx, before.as_ref(), &after)?;
                }
                Ok(guidance.context_saved())
            })
            .await
    }
}
