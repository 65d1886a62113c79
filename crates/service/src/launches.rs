//! Launches: one for each start of an agent. The coordinator that keeps the process reports it
//! here. People list launches and stop them.

pub(super) mod accounts;
pub(super) mod activities;
pub(super) mod change;
pub(super) mod conversations;
pub(super) mod history;
mod memory;
pub(super) mod operate;
pub(super) mod other_coordinators;
pub(super) mod output;
pub(super) mod shims;
pub(super) mod start;
pub(super) mod totals;
mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::check::MAX_OUTPUT;
use domain::id::{AgentId, CoordinatorId, ExecutionId, LaunchId, NoticeId, TaskId};
use domain::launch::{LaunchEvent, ProcessEnd};
use domain::limits;
use domain::plan::ProcessReport;
use domain::printable;
use domain::redact::Redactor;
use domain::spend::{Day, SpendBy, SpendSums, Spender};
use domain::{Execution, Launch, Notice, ProjectId, Purpose, Refusal, Timestamp, Usage};
use machine::instance_dir;
use runtime::folder_watch::shared::SharedFolders;
use store::rows::{executions, launch_spend, launches, notices, output_tails};
use store::{HistoryFilter, LaunchFilter, Read};

use super::coordinators::board::CoordinatorBoard;
use super::core::Core;
use super::waiting::Waiting;
use super::workspaces::OwnCheckouts;
use super::{Heard, ServiceError, Shared};
use shims::Shims;

/// The launches of all agents.
pub struct Launches {
    core: Arc<Core>,
    heard: Heard,
    waiting: Waiting,
    shims: Arc<Shims>,
    coordinators: Arc<CoordinatorBoard>,
    checkouts: OwnCheckouts,
    /// The folders are shared by all followers of the output of launches.
    output_folders: SharedFolders,
}

impl Launches {
    pub(super) fn new(shared: Shared) -> Self {
        let Shared { core, heard, waiting, shims, coordinators, checkouts, .. } = shared;
        Self {
            core,
            heard,
            waiting,
            shims,
            coordinators,
            checkouts,
            output_folders: SharedFolders::default(),
        }
    }

    /// Returns the launches that have not ended, by claim time.
    pub async fn open(&self) -> Result<Vec<Launch>, ServiceError> {
        let open = self.core.read(|tx| Ok(launches::list_open(tx)?)).await?;
        Ok(self.with_newest(open))
    }

    /// Returns the launches of a filter, the newest first.
    pub async fn list(&self, filter: &LaunchFilter) -> Result<Vec<Launch>, ServiceError> {
        let filter = filter.clone();
        let found = self.core.read(move |tx| Ok(launches::list(tx, &filter)?)).await?;
        Ok(self.with_newest(found))
    }

    /// Returns the launches that ended at this time or later, the newest end first.
    pub async fn ended_since(&self, since: Timestamp) -> Result<Vec<Launch>, ServiceError> {
        self.core.read(move |tx| Ok(launches::list_ended_since(tx, since)?)).await
    }

    /// Returns the usage of the launches of a project that ended at this time or later.
    pub async fn usage_since(
        &self,
        project: &ProjectId,
        since: Timestamp,
    ) -> Result<Usage, ServiceError> {
        let project = project.clone();
        self.core.read(move |tx| Ok(launch_spend::of_project_since(tx, &project, since)?)).await
    }

    /// Returns the usage of the launches on these tasks. A task without any is left out.
    pub async fn usage_of_tasks(
        &self,
        tasks: Vec<TaskId>,
    ) -> Result<BTreeMap<TaskId, Usage>, ServiceError> {
        let open = self.open().await?;
        let read = self.core.read(move |tx| Ok(launch_spend::of_tasks(tx, &tasks)?));
        let ended = read.await?.into_iter();
        let open = open.into_iter().filter_map(|it| Some((it.task?, it.activity.usage)));
        let mut all: BTreeMap<TaskId, Usage> = BTreeMap::new();
        for (task, usage) in ended.chain(open) {
            let sum = all.entry(task).or_default();
            *sum = sum.plus(usage);
        }
        Ok(all)
    }

    /// Returns the sums of what launches used since a day. A launch that goes on counts with what was
    /// reported of it. Sums end with the retention of launches.
    pub async fn spend(
        &self,
        by: SpendBy,
        since: Option<Day>,
    ) -> Result<Vec<(Option<String>, Usage)>, ServiceError> {
        let heard = self.heard.clone();
        self.core
            .read(move |tx| {
                let mut sums = SpendSums::new(by, since);
                launch_spend::read_all(tx, since, |of, register| sums.add(of, register))?;
                for launch in launches::list_open(tx)? {
                    if let Some(newest) = heard.activities.register_of(&launch.id) {
                        let more = newest.usage.less(launch.activity.usage);
                        sums.add_used(&Spender::from(&launch), newest.day, more);
                    }
                }
                Ok(sums.into_sums().collect())
            })
            .await
    }

    /// Returns the launches with what coordinators reported of them.
    pub(super) fn with_newest(&self, launches: Vec<Launch>) -> Vec<Launch> {
        launches.into_iter().map(|launch| self.heard.activities.with_newest(launch)).collect()
    }

    /// Returns a launch.
    pub async fn get(&self, id: &LaunchId) -> Result<Launch, ServiceError> {
        let id = id.clone();
        let launch = self.core.read(move |tx| find(tx, &id)).await?;
        Ok(self.heard.activities.with_newest(launch))
    }

