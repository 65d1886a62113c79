//! Measures the number of questions that are answered, and the cost of a cycle that finds nothing
//! to do.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

#[path = "../tests/it/rows.rs"]
mod rows;
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use domain::account::Parking;
use domain::agent::{AgentStatus, Assignment, DEFAULT_AI_TYPE, ProjectStatus};
use domain::conversation::ContinueLimits;
use domain::creation::CreationLimits;
use domain::plan::{Limits, RunLimits, Snapshot, plan};
use domain::retention::Retention;
use domain::start_history::Backoff;
use domain::task::NewTask;
use domain::{Agent, CoordinatorId, Language, Project, Secret, TaskStatus, Timestamp};
use rows::Row;
use runtime::nudge::Nudge;
use serde_json::json;
use service::world::SystemWorld;
use service::{Service, Settings};
use store::rows::Store;
use support::agent::{self, Role};
use support::bed::{Bed, Wanted};
use support::clients::request;
use support::figures::{Figure, Target, Times, print};

const N_QUESTIONS: usize = 20_000;
const N_CYCLES: usize = 200;
/// The number of agents. Each is in as many projects as the number of pairs needs.
const N_AGENTS: usize = 100;

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let (questions, over_http) = questions()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (few, many, waiting) = runtime.block_on(async {
        let few = cycles(1_000, Pairs::Idle).await?;
        let many = cycles(10_000, Pairs::Idle).await?;
        let waiting = cycles(10_000, Pairs::WithWork).await?;
        anyhow::Ok((few, many, waiting))
    })?;
    #[allow(clippy::cast_precision_loss, reason = "a count of some thousands")]
    let rate = |times: &Times| times.len() as f64 / times.total().as_secs_f64();
    print(&[
        Figure {
            target: Some(Target::AtLeast(5_000.0)),
            ..Figure::new("should_start, one connection", "1/s", rate(&questions))
        },
        Figure::of_times("should_start, one answer", &questions),
        Figure {
            target: Some(Target::AtLeast(1_000.0)),
            ..Figure::new("the same over HTTP", "1/s", rate(&over_http))
        },
        Figure::of_times("the same over HTTP, one answer", &over_http),
        Figure::of_times("a cycle over 1,000 idle pairs", &few),
        Figure {
            target: Some(Target::AtMost(20.0)),
            floor: Some(few.median()),
            max_ratio: Some(10.0),
            ..Figure::of_times("a cycle over 10,000 idle pairs (floor: 1,000)", &many)
        },
        Figure::of_times("a cycle over 10,000 pairs with work, one slot", &waiting),
    ]);
    Ok(())
}

