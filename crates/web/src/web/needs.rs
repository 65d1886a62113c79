//! The checklist of what an agent needs to start, with each item in the affirmative.

use super::shown::Since;
use super::words::Words;
use api::status::LimitsBody;
use domain::start_history::{ChecklistItem, Ruling, StartReason};
use domain::{Purpose, Why};

/// One item of the checklist.
#[derive(Debug, Clone)]
pub(super) struct ChecklistRow {
    pub(super) is_met: bool,
    pub(super) text: String,
    /// The figures behind an item that is not met.
    pub(super) detail: Option<String>,
    /// The same, on a page in another language.
    pub(super) detail_in_english: Option<String>,
    pub(super) since: Option<Since>,
    pub(super) until: Option<Since>,
}

impl ChecklistRow {
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

/// Returns the checklist for one purpose.
pub(super) fn needs_of(w: &'static Words, why: &Why, facts: &NeedFacts<'_>) -> Vec<ChecklistRow> {
    let demand = |reason: StartReason| reason.demand(w.language).to_owned();
    let met = |text: String| Some(ChecklistRow::plain(true, text));
    let work = match &facts.task {
        _ if why.key.purpose == Purpose::Chat => w.chat_wanted.to_owned(),
        Some(task) => w.of_work_for(task),
        None => demand(StartReason::NoWork),
    };
    // A check does not use the account.
    let uses_account = why.key.purpose != Purpose::Check;
    let LimitsBody { running, max_concurrent } = *facts.limits;
    // A coordinator names the taken slots only of an agent that could start otherwise.
    let slot = if running >= max_concurrent && !runs(why) {
        let detail = Some(format!("{max_concurrent}/{max_concurrent}"));
        Some(ChecklistRow { detail, ..ChecklistRow::plain(false, demand(StartReason::NoFreeSlot)) })
    } else {
        met(w.of_free_slot(running, max_concurrent))
    };
    // Each item as it looks if none of its rules keeps the agent from starting. Items with rules of
    // coordinators are left out then: these rules are tried only when all others are met.
    let items = [
        (ChecklistItem::Assigned, met(w.of_assigned(facts.project))),
        (ChecklistItem::Work, met(work)),
        (ChecklistItem::LastLaunch, None),
        (ChecklistItem::NotHeld, met(demand(StartReason::Held))),
        (ChecklistItem::NoFailures, met(demand(StartReason::Suspended))),
        (ChecklistItem::Configuration, None),
        (ChecklistItem::Account, met(demand(StartReason::Parked)).filter(|_| uses_account)),
        (ChecklistItem::NotPaused, met(demand(StartReason::Paused))),
        (ChecklistItem::Place, None),
        // Without a coordinator there are no slots.
        (ChecklistItem::Slot, slot.filter(|_| why.reason() != StartReason::NoCoordinator)),
    ];
    let shown = |(item, if_free): (ChecklistItem, Option<ChecklistRow>)| {
        let is_kept_by = |rule: &&Ruling| rule.keeps && rule.reason.row().item == Some(item);
        match why.rules.iter().find(is_kept_by) {
            // A running agent uses its clone, which is not ready for another one.
            Some(_) if if_free.is_none() && runs(why) => None,
            Some(_) if item == ChecklistItem::Work && why.key.purpose == Purpose::Chat => {
                if_free.map(|need| ChecklistRow { is_met: false, ..need })
            }
            Some(rule) => Some(unmet(w, why, rule)),
            None => if_free,
        }
    };
    items.into_iter().filter_map(shown).collect()
}

fn runs(why: &Why) -> bool {
    let reasons = [StartReason::Starting, StartReason::Running];
    why.rules.iter().any(|rule| rule.keeps && reasons.contains(&rule.reason))
}

fn unmet(w: &'static Words, why: &Why, rule: &Ruling) -> ChecklistRow {
    let parked = why.account.parked.as_ref();
    let since = parked.filter(|_| rule.reason == StartReason::Parked);
    // The figures behind a rule exist in English only.
    let detail = rule.detail.clone();
    let (detail, detail_in_english) = if w.is_english() { (detail, None) } else { (None, detail) };
    ChecklistRow {
        is_met: false,
        text: rule.reason.demand(w.language).to_owned(),
        detail,
        detail_in_english,
        since: since.map(|parked| Since(parked.since)),
        until: rule.until.filter(|_| since.is_none()).map(Since),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use domain::account::Parking;
    use domain::waiting::WaitFacts;
    use domain::{Account, InstanceKey, Language, Timestamp};

    fn rule(reason: StartReason, keeps: bool) -> Ruling {
        Ruling { keeps, detail: Some("figures".to_owned()), ..Ruling::free(reason) }
    }

    fn checklist(language: Language, rules: Vec<Ruling>) -> Vec<(bool, String)> {
        checklist_with(language, 3, rules)
    }

    fn checklist_with(
        language: Language,
        running: usize,
        rules: Vec<Ruling>,
    ) -> Vec<(bool, String)> {
        let why = Why {
            key: InstanceKey::new("agt".parse().unwrap(), "prj".parse().unwrap(), Purpose::Task),
            at: Timestamp::from_millis(0),
            rules,
            n_failures: 0,
            waiting_since: None,
            task: None,
            conversation: None,
            account: Account::new("codex".to_owned()),
            parking: Parking { initial: Duration::ZERO, max: Duration::ZERO },
            crowd: None,
            abandoned: None,
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
