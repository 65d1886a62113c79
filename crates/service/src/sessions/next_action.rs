//! `get_next_action`: the next step of an agent. The answer is held until there is something to do.
//!
//! Waiting changes nothing, so a client that gives up loses no message. Messages are stored as
//! handed out before the answer is sent. If the answer is lost, an agent that asks again without
//! having answered the message gets it again.

use std::collections::BTreeSet;
use std::time::Duration;

use domain::next_action::{ChatFacts, ChatStep, TaskFacts, TaskStep, chat_step, task_step};
use domain::{Launch, Message, Purpose, Refusal, Session, Task, TaskId, TaskStatus};
use runtime::clock;
use store::rows::tasks;
use store::{Read, StoreError};

use super::Sessions;
use super::caller::latest;
use super::notices;
use crate::chats::{agents as chat, silence};
use crate::tasks::mine::in_progress;
use crate::tasks::rules::tasks_below;
use crate::{Caller, ServiceError};

/// The next step of an agent, in words and in fields.
#[derive(Debug, Clone)]
pub struct NextAction {
    /// The word for the step.
    pub action: &'static str,
    pub instruction: &'static str,
    /// The task of the step.
    pub task: Option<Task>,
    /// The messages, for the action to fetch messages.
    pub messages: Vec<Message>,
    /// The time to wait before the next question, in seconds, for an action to wait.
    pub wait_seconds: Option<u64>,
}

/// The time after which an agent gets a message again, if it asks for the next action without
/// having answered.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause of an agent between two questions that are not held.
pub(crate) const PAUSE_BETWEEN_POLLS: Duration = Duration::from_secs(5);

/// The result of one look at the store.
enum LookResult {
    Act(Box<NextAction>),
    /// There is nothing to do. The next check follows at the latest after this time.
    Wait {
        action: &'static str,
        until: Option<Duration>,
    },
}

impl Sessions {
    /// Returns the next step of `caller`. If there is none, the answer is held for
    /// `chat.poll_hold`, at most for `timeout`. Cancel-safe.
    ///
    /// # Errors
    /// The errors of [`Sessions::identify`]. A session that ends meanwhile leads to the action to
    /// exit.
    pub async fn next_action(
        &self,
        caller: &Caller,
        timeout: Option<Duration>,
    ) -> Result<NextAction, ServiceError> {
        let hold = timeout.map_or(self.core.settings().chat.poll_hold, |timeout| {
            timeout.min(self.core.settings().chat.poll_hold)
        });
        let asked_at = clock::now();
        let _held = self.heard.calls.hold(&caller.session.id);
        let mut news = self.waiting.agents.listen(caller.session.key.clone());
        loop {
            // The future is on the heap while it lasts, so that a thousand waiting calls do not
            // hold its memory.
            let look = Box::pin(self.look(caller, asked_at.elapsed(), hold)).await;
            let (action, until) = match look {
                Ok(LookResult::Act(next)) => return Ok(*next),
                Ok(LookResult::Wait { action, until }) => (action, until),
                // The session was open when the agent asked. This answer tells the agent about its
                // end.
                Err(ServiceError::Refused(Refusal::SessionEnded)) => return Ok(self.exit_action()),
                Err(error) => return Err(error),
            };
            let left = hold.saturating_sub(asked_at.elapsed());
            if left.is_zero() || self.ending.is_cancelled() {
                return Ok(self.wait_action(action));
            }
            tokio::select! {
                biased;
                () = news.woken() => {}
                () = self.ending.cancelled() => {}
                () = tokio::time::sleep(until.map_or(left, |until| until.min(left))) => {}
            }
        }
    }

    fn wait_action(&self, action: &'static str) -> NextAction {
        let is_held = !self.core.settings().chat.poll_hold.is_zero();
        let pause =
            if is_held && !self.ending.is_cancelled() { 0 } else { PAUSE_BETWEEN_POLLS.as_secs() };
        let instruction = self.core.guidance().wait(pause);
        NextAction {
            action,
            instruction,
            task: None,
            messages: Vec::new(),
            wait_seconds: Some(pause),
        }
    }

    /// Returns the answer to an agent whose session is over.
    pub fn exit_action(&self) -> NextAction {
        let instruction = self.core.guidance().next_of_chat(ChatStep::Exit);
        NextAction {
            action: "exit",
            instruction,
            task: None,
            messages: Vec::new(),
            wait_seconds: None,
        }
    }

    async fn look(
        &self,
        caller: &Caller,
        waited: Duration,
        hold: Duration,
    ) -> Result<LookResult, ServiceError> {
        let of = caller.clone();
        let found = self.core.read(move |tx| NextActionFacts::of(tx, &of)).await?;
        match found {
            NextActionFacts::Task(step, about) => Ok(self.look_at_task(&step, about)),
            NextActionFacts::Chat { launch, session, unread } => {
                let is_overdue = waited >= ANSWER_TIMEOUT.min(hold);
                self.look_at_chat(caller, &launch, session.handed_out, unread, is_overdue).await
            }
        }
    }

