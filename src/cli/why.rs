//! `why`: each rule that lets a pair start or keeps it from starting.

use super::client::Client;
use super::error::CliError;
use super::named::Named;
use super::output::{Form, ago, lines, print_json, print_line, table};
use super::status::{abandoned_line, parked_line};
use crate::domain::start_history::StartReason;
use crate::domain::{AgentId, ProjectId, Purpose};
use crate::rest::routes::why::{RuleBody, WhyBody};

#[derive(Debug, clap::Args)]
pub(super) struct WhyArguments {
    /// Agent: its id, its name, or the beginning of its id
    agent: Named<AgentId>,
    /// Project: its id, its key, its name, or the beginning of its id
    project: Named<ProjectId>,
    /// Select one purpose: task or chat
    #[arg(long)]
    purpose: Option<Purpose>,
    #[command(flatten)]
    form: Form,
}

impl WhyArguments {
    pub(super) async fn print(self, client: &Client) -> Result<(), CliError> {
        let Self { agent, project, purpose, form } = self;
        let (agent, project) = (agent.id(client).await?, project.id(client).await?);
        let mut all: Vec<WhyBody> =
            client.get(&format!("/projects/{project}/agents/{agent}/why")).await?;
        all.retain(|why| purpose.is_none_or(|purpose| purpose == why.purpose));
        if form.json {
            return print_json(&all);
        }
        let parts: Vec<String> = all.iter().map(|why| describe(why, &agent, &project)).collect();
        print_line(&parts.join("\n\n"))
    }
}

fn describe(why: &WhyBody, agent: &AgentId, project: &ProjectId) -> String {
    let verdict = match why.reason {
        StartReason::Ready => "may start".to_owned(),
        StartReason::Starting | StartReason::Running | StartReason::Stopping => {
            format!("is {} already", why.reason)
        }
        reason => format!("does not start: {reason}"),
    };
    let failures = match why.n_failures {
        0 => String::new(),
        n => format!(" ({n} failures in a row)"),
    };
    let parked = why
        .parked
        .as_ref()
        .map_or_else(String::new, |parked| format!("\n{}", parked_line(parked, why.at)));
    let mut rules = table(&["RULE", "", "UNTIL"]);
    for rule in &why.rules {
        rules.add_row([
            demand(rule, why.purpose).to_owned(),
            match &rule.detail {
                Some(detail) => format!("no: {} ({detail})", rule.rule),
                None if rule.keeps => format!("no: {}", rule.rule),
                None => "yes".to_owned(),
            },
            rule.until.map_or_else(|| "-".to_owned(), |until| format!("in {}", ago(why.at, until))),
        ]);
    }
    let abandoned = why
        .abandoned
        .as_ref()
        .map(|launch| format!("\n{}", abandoned_line(launch, agent, project)));
    let abandoned = abandoned.unwrap_or_default();
    format!(
        "{agent} in {project} for a {} {verdict}{failures}{parked}{abandoned}\n{}",
        why.purpose,
        lines(&rules)
    )
}

/// Returns the demand of the rule with this reason.
const fn demand(rule: &RuleBody, purpose: Purpose) -> &'static str {
    match rule.rule {
        StartReason::Ready => "nothing keeps it",
        StartReason::Unknown => "agent and project exist",
        StartReason::NotAssigned => "the agent is assigned to the project",
        StartReason::Inactive => "agent and project are active",
        StartReason::Starting | StartReason::Running | StartReason::Stopping => "none of it runs",
        StartReason::NoWork => match purpose {
            Purpose::Task => "a task of it is in progress",
            Purpose::Check => "a task of it is to be checked",
            Purpose::Chat => "a person wants to chat with it",
        },
        StartReason::Held => "it is not held (`resume` ends a hold)",
        StartReason::Suspended => "it has not failed too often (`resume` ends that)",
        StartReason::Misconfigured => {
            "it can work as it is configured (`resume` after mending it ends that)"
        }
        StartReason::Parked => "the account of its provider works (`resume --provider` ends that)",
        // The detail names the pause file, which `resume` does not remove.
        StartReason::Paused if rule.detail.is_some() => "starts are not paused",
        StartReason::Paused => "starts are not paused (`resume` without arguments ends that)",
        StartReason::Backoff => "it does not wait after a failure",
        StartReason::PreparingWorkspace => "the clone for its task is ready",
        StartReason::WorkspaceBroken => {
            "the clone for its task needs nobody (`workspace retry` after mending it ends that)"
        }
        StartReason::OnOtherHost => "the clone for its task is on this host",
        StartReason::NoFreeSlot => "a slot is free",
        StartReason::ChatReserve => {
            "a slot is free that is not kept for chats (`limits.chat_reserve`)"
        }
        StartReason::ProjectLimit => "its project has less than `limits.per_project`",
        StartReason::AgentLimit => "the agent has less than `limits.per_agent`",
        StartReason::ProviderLimit => "its provider has less than `limits.per_provider`",
        StartReason::LowDisk => "there is enough free disk (`limits.min_free_disk`)",
        StartReason::LowMemory => "there is enough free memory (`limits.min_free_memory`)",
        StartReason::NoPasskey => "its coordinator has a passkey for it",
    }
}
