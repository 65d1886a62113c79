//! Archiving and deleting what has ended: tasks, agents and projects.
//!
//! Archived things can be shown and brought back at any time. A deletion is final: only the last
//! names stay.

mod obstacle;

pub use obstacle::Obstacle;

use super::id::{AgentId, ProjectId, TaskId, WorkspaceId};
use super::language::Language::Japanese;
use super::refusal::Refusal;
use super::short_id::ShortId;
use super::task::{Task, TaskStatus};
use super::words::words;
use super::workspace::{Workspace, WorkspaceState};

words! {
    /// The kind of a thing that people archive and delete.
    pub enum RemovableKind as "kind of thing" {
        Task = "task",
        Agent = "agent",
        Project = "project",
    }
}

words! {
    /// The way in which a thing goes away.
    pub enum RemovalAction as "action" {
        Archive = "archive",
        Delete = "delete",
    }
}

words! {
    /// A kind of thing that a deletion takes along or touches.
    pub enum AffectedKind as "kind of affected thing" {
        /// The task itself is among them.
        Tasks = "tasks",
        /// Clones of tasks. Their files are removed after their content is kept.
        Workspaces = "workspaces",
        /// Agents of a project, or projects of an agent.
        Assignments = "assignments",
        /// Comments on its tasks.
        Comments = "comments",
        /// Messages of chats.
        Messages = "messages",
        /// Launches that have ended, with their output.
        Launches = "launches",
        /// Tasks that stay: they lose a dependency, or keep the id of an agent that is gone.
        KeptTasks = "kept_tasks",
    }
}

/// A thing that people archive and delete.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Removable {
    Task(TaskId),
    Agent(AgentId),
    Project(ProjectId),
}

impl Removable {
    pub const fn kind(&self) -> RemovableKind {
        match self {
            Self::Task(_) => RemovableKind::Task,
            Self::Agent(_) => RemovableKind::Agent,
            Self::Project(_) => RemovableKind::Project,
        }
    }

    /// Returns the id as text.
    pub fn id(&self) -> &str {
        match self {
            Self::Task(id) => id.as_str(),
            Self::Agent(id) => id.as_str(),
            Self::Project(id) => id.as_str(),
        }
    }
}

/// Things of one kind that a deletion takes along or touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Affected {
    pub kind: AffectedKind,
    pub count: usize,
    /// The names of the first ones, if they have names.
    pub names: Vec<String>,
}

/// The number of names that are listed of many things.
pub const MAX_NAMES: usize = 5;

impl Affected {
    /// Returns the things with these names; `None` if there are none.
    pub fn named(kind: AffectedKind, names: impl ExactSizeIterator<Item = String>) -> Option<Self> {
        let count = names.len();
        (count > 0).then(|| Self { kind, count, names: names.take(MAX_NAMES).collect() })
    }

    /// Returns so many things without names; `None` if there are none.
    pub fn counted(kind: AffectedKind, count: usize) -> Option<Self> {
        (count > 0).then(|| Self { kind, count, names: Vec::new() })
    }
}

/// The facts that decide whether a thing may be archived or deleted.
#[derive(Debug, Clone)]
pub struct RemovalFacts {
    /// Its name in sentences, such as `Task SHOP-12`.
    pub what: String,
    /// The tasks that go with it; the task itself first.
    pub tasks: Vec<Task>,
    /// Agents with an open launch for it, and what they work on.
    pub at_work: Vec<Obstacle>,
    /// The newest workspace of each task that has one.
    pub workspaces: Vec<(ShortId, Workspace)>,
    /// The tasks that were made from items of forges.
    pub of_forge: Vec<ShortId>,
    /// The tasks that stay and depend on one of `tasks`.
    pub dependents: Vec<Task>,
}

impl RemovalFacts {
    /// Checks that the thing may be archived or deleted. `discards` says that results that are not
    /// merged may be given up.
    ///
    /// # Errors
    /// `NotRemovable` with all that is in the way; `OfForge`; `UnmergedWork`.
    pub fn check(&self, action: RemovalAction, discards: bool) -> Result<(), Refusal> {
        let obstacles = self.obstacles(action);
        if !obstacles.is_empty() {
            let what = self.what.clone();
            let more = |n: usize| Obstacle::new(format!("{n} more"), format!("ほか {n} 件"));
            let obstacles = first(obstacles, more);
            return Err(Refusal::NotRemovable { what, action, obstacles });
        }
        if action == RemovalAction::Archive {
            return Ok(());
        }
        if !self.of_forge.is_empty() {
            let tasks = first(self.of_forge.iter().map(ToString::to_string).collect(), more_tasks);
            return Err(Refusal::OfForge { what: self.what.clone(), tasks });
        }
        let unmerged = self.workspaces.iter().filter(|(_, it)| it.has_unmerged_work());
        let tasks: Vec<String> = unmerged.map(|(task, _)| task.to_string()).collect();
        if !tasks.is_empty() && !discards {
            let tasks = first(tasks, more_tasks);
            return Err(Refusal::UnmergedWork { what: self.what.clone(), tasks });
        }
        Ok(())
    }

