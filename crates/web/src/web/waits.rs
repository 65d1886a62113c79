//! The line of a card, a task or an agent that says why it does not run, with the action that ends
//! that.

use std::fmt;

use super::agent::login_command;
use super::shown::{Since, When};
use super::words::Words;
use domain::waiting::{ChatInSlot, Inactive, WaitAction, WaitReason, Waiting};
use domain::{AgentId, Language, ProjectId, TaskId, Timestamp};

/// A wait, as pages show it.
pub(super) struct WhyLine {
    /// `bad` if only a person ends it, else `wait`.
    pub(super) tone: &'static str,
    /// The name of a symbol of the sprite.
    pub(super) icon: &'static str,
    pub(super) text: String,
    /// The detail that the text does not contain, because it exists in English only.
    pub(super) detail_in_english: Option<String>,
    pub(super) time: Option<WhyTime>,
    pub(super) action: Option<WhyAction>,
}

/// The time after the sentence of a wait.
#[derive(Debug, Clone, Copy)]
pub(super) enum WhyTime {
    Since(Language, Timestamp),
    Until(Timestamp),
}

impl fmt::Display for WhyTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Since(Language::English, at) => write!(f, "since {}", Since(*at)),
            Self::Since(Language::Japanese, at) => write!(f, "{} から", Since(*at)),
            Self::Until(at) => write!(f, "{}", When(*at)),
        }
    }
}

/// Safe, because it contains only a timestamp and fixed words.
impl askama::filters::HtmlSafe for WhyTime {}

/// A task in the panel of its board.
#[derive(Clone)]
pub(super) struct PanelLink {
    pub(super) part: String,
    pub(super) address: String,
    /// The property whose list opens.
    pub(super) edits: &'static str,
}

/// The action that ends a wait: a link, or a form that is posted.
#[derive(Clone, Default)]
pub(super) struct WhyAction {
    pub(super) text: &'static str,
    pub(super) href: Option<String>,
    /// The place of the task on its board, for a link that leads to the task.
    pub(super) panel: Option<Box<PanelLink>>,
    pub(super) post: String,
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
            time: WhyTime::of(w.language, waiting),
            action: WhyAction::how_to_log_in(w, waiting, about)
                .or_else(|| WhyAction::at_once(w, waiting, about)),
        }
    }
}

impl WhyTime {
    pub(super) fn of(language: Language, waiting: &Waiting) -> Option<Self> {
        let since = || waiting.since().map(|at| Self::Since(language, at));
        waiting.until.map(Self::Until).or_else(since)
    }
}

