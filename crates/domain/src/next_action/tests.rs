use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::key::{InstanceKey, Purpose};
use crate::launch::{Outcome, StopReason};
use crate::notice::NoticeAction;
use crate::task::{NewTask, Priority};
use crate::time::Timestamp;

const NOW: Timestamp = Timestamp::from_millis(1_000);

fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("an id")
}

fn running(task: Option<&str>) -> Launch {
    let key = InstanceKey::new(id("me"), id("prj"), Purpose::Task);
    let claimed = Launch::claimed(id("lch"), key, "claude".to_owned(), NOW, NOW);
    Launch { state: LaunchState::Running { session: id("ses") }, task: task.map(id), ..claimed }
}

fn task(name: &str, status: TaskStatus, assignee: Option<&str>) -> Task {
    let new = NewTask {
        status,
        assignee: assignee.map(id),
        parent: (name != "tsk").then(|| id("tsk")),
        ..NewTask::new(id("prj"), "")
    };
    let short_id = "PRJ-1".parse().expect("a short id");
    Task { revision: 1, ..new.to_task(id(name), short_id, NOW).expect("a short title") }
}

fn notice(action: NoticeAction, demand: NoticeDemand, is_read: bool) -> Notice {
    Notice {
        id: id("ntf"),
        launch: id("lch"),
        task: None,
        action,
        demand,
        created_at: NOW,
        read_at: is_read.then_some(NOW),
        settled_at: None,
        revision: 1,
    }
}

const MINE: Option<&str> = Some("me");

/// Checks the step of an agent that works on `tsk` with these subtasks. The dependencies in
/// `unfinished` are not done.
#[track_caller]
fn check(status: TaskStatus, subtasks: &[Task], unfinished: &[&str], expected: &TaskStep) {
    let launch = running(Some("tsk"));
    let unfinished = unfinished.iter().map(|name| id(name)).collect();
    let task = task("tsk", status, MINE);
    let facts = TaskFacts {
        launch: &launch,
        notices: &[],
        task: Some(&task),
        subtasks,
        unfinished: &unfinished,
        has_other_task: false,
    };
    assert_eq!(task_step(facts), *expected);
}

#[test]
fn an_agent_works_through_its_subtasks_and_then_ends() {
    use TaskStatus::{Blocked, Cancelled, Done, InProgress, Todo};
    let work = TaskStep::Work(id("tsk"));
    let report = TaskStep::ReportCompleted;
    let execute = |name: &str| TaskStep::ExecuteSubtask(id(name));
    check(InProgress, &[], &[], &work);
    check(InProgress, &[task("a", Done, MINE), task("b", Cancelled, None)], &[], &work);
    check(InProgress, &[task("a", Todo, MINE), task("b", Todo, None)], &[], &execute("a"));
    check(InProgress, &[task("a", Todo, MINE), task("b", InProgress, MINE)], &[], &execute("b"));
    let urgent = Task { priority: Priority::Urgent, ..task("b", Todo, None) };
    check(InProgress, &[task("a", Todo, MINE), urgent], &[], &execute("b"));
    let after_b = Task { dependencies: vec![id("b")], ..task("a", Todo, MINE) };
    check(InProgress, &[after_b.clone(), task("b", Todo, MINE)], &["b"], &execute("b"));
    check(
        InProgress,
        &[after_b.clone(), task("b", InProgress, Some("other"))],
        &["b"],
        &TaskStep::WaitForSubtasks,
    );
    check(InProgress, &[after_b, task("b", Done, Some("other"))], &[], &execute("a"));
    check(InProgress, &[task("a", InProgress, Some("other"))], &[], &TaskStep::WaitForSubtasks);
    check(InProgress, &[task("a", Blocked, Some("other"))], &[], &report(ReportResult::Blocked));
    check(InProgress, &[task("a", Blocked, MINE)], &[], &report(ReportResult::Blocked));
    // A part of another agent is begun before its own parts. The agent waits for it after its own
    // parts are done.
    let start = TaskStep::StartSubtask(id("b"));
    check(InProgress, &[task("a", Todo, MINE), task("b", Todo, Some("other"))], &[], &start);
    check(
        InProgress,
        &[task("a", Todo, MINE), task("b", InProgress, Some("other"))],
        &[],
        &execute("a"),
    );
    let after_a = Task { dependencies: vec![id("a")], ..task("b", Todo, Some("other")) };
    check(InProgress, &[task("a", Todo, MINE), after_a], &["a"], &execute("a"));
    check(Done, &[], &[], &report(ReportResult::Success));
    check(Blocked, &[], &[], &report(ReportResult::Blocked));
    check(Cancelled, &[], &[], &report(ReportResult::Blocked));
}