    /// Returns the agents of launches. A launch that does not exist is left out.
    pub async fn agents_of(
        &self,
        ids: BTreeSet<LaunchId>,
    ) -> Result<BTreeMap<LaunchId, AgentId>, ServiceError> {
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.core.read(move |tx| Ok(launches::agents_of(tx, &ids)?)).await
    }

    /// Returns the executions of a filter, the newest first. Executions that go on have their usage
    /// so far.
    pub async fn executions(
        &self,
        filter: &HistoryFilter<ExecutionId>,
    ) -> Result<Vec<Execution>, ServiceError> {
        let filter = filter.clone();
        let executions = self.core.read(move |tx| Ok(executions::list(tx, &filter)?)).await?;
        Ok(executions
            .into_iter()
            .map(|execution| self.heard.activities.execution_with_newest(execution))
            .collect())
    }

    /// Returns the notices of a filter, the newest first.
    pub async fn notices(
        &self,
        filter: &HistoryFilter<NoticeId>,
    ) -> Result<Vec<Notice>, ServiceError> {
        let filter = filter.clone();
        self.core.read(move |tx| Ok(notices::list(tx, &filter)?)).await
    }

    /// Returns the launch that a coordinator elsewhere names, which must be its own.
    ///
    /// # Errors
    /// `LaunchNotFound`, `NotYourLaunch`.
    pub async fn launch_of(
        &self,
        coordinator: Option<&CoordinatorId>,
        id: &LaunchId,
    ) -> Result<Launch, ServiceError> {
        let of = id.clone();
        let launch = self.core.read(move |tx| find(tx, &of)).await?;
        if launch.is_reported_by(coordinator) {
            Ok(launch)
        } else {
            Err(Refusal::NotYourLaunch { launch: id.clone() }.into())
        }
    }

    /// Stores reports of a coordinator about a process, in their order and in one transaction. Old
    /// reports and reports of unknown launches change nothing.
    pub async fn report_process(
        &self,
        id: &LaunchId,
        reports: &[ProcessReport],
    ) -> Result<(), ServiceError> {
        let event = |report: &ProcessReport| match report {
            // A report is never later than now: a clock that is ahead would hide failures from the
            // back-off.
            ProcessReport::Started { pid, at, .. } => {
                LaunchEvent::ProcessStarted { pid: *pid, at: (*at).min(self.core.now()) }
            }
            ProcessReport::Exited { exit } => LaunchEvent::Exited { exit: *exit },
            ProcessReport::Ended { end, at } => {
                let end = match end {
                    ProcessEnd::StartFailed(reason) => ProcessEnd::StartFailed(
                        self.core.redacted(&limits::REASON.cut(reason)).into_owned(),
                    ),
                    other => other.clone(),
                };
                LaunchEvent::ProcessEnded { end, at: (*at).min(self.core.now()) }
            }
        };
        for report in reports {
            if let ProcessReport::Started { shim: Some(shim), .. } = report {
                self.shims.report(id, shim);
            }
        }
        if reports.iter().any(|report| matches!(report, ProcessReport::Ended { .. })) {
            self.keep_output_of_check(id).await?;
        }
        let events: Vec<LaunchEvent> = reports.iter().map(event).collect();
        change::happen(&self.core, &self.heard, id, &events).await
    }

    /// Keeps the end of the output of an agent, for launches whose output is elsewhere; at most 64
    /// KiB of it. The server removes secrets and unprintable text, because not every coordinator
    /// does.
    pub async fn keep_output_tail(&self, id: &LaunchId, tail: &str) -> Result<(), ServiceError> {
        // The tail comes just before the report of the end.
        let id = id.clone();
        let of = id.clone();
        let launch = self.core.read(move |tx| Ok(launches::get(tx, &of)?)).await?;
        if launch.is_none_or(|launch| !launch.is_open()) {
            return Ok(());
        }
        let from = tail.ceil_char_boundary(tail.len().saturating_sub(limits::MAX_OUTPUT_TAIL));
        let tail = printable::lines(&tail[from..]);
        let tail = Redactor::default().redact(tail.as_bytes());
        let tail = self.core.redacted(&String::from_utf8_lossy(&tail)).into_owned();
        self.core.write(move |tx| Ok(output_tails::put(tx, &id, &tail)?)).await
    }

    /// Keeps the end of the output of a check on this machine, which is a part of its evidence.
    async fn keep_output_of_check(&self, id: &LaunchId) -> Result<(), ServiceError> {
        let of = id.clone();
        let launch = self.core.read(move |tx| Ok(launches::get(tx, &of)?)).await?;
        if launch.is_none_or(|launch| launch.key.purpose != Purpose::Check || !launch.is_open()) {
            return Ok(());
        }
        let state_dir = self.core.settings().state_dir.clone();
        let of = id.clone();
        let read = move || {
            instance_dir::output_tail(&instance_dir::find(&state_dir, &of)?, MAX_OUTPUT).ok()
        };
        match tokio::task::spawn_blocking(read).await.unwrap_or_default() {
            Some(tail) => self.keep_output_tail(id, &tail).await,
            None => Ok(()),
        }
    }
}

/// # Errors
/// `LaunchNotFound`.
fn find(tx: &mut Read<'_>, id: &LaunchId) -> Result<Launch, ServiceError> {
    let launch = launches::get(tx, id)?;
    Ok(launch.ok_or_else(|| Refusal::LaunchNotFound { launch: id.clone() })?)
}
