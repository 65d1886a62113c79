//! The loop of three steps (R-004-6) for a server that offers no more. It asks if the server is
//! healthy, which projects have which agents, and if each of these agents should start.
//!
//! Such a server keeps no record of launches. Running launches and failures are then known only
//! from the processes of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;

use super::answers::{ActiveProjects, Claimed, Health};
use super::link::LinkError;
use super::{RemoteControlPlane, TIMEOUT};
use client::McpClient;
use domain::launch::{ProcessEnd, Verdict};
use domain::plan::ProcessReport;
use domain::plan::slots::Slots;
use domain::start_history::{StartHistory, StartLimit, StartReason};
use domain::{
    Candidate, Instance, InstanceKey, LaunchFacts, LaunchId, LaunchState, Phase, Priority, Purpose,
    Timestamp,
};
use machine::locks::lock;
use runtime::clock;
use runtime::telemetry::ErrorChain;
use service::ServerView;

/// The time after which a cycle asks about no further pair. A slow server must not delay granted
/// starts, reports and time limits for longer. The next cycle goes on with the other pairs.
const ASKS_FOR: Duration = TIMEOUT;

/// The limits of the list of pairs. A server that exceeds them is treated as endless.
const MAX_PAGES: usize = 1_000;
const MAX_PAIRS: usize = 100_000;

/// The state that is kept between two cycles.
#[derive(Default)]
pub(super) struct SeedSteps {
    kept: Mutex<Kept>,
    /// The number of pairs that earlier cycles asked about. The next cycle begins after them, so
    /// that not always the same pairs get the free slots.
    next: AtomicUsize,
    /// The last cycle had no time for some pairs.
    has_more: Notify,
}

#[derive(Default)]
struct Kept {
    /// Starts that were granted in this cycle and not claimed yet.
    granted: BTreeMap<InstanceKey, Claimed>,
    /// The last failure of the question about each pair.
    failures: BTreeMap<InstanceKey, String>,
    /// The pairs of the last list whose agent has no passkey here.
    without_passkey: Vec<Candidate>,
    /// The records of how the launches of each pair ended.
    records: BTreeMap<InstanceKey, StartHistory>,
    /// The pair and the AI type of each launch.
    keys: BTreeMap<LaunchId, (InstanceKey, String)>,
    /// Launches that have ended and were reported, but are not forgotten yet.
    told: BTreeSet<LaunchId>,
}

impl SeedSteps {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }

    /// Takes the grant of this cycle; a second call returns `None`.
    pub(super) fn take_claim(&self, key: &InstanceKey) -> Option<Claimed> {
        self.kept().granted.remove(key)
    }

    /// Returns when a cycle had no time for some pairs. Cancel-safe.
    pub(super) async fn has_more(&self) {
        self.has_more.notified().await;
    }

    pub(super) fn note_claim(&self, launch: &LaunchId, key: &InstanceKey, ai_type: &str) {
        self.kept().keys.insert(launch.clone(), (key.clone(), ai_type.to_owned()));
    }
}

impl RemoteControlPlane {
    /// Asks for the health, the projects, and each pair, until the free slots are filled. It asks
    /// one question after the other: some servers answer only one at a time.
    pub(super) async fn observe_by_seed_steps(
        &self,
        client: &Arc<McpClient>,
        instances: &[Instance],
    ) -> Result<ServerView, LinkError> {
        let health: Health = self.link.call(client, "health_check", json!({}), TIMEOUT).await?;
        if !matches!(health.status.as_str(), "ok" | "healthy") {
            return Err(LinkError::Unhealthy(health.status));
        }
        if let Some(at) = health.timestamp {
            self.set_clock(at);
        }
        let launches = self.launches_of(instances);
        // Slots are counted like in the plan: an ended launch keeps its slot until the end is
        // reported.
        let mut slots = Slots::none(self.config().limits);
        for launch in &launches {
            slots.take(&launch.key, &launch.ai_type);
        }
        let is_full = slots.keeping_all(Purpose::Task).is_some();
        let startable = if is_full {
            self.seed.kept().without_passkey.clone()
        } else {
            self.ask_for_starts(client, instances, slots).await?
        };
        let linger_ms = None;
        let start_timeout_ms = None;
        let session_maximum_ms = None;
        let run = String::new();
        Ok(ServerView {
            at: self.now(),
            linger_ms,
            start_timeout_ms,
            session_maximum_ms,
            run,
            startable,
            launches,
            shared_directories: BTreeMap::new(),
            jobs: Vec::new(),
        })
    }

