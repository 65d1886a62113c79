//! The texts of the pages in English and Japanese, side by side so that neither is forgotten.

use crate::domain::check::CheckResult;
use crate::domain::launch::{ReportResult, StopReason, TimeLimit};
use crate::domain::start_history::StartReason;
use crate::domain::store_state::{Spread, span};
use crate::domain::workspace::{WorkspaceMode, WorkspaceState};
use crate::domain::{Language, Outcome, Priority, TaskStatus};

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident: $english:literal, $japanese:literal;)+) => {
        /// The texts of one language.
        #[derive(Debug)]
        pub(super) struct Words {
            pub(super) language: Language,
            $($(#[$doc])* pub(super) $name: &'static str,)+
        }

        static ENGLISH: Words = Words { language: Language::English, $($name: $english,)+ };
        static JAPANESE: Words = Words { language: Language::Japanese, $($name: $japanese,)+ };
    };
}

texts! {
    projects: "Projects", "プロジェクト";
    agents: "Agents", "エージェント";
    launches: "Launches", "起動履歴";
    coordinator: "Coordinator", "コーディネーター";
    settings: "Settings", "設定";
    skip_to_content: "Skip to content", "本文へ移動";
    navigation: "Navigation", "ナビゲーション";
    live: "Live", "接続中";
    reconnecting: "Reconnecting…", "再接続中…";
    theme: "Light or dark", "明暗を切り替える";
    other_language: "日本語", "English";
    log_out: "Log out", "ログアウト";
    signed_in_as: "Signed in as", "ログイン中:";
    viewer_note: "You may look, but not change anything.", "閲覧のみ可能です。";

    new_project: "New project", "プロジェクトを作成";
    edit_project: "Edit project", "プロジェクトを編集";
    no_projects: "There is no project yet. A project is a name for a folder that agents work in.", "プロジェクトがまだありません。プロジェクトは、エージェントが作業するフォルダーに名前を付けたものです。";
    working_directory: "Working directory", "作業ディレクトリ";
    working_directory_hint: "An absolute path on the machine of the coordinator. It is never created.", "コーディネーターのマシン上の絶対パス。自動では作成されません。";
    id: "Id", "ID";
    id_hint: "Letters, digits, . _ - ; leave it empty to have one made.", "英数字と . _ - が使えます。空欄なら自動で付けます。";
    name: "Name", "名前";
    status: "Status", "状態";
    active: "Active", "有効";
    inactive: "Inactive", "無効";
    archived: "Archived", "アーカイブ済み";
    save: "Save", "保存";
    create: "Create", "作成";
    cancel: "Cancel", "キャンセル";
    close: "Close", "閉じる";
    edit: "Edit", "編集";
    open_tasks: "open tasks", "未完了タスク";
    running_now: "running", "実行中";
    assigned_agents: "Assigned agents", "割り当て済みエージェント";
    assign: "Assign", "割り当てる";
    unassign: "Unassign", "割り当て解除";
    nobody_assigned: "No agent is assigned yet.", "エージェントがまだ割り当てられていません。";
    all_assigned: "All agents are assigned.", "すべてのエージェントが割り当て済みです。";

    board: "Task board", "タスクボード";
    new_task: "New task", "タスクを作成";
    no_tasks: "No tasks yet. Make one, assign it to an agent, and move it to “In progress”: the agent starts.", "タスクがまだありません。作成してエージェントに割り当て、「進行中」に移すとエージェントが起動します。";
    board_help: "Drag a card, or focus it and press Shift with an arrow key, to change its state. Enter opens it.", "カードをドラッグするか、フォーカスして Shift+矢印キーを押すと状態が変わります。Enter で開きます。";
    nothing_here: "Nothing here.", "ありません。";
    more: "Show more", "さらに表示";
    title: "Title", "タイトル";
    description: "Description", "説明";
    assignee: "Assignee", "担当";
    nobody: "no one", "なし";
    priority: "Priority", "優先度";
    subtasks: "Subtasks", "サブタスク";
    part_of: "part of", "親タスク:";
    dependencies: "Waits for", "依存タスク";
    dependencies_hint: "Ids of tasks that must be done first, separated by spaces.", "先に完了すべきタスクのID（空白区切り）。";
    waits_for: "waits for", "依存:";
    checks: "Checks", "チェック";
    being_checked: "Its agent reported success. The checks run since", "エージェントは成功を報告しました。チェック実行中、開始:";
    check_running: "running", "実行中";
    check_passed: "passed", "合格";
    check_failed: "failed", "不合格";
    check_not_run: "could not be run", "実行できず";
    starts_after: "starts after", "完了後に開始:";
    starts_by_itself: "It starts when all of these are done.", "以下がすべて完了すると自動的に開始します。";
    waits_for_cancelled: "A task that it waits for was cancelled. Reopen that task, or change the dependencies.", "依存タスクが取り消されました。そのタスクを再開するか、依存タスクを変更してください。";
    blocked_because: "Blocked:", "ブロック理由:";
    reason: "Reason", "理由";
    move_to: "Move to", "移動";
    work_so_far: "Work so far", "これまでの作業";
    no_work_yet: "No agent has worked on it yet.", "まだ誰も作業していません。";
    since: "since", "開始:";
    next_steps: "Next steps", "次のステップ";
    backlog: "Backlog", "バックログ";
    todo: "To do", "未着手";
    in_progress: "In progress", "進行中";
    blocked: "Blocked", "ブロック中";
    done: "Done", "完了";
    cancelled: "Cancelled", "取り消し";
    low: "low", "低";
    medium: "medium", "中";
    high: "high", "高";
    urgent: "urgent", "緊急";

    changes: "Changes", "変更";
    workspace: "Where agents work", "エージェントの作業場所";
    workspace_hint: "Clones need a git repository. The choice cannot be changed later.", "クローンには git リポジトリが必要です。後から変更できません。";
    merged: "Merged", "マージ済み";
    discarded: "Discarded", "破棄済み";
    from_base: "from", "元:";
    merge: "Merge", "マージ";
    merge_squash: "Merge all in one commit", "1つのコミットにまとめてマージ";
    merge_open_sure: "The task is still open. Merge what it has until now?", "タスクは未完了です。現時点の結果をマージしますか？";
    with_uncommitted: "with what is not committed", "未コミットの変更も含める";
    discard_result: "Discard…", "破棄…";
    discard_sure: "Discard this result? It is hidden, and its files are removed when the task is closed. The commits are kept.", "この結果を破棄しますか？ 非表示になり、タスクの終了後にファイルを削除します。コミットは保持されます。";
    keep_result: "Keep", "破棄を取り消す";
    try_again: "Try again", "再試行";
    not_committed: "Not committed", "未コミットの変更";
    no_changes: "Nothing has changed yet.", "まだ変更はありません。";
    no_diff: "The changes cannot be shown now:", "変更を表示できません:";
    diff_of: "Changes of", "変更内容:";
    diff_cut: "The changes are too long to be shown completely. On the command line:", "変更が長すぎるため、一部のみ表示しています。コマンドライン:";
    no_newline: "No newline at the end of the file", "ファイル末尾に改行がありません";
    file_new: "new", "新規";
    file_deleted: "deleted", "削除";
    file_renamed: "renamed", "名前変更";
    file_copied: "copied", "コピー";
    file_binary: "binary", "バイナリー";
    left_out: "These files could not be kept, so the workspace is not removed:", "次のファイルは保存できないため、作業場所は削除されません:";
    workspace_in_use_hint: "An agent works here now. You can merge when it has ended.", "エージェントが作業中です。終了後にマージできます。";
    merge_conflict_hint: "Nothing was changed. Make a follow-up task in which the agent merges the branch, or merge by hand.", "何も変更していません。エージェントにブランチをマージさせる後続タスクを作成するか、手動でマージしてください。";
    merge_in_the_way_hint: "No file was changed. Commit or stash the files that git names, then merge again.", "ファイルは変更していません。git が示すファイルをコミットまたは退避してから、もう一度マージしてください。";
    merge_stale: "The result has changed since you saw it. Look at the changes below, then merge again.", "表示後に結果が変わりました。下の変更を確認してから、もう一度マージしてください。";
    nothing_to_merge: "There is nothing to merge: the task has no commit.", "マージするものがありません: コミットがありません。";
    nothing_to_merge_hint: "Choose to merge with what is not committed, or let the agent commit its work.", "未コミットの変更も含めるか、エージェントにコミットさせてください。";

    chat_with: "Chat with", "チャット:";
    preparing: "Preparing...", "準備中...";
    send: "Send", "送信";
    message: "Message", "メッセージ";
    message_hint: "Ctrl+Enter sends.", "Ctrl+Enter で送信します。";
    discard: "Discard what you have written?", "入力内容を破棄しますか？";
    save_again: "Save once more to replace that.", "もう一度保存すると上書きします。";
    held: "stopped by a person", "人が停止しました";
    no_messages: "Say something. The agent is started if it is not there.", "メッセージを書いてください。その間にエージェントを起動します。";
    earlier: "Earlier messages", "以前のメッセージ";
    agent_gone: "The agent is not there. Your next message starts it again.", "エージェントは停止しました。次のメッセージで再起動します。";
    chat_waits: "It waits:", "待機中:";
    you: "Person", "ユーザー";
    not_sent: "Not sent yet; it is tried again.", "未送信です。再試行します。";

    new_agent: "New agent", "エージェントを作成";
    edit_agent: "Edit agent", "エージェントを編集";
    no_agents: "There is no agent yet. Make one, and assign it to a project.", "エージェントがまだありません。作成してプロジェクトに割り当ててください。";
    kind: "Kind (ai_type)", "種別 (ai_type)";
    kind_hint: "Names the provider that starts it: claude, codex, … or an entry of ai_providers.", "起動に使うプロバイダー名: claude、codex など、または ai_providers の項目。";
    system_prompt: "System prompt", "システムプロンプト";
    passkey: "Passkey", "パスキー";
    make_passkey: "Make a new passkey", "新しいパスキーを発行";
    passkey_once: "Copy it now: it is not shown again.", "今コピーしてください。再表示されません。";
    passkey_replaced: "The old one no longer works.", "以前のパスキーは使えなくなりました。";
    has_passkey: "has a passkey", "パスキーあり";
    no_passkey: "no passkey: it comes in by launch tickets only", "パスキーなし: 起動チケットでのみ認証します";
    not_running: "not running", "停止中";
    stop: "Stop", "停止";
    resume: "Resume", "再開";
    why_not: "Why not running?", "動いていない理由";
    why_title: "What could keep it from starting", "起動を妨げる条件";
    rule: "Rule", "規則";
    keeps_it: "this is so, and keeps it from starting", "該当: 起動を妨げています";
    lets_it: "this is not so", "該当しません";
    until_when: "until", "まで";
    failures_in_a_row: "failures in a row", "連続失敗";
    for_tasks: "For tasks", "タスク用";
    for_chats: "For chats", "チャット用";
    task: "task", "タスク";
    memory: "Memory", "メモリー";
    last_line: "Last seen", "最新の出力";
    state: "State", "状態";
    provider: "Provider", "プロバイダー";
    process: "Process", "プロセス";
    adopted: "adopted", "引き継ぎ";
    suspended_by_signal: "stopped by a signal", "シグナルで一時停止中";
    unkillable: "survives KILL", "KILL でも終了しない";
    silent_since: "silent since", "無応答の開始:";

    no_launches: "Nothing was started yet.", "まだ何も起動されていません。";
    launch: "Launch", "起動";
    output: "Output", "出力";
    output_follow: "Follow", "追従";
    no_output: "It has printed nothing yet.", "まだ出力がありません。";
    output_cut: "Earlier lines are not shown here; the command line has them:", "以前の行は省略しました。コマンドラインで全体を表示できます:";
    timeline: "Its life", "経過";
    claimed: "Decided to start", "起動を決定";
    started: "Process started", "プロセス開始";
    authenticated: "Authenticated", "認証完了";
    reported: "Reported", "報告";
    stop_wanted: "Told to stop", "停止要求";
    exited: "Exited", "終了";
    ended: "Ended", "終了";
    outcome: "Outcome", "結果";
    exit_code: "exit code", "終了コード";
    signal: "signal", "シグナル";
    tokens: "tokens", "トークン";
    cost: "Cost", "コスト";
    turns: "turns", "ターン";
    took: "Took", "所要時間";

    starting: "starting", "起動中";
    running: "running", "実行中";
    stopping: "stopping", "停止処理中";
    ending: "ending", "終了処理中";

    slots: "Running now", "実行数";
    of: "of", "/";
    waiting_starts: "Starts that wait", "待機中の起動";
    nothing_waits: "Nothing waits.", "待機中の起動はありません。";
    parked: "Parked providers", "一時停止中のプロバイダー";
    nothing_parked: "All providers work.", "すべてのプロバイダーが利用可能です。";
    pause: "Pause", "一時停止";
    drain: "Drain", "ドレイン";
    refresh: "Look again", "再確認";
    stop_all: "Stop everything", "すべて停止";
    stop_all_sure: "Stop every agent and start nothing more until you resume?", "すべてのエージェントを停止し、再開するまで起動しません。よろしいですか？";
    stop_sure: "Stop this agent? It is not started again until you resume it, or set a task of it in progress.", "このエージェントを停止しますか？ 再開するか、タスクを進行中にするまで起動しません。";
    pause_hint: "Starts nothing more; what runs goes on.", "新しい起動を止めます。実行中のものは続きます。";
    drain_hint: "A pause in which chats are told to end.", "一時停止に加え、チャットを終了させます。";
    paused_since: "Paused since", "一時停止中:";
    no_coordinator: "No coordinator is there: nothing will be started. Run `agent-coordinator supervise` on the machine of the agents.", "コーディネーターが接続していないため、起動は行われません。エージェントのマシンで `agent-coordinator supervise` を実行してください。";
    coordinators: "Coordinators", "コーディネーター一覧";
    store: "Store", "ストア";
    at_most: "at most", "最大";
    pause_file: "The pause file is there: nothing is started, and work of forges is paused.", "一時停止ファイルがあるため、起動せず、フォージの作業を一時停止しています。";
    forges: "Forges", "フォージ";
    forge_items: "Items of forges", "フォージの項目";
    owed: "Still to be done:", "未完了:";
    tried_again: "tried again", "再試行:";
    dry_run: "dry run", "試行のみ";
    heard: "last contact", "最終応答";
    gone: "no contact", "応答なし";
    counters: "Since its start", "起動後の累計";
    starts: "starts", "起動";
    adoptions: "adoptions", "引き継ぎ";
    leaked: "leftover processes ended", "残存プロセスの終了";
    cycles: "cycles", "周期";
    by_poll: "found by poll only", "ポーリングのみで検出";
    recent_ends: "Recent ends", "最近の終了";
    configuration: "Configuration", "設定ファイル";
    configuration_rejected: "The file on disk is not in use:", "ディスク上のファイルは使われていません:";
    configuration_waiting: "Waits for a restart:", "再起動待ち:";
    configuration_none: "There is no file; all settings have their defaults.", "ファイルがないため、すべて既定値です。";
    read_at: "read", "読み込み:";
    version: "Version", "バージョン";
    settings_hint: "Settings are in a file, so that they are reviewed and versioned with the rest: edit it, and the daemon reads it by itself. Each is explained in the example that comes with the program, config/coordinator_config.yaml.", "設定はファイルにあり、他のファイルと同様に確認・管理できます。編集するとデーモンが自動で読み込みます。";
    command_line: "On the command line", "コマンドライン";

    log_in: "Log in", "ログイン";
    log_in_as: "Log in as", "ログインするユーザー:";
    how_to_log_in: "To log in, ask for a link on the machine where the daemon runs, and open it here within ten minutes:", "デーモンが動くマシンで次のコマンドを実行し、表示されたリンクを10分以内に開いてください:";

    not_found: "This is not here", "見つかりません";
    went_wrong: "That did not work", "エラーが発生しました";
    back_to_projects: "To the projects", "プロジェクト一覧へ";
    lost_contact: "The daemon did not answer. It is tried again when it is there.", "デーモンが応答しません。復帰後に再試行します。";
}

impl Words {
    pub(super) const fn of(language: Language) -> &'static Self {
        match language {
            Language::English => &ENGLISH,
            Language::Japanese => &JAPANESE,
        }
    }

    pub(super) const fn lang(&self) -> &'static str {
        self.language.as_str()
    }

    pub(super) const fn of_status(&self, status: TaskStatus) -> &'static str {
        match status {
            TaskStatus::Backlog => self.backlog,
            TaskStatus::Todo => self.todo,
            TaskStatus::InProgress => self.in_progress,
            TaskStatus::Blocked => self.blocked,
            TaskStatus::Done => self.done,
            TaskStatus::Cancelled => self.cancelled,
        }
    }

    pub(super) const fn of_priority(&self, priority: Priority) -> &'static str {
        match priority {
            Priority::Low => self.low,
            Priority::Medium => self.medium,
            Priority::High => self.high,
            Priority::Urgent => self.urgent,
        }
    }

    /// Returns the text for the state of a workspace.
    pub(super) const fn of_workspace_state(&self, state: WorkspaceState) -> &'static str {
        let (english, japanese) = match state {
            WorkspaceState::Wanted => ("being prepared", "準備中"),
            WorkspaceState::Ready => ("ready", "準備完了"),
            WorkspaceState::InUse => ("in use", "使用中"),
            WorkspaceState::Broken => ("needs a person", "対応が必要"),
            WorkspaceState::Removed => {
                ("files removed, commits kept", "ファイル削除済み、コミット保持")
            }
        };
        self.language.either(english, japanese)
    }

    /// Returns a sentence that says where the agents of a project work.
    pub(super) const fn of_workspace_mode(&self, mode: WorkspaceMode) -> &'static str {
        let (english, japanese) = match mode {
            WorkspaceMode::Shared => (
                "shared: all agents work in the project's directory",
                "共有: すべてのエージェントがプロジェクトのディレクトリで作業します",
            ),
            WorkspaceMode::Clone => (
                "clone: each task has its own clone, and you merge its result",
                "クローン: タスクごとに専用のクローンで作業し、結果は人がマージします",
            ),
        };
        self.language.either(english, japanese)
    }

    /// Returns the size of a result, before the name of its branch.
    pub(super) fn of_changes(&self, n_files: usize, n_commits: u32) -> String {
        match self.language {
            Language::English => {
                let files = ending(n_files == 1);
                let commits = ending(n_commits == 1);
                format!("{n_files} file{files}, {n_commits} commit{commits} on")
            }
            Language::Japanese => format!("{n_files} ファイル、{n_commits} コミット:"),
        }
    }

    pub(super) fn of_uncommitted(&self, n_files: u32) -> String {
        match self.language {
            Language::English => format!("{n_files} not committed"),
            Language::Japanese => format!("未コミット {n_files}"),
        }
    }

    pub(super) fn of_merge_into(&self, branch: &str) -> String {
        match self.language {
            Language::English => format!("Merge into {branch}"),
            Language::Japanese => format!("{branch} にマージ"),
        }
    }

    pub(super) fn of_merged_into(&self, branch: &str, commit: &str) -> String {
        match self.language {
            Language::English => format!("Merged into {branch}, which is at {commit} now."),
            Language::Japanese => format!("{branch} にマージしました（{commit}）。"),
        }
    }

    pub(super) fn of_merged_before(&self, branch: &str) -> String {
        match self.language {
            Language::English => format!("Nothing to merge: {branch} has the result already."),
            Language::Japanese => format!("マージ不要: {branch} には結果が含まれています。"),
        }
    }

    pub(super) fn of_merge_conflict(&self, branch: &str) -> String {
        match self.language {
            Language::English => format!("The result and {branch} change the same lines of:"),
            Language::Japanese => {
                format!("結果と {branch} が、次のファイルの同じ行を変更しています:")
            }
        }
    }

    pub(super) fn of_merge_in_the_way(&self, branch: &str) -> String {
        match self.language {
            Language::English => format!("{branch} was not changed, because files are in the way:"),
            Language::Japanese => {
                format!("妨げになるファイルがあるため、{branch} を変更していません:")
            }
        }
    }

    pub(super) fn of_result_branch(&self, branch: &str) -> String {
        match self.language {
            Language::English => {
                format!("The project's repository has the result as the branch {branch}.")
            }
            Language::Japanese => {
                format!("結果は、プロジェクトのリポジトリのブランチ {branch} にあります。")
            }
        }
    }

    /// Returns the text for the state of a launch.
    pub(super) fn of_state<'a>(&'a self, state: &'a str) -> &'a str {
        match state {
            "starting" => self.starting,
            "running" => self.running,
            "stopping" => self.stopping,
            "ending" => self.ending,
            "ended" => self.ended,
            other => other,
        }
    }

    /// Returns the text for the health of the store.
    pub(super) fn of_store_health(&self, health: &str) -> &'static str {
        let (english, japanese) = match health {
            "ok" => ("answers", "正常"),
            "slow" => ("slow", "低速"),
            "stuck" => ("stuck", "停滞"),
            _ => ("fails", "異常"),
        };
        self.language.either(english, japanese)
    }

    /// Returns the text for a figure of the store.
    pub(super) fn of_store_figure(&self, name: &str, spread: Spread) -> String {
        let (english, japanese) = match name {
            "statement" => ("statement", "文"),
            "lock" => ("lock", "ロック待ち"),
            _ => ("transaction", "トランザクション"),
        };
        let name = self.language.either(english, japanese);
        format!("{name} {} ({} {})", span(spread.median), self.at_most, span(spread.max))
    }

    /// Returns the text for the health of a forge.
    pub(super) fn of_forge_health(&self, health: &str) -> &'static str {
        let (english, japanese) = match health {
            "ok" => ("answers", "正常"),
            "unauthorized" => ("does not take the token", "トークン無効"),
            "limited" => ("rate-limited", "制限中"),
            "unavailable" => ("does not answer", "応答なし"),
            _ => ("not asked yet", "未確認"),
        };
        self.language.either(english, japanese)
    }

    /// Returns the text for the state of the work on an item of a forge.
    pub(super) fn of_item_state(&self, state: &str) -> &'static str {
        let (english, japanese) = match state {
            "waiting" => ("waiting", "待機中"),
            "claiming" => ("being claimed", "取得中"),
            "processing" => ("in progress", "処理中"),
            "blocked" => ("blocked", "ブロック"),
            "failed" => ("failed", "失敗"),
            "pausing" => ("being paused", "一時停止処理中"),
            "paused" => ("paused", "一時停止"),
            "stopping" => ("being stopped", "停止処理中"),
            "done" => ("done", "完了"),
            "stopped" => ("stopped", "停止"),
            "expired" => ("expired", "期限切れ"),
            _ => ("elsewhere", "他で処理中"),
        };
        self.language.either(english, japanese)
    }

    /// Returns the text for the outcome of a launch, with its reason.
    pub(super) fn of_outcome(&self, outcome: &Outcome) -> String {
        let (english, japanese) = match outcome {
            Outcome::Completed => ("completed", "完了"),
            Outcome::Blocked => ("blocked", "ブロック"),
            Outcome::Failed => ("failed", "失敗"),
            Outcome::Stopped(_) => ("stopped", "停止"),
            Outcome::ExitedWithoutReport => ("exited without a report", "報告なしで終了"),
            Outcome::NeverAuthenticated => ("never authenticated", "認証されず"),
            Outcome::StartFailed(_) => ("start failed", "起動失敗"),
            Outcome::TimedOut(_) => ("timed out", "時間切れ"),
            Outcome::Lost => ("lost", "行方不明"),
        };
        let reason = match outcome {
            Outcome::Stopped(reason) => Some(self.of_stop_reason(*reason).to_owned()),
            Outcome::TimedOut(limit) => Some(self.of_time_limit(*limit).to_owned()),
            Outcome::StartFailed(reason) => Some(reason.clone()),
            _ => None,
        };
        let text = self.language.either(english, japanese);
        reason.map_or_else(|| text.to_owned(), |reason| format!("{text} ({reason})"))
    }

    /// Returns the text for the reason to end an agent.
    pub(super) const fn of_stop_reason(&self, reason: StopReason) -> &'static str {
        let (english, japanese) = match reason {
            StopReason::Reported => ("it reported", "報告済み"),
            StopReason::LoggedOut => ("it logged out", "ログアウト"),
            StopReason::Person => ("a person stopped it", "人が停止"),
            StopReason::StopAll => ("a person stopped everything", "すべて停止"),
            StopReason::Shutdown => ("the daemon ended", "デーモンの終了"),
            StopReason::NoticeIgnored => ("it ignored a notice", "通知への応答なし"),
            StopReason::Noticed => ("a notice told it to stop", "通知による停止"),
            StopReason::ChatEnded => ("the chat ended", "チャット終了"),
            StopReason::ChatIdle => ("the chat was idle", "チャットの無操作"),
            StopReason::StartTimeout => ("it did not authenticate in time", "認証の時間切れ"),
            StopReason::SessionMaximum => ("its session was too old", "セッション時間の上限"),
            StopReason::RunMaximum => ("it ran for too long", "実行時間の上限"),
            StopReason::Silence => ("it was silent for too long", "無出力の上限"),
            StopReason::Unassigned => ("the bot was unassigned", "割り当て解除"),
            StopReason::Closed => ("the item was closed", "項目のクローズ"),
            StopReason::Gone => ("the item is gone", "項目の消失"),
            StopReason::Moved => ("the item was moved", "項目の移動"),
            StopReason::Paused => ("its work was paused", "作業の一時停止"),
            StopReason::Unknown => ("the server does not know it", "サーバーに記録なし"),
        };
        self.language.either(english, japanese)
    }

    pub(super) const fn of_check(&self, result: CheckResult) -> &'static str {
        match result {
            CheckResult::Running => self.check_running,
            CheckResult::Passed => self.check_passed,
            CheckResult::Failed => self.check_failed,
            CheckResult::NotRun => self.check_not_run,
        }
    }

    const fn of_time_limit(&self, limit: TimeLimit) -> &'static str {
        let (english, japanese) = match limit {
            TimeLimit::SessionIdle => ("its session made no call", "セッションの無操作"),
            TimeLimit::SessionMaximum => ("its session was too old", "セッション時間の上限"),
            TimeLimit::RunMaximum => ("it ran for too long", "実行時間の上限"),
            TimeLimit::Check => ("the check ran for too long", "チェックの実行時間の上限"),
            TimeLimit::Silence => ("it was silent for too long", "無出力の上限"),
        };
        self.language.either(english, japanese)
    }

    /// Returns the text for the result that an agent reported.
    pub(super) const fn of_report(&self, result: ReportResult) -> &'static str {
        let (english, japanese) = match result {
            ReportResult::Success => ("success", "成功"),
            ReportResult::Failed => ("failed", "失敗"),
            ReportResult::Blocked => ("blocked", "ブロック"),
        };
        self.language.either(english, japanese)
    }

    /// Returns the text of a problem with this code. `detail` is its English text, which names the
    /// objects, so a translation keeps it.
    pub(super) fn of_problem(&self, code: &str, detail: String) -> String {
        match (self.language, japanese_problem(code)) {
            (Language::Japanese, Some(text)) => format!("{text}（{detail}）"),
            _ => detail,
        }
    }

    /// Returns a sentence for the reason why a pair does or does not start.
    pub(super) const fn of_start_reason(&self, reason: StartReason) -> &'static str {
        let (english, japanese) = match reason {
            StartReason::Ready => ("it is ready to start", "起動できます"),
            StartReason::Unknown => {
                ("no such agent or project", "エージェントまたはプロジェクトが存在しません")
            }
            StartReason::NotAssigned => {
                ("the agent is not assigned to the project", "プロジェクトに割り当てられていません")
            }
            StartReason::Inactive => (
                "the agent or the project is not active",
                "エージェントまたはプロジェクトが無効です",
            ),
            StartReason::Starting => ("it is starting", "起動中です"),
            StartReason::Running => ("it runs", "実行中です"),
            StartReason::Stopping => ("it is ending", "停止処理中です"),
            StartReason::NoWork => ("there is no work for it", "作業がありません"),
            StartReason::Paused => ("all starts are paused", "すべての起動が一時停止中です"),
            StartReason::Held => ("a person stopped it", "人が停止しました"),
            StartReason::Suspended => (
                "it failed too often, and waits for a person",
                "失敗が続いたため、再開を待っています",
            ),
            StartReason::Misconfigured => (
                "it can't work as it is configured, and waits for a person",
                "設定に問題があり、再開を待っています",
            ),
            StartReason::Parked => {
                ("the account of its provider waits", "プロバイダーのアカウントが待機中です")
            }
            StartReason::Backoff => (
                "it failed lately, and waits before the next try",
                "失敗したため、次の試行まで待機中です",
            ),
            StartReason::PreparingWorkspace => {
                ("the clone for its task is being prepared", "タスク用のクローンを準備中です")
            }
            StartReason::WorkspaceBroken => {
                ("the clone for its task needs a person", "タスク用のクローンに人の対応が必要です")
            }
            StartReason::OnOtherHost => (
                "the clone for its task is on another host",
                "タスク用のクローンは別のホストにあります",
            ),
            StartReason::NoFreeSlot => ("all slots are taken", "空きがありません"),
            StartReason::ChatReserve => {
                ("the free slots are reserved for chats", "空きはチャット用に確保されています")
            }
            StartReason::ProjectLimit => {
                ("its project has as many as it may", "プロジェクトの上限に達しています")
            }
            StartReason::AgentLimit => {
                ("its agent has as many as it may", "エージェントの上限に達しています")
            }
            StartReason::ProviderLimit => {
                ("its provider has as many as it may", "プロバイダーの上限に達しています")
            }
            StartReason::LowDisk => {
                ("there is too little free disk space", "ディスクの空きが不足しています")
            }
            StartReason::LowMemory => {
                ("there is too little free memory", "メモリーの空きが不足しています")
            }
            StartReason::NoPasskey => (
                "the coordinator has no passkey for the agent",
                "コーディネーターにパスキーがありません",
            ),
        };
        self.language.either(english, japanese)
    }
}

