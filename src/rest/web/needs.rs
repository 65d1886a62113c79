//! The checklist of what an agent needs to start, with each item in the affirmative.

use super::shown::Since;
use super::words::Words;
use crate::domain::Purpose;
use crate::domain::start_history::StartReason;
use crate::rest::routes::status::LimitsBody;
use crate::rest::routes::why::{RuleBody, WhyBody};

/// One item of the checklist.
#[derive(Debug, Clone)]
pub(super) struct Need {
    pub(super) is_met: bool,
    pub(super) text: String,
    /// The figures behind an item that is not met.
    pub(super) detail: Option<String>,
    /// The same, on a page in another language.
    pub(super) detail_in_english: Option<String>,
    pub(super) since: Option<Since>,
    pub(super) until: Option<Since>,
}

impl Need {
    /// Returns an item with its text alone.
    const fn plain(is_met: bool, text: String) -> Self {
        Self { is_met, text, detail: None, detail_in_english: None, since: None, until: None }
    }
}

/// The facts that items name.
pub(super) struct NeedFacts<'a> {
    pub(super) project: &'a str,
    /// The short id of the task that the agent would be given.
    pub(super) task: Option<String>,
    pub(super) limits: &'a LimitsBody,
}

/// The rules that one item stands for, in the order of the list. An item that is always shown has
/// a text of its own.
const GROUPS: [(&[StartReason], Visibility); 10] = [
    (
        &[StartReason::Unknown, StartReason::NotAssigned, StartReason::Inactive],
        Visibility::Always(|w, facts| w.of_assigned(facts.project)),
    ),
    (
        &[StartReason::NoWork],
        Visibility::Always(|w, facts| match &facts.task {
            Some(task) => w.of_work_for(task),
            None => w.of_demand(StartReason::NoWork).to_owned(),
        }),
    ),
    (&[StartReason::Stopping], Visibility::IfKeeps),
    (&[StartReason::Held], Visibility::Always(|w, _| w.of_demand(StartReason::Held).to_owned())),
    (
        &[StartReason::Suspended, StartReason::Backoff],
        Visibility::Always(|w, _| w.of_demand(StartReason::Suspended).to_owned()),
    ),
    (
        &[StartReason::Misconfigured, StartReason::NoPasskey, StartReason::NoCoordinator],
        Visibility::IfKeeps,
    ),
    (
        &[StartReason::Parked],
        Visibility::Always(|w, _| w.of_demand(StartReason::Parked).to_owned()),
    ),
    (
        &[StartReason::Paused],
        Visibility::Always(|w, _| w.of_demand(StartReason::Paused).to_owned()),
    ),
    (
        &[
            StartReason::WorkspaceBroken,
            StartReason::WorkspaceDisk,
            StartReason::HookFailed,
            StartReason::PreparingWorkspace,
            StartReason::OnOtherHost,
            StartReason::DirectoryInUse,
            StartReason::TakingSnapshot,
            StartReason::LowDisk,
            StartReason::LowMemory,
        ],
        Visibility::IfKeeps,
    ),
    (
        &[
            StartReason::NoFreeSlot,
            StartReason::ChatReserve,
            StartReason::ProjectLimit,
            StartReason::AgentLimit,
            StartReason::ProviderLimit,
        ],
        Visibility::Always(|w, facts| {
            w.of_free_slot(facts.limits.running, facts.limits.max_concurrent)
        }),
    ),
];

enum Visibility {
    Always(fn(&'static Words, &NeedFacts<'_>) -> String),
    /// Shown only if one of the rules keeps the agent from starting. A rule of a coordinator was
    /// not tried before the others are met, so that it says nothing else.
    IfKeeps,
}

/// Returns the checklist for one purpose.
pub(super) fn needs_of(w: &'static Words, why: &WhyBody, facts: &NeedFacts<'_>) -> Vec<Need> {
    let is_chat = why.purpose == Purpose::Chat;
    let need = |(reasons, shown): &(&[StartReason], Visibility)| {
        let keeping = |rule: &&RuleBody| rule.keeps && reasons.contains(&rule.rule);
        let keeping = why.rules.iter().find(keeping);
        // A check does not use the account.
        let is_of_purpose = why.purpose != Purpose::Check || reasons[0] != StartReason::Parked;
        let is_wish = is_chat && reasons[0] == StartReason::NoWork;
        match (keeping, shown) {
            // A running agent uses its clone, which is not ready for another one.
            (_, Visibility::IfKeeps) if runs(why) => None,
            (keeping, _) if is_wish => {
                Some(Need::plain(keeping.is_none(), w.chat_wanted.to_owned()))
            }
            (Some(rule), _) => Some(unmet(w, why, rule)),
            (None, _) if reasons[0] == StartReason::NoFreeSlot && is_full(why, facts) => {
                let detail = Some(format!("{0}/{0}", facts.limits.max_concurrent));
                let text = w.of_demand(StartReason::NoFreeSlot).to_owned();
                Some(Need { detail, ..Need::plain(false, text) })
            }
            (None, Visibility::Always(text)) if is_of_purpose => {
                Some(Need::plain(true, text(w, facts)))
            }
            _ => None,
        }
    };
    // Without a coordinator there are no slots.
    let has_slots = why.reason != StartReason::NoCoordinator;
    let groups = GROUPS.iter().filter(|group| has_slots || group.0[0] != StartReason::NoFreeSlot);
    groups.filter_map(need).collect()
}

