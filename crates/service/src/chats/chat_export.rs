//! Keeps the exports of all chats up to date: `chat.jsonl`, if the working directory of the project
//! exists.
//!
//! One task writes all exports, in the order of the store, which is the truth. An export that
//! cannot be written stays behind until it can, and messages do not fail because of it. An agent
//! with one working directory in two projects has one export for both.
//!
//! The path of a working directory is resolved when the daemon starts or a project gets it. An
//! agent of the project cannot have put a link in its place before. It is not resolved again until
//! the next start.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use crate::chat_log::{self, ChatLog, ChatLogError, Length};
use domain::agent::DEFAULT_AI_TYPE;
use domain::{AgentId, Assignment, FileOwner, InstanceKey, Message, Project, ProjectId, Purpose};
use runtime::telemetry::ErrorChain;
use store::MessageFilter;
use store::rows::{agents, messages, projects};

use super::Chats;
use super::agents::visible;
use crate::ServiceError;

/// The number of messages that are read at once.
const PAGE: usize = 500;

/// The place of a file: the resolved working directory, and the agent.
type ExportKey = (PathBuf, AgentId);
/// The number of the last message of each project that is in a file.
type Written = BTreeMap<ProjectId, i64>;
/// The reason why an export is behind.
type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// The state of all files.
#[derive(Debug, Default)]
struct ChatExports {
    of_places: HashMap<ExportKey, ChatExport>,
    /// Configured working directories with their resolved paths.
    directories: HashMap<PathBuf, PathBuf>,
    /// The number of the newest message at the last look; `None` before the first.
    seen: Option<i64>,
}

/// The state of a file.
#[derive(Debug, Default)]
struct ChatExport {
    /// The number of the last message in it, for each project that shares it.
    written: Written,
    /// Its length after the last write; `None` until it was compared with the store.
    left: Option<Length>,
    /// The log says already that it cannot be written.
    is_troubled: bool,
}

impl Chats {
    /// Exports messages until `cancel`, beginning with those that were not exported yet.
    pub async fn mirror_chats(&self, cancel: CancellationToken) {
        let mut news = self.waiting.export.listen();
        let mut exports = ChatExports::default();
        loop {
            let is_last = cancel.is_cancelled();
            self.mirror_new_messages(&mut exports).await;
            if is_last {
                return;
            }
            cancel.run_until_cancelled(news.woken()).await;
        }
    }

