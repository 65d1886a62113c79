//! The facts by which a thing may be archived or deleted, read from the store.

use std::collections::{BTreeMap, BTreeSet};

use crate::tasks::rules::tasks_below;
use crate::{ServiceError, catalog, tasks as all_tasks};
use domain::removal::{Affected, AffectedKind, Obstacle, RemovalFacts};
use domain::{
    AgentId, Assignment, Language, Launch, ProjectId, Purpose, Removable, ShortId, Task, TaskId,
    TaskStatus, Workspace, WorkspaceId,
};
use store::rows::{
    agents, assignments, comments, deletions, forge_items, launches, projects, tasks, workspaces,
};
use store::{Read, StoreError, TaskFilter};

use super::RemovalView;

/// Reads the facts about a thing.
///
/// # Errors
/// `TaskNotFound`, `AgentNotFound`, `ProjectNotFound`.
pub(super) fn of(tx: &mut Read<'_>, of: &Removable) -> Result<RemovalFacts, ServiceError> {
    match of {
        Removable::Task(id) => of_task(tx, id),
        Removable::Agent(id) => of_agent(tx, id),
        Removable::Project(id) => of_project(tx, id),
    }
}

fn of_task(tx: &mut Read<'_>, id: &TaskId) -> Result<RemovalFacts, ServiceError> {
    let task = all_tasks::find(tx, id)?;
    let what = format!("Task {}", task.short_id);
    let of_project = TaskFilter { project: Some(task.project.clone()), ..TaskFilter::default() };
    let mut all = tasks_below(tx, id, |_| true)?;
    all.insert(0, task);
    let ids: BTreeSet<&TaskId> = all.iter().map(|task| &task.id).collect();
    let mut found = Vec::new();
    let mut of_forge = Vec::new();
    for task in &all {
        let newest = workspaces::newest_of_task(tx, &task.id)?;
        found.extend(newest.map(|newest| (task.short_id.clone(), newest)));
        if forge_items::find_of_task(tx, &task.id)?.is_some() {
            of_forge.push(task.short_id.clone());
        }
    }
    let depends = |other: &Task| {
        !ids.contains(&other.id) && other.dependencies.iter().any(|id| ids.contains(id))
    };
    let dependents = tasks::list(tx, &of_project)?.into_iter().filter(depends).collect();
    let used: BTreeSet<&WorkspaceId> = found.iter().map(|(_, it)| &it.id).collect();
    let works = |launch: &Launch| {
        launch.task.iter().chain(&launch.claimed_task).any(|task| ids.contains(task))
            || launch.workspace.as_ref().is_some_and(|it| used.contains(it))
    };
    let at_work = at_work(tx, works, &[])?;
    Ok(RemovalFacts { what, at_work, workspaces: found, of_forge, dependents, tasks: all })
}

fn of_agent(tx: &mut Read<'_>, id: &AgentId) -> Result<RemovalFacts, ServiceError> {
    let agent = catalog::agent(tx, id)?;
    let chats = deletions::list_wanted_chats(tx, &Removable::Agent(id.clone()))?;
    let mut at_work = at_work(tx, |launch| launch.key.agent == *id, &chats)?;
    // Its work goes on between two launches, too.
    let assigned = TaskFilter { assignee: Some(id.clone()), ..TaskFilter::default() };
    let assigned = if at_work.is_empty() { tasks::list(tx, &assigned)? } else { Vec::new() };
    for task in assigned {
        if task.status == TaskStatus::InProgress {
            let Task { short_id, status, .. } = &task;
            at_work.push(Obstacle::new(
                format!("{short_id} is {status} and assigned to it"),
                format!("担当の {short_id} は「{}」", status.name_in(Language::Japanese)),
            ));
        } else if task.start_wanted_since.is_some() {
            at_work.push(Obstacle::new(
                format!("{} begins after others and is assigned to it", task.short_id),
                format!("担当の {} は依存タスクの完了後に開始予定", task.short_id),
            ));
        }
    }
    Ok(RemovalFacts {
        what: format!("Agent {}", agent.name),
        tasks: Vec::new(),
        at_work,
        workspaces: Vec::new(),
        of_forge: Vec::new(),
        dependents: Vec::new(),
    })
}

fn of_project(tx: &mut Read<'_>, id: &ProjectId) -> Result<RemovalFacts, ServiceError> {
    let project = catalog::project(tx, id)?;
    let filter = TaskFilter { project: Some(id.clone()), ..TaskFilter::default() };
    let all = tasks::list(tx, &filter)?;
    let short_ids: BTreeMap<&TaskId, &ShortId> =
        all.iter().map(|task| (&task.id, &task.short_id)).collect();
    let mut newest: BTreeMap<TaskId, Workspace> = BTreeMap::new();
    for workspace in workspaces::list_all(tx, Some(id))? {
        let known = newest.get(&workspace.task);
        let at = |it: &Workspace| (it.created_at, it.id.clone());
        if known.is_none_or(|known| at(known) < at(&workspace)) {
            newest.insert(workspace.task.clone(), workspace);
        }
    }
    let named = |(task, it): (TaskId, Workspace)| Some(((*short_ids.get(&task)?).clone(), it));
    let found = newest.into_iter().filter_map(named).collect();
    let items = forge_items::list_tasks(tx, id)?;
    let of_forge = items.iter().filter_map(|task| short_ids.get(task)).copied().cloned().collect();
    let chats = deletions::list_wanted_chats(tx, &Removable::Project(id.clone()))?;
    let at_work = at_work(tx, |launch| launch.key.project == *id, &chats)?;
    Ok(RemovalFacts {
        what: format!("Project {}", project.name),
        at_work,
        workspaces: found,
        of_forge,
        dependents: Vec::new(),
        tasks: all,
    })
}

