//! Asks which issues have to wait for others, as far as the lists of a forge do not show it.

use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;

use futures::{StreamExt as _, stream};

use super::{N_QUESTIONS, Poller};
use crate::host_state::Unanswered;
use crate::list_cursor::ItemNumber;
use crate::{Forge, ForgeError, FoundItem};
use runtime::telemetry::counters;

/// The number of issues whose answers fail at one look, after which no more is asked.
const MAX_FAILED_QUESTIONS: usize = 3;

impl Poller {
    /// Asks which other open issues block free issues, if the lists do not show it. Returns the
    /// problem of an issue whose question fails. The next look asks again.
    ///
    /// # Errors
    /// The host or the repository does not answer now.
    pub(super) async fn ask_about_blockers(
        &mut self,
        forge: &Forge,
    ) -> Result<Option<String>, Unanswered> {
        let repository = self.watched.name.clone();
        let host_state = Arc::clone(&self.host_state);
        let ask = |issue: ItemNumber| {
            let host_state = &host_state;
            let repository = &repository;
            async move {
                let ask = |name: String| async move {
                    match forge.blockers(&name, issue.1).await {
                        // The lists of the host have just answered, so the host is not away.
                        Err(
                            error @ (ForgeError::Unavailable { .. }
                            | ForgeError::NotUnderstood { .. }),
                        ) => {
                            if let Some(kind) = error.counted_as() {
                                counters::FORGE_ERRORS.add(kind);
                            }
                            Ok(Err(error))
                        }
                        answer => answer.map(Ok),
                    }
                };
                (issue, host_state.ask_in(forge, repository, ask).await)
            }
        };
        // The oldest issue waits first, so the answers keep their order.
        let asked = self.blockers.next_to_ask();
        let mut failed = None;
        let mut n_failed = 0;
        let mut answers = pin!(stream::iter(asked).map(ask).buffered(N_QUESTIONS));
        while let Some((issue, answer)) = answers.next().await {
            let name = self.key(issue.0, issue.1);
            let unknown = |error: &dyn Display| {
                format!("the issues that block {name} are not known: {error}")
            };
            match answer {
                Ok(Ok(blockers)) => {
                    if let Some(facts) = self.blockers.take(issue, &blockers) {
                        self.let_wait(&facts, blockers);
                    }
                }
                // The list has the number, and the addresses are only shown.
                Err(Unanswered::Failed(
                    ForgeError::NotFound { .. } | ForgeError::Forbidden { .. },
                )) if !forge.hides_blockers() => {
                    self.blockers.take(issue, &[]);
                }
                Err(Unanswered::Failed(
                    ForgeError::NotFound { .. } | ForgeError::Forbidden { .. },
                )) => {
                    let (kind, number) = issue;
                    let find = |name: String| async move { forge.item(&name, kind, number).await };
                    match host_state.ask_in(forge, &repository, find).await {
                        Ok(FoundItem::Here(_)) => {}
                        // The next look does not show it any more.
                        Ok(_) => continue,
                        Err(error) => {
                            failed = failed.or_else(|| Some(unknown(&error)));
                            continue;
                        }
                    }
                    tracing::info!(
                        host = self.repository.host,
                        repository,
                        "the forge does not tell which issues block others; issues do not wait for \
                         each other"
                    );
                    for facts in self.blockers.give_up() {
                        self.let_wait(&facts, Vec::new());
                    }
                    break;
                }
                // The answer about one issue must not keep the others waiting.
                Ok(Err(error))
                | Err(Unanswered::Failed(
                    error @ (ForgeError::Moved { .. } | ForgeError::Refused { .. }),
                )) => {
                    failed = failed.or_else(|| Some(unknown(&error)));
                    n_failed += 1;
                    if n_failed > MAX_FAILED_QUESTIONS {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        host_state.service.forges.serve_waiting();
        Ok(failed)
    }
}