const fn ending(is_one: bool) -> &'static str {
    if is_one { "" } else { "s" }
}

/// Returns the Japanese text for the code of a problem that people meet on the pages.
fn japanese_problem(code: &str) -> Option<&'static str> {
    Some(match code {
        "project_not_found" => "プロジェクトが見つかりません",
        "agent_not_found" => "エージェントが見つかりません",
        "task_not_found" => "タスクが見つかりません",
        "launch_not_found" => "起動履歴が見つかりません",
        "session_not_found" => "セッションが見つかりません",
        "message_not_found" => "メッセージが見つかりません",
        "credential_not_found" => "認証情報が見つかりません",
        "no_such_route" => "ページが見つかりません",
        "not_assigned" => "エージェントがプロジェクトに割り当てられていません",
        "inactive" => "エージェントまたはプロジェクトが無効です",
        "already_exists" => "同じIDがすでに存在します",
        "invalid" | "invalid_form" | "invalid_body" | "invalid_query" | "invalid_path" => {
            "入力内容が正しくありません"
        }
        "too_long" => "入力が長すぎます",
        "not_one_line" => "改行や制御文字は使えません",
        "precondition_failed" => "他の変更が先に保存されました。読み込み直してください",
        "impossible_status" => "この状態には変更できません",
        "needs_assignee" => "先に担当エージェントを割り当ててください",
        "dependencies_open" => "先に完了すべきタスクが残っています",
        "subtasks_open" => "未完了のサブタスクがあります",
        "parent_closed" => "親タスクが終了しています",
        "stays_in_project" => "タスクは他のプロジェクトに移動できません",
        "part_of_itself" => "タスクを自分自身のサブタスクにはできません",
        "dependency_cycle" => "依存関係が循環しています",
        "limit_reached" => "上限に達しています",
        "no_workspace" => "このタスクには専用の作業場所がありません",
        "workspace_failed" => "作業場所の処理に失敗しました",
        "no_open_launch" => "実行中のエージェントがありません",
        "no_output" => "出力がありません",
        "output_on_other_host" => "出力は別のマシンにあります",
        "link_not_valid" => "このログインリンクは使えません",
        "not_authenticated" => "ログインが必要です",
        "viewer_may_not" => "閲覧のみ可能です",
        "not_allowed" => "許可されていません",
        "too_many_attempts" | "rate_limited" => {
            "試行が多すぎます。少し待ってからもう一度お試しください"
        }
        "body_too_large" => "送信データが大きすぎます",
        "server_stopping" | "stopping" => "サーバーを停止しています",
        "unavailable" => "データベースを利用できません。しばらくしてからもう一度お試しください",
        "bug" => "内部エラーが発生しました",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_translated_problem_still_names_its_objects() {
        let detail = "Task tsk_1 depends on tasks that are not done: tsk_2".to_owned();
        let japanese =
            Words::of(Language::Japanese).of_problem("dependencies_open", detail.clone());
        assert!(
            japanese.starts_with("先に完了すべきタスク") && japanese.contains("tsk_2"),
            "{japanese}"
        );
        let english = Words::of(Language::English).of_problem("dependencies_open", detail.clone());
        assert_eq!(english, detail);
    }

    #[test]
    fn an_outcome_is_told_with_its_reason_in_both_languages() {
        let stopped = Outcome::Stopped(StopReason::Person);
        let text = |language| Words::of(language).of_outcome(&stopped);
        assert_eq!(text(Language::English), "stopped (a person stopped it)");
        assert_eq!(text(Language::Japanese), "停止 (人が停止)");
    }
}
