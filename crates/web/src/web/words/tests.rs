//! Tests of the form of all texts.

use std::path::Path;

use super::*;
use domain::attention::{AttentionGroup, AttentionState};
use domain::check::CheckResult;
use domain::launch::{Outcome, ReportResult, StopReason, TimeLimit};
use domain::start_history::StartReason;
use domain::waiting::WaitAction;
use domain::workspace::WorkspaceState;
use domain::{FailureClass, Priority, Purpose, TaskStatus};

/// The files with Japanese texts of pages.
const FILES: [&str; 24] = [
    "crates/domain/src/attention.rs",
    "crates/domain/src/conversation/fresh.rs",
    "crates/domain/src/form_id.rs",
    "crates/domain/src/launch/told.rs",
    "crates/domain/src/refusal.rs",
    "crates/domain/src/start_history/reasons/table.rs",
    "crates/domain/src/task.rs",
    "crates/domain/src/waiting.rs",
    "crates/domain/src/waiting/facts.rs",
    "crates/web/src/web/words.rs",
    "crates/web/src/web/words/agents.rs",
    "crates/web/src/web/words/attention.rs",
    "crates/web/src/web/words/chats.rs",
    "crates/web/src/web/words/fields.rs",
    "crates/web/src/web/words/first_run.rs",
    "crates/web/src/web/words/frame.rs",
    "crates/web/src/web/words/launches.rs",
    "crates/web/src/web/words/operations.rs",
    "crates/web/src/web/words/problems.rs",
    "crates/web/src/web/words/removals.rs",
    "crates/web/src/web/words/results.rs",
    "crates/web/src/web/words/settings.rs",
    "crates/web/src/web/words/starts.rs",
    "crates/web/src/web/words/tasks.rs",
];

const PURPOSES: [Purpose; 3] = [Purpose::Task, Purpose::Chat, Purpose::Check];

/// The longest Japanese mark, in characters.
const MAX_MARK: usize = 8;

fn is_japanese(c: char) -> bool {
    matches!(c, 'ぁ'..='ん' | 'ァ'..='ヶ' | 'ー' | '々' | '一'..='龯')
}

/// Returns whether a letter, a digit or a placeholder stands next to Japanese without a space.
fn is_crowded(text: &str) -> bool {
    let is_latin = |c: char| c.is_ascii_alphanumeric() || "{}`".contains(c);
    let characters: Vec<char> = text.chars().collect();
    characters.windows(2).any(|pair| {
        is_latin(pair[0]) && is_japanese(pair[1]) || is_japanese(pair[0]) && is_latin(pair[1])
    })
}

#[test]
fn latin_letters_and_digits_stand_apart_from_japanese() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in FILES {
        let source = std::fs::read_to_string(root.join(file)).unwrap();
        let source = source.split("#[cfg(test)]").next().unwrap();
        let texts: Vec<&str> = source.split('"').skip(1).step_by(2).collect();
        assert!(texts.iter().any(|text| text.contains(is_japanese)), "{file} has texts");
        // The names of objects in a list stand after their number.
        let crowded: Vec<&&str> =
            texts.iter().filter(|text| is_crowded(text) && !text.ends_with("件{names}")).collect();
        assert!(crowded.is_empty(), "{file}: {crowded:?}");
    }
}

#[test]
fn japanese_marks_are_short() {
    let w = Words::of(Language::Japanese);
    let mut marks: Vec<String> = [
        w.needs_attention,
        w.waits,
        w.works,
        w.idle,
        w.merged,
        w.discarded,
        w.discarded_forever,
        w.logged_in,
        w.not_logged_in,
        w.active,
        w.inactive,
        w.archived,
    ]
    .map(str::to_owned)
    .to_vec();
    marks.extend(TaskStatus::ALL.iter().map(|status| w.of_status(*status).to_owned()));
    marks.extend(Priority::ALL.iter().map(|priority| w.of_priority(*priority).to_owned()));
    marks.extend(PURPOSES.iter().map(|purpose| w.of_purpose(*purpose).to_owned()));
    marks.extend(FailureClass::ALL.iter().map(|class| w.of_failure(*class).to_owned()));
    marks.extend(WorkspaceState::ALL.iter().map(|state| w.of_workspace_state(*state).to_owned()));
    marks.extend(CheckResult::ALL.iter().map(|result| w.of_check(*result).to_owned()));
    marks.extend(AttentionGroup::ALL.iter().map(|group| w.of_attention_group(*group).to_owned()));
    marks.extend(AttentionState::ALL.iter().map(|state| w.of_attention_state(*state).to_owned()));
    let states = ["starting", "running", "stopping", "ending", "ended"];
    marks.extend(states.map(|state| w.of_state(state).to_owned()));
    marks.extend(["ok", "slow", "stuck", ""].map(|health| w.of_store_health(health).to_owned()));
    let health = ["ok", "unauthorized", "limited", "unavailable", ""];
    marks.extend(health.map(|health| w.of_forge_health(health).to_owned()));
    let results = [ReportResult::Success, ReportResult::Failed, ReportResult::Blocked];
    marks.extend(results.map(|result| w.of_report(result).to_owned()));
    let outcomes = [
        Outcome::Completed,
        Outcome::Blocked,
        Outcome::Failed,
        Outcome::Stopped(StopReason::Shutdown),
        Outcome::Stopped(StopReason::Person),
        Outcome::ExitedWithoutReport,
        Outcome::NeverAuthenticated,
        Outcome::StartFailed("no such file".to_owned()),
        Outcome::TimedOut(TimeLimit::RunMaximum),
        Outcome::TimedOut(TimeLimit::Silence),
        Outcome::Lost,
    ];
    for outcome in &outcomes {
        for purpose in &PURPOSES {
            marks.push(outcome.mark(*purpose, Language::Japanese).to_owned());
        }
    }
    for mark in marks {
        assert!(!mark.is_empty() && mark.chars().count() <= MAX_MARK, "{mark}");
        assert!(!mark.contains('_') && mark.contains(is_japanese), "{mark}");
    }
}

#[test]
fn the_words_of_the_design_are_those_of_the_pages() {
    let sentence = |reason: StartReason| {
        [Language::English, Language::Japanese].map(|language| reason.sentence(language))
    };
    assert_eq!(sentence(StartReason::Ready), ["Starts now", "まもなく起動"]);
    assert_eq!(sentence(StartReason::NoWork), ["No task for it", "担当タスクなし"]);
    assert_eq!(
        sentence(StartReason::NoFreeSlot),
        ["No free slot, next in line", "空きスロットなし（次の順番）"]
    );
    let button = |action| {
        [Language::English, Language::Japanese]
            .map(|language| Words::of(language).of_wait_action(action))
    };
    assert_eq!(button(WaitAction::Assign), ["Assign…", "割り当てる…"]);
    assert_eq!(button(WaitAction::Activate), ["Activate", "有効にする"]);
    assert_eq!(button(WaitAction::Resume), ["Resume", "再開"]);
    assert_eq!(button(WaitAction::EditAgent), ["Edit", "編集"]);
    assert_eq!(button(WaitAction::TryNow), ["Try now", "今すぐ再試行"]);
    let state = |name| Words::of(Language::Japanese).of_state(name);
    assert_eq!(state("ended"), "終了", "完了 is only for tasks");
    assert_eq!(Words::of(Language::Japanese).adopted, "再起動後に引き継ぎ");
}