impl WhyAction {
    /// Returns whether it only leads to the task, which shows where its assignee is picked, or its
    /// changes, instead.
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
            ..Self::default()
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
        let link = |href: String| Some(Self { text, href: Some(href), ..Self::default() });
        let form = |post: &str, values: serde_json::Value| {
            let values = values.to_string();
            Some(Self { text, post: post.to_owned(), values, ..Self::default() })
        };
        let About { agent, project, task } = about;
        let to_task = |tab: &str, edits| {
            let project = project?;
            let task = task?;
            let panel = Box::new(PanelLink {
                part: format!("/ui/parts/tasks/{task}?tab={tab}"),
                address: format!("/ui/projects/{project}?task={task}&tab={tab}"),
                edits,
            });
            Some(Self { panel: Some(panel), ..link(format!("/ui/tasks/{task}"))? })
        };
        match action {
            WaitAction::Assign => to_task("overview", "assignee"),
            WaitAction::AssignToProject => link(format!("/ui/projects/{}/edit", project?)),
            WaitAction::Activate => match waiting.facts().inactive {
                Some(Inactive::Agent) => {
                    form("/ui/do/activate", serde_json::json!({ "agent": agent? }))
                }
                Some(Inactive::Project) => {
                    form("/ui/do/activate", serde_json::json!({ "project": project? }))
                }
                // The page of the archived project has the button.
                Some(Inactive::ArchivedProject) => link(format!("/ui/projects/{}", project?)),
                Some(Inactive::ArchivedAgent) | None => link(format!("/ui/agents/{}", agent?)),
            },
            WaitAction::EditAgent => link(format!("/ui/agents/{}", agent?)),
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
            WaitAction::RetryWorkspace | WaitAction::Merge => to_task("changes", ""),
            WaitAction::EndChat => {
                let ChatInSlot { agent, project, .. } = waiting.facts().chat.as_ref()?;
                let post = format!("/ui/do/projects/{project}/agents/{agent}/chat/end");
                form(&post, serde_json::json!({}))
            }
            WaitAction::ChangeLimits => {
                let WaitReason::Start(reason) = waiting.reason else { return None };
                link(format!("/ui/settings#{}", reason.row().limit?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::shown::Now;
    use super::*;
    use api::waiting::WaitingBody;
    use domain::account::{Parked, Parking};
    use domain::plan::InUse;
    use domain::start_history::{Ruling, StartReason, WaitEnd};
    use domain::task::{NewTask, TaskStatus};
    use domain::waiting::WaitFacts;
    use domain::{Account, FailureClass, InstanceKey, Purpose, Why};
    use service::Standings;

    /// Returns the sentence of a reason that names something; `None` for the others.
    fn named(reason: StartReason) -> Option<&'static str> {
        Some(match reason {
            StartReason::NotAssigned => "Not assigned to Shop",
            StartReason::Inactive => "Ada is deactivated",
            StartReason::Held => "Ann stopped it",
            StartReason::Suspended => "Failed 5 times in a row",
            StartReason::Parked => "codex is not logged in, tried again",
            StartReason::Backoff => "Failed 5 times, tries again",
            StartReason::ProjectLimit => "Shop runs 2 of 2",
            StartReason::AgentLimit => "Ada runs 2 of 2",
            StartReason::ProviderLimit => "codex runs 2 of 2",
            _ => return None,
        })
    }

    fn key() -> InstanceKey {
        InstanceKey::new("agt".parse().unwrap(), "prj".parse().unwrap(), Purpose::Task)
    }

    fn why(reason: StartReason) -> Why {
        let at = Timestamp::from_millis(0);
        let parked = Parked {
            class: FailureClass::Auth,
            since: at,
            first: at,
            until: at,
            n_failures: 1,
            probe: None,
        };
        let parked = (reason == StartReason::Parked).then_some(parked);
        let facts = WaitFacts {
            agent: Some("Ada".to_owned()),
            project: Some("Shop".to_owned()),
            ai_type: Some("codex".to_owned()),
            inactive: Some(Inactive::Agent),
            held_since: Some(at),
            stopped_by: Some("Ann".to_owned()),
            paused_since: Some(at),
            dependency: None,
            in_use: Some(InUse { n_running: 2, limit: 2 }),
            host: None,
            n_ahead: 0,
            chat: None,
            silent_host: None,
        };
        Why {
            key: key(),
            at,
            rules: vec![Ruling::keeping(reason)],
            n_failures: 5,
            waiting_since: None,
            task: None,
            conversation: None,
            account: Account { parked, ..Account::new("codex".to_owned()) },
            parking: Parking { initial: Duration::ZERO, max: Duration::ZERO },
            crowd: None,
            abandoned: None,
            last_end: None,
            is_host_silent: false,
            facts,
        }
    }

    #[test]
    fn a_card_a_task_an_agent_and_rest_tell_the_same_of_each_reason_with_its_button() {
        let w = Words::of(Language::English);
        let key = key();
        let new = NewTask {
            status: TaskStatus::InProgress,
            assignee: Some(key.agent.clone()),
            ..NewTask::new(key.project.clone(), "a title")
        };
        let at = Timestamp::from_millis(1);
        let task = new.to_task("tsk".parse().unwrap(), "SHOP-1".parse().unwrap(), at).unwrap();
        for reason in StartReason::ALL {
            let Some(waiting) = why(*reason).waiting() else {
                assert_eq!(reason.row().ends, WaitEnd::NoWait, "{reason}");
                continue;
            };
            let text = named(*reason).unwrap_or(reason.sentence(Language::English));
            let needs_person = waiting.needs_person();
            let login = (*reason == StartReason::Parked).then_some("How to log in");
            let of_action = || reason.row().action.map(|action| w.of_wait_action(action));
            let button = login.or_else(of_action);
            let of_rest = WaitingBody::from(&waiting);
            assert_eq!((of_rest.text.as_str(), of_rest.needs_person), (text, needs_person));
            let about = About { agent: Some(&key.agent), project: Some(&key.project), task: None };
            let of_agent = WhyLine::of(w, &waiting, about);
            let mut standings = Standings::default();
            standings.waits.insert(key.clone(), waiting);
            // The card and the page of the task.
            let Now::Why { why: of_task } = Now::of(w, &standings, &task) else {
                panic!("{reason} has no line");
            };
            let told = of_task.action.as_ref().map(|action| action.text);
            assert_eq!((of_task.text.as_str(), told), (text, button), "{reason}");
            assert_eq!(of_task.tone == "bad", needs_person, "{reason}");
            assert_eq!(of_agent.text, text, "{reason}");
            // The clone is a matter of its task, which has the button.
            if *reason != StartReason::WorkspaceBroken {
                assert_eq!(of_agent.action.map(|action| action.text), button, "{reason}");
            }
        }
    }
}