    /// Exports the messages since the last look, and resolves the new working directories.
    async fn mirror_new_messages(&self, exports: &mut ChatExports) {
        let seen = exports.seen;
        let read = self.core.read(move |tx| {
            let chats = match seen {
                Some(seen) => messages::list_chats_after(tx, seen)?,
                None => messages::list_chats(tx)?,
            };
            Ok((projects::list(tx)?, chats, messages::newest(tx)?))
        });
        let (projects, chats, newest) = match read.await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "could not look for new messages; their exports are behind");
                return;
            }
        };
        exports.seen = Some(newest);
        let mut directories = HashMap::new();
        for Project { id, working_directory, .. } in projects {
            directories.insert(id, exports.resolve(working_directory).await);
        }
        let exports = &mut exports.of_places;
        let mut behind = BTreeSet::new();
        for Assignment { project, agent } in chats {
            if let Some(directory) = directories.get(&project) {
                let place = (directory.clone(), agent);
                share(exports, &place, project);
                behind.insert(place);
            }
        }
        for place in behind {
            let export = exports.entry(place.clone()).or_default();
            match self.catch_up(&place, export, newest).await {
                Ok(()) => export.is_troubled = false,
                Err(error) => {
                    // The file is compared again, and an incomplete write is repaired.
                    export.left = None;
                    if !std::mem::replace(&mut export.is_troubled, true) {
                        tracing::warn!(
                            agent_id = %place.1, error = %ErrorChain(&*error),
                            "could not export a chat; its messages are in the store"
                        );
                    }
                }
            }
        }
    }

    /// Exports the messages of a place up to the number `newest`.
    async fn catch_up(
        &self,
        place: &ExportKey,
        export: &mut ChatExport,
        newest: i64,
    ) -> Result<(), Trouble> {
        let (_, agent) = place;
        let owner = self.file_owner(agent).await?;
        let (of_directory, of_agent) = place.clone();
        let opened = blocking(move || ChatLog::open(&of_directory, &of_agent, &owner)).await?;
        let Some(mut log) = opened else {
            export.left = None;
            return Ok(());
        };
        // Otherwise another program wrote the file, a write was cut short, or this is the first
        // check.
        let is_as_left = export.left == Some(log.length()?);
        if !is_as_left {
            export.written.values_mut().for_each(|written| *written = 0);
        }
        let messages = self.messages_between(agent, &export.written, newest).await?;
        let (left, messages) = blocking(move || {
            if is_as_left { log.append(&messages) } else { log.repair(&messages) }?;
            Ok((log.length()?, messages))
        })
        .await?;
        export.left = Some(left);
        for message in messages {
            export.written.insert(message.project, message.seq);
        }
        Ok(())
    }

    /// Returns the owner of the exports of `agent`.
    async fn file_owner(&self, agent: &AgentId) -> Result<FileOwner, ServiceError> {
        let agent = agent.clone();
        let found = self.core.read(move |tx| Ok(agents::get(tx, &agent)?)).await?;
        Ok(self
            .core
            .settings()
            .file_owners
            .of(found.as_ref().map_or(DEFAULT_AI_TYPE, |agent| &agent.ai_type)))
    }

    /// Returns the messages of an agent and people in these projects after that number, in order.
    /// Hidden messages are included. A message after `newest` waits for the next look: one of
    /// another project, which has been read already, may come before it.
    async fn messages_between(
        &self,
        agent: &AgentId,
        written: &Written,
        newest: i64,
    ) -> Result<Vec<Message>, ServiceError> {
        let mut found = Vec::new();
        for (project, &written) in written {
            let key = InstanceKey::new(agent.clone(), project.clone(), Purpose::Chat);
            let mut after = Some(written);
            loop {
                let filter = MessageFilter { after, only_visible: false, ..visible(&key, PAGE) };
                let read = self.core.read(move |tx| Ok(messages::list(tx, &filter)?));
                let page = read.await?;
                after = page.last().map(|message| message.seq).or(after);
                let is_last = page.len() < PAGE || after > Some(newest);
                found.extend(page.into_iter().filter(|message| message.seq <= newest));
                if is_last {
                    break;
                }
            }
        }
        found.sort_by_key(|message| message.seq);
        Ok(found)
    }
}

impl ChatExports {
    /// Returns the path to which a configured working directory was first resolved.
    async fn resolve(&mut self, configured: PathBuf) -> PathBuf {
        if let Some(resolved) = self.directories.get(&configured) {
            return resolved.clone();
        }
        let unresolved = configured.clone();
        let resolved = tokio::task::spawn_blocking(move || chat_log::resolve(&unresolved)).await;
        let resolved = resolved.unwrap_or_else(|_| configured.clone());
        self.directories.insert(configured, resolved.clone());
        resolved
    }
}

/// Exports the chat of the project at `place`, and nowhere else.
fn share(exports: &mut HashMap<ExportKey, ChatExport>, place: &ExportKey, project: ProjectId) {
    for (other, export) in exports.iter_mut() {
        if other.1 == place.1 && other != place {
            export.written.remove(&project);
        }
    }
    let export = exports.entry(place.clone()).or_default();
    if let Entry::Vacant(new) = export.written.entry(project) {
        new.insert(0);
        export.left = None;
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ChatLogError> + Send + 'static,
) -> Result<T, Trouble> {
    Ok(tokio::task::spawn_blocking(work).await??)
}
