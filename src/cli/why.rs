//! `why`: the reason that keeps a pair from starting, and then each rule.

use super::client::Client;
use super::error::CliError;
use super::named::Named;
use super::output::{Form, ago, lines, or_dash, plain, print_json, print_line, table};
use super::reasons::sentence;
use super::status::{abandoned_line, parked_line};
use api::forge::ForgeItemBody;
use api::tasks::ConversationBody;
use api::why::WhyBody;
use domain::conversation::FreshReason;
use domain::start_history::{Ruling, StartReason};
use domain::{AgentId, Language, ProjectId, Purpose};

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
        let agent = agent.id(client).await?;
        let project = project.id(client).await?;
        let mut all: Vec<WhyBody> =
            client.get(&format!("/projects/{project}/agents/{agent}/why")).await?;
        all.retain(|why| purpose.is_none_or(|purpose| purpose == why.purpose));
        if form.json {
            return print_json(&all);
        }
        let verdicts: Vec<String> = all.iter().map(|why| verdict(why, &agent, &project)).collect();
        let rules = all.iter().map(rules_of);
        let parts: Vec<String> = std::iter::once(verdicts.join("\n")).chain(rules).collect();
        print_line(&parts.join("\n\n"))
    }
}

/// Returns the one reason as a sentence, with its remedy.
fn verdict(why: &WhyBody, agent: &AgentId, project: &ProjectId) -> String {
    let pair = format!("{agent} in {project} for a {}", why.purpose);
    let failures = match why.n_failures {
        0 => String::new(),
        1 => ", after 1 failure".to_owned(),
        n => format!(", after {n} failures in a row"),
    };
    let mut lines = match why.reason {
        StartReason::Ready => format!("{pair} may start{failures}"),
        StartReason::Starting | StartReason::Running | StartReason::Stopping => {
            format!("{pair} is {} already", why.reason)
        }
        reason => {
            let rule = why.rules.iter().find(|rule| rule.keeps);
            let until = rule.and_then(|rule| rule.until);
            let until =
                until.map_or_else(String::new, |until| format!(", for {}", ago(why.at, until)));
            let detail = rule.and_then(|rule| rule.detail.as_ref());
            let detail = detail.map_or_else(String::new, |detail| format!(": {detail}"));
            let sentence = match &why.waiting {
                Some(waiting) => plain(&waiting.text),
                None => format!("{}{detail}", sentence(reason, why.purpose)),
            };
            format!("{pair} does not start: {reason}{until}{failures}\n  {sentence}")
        }
    };
    // A pause by its file is ended by the file, which the detail names.
    let remedy = why.reason.remedy(agent, project, Language::English);
    lines.extend(remedy.map(|remedy| format!("; {remedy}")));
    lines.extend(why.parked.as_ref().map(|parked| format!("\n  {}", parked_line(parked, why.at))));
    lines.extend(why.crowd.iter().map(|crowd| format!("\n  warning: {}", plain(&crowd.warning()))));
    let conversation = why.conversation.as_ref().and_then(self::conversation);
    lines.extend(conversation.map(|line| format!("\n  {line}")));
    let blocked = why.blocked_items.iter().filter_map(blocked_line);
    lines.extend(blocked.map(|line| format!("\n  {line}")));
    let abandoned = why.abandoned.as_ref();
    lines.extend(abandoned.map(|launch| format!("\n  {}", abandoned_line(launch, agent, project))));
    lines
}

/// Returns the sentence whether the next launch continues a conversation; `None` if it was never
/// begun.
pub(super) fn conversation(conversation: &ConversationBody) -> Option<String> {
    let session = plain(&conversation.session_id);
    match conversation.fresh_because {
        None => Some(format!("the next launch continues the conversation {session}")),
        Some(FreshReason::None) => None,
        Some(why) => {
            Some(format!("the next launch begins afresh: {}", why.clause(Language::English)))
        }
    }
}

/// Returns the line about an item of a forge that open issues block, with their addresses. If these
/// are not known, the page of the item names the issues.
fn blocked_line(item: &ForgeItemBody) -> Option<String> {
    let text = item.blocked_text(Language::English)?;
    let links = if item.blockers.is_empty() { &item.url } else { &item.blockers.join(", ") };
    Some(plain(&format!("{} {text}: {links}", item.item)))
}

/// Returns the table of all rules, in the order in which they are asked.
fn rules_of(why: &WhyBody) -> String {
    let mut rules = table(&[rules_title(why.purpose), "", "UNTIL"]);
    for rule in &why.rules {
        rules.add_row([
            demand(rule, why.purpose).to_owned(),
            match &rule.detail {
                Some(detail) => format!("no: {} ({detail})", rule.reason),
                None if rule.keeps => format!("no: {}", rule.reason),
                None => "yes".to_owned(),
            },
            or_dash(rule.until.map(|until| format!("in {}", ago(why.at, until)))),
        ]);
    }
    lines(&rules)
}

const fn rules_title(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Task => "RULES FOR A TASK",
        Purpose::Chat => "RULES FOR A CHAT",
        Purpose::Check => "RULES FOR A CHECK",
    }
}

/// Returns the text of a rule.
const fn demand(rule: &Ruling, purpose: Purpose) -> &'static str {
    match (rule.reason, purpose) {
        (StartReason::NoWork, Purpose::Check) => "a task of it is to be checked",
        (StartReason::NoWork, Purpose::Chat) => "a person wants to chat with it",
        // The detail names the pause file, which `resume` does not remove.
        (StartReason::Paused, _) if rule.detail.is_some() => "starts are not paused",
        (reason, _) => reason.row().rule,
    }
}
