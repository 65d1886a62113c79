//! Keeps the mirrors of all chats up to date: `chat.jsonl`, if the working directory of the project
//! exists.
//!
//! One task writes all mirrors, in the order of the store, which is the truth. A mirror that cannot
//! be written stays behind until it can, and messages do not fail because of it. An agent with one
//! working directory in two projects has one mirror for both.
//!
//! The path of a working directory is resolved when the daemon starts or a project gets it. An
//! agent of the project cannot have put a link in its place before. It is not resolved again until
//! the next start.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use crate::chat_log::{self, ChatLog, ChatLogError, Length};
use crate::domain::agent::DEFAULT_AI_TYPE;
use crate::domain::{AgentId, Assignment, FileOwner, InstanceKey, Message, ProjectId, Purpose};
use crate::rows::{agents, messages, projects};
use crate::store::MessageFilter;
use crate::telemetry::ErrorChain;

use super::Chats;
use super::agents::visible;
use crate::service::ServiceError;

/// The number of messages that are read at once.
const PAGE: usize = 500;

/// The place of a file: the resolved working directory, and the agent.
type Place = (PathBuf, AgentId);
/// The number of the last message of each project that is in a file.
type Written = BTreeMap<ProjectId, i64>;
type Mirrors = HashMap<Place, Mirror>;
/// Configured working directories with their resolved paths.
type Directories = HashMap<PathBuf, PathBuf>;
/// The reason why a mirror is behind.
type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// The state of a file.
#[derive(Debug, Default)]
struct Mirror {
    /// The number of the last message in it, for each project that shares it.
    written: Written,
    /// Its length after the last write; `None` until it was compared with the store.
    left: Option<Length>,
    /// The log says already that it cannot be written.
    is_troubled: bool,
}

impl Chats {
    /// Mirrors messages until `cancel`, beginning with those that were not mirrored yet.
    pub async fn mirror_chats(&self, cancel: CancellationToken) {
        let mut news = self.waiting.unmirrored.nudge.listen();
        let mut mirrors = Mirrors::new();
        let mut directories = Directories::new();
        match self.core.read(|tx| Ok(projects::list(tx)?)).await {
            Ok(projects) => {
                resolve(
                    projects.into_iter().map(|project| project.working_directory),
                    &mut directories,
                )
                .await;
            }
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "could not look up the working directories");
            }
        }
        match self.core.read(|tx| Ok(messages::list_chats(tx)?)).await {
            Ok(chats) => {
                self.mirror(chats.into_iter().collect(), &mut mirrors, &mut directories).await;
            }
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "could not compare the chats with their mirrors");
            }
        }
        // Cancel-safe: chats stay unmirrored until they are taken.
        while cancel.run_until_cancelled(news.woken()).await.is_some() {
            resolve(self.waiting.unmirrored.take_directories(), &mut directories).await;
            self.mirror(self.waiting.unmirrored.take(), &mut mirrors, &mut directories).await;
        }
        self.mirror(self.waiting.unmirrored.take(), &mut mirrors, &mut directories).await;
    }

    async fn mirror(
        &self,
        chats: BTreeSet<Assignment>,
        mirrors: &mut Mirrors,
        directories: &mut Directories,
    ) {
        let mut behind = BTreeSet::new();
        for Assignment { project, agent } in chats {
            let id = project.clone();
            match self.core.read(move |tx| Ok(projects::get(tx, &id)?)).await {
                Ok(Some(found)) => {
                    resolve([found.working_directory.clone()], directories).await;
                    let resolved = directories.get(&found.working_directory).cloned();
                    let place = (resolved.unwrap_or(found.working_directory), agent);
                    share(mirrors, &place, project);
                    behind.insert(place);
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(project_id = %project, error = %ErrorChain(&error), "could not mirror a chat");
                }
            }
        }
        for place in behind {
            let mirror = mirrors.entry(place.clone()).or_default();
            match self.catch_up(&place, mirror).await {
                Ok(()) => mirror.is_troubled = false,
                Err(error) => {
                    // The file is compared again, and an incomplete write is repaired.
                    mirror.left = None;
                    if !std::mem::replace(&mut mirror.is_troubled, true) {
                        tracing::warn!(
                            agent_id = %place.1, error = %ErrorChain(&*error),
                            "could not mirror a chat; its messages are in the store"
                        );
                    }
                }
            }
        }
    }

    async fn catch_up(
        &self,
        (directory, agent): &Place,
        mirror: &mut Mirror,
    ) -> Result<(), Trouble> {
        let (of_directory, of_agent, owner) =
            (directory.clone(), agent.clone(), self.file_owner(agent).await?);
        let opened = blocking(move || ChatLog::open(&of_directory, &of_agent, &owner)).await?;
        let Some(mut log) = opened else {
            mirror.left = None;
            return Ok(());
        };
        // Otherwise another program wrote the file, a write was cut short, or this is the first
        // check.
        let is_as_left = mirror.left == Some(log.length()?);
        if !is_as_left {
            mirror.written.values_mut().for_each(|written| *written = 0);
        }
        let messages = self.messages_after(agent, &mirror.written).await?;
        let (left, messages) = blocking(move || {
            if is_as_left { log.append(&messages) } else { log.repair(&messages) }?;
            Ok((log.length()?, messages))
        })
        .await?;
        mirror.left = Some(left);
        for message in messages {
            mirror.written.insert(message.project, message.seq);
        }
        Ok(())
    }

    /// Returns the owner of the mirrors of `agent`.
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
    /// Hidden messages are included.
    async fn messages_after(
        &self,
        agent: &AgentId,
        written: &Written,
    ) -> Result<Vec<Message>, ServiceError> {
        let mut found = Vec::new();
        for (project, &written) in written {
            let key = InstanceKey::new(agent.clone(), project.clone(), Purpose::Chat);
            let mut after = Some(written);
            loop {
                let filter = MessageFilter { after, only_visible: false, ..visible(&key, PAGE) };
                let read = self.core.read(move |tx| Ok(messages::list(tx, &filter)?));
                let page = read.await?;
                let is_last = page.len() < PAGE;
                after = page.last().map(|message| message.seq).or(after);
                found.extend(page);
                if is_last {
                    break;
                }
            }
        }
        found.sort_by_key(|message| message.seq);
        Ok(found)
    }
}

/// Resolves the directories that were not resolved before.
async fn resolve(configured: impl IntoIterator<Item = PathBuf>, directories: &mut Directories) {
    for path in configured {
        if !directories.contains_key(&path) {
            let unresolved = path.clone();
            let resolved =
                tokio::task::spawn_blocking(move || chat_log::resolve(&unresolved)).await;
            directories.insert(path.clone(), resolved.unwrap_or(path));
        }
    }
}

/// Mirrors the chat of the project at `place`, and nowhere else.
fn share(mirrors: &mut Mirrors, place: &Place, project: ProjectId) {
    for (other, mirror) in mirrors.iter_mut() {
        if other.1 == place.1 && other != place {
            mirror.written.remove(&project);
        }
    }
    let mirror = mirrors.entry(place.clone()).or_default();
    if let Entry::Vacant(new) = mirror.written.entry(project) {
        new.insert(0);
        mirror.left = None;
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ChatLogError> + Send + 'static,
) -> Result<T, Trouble> {
    Ok(tokio::task::spawn_blocking(work).await??)
}
