//! `export`: projects, agents, tasks and chats as JSON lines, in parts.
//!
//! Each part is read from one snapshot. The parts together are not one, because a snapshot would
//! have to last as long as the reader of the file takes. What changes meanwhile may be in the file
//! or not. Agents that came meanwhile follow at the end. If people delete something during an
//! export, the file may refer to it, and `import` names the line.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;

use domain::export::{AgentLine, CommentLine, Counts, Header, Line, MessageLine, ProjectLine};
use domain::id::{AgentId, ProjectId};
use domain::{Assignment, InstanceKey, Project, Purpose, Refusal, Task, TaskStatus, Timestamp};
use store::rows::{
    agents, assignments, comments, messages, project_keys, projects, start_histories, tasks,
};
use store::{MessageFilter, Read, StoreError};

use super::{Service, ServiceError};

/// The number of objects that are read at once. Each may have a text of some hundred kilobytes.
const PAGE: usize = 50;

/// An export under way.
#[derive(Debug)]
pub struct Export {
    /// The selected projects; `None` for all.
    selected: Option<BTreeSet<ProjectId>>,
    projects: Vec<ProjectId>,
    rest: VecDeque<Part>,
    /// The agents that were read, or will be.
    agents: BTreeSet<AgentId>,
    counts: Counts,
}

/// A part that is still to be read.
#[derive(Debug)]
enum Part {
    Header(Timestamp),
    Agents(Vec<AgentId>),
    Projects(Vec<ProjectId>),
    /// The tasks of a project after a number, with their comments.
    Tasks(ProjectId, u32),
    /// All chats.
    Chats,
    /// The messages of a chat after a number.
    Messages(Assignment, i64),
    /// The agents that came meanwhile.
    LaterAgents,
    End,
}

impl Service {
    /// Begins an export of all projects, or of those in `selected` with their agents and chats.
    ///
    /// # Errors
    /// `ProjectNotFound`.
    pub async fn begin_export(
        &self,
        selected: Option<BTreeSet<ProjectId>>,
    ) -> Result<Export, ServiceError> {
        let now = self.time();
        self.core
            .read(move |tx| {
                let all = projects::list(tx)?.into_iter().map(|project| project.id);
                let known: BTreeSet<ProjectId> = all.collect();
                let projects: Vec<ProjectId> = match &selected {
                    None => known.into_iter().collect(),
                    Some(selected) => {
                        if let Some(unknown) = selected.iter().find(|id| !known.contains(*id)) {
                            let project = unknown.clone();
                            return Err(Refusal::ProjectNotFound { project }.into());
                        }
                        selected.iter().cloned().collect()
                    }
                };
                let agents = wanted_agents(tx, selected.as_ref())?;
                let mut rest = VecDeque::from([Part::Header(now)]);
                rest.extend(in_pages(&agents).map(Part::Agents));
                rest.extend(projects.chunks(PAGE).map(|page| Part::Projects(page.to_vec())));
                rest.extend(projects.iter().map(|project| Part::Tasks(project.clone(), 0)));
                rest.extend([Part::Chats, Part::LaterAgents, Part::End]);
                let selected = selected.clone();
                Ok(Export { selected, projects, rest, agents, counts: Counts::default() })
            })
            .await
    }

    /// Returns the next lines of an export; `None` after the last ones.
    ///
    /// # Errors
    /// The store cannot be read. The export cannot go on then.
    pub async fn next_part(&self, export: &mut Export) -> Result<Option<String>, ServiceError> {
        while let Some(part) = export.rest.pop_front() {
            let text = self.read_part(export, part).await?;
            if !text.is_empty() {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    async fn read_part(&self, export: &mut Export, part: Part) -> Result<String, ServiceError> {
        let lines = match part {
            Part::Header(now) => {
                let projects = export.selected.is_some().then(|| export.projects.clone());
                vec![Line::Header(Header::new(projects, now))]
            }
            Part::Agents(ids) => {
                let read = move |tx: &mut Read<'_>| {
                    let mut lines = Vec::with_capacity(ids.len());
                    for id in &ids {
                        lines.extend(agents::get(tx, id)?.map(AgentLine::from).map(Line::Agent));
                    }
                    Ok(lines)
                };
                self.core.read(read).await?
            }
            Part::Projects(ids) => self.core.read(move |tx| Ok(project_lines(tx, &ids)?)).await?,
            Part::Tasks(project, after) => {
                let of = project.clone();
                let read = move |tx: &mut Read<'_>| {
                    let mut found = tasks::list_by_number(tx, &of, after, PAGE)?;
                    let mut said = Vec::new();
                    for task in &mut found {
                        forget_deleted_agent(tx, task)?;
                        said.extend(comments::list_of_task(tx, &task.id)?);
                    }
                    Ok((found, said))
                };
                let (found, said) = self.core.read(read).await?;
                if let Some(last) = found.last().filter(|_| found.len() == PAGE) {
                    export.rest.push_front(Part::Tasks(project, last.short_id.number));
                }
                let said = said.into_iter().map(CommentLine::from).map(Line::Comment);
                found.into_iter().map(Line::Task).chain(said).collect()
            }
            Part::Chats => {
                let read = |tx: &mut Read<'_>| {
                    let agents: BTreeSet<AgentId> = agents::list_ids(tx)?.into_iter().collect();
                    let mut chats = messages::list_chats(tx)?;
                    // The messages of a deleted agent stay until that cannot be undone any more.
                    chats.retain(|chat| agents.contains(&chat.agent));
                    Ok(chats)
                };
                let chats = self.core.read(read).await?;
                for chat in chats.into_iter().rev() {
                    if export.projects.binary_search(&chat.project).is_ok() {
                        export.rest.push_front(Part::Messages(chat, 0));
                    }
                }
                Vec::new()
            }
            Part::Messages(chat, after) => {
                let of = chat.clone();
                let read = move |tx: &mut Read<'_>| Ok(messages_after(tx, &of, after)?);
                let (found, last) = self.core.read(read).await?;
                if let Some(last) = last.filter(|_| found.len() == PAGE) {
                    export.rest.push_front(Part::Messages(chat, last));
                }
                found.into_iter().map(Line::Message).collect()
            }
            Part::LaterAgents => {
                let selected = export.selected.clone();
                let read = move |tx: &mut Read<'_>| Ok(wanted_agents(tx, selected.as_ref())?);
                let wanted = self.core.read(read).await?;
                let later: BTreeSet<AgentId> = wanted.difference(&export.agents).cloned().collect();
                for page in in_pages(&later) {
                    export.rest.push_front(Part::Agents(page));
                }
                Vec::new()
            }
            Part::End => vec![Line::End(export.counts)],
        };
        let mut text = String::new();
        for line in lines {
            export.counts.count(&line);
            // Writing to a string cannot fail.
            let _ = write!(text, "{}", line.to_text());
        }
        Ok(text)
    }
}

