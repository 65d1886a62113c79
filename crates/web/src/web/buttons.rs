//! The one button of a row or of a note: it leads to a page, posts a form, or opens a dialog.

use super::instances::InstanceRow;
use super::waits::WhyAction;
use super::words::Words;
use domain::{Agent, AgentId, ProjectId, Purpose};

/// A button.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Button {
    pub(super) text: String,
    /// The name of a symbol of the sprite.
    pub(super) icon: Option<&'static str>,
    /// `primary`, `ghost` or empty.
    pub(super) look: &'static str,
    pub(super) does: ButtonAction,
}

/// The effect of a button.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ButtonAction {
    Leads {
        href: String,
    },
    /// It posts a form with these fields, as JSON, after the question if there is one.
    Posts {
        path: String,
        values: String,
        question: Option<String>,
    },
    /// It shows this part in the dialog.
    Opens {
        part: String,
    },
}

impl From<WhyAction> for Button {
    fn from(action: WhyAction) -> Self {
        let WhyAction { text, href, panel: _, post, values } = action;
        let icon = (post == "/ui/do/resume" && values.contains("agent")).then_some("i-play");
        let does = match href {
            Some(href) => ButtonAction::Leads { href },
            None => ButtonAction::Posts { path: post, values, question: None },
        };
        Self { text: text.to_owned(), icon, look: "", does }
    }
}

impl Button {
    /// Returns the button that stops an agent in a project after a question that names the agent.
    /// Without a purpose, it stops its tasks and its chats.
    fn stop(
        w: &'static Words,
        agent: &Agent,
        project: &ProjectId,
        purpose: Option<Purpose>,
    ) -> Self {
        let mut values = serde_json::json!({ "agent": agent.id, "project": project });
        if let Some(purpose) = purpose {
            values["purpose"] = serde_json::json!(purpose);
        }
        let question = Some(w.of_stop_question(&agent.name));
        let path = "/ui/do/stop".to_owned();
        Self {
            text: format!("{}…", w.stop),
            icon: Some("i-stop"),
            look: "ghost",
            does: ButtonAction::Posts { path, values: values.to_string(), question },
        }
    }

    /// Returns the button that stops the open launches of an agent in a project; `None` if all of
    /// them are ending.
    pub(super) fn stop_of(
        w: &'static Words,
        agent: &Agent,
        project: &ProjectId,
        instances: &[InstanceRow],
    ) -> Option<Self> {
        let purpose = if let [only] = instances { Some(only.purpose) } else { None };
        let is_stoppable = instances.iter().any(InstanceRow::is_stoppable);
        is_stoppable.then(|| Self::stop(w, agent, project, purpose))
    }

    /// Returns the button that opens the form of a new task for an agent.
    pub(super) fn give_task(w: &'static Words, agent: &AgentId, project: &ProjectId) -> Self {
        Self {
            text: w.give_task.to_owned(),
            icon: Some("i-plus"),
            look: "ghost",
            does: ButtonAction::Opens {
                part: format!(
                    "/ui/parts/projects/{project}/new-task?assignee={agent}&status=in_progress"
                ),
            },
        }
    }

    /// Returns the same button as the main one of its place.
    pub(super) fn primary(self) -> Self {
        Self { look: "primary", ..self }
    }
}
