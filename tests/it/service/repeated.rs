//! Calls that an agent repeats. They change nothing the second time.

use domain::agent::{AgentEdit, ProjectEdit};
use domain::launch::ReportResult;
use domain::{AgentId, MadeByForm, ProjectId, Sent, TaskId};
use service::{Caller, NewTask, Report, ServiceError, TaskEdit};

use super::*;

struct AtWork {
    store: Arc<Store>,
    service: Service,
    token: Secret,
}

/// Returns a server with an agent that has a session, and a task in progress that it has not asked
/// for.
async fn at_work() -> AtWork {
    let store = one_pair_with_work().await;
    let service = Service::new(store.clone(), Arc::new(SystemWorld), settings(), Nudge::new());
    let InstanceKey { agent, project, .. } = key();
    let coordinator = "crd_here".parse().unwrap();
    let start = service.launches.should_start(&key(), Some(&coordinator)).await.unwrap();
    let ticket = start.claim.unwrap().ticket.unwrap();
    let session = service
        .sessions
        .authenticate(&agent, &ticket, &project, Presenter::on_socket(None))
        .await
        .unwrap();
    AtWork { store, service, token: session.session_token }
}

impl AtWork {
    async fn caller(&self) -> Caller {
        self.service
            .sessions
            .identify_reporter(&self.token, Presenter::on_socket(None))
            .await
            .unwrap()
    }

    /// Runs `call`. Returns the number of its write transactions, and its answer.
    async fn n_writes<T>(&self, call: impl Future<Output = T>) -> (u64, T) {
        let before = self.store.n_transactions();
        let answer = call.await;
        (self.store.n_transactions() - before, answer)
    }

    async fn block(&self) {
        let edit = TaskEdit { status: Some(TaskStatus::Blocked), ..TaskEdit::default() };
        self.service.tasks.set(&"tsk".parse().unwrap(), &edit).await.unwrap();
    }
}

#[tokio::test]
async fn an_agent_that_asks_for_its_task_again_takes_no_turn_of_the_writer() {
    let at_work = at_work().await;
    let caller = at_work.caller().await;
    let (n_writes, first) = at_work.n_writes(Box::pin(at_work.service.tasks.mine(&caller))).await;
    assert_eq!(n_writes, 1, "the first answer begins the work");
    let (n_writes, second) = at_work.n_writes(Box::pin(at_work.service.tasks.mine(&caller))).await;
    assert_eq!(n_writes, 0);
    let (first, second) = (first.unwrap().unwrap(), second.unwrap().unwrap());
    assert_eq!(first.task, second.task);
    at_work.block().await;
    let (n_writes, none) = at_work.n_writes(Box::pin(at_work.service.tasks.mine(&caller))).await;
    assert!(n_writes == 0 && none.unwrap().is_none(), "it has no task");
}

#[tokio::test]
async fn notices_that_were_read_before_take_no_turn_of_the_writer() {
    let at_work = at_work().await;
    let caller = at_work.caller().await;
    let ask = || at_work.n_writes(at_work.service.sessions.notifications(&caller));
    assert_eq!(ask().await.0, 0, "there is none");
    at_work.service.tasks.mine(&caller).await.unwrap();
    at_work.block().await;
    let (n_writes, first) = ask().await;
    let first = first.unwrap();
    assert_eq!((n_writes, first.len()), (1, 1), "{first:?}");
    let (n_writes, second) = ask().await;
    let second = second.unwrap();
    assert_eq!(n_writes, 0);
    assert_eq!(second.len(), 1);
    assert_eq!((&second[0].id, second[0].read_at.is_some()), (&first[0].id, true));
}

#[tokio::test]
async fn a_repeated_report_takes_no_turn_of_the_writer() {
    let at_work = at_work().await;
    let report = Report { result: ReportResult::Success, summary: Some("done"), next_steps: None };
    let caller = at_work.caller().await;
    let (n_writes, first) =
        at_work.n_writes(at_work.service.sessions.report(&caller, report)).await;
    assert_eq!(n_writes, 1);
    let caller = at_work.caller().await;
    let (n_writes, second) =
        at_work.n_writes(at_work.service.sessions.report(&caller, report)).await;
    assert_eq!(n_writes, 0);
    assert_eq!(first.unwrap(), second.unwrap());
}