/// Returns whether all slots are taken, none of them by the agent itself. A coordinator says so
/// only of an agent that could start otherwise.
fn is_full(why: &WhyBody, facts: &NeedFacts<'_>) -> bool {
    facts.limits.running >= facts.limits.max_concurrent && !runs(why)
}

fn runs(why: &WhyBody) -> bool {
    let reasons = [StartReason::Starting, StartReason::Running];
    why.rules.iter().any(|rule| rule.keeps && reasons.contains(&rule.rule))
}

fn unmet(w: &'static Words, why: &WhyBody, rule: &RuleBody) -> Need {
    let since = why.parked.as_ref().filter(|_| rule.rule == StartReason::Parked);
    // The figures behind a rule exist in English only.
    let detail = rule.detail.clone();
    let (detail, detail_in_english) = if w.is_english() { (detail, None) } else { (None, detail) };
    Need {
        is_met: false,
        text: w.of_demand(rule.rule).to_owned(),
        detail,
        detail_in_english,
        since: since.map(|parked| Since(parked.since)),
        until: rule.until.filter(|_| since.is_none()).map(Since),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::waiting::WaitFacts;
    use crate::domain::{Language, Timestamp};

    fn rule(rule: StartReason, keeps: bool) -> RuleBody {
        RuleBody { rule, keeps, until: None, detail: Some("figures".to_owned()) }
    }

    fn checklist(language: Language, rules: Vec<RuleBody>) -> Vec<(bool, String)> {
        checklist_with(language, 3, rules)
    }

    fn checklist_with(
        language: Language,
        running: usize,
        rules: Vec<RuleBody>,
    ) -> Vec<(bool, String)> {
        let why = WhyBody {
            purpose: Purpose::Task,
            at: Timestamp::from_millis(0),
            reason: StartReason::Ready,
            n_failures: 0,
            parked: None,
            crowd: None,
            abandoned: None,
            waiting: None,
            blocked_items: Vec::new(),
            rules,
            last_end: None,
            is_host_silent: false,
            facts: WaitFacts::default(),
        };
        let limits = LimitsBody { max_concurrent: 6, running };
        let facts =
            NeedFacts { project: "Shop", task: Some("SHOP-21".to_owned()), limits: &limits };
        let needs = needs_of(Words::of(language), &why, &facts);
        needs.into_iter().map(|need| (need.is_met, need.text)).collect()
    }

    #[test]
    fn the_checklist_is_in_the_affirmative_and_an_unmet_rule_has_its_own_item() {
        let met = checklist(Language::English, vec![rule(StartReason::Held, false)]);
        assert!(met.iter().all(|(is_met, _)| *is_met), "{met:?}");
        let texts: Vec<&str> = met.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "Assigned to Shop, and both are active",
                "There is work: SHOP-21",
                "No person stopped it",
                "It did not fail too often",
                "Its account can be used",
                "Starts are not paused",
                "A slot is free (3 of 6 in use)",
            ]
        );
        let disk = checklist(Language::English, vec![rule(StartReason::LowDisk, true)]);
        let unmet: Vec<_> = disk.iter().filter(|(is_met, _)| !is_met).collect();
        assert_eq!(unmet, [&(false, "Enough disk is free".to_owned())]);
    }

    #[test]
    fn a_slot_is_free_unless_other_agents_have_all_of_them() {
        let slot = |rules| checklist_with(Language::English, 6, rules).pop().unwrap();
        assert_eq!(slot(vec![rule(StartReason::Held, true)]), (false, "A slot is free".to_owned()));
        let runs = rule(StartReason::Running, true);
        assert!(slot(vec![runs.clone()]).0);
        let in_use = rule(StartReason::PreparingWorkspace, true);
        let needs = checklist(Language::English, vec![runs, in_use]);
        assert!(needs.iter().all(|(is_met, _)| *is_met), "it uses its clone: {needs:?}");
    }

    #[test]
    fn the_japanese_checklist_has_no_english_sentence() {
        for (_, text) in checklist(Language::Japanese, vec![rule(StartReason::LowDisk, true)]) {
            let words = text.replace("Shop", "").replace("SHOP-21", "");
            assert!(!words.chars().any(|c| c.is_ascii_alphabetic()), "{text}");
        }
    }
}
