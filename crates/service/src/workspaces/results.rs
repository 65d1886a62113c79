//! The results of tasks: diff, merge, discard and restore.

use std::path::Path;
use std::time::Duration;

use domain::event::NewEvent;
use domain::task::Actor;
use domain::workspace::{
    Content, HookRule, HookWish, MergeMessage, MergeStyle, Published, Repeat, WorkspaceState,
};
use domain::{Refusal, Task, TaskId, TaskStatus, Timestamp, Workspace, WorkspaceId};
use machine::locks::lock;
use store::rows::{executions, tasks, workspaces};
use workspace::{Author, BehindOrder, DiffKind, DiffOrder, MergeOrder, Merged, RevertOrder};

use super::remotes::base_of_task;
use super::unmerged::note_move;
use super::{WorkspaceView, Workspaces, failed, find, keep_order, publish_order, refused};
use crate::tasks::release_for;
use crate::tasks::rules::move_task;
use crate::{ServiceError, audit, catalog, checks};

/// The longest time for which git may look for a revert, or at a branch.
pub(super) const LONGEST_LOOK: Duration = Duration::from_secs(5);
/// The reason why there is nothing to work with.
const NOTHING_KEPT: &str = "nothing of it was kept yet; that is done after each launch";

/// The options that a person chose for a merge.
#[derive(Debug, Clone, Default)]
pub struct MergeWish {
    /// The branch that gets the result; `None` for the branch that the work began at.
    pub into: Option<String>,
    pub style: MergeStyle,
    pub repeat: Repeat,
    pub with_uncommitted: bool,
    /// The wish about the hooks of the project's repository.
    pub hooks: HookWish,
    /// The commit that the person has seen as the result.
    pub expected_head: Option<String>,
    /// Merges although the task is open.
    pub now: bool,
    /// Lets the agent of the task resolve a conflict.
    pub ask_agent: bool,
}

/// The decision of a person about a tip beside the result: its branch, or at least 7 digits of its
/// commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultChoice {
    /// It is the result from now on.
    Take(String),
    /// It is not needed.
    Drop(String),
    /// It is needed after all.
    Want(String),
}

/// A branch of the project's repository that has a result now.
#[derive(Debug, Clone)]
pub struct PublishedResult {
    pub published: Published,
    /// Whether the wanted branch is one of people, so that another name was taken.
    pub is_renamed: bool,
    pub wanted: String,
}

impl Workspaces {
    /// Returns a diff of the work on a task, as text.
    ///
    /// # Errors
    /// `TaskNotFound`, `NoWorkspace`, `WorkspaceFailed`.
    pub async fn diff(&self, id: &TaskId, of: DiffKind) -> Result<Vec<u8>, ServiceError> {
        let (workspace, task, _) = self.find_with_project(id).await?;
        let order = DiffOrder {
            is_in_use: workspace.state == WorkspaceState::InUse,
            keep: keep_order(&workspace, task.assignee.as_ref()),
            result: workspace.content.as_ref().and_then(|content| content.head_commit.clone()),
            of,
        };
        Ok(self.host(&task)?.results.diff(&order).await.map_err(|error| failed(&task, &error))?)
    }

    /// Returns the number of commits that the branch at which the work began got meanwhile. `None`
    /// if that cannot be counted on this host.
    ///
    /// # Errors
    /// `TaskNotFound`, `NoWorkspace`, `WorkspaceFailed`.
    pub async fn behind(&self, id: &TaskId) -> Result<Option<u64>, ServiceError> {
        let (workspace, task, project) = self.find_with_project(id).await?;
        let of = workspace.task.clone();
        let at_forge = self.core.read(move |tx| Ok(base_of_task(tx, &of)?)).await?;
        let base = workspace.base_ref.clone().zip(workspace.base_commit.clone());
        let (Some((base_ref, base_commit)), Some(host), None) =
            (base, self.checkouts.get(), at_forge)
        else {
            return Ok(None);
        };
        let order = BehindOrder {
            source: project.working_directory,
            base_ref,
            base_commit,
            head_commit: workspace.content.as_ref().and_then(|it| it.head_commit.clone()),
        };
        Ok(host.results.behind(&order).await.map_err(|error| failed(&task, &error))?)
    }

