//! Reads the lines of a file into objects, under the rules that REST has for the same objects. What
//! the objects refer to, and what the store has already, is checked later.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde_json::Value;

use super::lines::LineTooLong;
use super::problems::Problems;
use super::{AgentLine, CommentLine, Counts, FORMAT, Header, Line, MAX_NUMBER, VERSION};
use super::{MessageLine, ProjectLine};
use crate::agent::{AgentEdit, AgentStatus, ProjectEdit, ProjectStatus};
use crate::chat::said;
use crate::comment::comment_text;
use crate::id::{AgentId, CommentId, MessageId, ProjectId, TaskId};
use crate::limits;
use crate::printable::excerpt;
use crate::task::{TaskStatus, check_title};
use crate::workspace::MergeHooks;
use crate::{Agent, Comment, Message, Project, ProjectKey, Refusal, Task};

/// The longest part of an error about JSON that is told, in characters.
const MAX_SHOWN: usize = 300;

/// An object with the number of its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered<T> {
    pub line: usize,
    pub object: T,
}

/// A project of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectEntry {
    pub project: Project,
    pub former_keys: Vec<ProjectKey>,
    /// The number of its next task in the file.
    pub next_number: u32,
    pub agents: BTreeSet<AgentId>,
}

/// A message of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageEntry {
    pub message: Message,
    pub is_unread: bool,
}

/// The objects of a file. None of them is stored yet, and no short id has the key of its project.
#[derive(Debug, Clone)]
pub struct ExportFile {
    pub header: Header,
    pub agents: Vec<Numbered<Agent>>,
    pub projects: Vec<Numbered<ProjectEntry>>,
    pub tasks: Vec<Numbered<Task>>,
    pub comments: Vec<Numbered<Comment>>,
    pub messages: Vec<Numbered<MessageEntry>>,
}

/// Takes the lines of a file in their order.
#[derive(Debug, Default)]
pub struct FileReader {
    header: Option<Header>,
    agents: Vec<Numbered<Agent>>,
    projects: Vec<Numbered<ProjectEntry>>,
    tasks: Vec<Numbered<Task>>,
    comments: Vec<Numbered<Comment>>,
    messages: Vec<Numbered<MessageEntry>>,
    lines: LinesOf,
    counts: Counts,
    has_ended: bool,
    /// True if the rest of the file has no meaning.
    is_given_up: bool,
    problems: Problems,
}

/// The lines of what must not be in a file twice.
#[derive(Debug, Default)]
struct LinesOf {
    agents: BTreeMap<AgentId, usize>,
    projects: BTreeMap<ProjectId, usize>,
    keys: BTreeMap<ProjectKey, usize>,
    tasks: BTreeMap<TaskId, usize>,
    numbers: BTreeMap<(ProjectId, u32), usize>,
    comments: BTreeMap<CommentId, usize>,
    messages: BTreeMap<MessageId, usize>,
}

