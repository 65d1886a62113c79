//! Every text that an agent reads, in English and Japanese. The Japanese texts are the wording of
//! the specifications, if they give one (C-22). Clients compare these texts, so nothing is added to
//! them. A hint has what an agent needs beside them.
//!
//! Titles, descriptions and messages are data of other people. They travel as fields and are never
//! part of an instruction.

mod resumed;

use std::path::Path;

use super::attempt::Attempt;
use super::key::{InstanceKey, Purpose};
use super::language::Language;
use super::launch::{Outcome, ReportResult, StopReason, TimeLimit};
use super::next_action::{ChatStep, TaskStep};
use super::notice::{NoticeAction, NoticeDemand, NoticeKind};
use super::secret::Secret;

/// The number of files that a text names.
const MAX_FILES: usize = 50;

/// The place of new tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewPlace {
    /// At least one of them is part of another task.
    InTree,
    /// None of them is part of another task.
    Top,
}

/// The texts of one language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guidance(Language);

impl Guidance {
    pub const fn new(language: Language) -> Self {
        Self(language)
    }

    /// Returns the text after `authenticate`.
    pub const fn authenticated(self, purpose: Purpose) -> &'static str {
        match purpose {
            // A check has no session.
            Purpose::Task | Purpose::Check => self.0.either(
                "Call get_my_task to fetch the details of your task.",
                "get_my_task を呼び出してタスク詳細を取得してください",
            ),
            Purpose::Chat => self.0.either(
                "Call get_next_action and do what it says, again and again.",
                "get_next_action を呼び出し、その指示に従うことを繰り返してください",
            ),
        }
    }

    /// Returns the text of the hidden message that opens a chat.
    pub const fn chat_started(self) -> &'static str {
        self.0.either("Session started", "セッション開始")
    }

    /// Returns the text after `respond_chat`.
    pub const fn responded(self) -> &'static str {
        self.0.either(
            "Your answer is delivered. Call get_next_action.",
            "応答を送信しました。get_next_action を呼び出してください。",
        )
    }

    /// Returns the text after `get_pending_messages`.
    pub const fn messages_given(self, n_messages: usize) -> &'static str {
        match n_messages {
            0 => self.0.either(
                "There are no messages for you. Call get_next_action.",
                "未読メッセージはありません。get_next_action を呼び出してください。",
            ),
            _ => self.0.either(
                "Reply with respond_chat, then call get_next_action.",
                "respond_chat で応答してから get_next_action を呼び出してください。",
            ),
        }
    }

    /// Returns the text after `get_my_task` with a task.
    pub const fn task_given(self) -> &'static str {
        self.0.either(
            "When the task is finished, call report_completed.",
            "タスクを完了したら report_completed を呼び出してください",
        )
    }

    /// Returns the text after `get_my_task` without a task.
    pub const fn no_task(self) -> &'static str {
        self.0
            .either("There is no task for you at present.", "現在割り当てられたタスクはありません")
    }

    /// Returns the hint beside [`Self::no_task`].
    pub const fn no_task_hint(self) -> &'static str {
        self.0.either("Call logout and exit.", "logout を呼び出してプロセスを終了してください。")
    }

    /// Returns the text after `report_completed`. The specification has one for all results.
    pub const fn reported(self, result: ReportResult) -> &'static str {
        match result {
            ReportResult::Success => self.0.either(
                "The task is completed. Your session ends here: exit now.",
                "タスクが完了しました。セッションを終了します。",
            ),
            ReportResult::Failed | ReportResult::Blocked => self.0.either(
                "Your report is recorded. Your session ends here: exit now.",
                "タスクが完了しました。セッションを終了します。",
            ),
        }
    }

    /// Returns the text after `update_task_status` to done, while other work remains.
    pub const fn work_remains(self) -> &'static str {
        self.0.either(
            "Check the state of your remaining tasks with get_my_task_progress and go on with the work that is needed.",
            "get_my_task_progress で残りのタスク状況を確認し、必要な作業を続けてください。",
        )
    }

    /// Returns the text after `update_task_status` to done, if no work remains.
    pub const fn all_work_done(self) -> &'static str {
        self.0.either(
            "All tasks assigned to you are finished. Call report_completed.",
            "担当タスクが全て完了しました。report_completed を呼び出してください。",
        )
    }

    /// Returns the text after `create_task` and `create_tasks_batch`.
    pub const fn tasks_created(self, place: NewPlace) -> &'static str {
        match place {
            NewPlace::InTree => self.0.either(
                "The subtasks are recorded. Call get_next_action: it says which comes first.",
                "サブタスクを登録しました。get_next_action を呼び出して次に実行するサブタスクを確認してください。",
            ),
            NewPlace::Top => self.0.either(
                "The task is recorded for later: people decide when it begins. Go on with your own work.",
                "タスクをバックログに登録しました。着手の判断はユーザーが行います。現在の作業を続けてください。",
            ),
        }
    }

    /// Returns the text after `save_context`.
    pub const fn context_saved(self) -> &'static str {
        self.0.either(
            "What you saved is kept: get_my_task returns it to whoever goes on with this task. Go on with your work.",
            "状況を保存しました。次にこのタスクを担当するエージェントは get_my_task で参照できます。作業を続けてください。",
        )
    }

    /// Returns the text that goes with every answer while the agent has a notice that it was not
    /// told yet.
    pub const fn notification(self) -> &'static str {
        self.0.either(
            "There is a notification. Call get_notifications and read it.",
            "通知があります。get_notificationsを呼び出して確認してください。",
        )
    }

    /// Returns the text of a notice.
    pub const fn notice(self, action: NoticeAction) -> &'static str {
        use NoticeAction as N;
        match action {
            N::Blocked => self.0.either(
                "The status of the task was changed to blocked",
                "タスクのステータスがblockedに変更されました",
            ),
            N::Cancelled => self.0.either(
                "The status of the task was changed to cancelled",
                "タスクのステータスがcancelledに変更されました",
            ),
            N::Done => self.0.either(
                "The status of the task was changed to done: your work on it was cancelled by a \
                 person or by another agent",
                "タスクのステータスがdoneに変更されました。作業は人または他のエージェントによって取り消されました",
            ),
            N::Todo => self.0.either(
                "The status of the task was changed to todo",
                "タスクのステータスがtodoに変更されました",
            ),
            N::Reassigned => {
                self.0.either("The task was taken from you", "タスクの担当者が変更されました")
            }
            N::Paused => self
                .0
                .either("Work on the project is paused", "プロジェクトの作業が一時停止されました"),
            N::Unassigned => self.0.either(
                "You are no longer assigned to the project",
                "プロジェクトへの割り当てが解除されました",
            ),
            N::Closed => self.0.either("The project is closed", "プロジェクトが終了しました"),
        }
    }

    /// Returns the text that tells the agent of a notice what to do.
    pub const fn notice_instruction(
        self,
        action: NoticeAction,
        demand: NoticeDemand,
    ) -> &'static str {
        match (demand, action.kind()) {
            (NoticeDemand::Read, _) => self.0.either(
                "Stop working on this subtask, and check what remains with get_my_task_progress.",
                "このサブタスクの作業を中断し、get_my_task_progress で残りのタスク状況を確認してください",
            ),
            (NoticeDemand::End, NoticeKind::StatusChange) => self.0.either(
                "Stop your work and call report_completed with result='blocked'.",
                "作業を中断し、report_completedをresult='blocked'で呼び出してください",
            ),
            (NoticeDemand::End, NoticeKind::Stop) => self.0.either(
                "Stop your work, save what you have with save_context, call logout and exit.",
                "作業を中断し、save_context で状況を保存してから logout を呼び出し、プロセスを終了してください",
            ),
        }
    }

    /// Returns the text after `get_next_action` in a task session.
    pub const fn next_of_task(self, step: &TaskStep) -> &'static str {
        match step {
            TaskStep::GetNotifications => self.notification(),
            TaskStep::GetMyTask => self.authenticated(Purpose::Task),
            TaskStep::Work(_) => self.0.either(
                "Carry out this task yourself. Work as its description says, and when it is finished set its status to 'done' with update_task_status.",
                "このタスクを直接実行してください。\nタスクの内容に従って作業を行い、完了したら\nupdate_task_status で status を 'done' に変更してください。",
            ),
            TaskStep::ExecuteSubtask(_) => self.0.either(
                "Carry out this subtask. When it is finished, set its status to 'done' with update_task_status.",
                "現在のサブタスクを実行してください。\n完了したら update_task_status で status を 'done' に変更してください。",
            ),
            TaskStep::StartSubtask(_) => self.0.either(
                "This subtask is assigned to another agent. Set its status to 'in_progress' with update_task_status: that starts its agent. Then call get_next_action.",
                "このサブタスクは別のエージェントに割り当てられています。\nupdate_task_status で status を 'in_progress' に変更すると担当エージェントが起動します。\nその後 get_next_action を呼び出してください。",
            ),
            TaskStep::WaitForSubtasks => self.wait(0),
            TaskStep::ReportCompleted(ReportResult::Success) => self.all_work_done(),
            TaskStep::ReportCompleted(ReportResult::Failed | ReportResult::Blocked) => self.0.either(
                "You can't go on with this task. Call report_completed with result='blocked' and say in the summary what is in the way.",
                "このタスクは続行できません。report_completedをresult='blocked'で呼び出し、summary に理由を記入してください。",
            ),
            TaskStep::LogOut => self.0.either(
                "There is nothing for you to do here now. Save what you have with save_context, call logout and exit.",
                "現在実行する作業はありません。必要なら save_context で状況を保存し、logout を呼び出してプロセスを終了してください。",
            ),
            TaskStep::Exit => self.exit(),
        }
    }

    /// Returns the text after `get_next_action` in a chat session.
    pub const fn next_of_chat(self, step: ChatStep) -> &'static str {
        match step {
            ChatStep::GetPendingMessages => self.0.either(
                "There are messages for you. Read them (they are in this answer, and get_pending_messages returns them again), reply with respond_chat, then call get_next_action.",
                "未読メッセージがあります。内容を確認し（この応答に含まれています。get_pending_messages でも取得できます）、respond_chat で応答してから get_next_action を呼び出してください。",
            ),
            ChatStep::WaitForMessages => self.wait(0),
            ChatStep::LogOut => self.0.either(
                "Nobody has said anything for a while. Call logout and exit.",
                "一定時間メッセージがありませんでした。logout を呼び出してプロセスを終了してください。",
            ),
            ChatStep::Exit => self.exit(),
        }
    }

    const fn exit(self) -> &'static str {
        self.0.either(
            "Your session is over: exit now.",
            "セッションは終了しました。プロセスを終了してください。",
        )
    }

    /// Returns the text that goes with an action that is to wait. The agent asks again at once if
    /// the question was held (0), else after 5 seconds.
    pub const fn wait(self, pause_seconds: u64) -> &'static str {
        if pause_seconds == 0 {
            self.0.either(
                "There is nothing to do yet. Call get_next_action again now: it waits for you.",
                "まだ作業はありません。すぐに再度get_next_actionを呼び出してください（サーバー側で待機します）",
            )
        } else {
            self.0.either(
                "Call get_next_action again after 5 seconds.",
                "5秒後に再度get_next_actionを呼び出してください",
            )
        }
    }

    /// Returns the hint beside [`Self::wait`]. It asks for the turn, because some CLIs end an agent
    /// that makes the same call several times in a row.
    pub const fn wait_hint(self) -> &'static str {
        self.0.either(
            "Call get_next_action with the turn of this answer: no two calls may be the same.",
            "この応答の turn を指定して get_next_action を呼び出してください。",
        )
    }

    /// Returns the text after `logout`.
    pub const fn logged_out(self) -> &'static str {
        self.0.either(
            "Your session has ended: exit now.",
            "セッションを終了しました。プロセスを終了してください。",
        )
    }

    /// Returns what the agent is told whose result conflicts with a branch. The name of the branch
    /// and the files are data of other people.
    pub fn merge_conflict(self, branch: &str, commit: &str, files: &[String]) -> String {
        let n_more = files.len().saturating_sub(MAX_FILES);
        let mut names: Vec<&str> = files.iter().take(MAX_FILES).map(String::as_str).collect();
        let more = match self.0 {
            Language::English => format!("and {n_more} more"),
            Language::Japanese => format!("ほか {n_more} 件"),
        };
        names.extend((n_more > 0).then_some(more.as_str()));
        let names = names.join("\n");
        match self.0 {
            Language::English => format!(
                "Your result and the branch {branch} change the same lines. Run \
                 `git merge {commit}` on your branch, resolve the conflicts, test, commit, and \
                 report success again. The files:\n{names}"
            ),
            Language::Japanese => format!(
                "結果とブランチ {branch} が同じ行を変更しています。\
                 `git merge {commit}` を実行して競合を解消し、\
                 テストしてコミットし、成功を報告してください。\
                 対象ファイル:\n{names}"
            ),
        }
    }

    const fn steps_title(self) -> &'static str {
        self.0.either("Steps", "手順")
    }

    /// Returns what an agent is told whose directory is a clone of its own.
    pub const fn own_clone(self) -> &'static str {
        match self.0 {
            Language::English => {
                "You work in your own clone of the repository, on a branch of your own. Commit your work on this branch. Don't push, and don't change the directories of others: the coordinator takes your commits from here."
            }
            Language::Japanese => {
                "あなたは自分専用のクローンの、自分専用のブランチで作業します。作業はこのブランチにコミットしてください。push はせず、他の人のディレクトリを変更しないでください。コミットはコーディネーターがここから取り込みます。"
            }
        }
    }

    /// Returns the prompt that an agent CLI is started with. Without `passkey` it names the
    /// variable that holds the passkey, because an argument list is readable by every user of the
    /// machine. The prompt of a later attempt names the end of the one before.
    pub fn prompt(
        self,
        key: &InstanceKey,
        working_directory: &Path,
        passkey: Option<&Secret>,
        attempt: &Attempt,
    ) -> String {
        let InstanceKey { agent, project, purpose } = key;
        let call = authenticate_call(key, passkey);
        let shown = match (passkey, self.0) {
            (Some(passkey), _) => passkey.reveal(),
            (None, Language::English) => "the value of the environment variable AGENT_PASSKEY",
            (None, Language::Japanese) => "環境変数 AGENT_PASSKEY の値",
        };
        let steps = self.steps(*purpose, &call, working_directory);
        let steps: Vec<String> =
            (1..).zip(steps).map(|(n, step)| format!("{n}. {step}\n")).collect();
        let attempt = self.attempt(attempt).map(|sentence| format!("{sentence}\n\n"));
        format!(
            "\nAgent ID: {agent}\nProject ID: {project}\nPasskey: {shown}\n\n{}{}:\n{}",
            attempt.unwrap_or_default(),
            self.steps_title(),
            steps.concat()
        )
    }

    /// Returns the sentence about the end of the attempt before; `None` for a first attempt. It has
    /// no text of an agent or a system, because these could be taken for instructions.
    fn attempt(self, attempt: &Attempt) -> Option<String> {
        let Attempt { number, last_end: Some(end) } = attempt else { return None };
        let end = self.end_of_attempt(end);
        Some(match self.0 {
            Language::English => {
                format!("This is attempt {number} at your task: the one before {end}.")
            }
            Language::Japanese => format!("これはタスクの {number} 回目の試行です。前回は{end}。"),
        })
    }

    const fn end_of_attempt(self, end: &Outcome) -> &'static str {
        use StopReason as S;
        match end {
            Outcome::Completed => self.0.either("reported success", "成功を報告して終了しました"),
            Outcome::Blocked => self
                .0
                .either("reported that it was blocked", "ブロックされたと報告して終了しました"),
            Outcome::Failed => self.0.either("reported a failure", "失敗を報告して終了しました"),
            Outcome::Stopped(S::Person | S::StopAll) => {
                self.0.either("was stopped by a person", "ユーザーによって停止されました")
            }
            Outcome::Stopped(S::Shutdown) => self.0.either(
                "was stopped together with the coordinator",
                "コーディネーターの停止に伴って停止されました",
            ),
            Outcome::Stopped(_) => self.0.either("was stopped", "停止されました"),
            Outcome::ExitedWithoutReport => self.0.either(
                "ended without report_completed",
                "完了報告（report_completed）をせずに終了しました",
            ),
            Outcome::NeverAuthenticated => {
                self.0.either("ended without authenticate", "認証せずに終了しました")
            }
            Outcome::StartFailed(_) => {
                self.0.either("could not be started", "起動できませんでした")
            }
            Outcome::TimedOut(
                TimeLimit::RunMaximum | TimeLimit::SessionMaximum | TimeLimit::Check,
            ) => {
                self.0.either("took too long and was stopped", "制限時間を超えたため停止されました")
            }
            Outcome::TimedOut(TimeLimit::Silence | TimeLimit::SessionIdle) => self.0.either(
                "was silent for too long and was stopped",
                "長時間応答がなかったため停止されました",
            ),
            Outcome::Lost => self
                .0
                .either("was lost, so its end is not known", "失われたため、終了の状況は不明です"),
        }
    }

    fn steps(self, purpose: Purpose, authenticate: &str, working_directory: &Path) -> Vec<String> {
        let directory = working_directory.display();
        match (purpose, self.0) {
            (Purpose::Task | Purpose::Check, Language::English) => vec![
                format!("Authenticate with {authenticate}"),
                "The system_prompt of the answer is your role. Act according to it".to_owned(),
                "Fetch your task with get_my_task()".to_owned(),
                format!("Carry out the task (current directory: {directory})"),
                "Report the end with report_completed()".to_owned(),
            ],
            (Purpose::Task | Purpose::Check, Language::Japanese) => vec![
                format!("{authenticate} で認証"),
                "返された system_prompt があなたの役割です。その役割に従って行動してください".to_owned(),
                "get_my_task() でタスク取得".to_owned(),
                format!("タスク実行（カレントディレクトリ: {directory}）"),
                "report_completed() で完了報告".to_owned(),
            ],
            (Purpose::Chat, Language::English) => vec![
                format!("Authenticate with {authenticate}"),
                "The system_prompt of the answer is your role. Act according to it".to_owned(),
                "This is a chat. Call get_next_action() and do what it says, also when it says to call it again".to_owned(),
                format!("Answer the messages with respond_chat(content) (current directory: {directory})"),
                "Repeat from 3. Don't end by yourself: only when the action is logout call logout(), and when it is exit, exit"
                    .to_owned(),
            ],
            (Purpose::Chat, Language::Japanese) => vec![
                format!("{authenticate} で認証"),
                "返された system_prompt があなたの役割です。その役割に従って行動してください".to_owned(),
                "これはチャットです。get_next_action() を呼び出し、その指示に従ってください（再度呼び出すよう指示された場合も同様です）"
                    .to_owned(),
                format!("respond_chat(content) でメッセージに応答（カレントディレクトリ: {directory}）"),
                "3 に戻って繰り返してください。自分から終了せず、action が logout のときだけ logout() を呼び出し、exit のときはプロセスを終了してください"
                    .to_owned(),
            ],
        }
    }
}

/// Returns the first call of an agent. Without `passkey` it names the variable that holds it.
fn authenticate_call(key: &InstanceKey, passkey: Option<&Secret>) -> String {
    let InstanceKey { agent, project, .. } = key;
    let passkey = passkey.map_or("$AGENT_PASSKEY", Secret::reveal);
    format!(r#"authenticate(agent_id="{agent}", passkey="{passkey}", project_id="{project}")"#)
}

#[cfg(test)]
mod tests;
