//! Finds a repository that was renamed or transferred, and tells trouble with a repository from an
//! item that is gone.
//!
//! The configuration names a repository, and its items keep that name in their keys. Requests use
//! the present name, which is learned from the first request that the old name does not answer. It
//! is kept in memory, so a restart learns it again.

use std::collections::BTreeSet;
use std::future::Future;

use super::host_state::{HostState, Unanswered};
use super::{Feed, Forge, ForgeError, FoundItem, Listing};
use config::repositories_path;
use domain::forge::{ForgeItem, ForgeKind, ItemKind};
use machine::locks::lock;

impl HostState {
    /// Returns the name by which requests name a repository.
    fn name_of(&self, repository: &str) -> String {
        let known = lock(&self.names).get(&repository.to_lowercase()).cloned();
        known.unwrap_or_else(|| repository.to_owned())
    }

    /// Returns the report about a repository whose name differs from the configuration.
    pub(super) fn rename_of(&self, repository: &str) -> Option<String> {
        let name = lock(&self.names).get(&repository.to_lowercase()).cloned()?;
        let key = repositories_path(self.config.kind);
        Some(format!(
            "it is called `{name}` now and is followed there; \
             write `{name}` in place of `{repository}` under `{key}` in the configuration"
        ))
    }

    /// Asks something of a repository, by its present name. If that name does not answer, looks for
    /// the repository first.
    ///
    /// # Errors
    /// [`Unanswered::Repository`] if the repository itself does not answer.
    pub(super) async fn ask_in<T, F>(
        &self,
        forge: &Forge,
        repository: &str,
        question: impl Fn(String) -> F,
    ) -> Result<T, Unanswered>
    where
        F: Future<Output = Result<T, ForgeError>>,
    {
        let name = self.name_of(repository);
        match self.ask(question(name.clone())).await {
            Err(
                error @ Unanswered::Failed(ForgeError::NotFound { .. } | ForgeError::Moved { .. }),
            ) => match self.look_for(forge, repository, &name).await? {
                Some(name) => self.ask(question(name)).await,
                None => Err(error),
            },
            answer => answer,
        }
    }

    /// Finds an item as it is now. It is gone only if its repository and the list of its kind
    /// answer, and it has moved only if the repository has not.
    ///
    /// # Errors
    /// [`Unanswered::Repository`] if the repository itself does not answer.
    pub(super) async fn find(
        &self,
        forge: &Forge,
        item: &ForgeItem,
    ) -> Result<FoundItem, Unanswered> {
        let key = &item.key;
        let name = self.name_of(&key.repository);
        let found = self.ask(forge.item(&name, key.kind, key.number)).await;
        match found {
            Ok(FoundItem::Gone | FoundItem::Moved(_))
            | Err(Unanswered::Failed(ForgeError::Moved { .. })) => {}
            found => return found,
        }
        if let Some(name) = self.look_for(forge, &key.repository, &name).await? {
            return self.ask(forge.item(&name, key.kind, key.number)).await;
        }
        if found == Ok(FoundItem::Gone) && self.watches(&key.repository) {
            self.check_list(forge, &name, key.kind).await?;
        }
        found
    }

    /// Looks for a repository that did not answer as `name`. Returns its new name, or `None` if it
    /// answers by that name.
    async fn look_for(
        &self,
        forge: &Forge,
        repository: &str,
        name: &str,
    ) -> Result<Option<String>, Unanswered> {
        let full_name = match self.ask(forge.repository(name)).await {
            Ok(facts) => facts.full_name,
            Err(Unanswered::Failed(error)) if self.watches(repository) => {
                return Err(Unanswered::Repository(error));
            }
            // The server does not wait for a repository that is not in the configuration any more.
            Err(Unanswered::Failed(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        if is_number || full_name.eq_ignore_ascii_case(name) {
            return Ok(None);
        }
        let mut names = lock(&self.names);
        if full_name.eq_ignore_ascii_case(repository) {
            names.remove(&repository.to_lowercase());
        } else {
            names.insert(repository.to_lowercase(), full_name.clone());
        }
        Ok(Some(full_name))
    }

    /// Checks that a list of a repository answers. The items of a list that was turned off are not
    /// gone.
    async fn check_list(
        &self,
        forge: &Forge,
        name: &str,
        kind: ItemKind,
    ) -> Result<(), Unanswered> {
        let Ok(rules) = self.rules().await else {
            return Err(Unanswered::NoToken);
        };
        let feed = match (self.config.kind, kind) {
            (ForgeKind::GitHub, _) => Feed::All,
            (ForgeKind::GitLab, ItemKind::MergeRequest) => Feed::MergeRequests,
            (ForgeKind::GitLab, ItemKind::Issue | ItemKind::PullRequest) => Feed::Issues,
        };
        let listing = Listing::Assigned { bot: rules.bot.clone() };
        match self.ask(forge.list(name, feed, &listing, 1, None)).await {
            Ok(_) => Ok(()),
            Err(Unanswered::Failed(error)) => Err(Unanswered::Repository(error)),
            Err(error) => Err(error),
        }
    }

    fn watches(&self, repository: &str) -> bool {
        self.config.repositories.iter().any(|watched| self.is_called(repository, &watched.name))
    }

    /// Returns whether the drafts of a repository close their issues.
    pub(super) fn closes_issues_of(&self, repository: &str) -> bool {
        let mut watched = self.config.repositories.iter();
        let found = watched.find(|watched| self.is_called(repository, &watched.name));
        found.is_some_and(|watched| watched.publish_closes)
    }

    /// Returns whether a repository has this name, or has it by now.
    pub(super) fn is_called(&self, repository: &str, name: &str) -> bool {
        repository.eq_ignore_ascii_case(name) || self.name_of(repository).eq_ignore_ascii_case(name)
    }

    /// Learns the present names of repositories that have items and are not in the configuration,
    /// because a person may have written a new name there. The name of a repository that does not
    /// answer stays unknown.
    pub(super) async fn learn_names(&self, forge: &Forge, items: &[ForgeItem]) {
        let names = items.iter().filter(|item| self.has(item)).map(|item| &item.key.repository);
        let unknown: BTreeSet<&String> = names.filter(|name| !self.watches(name)).collect();
        for name in unknown {
            if let Err(error) = self.look_for(forge, name, name).await {
                tracing::debug!(repository = name, reason = %error, "a repository with items was not found");
            }
        }
    }
}