    /// Returns the workspaces whose work is still being kept. The list is empty if the deletion
    /// would be refused for a reason that stays after that work is kept.
    pub fn being_kept(&self, discards: bool) -> Vec<WorkspaceId> {
        let (in_use, workspaces): (Vec<_>, Vec<_>) =
            self.workspaces.iter().cloned().partition(|(_, it)| it.state == WorkspaceState::InUse);
        // An agent that stays may be at work only until then.
        let later = Self { at_work: Vec::new(), workspaces, ..self.clone() };
        match later.check(RemovalAction::Delete, discards) {
            Ok(()) => in_use.into_iter().map(|(_, it)| it.id).collect(),
            Err(_) => Vec::new(),
        }
    }

    fn obstacles(&self, action: RemovalAction) -> Vec<Obstacle> {
        let open = self.tasks.iter().filter(|task| task.status.is_open());
        let open = open.map(|Task { short_id, status, .. }| {
            let japanese = format!("{short_id} は「{}」", status.name_in(Japanese));
            Obstacle::new(format!("{short_id} is {status}"), japanese)
        });
        let mut obstacles: Vec<Obstacle> = open.chain(self.at_work.iter().cloned()).collect();
        if action == RemovalAction::Delete {
            obstacles.extend(self.waiting());
            let busy = self.workspaces.iter().filter_map(|(task, it)| Some((task, busy(it)?)));
            obstacles.extend(busy.map(|(task, (english, japanese))| {
                let japanese = format!("{task} の作業用クローン{japanese}");
                Obstacle::new(format!("the clone of {task} {english}"), japanese)
            }));
        }
        obstacles
    }

    /// Returns the open tasks that would begin, or could begin, only because a dependency that was
    /// never done is gone.
    fn waiting(&self) -> impl Iterator<Item = Obstacle> {
        let undone = |id: &TaskId| {
            self.tasks.iter().find(|task| task.id == *id && task.status != TaskStatus::Done)
        };
        let waiting = self.dependents.iter().filter(|task| task.status.is_open());
        waiting.filter_map(move |task| {
            let undone = task.dependencies.iter().find_map(undone)?;
            let Task { short_id, status, .. } = undone;
            let waits = &task.short_id;
            let name = status.name_in(Japanese);
            Some(Obstacle::new(
                format!("{waits} depends on {short_id}, which is {status}"),
                format!("{waits} が「{name}」の {short_id} に依存"),
            ))
        })
    }
}

/// Returns why the files of a workspace cannot be removed, even if its result is given up: in
/// English and in Japanese.
fn busy(workspace: &Workspace) -> Option<(String, String)> {
    let texts = |english: &str, japanese: &str| Some((english.to_owned(), japanese.to_owned()));
    let left_out = workspace.content.iter().flat_map(|content| &content.left_out).next();
    match (workspace.state, left_out) {
        (WorkspaceState::Wanted, _) if workspace.content.is_some() => {
            texts("is being made", "を作成中")
        }
        (WorkspaceState::InUse, _) => {
            texts("is being kept; wait until it is ready", "の作業を保存中（完了をお待ちください）")
        }
        (WorkspaceState::Broken, _) => texts(
            "is broken; mend it and retry it first",
            "が壊れています（直して再試行してください）",
        ),
        (WorkspaceState::Ready, Some(entry)) => Some((
            format!("has files that could not be kept, such as {entry}; move them away"),
            format!(
                "に保存できなかったファイルがあります（{entry} など。別の場所に移してください）"
            ),
        )),
        (WorkspaceState::Wanted | WorkspaceState::Ready | WorkspaceState::Removed, _) => None,
    }
}

/// The number of things that a refusal lists.
const MAX_LISTED: usize = 10;

