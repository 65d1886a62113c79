//! `/projects/{project}/agents/{agent}/why`: the rules that let a pair start or keep it from
//! starting.

use serde::{Deserialize, Serialize};

use super::forge::ForgeItemBody;
use super::status::ParkedBody;
use super::tasks::ConversationBody;
use super::waiting::WaitingBody;
use domain::plan::Deferred;
use domain::plan::shared::Crowd;
use domain::start_history::{Ruling, StartReason};
use domain::why::{Why, rules_of};
use domain::{LaunchId, Purpose, Timestamp};

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
    /// The newest conversation of the agent's CLI about the task of the next launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationBody>,
    /// The items of forges that an agent of the pair would take, and that open issues block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_items: Vec<ForgeItemBody>,
    /// The rules in their order.
    pub rules: Vec<Ruling>,
}

impl From<Why> for WhyBody {
    fn from(why: Why) -> Self {
        Self {
            reason: why.reason(),
            waiting: why.waiting().as_ref().map(WaitingBody::from),
            purpose: why.key.purpose,
            at: why.at,
            n_failures: why.n_failures,
            parked: ParkedBody::of(why.account, why.parking),
            crowd: why.crowd,
            abandoned: why.abandoned,
            conversation: why.conversation.map(ConversationBody::from),
            blocked_items: Vec::new(),
            rules: why.rules,
        }
    }
}

impl WhyBody {
    /// Returns the reason of a coordinator without its server, which knows no other rule.
    pub fn of_coordinator(deferred: Deferred, at: Timestamp) -> Self {
        Self {
            purpose: deferred.key.purpose,
            at,
            reason: deferred.reason,
            n_failures: 0,
            parked: None,
            crowd: None,
            abandoned: None,
            waiting: None,
            conversation: None,
            blocked_items: Vec::new(),
            rules: rules_of(deferred).collect(),
        }
    }
}
