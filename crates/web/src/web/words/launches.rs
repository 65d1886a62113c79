//! The texts about the life of a launch.

use jiff::civil::Date;

use super::Words;
use domain::launch::{ExitStatus, ReportResult, StopReason, TimeLimit};
use domain::machine::Machine;
use domain::{FailureClass, Language, Launch, Outcome, Purpose};

impl Words {
    /// Returns the text for the state of a launch.
    pub(in crate::web) fn of_state<'a>(&'a self, state: &'a str) -> &'a str {
        match state {
            "starting" => self.starting,
            "running" => self.running,
            "stopping" => self.stopping,
            "ending" => self.ending,
            "ended" => self.ended,
            other => other,
        }
    }

    pub(in crate::web) const fn of_purpose(&self, purpose: Purpose) -> &'static str {
        let (english, japanese) = match purpose {
            Purpose::Task => ("Task", "タスク"),
            Purpose::Chat => ("Chat", "チャット"),
            Purpose::Check => ("Check", "チェック"),
        };
        self.language.either(english, japanese)
    }

    /// Returns the text for the class of a failure.
    pub(in crate::web) const fn of_failure(&self, class: FailureClass) -> &'static str {
        match class {
            FailureClass::Auth => self.not_logged_in,
            FailureClass::Quota => self.usage_limit,
            FailureClass::Overload => self.language.either("Overloaded", "過負荷"),
            FailureClass::Config => self.language.either("Configuration", "設定の誤り"),
            FailureClass::Crash => self.language.either("Crashed", "異常終了"),
        }
    }

    /// Returns the text for the outcome of a launch with this purpose, with its reason.
    pub(in crate::web) fn of_outcome(&self, outcome: &Outcome, purpose: Purpose) -> String {
        outcome.told(purpose, self.language)
    }

    /// Returns the mark for the end of a launch. Only one whose login failed was not logged in.
    pub(in crate::web) fn of_end(
        &self,
        launch: &Launch,
        outcome: &Outcome,
        stopped_by: Option<&str>,
    ) -> String {
        let failure = launch.activity.failure.map(|failure| failure.class);
        match (outcome, failure, stopped_by) {
            (Outcome::NeverAuthenticated, Some(FailureClass::Auth), _) => {
                self.of_failure(FailureClass::Auth).to_owned()
            }
            (Outcome::Stopped(StopReason::Person), _, Some(person)) => match self.language {
                Language::English => format!("Stopped by {person}"),
                Language::Japanese => format!("{person} が停止"),
            },
            (Outcome::StartFailed(_), ..) => {
                outcome.mark(launch.key.purpose, self.language).to_owned()
            }
            _ => self.of_outcome(outcome, launch.key.purpose),
        }
    }

    /// Returns the line below the title of a launch that ended: its reason. `summary` is what its
    /// agent said of its work.
    pub(in crate::web) fn of_end_reason(
        &self,
        launch: &Launch,
        outcome: &Outcome,
        summary: Option<&str>,
    ) -> Option<String> {
        let last_line = launch.activity.progress.as_deref().filter(|line| says_something(line));
        // It may be Markdown, and a list shows plain text.
        let plain = last_line.map(|line| line.replace("**", "").replace('`', ""));
        let quoted = plain.map(|line| match self.language {
            Language::English => format!("“{line}”"),
            Language::Japanese => format!("「{line}」"),
        });
        match outcome {
            Outcome::Completed | Outcome::Stopped(_) => None,
            Outcome::Blocked | Outcome::Failed => summary.map(str::to_owned).or(quoted),
            Outcome::StartFailed(reason) => self.is_english().then(|| reason.clone()),
            Outcome::TimedOut(limit) => Some(self.of_time_limit(*limit).to_owned()),
            Outcome::Lost => quoted,
            Outcome::ExitedWithoutReport | Outcome::NeverAuthenticated => {
                match (self.of_exit(launch.exit), quoted) {
                    (Some(exit), Some(line)) => Some(format!("{exit}: {line}")),
                    (exit, line) => exit.or(line),
                }
            }
        }
    }

    /// Returns the text for the exit of a process; `None` if it is not known.
    pub(in crate::web) fn of_exit(&self, exit: ExitStatus) -> Option<String> {
        let english = self.language == Language::English;
        match (exit.exit_code, exit.signal) {
            (Some(code), _) if english => Some(format!("Exited with code {code}")),
            (Some(code), _) => Some(format!("終了コード {code}")),
            (None, Some(signal)) if english => Some(format!("Ended by signal {signal}")),
            (None, Some(signal)) => Some(format!("シグナル {signal} で終了")),
            (None, None) => None,
        }
    }

    /// Returns the text for a process and its machine, if that is known.
    pub(in crate::web) fn of_process(&self, pid: i32, machine: Option<&Machine>) -> String {
        let Some(Machine { name, .. }) = machine else { return format!("pid {pid}") };
        match self.language {
            Language::English => format!("pid {pid} on {name}"),
            Language::Japanese => format!("pid {pid}（{name}）"),
        }
    }

    /// Returns what a list without launches is for.
    pub(in crate::web) fn what_launches_are(&self) -> &'static str {
        self.language.either(
            "Each start of an agent is listed here: for a task in progress, or for a chat.",
            "タスクを進行中にするかチャットを開くと、エージェントが起動します。起動はすべてここに表示されます。",
        )
    }

    /// Returns the note under the longest list of launches.
    pub(in crate::web) fn of_newest_launches(&self, n: usize) -> String {
        match self.language {
            Language::English => {
                format!("These are the newest {n} that ended. A filter finds earlier ones.")
            }
            Language::Japanese => {
                format!("終了したもののうち最新の {n} 件です。それより前は絞り込みで表示できます。")
            }
        }
    }

    /// Returns the outcomes without their details, each with its marks.
    pub(in crate::web) fn outcome_texts(&self) -> Vec<(&'static str, String)> {
        let both = |one: &str, other: &str| format!("{one} {other}");
        let person = Outcome::Stopped(StopReason::Person);
        let late = Outcome::TimedOut(TimeLimit::RunMaximum);
        let silent = Outcome::TimedOut(TimeLimit::Silence);
        let unknown = Outcome::NeverAuthenticated;
        let mark = |outcome: &Outcome| outcome.mark(Purpose::Task, self.language).to_owned();
        let one = |outcome: Outcome| (outcome.as_str(), mark(&outcome));
        vec![
            one(Outcome::Completed),
            one(Outcome::Blocked),
            one(Outcome::Failed),
            one(Outcome::ExitedWithoutReport),
            one(Outcome::StartFailed(String::new())),
            one(Outcome::Lost),
            one(person),
            (late.as_str(), both(&mark(&late), &mark(&silent))),
            (unknown.as_str(), both(&mark(&unknown), self.of_failure(FailureClass::Auth))),
        ]
    }

    /// Returns the text for a span of time up to now.
    pub(in crate::web) fn of_span(&self, name: &str) -> &'static str {
        let (english, japanese) = match name {
            "day" => ("Last 24 hours", "過去 24 時間"),
            "week" => ("Last 7 days", "過去 7 日間"),
            _ => ("Last 30 days", "過去 30 日間"),
        };
        self.language.either(english, japanese)
    }

    /// Returns the figures of the list of launches.
    pub(in crate::web) fn of_figures(
        &self,
        n_running: usize,
        n_today: usize,
        cost: Option<&str>,
    ) -> String {
        let figures = match self.language {
            Language::English => format!("{n_running} running, {n_today} today"),
            Language::Japanese => format!("実行中 {n_running} 件、今日 {n_today} 件"),
        };
        match cost {
            Some(cost) => figures + self.language.either(", ", "、") + cost,
            None => figures,
        }
    }

    /// Returns the heading of the launches that go on.
    pub(in crate::web) fn of_running_group(&self, n_running: usize) -> String {
        format!("{} · {n_running}", self.running_figure)
    }

    /// Returns the cost of a project today.
    pub(in crate::web) fn of_spent_today(&self, cost: &str) -> String {
        match self.language {
            Language::English => format!("Today {cost}"),
            Language::Japanese => format!("今日 {cost}"),
        }
    }

    /// Returns what "today" is in a time zone.
    pub(in crate::web) fn of_since_midnight(&self, zone: &str) -> String {
        match self.language {
            Language::English => format!("Since midnight ({zone})"),
            Language::Japanese => format!("0 時から（{zone}）"),
        }
    }

    /// Returns the heading of the launches of a day. `today` is in the same time zone.
    pub(in crate::web) fn of_day_group(
        &self,
        day: Date,
        today: Date,
        n_launches: usize,
        n_bad: usize,
    ) -> String {
        let day = self.of_day(day, today);
        match (self.language, n_bad) {
            (_, 0) => format!("{day} · {n_launches}"),
            (Language::English, _) => {
                format!("{day} · {n_launches}, of which {n_bad} ended badly")
            }
            (Language::Japanese, _) => {
                format!("{day} · {n_launches} 件（うち問題あり {n_bad} 件）")
            }
        }
    }

    fn of_day(&self, day: Date, today: Date) -> String {
        if day == today {
            return self.today.to_owned();
        }
        if today.yesterday().is_ok_and(|yesterday| day == yesterday) {
            return self.language.either("Yesterday", "昨日").to_owned();
        }
        let (english, japanese) = if day.year() == today.year() {
            ("%A, %-d %B", "%-m 月 %-d 日")
        } else {
            ("%A, %-d %B %Y", "%Y 年 %-m 月 %-d 日")
        };
        day.strftime(self.language.either(english, japanese)).to_string()
    }

    /// Returns the name of a launch: its agent, and its task or its project.
    pub(in crate::web) fn of_work_on(&self, agent: &str, purpose: Purpose, on: &str) -> String {
        match (self.language, purpose) {
            (Language::English, Purpose::Chat) => format!("{agent} in {on}"),
            (Language::English, _) => format!("{agent} on {on}"),
            (Language::Japanese, _) => format!("{agent} · {on}"),
        }
    }

    /// Returns the kind of a launch: its provider and its purpose.
    pub(in crate::web) fn of_kind(&self, ai_type: &str, purpose: Purpose) -> String {
        match (self.language, purpose) {
            (Language::English, Purpose::Task) => format!("{ai_type}, for a task"),
            (Language::English, Purpose::Chat) => format!("{ai_type}, for a chat"),
            (Language::English, Purpose::Check) => format!("{ai_type}, for checks"),
            (Language::Japanese, _) => format!("{ai_type}（用途: {}）", self.of_purpose(purpose)),
        }
    }

    /// Returns the number of lines of a result.
    pub(in crate::web) fn of_lines(&self, n_lines: usize) -> String {
        match self.language {
            Language::English if n_lines == 1 => "1 line".to_owned(),
            Language::English => format!("{n_lines} lines"),
            Language::Japanese => format!("{n_lines} 行"),
        }
    }

    /// Returns what a tool does, in one word; the name of a tool that is not known.
    pub(in crate::web) fn of_tool<'a>(&self, tool: &'a str) -> &'a str {
        ToolDeed::of(tool).map_or(tool, |deed| deed.texts(self.language).0)
    }

    /// Returns the line about what an agent does now: `Running cargo test` for `Bash: cargo test`.
    /// `None` if the line says nothing about that.
    pub(in crate::web) fn of_activity(&self, line: &str) -> Option<String> {
        if !says_something(line) {
            return None;
        }
        let known =
            line.split_once(": ").and_then(|(tool, what)| Some((ToolDeed::of(tool)?, what)));
        let Some((deed, what)) = known else {
            return Some(line.to_owned());
        };
        let doing = deed.texts(self.language).1;
        Some(match self.language {
            Language::English => format!("{doing} {what}"),
            Language::Japanese => format!("{what} {doing}"),
        })
    }

    /// Returns the text for the reason to end an agent.
    pub(in crate::web) const fn of_stop_reason(&self, reason: StopReason) -> &'static str {
        reason.told(self.language)
    }

    const fn of_time_limit(&self, limit: TimeLimit) -> &'static str {
        let (english, japanese) = match limit {
            TimeLimit::SessionIdle => ("Its session made no call", "セッションの無操作"),
            TimeLimit::SessionMaximum => ("Its session was too old", "セッション時間の上限"),
            TimeLimit::RunMaximum => ("It ran for too long", "実行時間の上限"),
            TimeLimit::Check => ("The check ran for too long", "チェックの実行時間の上限"),
            TimeLimit::Silence => ("It was silent for too long", "無応答の上限"),
        };
        self.language.either(english, japanese)
    }

    /// Returns the text for the result that an agent reported.
    pub(in crate::web) const fn of_report(&self, result: ReportResult) -> &'static str {
        let (english, japanese) = match result {
            ReportResult::Success => ("success", "成功"),
            ReportResult::Failed => ("failed", "失敗"),
            ReportResult::Blocked => ("blocked", "ブロック"),
        };
        self.language.either(english, japanese)
    }
}

