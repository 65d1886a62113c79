use super::*;
use crate::launch::{LaunchState, Outcome};
use crate::task::NewTask;

const NOW: Timestamp = Timestamp::from_millis(0);

fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("an id")
}

fn notice(demand: NoticeDemand) -> Notice {
    Notice {
        id: id("ntf_1"),
        launch: id("lch_1"),
        task: None,
        action: NoticeAction::Blocked,
        demand,
        created_at: NOW,
        read_at: None,
        settled_at: None,
        revision: 0,
    }
}

#[test]
fn reading_begins_the_patience_once_more_and_once_only() {
    let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
    let notice = notice(NoticeDemand::End);
    assert_eq!(notice.waited_for_since(), Some(at(0)));
    let read = notice.read(at(100));
    assert_eq!(read.waited_for_since(), Some(at(100)));
    assert_eq!(read.clone().read(at(300)), read);
    assert_eq!(read.settled(at(400)).waited_for_since(), None);
}

#[test]
fn what_only_asks_to_be_read_is_settled_by_that() {
    let notice = notice(NoticeDemand::Read);
    assert_eq!(notice.waited_for_since(), None);
    assert!(!notice.read(Timestamp::from_millis(5)).is_open());
}

/// Returns Ann's launch for this purpose, at work on `tsk`.
fn launch(purpose: Purpose) -> Launch {
    let key = InstanceKey::new(id("ann"), id("prj"), purpose);
    let claimed = Launch::claimed(id("lch"), key, String::new(), NOW, NOW);
    Launch { state: LaunchState::Running { session: id("ses") }, task: Some(id("tsk")), ..claimed }
}

fn task(name: &str, status: TaskStatus, assignee: &str) -> Task {
    let new = NewTask {
        status,
        assignee: Some(id(assignee)),
        parent: (name == "sub").then(|| id("tsk")),
        ..NewTask::new(id("prj"), "")
    };
    let short_id = "PRJ-1".parse().expect("a short id");
    Task { revision: 1, ..new.to_task(id(name), short_id, NOW).expect("a short title") }
}

/// Checks what Ann is told when her task in progress gets this status and assignee.
#[track_caller]
fn check(
    name: &str,
    status: TaskStatus,
    assignee: &str,
    expected: Option<(NoticeAction, NoticeDemand)>,
) {
    let before = Box::new(task(name, TaskStatus::InProgress, "ann"));
    let change = WorkChange::Task { before, after: Box::new(task(name, status, assignee)) };
    let expected =
        expected.map(|(action, demand)| Meaning::Tell { task: Some(id(name)), action, demand });
    assert_eq!(change.means(&launch(Purpose::Task)), expected);
    assert_eq!(change.means(&launch(Purpose::Chat)), None);
    let ended = LaunchState::Ended { outcome: Outcome::Lost, at: NOW };
    assert_eq!(change.means(&Launch { state: ended, ..launch(Purpose::Task) }), None);
}

#[test]
fn who_works_on_a_task_is_told_what_becomes_of_it() {
    use NoticeDemand::{End, Read};
    check("tsk", TaskStatus::Blocked, "ann", Some((NoticeAction::Blocked, End)));
    check("tsk", TaskStatus::Backlog, "ann", Some((NoticeAction::Todo, End)));
    check("tsk", TaskStatus::InProgress, "bob", Some((NoticeAction::Reassigned, End)));
    check("tsk", TaskStatus::Blocked, "bob", Some((NoticeAction::Reassigned, End)));
    check("tsk", TaskStatus::InProgress, "ann", None);
    check("sub", TaskStatus::Cancelled, "ann", Some((NoticeAction::Cancelled, Read)));
    check("other", TaskStatus::Blocked, "ann", None);
}

#[test]
fn what_is_given_back_takes_the_notice_back() {
    let (before, after) =
        (task("tsk", TaskStatus::Blocked, "ann"), task("tsk", TaskStatus::InProgress, "ann"));
    let change = WorkChange::Task { before: Box::new(before), after: Box::new(after) };
    assert_eq!(change.means(&launch(Purpose::Task)), Some(Meaning::TakeBackTask(id("tsk"))));
    let active = WorkChange::Project { project: id("prj"), status: ProjectStatus::Active };
    assert_eq!(active.means(&launch(Purpose::Task)), Some(Meaning::TakeBackPause));
}

