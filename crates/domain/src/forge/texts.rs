//! The texts of comments on items, in English and Japanese. They contain texts of agents only as
//! [`harmless`] text.

use std::time::Duration;

use super::item::WorkState;
use super::marker::harmless;
use super::publication::Publication;
use super::{ForgeKind, ItemKey, ItemKind, StopCause};
use crate::check::{Check, CheckResult, last_round};
use crate::id::{AgentId, ProjectId};
use crate::language::Language;
use crate::session::Execution;
use crate::time::Timestamp;

/// The longest quotation from an agent in a comment, in characters. Forges allow 65,536 characters
/// in all.
const MAX_QUOTED: usize = 12_000;

/// The comments of one language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Texts(Language);

impl Texts {
    pub const fn new(language: Language) -> Self {
        Self(language)
    }

    /// Returns the comment that the item is ours.
    pub fn claimed(self, agent: &AgentId, project: &ProjectId, at: Timestamp) -> String {
        let title = self.0.either("## 🤖 Task started", "## 🤖 タスク開始");
        let text = self.0.either(
            "This is being worked on. Unassign the bot to stop it.",
            "処理を開始します。停止するにはボットのアサインを解除してください。",
        );
        let (agent_word, project_word) =
            self.0.either(("Agent", "Project"), ("エージェント", "プロジェクト"));
        format!(
            "{title}\n\n{text}\n\n- {agent_word}: `{agent}`\n- {project_word}: `{project}`\n{}",
            self.line(("Started", "開始時刻"), &at.to_string())
        )
    }

    /// Returns the comment that the task is done.
    pub fn finished(self, work: Option<&Execution>, at: Timestamp) -> String {
        let title = self.0.either("## ✅ Task done", "## ✅ タスク完了");
        let text = self.0.either("The task is done.", "タスクが完了しました。");
        let time = self.line(("Finished", "完了時刻"), &at.to_string());
        format!("{title}\n\n{text}\n\n{time}{}", self.report(work))
    }

    /// Returns the comment that a person finished the task.
    pub fn done_by_hand(self, at: Timestamp) -> String {
        let title = self.0.either("## ✅ Task done by hand", "## ✅ タスク完了（手動）");
        let text = self.0.either(
            "A person set the task to done. Nothing was pushed.",
            "人が手動でタスクを完了にしました。何もプッシュしていません。",
        );
        let time = self.line(("Finished", "完了時刻"), &at.to_string());
        format!("{title}\n\n{text}\n\n{time}")
    }

    /// Returns the part of the last comment about the last launch: its duration and its cost, as
    /// far as they are known, and the link to it on the pages of the coordinator.
    pub fn effort(self, work: Option<&Execution>, page_url: Option<&str>) -> String {
        let Some(work) = work else {
            return String::new();
        };
        let took = work.ended_at.map(|ended_at| {
            let took = ended_at.since(work.started_at);
            self.line(("Duration", "所要時間"), &duration(took))
        });
        let cents = work.usage.cost_usd_micros.div_ceil(10_000);
        let cost = (cents > 0).then(|| {
            let text = format!("US${}.{:02}", cents / 100, cents % 100);
            self.line(("Cost", "コスト"), &text)
        });
        let log = page_url.map(|url| {
            let url = format!("{}/ui/launches/{}", url.trim_end_matches('/'), work.launch);
            self.line(("Log of the work", "作業ログ"), &url)
        });
        let lines: Vec<String> = [took, cost, log].into_iter().flatten().collect();
        if lines.is_empty() {
            return String::new();
        }
        let title = self.0.either("### Work", "### 作業");
        format!("\n\n{title}\n\n{}", lines.join("\n"))
    }

    /// Returns the part of a text with the checks of the last round. A failed one has the end of
    /// its output.
    pub fn checks(self, checks: &[Check]) -> String {
        let last = last_round(checks);
        if last.is_empty() {
            return String::new();
        }
        let lines = last.iter().map(|check| {
            let result = match check.result {
                CheckResult::Passed => self.0.either("passed", "成功"),
                CheckResult::Failed => self.0.either("failed", "失敗"),
                CheckResult::Running | CheckResult::NotRun => self.0.either("not run", "未実行"),
            };
            let exit = check.exit_code.map(|code| format!("exit {code}"));
            let took = check.duration.map(duration);
            let commit = check.commit.as_ref().and_then(|commit| commit.get(..10));
            let facts = [exit, took, commit.map(|commit| format!("`{commit}`"))];
            let facts: Vec<String> = facts.into_iter().flatten().collect();
            format!("\n- `{}`: {result} ({})", check.name, facts.join(", "))
        });
        let lines: String = lines.collect();
        let failed = last.iter().rfind(|check| check.result == CheckResult::Failed);
        let output = failed.filter(|check| !check.output.trim().is_empty());
        let output = output.map(|check| self.quoted(("Output", "出力"), &check.output));
        let title = self.0.either("### Checks", "### チェック");
        format!("\n\n{title}\n{lines}{}", output.unwrap_or_default())
    }

