//! `/projects/{project}/agents/{agent}/why`: the rules that let a pair start or keep it from
//! starting.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::forge::{ForgeItemBody, blocked_items};
use super::status::ParkedBody;
use super::waiting::WaitingBody;
use crate::domain::plan::Deferred;
use crate::domain::plan::shared::Crowd;
use crate::domain::start_history::{Ruling, StartReason};
use crate::domain::waiting::{WaitFacts, WaitReason};
use crate::domain::{AgentId, LaunchId, Outcome, ProjectId, Purpose, Timestamp, Waiting};
use crate::rest::api::{Api, about};
use crate::rest::extract::InPath;
use crate::rest::{Problem, RestState};
use crate::service::Why;

/// The rules for one purpose.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhyBody {
    pub purpose: Purpose,
    pub at: Timestamp,
    /// The deciding reason: the first rule that prevents the start, or the reason for which a
    /// coordinator defers it. `ready` if the start is allowed.
    pub reason: StartReason,
    pub n_failures: u32,
    /// The provider of the agent, if its account is parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<ParkedBody>,
    /// The git work tree of the project, if several agents work in it at once without clones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crowd: Option<Crowd>,
    /// The open launch, if its coordinator is not there. If it does not come back, only a stop with
    /// `force` ends the launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandoned: Option<LaunchId>,
    /// The sentence for people about the reason; absent if the agent may start, runs already or has
    /// no work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingBody>,
    /// The items of forges that an agent of the pair would take, and that open issues block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_items: Vec<ForgeItemBody>,
    /// The rules in their order.
    pub rules: Vec<Ruling>,
    /// The end of its last launch, with the last line of its agent, if failures keep it.
    #[serde(skip)]
    pub(in crate::rest) last_end: Option<(Outcome, Option<String>)>,
    /// It runs on a host that does not answer.
    #[serde(skip)]
    pub(in crate::rest) is_host_silent: bool,
    /// The facts that the sentence names.
    #[serde(skip)]
    pub(in crate::rest) facts: WaitFacts,
}

impl From<Why> for WhyBody {
    fn from(why: Why) -> Self {
        let mut rules = why.rulings;
        if let Some(path) = why.pause_file
            && let Some(paused) = rules.iter_mut().find(|rule| rule.reason == StartReason::Paused)
        {
            paused.detail = Some(format!("the pause file `{path}` exists; remove it"));
        }
        // The rules already contain the server's own reasons, which may have changed since a
        // coordinator repeated them.
        let before = rules.len();
        let is_by_fault = why.deferred.as_ref().is_some_and(Deferred::is_by_fault);
        if let Some(Deferred { reason, until, detail, also, .. }) = why.deferred {
            if let Some(rule) = rules.iter_mut().find(|rule| is_by_fault && rule.reason == reason) {
                rule.keeps = true;
                rule.detail.clone_from(&detail);
            }
            let first = Ruling { until, detail, ..Ruling::keeping(reason) };
            let others = also.into_iter().map(Ruling::keeping);
            rules.extend(
                std::iter::once(first).chain(others).filter(|body| body.reason.is_of_coordinator()),
            );
        }
        if why.has_no_coordinator {
            rules.push(Ruling::keeping(StartReason::NoCoordinator));
        }
        if rules.len() == before {
            rules.push(Ruling::free(StartReason::NoFreeSlot));
        }
        let reason =
            rules.iter().find(|rule| rule.keeps).map_or(StartReason::Ready, |rule| rule.reason);
        let parked = ParkedBody::of(why.account, why.parking);
        let of = Self {
            purpose: why.key.purpose,
            at: why.at,
            reason,
            n_failures: why.n_failures,
            parked,
            crowd: why.crowd,
            abandoned: why.abandoned,
            waiting: None,
            blocked_items: Vec::new(),
            rules,
            last_end: why.last_end,
            is_host_silent: why.is_host_silent,
            facts: why.facts,
        };
        Self { waiting: of.waiting().as_ref().map(WaitingBody::from), ..of }
    }
}

impl WhyBody {
    /// Returns the reason of a coordinator without its server, which knows no other rule.
    pub(super) fn of_coordinator(deferred: Deferred, at: Timestamp) -> Self {
        let Deferred { key, reason, until, detail, also, .. } = deferred;
        let first = Ruling { until, detail, ..Ruling::keeping(reason) };
        let others = also.into_iter().map(Ruling::keeping);
        Self {
            purpose: key.purpose,
            at,
            reason,
            n_failures: 0,
            parked: None,
            crowd: None,
            abandoned: None,
            waiting: None,
            rules: std::iter::once(first).chain(others).collect(),
            last_end: None,
            is_host_silent: false,
            facts: WaitFacts::default(),
            blocked_items: Vec::new(),
        }
    }

    /// Returns the wait that the rules cause, or a silent host; `None` if the agent may start, runs
    /// already or has no work.
    pub(in crate::rest) fn waiting(&self) -> Option<Waiting> {
        if self.is_host_silent {
            let facts = Some(Box::new(self.facts.clone()));
            return Some(Waiting { facts, ..Waiting::of(WaitReason::HostSilent) });
        }
        self.wait_for(self.rules.iter().find(|rule| rule.keeps)?)
    }

    /// Returns the same as [`Self::waiting`], and the stop by a person also for an agent without
    /// work: it stays stopped for the work that comes.
    pub(in crate::rest) fn waiting_or_stopped(&self) -> Option<Waiting> {
        let is_held = |rule: &&Ruling| rule.keeps && rule.reason == StartReason::Held;
        self.waiting().or_else(|| self.wait_for(self.rules.iter().find(is_held)?))
    }

    fn wait_for(&self, rule: &Ruling) -> Option<Waiting> {
        let is_by_failures =
            matches!(rule.reason, StartReason::Suspended | StartReason::Misconfigured);
        Some(Waiting {
            until: rule.until,
            detail: rule.detail.clone(),
            last_end: self.last_end.clone().filter(|_| is_by_failures),
            n_failures: self.n_failures,
            account: self.parked.as_ref().map(|it| (it.provider.clone(), it.reason)),
            facts: Some(Box::new(self.facts.clone())),
            ..Waiting::of_start(rule.reason)?
        })
    }
}

pub(super) fn routes() -> Api {
    let text = "Each rule that allows or prevents the start of an agent in a project";
    Api::new().get(
        "/projects/{project}/agents/{agent}/why",
        why,
        about(text).gives::<Vec<WhyBody>>(),
    )
}

async fn why(
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
) -> Result<Json<Vec<WhyBody>>, Problem> {
    let why = state.service.launches.why(&agent, &project).await?;
    let mut bodies: Vec<WhyBody> = why.into_iter().map(WhyBody::from).collect();
    if let Some(of_task) = bodies.iter_mut().find(|body| body.purpose == Purpose::Task) {
        let blocked = blocked_items(&state.service).into_iter();
        let blocked = blocked.filter(|it| it.project == project && it.agents.contains(&agent));
        of_task.blocked_items = blocked.map(ForgeItemBody::from).collect();
    }
    Ok(Json(bodies))
}
