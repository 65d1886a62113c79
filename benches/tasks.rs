//! Measures the waits of an agent and a coordinator when there are very many tasks.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

#[path = "../tests/it/rows.rs"]
mod rows;
mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use domain::agent::{AgentStatus, Assignment, DEFAULT_AI_TYPE, ProjectStatus};
use domain::secret::PasskeyHash;
use domain::{Agent, Priority, Project, Secret, Task, TaskStatus, Timestamp};
use rows::Row;
use serde_json::{Value, json};
use store::rows::Store;
use support::agent::{self, Role};
use support::bed::{Bed, Wanted};
use support::clients::{Mcp, request};
use support::figures::{Figure, Target, Times, print};

const N_AGENTS: usize = 100;
/// The number of projects, in each of which every agent has tasks. In `AT_WORK` one task is in
/// progress with open subtasks, in `WAITING` one is in progress, and in the others none is.
const N_PROJECTS: usize = 10;
const AT_WORK: usize = 0;
const WAITING: usize = 1;
const IDLE: usize = 2;
const N_QUESTIONS: usize = 10_000;

/// The times of the answers of one server.
struct Answers {
    first: Times,
    again: Times,
    progress: Times,
    no_work: Times,
    claim: Times,
}

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let few = answers(1)?;
    let many = answers(100)?;
    let commands = commands()?;
    let limit = Some(Target::AtMost(2.0));
    let figure = |name, few: &Times, many: &Times| Figure {
        p99_target: limit,
        floor: Some(few.median()),
        ..Figure::of_times(name, many)
    };
    print(&[
        figure("get_my_task, 100,000 tasks (floor: 1,000)", &few.again, &many.again),
        figure("the first one, which is recorded", &few.first, &many.first),
        figure("get_my_task_progress", &few.progress, &many.progress),
        figure("should_start: no", &few.no_work, &many.no_work),
        figure("should_start: yes, which is reserved", &few.claim, &many.claim),
        Figure {
            target: Some(Target::AtMost(50.0)),
            floor: Some(commands.status_without_tasks.median()),
            ..Figure::of_times(
                "status --json, 10,000 tasks (floor: without tasks)",
                &commands.status,
            )
        },
        Figure {
            target: Some(Target::AtMost(20.0)),
            floor: Some(commands.bare.median()),
            ..Figure::of_times("--help of each command (floor: true)", &commands.help)
        },
        Figure {
            target: Some(Target::AtMost(20.0)),
            floor: Some(commands.bare.median()),
            ..Figure::of_times("--help of the slowest command", &commands.slowest_help)
        },
    ]);
    Ok(())
}

/// Measures a server in which every pair has `n_tasks` tasks. It asks on the socket, one question
/// after the other.
fn answers(n_tasks: usize) -> Result<Answers> {
    let folder = Bed::folder()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(fill(folder.path(), n_tasks))?;
    let wanted = Wanted { settings: "start: { timeout: 1h }", role: Role::Exit, n_agents: 1 };
    let bed = Bed::serve_in(folder, &wanted)?;
    let mut server = bed.mcp()?;
    let mut sessions = Vec::with_capacity(N_AGENTS);
    for n in 0..N_AGENTS {
        let credentials =
            json!({ "agent_id": agent_id(n), "passkey": "key", "project_id": project_id(AT_WORK) });
        let token = server.call("authenticate", &credentials)?["session_token"].clone();
        sessions.push(json!({ "session_token": token }));
    }
    let of = |n: usize| &sessions[n % N_AGENTS];
    let pair = |n: usize, project| json!({ "agent_id": agent_id(n % N_AGENTS), "project_id": project_id(project) });
    Ok(Answers {
        first: ask(&mut server, N_AGENTS, "get_my_task", "has_task", |n| of(n).clone())?,
        again: ask(&mut server, N_QUESTIONS, "get_my_task", "has_task", |n| of(n).clone())?,
        progress: ask(&mut server, N_QUESTIONS, "get_my_task_progress", "success", |n| {
            of(n).clone()
        })?,
        no_work: ask(&mut server, N_QUESTIONS, "should_start", "no_work", |n| pair(n, IDLE))?,
        claim: ask(&mut server, N_AGENTS, "should_start", "ready", |n| pair(n, WAITING))?,
    })
}

/// The times of whole commands, from the start of the process to its end.
#[derive(Default)]
struct Commands {
    status: Times,
    /// The same of a server without tasks.
    status_without_tasks: Times,
    help: Times,
    /// The times of the command whose median is the greatest.
    slowest_help: Times,
    /// The times of `true`, which does nothing.
    bare: Times,
}

const N_COMMANDS: usize = 100;
/// The number of times that the help of each command is printed.
const N_HELPS: usize = 10;

/// Measures commands of a server with 10,000 tasks. The floors are measured in turn with them.
fn commands() -> Result<Commands> {
    let (full, empty) = (server_of(10)?, server_of(0)?);
    let mut commands = Commands::default();
    for _ in 0..N_COMMANDS {
        commands.status.add(time(full.command().args(["status", "--json"]))?.0);
        commands.status_without_tasks.add(time(empty.command().args(["status", "--json"]))?.0);
        commands.bare.add(time(&mut Command::new("true"))?.0);
    }
    time_help(&full, &[], &mut commands)?;
    Ok(commands)
}

