//! `agent`: list, show, add, set, archive, delete.

use std::io::{Read as _, Write as _};

use clap::Subcommand;

use super::client::Client;
use super::error::CliError;
use super::named::Named;
use super::output::{Form, ListForm, plain, print_json, print_line};
use super::removal::{self, ArchivedArguments, DeleteArguments};
use super::screen::Rows;
use api::agents::{AgentBody, AgentRequest};
use domain::AgentId;
use domain::agent::AgentStatus;

#[derive(Debug, Subcommand)]
pub(super) enum AgentCommand {
    /// List agents
    List {
        #[command(flatten)]
        archived: ArchivedArguments,
        #[command(flatten)]
        form: ListForm,
    },
    /// Show an agent
    Show {
        /// Agent: its id, its name, or the beginning of its id
        agent: Named<AgentId>,
        #[command(flatten)]
        form: Form,
    },
    /// Add an agent
    Add {
        /// Agent id; it makes the command repeatable [default: generated]
        agent: Option<AgentId>,
        #[command(flatten)]
        edit: AgentEditArguments,
    },
    /// Change an agent
    Set {
        /// Agent: its id, its name, or the beginning of its id
        agent: Named<AgentId>,
        #[command(flatten)]
        edit: AgentEditArguments,
    },
    /// Archive an agent that does not work: it does not start, and lists leave it out
    Archive(ChangeAgent),
    /// Give an archived agent its former status
    Unarchive(ChangeAgent),
    /// Delete an agent that does not work, after a question; it can't be undone
    Delete {
        /// Agent: its id, its name, or the beginning of its id
        agent: Named<AgentId>,
        #[command(flatten)]
        delete: DeleteArguments,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct ChangeAgent {
    /// Agent: its id, its name, or the beginning of its id
    agent: Named<AgentId>,
    #[command(flatten)]
    form: Form,
}

impl ChangeAgent {
    async fn run(self, client: &Client, what: &str, done: &str) -> Result<(), CliError> {
        let path = format!("/agents/{}", self.agent.id(client).await?);
        let told = |agent: &AgentBody| format!("{} is {done}", plain(&agent.name));
        removal::change(client, &path, what, self.form, told).await
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct AgentEditArguments {
    /// Its display name [default: its id]
    #[arg(long)]
    name: Option<String>,
    /// The provider that starts it [default: claude]
    #[arg(long)]
    ai_type: Option<String>,
    /// Its role. The agent reads this text when it authenticates
    #[arg(long)]
    system_prompt: Option<String>,
    /// Read its passkey from standard input. Agents that the daemon starts need none
    #[arg(long, conflicts_with = "generate_passkey")]
    passkey_stdin: bool,
    /// Generate a passkey and print it; it is never shown again
    #[arg(long)]
    generate_passkey: bool,
    /// Its status: active, inactive or archived
    #[arg(long)]
    status: Option<AgentStatus>,
    #[command(flatten)]
    form: Form,
}

impl AgentCommand {
    pub(super) async fn run(self, client: &Client) -> Result<(), CliError> {
        match self {
            Self::List { archived, form } => {
                let query = archived.query().unwrap_or_default();
                let agents: Vec<AgentBody> = client.get(&format!("/agents?{query}")).await?;
                if form.json { print_json(&agents) } else { print_agents(&agents, form) }
            }
            Self::Archive(agent) => agent.run(client, "archive", "archived").await,
            Self::Unarchive(agent) => agent.run(client, "unarchive", "no longer archived").await,
            Self::Delete { agent, delete } => {
                let path = format!("/agents/{}", agent.id(client).await?);
                delete.run(client, &path, false).await
            }
            Self::Show { agent, form } => {
                let agent = agent.id(client).await?;
                let agent: AgentBody = client.get(&format!("/agents/{agent}")).await?;
                if form.json { print_json(&agent) } else { print_agent(&agent) }
            }
            Self::Add { agent, edit } => {
                let form = edit.form;
                let request = edit.request(agent)?;
                let agent: AgentBody = client.create("/agents", "agent", &request).await?;
                if form.json {
                    return print_json(&agent);
                }
                print_line(agent.id.as_str())?;
                print_passkey(&agent)
            }
            Self::Set { agent, edit } => {
                let agent = agent.id(client).await?;
                let form = edit.form;
                let agent: AgentBody =
                    client.patch(&format!("/agents/{agent}"), &edit.request(None)?).await?;
                if form.json {
                    return print_json(&agent);
                }
                print_agent(&agent)?;
                print_passkey(&agent)
            }
        }
    }
}

impl AgentEditArguments {
    fn request(self, id: Option<AgentId>) -> Result<AgentRequest, CliError> {
        let passkey = if self.passkey_stdin {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            let text = text.trim();
            if text.is_empty() {
                return Err(CliError::Usage("standard input holds no passkey".to_owned()));
            }
            Some(text.to_owned())
        } else {
            None
        };
        Ok(AgentRequest {
            id,
            name: self.name,
            ai_type: self.ai_type,
            system_prompt: self.system_prompt,
            passkey,
            generate_passkey: self.generate_passkey,
            status: self.status,
        })
    }
}

fn print_agents(agents: &[AgentBody], form: ListForm) -> Result<(), CliError> {
    let rows = Rows::of(
        agents,
        &[
            ("AGENT", &|agent| agent.id.to_string()),
            ("NAME", &|agent| plain(&agent.name)),
            ("AI TYPE", &|agent| plain(&agent.ai_type)),
            ("STATUS", &|agent| agent.status.to_string()),
            ("PASSKEY", &|agent| if agent.has_passkey { "set" } else { "-" }.to_owned()),
        ],
    );
    form.print(&rows, "No agents. Add one with `agent-coordinator agent add`.")
}

fn print_agent(agent: &AgentBody) -> Result<(), CliError> {
    print_line(&format!("{}  {}", agent.id, plain(&agent.name)))?;
    print_line(&format!("{}, started as {}", agent.status, plain(&agent.ai_type)))?;
    for line in agent.system_prompt.lines() {
        print_line(&format!("  {}", plain(line)))?;
    }
    Ok(())
}

fn print_passkey(agent: &AgentBody) -> Result<(), CliError> {
    if let Some(command) = &agent.new_passkey_command {
        let told = format!("its passkey was shown before; make a new one with `{command}`");
        let _ = writeln!(std::io::stderr(), "agent-coordinator: {told}");
    }
    match &agent.passkey {
        Some(passkey) => print_line(&format!("passkey: {passkey}")),
        None => Ok(()),
    }
}
