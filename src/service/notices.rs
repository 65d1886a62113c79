//! Notices (seed 000): a change of somebody's work tells the agents that are at it, in the same commit.

use std::collections::BTreeMap;

use crate::domain::launch::LaunchEvent;
use crate::domain::notice::{Meaning, NoticeKind, WorkChange};
use crate::domain::{Launch, LaunchId, Notice, NoticeId, Purpose};
use crate::rows::{Transaction, launches, notices};
use crate::store::{Change, Read, StoreError};

use super::{Caller, Inputs, Service, ServiceError};

impl Service {
    /// What `caller` was told and hasn't dealt with. They count as read from now on.
    pub async fn notifications(&self, caller: &Caller) -> Result<Vec<Notice>, ServiceError> {
        self.transact(|| async move {
            let (launch, expect) = self.fence(caller).await?;
            let now = self.now();
            let open = self.open_notices_of(&launch.id).await?;
            let mut changes = Vec::new();
            let mut n_open = 0;
            for before in &open {
                let notice = before.clone().read(now);
                n_open += u32::from(notice.is_open());
                if notice != *before {
                    changes.push(Change::Notice(notice));
                }
            }
            if launch.n_notices != n_open {
                changes.push(Change::Launch(Launch { n_notices: n_open, ..launch }));
            }
            Ok((crate::store::Commit { expect, changes }, open))
        })
        .await
    }

    pub(super) async fn open_notices_of(
        &self,
        launch: &LaunchId,
    ) -> Result<Vec<Notice>, StoreError> {
        let mut notices = self.store.notices_of(launch).await?;
        notices.retain(Notice::is_open);
        Ok(notices)
    }

    /// Adds to `changes` what tells the agents at work of them: all but that of `by`, who makes them.
    pub(super) async fn tell_agents(
        &self,
        changes: &mut Vec<Change>,
        by: Option<&LaunchId>,
    ) -> Result<(), StoreError> {
        let news = self.news(changes).await?;
        if news.is_empty() {
            return Ok(());
        }
        for stored in self.store.open_launches().await? {
            if by != Some(&stored.id) {
                self.tell(stored, &news, changes).await?;
            }
        }
        Ok(())
    }

    /// What changes for agents, compared with what is stored.
    async fn news(&self, changes: &[Change]) -> Result<Vec<WorkChange>, StoreError> {
        let mut news = Vec::new();
        for change in changes {
            match change {
                Change::Task(after) if after.revision > 0 => {
                    if let Some(before) =
                        self.store.task(&after.id).await?.filter(|before| before != after)
                    {
                        news.push(WorkChange::Task {
                            before: Box::new(before),
                            after: Box::new(after.clone()),
                        });
                    }
                }
                Change::Unassign(assignment) => {
                    news.push(WorkChange::Unassigned(assignment.clone()));
                }
                Change::Project(after) => {
                    let before = self.store.project(&after.id).await?;
                    if before.is_some_and(|before| before.status != after.status) {
                        news.push(WorkChange::Project {
                            project: after.id.clone(),
                            status: after.status,
                        });
                    }
                }
                Change::Agent(after) => {
                    let before = self.store.agent(&after.id).await?;
                    if before.is_some_and(|before| before.status != after.status) {
                        news.push(WorkChange::Agent {
                            agent: after.id.clone(),
                            status: after.status,
                        });
                    }
                }
                _ => {}
            }
        }
        Ok(news)
    }

    async fn tell(
        &self,
        stored: Launch,
        news: &[WorkChange],
        changes: &mut Vec<Change>,
    ) -> Result<(), StoreError> {
        let now = self.now();
        if stored.key.purpose == Purpose::Chat {
            if news.iter().any(|change| change.ends_chat(&stored)) {
                let linger = self.settings().linger;
                let event = LaunchEvent::ChatEnded { at: now, patience: linger };
                // Whoever is told that a chat ends isn't wanted back, whatever is said meanwhile: nothing has to hold still.
                changes.extend(self.commit_by(&stored, &event, now).await?.changes);
            }
            return Ok(());
        }
        let meanings: Vec<Meaning> =
            news.iter().filter_map(|change| change.means(&stored)).collect();
        if meanings.is_empty() {
            return Ok(());
        }
        // By what they are about: of two about the same, the newer counts.
        let open = self.open_notices_of(&stored.id).await?;
        let mut notices: BTreeMap<NoticeId, Notice> =
            open.iter().map(|notice| (notice.id.clone(), notice.clone())).collect();
        for meaning in meanings {
            for notice in notices.values_mut().filter(|notice| is_superseded(notice, &meaning)) {
                *notice = notice.clone().settled(now);
            }
            if let Meaning::Tell { task, action, demand } = meaning {
                let id: NoticeId = self.world.new_id(NoticeId::PREFIX);
                let launch = stored.id.clone();
                let (read_at, settled_at, revision) = (None, None, 0);
                let notice = Notice {
                    id: id.clone(),
                    launch,
                    task,
                    action,
                    demand,
                    created_at: now,
                    read_at,
                    settled_at,
                    revision,
                };
                notices.insert(id, notice);
            }
        }
        let n_notices = u32::try_from(notices.values().filter(|notice| notice.is_open()).count())
            .unwrap_or(u32::MAX);
        changes.extend(
            notices.into_values().filter(|notice| !open.contains(notice)).map(Change::Notice),
        );
        set_notices(changes, stored, n_notices);
        Ok(())
    }