impl FileReader {
    /// Takes a line without its end.
    pub fn take(&mut self, line: usize, bytes: &[u8]) {
        if self.is_given_up || bytes.trim_ascii().is_empty() {
            return;
        }
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(_) if self.header.is_none() => return self.give_up(line, foreign(bytes)),
            Err(error) => {
                let place = error.valid_up_to() + 1;
                let message = format!("byte {place} is not UTF-8: expected JSON in UTF-8");
                return self.problems.add(line, message);
            }
        };
        if self.header.is_none() {
            return match header(text) {
                Ok(header) => self.header = Some(header),
                Err(message) => self.give_up(line, message),
            };
        }
        if self.has_ended {
            let message = "nothing is expected after the line `end`: this is not one export";
            return self.give_up(line, message.to_owned());
        }
        match parsed(text) {
            Ok(found) => {
                self.counts.count(&found);
                if let Err(message) = self.object(line, found) {
                    self.problems.add(line, message);
                }
            }
            Err(message) => self.problems.add(line, message),
        }
    }

    /// Ends the reading at a line that is too long.
    pub fn stop(&mut self, too_long: LineTooLong) {
        if !self.is_given_up {
            self.give_up(too_long.line, too_long.to_string());
        }
    }

    /// Returns the objects of a file of this many lines.
    ///
    /// # Errors
    /// The problems of the file.
    pub fn finish(mut self, n_lines: usize) -> Result<ExportFile, Problems> {
        if !self.is_given_up && self.header.is_none() {
            self.problems.add(1, "the file is empty: expected the header of an export");
        } else if !self.is_given_up && !self.has_ended {
            let message =
                "the file ends here, without the line `end`: it was cut off; export again";
            self.problems.add(n_lines, message);
        }
        let Some(header) = self.header.filter(|_| self.problems.is_empty()) else {
            return Err(self.problems.sorted());
        };
        let Self { agents, projects, tasks, comments, messages, .. } = self;
        Ok(ExportFile { header, agents, projects, tasks, comments, messages })
    }

    fn give_up(&mut self, line: usize, message: String) {
        self.is_given_up = true;
        self.problems.add(line, message);
    }

    fn object(&mut self, line: usize, found: Line) -> Result<(), String> {
        match found {
            Line::Header(_) => {
                return Err("a second header: a file contains one export".to_owned());
            }
            Line::End(expected) => return self.end(expected),
            Line::Agent(found) => {
                once(&mut self.lines.agents, &found.id, line, "agent")?;
                self.agents.push(Numbered { line, object: agent(found)? });
            }
            Line::Project(found) => {
                once(&mut self.lines.projects, &found.id, line, "project")?;
                for key in std::iter::once(&found.key).chain(&found.former_keys) {
                    once(&mut self.lines.keys, key, line, "key")?;
                }
                self.projects.push(Numbered { line, object: project(found)? });
            }
            Line::Task(found) => {
                once(&mut self.lines.tasks, &found.id, line, "task")?;
                let number = found.short_id.number;
                let place = (found.project.clone(), number);
                if let Some(other) = self.lines.numbers.insert(place, line) {
                    return Err(format!(
                        "task `{}`: the task in line {other} has the number {number} in the same \
                         project",
                        found.id
                    ));
                }
                self.tasks.push(Numbered { line, object: task(found)? });
            }
            Line::Comment(found) => {
                once(&mut self.lines.comments, &found.id, line, "comment")?;
                self.comments.push(Numbered { line, object: comment(found)? });
            }
            Line::Message(found) => {
                once(&mut self.lines.messages, &found.id, line, "message")?;
                self.messages.push(Numbered { line, object: message(found)? });
            }
        }
        Ok(())
    }

    fn end(&mut self, expected: Counts) -> Result<(), String> {
        self.has_ended = true;
        if expected == self.counts {
            return Ok(());
        }
        let found = self.counts;
        Err(format!("expected {expected} before the end, and found {found}: lines are missing"))
    }
}

/// Notes the line of an object.
///
/// # Errors
/// An earlier line has the same.
fn once<T: Ord + Clone + Display>(
    lines: &mut BTreeMap<T, usize>,
    id: &T,
    line: usize,
    what: &str,
) -> Result<(), String> {
    match lines.insert(id.clone(), line) {
        Some(other) => Err(format!("{what} `{id}` is in line {other} already")),
        None => Ok(()),
    }
}

/// Reads the first line.
fn header(text: &str) -> Result<Header, String> {
    let found: Value = serde_json::from_str(text).map_err(|_| foreign(text.as_bytes()))?;
    if found["kind"] != "header" || found["format"] != FORMAT {
        return Err(foreign(text.as_bytes()));
    }
    match found["version"].as_u64() {
        Some(version) if version > u64::from(VERSION) => Err(format!(
            "the file has version {version} of the format, and this program reads version \
             {VERSION}: it was written by a newer version of this program"
        )),
        _ => match parsed(text)? {
            Line::Header(header) if header.version == VERSION => Ok(header),
            _ => Err(format!("expected version {VERSION} of the format")),
        },
    }
}

/// Returns the problem of a file that is not an export.
fn foreign(start: &[u8]) -> String {
    if start.starts_with(b"SQLite format 3\0") {
        return "this is a database: `agent-coordinator restore` takes a backup".to_owned();
    }
    format!(
        "this is not an export: expected a header such as \
         {{\"kind\":\"header\",\"format\":\"{FORMAT}\",\"version\":{VERSION},…}}"
    )
}

fn parsed(text: &str) -> Result<Line, String> {
    // Serde would take a list of the fields for an object.
    if !text.trim_start().starts_with('{') {
        return Err("expected a JSON object such as {\"kind\":\"task\",…}".to_owned());
    }
    serde_json::from_str(text).map_err(|error| {
        if error.is_eof() {
            return "the line is cut off: expected a complete JSON object".to_owned();
        }
        let message = error.to_string();
        // Each line is parsed alone, so the line of the message is always 1.
        let message = message.rsplit_once(" at line ").map_or(&*message, |(before, _)| before);
        excerpt(message, MAX_SHOWN).into_owned()
    })
}