#[test]
fn the_parts_of_a_subtask_come_before_it() {
    use TaskStatus::{Done, InProgress, Todo};
    let part = |name: &str, status, assignee| Task {
        parent: Some(id("a")),
        ..task(name, status, assignee)
    };
    let execute = |name: &str| TaskStep::ExecuteSubtask(id(name));
    check(InProgress, &[task("a", InProgress, MINE), part("a1", Todo, MINE)], &[], &execute("a1"));
    check(InProgress, &[task("a", InProgress, MINE), part("a1", Done, MINE)], &[], &execute("a"));
    let start = TaskStep::StartSubtask(id("a1"));
    check(InProgress, &[task("a", Todo, None), part("a1", Todo, Some("other"))], &[], &start);
    // The parts of a task of another agent belong to that agent.
    let theirs = [task("a", InProgress, Some("other")), part("a1", Todo, MINE)];
    check(InProgress, &theirs, &[], &TaskStep::WaitForSubtasks);
}

#[test]
fn a_notice_comes_before_everything_but_the_end() {
    let unread = false;
    let read = true;
    let check = |launch: &Launch, notices: &[Notice], expected: TaskStep| {
        let unfinished = BTreeSet::new();
        let task = task("tsk", TaskStatus::InProgress, MINE);
        let task = Some(&task);
        let subtasks = &[][..];
        let facts = TaskFacts {
            launch,
            notices,
            task,
            subtasks,
            unfinished: &unfinished,
            has_other_task: false,
        };
        assert_eq!(task_step(facts), expected);
    };
    let launch = running(Some("tsk"));
    let of = |action, is_read| [notice(action, NoticeDemand::End, is_read)];
    check(&launch, &of(NoticeAction::Blocked, unread), TaskStep::GetNotifications);
    check(
        &launch,
        &of(NoticeAction::Blocked, read),
        TaskStep::ReportCompleted(ReportResult::Blocked),
    );
    check(&launch, &of(NoticeAction::Paused, read), TaskStep::LogOut);
    let stopping = LaunchState::Stopping { reason: StopReason::Person, stop_at: NOW };
    check(
        &Launch { state: stopping, ..launch },
        &of(NoticeAction::Blocked, unread),
        TaskStep::Exit,
    );
}

#[test]
fn an_agent_without_a_task_fetches_one_or_leaves() {
    let launch = running(None);
    let unfinished = BTreeSet::new();
    let facts = TaskFacts {
        launch: &launch,
        notices: &[],
        task: None,
        subtasks: &[],
        unfinished: &unfinished,
        has_other_task: true,
    };
    assert_eq!(task_step(facts), TaskStep::GetMyTask);
    assert_eq!(task_step(TaskFacts { has_other_task: false, ..facts }), TaskStep::LogOut);
}

#[track_caller]
fn check_chat(unread: Option<i64>, is_idle: bool, is_overdue: bool, expected: ChatStep) {
    let launch = running(None);
    assert_eq!(
        chat_step(ChatFacts { launch: &launch, unread, handed_out: 5, is_idle, is_overdue }),
        expected
    );
}

#[test]
fn messages_come_before_the_idle_limit_and_once_given_are_waited_for() {
    check_chat(Some(6), true, false, ChatStep::GetPendingMessages);
    check_chat(Some(5), false, false, ChatStep::WaitForMessages);
    check_chat(Some(5), false, true, ChatStep::GetPendingMessages);
    check_chat(Some(5), true, true, ChatStep::GetPendingMessages);
    check_chat(None, false, true, ChatStep::WaitForMessages);
    check_chat(None, true, false, ChatStep::LogOut);
}