fn in_pages(ids: &BTreeSet<AgentId>) -> impl Iterator<Item = Vec<AgentId>> {
    let ids: Vec<AgentId> = ids.iter().cloned().collect();
    let pages: Vec<Vec<AgentId>> = ids.chunks(PAGE).map(<[AgentId]>::to_vec).collect();
    pages.into_iter()
}

/// Returns all agents, or those that work, have tasks or chat in the selected projects.
fn wanted_agents(
    tx: &mut Read<'_>,
    selected: Option<&BTreeSet<ProjectId>>,
) -> Result<BTreeSet<AgentId>, StoreError> {
    let Some(selected) = selected else {
        return Ok(agents::list_ids(tx)?.into_iter().collect());
    };
    let pairs = assignments::list(tx)?.into_iter().chain(messages::list_chats(tx)?);
    let pairs = pairs.filter(|pair| selected.contains(&pair.project));
    let mut wanted: BTreeSet<AgentId> = pairs.map(|pair| pair.agent).collect();
    for project in selected {
        wanted.extend(tasks::list_assignees(tx, project)?);
    }
    Ok(wanted)
}

/// Leaves out the assignee of a task if that agent was deleted: an import could not find it.
fn forget_deleted_agent(tx: &mut Read<'_>, task: &mut Task) -> Result<(), StoreError> {
    let Some(assignee) = &task.assignee else { return Ok(()) };
    if agents::get(tx, assignee)?.is_some() {
        return Ok(());
    }
    task.assignee = None;
    task.start_wanted_since = None;
    if task.status == TaskStatus::InProgress {
        task.status = TaskStatus::Todo;
    }
    Ok(())
}

fn project_lines(tx: &mut Read<'_>, ids: &[ProjectId]) -> Result<Vec<Line>, StoreError> {
    let assignments = assignments::list(tx)?;
    let mut lines = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(project) = projects::get(tx, id)? else { continue };
        let keys = project_keys::list_of_project(tx, id)?;
        let members = assignments.iter().filter(|assignment| assignment.project == *id);
        let members = members.map(|assignment| assignment.agent.clone()).collect();
        lines.push(Line::Project(project_line(project, keys, members)));
    }
    Ok(lines)
}

fn project_line(
    project: Project,
    keys: Vec<project_keys::KeyRecord>,
    members: Vec<AgentId>,
) -> ProjectLine {
    let next_number = keys.iter().map(|record| record.next_number).max().unwrap_or(1);
    let former = keys.into_iter().map(|record| record.key).filter(|key| *key != project.key);
    let former = former.collect();
    ProjectLine::of(project, former, next_number, members)
}

/// Returns the messages of a chat after a number, and the number of the last of them.
fn messages_after(
    tx: &mut Read<'_>,
    chat: &Assignment,
    after: i64,
) -> Result<(Vec<MessageLine>, Option<i64>), StoreError> {
    let key = InstanceKey::new(chat.agent.clone(), chat.project.clone(), Purpose::Chat);
    let read_up_to = start_histories::get(tx, &key)?.read_up_to;
    let oldest = MessageFilter::oldest(chat.agent.clone(), chat.project.clone(), PAGE);
    let filter = MessageFilter { after: Some(after), ..oldest };
    let found = messages::list(tx, &filter)?;
    let last = found.last().map(|message| message.seq);
    let lines = found.into_iter().map(|message| MessageLine::of(message, read_up_to));
    Ok((lines.collect(), last))
}