    /// Returns the workspace of a task like [`Self::of_task_now`], with the commit that reverted its
    /// merge since. That is not found if git does not answer soon.
    ///
    /// # Errors
    /// `TaskNotFound`, `NoWorkspace`.
    pub async fn with_revert(&self, id: &TaskId) -> Result<WorkspaceView, ServiceError> {
        let view = self.of_task_now(id).await?;
        let Workspace { id, project, branch, base_ref, merged_commit, .. } = view.workspace.clone();
        let (Some(merge), Some(host)) = (merged_commit, self.checkouts.get()) else {
            return Ok(view);
        };
        let of = project.clone();
        let source = self.core.read(move |tx| catalog::project(tx, &of)).await?.working_directory;
        let order = RevertOrder { id, project, branch, source, base_ref, merge };
        let find = host.results.revert_of(&order);
        let found = tokio::time::timeout(LONGEST_LOOK, find).await;
        let revert = found.ok().and_then(Result::ok).flatten();
        Ok(WorkspaceView { revert, ..view })
    }

    /// Merges the result of a task into a branch of the project's repository.
    ///
    /// # Errors
    /// `TaskNotFound`, `NoWorkspace`, `WorkspaceFailed`; `NotFinished` if the task is open and the
    /// person did not ask for that; `Invalid` if `into` cannot get a result.
    pub async fn merge(&self, id: &TaskId, wish: &MergeWish) -> Result<Merged, ServiceError> {
        let (workspace, task, project) = self.find_kept(id).await?;
        check_decided(&workspace, &task)?;
        if task.status.is_open() && !wish.now {
            let refusal = Refusal::NotFinished { task: task.short_id, status: task.status };
            return Err(refusal.into());
        }
        if let Some(into) = &wish.into
            && (into.starts_with('-')
                || into.starts_with("agents/")
                || into.contains("..")
                || *into == workspace.branch)
        {
            return Err(Refusal::Invalid(format!(
                "`{into}` cannot get the result of a task: name a branch of the project"
            ))
            .into());
        }
        let settings = self.core.settings();
        let own_hooks = project.overrides.own_merge_hooks();
        let order = MergeOrder {
            id: workspace.id.clone(),
            project: workspace.project.clone(),
            branch: workspace.branch.clone(),
            source: project.working_directory,
            into: wish.into.clone(),
            base_ref: workspace.base_ref.clone(),
            base_commit: workspace.base_commit.clone(),
            style: wish.style,
            repeat: wish.repeat,
            result: workspace.content.as_ref().and_then(|content| content.head_commit.clone()),
            with_uncommitted: wish.with_uncommitted,
            work: workspace.work_kind(),
            expected_head: wish.expected_head.clone(),
            merged: workspace.merged_commit.clone(),
            last: workspace.published(),
            offers_branch: !wish.ask_agent,
            hooks: HookRule {
                setting: own_hooks
                    .unwrap_or_else(|| settings.workspace.merge_hooks_of(&workspace.project)),
                wish: wish.hooks,
                agents_have_users: settings.agents_have_users,
                timeout: settings.hook_timeout,
            },
            author: author(audit::actor()),
            message: self.merge_message(&task).await?,
        };
        let host = self.host(&task)?;
        let merged =
            host.results.merge_to_end(order).await.map_err(|error| host.disk.name_full_disk(error));
        let merged = merged.map_err(|error| failed(&task, &error))?;
        if let Merged::Conflict { result: Some(result), .. }
        | Merged::InTheWay { result: Some(result), .. } = &merged
        {
            self.note_published(&workspace, result.clone(), Workspace::offered_as).await?;
        }
        self.note_conflict(&workspace, &merged, wish).await?;
        if let (Merged::Conflict { is_again: true, files, .. }, true) = (&merged, wish.ask_agent) {
            let files = files.join(", ");
            let reason = format!(
                "its changes conflict with later ones in {files}; its agent cannot resolve that, \
                 because the branch has commits of an earlier merge of it: publish it, and merge by \
                 hand"
            );
            return Err(refused(&task, reason).into());
        }
        if let (Merged::Conflict { branch, commit, files, .. }, true) = (&merged, wish.ask_agent) {
            let text = self.core.guidance().merge_conflict(branch, commit, files);
            self.ask_to_resolve(&workspace, text).await?;
        }
        if let Merged::Into { commit, .. }
        | Merged::Already { merge: Some(commit), .. }
        | Merged::Already { commit, .. } = &merged
        {
            let id = workspace.id.clone();
            let commit = commit.clone();
            let with_uncommitted = wish.with_uncommitted;
            let seen = workspace.content.clone();
            let into = match &merged {
                Merged::Into { branch, .. } => Some(branch.clone()),
                _ => None,
            };
            let skips_hooks = wish.hooks == HookWish::SkipAlways;
            self.core
                .write(move |tx| {
                    if skips_hooks {
                        catalog::skip_merge_hooks(tx, &workspace.project)?;
                    }
                    if let Some(branch) = into.clone() {
                        note_move(tx, &workspace.project, &branch, &commit)?;
                        tx.event(NewEvent {
                            project: Some(workspace.project.clone()),
                            task: Some(workspace.task.clone()),
                            detail: Some(branch),
                            ..NewEvent::new("workspace.merged", tx.now())
                        });
                    }
                    // A merge says nothing about content that was kept meanwhile.
                    if let Some(found) =
                        workspaces::get(tx, &id)?.filter(|it| it.is_kept_as(seen.as_ref()))
                    {
                        // A commit that is known from the merge itself stays.
                        let known = found.merged_commit.clone().filter(|_| into.is_none());
                        let commit = known.unwrap_or_else(|| commit.clone());
                        let merged = found.merged(commit, with_uncommitted);
                        workspaces::put(tx, &merged)?;
                    }
                    Ok(())
                })
                .await?;
        }
        Ok(merged)
    }