    /// Returns the comment that the task was put aside.
    pub fn put_aside(
        self,
        work_state: WorkState,
        reason: Option<&str>,
        work: Option<&Execution>,
        at: Timestamp,
    ) -> String {
        let (title, text) = match work_state {
            WorkState::Failed => self.0.either(
                ("## ❌ Task failed", "The agent reported failure."),
                ("## ❌ タスク失敗", "エージェントが失敗を報告しました。"),
            ),
            WorkState::Blocked | WorkState::Processing => self.0.either(
                ("## 🚧 Task blocked", "The task can't go on by itself."),
                ("## 🚧 タスクブロック", "タスクを続行できません。"),
            ),
        };
        let again = self.0.either(
            "To try again, add the bot's label again; to end it, unassign the bot.",
            "再試行するにはボットのラベルを再度付けてください。終了するにはボットのアサインを解除してください。",
        );
        let said = work.and_then(|work| work.summary.as_deref());
        let reason = reason.filter(|reason| Some(*reason) != said);
        let reason =
            reason.map_or_else(String::new, |reason| self.quoted(("Reason", "理由"), reason));
        let time = self.line(("Since", "発生時刻"), &at.to_string());
        format!("{title}\n\n{text}\n\n{time}{reason}{}\n\n{again}", self.report(work))
    }

    /// Returns the comment that the work on it was stopped.
    pub fn stopped(self, cause: StopCause, work: Option<&Execution>, at: Timestamp) -> String {
        let title = self.0.either("## ⛔ Task stopped", "## ⛔ タスク停止");
        let text = match cause {
            StopCause::Unassigned => self.0.either(
                "The bot was unassigned, so the task was stopped.",
                "アサインが解除されたため、タスクを停止しました。",
            ),
            StopCause::Unlabelled => self.0.either(
                "The bot's labels were removed, so the task was stopped.",
                "ボットのラベルが外されたため、タスクを停止しました。",
            ),
            StopCause::Closed => self.0.either(
                "This was closed, so the task was stopped.",
                "クローズされたため、タスクを停止しました。",
            ),
            StopCause::Gone => self.0.either(
                "This is gone, so the task was stopped.",
                "見つからなくなったため、タスクを停止しました。",
            ),
            StopCause::Moved => self.0.either(
                "This was moved, so the task was stopped.",
                "移動されたため、タスクを停止しました。",
            ),
            StopCause::Cancelled => self.0.either(
                "The task was cancelled, so it was stopped.",
                "取り消されたため、タスクを停止しました。",
            ),
        };
        self.ended(title, text, work, at)
    }

    /// Returns the comment that it was paused for too long.
    pub fn expired(self, work: Option<&Execution>, at: Timestamp) -> String {
        let title = self.0.either("## ⛔ Task expired", "## ⛔ タスク期限切れ");
        let text = self.0.either(
            "The task was paused for too long and will not be resumed.",
            "一時停止の期限が過ぎたため、タスクを終了しました。",
        );
        self.ended(title, text, work, at)
    }

    fn ended(self, title: &str, text: &str, work: Option<&Execution>, at: Timestamp) -> String {
        let again = self.0.either(
            "To start it again as a new task, assign the bot again and add its label.",
            "新しいタスクとして再開するには、ボットを再度アサインし、ラベルを付けてください。",
        );
        let time = self.line(("Stopped", "停止時刻"), &at.to_string());
        format!("{title}\n\n{text}\n\n{time}{}\n\n{again}", self.progress(work))
    }

    /// Returns the comment that the pause file is present.
    pub fn paused(self, work: Option<&Execution>, at: Timestamp) -> String {
        let title = self.0.either("## ⏸️ Task paused", "## ⏸️ タスク一時停止");
        let text = self.0.either(
            "The task was paused for maintenance. It is resumed by itself.",
            "メンテナンスのため、タスクを一時停止しました。自動的に再開されます。",
        );
        let time = self.line(("Paused", "停止時刻"), &at.to_string());
        format!("{title}\n\n{text}\n\n{time}{}", self.progress(work))
    }

    /// Returns the comment that the work continues.
    pub fn resumed(self, at: Timestamp) -> String {
        let title = self.0.either("## ▶️ Task resumed", "## ▶️ タスク再開");
        let text = self
            .0
            .either("The task goes on where it was paused.", "一時停止したタスクを再開します。");
        format!("{title}\n\n{text}\n\n{}", self.line(("Resumed", "再開時刻"), &at.to_string()))
    }

    /// Returns the text of a pull or merge request for the result of an item. If it `closes` an
    /// issue, the forge closes the issue with the merge.
    pub fn request(
        self,
        item: &ItemKey,
        work: Option<&Execution>,
        is_draft: bool,
        closes: bool,
    ) -> String {
        let text = self.0.either(
            "A coding agent made this. Please check it before you merge it.",
            "コーディングエージェントによる変更です。マージする前に確認してください。",
        );
        let ready = if is_draft {
            ""
        } else {
            self.0.either(
                "\n\nThis repository has no drafts, so it is not marked as one.",
                "\n\nこのリポジトリではドラフトを利用できないため、通常のリクエストとして作成しました。",
            )
        };
        let mark = if item.kind == ItemKind::MergeRequest { '!' } else { '#' };
        let refers = match item.kind {
            // Forges know the word in English only.
            ItemKind::Issue if closes => "Closes",
            _ => self.0.either("Refs", "関連:"),
        };
        format!("{refers} {mark}{}\n\n{text}{ready}{}", item.number, self.report(work))
    }

