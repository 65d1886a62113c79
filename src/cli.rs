//! The command line for people and scripts. `run`, `serve` and `supervise` are the daemon. All
//! other commands talk to a daemon or read files.
//!
//! Exit codes: 0 done, 1 refused or failed, 2 usage, 69 no daemon, 78 configuration.

mod activity;
mod agent;
mod apply;
mod backup;
mod bridge;
mod call;
mod chat;
mod check;
mod client;
mod complete;
mod doctor;
mod drain;
mod error;
mod events;
mod execution;
mod exit_codes;
mod export;
mod follow;
mod forge;
mod forge_items;
mod history;
mod http_bridge;
mod import;
mod inbox;
mod init;
mod kept;
mod kept_report;
mod login;
mod logs;
mod metrics;
mod named;
mod notice;
mod output;
mod project;
mod reasons;
mod reference;
mod reload;
mod removal;
mod removed_commands;
mod results;
mod run;
mod screen;
mod session;
mod spend;
mod status;
mod stop;
mod store;
mod task;
mod task_checks;
mod task_wait;
mod token;
mod tool_help;
mod waits;
mod why;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{FromArgMatches as _, Parser, Subcommand};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::app::Role;
use ::config::{self, Environment, Loaded, Paths};
use client::Client;
use domain::Purpose;
use domain::{AgentId, ProjectId, ServerAddress};
use error::CliError;
use machine::sys::sockets::ONLY_HANG_UP;
use named::Named;

/// Runs fleets of AI coding agents the way an init system runs services.
#[derive(Debug, Parser)]
#[command(name = "agent-coordinator", version, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 refused or failed, 2 usage, 69 no daemon, 78 configuration."
)]
struct Arguments {
    /// Configuration file [default: $AGENT_COORDINATOR_CONFIG, ./coordinator_config.yaml, the user's configuration folder,
    /// /etc/agent-coordinator/]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon: server and coordinator in one process, until SIGTERM or SIGINT
    Run,
    /// Run the server alone, for coordinators on this or other machines (`supervise`)
    Serve,
    /// Run the coordinator alone. It starts agents for the `server` of its configuration, and keeps
    /// them while that server is away
    Supervise,
    /// Check the configuration and show how each provider would start an agent
    Check(check::CheckArguments),
    /// Make the current folder a project: find the agent CLIs, write a configuration, or add it to
    /// the daemon that runs
    ///
    /// Without a configuration, it writes one with a manifest into the user's configuration folder.
    /// If a daemon runs, it adds the project there. It changes no file that exists, calls no model,
    /// and prints no credential. On a terminal it asks for the agent, the place of the work and a
    /// first task.
    Init(init::InitArguments),
    /// Look at everything that a daemon needs, and print problems with remedies
    ///
    /// The command looks at the configuration, the manifest, the daemon, its state, disks,
    /// sockets, the clock, the service manager, git, the programs and logins of agent CLIs, and the
    /// forges. It changes nothing, starts no agent CLI, and shows no credential. The exit code is 1
    /// if there is a problem.
    Doctor(doctor::DoctorArguments),
    /// Check tokens, rights and labels at GitHub and GitLab, and list the items
    #[command(subcommand)]
    Forge(forge::ForgeCommand),
    /// Copy the state of a server from one database into another
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Copy the state of a daemon that may run into one file
    ///
    /// The file is one state of the database, it was checked, and only its owner can read it. It
    /// contains the hashes of passkeys and tokens, chats, and the texts of tasks. The clones of
    /// tasks, the output of agents and the configuration are not in it. With PostgreSQL, use pg_dump.
    Backup(backup::BackupArguments),
    /// Replace the state of a daemon that does not run by a backup
    ///
    /// The state that is replaced stays beside the new one under another name. Launches that the
    /// backup believed to be running end at the next start of the daemon. Short ids that were given
    /// after the backup are not given again.
    Restore(backup::RestoreArguments),
    #[command(flatten)]
    Ask(Question),
    /// Call an MCP tool and print its answer, for agents that are shell scripts. List the tools, and
    /// print what they take
    Call(call::CallArguments),
    /// Bridge MCP from standard input and output to the daemon, for MCP clients that speak only
    /// stdio
    ///
    /// COORDINATOR_MCP_SOCKET or COORDINATOR_MCP_URL name the server; otherwise the configuration
    /// does. The bridge reconnects after the daemon restarts.
    Mcp,
    /// Print the completions for a shell
    ///
    /// The completions for bash, zsh and fish ask the daemon for the short ids of tasks and the
    /// names of agents and projects.
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print what a word of a command line may become, for the scripts of `completions`
    #[command(hide = true)]
    Complete(complete::CompleteArguments),
    /// Print the manual page, or write the manual pages of all commands into a folder
    Man {
        /// An existing folder for the pages
        folder: Option<PathBuf>,
    },
}