    /// Returns the facts about a task for the message of a merge.
    async fn merge_message(&self, task: &Task) -> Result<MergeMessage, ServiceError> {
        let id = task.id.clone();
        let works = self.core.read(move |tx| Ok(executions::list_of_task(tx, &id)?)).await?;
        Ok(MergeMessage {
            task: task.short_id.clone(),
            title: task.title.clone(),
            summary: works.into_iter().find_map(|work| work.summary),
        })
    }

    /// Gives the project's repository a branch with the result of a task now.
    ///
    /// # Errors
    /// `TaskNotFound`, `NoWorkspace`; `WorkspaceFailed` if there is no result, or it goes to a
    /// forge.
    pub async fn publish(&self, id: &TaskId) -> Result<PublishedResult, ServiceError> {
        let (workspace, task, project) = self.find_kept(id).await?;
        check_decided(&workspace, &task)?;
        let of = workspace.task.clone();
        let at_forge = self.core.read(move |tx| Ok(base_of_task(tx, &of)?)).await?;
        let order = match (at_forge, publish_order(&workspace, &project)) {
            (Some(_), _) => Err(
                "its task is an item of a forge, whose result the coordinator publishes when it \
                 is done; `forge list` says how far that is",
            ),
            (None, None) => Err("it has no commit that could be published"),
            (None, Some(order)) => Ok(order),
        };
        let order = order.map_err(|reason| refused(&task, reason))?;
        let published = self.host(&task)?.results.publish_branch(&order).await;
        let published = published.map_err(|error| failed(&task, &error))?;
        self.note_published(&workspace, published.clone(), Workspace::published_as).await?;
        let is_renamed = published.branch != workspace.branch;
        Ok(PublishedResult { published, is_renamed, wanted: workspace.branch })
    }