    fn look_at_task(&self, step: &TaskStep, about: Option<Task>) -> LookResult {
        let action = match step {
            TaskStep::WaitForSubtasks => {
                return LookResult::Wait { action: "wait_for_subtasks", until: None };
            }
            TaskStep::GetNotifications => "get_notifications",
            TaskStep::GetMyTask => "get_my_task",
            TaskStep::Work(_) => "work",
            TaskStep::ExecuteSubtask(_) => "execute_subtask",
            TaskStep::StartSubtask(_) => "start_subtask",
            TaskStep::ReportCompleted(_) => "report_completed",
            TaskStep::LogOut => "logout",
            TaskStep::Exit => "exit",
        };
        let instruction = self.core.guidance().next_of_task(step);
        LookResult::Act(Box::new(NextAction {
            action,
            instruction,
            task: about,
            messages: Vec::new(),
            wait_seconds: None,
        }))
    }

    async fn look_at_chat(
        &self,
        caller: &Caller,
        launch: &Launch,
        handed_out: i64,
        unread: Option<i64>,
        is_overdue: bool,
    ) -> Result<LookResult, ServiceError> {
        let until_idle = silence::left(&self.core, &self.clocks, launch, Duration::ZERO).await?;
        let step = chat_step(ChatFacts {
            launch,
            unread,
            handed_out,
            is_idle: until_idle.is_some_and(|left| left.is_zero()),
            is_overdue,
        });
        let (action, messages) = match step {
            ChatStep::WaitForMessages => {
                let until = if unread.is_some() { Some(ANSWER_TIMEOUT) } else { until_idle };
                return Ok(LookResult::Wait { action: "wait_for_messages", until });
            }
            ChatStep::GetPendingMessages => (
                "get_pending_messages",
                chat::hand_out(&self.core, &self.heard, caller).await?.pending,
            ),
            ChatStep::LogOut => ("logout", Vec::new()),
            ChatStep::Exit => ("exit", Vec::new()),
        };
        let instruction = self.core.guidance().next_of_chat(step);
        Ok(LookResult::Act(Box::new(NextAction {
            action,
            instruction,
            task: None,
            messages,
            wait_seconds: None,
        })))
    }
}

/// The facts that decide about the next action of an agent.
enum NextActionFacts {
    /// The next step of a task agent, with the task that it is about.
    Task(TaskStep, Option<Task>),
    Chat {
        launch: Box<Launch>,
        session: Session,
        /// The number of the newest message that waits for an answer.
        unread: Option<i64>,
    },
}

impl NextActionFacts {
    fn of(tx: &mut Read<'_>, caller: &Caller) -> Result<Self, ServiceError> {
        let (launch, session) = latest(tx, caller)?;
        if launch.key.purpose == Purpose::Task {
            let (step, about) = task_step_of(tx, &launch)?;
            return Ok(Self::Task(step, about));
        }
        let unread = chat::pending(tx, &launch.key)?.last().map(|message| message.seq);
        Ok(Self::Chat { launch: Box::new(launch), session, unread })
    }
}

/// Returns the next step of a task agent, with the task that it is about.
pub(crate) fn task_step_of(
    tx: &mut Read<'_>,
    launch: &Launch,
) -> Result<(TaskStep, Option<Task>), StoreError> {
    let notices = match launch.n_notices {
        0 => Vec::new(),
        _ => notices::open_of(tx, &launch.id)?,
    };
    let (task, subtasks) = match &launch.task {
        None => (None, Vec::new()),
        Some(id) => (tasks::get(tx, id)?, tasks_below(tx, id, |part| part.status.is_open())?),
    };
    let is_part = |other: &Task| subtasks.iter().any(|part| part.id == other.id);
    let is_other = |other: &Task| Some(&other.id) != launch.task.as_ref() && !is_part(other);
    let in_progress = in_progress(tx, &launch.key)?;
    let step = task_step(TaskFacts {
        launch,
        notices: &notices,
        task: task.as_ref(),
        subtasks: &subtasks,
        unfinished: &unfinished_dependencies(tx, &subtasks)?,
        has_other_task: in_progress.iter().any(|other| launch.task.is_none() || is_other(other)),
    });
    let about = match &step {
        TaskStep::Work(_) => task,
        TaskStep::ExecuteSubtask(id) | TaskStep::StartSubtask(id) => {
            subtasks.into_iter().find(|subtask| subtask.id == *id)
        }
        _ => None,
    };
    Ok((step, about))
}

/// Returns the dependencies of open subtasks that are not done.
fn unfinished_dependencies(
    tx: &mut Read<'_>,
    subtasks: &[Task],
) -> Result<BTreeSet<TaskId>, StoreError> {
    let open = subtasks.iter().filter(|subtask| subtask.status.is_open());
    let mut unfinished: BTreeSet<TaskId> =
        open.flat_map(|subtask| subtask.dependencies.clone()).collect();
    for id in unfinished.clone() {
        if tasks::get(tx, &id)?.is_none_or(|task| task.status == TaskStatus::Done) {
            unfinished.remove(&id);
        }
    }
    Ok(unfinished)
}