/// Returns a phrase for each open launch that `concerns` the thing, and for each chat that waits
/// for its agent.
fn at_work(
    tx: &mut Read<'_>,
    concerns: impl Fn(&Launch) -> bool,
    chats: &[Assignment],
) -> Result<Vec<Obstacle>, StoreError> {
    let open: Vec<Launch> = launches::list_open(tx)?.into_iter().filter(concerns).collect();
    let mut phrases = Vec::new();
    for launch in &open {
        let name = agent_name(tx, &launch.key.agent)?;
        let task = launch.task.as_ref().or(launch.claimed_task.as_ref());
        let task = match task {
            Some(task) => tasks::get(tx, task)?.map(|task| task.short_id.to_string()),
            None => None,
        };
        phrases.push(match (launch.key.purpose, task) {
            (Purpose::Chat, _) => Obstacle::new(
                format!("a chat with {name} is open"),
                format!("{name} とのチャットが続いています"),
            ),
            (_, Some(task)) => Obstacle::new(
                format!("{name} works on {task}"),
                format!("{name} が {task} で作業中"),
            ),
            (_, None) => Obstacle::new(format!("{name} is at work"), format!("{name} が作業中")),
        });
    }
    let is_open = |chat: &Assignment| {
        open.iter()
            .any(|launch| launch.key.agent == chat.agent && launch.key.project == chat.project)
    };
    for chat in chats.iter().filter(|chat| !is_open(chat)) {
        let name = agent_name(tx, &chat.agent)?;
        phrases.push(Obstacle::new(
            format!("a chat waits for {name}"),
            format!("チャットが {name} を待っています"),
        ));
    }
    Ok(phrases)
}

fn agent_name(tx: &mut Read<'_>, id: &AgentId) -> Result<String, StoreError> {
    Ok(agents::get(tx, id)?.map_or_else(|| id.to_string(), |agent| agent.name))
}

/// Returns what a deletion takes along or touches.
pub(super) fn view(
    tx: &mut Read<'_>,
    of: &Removable,
    facts: &RemovalFacts,
) -> Result<RemovalView, ServiceError> {
    let titled = |task: &Task| format!("{} {}", task.short_id, task.title);
    let mut affected = Vec::new();
    affected.extend(Affected::named(AffectedKind::Tasks, facts.tasks.iter().map(titled)));
    let clones = facts.workspaces.iter().map(|(task, _)| task.to_string());
    affected.extend(Affected::named(AffectedKind::Workspaces, clones));
    let assigned = assigned_names(tx, of)?;
    affected.extend(Affected::named(AffectedKind::Assignments, assigned.into_iter()));
    let n_comments = comments::count(tx, facts.tasks.iter().map(|task| &task.id))?;
    affected.extend(Affected::counted(AffectedKind::Comments, n_comments));
    let n_messages = deletions::count_messages(tx, of)?;
    affected.extend(Affected::counted(AffectedKind::Messages, n_messages));
    let n_launches = deletions::count_launches(tx, of)?;
    affected.extend(Affected::counted(AffectedKind::Launches, n_launches));
    let kept = match of {
        Removable::Task(_) => facts.dependents.clone(),
        Removable::Agent(id) => {
            let assigned = TaskFilter { assignee: Some(id.clone()), ..TaskFilter::default() };
            tasks::list(tx, &assigned)?
        }
        Removable::Project(_) => Vec::new(),
    };
    affected.extend(Affected::named(AffectedKind::KeptTasks, kept.iter().map(titled)));
    let name = match of {
        Removable::Task(_) => facts.tasks.first().map(|task| task.title.clone()),
        Removable::Agent(id) => agents::get(tx, id)?.map(|agent| agent.name),
        Removable::Project(id) => projects::get(tx, id)?.map(|project| project.name),
    };
    Ok(RemovalView {
        of: of.clone(),
        what: facts.what.clone(),
        name: name.unwrap_or_default(),
        affected,
        refusal: None,
    })
}

/// Returns the names of the projects of an agent, or of the agents of a project.
fn assigned_names(tx: &mut Read<'_>, of: &Removable) -> Result<Vec<String>, StoreError> {
    let mut names = Vec::new();
    for Assignment { project, agent } in assignments::list(tx)? {
        match of {
            Removable::Agent(id) if *id == agent => {
                names.extend(projects::get(tx, &project)?.map(|project| project.name));
            }
            Removable::Project(id) if *id == project => names.push(agent_name(tx, &agent)?),
            _ => {}
        }
    }
    Ok(names)
}