/// The commands that ask a running daemon.
#[derive(Debug, Subcommand)]
enum Question {
    /// Create and change agents, projects and tasks as a YAML file lists them. It removes nothing,
    /// and repeating it changes nothing
    Apply {
        /// The YAML file
        manifest: PathBuf,
        #[command(flatten)]
        form: output::Form,
    },
    /// Write projects, agents, tasks and chats of a running daemon as JSON lines
    ///
    /// The file contains no passkeys, tokens or hashes. `import` reads it, also with another version
    /// or another database. The file is read in parts: what changes meanwhile may be in it or not.
    Export(export::ExportArguments),
    /// Add the projects, agents, tasks and chats of an export to a running daemon
    ///
    /// All of the file is imported, or nothing. Nothing starts: tasks in progress become todo, unless
    /// --start is given. Imported agents have no passkey.
    Import(import::ImportArguments),
    /// Show what runs, what waits and why, and what ended recently
    Status(status::StatusArguments),
    /// Print counters and gauges for monitoring, in the text format of Prometheus
    Metrics,
    /// Print what an agent printed
    Logs(logs::LogsArguments),
    /// Stop an agent in a project and hold it, or stop all and pause
    Stop(stop::StopArguments),
    /// Start no more agents until `resume`; running agents go on
    Pause {
        #[command(flatten)]
        form: output::Form,
    },
    /// Pause, end chats, and wait until no agent runs, for example before a shutdown
    Drain(drain::DrainArguments),
    /// Make coordinators look for work and ask the forges at once
    Refresh {
        #[command(flatten)]
        form: output::Form,
    },
    /// Make the daemon read its configuration again, and print what changed
    ///
    /// A file with mistakes changes nothing, and the command prints the mistakes as `check` does.
    /// The daemon also reads its configuration when the file changes, and on SIGHUP.
    Reload {
        #[command(flatten)]
        form: output::Form,
    },
    /// Show what needs a person: refused logins, failed and blocked work, trouble in operation
    ///
    /// An entry ends by itself when its cause ends. What you put off or mark as done is hidden from
    /// you alone.
    Inbox(inbox::InboxArguments),
    /// Show why an agent does not start in a project: the reason, and then each rule
    Why(why::WhyArguments),
    /// Let a stopped agent start again in a project and forget its failures; without arguments,
    /// undo `stop --all`, `pause` and `drain`
    Resume(stop::ResumeArguments),
    /// Print a link that logs a browser in; it is valid once, for ten minutes
    Login(login::LoginArguments),
    /// Manage API tokens, and list and revoke the logins of browsers
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Chat with an agent: start it, send lines, and print its answers
    Chat(chat::ChatArguments),
    /// List, show, add and change tasks
    #[command(subcommand)]
    Task(task::TaskCommand),
    /// List and end the sessions of agents
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// List executions: what agents did for tasks
    #[command(subcommand)]
    Execution(execution::ExecutionCommand),
    /// Sum what agents used by task, agent, project, provider, day or month
    Spend(spend::SpendArguments),
    /// List notices: what agents were told while they worked
    #[command(subcommand)]
    Notice(notice::NoticeCommand),
    /// Print events as they happen
    Events(events::EventsArguments),
    /// List, show, add and change projects
    #[command(subcommand)]
    Project(project::ProjectCommand),
    /// List, show and retry the clones in which tasks are worked on
    #[command(subcommand)]
    Workspace(workspace::WorkspaceCommand),
    /// List, show, add and change agents
    #[command(subcommand)]
    Agent(agent::AgentCommand),
}

