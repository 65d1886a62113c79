//! The `ai_type`s that agents may get: those that a provider of this machine starts.

use std::collections::BTreeSet;

use super::Agent;
use crate::nearest::nearest;
use crate::refusal::Refusal;

/// The number of names that a refusal lists.
const MAX_LISTED: usize = 20;

/// The `ai_type`s that agents may get. An agent that has another one already keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AiTypes {
    /// Coordinators on other machines have providers of their own, which the server does not know.
    Any,
    Of(BTreeSet<String>),
}

impl AiTypes {
    /// Checks the `ai_type` of a new or changed agent. `before` is the agent as it is stored.
    ///
    /// # Errors
    /// `UnknownAiType`.
    pub fn check(&self, before: Option<&Agent>, after: &Agent) -> Result<(), Refusal> {
        let Self::Of(known) = self else { return Ok(()) };
        let stays = before.is_some_and(|before| before.ai_type == after.ai_type);
        if stays || known.contains(&after.ai_type) {
            return Ok(());
        }
        Err(Refusal::UnknownAiType {
            ai_type: after.ai_type.clone(),
            meant: nearest(&after.ai_type, known.iter().map(String::as_str)).map(str::to_owned),
            known: known.iter().take(MAX_LISTED).cloned().collect(),
            n_more: known.len().saturating_sub(MAX_LISTED),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn agent(ai_type: &str) -> Agent {
        let agent = Agent::new("agt".parse().unwrap(), None, Timestamp::from_millis(0));
        Agent { ai_type: ai_type.to_owned(), ..agent }
    }

    fn known(names: &[&str]) -> AiTypes {
        AiTypes::Of(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn a_new_or_changed_type_must_be_startable_and_an_old_one_stays() {
        let types = known(&["claude", "codex", "my-agent"]);
        for (before, after, is_granted) in [
            (None, "codex", true),
            (None, "cluade", false),
            (None, "", false),
            (Some("cluade"), "cluade", true),
            (Some("cluade"), "claude", true),
            (Some("claude"), "Claude", false),
        ] {
            let before = before.map(agent);
            let checked = types.check(before.as_ref(), &agent(after));
            assert_eq!(checked.is_ok(), is_granted, "{after}");
            assert_eq!(AiTypes::Any.check(before.as_ref(), &agent(after)), Ok(()));
        }
    }

    #[test]
    fn a_refusal_names_the_nearest_type_and_all_or_the_first_of_many() {
        let refused = |types: &AiTypes, ai_type: &str| {
            let refusal = types.check(None, &agent(ai_type)).unwrap_err();
            assert_eq!(refusal.code(), "unknown_ai_type");
            refusal.to_string()
        };
        let types = known(&["claude", "codex"]);
        assert_eq!(
            refused(&types, "Cluade"),
            "no provider starts the ai_type `Cluade`; did you mean `claude`? Known are: claude, codex"
        );
        assert_eq!(
            refused(&types, "gpt"),
            "no provider starts the ai_type `gpt`. Known are: claude, codex"
        );
        let names: Vec<String> = (10..40).map(|n| format!("n{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(refused(&known(&names), "gpt").ends_with("n28, n29 and 10 more"));
    }
}