/// The deeds of tools that have the same word for all providers.
#[derive(Debug, Clone, Copy)]
enum ToolDeed {
    Read,
    Edit,
    Run,
    Search,
    Browse,
    UpdateTask,
    Ask,
}

impl ToolDeed {
    /// Returns the deed of a tool by the name that its provider gave it.
    fn of(tool: &str) -> Option<Self> {
        Some(match tool {
            "Read" | "read" | "read_file" | "read_many_files" | "view" | "NotebookRead" => {
                Self::Read
            }
            "Edit" | "MultiEdit" | "Write" | "NotebookEdit" | "edit" | "write" | "write_file"
            | "replace" | "create" | "str_replace" | "apply_patch" | "patch" => Self::Edit,
            "Bash" | "bash" | "shell" | "run_shell_command" | "exec" => Self::Run,
            "Grep"
            | "Glob"
            | "LS"
            | "grep"
            | "glob"
            | "ls"
            | "list"
            | "search_file_content"
            | "list_directory" => Self::Search,
            "WebFetch" | "WebSearch" | "web search" | "web_fetch" | "webfetch"
            | "google_web_search" => Self::Browse,
            "coordinator.update_task_status" => Self::UpdateTask,
            "AskUserQuestion" | "coordinator.ask_question" => Self::Ask,
            _ => return None,
        })
    }

