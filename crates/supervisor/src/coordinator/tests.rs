//! The loop against a scripted server, on a paused clock.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::*;
use crate::process::{BootInstant, StartError, StartRequest};
use crate::provider::Host;
use domain::conversation::Entry;
use domain::plan::ProcessReport;
use domain::start_history::{Candidate, StartReason};
use domain::{Activity, Guidance, InstanceKey, Language, Priority, Purpose, StopReason};
use runtime::nudge::Nudge;
use service::{Claim, ServerView};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const POLLING_INTERVAL: Duration = Duration::from_millis(500);

/// The answers of the server to one look each. After the last one the loop ends.
struct Script {
    looks: Mutex<VecDeque<Option<ServerView>>>,
    mode: watch::Sender<Mode>,
    counters: Arc<Mutex<Counters>>,
}

impl ControlPlane for Script {
    fn now(&self) -> Timestamp {
        NOW
    }

    async fn observe(&self, _: &[Instance]) -> Result<ServerView, ControlError> {
        let next = self.looks.lock().expect("no test panics with it").pop_front();
        if next.is_none() {
            self.mode.send_replace(Mode::LeavingAgents);
        }
        let refused = || ControlError { action: "look", source: "no server".into() };
        next.flatten().ok_or_else(refused)
    }

    async fn claim(&self, _: &InstanceKey, _: &Entry) -> Result<Option<Claim>, ControlError> {
        Ok(None)
    }

    async fn report(&self, _: &LaunchId, _: &[ProcessReport]) -> Result<(), ControlError> {
        Ok(())
    }

    async fn report_activity(&self, _: &LaunchId, _: &Activity) -> Result<(), ControlError> {
        Ok(())
    }

    async fn want_stop(&self, _: &LaunchId, _: StopReason) -> Result<(), ControlError> {
        Ok(())
    }

    async fn report_status(&self, status: CoordinatorStatus) -> Result<(), ControlError> {
        *self.counters.lock().expect("no test panics with it") = status.counters;
        Ok(())
    }
}

/// A machine without processes.
struct Idle;

impl ProcessLayer for Idle {
    fn instances(&self) -> Arc<[Instance]> {
        Arc::default()
    }

    fn boot_now(&self) -> BootInstant {
        BootInstant::now()
    }

    fn steady_now(&self) -> Instant {
        Instant::now()
    }

    async fn start(&self, _: StartRequest) -> Result<(), StartError> {
        Ok(())
    }

    async fn request_stop(&self, _: &LaunchId, _: StopReason, _: Option<Duration>) {}

    async fn mark_authenticated(&self, _: &LaunchId) {}

    async fn forget(&self, _: &LaunchId) {}
}

/// Returns the view of run `run` of the server: work to start, or nothing.
pub(super) fn view(run: &str, has_work: bool) -> ServerView {
    let id = |id: &str| format!("{id}_1");
    let agent = id("agt").parse().expect("an id");
    let candidate = Candidate {
        needs_clone: false,
        workspace: None,
        detail: None,
        key: InstanceKey::new(agent, id("prj").parse().expect("an id"), Purpose::Task),
        ai_type: "claude".to_owned(),
        working_directory: PathBuf::from("/work"),
        waiting_since: NOW,
        priority: Priority::Medium,
        reason: StartReason::Ready,
        until: None,
        is_probe: false,
    };
    ServerView {
        jobs: Vec::new(),
        at: NOW,
        linger_ms: None,
        start_timeout_ms: None,
        session_maximum_ms: None,
        run: run.to_owned(),
        startable: if has_work { vec![candidate] } else { Vec::new() },
        launches: Vec::new(),
        shared_directories: BTreeMap::new(),
    }
}

pub(super) fn no_providers() -> Providers {
    Providers {
        entries: BTreeMap::new(),
        guidance: Guidance::new(Language::English),
        environment: BTreeMap::new(),
        mcp_socket: None,
        mcp_url: None,
        program: PathBuf::from("/bin/agent-coordinator"),
        state_dir: PathBuf::from("/state"),
        users: BTreeMap::new(),
        withheld: Vec::new(),
        withheld_variables: BTreeSet::new(),
        redacted: Vec::new(),
        users_files: PathBuf::from("/files"),
        host: Host::BLIND,
    }
}

/// Returns how much the poll alone finds in these looks. No change is announced.
async fn found_by_poll_only(looks: Vec<Option<ServerView>>) -> u64 {
    let (mode, is_running) = watch::channel(Mode::Running);
    let counters = Arc::<Mutex<Counters>>::default();
    let script = Script { looks: Mutex::new(looks.into()), mode, counters: Arc::clone(&counters) };
    let config = CoordinatorConfig {
        id: "crd_1".parse().expect("an id"),
        polling_interval: POLLING_INTERVAL,
        limits: Limits::of(1, Duration::ZERO),
        providers: no_providers(),
        state_dir: PathBuf::from("/state"),
    };
    let nudge = Nudge::new();
    Coordinator::new(config, script, Idle, nudge.listen(), is_running).run().await;
    let counters = *counters.lock().expect("no test panics with it");
    counters.found_by_poll_only
}

#[tokio::test(start_paused = true)]
async fn work_that_only_a_poll_finds_is_counted() {
    assert_eq!(found_by_poll_only(vec![Some(view("1", false)), Some(view("1", true))]).await, 1);
}

#[tokio::test(start_paused = true)]
async fn what_the_first_poll_finds_at_a_restarted_server_counts_as_announced() {
    let looks = vec![Some(view("1", false)), Some(view("2", true))];
    assert_eq!(found_by_poll_only(looks).await, 0);
    let looks = vec![Some(view("1", false)), Some(view("2", true)), Some(view("2", true))];
    assert_eq!(found_by_poll_only(looks).await, 1, "the second poll is an ordinary one");
}

#[tokio::test(start_paused = true)]
async fn what_the_first_poll_finds_at_a_server_that_answers_again_counts_as_announced() {
    let looks = vec![Some(view("1", false)), None, Some(view("1", true))];
    assert_eq!(found_by_poll_only(looks).await, 0);
}
