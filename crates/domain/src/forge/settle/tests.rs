use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::forge::{ItemKey, ItemKind, LabelNames, Publication};
use crate::key::{InstanceKey, Purpose};
use crate::language::Language;
use crate::task::NewTask;

const NOW: Timestamp = Timestamp::from_millis(1_000);

fn item(state: ItemState) -> ForgeItem {
    let task = "tsk".parse().expect("an id");
    let agent = "agt".parse().expect("an id");
    let project = "prj".parse().expect("an id");
    let new = ForgeItem::new(
        "019aa".parse().expect("an id"),
        task,
        ItemKey::example(),
        agent,
        project,
        NOW,
    );
    ForgeItem { title: "Login".to_owned(), state, pending: Vec::new(), revision: 1, ..new }
}

fn task(status: TaskStatus) -> Task {
    let new = NewTask {
        status,
        assignee: Some("agt".parse().expect("an id")),
        ..NewTask::new("prj".parse().expect("an id"), "Login")
    };
    let short_id = "PRJ-1".parse().expect("a short id");
    let task = new.to_task("tsk".parse().expect("an id"), short_id, NOW).expect("a short title");
    let blocked_reason = (status == TaskStatus::Blocked).then(|| "why".to_owned());
    Task { blocked_reason, revision: 3, ..task }
}

fn execution(result: Option<ReportResult>) -> Execution {
    Execution {
        id: "exe".parse().expect("an id"),
        launch: "lch".parse().expect("an id"),
        task: "tsk".parse().expect("an id"),
        key: InstanceKey::new(
            "agt".parse().expect("an id"),
            "prj".parse().expect("an id"),
            Purpose::Task,
        ),
        started_at: NOW,
        ended_at: Some(NOW),
        result,
        summary: Some("/close it".to_owned()),
        next_steps: None,
        progress: None,
        findings: None,
        outcome: None,
        usage: crate::Usage::default(),
        failure: None,
        revision: 1,
    }
}

const TEXTS: Texts = Texts::new(Language::English);