    /// Decides about a branch or a commit that the agent of a task left beside the result.
    ///
    /// # Errors
    /// `TaskNotFound`, `NoWorkspace`; `WorkspaceFailed` if there is no such tip, if an agent uses the
    /// workspace, or if its content changed meanwhile.
    pub async fn decide_result(
        &self,
        id: &TaskId,
        choice: &ResultChoice,
    ) -> Result<(), ServiceError> {
        let (workspace, task, _) = self.find_kept(id).await?;
        if workspace.state == WorkspaceState::InUse {
            return Err(refused(&task, "an agent uses it; choose when it has ended").into());
        }
        let Some(content) = workspace.content.clone() else {
            return Err(refused(&task, NOTHING_KEPT).into());
        };
        let (ResultChoice::Take(name) | ResultChoice::Drop(name) | ResultChoice::Want(name)) =
            choice;
        let Some(named) = content.other(name).cloned() else {
            return Err(refused(&task, no_such_tip(&content, name)).into());
        };
        let mut decided = content.clone();
        let taken = match choice {
            ResultChoice::Take(_) => {
                decided.dropped.remove(&named.commit);
                Some(named)
            }
            ResultChoice::Drop(_) => decided.drop_tip(&named),
            ResultChoice::Want(_) => {
                decided.dropped.remove(&named.commit);
                None
            }
        };
        if let Some(taken) = taken {
            let order = keep_order(&workspace, task.assignee.as_ref());
            let chosen = self.host(&task)?.clones.choose_result(&order, taken, decided).await;
            decided = chosen.map_err(|error| failed(&task, &error))?;
        }
        self.change(id, move |found, _, _| {
            if found.content.as_ref() != Some(&content) {
                return Err("its content was kept anew meanwhile; look at it, and choose again");
            }
            if found.state == WorkspaceState::InUse {
                return Err("an agent uses it; choose when it has ended");
            }
            let mut decided = decided.clone();
            if decided.head_commit == content.head_commit {
                return Ok(Workspace { content: Some(decided), ..found });
            }
            // The result before needs no decision if it was merged.
            let merged = content.head_commit.clone().filter(|_| found.merged_commit.is_some());
            decided.dropped.extend(merged);
            // An earlier merge, and an earlier decision, say nothing about another result.
            Ok(Workspace {
                content: Some(decided),
                merged_commit: None,
                discarded_at: None,
                forever_at: None,
                ..found
            })
        })
        .await
        .map(drop)
    }

    async fn note_published(
        &self,
        of: &Workspace,
        published: Published,
        noted: fn(Workspace, Published) -> Workspace,
    ) -> Result<(), ServiceError> {
        let id = of.id.clone();
        self.core
            .write(move |tx| {
                let found = workspaces::get(tx, &id)?;
                let after = found.clone().map(|found| noted(found, published.clone()));
                if let Some(after) = after.filter(|after| found.as_ref() != Some(after)) {
                    workspaces::put(tx, &after)?;
                }
                Ok(())
            })
            .await
    }

    /// Sets the task of a workspace in progress again, with the conflict as the evidence of a
    /// failed check, so that its agent finds it in the answer of `get_my_task`.
    async fn ask_to_resolve(&self, of: &Workspace, text: String) -> Result<(), ServiceError> {
        let id = of.id.clone();
        let inputs = self.heard.inputs(&self.core);
        self.core
            .write(move |tx| {
                let found = workspaces::get(tx, &id)?;
                let task = match &found {
                    Some(found) => tasks::get(tx, &found.task)?,
                    None => None,
                };
                let Some((workspace, task)) = found.zip(task) else {
                    return Ok(());
                };
                if task.status == TaskStatus::InProgress {
                    let reason = "it goes on; its agent can be asked when it has ended";
                    return Err(refused(&task, reason).into());
                }
                let mut news = Vec::new();
                let mut after = task;
                // A closed task is reopened first.
                for status in [TaskStatus::Todo, TaskStatus::InProgress] {
                    let moved = move_task(tx, &after, status, None, Actor::Person)?;
                    news.extend(moved.news);
                    after = tasks::get(tx, &after.id)?.unwrap_or(moved.task);
                }
                checks::note_conflict(tx, &after, workspace.content, &text)?;
                release_for(tx, &after)?;
                inputs.tell_agents(tx, &news, None)?;
                Ok(())
            })
            .await
    }