    async fn ask_for_starts(
        &self,
        client: &Arc<McpClient>,
        instances: &[Instance],
        slots: Slots<'_>,
    ) -> Result<Vec<Candidate>, LinkError> {
        let live: BTreeSet<&InstanceKey> = instances
            .iter()
            .filter(|instance| instance.is_live())
            .map(|instance| &instance.key)
            .collect();
        let config = self.config();
        let now = self.now();
        let listed = self.pairs(client).await?;
        let (mut pairs, without_passkey): (Vec<_>, Vec<_>) = listed
            .into_iter()
            .filter(|(key, _)| !live.contains(key))
            .partition(|(key, _)| config.passkeys.contains_key(&key.agent));
        let mut startable: Vec<Candidate> = without_passkey
            .into_iter()
            .map(|(key, directory)| {
                candidate(key, directory, String::new(), StartReason::NoPasskey, now)
            })
            .collect();
        let n_pairs = pairs.len();
        pairs.rotate_left(self.seed.next.load(Ordering::Relaxed) % n_pairs.max(1));
        let mut failures = {
            let mut kept = self.seed.kept();
            kept.without_passkey.clone_from(&startable);
            kept.granted.clear();
            kept.failures.clone()
        };

        let mut to_ask = Vec::new();
        for (nth, (key, working_directory)) in pairs.into_iter().enumerate() {
            // A grant that cannot be used would keep other coordinators from that start.
            if let Some(reason) =
                slots.keeping(&key, "").find(|reason| *reason != StartReason::ProviderLimit)
            {
                startable.push(candidate(key, working_directory, String::new(), reason, now));
                continue;
            }
            let record = self.seed.kept().records.get(&key).cloned();
            match record.and_then(|record| config.backoff.until(&record, now)) {
                Some(until) => startable.push(Candidate {
                    until: Some(until),
                    ..candidate(key, working_directory, String::new(), StartReason::Backoff, now)
                }),
                None => to_ask.push((nth, key, working_directory)),
            }
        }
        // A failure ends if its pair is not asked about any more.
        failures.retain(|key, _| to_ask.iter().any(|(_, asked, _)| asked == key));

        let n_free = slots.n_free(Purpose::Task);
        let began_at = clock::now();
        let mut n_granted = 0;
        let mut lost = None;
        for (nth, key, working_directory) in to_ask {
            let is_late = began_at.elapsed() >= ASKS_FOR;
            // A question that failed before may take long again. Granted starts do not wait for it.
            let may_take_long = n_granted > 0 && failures.contains_key(&key);
            if n_granted == n_free || is_late || may_take_long {
                self.seed.next.fetch_add(nth, Ordering::Relaxed);
                if is_late {
                    self.seed.has_more.notify_one();
                }
                break;
            }
            match self.ask_about(&key).await {
                Ok(None) => {
                    failures.remove(&key);
                }
                Ok(Some(claimed)) => {
                    failures.remove(&key);
                    n_granted += 1;
                    let ai_type = claimed.ai_type.clone();
                    startable.push(candidate(
                        key.clone(),
                        working_directory,
                        ai_type,
                        StartReason::Ready,
                        now,
                    ));
                    self.seed.kept().granted.insert(key, claimed);
                }
                Err(error @ LinkError::Call(_)) => {
                    note_failure(&mut failures, &key, &error);
                    // It says nothing about other pairs.
                    self.link.note(None);
                }
                // The server cannot be asked about any pair. What it granted is started. The next
                // cycle goes on here: the question before may have ended the server.
                Err(error) => {
                    self.seed.next.fetch_add(nth, Ordering::Relaxed);
                    lost = Some(error).filter(|_| n_granted == 0);
                    break;
                }
            }
        }
        startable.extend(failures.iter().map(|(key, problem)| Candidate {
            detail: Some(problem.clone()),
            ..candidate(key.clone(), PathBuf::new(), String::new(), StartReason::Backoff, now)
        }));
        self.seed.kept().failures = failures;
        lost.map_or(Ok(startable), Err)
    }

    /// Asks about one pair. The question before may have closed the connection.
    async fn ask_about(&self, key: &InstanceKey) -> Result<Option<Claimed>, LinkError> {
        let client = self.link.client().await?;
        self.ask_for_start(&client, key).await
    }

    /// Returns all pairs of active projects and agents, page by page.
    async fn pairs(
        &self,
        client: &Arc<McpClient>,
    ) -> Result<Vec<(InstanceKey, PathBuf)>, LinkError> {
        let mut pairs = Vec::new();
        let mut n_pages = 0;
        let mut cursor: Option<String> = None;
        loop {
            let mut arguments = json!({ "coordinator_id": self.config().coordinator });
            if let Some(cursor) = &cursor {
                arguments["cursor"] = cursor.as_str().into();
            }
            let page: ActiveProjects = self
                .link
                .call(client, "list_active_projects_with_agents", arguments, TIMEOUT)
                .await?;
            for project in page.projects {
                // Without a working directory, an agent cannot be started.
                let Some(directory) = project.working_directory else {
                    continue;
                };
                pairs.extend(project.agents.into_iter().map(|agent| {
                    (
                        InstanceKey::new(agent, project.project_id.clone(), Purpose::Task),
                        directory.clone(),
                    )
                }));
            }
            if page.next_cursor.is_none() {
                return Ok(pairs);
            }
            n_pages += 1;
            if n_pages >= MAX_PAGES || pairs.len() >= MAX_PAIRS {
                return Err(LinkError::Endless(pairs.len()));
            }
            cursor = page.next_cursor;
        }
    }