/// Returns the task of a form with this content.
fn task_of_form(service: &Service, form: &str, content: &str) -> MadeByForm<TaskId> {
    let form = service.check_form("ann", "task of prj", form).unwrap();
    form.thing(TaskId::PREFIX, &[content])
}

#[tokio::test]
async fn a_form_makes_its_task_once_also_if_the_task_was_changed_meanwhile() {
    let store = one_pair_with_work().await;
    let service = Service::new(store, Arc::new(SystemWorld), settings(), Nudge::new());
    let form = service.new_form_id("ann", "task of prj").to_string();
    for (person, of, text) in [
        ("ben", "task of prj", form.as_str()),
        ("ann", "task of blog", &form),
        ("ann", "task of prj", "tsk_1"),
    ] {
        let refusal = service.check_form(person, of, text).unwrap_err();
        assert_eq!(refusal.code(), "form_foreign", "{person} {of} {text}");
    }
    let new = NewTask::new("prj".parse().unwrap(), "from a form");
    let send = async |content| {
        let thing = task_of_form(&service, &form, content);
        service.tasks.add_by_form(&new, &thing).await
    };
    let Sent::First(task) = send("one").await.unwrap() else { panic!("it was not sent before") };
    let edit = TaskEdit {
        title: Some("renamed".to_owned()),
        priority: Some(Priority::Low),
        ..TaskEdit::default()
    };
    service.tasks.set(&task.id, &edit).await.unwrap();
    let Sent::Again(again) = send("one").await.unwrap() else { panic!("it was sent before") };
    assert_eq!((again.id, again.title.as_str()), (task.id, "renamed"));
    let Err(ServiceError::Refused(refusal)) = send("two").await else { panic!("it differs") };
    assert_eq!(refusal.code(), "form_sent");
    assert!(refusal.to_string().contains(&task.short_id.to_string()), "{refusal}");
}

#[tokio::test]
async fn a_form_makes_its_agent_and_its_project_once_beside_others() {
    let store = one_pair_with_work().await;
    let service = Service::new(store, Arc::new(SystemWorld), settings(), Nudge::new());
    let catalog = &service.catalog;
    let agent = AgentEdit { name: Some("Ada".to_owned()), ..AgentEdit::default() };
    let project = ProjectEdit {
        name: Some("Shop".to_owned()),
        working_directory: Some("/tmp".into()),
        ..ProjectEdit::default()
    };
    let forms = ["one", "two"].map(|_| service.new_form_id("ann", "new").to_string());
    let form = |n: usize| service.check_form("ann", "new", &forms[n]).unwrap();
    let agent_of = async |n, content: &str| {
        catalog.add_agent_by_form(&form(n).thing(AgentId::PREFIX, &[content]), &agent).await
    };
    let project_of = async |n, content: &str| {
        catalog.add_project_by_form(&form(n).thing(ProjectId::PREFIX, &[content]), &project).await
    };
    for n in 0..2 {
        let Sent::First(first) = agent_of(n, "a").await.unwrap() else { panic!("it is new") };
        let Sent::Again(again) = agent_of(n, "a").await.unwrap() else { panic!("it was sent") };
        assert_eq!(first.id, again.id);
        let Sent::First(first) = project_of(n, "a").await.unwrap() else { panic!("it is new") };
        let Sent::Again(again) = project_of(n, "a").await.unwrap() else { panic!("it was sent") };
        assert_eq!(first, again);
    }
    let Err(ServiceError::Refused(refusal)) = agent_of(0, "b").await else { panic!("it differs") };
    assert!(refusal.code() == "form_sent" && refusal.to_string().contains("Ada"), "{refusal}");
    let Err(ServiceError::Refused(refusal)) = project_of(0, "b").await else {
        panic!("it differs")
    };
    assert!(refusal.code() == "form_sent" && refusal.to_string().contains("Shop"), "{refusal}");
}