/// Returns the first things of a list, and what `more` says of the number of the others.
fn first<T>(mut all: Vec<T>, more: impl FnOnce(usize) -> T) -> Vec<T> {
    let n_more = all.len().saturating_sub(MAX_LISTED);
    if n_more > 0 {
        all.truncate(MAX_LISTED);
        all.push(more(n_more));
    }
    all
}

fn more_tasks(n: usize) -> String {
    format!("{n} more")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::JapaneseText;
    use crate::task::NewTask;
    use crate::workspace::Content;
    use crate::{Language, Timestamp};

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn task(n: u32, status: TaskStatus, dependencies: &[u32]) -> Task {
        let id = |n: u32| format!("tsk_{n}").parse().unwrap();
        let new = NewTask {
            status,
            dependencies: dependencies.iter().copied().map(id).collect(),
            ..NewTask::new("prj".parse().unwrap(), "Login")
        };
        new.to_task(id(n), format!("SHOP-{n}").parse().unwrap(), NOW).unwrap()
    }

    fn of_tasks(tasks: &[Task]) -> RemovalFacts {
        RemovalFacts {
            what: "Task SHOP-1".to_owned(),
            tasks: tasks.to_vec(),
            at_work: Vec::new(),
            workspaces: Vec::new(),
            of_forge: Vec::new(),
            dependents: Vec::new(),
        }
    }

    fn workspace(state: WorkspaceState, n_commits: u32) -> (ShortId, Workspace) {
        let ids = ("wsp".parse().unwrap(), "prj".parse().unwrap(), "tsk_1".parse().unwrap());
        let content = Content { n_commits, ..Content::default() };
        let made = Workspace::wanted(ids.0, ids.1, ids.2, "agents/x".to_owned(), NOW);
        let made = Workspace { state, content: Some(content), ..made };
        ("SHOP-1".parse().unwrap(), made)
    }

    #[track_caller]
    fn check(facts: &RemovalFacts, action: RemovalAction, expected: &str) {
        let refusal = facts.check(action, false).map_err(|refusal| refusal.to_string());
        assert_eq!(refusal, Err(expected.to_owned()));
    }

    #[test]
    fn a_keeping_is_waited_for_only_if_nothing_else_is_in_the_way() {
        let done = task(1, TaskStatus::Done, &[]);
        let open = task(2, TaskStatus::Todo, &[]);
        let [in_use, unmerged, broken] =
            [WorkspaceState::InUse, WorkspaceState::Ready, WorkspaceState::Broken]
                .map(|state| workspace(state, 1));
        let at_work = vec![Obstacle::new("Ann works on SHOP-1", "")];
        let workspaces = vec![in_use.clone()];
        let alone = RemovalFacts { at_work, workspaces, ..of_tasks(std::slice::from_ref(&done)) };
        assert_eq!(alone.being_kept(false), std::slice::from_ref(&in_use.1.id));
        let with = |others: &[(ShortId, Workspace)]| {
            let workspaces = [&[in_use.clone()][..], others].concat();
            RemovalFacts { workspaces, ..alone.clone() }
        };
        assert_eq!(with(std::slice::from_ref(&unmerged)).being_kept(true).len(), 1);
        let kept = RemovalFacts { workspaces: vec![unmerged.clone()], ..alone.clone() };
        for (facts, discards) in [
            (RemovalFacts { tasks: vec![done, open], ..alone.clone() }, false),
            (RemovalFacts { of_forge: vec![in_use.0.clone()], ..alone.clone() }, false),
            (with(&[unmerged]), false),
            (with(&[broken]), true),
            (kept, true),
        ] {
            assert!(facts.being_kept(discards).is_empty(), "{facts:?}");
        }
    }

    #[test]
    fn only_what_has_ended_is_archived_or_deleted() {
        let open = [TaskStatus::Backlog, TaskStatus::Todo, TaskStatus::Blocked];
        for action in RemovalAction::ALL.iter().copied() {
            for status in open.into_iter().chain([TaskStatus::InProgress]) {
                let facts = of_tasks(&[task(1, TaskStatus::Done, &[]), task(2, status, &[])]);
                let expected = format!("Task SHOP-1 can't be {action}d: SHOP-2 is {status}");
                check(&facts, action, &expected);
            }
            let closed = [task(1, TaskStatus::Done, &[]), task(2, TaskStatus::Cancelled, &[])];
            assert_eq!(of_tasks(&closed).check(action, false), Ok(()));
            let at_work = vec![Obstacle::new("Ann works on SHOP-2", "")];
            let facts = RemovalFacts { at_work, ..of_tasks(&closed) };
            check(&facts, action, &format!("Task SHOP-1 can't be {action}d: Ann works on SHOP-2"));
        }
    }

    #[test]
    fn a_long_list_of_obstacles_is_cut() {
        let tasks: Vec<Task> = (1..=12).map(|n| task(n, TaskStatus::Todo, &[])).collect();
        let Err(Refusal::NotRemovable { obstacles, .. }) =
            of_tasks(&tasks).check(RemovalAction::Delete, false)
        else {
            panic!("open tasks are in the way");
        };
        assert_eq!(obstacles.len(), 11);
        assert_eq!(obstacles[10].text(Language::English), "2 more");
    }

    #[test]
    fn a_refusal_is_in_the_language_of_its_reader() {
        let facts = RemovalFacts {
            dependents: vec![task(9, TaskStatus::Todo, &[1])],
            at_work: vec![Obstacle::new("Ann works on SHOP-1", "Ann が SHOP-1 で作業中")],
            workspaces: vec![workspace(WorkspaceState::Broken, 0)],
            ..of_tasks(&[task(1, TaskStatus::Blocked, &[])])
        };
        let refusal = facts.check(RemovalAction::Delete, false).unwrap_err();
        let expected = "まだ終わっていないものがあるため実行できません: SHOP-1 は「ブロック中」、\
            Ann が SHOP-1 で作業中、SHOP-9 が「ブロック中」の SHOP-1 に依存、\
            SHOP-1 の作業用クローンが壊れています（直して再試行してください）";
        assert_eq!(refusal.japanese(), Some(JapaneseText::Whole(expected.to_owned())));
    }

    #[test]
    fn a_dependency_that_is_done_may_go_and_one_that_never_was_may_not() {
        let waits = |status| RemovalFacts {
            dependents: vec![task(9, status, &[1])],
            ..of_tasks(&[task(1, TaskStatus::Cancelled, &[])])
        };
        let expected = "Task SHOP-1 can't be deleted: SHOP-9 depends on SHOP-1, which is cancelled";
        check(&waits(TaskStatus::Todo), RemovalAction::Delete, expected);
        assert_eq!(waits(TaskStatus::Todo).check(RemovalAction::Archive, false), Ok(()));
        assert_eq!(waits(TaskStatus::Done).check(RemovalAction::Delete, false), Ok(()));
        let done = of_tasks(&[task(1, TaskStatus::Done, &[])]);
        let done = RemovalFacts { dependents: vec![task(9, TaskStatus::Todo, &[1])], ..done };
        assert_eq!(done.check(RemovalAction::Delete, false), Ok(()));
    }

    #[test]
    fn unmerged_work_goes_only_if_it_is_given_up() {
        let done = of_tasks(&[task(1, TaskStatus::Done, &[])]);
        let with = |one| RemovalFacts { workspaces: vec![one], ..done.clone() };
        for state in [WorkspaceState::Ready, WorkspaceState::Removed] {
            let facts = with(workspace(state, 2));
            let refusal = facts.check(RemovalAction::Delete, false).unwrap_err();
            assert_eq!(refusal.code(), "unmerged_work");
            assert_eq!(facts.check(RemovalAction::Delete, true), Ok(()));
            assert_eq!(facts.check(RemovalAction::Archive, false), Ok(()));
            assert_eq!(with(workspace(state, 0)).check(RemovalAction::Delete, false), Ok(()));
            let (task, it) = workspace(state, 2);
            let merged = Workspace { merged_commit: Some("c".to_owned()), ..it.clone() };
            assert_eq!(with((task.clone(), merged)).check(RemovalAction::Delete, false), Ok(()));
            let discarded = Workspace { discarded_at: Some(NOW), ..it };
            assert_eq!(with((task, discarded)).check(RemovalAction::Delete, false), Ok(()));
        }
        for state in [WorkspaceState::InUse, WorkspaceState::Broken] {
            let refusal = with(workspace(state, 0)).check(RemovalAction::Delete, true).unwrap_err();
            assert_eq!(refusal.code(), "not_removable");
        }
    }

    #[test]
    fn a_task_of_a_forge_is_archived_and_never_deleted() {
        let of_forge = vec!["SHOP-1".parse().unwrap()];
        let facts = RemovalFacts { of_forge, ..of_tasks(&[task(1, TaskStatus::Done, &[])]) };
        assert_eq!(facts.check(RemovalAction::Archive, false), Ok(()));
        assert_eq!(facts.check(RemovalAction::Delete, true).unwrap_err().code(), "of_forge");
    }
}