/// Measures one client that asks one question after the other about a pair without work, on the
/// socket and over HTTP.
fn questions() -> Result<(Times, Times)> {
    let bed =
        Bed::start(&Wanted { settings: "polling_interval: 1h", role: Role::Exit, n_agents: 1 })?;
    let mut server = bed.mcp()?;
    let pair = json!({ "agent_id": "agt_0", "project_id": "prj" });
    let answer = server.call("should_start", &pair)?;
    ensure!(answer["reason"] == "no_work", "{answer}");
    let line = request("should_start", &pair);
    let mut times = Times::default();
    for _ in 0..N_QUESTIONS {
        let asked = Instant::now();
        server.exchange(&line)?;
        times.add(asked.elapsed());
    }
    let mut web = bed.web()?;
    let request = web.request("should_start", &pair);
    let body = String::from_utf8(web.exchange(&request)?)?;
    ensure!(body.contains("no_work"), "{body}");
    let mut over_http = Times::default();
    for _ in 0..N_QUESTIONS {
        let asked = Instant::now();
        web.exchange(&request)?;
        over_http.add(asked.elapsed());
    }
    Ok((times, over_http))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pairs {
    Idle,
    WithWork,
}

/// Measures the parts of a local cycle without work: the view of the server, and the plan.
async fn cycles(n_pairs: usize, pairs: Pairs) -> Result<Times> {
    let folder = Bed::folder()?;
    let store = Arc::new(Store::open(&folder.path().join("state.db")).await?);
    fill(&store, n_pairs, pairs, folder.path()).await?;
    let service =
        Service::new(store.clone(), Arc::new(SystemWorld), settings(folder.path()), Nudge::new());
    let coordinator: CoordinatorId = "coord_bench".parse()?;
    let mut times = Times::default();
    for _ in 0..N_CYCLES {
        let began = Instant::now();
        let view = service.coordinators.view().await?;
        let planned = plan(&Snapshot {
            startable: view.startable,
            launches: view.launches,
            ..Snapshot::empty(
                coordinator.clone(),
                Limits::of(1, settings(folder.path()).run.linger),
                view.at,
            )
        });
        times.add(began.elapsed());
        let n_expected = if pairs == Pairs::WithWork { n_pairs } else { 0 };
        ensure!(
            planned.actions.len() + planned.deferred.len() == n_expected,
            "not what was to be planned"
        );
    }
    store.close().await;
    Ok(times)
}

/// Fills the store with pairs, each with a task.
async fn fill(store: &Store, n_pairs: usize, pairs: Pairs, directory: &Path) -> Result<()> {
    let at = Timestamp::from_millis(1_700_000_000_000);
    let mut changes: Vec<Row> = Vec::new();
    for agent in 0..N_AGENTS {
        let id = format!("agt_{agent}").parse()?;
        changes.push(Row::Agent(Agent {
            id,
            name: "an agent".to_owned(),
            ai_type: DEFAULT_AI_TYPE.to_owned(),
            system_prompt: String::new(),
            passkey: None,
            archived_from: None,
            status: AgentStatus::Active,
            created_at: at,
            revision: 0,
        }));
    }
    for project in 0..n_pairs / N_AGENTS {
        let id = format!("prj_{project}");
        changes.push(Row::Project(Project {
            workspace: domain::workspace::WorkspaceMode::Shared,
            overrides: domain::workspace::WorkspaceOverrides::default(),
            id: id.parse()?,
            name: "a project".to_owned(),
            key: format!("P{project}").parse()?,
            is_key_edited: false,
            archived_from: None,
            working_directory: directory.to_owned(),
            status: ProjectStatus::Active,
            created_at: at,
            revision: 0,
        }));
        for agent in 0..N_AGENTS {
            let short_id = format!("P{project}-{}", agent + 1);
            let (agent, project) = (format!("agt_{agent}"), id.as_str());
            changes
                .push(Row::Assign(Assignment { project: project.parse()?, agent: agent.parse()? }));
            let status = match pairs {
                Pairs::WithWork => TaskStatus::InProgress,
                Pairs::Idle => TaskStatus::Todo,
            };
            let task = NewTask {
                status,
                assignee: Some(agent.parse()?),
                ..NewTask::new(project.parse()?, "a task")
            };
            let id = format!("tsk_{project}_{agent}").parse()?;
            changes.push(Row::Task(task.to_task(id, short_id.parse()?, at)?));
        }
    }
    rows::write(store, changes).await?;
    Ok(())
}

fn settings(state_dir: &Path) -> Settings {
    Settings {
        hook_timeout: Duration::from_mins(1),
        agents_have_users: false,
        workspace: ::config::Workspace::default(),
        language: Language::English,
        start: config::Start::default(),
        stop: config::Stop::default(),
        run: RunLimits::default(),
        notice: config::Notice::default(),
        chat: config::Chat::default(),
        session: config::Session {
            cleanup_interval: Duration::from_mins(1),
            ..config::Session::default()
        },
        creation: CreationLimits::default(),
        checks: Vec::new(),
        checks_rounds: 2,
        page_url: None,
        retention: Retention::default(),
        parking: Parking::default(),
        conversations: ContinueLimits::default(),
        backoff: Backoff::default(),
        mcp_socket: state_dir.join("mcp.sock"),
        serves_agents_over_http: true,
        redactor: Arc::default(),
        providers: std::collections::BTreeSet::new(),
        passkeys: std::collections::BTreeMap::new(),
        ticket_key: Secret::new("no ticket is asked for"),
        state_dir: state_dir.to_owned(),
        file_owners: domain::FileOwners::default(),
    }
}