    /// Returns the part of the last comment that names the result at the forge.
    pub fn published(self, forge: ForgeKind, publication: &Publication) -> String {
        let title = self.0.either("### Result", "### 成果");
        let mut lines = Vec::new();
        if let Some(request) = &publication.request {
            let word = match forge {
                ForgeKind::GitHub => ("Draft pull request", "ドラフトプルリクエスト"),
                ForgeKind::GitLab => ("Draft merge request", "ドラフトマージリクエスト"),
            };
            lines.push(self.line(word, &request.url));
        }
        if let Some(request) = &publication.foreign_request {
            let word = (
                "No draft was opened, because another account has opened a request for the branch",
                "他のアカウントがこのブランチのリクエストを作成済みのため、ドラフトは作成していません",
            );
            lines.push(self.line(word, &request.url));
        }
        let is_on_request = publication.is_on_request();
        if let Some(branch) = &publication.pushed {
            let word = if is_on_request {
                ("Pushed to this branch", "プッシュ先のブランチ")
            } else {
                ("Branch", "ブランチ")
            };
            lines.push(self.line(word, &code(branch)));
        }
        let pushed = publication.pushed.as_ref().filter(|_| !is_on_request);
        if let Some((branch, _)) = publication.push_to.as_ref().zip(pushed) {
            let left = self.0.either(
                "is protected, has newer commits or refused the push, so it was left as it is.",
                "は保護されているか、新しいコミットがあるか、プッシュを拒否したため、変更していません。",
            );
            lines.push(format!("- {} {left}", code(branch)));
        }
        let is_renamed = publication.result.as_ref().zip(pushed);
        if let Some((result, _)) = is_renamed.filter(|(result, pushed)| result.branch != **pushed) {
            let taken = self
                .0
                .either("has the commits of another author.", "には他の作者のコミットがあります。");
            lines.push(format!("- `{}` {taken}", result.branch));
        }
        if let Some(problem) = &publication.problem {
            let text = self.0.either(
                "The result could not be published. It is kept at the coordinator.",
                "成果を公開できませんでした。コーディネーターに保存されています。",
            );
            return format!(
                "\n\n{title}\n\n{text}{}",
                self.quoted(("Message", "メッセージ"), problem)
            );
        }
        if lines.is_empty() {
            let nothing = self.0.either(
                "The work has no commit, so nothing was published.",
                "コミットがないため、公開するものはありません。",
            );
            lines.push(nothing.to_owned());
        }
        format!("\n\n{title}\n\n{}", lines.join("\n"))
    }

    fn line(self, word: (&'static str, &'static str), value: &str) -> String {
        format!("- {}: {value}", self.0.either(word.0, word.1))
    }

    /// Returns the last report of the agent.
    fn report(self, work: Option<&Execution>) -> String {
        let Some(work) = work else {
            return String::new();
        };
        let summary = work.summary.as_deref().map(|text| self.quoted(("Summary", "概要"), text));
        let next = work
            .next_steps
            .as_deref()
            .map(|text| self.quoted(("Next steps", "次のステップ"), text));
        [summary, next].into_iter().flatten().collect()
    }

    /// Returns the progress of the agent, as far as it saved it.
    fn progress(self, work: Option<&Execution>) -> String {
        let Some(work) = work else {
            return String::new();
        };
        let progress = work.summary.as_deref().or(work.progress.as_deref());
        let progress = progress.map(|text| self.quoted(("Progress", "進捗"), text));
        let next = work
            .next_steps
            .as_deref()
            .map(|text| self.quoted(("Next steps", "次のステップ"), text));
        [progress, next].into_iter().flatten().collect()
    }

    fn quoted(self, word: (&'static str, &'static str), text: &str) -> String {
        let is_cut = text.chars().nth(MAX_QUOTED).is_some();
        let kept: String = text.chars().take(MAX_QUOTED).collect();
        let kept = format!("{}{}", kept.trim(), if is_cut { " …" } else { "" });
        format!("\n\n### {}\n\n{}", self.0.either(word.0, word.1), harmless(&kept))
    }
}

/// Returns a name of people as code. A backtick would end it.
fn code(name: &str) -> String {
    format!("`{}`", name.replace('`', "'"))
}

fn duration(took: Duration) -> String {
    let took = took.as_secs();
    let hours = took / 3_600;
    let minutes = took / 60 % 60;
    let seconds = took % 60;
    match (hours, minutes) {
        (0, 0) => format!("{seconds} s"),
        (0, _) => format!("{minutes} min {seconds} s"),
        _ => format!("{hours} h {minutes} min"),
    }
}