    /// Settles what is open of a launch: its agent has reported, or is gone.
    pub(super) async fn settle_notices(&self, launch: &Launch) -> Result<Vec<Change>, StoreError> {
        if launch.n_notices == 0 {
            return Ok(Vec::new());
        }
        let open = self.open_notices_of(&launch.id).await?;
        Ok(open.into_iter().map(|notice| Change::Notice(notice.settled(self.now()))).collect())
    }
}

/// Returns the notices of a launch that are not settled.
pub(super) fn open_of(tx: &mut Read<'_>, launch: &LaunchId) -> Result<Vec<Notice>, StoreError> {
    let mut notices = notices::list_of_launch(tx, launch)?;
    notices.retain(Notice::is_open);
    Ok(notices)
}

/// Settles the open notices of a launch: its agent has reported, or is gone.
pub(super) fn settle(tx: &mut Transaction<'_>, launch: &Launch) -> Result<(), StoreError> {
    if launch.n_notices > 0 {
        for notice in open_of(tx, &launch.id)? {
            notices::put(tx, &notice.settled(tx.now()), &launch.key)?;
        }
    }
    Ok(())
}

impl Inputs {
    /// Tells the agents at work what has changed for them: all but that of `by`, which made the changes.
    pub(super) fn tell_agents(
        &self,
        tx: &mut Transaction<'_>,
        news: &[WorkChange],
        by: Option<&LaunchId>,
    ) -> Result<(), StoreError> {
        if news.is_empty() {
            return Ok(());
        }
        for launch in launches::list_open(tx)? {
            if by == Some(&launch.id) {
                continue;
            }
            match launch.key.purpose {
                Purpose::Chat => {
                    if news.iter().any(|change| change.ends_chat(&launch)) {
                        let (at, patience) = (tx.now(), self.settings.linger);
                        self.happen(tx, &launch, &[LaunchEvent::ChatEnded { at, patience }])?;
                    }
                }
                Purpose::Task => {
                    let meanings = news.iter().filter_map(|change| change.means(&launch));
                    tell(tx, launch.clone(), meanings.collect())?;
                }
            }
        }
        Ok(())
    }
}

/// Writes the notices for an agent. Of two about the same, the newer one counts.
fn tell(
    tx: &mut Transaction<'_>,
    launch: Launch,
    meanings: Vec<Meaning>,
) -> Result<(), StoreError> {
    if meanings.is_empty() {
        return Ok(());
    }
    let (open, now) = (open_of(tx, &launch.id)?, tx.now());
    let mut all = open.clone();
    for meaning in meanings {
        for notice in all.iter_mut().filter(|notice| is_superseded(notice, &meaning)) {
            *notice = notice.clone().settled(now);
        }
        if let Meaning::Tell { task, action, demand } = meaning {
            let (id, launch) = (tx.new_id(NoticeId::PREFIX), launch.id.clone());
            let (read_at, settled_at, revision) = (None, None, 0);
            let created_at = now;
            all.push(Notice {
                id,
                launch,
                task,
                action,
                demand,
                created_at,
                read_at,
                settled_at,
                revision,
            });
        }
    }
    for notice in all.iter().filter(|notice| !open.contains(notice)) {
        notices::put(tx, notice, &launch.key)?;
    }
    let n_notices = all.iter().filter(|notice| notice.is_open()).count();
    let n_notices = u32::try_from(n_notices).unwrap_or(u32::MAX);
    if launch.n_notices != n_notices {
        launches::put(tx, &Launch { n_notices, ..launch })?;
    }
    Ok(())
}

/// Whether what is told now, or taken back, stands in the place of `notice`.
fn is_superseded(notice: &Notice, by: &Meaning) -> bool {
    match by {
        Meaning::Tell { task, action, .. } => {
            notice.task == *task && (task.is_some() || notice.action.kind() == action.kind())
        }
        Meaning::TakeBackTask(task) => notice.task.as_ref() == Some(task),
        Meaning::TakeBackPause => {
            notice.action.kind() == NoticeKind::Stop && notice.action.is_a_pause()
        }
    }
}

/// Notes on the launch how many notices there are for it, in the row that is to be written anyway, if there is one.
fn set_notices(changes: &mut Vec<Change>, stored: Launch, n_notices: u32) {
    let written = changes.iter_mut().find_map(|change| match change {
        Change::Launch(launch) if launch.id == stored.id => Some(launch),
        _ => None,
    });
    match written {
        Some(launch) => launch.n_notices = n_notices,
        None if stored.n_notices == n_notices => {}
        None => changes.push(Change::Launch(Launch { n_notices, ..stored })),
    }
}