/// An agent in a project.
#[derive(Debug, clap::Args)]
struct Pair {
    /// Agent: its id, its name, or the beginning of its id
    agent: Named<AgentId>,
    /// Project: its id, its key, its name, or the beginning of its id
    project: Named<ProjectId>,
    /// Select one purpose: task or chat
    #[arg(long)]
    purpose: Option<Purpose>,
}

/// Parses the command line, carries out the command, and returns its exit code.
pub fn main() -> ExitCode {
    let parsed = exit_codes::command().try_get_matches();
    let arguments = match parsed.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => {
            if let Some(answer) = removed_commands::find_answer(&error) {
                return finish(Err(CliError::Usage(answer.to_owned())));
            }
            // Help and version are answers, not errors.
            let code = if error.use_stderr() { 2 } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let environment = Environment::of_process();
    let file = arguments.config.as_deref();
    match arguments.command {
        Command::Call(call) => match call.explain() {
            Some(explained) => finish(explained),
            None => finish(
                server(file, &environment).and_then(|server| call.call(&environment, &server)),
            ),
        },
        Command::Mcp => {
            let mailbox = kept_report::Mailbox::of(&environment);
            finish(server(file, &environment).and_then(|server| bridge(server, mailbox)))
        }
        Command::Completions { shell } => finish(reference::completions(shell)),
        Command::Complete(complete) => finish(complete.print(&environment)),
        Command::Man { folder } => finish(reference::man(folder.as_deref())),
        Command::Run => daemon(Role::Run, file, &environment),
        Command::Serve => daemon(Role::Serve, file, &environment),
        Command::Supervise => daemon(Role::Supervise, file, &environment),
        Command::Check(check) => {
            finish(load(file, &environment).and_then(|loaded| check.run(&loaded, &environment)))
        }
        Command::Init(init) => finish(init.run(file, &environment)),
        Command::Doctor(doctor) => {
            finish(load(file, &environment).and_then(|loaded| doctor.run(&loaded, &environment)))
        }
        Command::Forge(forge) => finish(forge.run(file, &environment)),
        Command::Store(store) => finish(store.run(&environment)),
        Command::Backup(backup) => finish(
            load(file, &environment).and_then(|loaded| backup.run(&loaded.config, &environment)),
        ),
        Command::Restore(restore) => finish(
            load(file, &environment).and_then(|loaded| restore.run(&loaded.config, &environment)),
        ),
        Command::Ask(question) => finish(
            find_daemon(file, &environment).and_then(|paths| ask(question, &paths, &environment)),
        ),
    }
}

fn daemon(role: Role, file: Option<&Path>, environment: &Environment) -> ExitCode {
    match load(file, environment) {
        Ok(loaded) => run::run(role, loaded, environment),
        Err(error) => finish(Err(error)),
    }
}

fn load(file: Option<&Path>, environment: &Environment) -> Result<Loaded, CliError> {
    config::load(file, environment).map_err(CliError::Configuration)
}

fn find_daemon(file: Option<&Path>, environment: &Environment) -> Result<Paths, CliError> {
    config::find_daemon(file, environment).map_err(CliError::Configuration)
}

/// Returns the address of the server. An agent's environment names it. Otherwise the configuration
/// does.
fn server(file: Option<&Path>, environment: &Environment) -> Result<ServerAddress, CliError> {
    let variable = |name: &str| environment.variable(name).filter(|value| !value.is_empty());
    if let Some(path) = variable("COORDINATOR_MCP_SOCKET") {
        return Ok(ServerAddress::Socket(PathBuf::from(path)));
    }
    match variable("COORDINATOR_MCP_URL") {
        Some(url) => url
            .parse()
            .map_err(|invalid| CliError::Usage(format!("COORDINATOR_MCP_URL: {invalid}"))),
        None => Ok(find_daemon(file, environment)?.server),
    }
}

fn bridge(server: ServerAddress, mailbox: kept_report::Mailbox) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let input = tokio::io::stdin();
    let output = tokio::io::stdout();
    let carried = runtime.block_on(async {
        match server {
            ServerAddress::Socket(socket) => {
                bridge::run(socket, mailbox, input, output, output_closed()).await
            }
            ServerAddress::Url(url) => {
                http_bridge::run(&url, mailbox, input, output, output_closed()).await
            }
        }
    });
    // The thread that reads standard input can't be interrupted.
    runtime.shutdown_background();
    carried
}

