//! The line of a card, a task or an agent that says why it does not run, with the action that ends
//! that.

use super::agent::login_command;
use super::shown::When;
use super::words::Words;
use crate::domain::waiting::{WaitAction, WaitReason, Waiting};
use crate::domain::{AgentId, Language, ProjectId, TaskId};

/// A wait, as pages show it.
pub(super) struct WhyLine {
    /// `bad` if only a person ends it, else `wait`.
    pub(super) tone: &'static str,
    /// The name of a symbol of the sprite.
    pub(super) icon: &'static str,
    pub(super) text: String,
    /// The detail that the text does not contain, because it exists in English only.
    pub(super) detail_in_english: Option<String>,
    pub(super) until: Option<When>,
    pub(super) action: Option<WhyAction>,
}

/// The action that ends a wait: a link, or a form that is posted.
#[derive(Clone)]
pub(super) struct WhyAction {
    pub(super) text: &'static str,
    pub(super) href: Option<String>,
    pub(super) post: &'static str,
    /// The fields of the form, as JSON.
    pub(super) values: String,
}

/// The objects that a wait is about.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) agent: Option<&'a AgentId>,
    pub(super) project: Option<&'a ProjectId>,
    pub(super) task: Option<&'a TaskId>,
}

impl WhyLine {
    pub(super) fn of(w: &'static Words, waiting: &Waiting, about: About<'_>) -> Self {
        let needs_person = waiting.needs_person();
        let icon = match (&waiting.reason, needs_person) {
            (WaitReason::Blocked, _) => "i-warn",
            (_, true) => "i-bad",
            (_, false) => "i-clock",
        };
        Self {
            tone: if needs_person { "bad" } else { "wait" },
            icon,
            text: waiting.sentence(w.language),
            detail_in_english: waiting
                .detail_in_english()
                .filter(|_| w.language == Language::Japanese)
                .map(str::to_owned),
            until: waiting.until.map(When),
            action: WhyAction::how_to_log_in(w, waiting, about)
                .or_else(|| WhyAction::at_once(w, waiting, about)),
        }
    }
}

impl WhyAction {
    /// Returns whether it only leads to the task, which a task does not need to show itself.
    pub(super) fn leads_to_task(&self) -> bool {
        self.href.as_ref().is_some_and(|href| href.starts_with("/ui/tasks/"))
    }

    /// Returns the link to the page of an agent that is not logged in, if that page has the command
    /// for it.
    fn how_to_log_in(w: &'static Words, waiting: &Waiting, about: About<'_>) -> Option<Self> {
        let (provider, _) = waiting.account.as_ref().filter(|_| waiting.is_not_logged_in())?;
        let agent = about.agent?;
        let project = about.project?;
        login_command(provider).map(|_| Self {
            text: w.show_login,
            href: Some(format!("/ui/projects/{project}/agents/{agent}")),
            post: "",
            values: String::new(),
        })
    }

    /// Returns the action that ends a wait at once.
    pub(super) fn at_once(w: &'static Words, waiting: &Waiting, about: About<'_>) -> Option<Self> {
        Self::of(w, waiting.action()?, waiting, about)
    }

    /// Returns the form or the link of an action. `None` if the page of the task itself has it.
    fn of(
        w: &'static Words,
        action: WaitAction,
        waiting: &Waiting,
        about: About<'_>,
    ) -> Option<Self> {
        let text = w.of_wait_action(action);
        let link =
            |href: String| Some(Self { text, href: Some(href), post: "", values: String::new() });
        let form = |post, values: serde_json::Value| {
            Some(Self { text, href: None, post, values: values.to_string() })
        };
        let About { agent, project, task } = about;
        match action {
            WaitAction::Assign => link(format!("/ui/tasks/{}", task?)),
            WaitAction::AssignToProject => link(format!("/ui/projects/{}/edit", project?)),
            WaitAction::Activate | WaitAction::EditAgent => link(format!("/ui/agents/{}", agent?)),
            WaitAction::Resume | WaitAction::TryNow => {
                let values = serde_json::json!({ "agent": agent?, "project": project? });
                form("/ui/do/resume", values)
            }
            WaitAction::ResumeAll => form("/ui/do/operations/resume", serde_json::json!({})),
            WaitAction::TryProvider => {
                let (provider, _) = waiting.account.as_ref()?;
                form("/ui/do/resume", serde_json::json!({ "provider": provider }))
            }
            // The changes of the task have the button, beside what went wrong.
            WaitAction::RetryWorkspace => link(format!("/ui/tasks/{}", task?)),
        }
    }
}