    /// Returns the name of the deed, and the word for doing it now.
    const fn texts(self, language: Language) -> (&'static str, &'static str) {
        let (english, japanese) = match self {
            Self::Read => (("Read", "Reading"), ("読み取り", "を読み取り中")),
            Self::Edit => (("Edit", "Editing"), ("編集", "を編集中")),
            Self::Run => (("Run", "Running"), ("実行", "を実行中")),
            Self::Search => (("Search", "Searching for"), ("検索", "を検索中")),
            Self::Browse => (("Browse", "Looking up"), ("閲覧", "を閲覧中")),
            Self::UpdateTask => (("Update task", "Updating"), ("タスク更新", "を更新中")),
            Self::Ask => (("Ask", "Asking"), ("質問", "を質問中")),
        };
        language.either(english, japanese)
    }
}

/// Returns whether a line of output says more than that the program began.
fn says_something(line: &str) -> bool {
    !line.starts_with("started with ")
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use domain::{Activity, InstanceKey, Timestamp};

    fn launch(purpose: Purpose, failure: Option<FailureClass>, line: Option<&str>) -> Launch {
        let id = |text: &str| text.to_owned();
        let key = InstanceKey::new(
            id("agt").parse().expect("an id"),
            id("prj").parse().expect("an id"),
            purpose,
        );
        let at = Timestamp::from_millis(1);
        let activity = Activity {
            failure: failure.map(Into::into),
            progress: line.map(str::to_owned),
            ..Activity::default()
        };
        let exit = ExitStatus { exit_code: Some(3), signal: None };
        let launch = Launch::claimed("lch".parse().expect("an id"), key, id("plain"), at, at);
        Launch { exit, activity, ..launch }
    }

    #[track_caller]
    fn check(launch: &Launch, outcome: &Outcome, english: &str, japanese: &str) {
        let text = |language| Words::of(language).of_end(launch, outcome, None);
        assert_eq!(
            (text(Language::English), text(Language::Japanese)),
            (english.into(), japanese.into())
        );
    }

    #[test]
    fn each_end_has_a_mark_in_both_languages() {
        let task = launch(Purpose::Task, Some(FailureClass::Crash), None);
        let check_task = |outcome, english, japanese| check(&task, &outcome, english, japanese);
        check_task(Outcome::Completed, "Done", "完了");
        check_task(Outcome::Blocked, "Blocked", "ブロック");
        check_task(Outcome::Failed, "Failed", "失敗");
        check_task(Outcome::ExitedWithoutReport, "No report", "報告なし");
        check_task(Outcome::Stopped(StopReason::Person), "Stopped by a person", "人が停止");
        let shutdown = Outcome::Stopped(StopReason::Shutdown);
        check_task(shutdown, "Stopped: shutdown", "停止: シャットダウン");
        check_task(Outcome::StartFailed("no program".to_owned()), "Didn't start", "起動失敗");
        check_task(Outcome::TimedOut(TimeLimit::RunMaximum), "Took too long", "時間超過");
        check_task(Outcome::TimedOut(TimeLimit::Silence), "Was silent too long", "無応答");
        check_task(Outcome::Lost, "Lost", "消失");
        let chat = launch(Purpose::Chat, None, None);
        check(&chat, &Outcome::Completed, "Chat ended", "チャット終了");
    }

    #[test]
    fn only_a_failed_login_is_called_not_logged_in() {
        let outcome = Outcome::NeverAuthenticated;
        let crashed = launch(Purpose::Task, Some(FailureClass::Crash), None);
        check(&crashed, &outcome, "Didn't authenticate", "認証なし");
        let refused = launch(Purpose::Task, Some(FailureClass::Auth), None);
        check(&refused, &outcome, "Not logged in", "未ログイン");
    }

    #[test]
    fn a_stop_names_the_person() {
        let launch = launch(Purpose::Task, None, None);
        let outcome = Outcome::Stopped(StopReason::Person);
        let text = |language| Words::of(language).of_end(&launch, &outcome, Some("Ann"));
        assert_eq!(text(Language::English), "Stopped by Ann");
        assert_eq!(text(Language::Japanese), "Ann が停止");
    }

    #[test]
    fn a_bad_end_has_its_reason_and_a_good_one_needs_none() {
        let w = Words::of(Language::English);
        let reason = |line, outcome: &Outcome| {
            w.of_end_reason(&launch(Purpose::Task, None, line), outcome, Some("Node is old."))
        };
        let line = Some("connection reset");
        let expected = Some("Exited with code 3: “connection reset”".to_owned());
        assert_eq!(reason(line, &Outcome::ExitedWithoutReport), expected);
        let begun = Some("started with claude-x");
        let expected = Some("Exited with code 3".to_owned());
        assert_eq!(reason(begun, &Outcome::NeverAuthenticated), expected);
        assert_eq!(reason(line, &Outcome::Failed).as_deref(), Some("Node is old."));
        assert_eq!(reason(line, &Outcome::Completed), None);
        assert_eq!(reason(begun, &Outcome::Lost), None);
    }

    #[test]
    fn a_tool_call_is_shown_as_what_it_does() {
        let text = |language, line| Words::of(language).of_activity(line);
        let english = |line| text(Language::English, line);
        assert_eq!(english("Bash: cargo test").as_deref(), Some("Running cargo test"));
        assert_eq!(english("coordinator.get_my_task").as_deref(), Some("coordinator.get_my_task"));
        assert_eq!(english("started with claude-x"), None);
        let japanese = text(Language::Japanese, "Edit: src/a.rs");
        assert_eq!(japanese.as_deref(), Some("src/a.rs を編集中"));
    }

    #[test]
    fn days_are_named_in_the_language_of_the_page() {
        let today = date(2026, 11, 26);
        let text = |language, day, n_bad| Words::of(language).of_day_group(day, today, 34, n_bad);
        let english = |day, n_bad| text(Language::English, day, n_bad);
        assert_eq!(english(today, 4), "Today · 34, of which 4 ended badly");
        assert_eq!(english(date(2026, 11, 25), 0), "Yesterday · 34");
        assert_eq!(english(date(2026, 11, 2), 0), "Monday, 2 November · 34");
        assert_eq!(english(date(2025, 1, 2), 0), "Thursday, 2 January 2025 · 34");
        let japanese = text(Language::Japanese, today, 4);
        assert_eq!(japanese, "今日 · 34 件（うち問題あり 4 件）");
    }
}