fn agent(found: AgentLine) -> Result<Agent, String> {
    let AgentLine { id, name, ai_type, system_prompt, status, archived_from, created_at } = found;
    let edit = AgentEdit {
        name: Some(name),
        ai_type: Some(ai_type),
        system_prompt: Some(system_prompt),
        status: Some(status),
        ..AgentEdit::default()
    };
    let former = archived_from.unwrap_or(AgentStatus::Active);
    let new = Agent { status: former, ..Agent::new(id.clone(), None, created_at) };
    // Without a passkey, nothing is hashed.
    edit.apply(new, [0; 16]).map_err(|refusal| of("agent", &id, &refusal))
}

fn project(found: ProjectLine) -> Result<ProjectEntry, String> {
    let ProjectLine { id, key, former_keys, is_key_edited, next_number, created_at, .. } = found;
    if next_number == 0 || next_number > MAX_NUMBER + 1 {
        return Err(format!(
            "project `{id}`: `next_number` is {next_number}, and 1 to {} is expected",
            MAX_NUMBER + 1
        ));
    }
    let edit = ProjectEdit {
        name: Some(found.name),
        key: Some(key),
        working_directory: Some(found.working_directory),
        status: Some(found.status),
        workspace: Some(found.workspace),
        workspace_base: found.workspace_base,
        workspace_branch: found.workspace_branch,
        merge_hooks: found.skips_merge_hooks.then(|| MergeHooks::Off.to_string()),
        ..ProjectEdit::default()
    };
    let former = found.archived_from.unwrap_or(ProjectStatus::Active);
    let new = Project { status: former, ..Project::new(id.clone(), created_at) };
    let project = edit.apply(new).map_err(|refusal| of("project", &id, &refusal))?;
    let project = Project { is_key_edited, ..project };
    let agents = found.agents.into_iter().collect();
    Ok(ProjectEntry { project, former_keys, next_number, agents })
}

fn task(mut found: Task) -> Result<Task, String> {
    let id = found.id.clone();
    let number = found.short_id.number;
    if number == 0 || number > MAX_NUMBER {
        return Err(format!(
            "task `{id}`: `number` is {number}, and 1 to {MAX_NUMBER} is expected"
        ));
    }
    let refused = |refusal: Refusal| of("task", &id, &refusal);
    let mut seen = BTreeSet::new();
    found.dependencies.retain(|dependency| seen.insert(dependency.clone()));
    let task = Task {
        title: limits::TITLE.take(&found.title).map_err(refused)?.into_owned(),
        description: limits::DESCRIPTION.take(&found.description).map_err(refused)?.into_owned(),
        archived_at: found.archived_at.filter(|_| !found.status.is_open()),
        ..found
    };
    check_title(&task).map_err(refused)?;
    let reason = limits::REASON.take_optional(task.blocked_reason.as_deref()).map_err(refused)?;
    let reason = reason.filter(|_| task.status == TaskStatus::Blocked);
    Ok(Task { blocked_reason: reason.map(std::borrow::Cow::into_owned), ..task })
}

fn comment(found: CommentLine) -> Result<Comment, String> {
    let CommentLine { id, task, author, text, created_at } = found;
    let refused = |refusal: Refusal| of("comment", &id, &refusal);
    let text = comment_text(&text).map_err(refused)?.into_owned();
    let author = limits::NAME.take_optional(author.as_deref()).map_err(refused)?;
    let author = author.map(std::borrow::Cow::into_owned);
    Ok(Comment { id, task, author, text, created_at })
}

fn message(found: MessageLine) -> Result<MessageEntry, String> {
    let id = found.id;
    let refused = |refusal: Refusal| of("message", &id, &refusal);
    let content = said(&found.content).map_err(refused)?.into_owned();
    let author = limits::NAME.take_optional(found.author.as_deref()).map_err(refused)?;
    let message = Message {
        seq: 0,
        id: id.clone(),
        agent: found.agent,
        project: found.project,
        sender: found.sender,
        author: author.map(std::borrow::Cow::into_owned),
        content,
        created_at: found.created_at,
        is_visible: !found.is_hidden,
    };
    Ok(MessageEntry { message, is_unread: found.is_unread })
}

/// Returns a refusal with its object.
fn of(what: &str, id: &impl Display, refusal: &Refusal) -> String {
    format!("{what} `{id}`: {refusal}")
}

#[cfg(test)]
mod tests;
