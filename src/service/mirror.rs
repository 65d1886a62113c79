//! Keeps the mirrors of all chats up to date: `chat.jsonl`, where the working directory of the project exists (seed 003).
//!
//! One task writes all of them, in the order of the store, which is the truth. A mirror that can't be written is behind until it
//! can, and no message fails for it. An agent with one working directory in two projects has one mirror for both.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use crate::chat_log::{ChatLog, ChatLogError, Length};
use crate::domain::{AgentId, Assignment, InstanceKey, Message, ProjectId, Purpose};
use crate::store::MessageFilter;
use crate::telemetry::ErrorChain;

use super::chat::visible;
use super::{Service, ServiceError};

/// So many messages are read at once.
const PAGE: usize = 500;

/// One file.
type Place = (PathBuf, AgentId);

/// How far a mirror has come.
#[derive(Debug, Default)]
struct Mirror {
    /// The last message of each project that is in it; none, before it was compared with the store.
    written: BTreeMap<ProjectId, i64>,
    length: Option<Length>,
    /// Somebody was told that it can't be written.
    is_troubled: bool,
}

impl Service {
    /// Mirrors what is said until `cancel`, beginning with what was not mirrored yet.
    pub async fn mirror_chats(&self, cancel: CancellationToken) {
        let mut news = self.waiting.unmirrored.nudge.listen();
        let mut mirrors = HashMap::new();
        match self.store.chats().await {
            Ok(chats) => self.mirror(chats.into_iter().collect(), &mut mirrors).await,
            Err(error) => tracing::warn!(error = %ErrorChain(&error), "could not compare the chats with their mirrors"),
        }
        // Cancel-safe: what is unmirrored stays so until it is taken.
        while cancel.run_until_cancelled(news.woken()).await.is_some() {
            self.mirror(self.waiting.unmirrored.take(), &mut mirrors).await;
        }
        self.mirror(self.waiting.unmirrored.take(), &mut mirrors).await;
    }

    async fn mirror(&self, chats: BTreeSet<Assignment>, mirrors: &mut HashMap<Place, Mirror>) {
        for (place, projects) in self.places_of(chats).await {
            let mut mirror = mirrors.remove(&place).unwrap_or_default();
            match self.catch_up(&place, &projects, &mut mirror).await {
                Ok(()) => mirror.is_troubled = false,
                Err(error) => {
                    // It begins anew, and perhaps mends what was cut short.
                    mirror.written.clear();
                    if !std::mem::replace(&mut mirror.is_troubled, true) {
                        tracing::warn!(
                            agent_id = %place.1, error = %ErrorChain(&*error),
                            "could not mirror a chat; its messages are in the store"
                        );
                    }
                }
            }
            mirrors.insert(place, mirror);
        }
    }

    /// The files of these chats, each with all projects that share it.
    async fn places_of(&self, chats: BTreeSet<Assignment>) -> BTreeMap<Place, BTreeSet<ProjectId>> {
        let mut places: BTreeMap<Place, BTreeSet<ProjectId>> = BTreeMap::new();
        if chats.is_empty() {
            return places;
        }
        let projects = match self.store.projects().await {
            Ok(projects) => projects,
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "could not mirror chats");
                return places;
            }
        };
        let directory_of = |project: &ProjectId| {
            let found = projects.iter().find(|known| known.id == *project);
            found.map(|found| found.working_directory.clone())
        };
        for Assignment { project, agent } in chats {
            let Some(directory) = directory_of(&project) else { continue };
            let sharing = projects.iter().filter(|other| other.working_directory == directory);
            let sharing = sharing.map(|other| other.id.clone());
            places.entry((directory.clone(), agent)).or_default().extend(sharing);
        }
        places
    }

    async fn catch_up(
        &self,
        (directory, agent): &Place,
        projects: &BTreeSet<ProjectId>,
        mirror: &mut Mirror,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let (place, agent_of_place) = (directory.clone(), agent.clone());
        let opened = blocking(move || ChatLog::open(&place, &agent_of_place)).await?;
        let Some(mut log) = opened else { return Ok(()) };
        let is_known = projects.iter().all(|project| mirror.written.contains_key(project));
        let is_as_left = is_known && mirror.length == Some(log.length()?);
        let after = if is_as_left { mirror.written.clone() } else { BTreeMap::new() };
        let messages = self.messages_after(agent, projects, &after).await?;
        let (length, messages) = blocking(move || {
            if is_as_left { log.append(&messages) } else { log.repair(&messages) }?;
            Ok((log.length()?, messages))
        })
        .await?;
        mirror.length = Some(length);
        for project in projects {
            mirror.written.entry(project.clone()).or_default();
        }
        for message in messages {
            mirror.written.insert(message.project, message.seq);
        }
        Ok(())
    }

    /// What an agent and people said to each other in these projects after that, hidden messages too, in order.
    async fn messages_after(
        &self,
        agent: &AgentId,
        projects: &BTreeSet<ProjectId>,
        written: &BTreeMap<ProjectId, i64>,
    ) -> Result<Vec<Message>, ServiceError> {
        let mut found = Vec::new();
        for project in projects {
            let key = InstanceKey::new(agent.clone(), project.clone(), Purpose::Chat);
            let mut after = written.get(project).copied();
            loop {
                let filter = MessageFilter { after, only_visible: false, ..visible(&key, PAGE) };
                let page = self.store.messages(&filter).await?;
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

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ChatLogError> + Send + 'static,
) -> Result<T, Box<dyn std::error::Error + Send + Sync>> {
    Ok(tokio::task::spawn_blocking(work).await??)
}