/// Starts a server in which every pair has `n_tasks` tasks.
fn server_of(n_tasks: usize) -> Result<Bed> {
    let folder = Bed::folder()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(fill(folder.path(), n_tasks))?;
    Bed::serve_in(folder, &Wanted { settings: "", role: Role::Exit, n_agents: 1 })
}

/// Returns how long a command took, and what it printed.
fn time(command: &mut Command) -> Result<(Duration, Vec<u8>)> {
    let began_at = Instant::now();
    let output = command.output()?;
    let took = began_at.elapsed();
    ensure!(output.status.success(), "{command:?}: {output:?}");
    Ok((took, output.stdout))
}

/// Adds the times of the help of a command and of all its subcommands.
fn time_help(bed: &Bed, command: &[&str], times: &mut Commands) -> Result<()> {
    let (mut of_this, mut help) = (Times::default(), Vec::new());
    for _ in 0..N_HELPS {
        let (took, printed) = time(bed.command().args(command).arg("--help"))?;
        times.help.add(took);
        of_this.add(took);
        help = printed;
    }
    if times.slowest_help.len() == 0 || of_this.median() > times.slowest_help.median() {
        times.slowest_help = of_this;
    }
    let help = String::from_utf8(help)?;
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in lines.take_while(|line| !line.is_empty()) {
        // Further lines of a description begin with more spaces.
        let name = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '));
        let name = name.and_then(|rest| rest.split(' ').next()).unwrap_or("help");
        if name != "help" {
            time_help(bed, &[command, &[name]].concat(), times)?;
        }
    }
    Ok(())
}

fn ask(
    server: &mut Mcp,
    n: usize,
    tool: &str,
    expected: &str,
    about: impl Fn(usize) -> Value,
) -> Result<Times> {
    let mut times = Times::default();
    for n in 0..n {
        let line = request(tool, &about(n));
        let asked = Instant::now();
        let answer = server.exchange(&line)?;
        times.add(asked.elapsed());
        ensure!(answer.contains(expected) && !answer.contains("error"), "{tool}: {answer}");
    }
    Ok(times)
}

fn agent_id(n: usize) -> String {
    format!("agt_of_many_{n}")
}

fn project_id(n: usize) -> String {
    format!("prj_of_many_{n}")
}

async fn fill(folder: &Path, n_tasks: usize) -> Result<()> {
    std::fs::create_dir(folder.join("state"))?;
    let store = Store::open(&folder.join("state/state.db")).await?;
    let at = Timestamp::from_millis(1_700_000_000_000);
    let passkey = PasskeyHash::new(&Secret::new("key"), [7; 16]);
    let agents = (0..N_AGENTS).map(|n| {
        anyhow::Ok(Row::Agent(Agent {
            id: agent_id(n).parse()?,
            name: "an agent".to_owned(),
            ai_type: DEFAULT_AI_TYPE.to_owned(),
            system_prompt: String::new(),
            passkey: Some(passkey.clone()),
            archived_from: None,
            status: AgentStatus::Active,
            created_at: at,
            revision: 0,
        }))
    });
    let mut changes = agents.collect::<Result<Vec<_>>>()?;
    for project in 0..N_PROJECTS {
        changes.push(Row::Project(Project {
            workspace: domain::workspace::WorkspaceMode::Shared,
            overrides: domain::workspace::WorkspaceOverrides::default(),
            id: project_id(project).parse()?,
            name: "a project".to_owned(),
            key: format!("P{project:02}").parse()?,
            is_key_edited: false,
            archived_from: None,
            working_directory: folder.to_owned(),
            status: ProjectStatus::Active,
            created_at: at,
            revision: 0,
        }));
        for agent in 0..N_AGENTS {
            changes.push(Row::Assign(Assignment {
                project: project_id(project).parse()?,
                agent: agent_id(agent).parse()?,
            }));
            for n in 0..n_tasks {
                changes.push(Row::Task(task(project, agent, n, at)?));
            }
        }
        rows::write(&store, std::mem::take(&mut changes)).await?;
    }
    store.close().await;
    Ok(())
}

/// Returns the nth task of a pair. The first may be in progress, the next nine are its subtasks,
/// and the others are done.
fn task(project: usize, agent: usize, n: usize, at: Timestamp) -> Result<Task> {
    let id = |n: usize| format!("tsk_{project}_{agent}_{n}").parse();
    let status = match n {
        0 if project == AT_WORK || project == WAITING => TaskStatus::InProgress,
        0..10 => TaskStatus::Todo,
        _ => TaskStatus::Done,
    };
    Ok(Task {
        id: id(n)?,
        short_id: format!("P{project:02}-{}", agent * 100_000 + n + 1).parse()?,
        project: project_id(project).parse()?,
        parent: if (1..10).contains(&n) { Some(id(0)?) } else { None },
        title: "a task".to_owned(),
        description: "what is to be done, in some words that say a little more than the title"
            .to_owned(),
        status,
        priority: Priority::Medium,
        assignee: Some(agent_id(agent).parse()?),
        dependencies: Vec::new(),
        blocked_reason: None,
        created_at: at,
        status_since: at,
        start_wanted_since: None,
        checking_since: None,
        n_failed_rounds: 0,
        archived_at: None,
        revision: 0,
    })
}
