//! The agents that a change of a task concerns.

use domain::{Launch, LaunchState};
use service::TaskEdit;
use store::rows::{Context, Transaction};

use super::*;

#[tokio::test]
async fn a_change_of_a_task_reads_no_launch_that_it_does_not_concern() {
    let store = one_pair_with_work().await;
    let other =
        InstanceKey::new("other".parse().unwrap(), "elsewhere".parse().unwrap(), Purpose::Task);
    let launch =
        Launch::claimed("lch_other".parse().unwrap(), other, "claude".to_owned(), NOW, NOW);
    rows::write(&store, vec![Row::Launch(launch)]).await.unwrap();
    let damage = |tx: &mut Transaction<'_>| {
        tx.execute("UPDATE launches SET state = 'unreadable' WHERE id = 'lch_other'", &[])
    };
    let context = Context::new(NOW, "test".to_owned(), None);
    store.write(context, Arc::new(|_| ()), damage).await.unwrap();
    let service = Service::new(store.clone(), Arc::new(SystemWorld), settings(), Nudge::new());
    let edit = TaskEdit { status: Some(TaskStatus::Blocked), ..TaskEdit::default() };
    let task = service.tasks.set(&"tsk".parse().unwrap(), &edit).await.unwrap();
    assert_eq!(task.task.status, TaskStatus::Blocked);
}

#[tokio::test]
async fn an_agent_in_a_clone_is_told_of_its_task_before_it_asks_for_it() {
    let store = one_pair_with_work().await;
    // The claim decides about the task of a clone, so the launch has it from the beginning.
    let launch = Launch {
        task: Some("tsk".parse().unwrap()),
        state: LaunchState::Running { session: "ses".parse().unwrap() },
        ..Launch::claimed("lch".parse().unwrap(), key(), "claude".to_owned(), NOW, NOW)
    };
    rows::write(&store, vec![Row::Launch(launch.clone())]).await.unwrap();
    let service = Service::new(store.clone(), Arc::new(SystemWorld), settings(), Nudge::new());
    // A notice is taken back if the agent may go on.
    for (status, n_notices) in [(TaskStatus::Blocked, 1), (TaskStatus::InProgress, 0)] {
        let edit = TaskEdit { status: Some(status), ..TaskEdit::default() };
        service.tasks.set(&"tsk".parse().unwrap(), &edit).await.unwrap();
        let launch = store.launch(&launch.id).await.unwrap().unwrap();
        assert_eq!(launch.n_notices, n_notices, "{status}");
    }
}