/// Returns the names of the pending actions.
fn write(item: &ForgeItem) -> Vec<String> {
    item.pending.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn check(
    state: ItemState,
    status: Option<TaskStatus>,
    is_alive: bool,
    last: Option<ReportResult>,
    expected: Option<(&str, &[&str])>,
) {
    let task = status.map(task);
    let execution = last.map(|result| execution(Some(result)));
    let last = execution.as_ref();
    let work = Work { task: task.as_ref(), is_alive, last, is_by_hand: false };
    let settled = settle(&item(state), work, TEXTS, NOW);
    let found = settled.as_ref().map(|item| (item.state.as_str(), write(item)));
    let expected = expected.map(|(state, write)| {
        (state, write.iter().map(|&write| write.to_owned()).collect::<Vec<_>>())
    });
    assert_eq!(found, expected);
}

const PROCESSING: ItemState = ItemState::Active(WorkState::Processing);

#[test]
fn a_done_task_is_told_when_its_agent_is_gone() {
    let done = Some(TaskStatus::Done);
    let success = Some(ReportResult::Success);
    check(PROCESSING, done, true, success, None);
    let told: &[&str] = &["folder running", "label done", "comment 1", "folder completed"];
    check(PROCESSING, done, false, success, Some(("done", told)));
}

#[test]
fn work_that_a_person_finished_is_told_so_and_not_published() {
    let done = task(TaskStatus::Done);
    let execution = execution(Some(ReportResult::Blocked));
    let of = |is_by_hand| {
        let item = ForgeItem { publication: Some(Publication::example()), ..item(PROCESSING) };
        let last = Some(&execution);
        let work = Work { task: Some(&done), is_alive: false, last, is_by_hand };
        settle(&item, work, TEXTS, NOW).expect("it ends")
    };
    let pushed =
        ["folder running", "push", "pull request", "label done", "comment 1", "folder completed"];
    assert_eq!(write(&of(false)), pushed);
    let by_hand = of(true);
    assert_eq!(write(&by_hand), ["folder running", "label done", "comment 1", "folder completed"]);
    assert!(!by_hand.publication.as_ref().expect("it is kept").reaches_forge());
    for (language, words) in
        [(Language::English, "done by hand"), (Language::Japanese, "タスク完了（手動）")]
    {
        let text = Texts::new(language).done_by_hand(NOW);
        assert!(text.contains(words), "{text}");
        let told = PendingWrite::Comment { number: 1, text };
        assert_eq!(by_hand.pending.contains(&told), language == Language::English);
    }
}

#[test]
fn a_stop_comes_after_the_end_of_the_tree_and_in_its_order() {
    let stopping = ItemState::Stopping(StopCause::Unassigned);
    let cancelled = Some(TaskStatus::Cancelled);
    check(stopping.clone(), cancelled, true, None, None);
    let told: &[&str] = &["folder running", "label stopped", "comment 1", "folder completed"];
    check(stopping, cancelled, false, None, Some(("stopped", told)));
}

#[test]
fn nothing_is_written_to_what_is_gone() {
    for cause in [StopCause::Gone, StopCause::Moved] {
        let told: &[&str] = &["folder running", "folder completed"];
        check(
            ItemState::Stopping(cause),
            Some(TaskStatus::Cancelled),
            false,
            None,
            Some(("stopped", told)),
        );
    }
}

#[test]
fn a_failure_and_a_block_are_told_and_a_new_try_too() {
    let blocked = Some(TaskStatus::Blocked);
    let told: &[&str] = &["label failed", "comment 1"];
    check(PROCESSING, blocked, false, Some(ReportResult::Failed), Some(("failed", told)));
    let told: &[&str] = &["label blocked", "comment 1"];
    check(PROCESSING, blocked, false, Some(ReportResult::Blocked), Some(("blocked", told)));
    check(PROCESSING, blocked, true, Some(ReportResult::Blocked), None);
    let again: &[&str] = &["label processing"];
    check(
        ItemState::Active(WorkState::Failed),
        Some(TaskStatus::InProgress),
        false,
        None,
        Some(("processing", again)),
    );
}

#[test]
fn a_task_that_a_person_cancels_or_deletes_stops_the_item() {
    for status in [Some(TaskStatus::Cancelled), None] {
        check(PROCESSING, status, true, None, Some(("stopping", &[])));
        let told: &[&str] = &["folder running", "label stopped", "comment 1", "folder completed"];
        check(PROCESSING, status, false, None, Some(("stopped", told)));
    }
}

#[test]
fn a_pause_is_told_when_the_agent_is_gone_and_never_as_done() {
    let blocked = Some(TaskStatus::Blocked);
    check(ItemState::Pausing, blocked, true, None, None);
    let told: &[&str] = &["folder running", "label paused", "comment 1", "folder paused"];
    check(ItemState::Pausing, blocked, false, None, Some(("paused", told)));
    check(ItemState::Paused { since: NOW }, blocked, false, None, None);
}

#[test]
fn what_is_resumed_goes_on_and_what_is_not_wanted_any_more_stops() {
    let paused = item(ItemState::Paused { since: NOW });
    let on = resumed(&paused, Eligibility::Eligible, TEXTS, NOW).expect("it is paused");
    assert_eq!((on.state.clone(), on.n_resumed), (PROCESSING, 1));
    assert_eq!(write(&on), ["folder running", "label processing", "comment 1"]);
    let off = resumed(&paused, Eligibility::Not(StopCause::Unassigned), TEXTS, NOW)
        .expect("it is paused");
    assert_eq!(off.state, ItemState::Stopping(StopCause::Unassigned));
    assert_eq!(resumed(&item(PROCESSING), Eligibility::Eligible, TEXTS, NOW), None);
}

#[test]
fn what_was_paused_for_too_long_is_completed_as_expired() {
    let work = Work { task: None, is_alive: false, last: None, is_by_hand: false };
    let over = expired(&item(ItemState::Paused { since: NOW }), work, TEXTS, NOW);
    assert_eq!(over.state, ItemState::Ended(ItemEnd::Expired));
    assert_eq!(write(&over), ["folder running", "label stopped", "comment 1", "folder completed"]);
}

#[test]
fn a_claim_that_is_not_wanted_any_more_is_taken_back() {
    let claiming = ForgeItem {
        pending: vec![PendingWrite::Claim],
        ..item(ItemState::Claiming { after_comment: Some(3) })
    };
    let stopped = stopping(&claiming, StopCause::Unassigned, NOW).expect("it is open");
    assert_eq!(write(&stopped), ["withdraw", "label stopped"]);
    let gone = stopping(&claiming, StopCause::Gone, NOW).expect("it is open");
    assert!(gone.pending.is_empty() && !gone.is_open());
    assert_eq!(write(&lost(&claiming)), ["withdraw"]);
    assert_eq!(write(&won(&claiming)), ["folder running", "label processing"]);
}

#[test]
fn an_end_drops_what_was_only_on_the_way() {
    let with_pending = item(PROCESSING)
        .with_pending(PendingWrite::Label { state: LabelState::Processing })
        .saying("Resumed".to_owned());
    let done = task(TaskStatus::Done);
    let work = Work { task: Some(&done), is_alive: false, last: None, is_by_hand: false };
    let done = settle(&with_pending, work, TEXTS, NOW).expect("it is done");
    assert_eq!(
        write(&done),
        ["comment 1", "folder running", "label done", "comment 2", "folder completed"]
    );
}

/// The forge may carry it out after the item came to another state.
#[test]
fn a_request_without_an_answer_is_remembered_when_the_item_is_stopped_or_done() {
    let begun = |state| ForgeItem { begun_at: Some(NOW), ..item(state) };
    let task = task(TaskStatus::Done);
    let work = Work { task: Some(&task), is_alive: false, is_by_hand: false, last: None };
    let done = settle(&begun(PROCESSING), work, TEXTS, NOW).expect("it is done");
    let claiming = begun(ItemState::Claiming { after_comment: Some(3) });
    let stopped = stopping(&claiming, StopCause::Unassigned, NOW).expect("it is open");
    assert_eq!((done.begun_at, stopped.begun_at), (Some(NOW), Some(NOW)));
    // The forge has answered to the claim.
    assert_eq!((won(&claiming).begun_at, lost(&claiming).begun_at), (None, None));
}

#[test]
fn what_agents_write_commands_nothing_in_either_language() {
    let execution = execution(Some(ReportResult::Success));
    for language in [Language::English, Language::Japanese] {
        let texts = Texts::new(language);
        let said = [
            texts.finished(Some(&execution), NOW),
            texts.done_by_hand(NOW),
            texts.put_aside(WorkState::Failed, Some("/assign @me"), Some(&execution), NOW),
            texts.stopped(StopCause::Unassigned, Some(&execution), NOW),
            texts.paused(Some(&execution), NOW),
        ];
        for text in said {
            assert!(!text.lines().any(|line| line.trim_start().starts_with('/')), "{text}");
        }
    }
}

#[test]
fn only_an_issue_is_closed_and_the_work_has_a_heading_of_its_own() {
    let execution = execution(None);
    let words =
        [(Language::English, "Refs", "### Work"), (Language::Japanese, "関連:", "### 作業")];
    for (language, refers, heading) in words {
        let texts = Texts::new(language);
        let issue = ItemKey::example();
        let request = ItemKey { kind: ItemKind::MergeRequest, ..issue.clone() };
        let starts = |key: &ItemKey, closes, with: &str| {
            let text = texts.request(key, None, true, closes);
            assert!(text.starts_with(with), "{text}");
        };
        starts(&issue, true, "Closes #7\n");
        starts(&issue, false, &format!("{refers} #7\n"));
        starts(&request, true, &format!("{refers} !7\n"));
        let work = texts.effort(Some(&execution), Some("https://agents.example/"));
        assert!(work.starts_with(&format!("\n\n{heading}\n\n- ")), "{work}");
        assert!(work.contains("https://agents.example/ui/launches/"), "{work}");
        assert_eq!(texts.effort(None, Some("https://agents.example")), "");
    }
}

proptest! {
    /// Settling a settled item changes nothing, in every state of the task, and an end is final. An
    /// item that the end of its agent would not change stays as it is.
    #[test]
    fn settling_twice_is_settling_once(
        status in proptest::option::of(select(TaskStatus::ALL)),
        is_alive: bool,
        is_by_hand: bool,
        result in proptest::option::of(select(&[ReportResult::Success, ReportResult::Failed, ReportResult::Blocked][..])),
        state in select(vec![
            PROCESSING,
            ItemState::Active(WorkState::Blocked),
            ItemState::Active(WorkState::Failed),
            ItemState::Stopping(StopCause::Closed),
            ItemState::Pausing,
            ItemState::Paused { since: NOW },
            ItemState::Ended(ItemEnd::Done),
        ]),
    ) {
        let task = status.map(task);
        let execution = execution(result);
        let work = Work { task: task.as_ref(), is_alive, last: Some(&execution), is_by_hand };
        let first = settle(&item(state.clone()), work, TEXTS, NOW);
        let gone = settle(&item(state), Work { is_alive: false, ..work }, TEXTS, NOW);
        prop_assert!(first.is_none() || gone.is_some(), "the end of an agent keeps an item as it is");
        if let Some(first) = first {
            prop_assert_eq!(settle(&first, work, TEXTS, NOW), None);
            prop_assert!(is_alive <= !matches!(first.state, ItemState::Ended(_)), "ended with a living agent");
            if let Some(label) = first.state.label() {
                let names = LabelNames::default();
                let delta = names.delta(label, None);
                prop_assert_eq!(delta.add, vec![names.of(label).to_owned()]);
                prop_assert_eq!(delta.remove.len(), names.all().len() - 1);
            }
        }
    }
}