    /// Notes that the result of a task is not wanted. Its files are removed when the task is closed
    /// and no launch uses them; the kept commit stays.
    ///
    /// # Errors
    /// `TaskNotFound`, `NoWorkspace`.
    pub async fn discard(&self, id: &TaskId) -> Result<Workspace, ServiceError> {
        self.until_kept(id).await?;
        self.change(id, |workspace, _, now| Ok(Workspace { discarded_at: Some(now), ..workspace }))
            .await
    }

    /// Notes that not even the kept state of the result of a task is wanted. Its refs are removed
    /// 14 days later. `confirm` is the id of the task once more.
    ///
    /// # Errors
    /// `TaskNotFound`, `NoWorkspace`; `WorkspaceFailed` with the reason why that cannot be.
    pub async fn discard_forever(&self, id: &TaskId, confirm: &str) -> Result<(), ServiceError> {
        self.until_kept(id).await?;
        let id = id.clone();
        let confirm = confirm.trim().to_owned();
        self.core
            .write(move |tx| {
                let (newest, task) = find(tx, &id)?;
                let short_id = task.short_id.to_string();
                if confirm != task.id.as_str() && !confirm.eq_ignore_ascii_case(&short_id) {
                    let reason = format!("`{confirm}` is not the id {short_id}");
                    return Err(refused(&task, reason).into());
                }
                if newest.task != task.id {
                    let above = tasks::get(tx, &newest.task)?;
                    let of = above.map_or_else(String::new, |above| above.short_id.to_string());
                    return Err(refused(&task, format!("it belongs to the task {of}")).into());
                }
                let given_up =
                    newest.clone().given_up(&task, tx.now()).map_err(|it| refused(&task, it))?;
                for earlier in workspaces::list_of_task(tx, &task.id)? {
                    let forever_at = given_up.forever_at;
                    if earlier.id != given_up.id && earlier.forever_at.is_none() {
                        workspaces::put(tx, &Workspace { forever_at, ..earlier })?;
                    }
                }
                Ok(workspaces::put(tx, &given_up)?)
            })
            .await
    }

    /// Takes back that the result of a task is not wanted.
    ///
    /// # Errors
    /// `TaskNotFound`, `NoWorkspace`.
    pub async fn want_result(&self, id: &TaskId) -> Result<Workspace, ServiceError> {
        self.until_kept(id).await?;
        self.change(id, |workspace, _, _| {
            Ok(Workspace { discarded_at: None, forever_at: None, ..workspace })
        })
        .await
    }

    /// Lets a broken workspace be tried again. If its folder is gone, it is made again from what
    /// was kept.
    ///
    /// # Errors
    /// `TaskNotFound`, `NoWorkspace`.
    pub async fn retry(&self, id: &TaskId) -> Result<Workspace, ServiceError> {
        let Workspace { id: seen, project, .. } = self.of_task(id).await?.workspace;
        let is_gone = self.checkouts.get().is_some_and(|host| {
            lock(&host.given_up).remove(&seen);
            host.places.is_gone(&project, &seen)
        });
        let retried = move |workspace: Workspace, _, _| {
            let is_gone = is_gone && workspace.id == seen;
            Ok(workspace.retried(is_gone))
        };
        self.change(id, retried).await
    }

