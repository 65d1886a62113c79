//! Tests of the table of start reasons.

use super::*;

#[test]
fn the_table_says_all_about_each_reason() {
    let both = |text: Text| format!("{} / {}", text.0, text.1);
    let lines = |reason: &StartReason| {
        let row = reason.row();
        let mut lines = vec![
            reason.to_string(),
            both(row.sentence),
            both(row.demand),
            row.rule.to_owned(),
            format!("ends: {:?}, rank: {}", row.ends, row.rank),
        ];
        lines.extend(row.named.map(|named| format!("named: {}", both(named))));
        lines.extend(row.item.map(|item| format!("item: {item:?}")));
        lines.extend(row.action.map(|action| format!("action: {action}")));
        lines.extend(row.remedy.map(|remedy| format!("remedy: {}", both(remedy))));
        lines.extend(row.inbox.map(|kind| format!("inbox: {kind}")));
        lines.extend(row.limit.map(|limit| format!("limit: {limit}")));
        let marks = [
            (row.is_of_coordinator, "is of a coordinator"),
            (row.refuses_messages, "refuses messages"),
            (row.is_about_clone, "is about the clone"),
        ];
        lines.extend(marks.iter().filter(|(is_so, _)| *is_so).map(|(_, mark)| (*mark).to_owned()));
        lines.join("\n  ")
    };
    let table: Vec<String> = StartReason::ALL.iter().map(lines).collect();
    insta::assert_snapshot!("start_reasons", table.join("\n"));
}

#[test]
fn each_reason_has_its_texts_in_both_languages() {
    for reason in StartReason::ALL {
        let ReasonRow { sentence, demand, rule, .. } = reason.row();
        for text in [sentence.0, sentence.1, demand.0, demand.1, *rule] {
            assert!(!text.is_empty(), "{reason}");
        }
    }
}

#[test]
fn a_remedy_names_the_agent_and_the_project() {
    let agent = "ada".parse().unwrap();
    let project = "shop".parse().unwrap();
    let of = |reason: StartReason| reason.remedy(&agent, &project, Language::English);
    assert_eq!(of(StartReason::Held).unwrap(), "`resume ada shop` lets it start");
    assert_eq!(of(StartReason::NotAssigned).unwrap(), "`project set shop --assign ada` assigns it");
    assert_eq!(of(StartReason::NoFreeSlot), None);
}