/// Returns when the reader of the output has gone. Cancel-safe.
async fn output_closed() {
    // This polls, because the output may be a file, a pipe or a terminal, and not all of them wake
    // a waiter.
    let mut look = tokio::time::interval(Duration::from_millis(200));
    loop {
        look.tick().await;
        let output = std::io::stdout();
        let mut ends = [PollFd::new(&output, ONLY_HANG_UP)];
        let n_ready = rustix::event::poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        if n_ready.is_err() || ends[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            return;
        }
    }
}

/// Ends a command that changes nothing when the reader of its output has gone. It may wait for news
/// for a long time.
async fn while_read(work: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
    tokio::select! {
        biased;
        done = work => done,
        () = output_closed() => Err(CliError::Hushed),
    }
}

fn ask(question: Question, paths: &Paths, environment: &Environment) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = Client::new(paths.control_socket(), paths.coordinator_socket());
    runtime.block_on(async {
        match question {
            Question::Apply { manifest, form } => {
                apply::apply(&client, &manifest, environment, form).await
            }
            Question::Export(export) => export.run(&client, environment).await,
            Question::Import(import) => import.run(&client, environment).await,
            Question::Status(status) => while_read(status.run(&client)).await,
            Question::Metrics => metrics::metrics(&client).await,
            Question::Logs(logs) => while_read(logs.print(&client)).await,
            Question::Stop(stop) => stop.stop(&client).await,
            Question::Resume(resume) => resume.resume(&client).await,
            Question::Pause { form } => drain::pause(&client, form).await,
            Question::Drain(drain) => drain.drain(&client).await,
            Question::Refresh { form } => drain::refresh(&client, form).await,
            Question::Reload { form } => reload::reload(&client, form).await,
            Question::Inbox(inbox) => inbox.run(&client).await,
            Question::Why(why) => why.print(&client).await,
            Question::Login(login) => login.run(&client, environment).await,
            Question::Token(token) => token.run(&client, environment).await,
            Question::Chat(chat) => chat.run(&client).await,
            Question::Task(task) => task.run(&client, environment).await,
            Question::Session(session) => session.run(&client).await,
            Question::Execution(execution) => execution.run(&client).await,
            Question::Spend(spend) => spend.print(&client).await,
            Question::Notice(notice) => notice.run(&client).await,
            Question::Events(events) => while_read(events.print(&client)).await,
            Question::Project(project) => project.run(&client, environment).await,
            Question::Workspace(workspace) => workspace.run(&client, environment).await,
            Question::Agent(agent) => agent.run(&client).await,
        }
    })
}

fn finish(result: Result<(), CliError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.print();
            ExitCode::from(error.exit_code())
        }
    }
}