    /// Returns the launches as this side sees them. A running launch counts as authenticated,
    /// because no other source reports it.
    fn launches_of(&self, instances: &[Instance]) -> Vec<LaunchFacts> {
        let mut kept = self.seed.kept();
        kept.told.retain(|launch| instances.iter().any(|instance| instance.launch == *launch));
        let known = std::mem::take(&mut kept.keys);
        let ai_type = |launch: &LaunchId| {
            known.get(launch).map(|(_, ai_type)| ai_type.clone()).unwrap_or_default()
        };
        kept.keys = instances
            .iter()
            .map(|instance| {
                (instance.launch.clone(), (instance.key.clone(), ai_type(&instance.launch)))
            })
            .collect();
        let open = instances.iter().filter(|instance| !kept.told.contains(&instance.launch));
        open.map(|instance| LaunchFacts {
            id: instance.launch.clone(),
            key: instance.key.clone(),
            coordinator: Some(self.config().coordinator.clone()),
            ai_type: ai_type(&instance.launch),
            state: state_of(instance, self.now()),
            pid: pid_of(instance),
            is_authenticated: true,
            idle_ms: None,
            is_shim_unknown: false,
            is_at_rest: false,
        })
        .collect()
    }

    /// Remembers the end, and reports it to a server that offers the tool. Such a server takes no
    /// other reports.
    pub(super) async fn report_by_seed_steps(
        &self,
        client: &McpClient,
        launch: &LaunchId,
        report: &ProcessReport,
    ) -> Result<(), LinkError> {
        let ProcessReport::Ended { end, .. } = report else {
            return Ok(());
        };
        let key = self.seed.kept().keys.get(launch).map(|(key, _)| key.clone());
        let (tool, mut arguments) =
            super::answers::report(&self.config().coordinator, launch, report);
        if let (Some(key), false) = (&key, client.takes(tool, "launch_id")) {
            arguments = json!({
                "agent_id": key.agent, "project_id": key.project, "exit_code": end.exit().and_then(|exit| exit.exit_code)
            });
        }
        self.tell(tool, arguments).await?;
        self.remember(launch, key, end);
        Ok(())
    }

    fn remember(&self, launch: &LaunchId, key: Option<InstanceKey>, end: &ProcessEnd) {
        let verdict = match end {
            ProcessEnd::Exited(exit) if exit.exit_code == Some(0) => Verdict::Fine,
            _ => Verdict::Failure,
        };
        let now = self.now();
        let mut kept = self.seed.kept();
        kept.told.insert(launch.clone());
        if let Some(key) = key {
            let record =
                kept.records.remove(&key).unwrap_or_else(|| StartHistory::new(key.clone()));
            kept.records.insert(key, record.after_end(verdict, now, now, UNLIMITED));
        }
    }
}

/// Remembers that the question about a pair failed, and warns once for each reason.
fn note_failure(
    failures: &mut BTreeMap<InstanceKey, String>,
    key: &InstanceKey,
    error: &LinkError,
) {
    let problem = ErrorChain(error).to_string();
    let InstanceKey { agent, project, .. } = key;
    if failures.get(key) != Some(&problem) {
        tracing::warn!(
            agent_id = %agent, project_id = %project, error = problem,
            "could not check {agent}/{project}; will ask again"
        );
        failures.insert(key.clone(), problem);
    }
}

fn candidate(
    key: InstanceKey,
    working_directory: PathBuf,
    ai_type: String,
    reason: StartReason,
    waiting_since: Timestamp,
) -> Candidate {
    Candidate {
        key,
        ai_type,
        working_directory,
        waiting_since,
        priority: Priority::Medium,
        reason,
        until: None,
        is_probe: false,
        needs_clone: false,
        workspace: None,
        detail: None,
    }
}

/// Returns the state that the server would report, as far as the loop uses it.
fn state_of(instance: &Instance, now: Timestamp) -> LaunchState {
    match (&instance.phase, instance.stop) {
        (Phase::Exited { .. } | Phase::Ended { .. }, _) => LaunchState::Ending,
        (Phase::Starting | Phase::Running { .. }, Some(reason)) => {
            LaunchState::Stopping { reason, stop_at: now }
        }
        (Phase::Starting | Phase::Running { .. }, None) => LaunchState::Running {
            session: NO_SESSION.parse().expect("a literal in the grammar of ids"),
        },
    }
}

/// No limit: nothing here could resume a suspended pair.
const UNLIMITED: StartLimit = StartLimit { failures: 0, interval: Duration::from_mins(10) };

/// The id of a session that only the server knows.
const NO_SESSION: &str = "ses_unknown";

/// Returns the pid as if the server knew it, because such a server is not told of starts.
fn pid_of(instance: &Instance) -> Option<i32> {
    match instance.phase {
        Phase::Starting => None,
        Phase::Running { pid, .. } | Phase::Exited { pid, .. } => Some(pid),
        Phase::Ended { pid, .. } => pid,
    }
}