#[test]
fn an_agent_that_may_have_missed_a_message_is_not_told_to_log_out_before_its_chat_ends() {
    check_chat(Some(5), true, false, ChatStep::WaitForMessages);
}

#[test]
fn an_agent_whose_chat_has_ended_by_silence_logs_out() {
    let step = |reason| {
        let launch =
            Launch { state: LaunchState::Stopping { reason, stop_at: NOW }, ..running(None) };
        chat_step(ChatFacts {
            launch: &launch,
            unread: None,
            handed_out: 5,
            is_idle: true,
            is_overdue: false,
        })
    };
    assert_eq!(step(StopReason::ChatIdle), ChatStep::LogOut);
    assert_eq!(step(StopReason::ChatEnded), ChatStep::Exit);
}

fn state() -> impl Strategy<Value = LaunchState> {
    select(vec![
        LaunchState::Starting { deadline: NOW },
        LaunchState::Running { session: id("ses") },
        LaunchState::Stopping { reason: StopReason::Reported, stop_at: NOW },
        LaunchState::Ending,
        LaunchState::Ended { outcome: Outcome::Lost, at: NOW },
    ])
}

fn any_task(name: &'static str) -> impl Strategy<Value = Task> {
    let assignee = select(vec![None, Some("me"), Some("other")]);
    (select(TaskStatus::ALL), assignee, select(vec!["a", "b", "c"])).prop_map(
        move |(status, assignee, dependency)| Task {
            dependencies: vec![id(dependency)],
            ..task(name, status, assignee)
        },
    )
}

proptest! {
    #[test]
    fn there_is_a_step_in_every_state_and_it_can_be_taken(
        state in state(),
        own in proptest::option::of(any_task("tsk")),
        subtasks in (any_task("a"), any_task("b"), any_task("c")),
        words in (select(NoticeAction::ALL), select(NoticeDemand::ALL), any::<bool>(), any::<bool>()),
        flags in (any::<bool>(), any::<bool>()),
    ) {
        let launch = Launch { state, task: own.as_ref().map(|task| task.id.clone()), ..running(None) };
        let notices = Vec::from_iter(words.3.then(|| notice(words.0, words.1, words.2)));
        let unfinished: BTreeSet<TaskId> = flags.1.then(|| id("b")).into_iter().collect();
        let subtasks = [subtasks.0, subtasks.1, subtasks.2];
        let step = task_step(TaskFacts {
            launch: &launch,
            notices: &notices,
            task: own.as_ref(),
            subtasks: &subtasks,
            unfinished: &unfinished,
            has_other_task: flags.0,
        });
        let is_running = matches!(launch.state, LaunchState::Running { .. });
        prop_assert_eq!(step == TaskStep::Exit, !is_running);
        match &step {
            TaskStep::Work(task) => {
                prop_assert!(own.is_some_and(|own| own.id == *task && own.status == TaskStatus::InProgress));
                prop_assert!(subtasks.iter().all(|subtask| !subtask.status.is_open()));
            }
            TaskStep::ExecuteSubtask(task) => {
                let subtask = subtasks.iter().find(|subtask| subtask.id == *task).expect("one of the subtasks");
                prop_assert!(subtask.status.is_open() && subtask.assignee != Some(id("other")));
            }
            TaskStep::StartSubtask(task) => {
                let subtask = subtasks.iter().find(|subtask| subtask.id == *task).expect("one of the subtasks");
                prop_assert!(matches!(subtask.status, TaskStatus::Todo | TaskStatus::Backlog));
                prop_assert_eq!(&subtask.assignee, &Some(id("other")));
            }
            TaskStep::ReportCompleted(ReportResult::Success) => {
                prop_assert!(own.is_some_and(|own| own.status == TaskStatus::Done));
            }
            TaskStep::WaitForSubtasks => {
                prop_assert!(subtasks.iter().any(|subtask| subtask.status.is_open() && subtask.assignee == Some(id("other"))));
            }
            TaskStep::GetMyTask => prop_assert!(flags.0),
            TaskStep::GetNotifications
            | TaskStep::ReportCompleted(ReportResult::Blocked | ReportResult::Failed)
            | TaskStep::LogOut
            | TaskStep::Exit => {}
        }
    }
}