#[test]
fn a_changed_task_was_work_of_its_assignee_if_it_was_in_progress() {
    let launch = launch(Purpose::Task);
    let was_work = |before: Task| {
        let after = Box::new(Task { title: "another".to_owned(), ..before.clone() });
        let change = WorkChange::Task { before: Box::new(before), after };
        change.work_before(&launch.key).is_some()
    };
    let begun = || task("tsk", TaskStatus::InProgress, "ann");
    assert!(was_work(begun()));
    assert!(!was_work(task("tsk", TaskStatus::InProgress, "bob")));
    assert!(!was_work(task("tsk", TaskStatus::Todo, "ann")));
    assert!(!was_work(Task { assignee: None, ..begun() }));
    assert!(!was_work(Task { project: id("prj_2"), ..begun() }));
    assert!(!was_work(Task { checking_since: Some(NOW), ..begun() }), "its check works on it");
    let rests = WorkChange::Project { project: id("prj"), status: ProjectStatus::Inactive };
    assert_eq!(rests.work_before(&launch.key), None);
}

#[test]
fn a_project_that_rests_ends_its_chats_and_tells_its_agents() {
    let rests = |project: &str| WorkChange::Project {
        project: id(project),
        status: ProjectStatus::Inactive,
    };
    let told =
        Meaning::Tell { task: None, action: NoticeAction::Paused, demand: NoticeDemand::End };
    assert_eq!(rests("prj").means(&launch(Purpose::Task)), Some(told));
    assert_eq!(rests("prj_2").means(&launch(Purpose::Task)), None);
    assert!(rests("prj").ends_chat(&launch(Purpose::Chat)));
    assert!(!rests("prj_2").ends_chat(&launch(Purpose::Chat)));
    let blocked = WorkChange::Task {
        before: Box::new(task("tsk", TaskStatus::InProgress, "ann")),
        after: Box::new(task("tsk", TaskStatus::Blocked, "ann")),
    };
    assert!(!blocked.ends_chat(&launch(Purpose::Chat)));
}

fn tell(name: Option<&str>, action: NoticeAction) -> Meaning {
    Meaning::Tell { task: name.map(id), action, demand: NoticeDemand::End }
}

/// Returns the actions of the open notices after these changes, one after the other.
fn open_after(changes: &[Meaning]) -> Vec<NoticeAction> {
    let mut n_notices = 0;
    let mut all = Vec::new();
    for change in changes {
        all = after_changes(&all, &id("lch"), [change.clone()], NOW, || {
            n_notices += 1;
            id(&format!("ntf_{n_notices}"))
        });
    }
    let open: Vec<_> = all.iter().filter(|notice| notice.is_open()).collect();
    assert_eq!(usize::try_from(n_open(&all)), Ok(open.len()));
    open.into_iter().map(|notice| notice.action).collect()
}

#[test]
fn of_two_notices_about_the_same_subject_the_newer_one_counts() {
    use NoticeAction::{Blocked, Cancelled, Closed, Paused, Unassigned};
    let of_task = |name, action| tell(Some(name), action);
    assert_eq!(open_after(&[of_task("a", Blocked), of_task("a", Cancelled)]), [Cancelled]);
    assert_eq!(open_after(&[of_task("a", Blocked), of_task("b", Cancelled)]), [Blocked, Cancelled]);
    assert_eq!(open_after(&[tell(None, Paused), tell(None, Closed)]), [Closed]);
    assert_eq!(open_after(&[of_task("a", Blocked), tell(None, Unassigned)]), [Blocked, Unassigned]);
}

#[test]
fn a_withdrawn_notice_is_settled_and_an_unassignment_stays() {
    use NoticeAction::{Blocked, Paused, Unassigned};
    let of_a = tell(Some("a"), Blocked);
    assert_eq!(open_after(&[of_a.clone(), Meaning::TakeBackTask(id("a"))]), []);
    assert_eq!(open_after(&[of_a.clone(), Meaning::TakeBackTask(id("b"))]), [Blocked]);
    assert_eq!(open_after(&[of_a, tell(None, Paused), Meaning::TakeBackPause]), [Blocked]);
    assert_eq!(open_after(&[tell(None, Unassigned), Meaning::TakeBackPause]), [Unassigned]);
}