    /// Makes a workspace again from the kept state of one whose files are gone. Another workspace
    /// stays as it is.
    ///
    /// # Errors
    /// `TaskNotFound`, `NoWorkspace`; `WorkspaceFailed` if nothing of it was kept.
    pub async fn restore(&self, id: &TaskId) -> Result<Workspace, ServiceError> {
        let found = self.of_task(id).await?.workspace;
        let host = self.checkouts.get().filter(|_| found.state == WorkspaceState::Ready);
        let is_lost = host.is_some_and(|host| host.places.is_gone(&found.project, &found.id));
        if is_lost || found.state == WorkspaceState::Broken {
            return self.retry(id).await;
        }
        self.change(id, |workspace, new, now| match workspace.state {
            WorkspaceState::Removed if workspace.content.is_none() => Err(NOTHING_KEPT),
            WorkspaceState::Removed => Ok(workspace.again(new, now)),
            _ => Ok(workspace),
        })
        .await
    }

    /// Writes the kept state of a task into `to` on this host. The folder must be new or empty.
    ///
    /// # Errors
    /// `TaskNotFound`, `NoWorkspace`, `WorkspaceFailed`.
    pub async fn restore_to(&self, id: &TaskId, to: &Path) -> Result<(), ServiceError> {
        self.until_kept(id).await?;
        let WorkspaceView { workspace, task, .. } = self.of_task(id).await?;
        let Some(content) = &workspace.content else {
            return Err(refused(&task, NOTHING_KEPT).into());
        };
        let host = self.host(&task)?;
        let kept = &content.kept_commit;
        let written = host.results.write_kept_to(&workspace.project, &workspace.id, kept, to).await;
        Ok(written.map_err(|error| failed(&task, &error))?)
    }

    /// Changes the workspace of a task. `change` is also given an id for a new one.
    async fn change(
        &self,
        id: &TaskId,
        change: impl Fn(Workspace, WorkspaceId, Timestamp) -> Result<Workspace, &'static str>
        + Send
        + 'static,
    ) -> Result<Workspace, ServiceError> {
        let id = id.clone();
        self.core
            .write(move |tx| {
                let (before, task) = find(tx, &id)?;
                let new = tx.new_id(WorkspaceId::PREFIX);
                let after = change(before.clone(), new, tx.now());
                let after = after.map_err(|reason| refused(&task, reason))?;
                if after != before {
                    workspaces::put(tx, &after)?;
                }
                Ok(after)
            })
            .await
    }
}

/// Returns the reason why no tip beside the result is meant.
fn no_such_tip(content: &Content, name: &str) -> String {
    let is_result = |commit: &String| {
        content.found_on.as_deref() == Some(name) || (name.len() >= 7 && commit.starts_with(name))
    };
    if content.result().is_some_and(is_result) {
        return format!("`{name}` is the result; take another one, or discard it: `task discard`");
    }
    let there = match content.others.len() {
        0 => "there is no other one".to_owned(),
        _ => format!("there are: {}", content.all_others()),
    };
    format!("it has no branch or commit `{name}` beside its result; {there}")
}

/// Checks that the result of a task needs no choice of a person.
fn check_decided(workspace: &Workspace, task: &Task) -> Result<(), Refusal> {
    let Some(content) = workspace.content.as_ref().filter(|content| content.is_undecided) else {
        return Ok(());
    };
    let reason = format!(
        "its agent left several results: {}; choose one: `task result {} --take BRANCH`",
        content.names_of_others(),
        task.short_id
    );
    Err(refused(task, reason))
}

/// Returns the author of a merge for the person who acts. Users of this machine act under their
/// number.
fn author(actor: Option<audit::Actor>) -> Author {
    let Some(audit::Actor { name, credential }) = actor else {
        return Author::Named(String::new());
    };
    let uid = name.strip_prefix("local:").filter(|_| credential.is_none());
    match uid.and_then(|uid| uid.parse().ok()) {
        Some(uid) => Author::LocalUser(uid),
        None => Author::Named(name),
    }
}
