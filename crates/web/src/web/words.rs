//! The texts of the pages in English and Japanese, side by side so that neither is forgotten.

mod agents;
mod attention;
mod chats;
mod fields;
mod first_run;
mod frame;
mod launches;
mod operations;
mod problems;
mod removals;
mod results;
mod settings;
mod starts;
mod tasks;

use domain::Language;

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
    inbox: "Inbox", "要対応";
    which_entries: "Which entries", "表示する項目";
    since: "Since", "開始:";
    until_at: "until", "次の時刻まで:";
    put_off_until: "Put off until", "次の時刻まで保留:";
    on_command_line: "On the command line:", "コマンドライン:";
    open_task: "Open task", "タスクを開く";
    open_launch: "Open launch", "起動の詳細を開く";
    later_hour: "Put off 1 hour", "1 時間保留する";
    later_day: "Put off 1 day", "1 日保留する";
    mark_done: "Mark as done", "対応済みにする";
    open_again: "Open again", "未対応に戻す";
    entry_ended: "This no longer needs attention.", "この項目への対応は不要になりました。";
    choose_entry: "Choose an entry.", "項目を選択してください。";
    projects: "Projects", "プロジェクト";
    agents: "Agents", "エージェント";
    launches: "Launches", "起動履歴";
    all_projects: "All projects", "すべてのプロジェクト";
    fleet: "Fleet", "運用";
    places: "Main pages", "主な画面";
    columns: "Columns", "列";
    you_heading: "You", "あなた";
    language_heading: "Language", "言語";
    search_tasks: "Search tasks", "タスクを検索";
    nothing_found: "No tasks match.", "一致するタスクがありません。";
    clear: "Clear", "条件をクリア";
    find: "Search", "検索";
    find_or_command: "Search or command", "検索・コマンド";
    found: "Results", "検索結果";
    tasks: "Tasks", "タスク";
    recent_tasks: "Recent tasks", "最近のタスク";
    more_tasks: "More tasks", "その他のタスク";
    commands: "Commands", "コマンド";
    finds_nothing: "No results.", "一致する項目がありません。";
    set_to: "Set to", "状態を変更:";
    fold: "Fold", "折りたたむ";
    unfold: "Unfold", "開く";
    undo: "Undo", "元に戻す";
    archive_or_delete: "Archive or delete", "アーカイブまたは削除";
    archive: "Archive", "アーカイブ";
    unarchive: "Unarchive", "アーカイブを解除";
    delete: "Delete", "削除";
    deleted_now: "Deleted", "削除しました:";
    archived_now: "Archived", "アーカイブしました:";
    shown_again: "Unarchived:", "アーカイブを解除しました:";
    deleting_takes: "Deleting this also deletes or changes:", "削除すると、次のものも削除または変更されます:";
    give_up_work: "Discard work that is not merged", "マージしていない作業を破棄する";
    removal_hint:
        "A deletion is final. You can unarchive at any time.",
        "削除は元に戻せません。アーカイブはいつでも解除できます。";
    project_archived:
        "This project is archived. Its agents do not start, and lists leave it out.",
        "このプロジェクトはアーカイブ済みです。起動は行われず、一覧にも表示されません。";
    archived_tasks: "Archived tasks", "アーカイブ済みのタスク";
    archived_projects: "Archived projects", "アーカイブ済みのプロジェクト";
    archived_agents: "Archived agents", "アーカイブ済みのエージェント";
    moved_to: "Moved to", "移動しました:";
    copied: "Copied", "コピーしました";
    copy_link: "Copy link", "リンクをコピー";
    open_as_page: "Open as page", "ページで開く";
    state_heading: "State", "状態";
    no_description: "No description.", "説明はありません。";
    activity: "Activity", "経過";
    watch: "Watch", "出力を見る";
    add_subtask: "Add a subtask", "サブタスクを追加";
    needs_title: "Enter a title.", "タイトルを入力してください。";
    needs_text: "Enter some text.", "この項目を入力してください。";
    needs_path: "Enter the whole path, such as /srv/shop.", "「/srv/shop」のように / で始まるパスを入力してください。";
    id_taken: "This ID is already in use. Choose another one.", "この ID は使われています。別の ID を入力してください。";
    id_deleted:
        "This ID belonged to something that was deleted. Choose another one.",
        "この ID は削除されたものに使われていました。別の ID を入力してください。";
    what_it_needs: "What it needs to start", "起動の条件";
    actions: "Actions", "操作";
    details: "Details", "詳細";
    met: "Met", "満たしている";
    not_met: "Not met", "満たしていない";
    messages: "Messages", "メッセージ";
    new_messages: "New messages", "新しいメッセージ";
    show_login: "How to log in", "ログイン手順を見る";
    try_now: "Try now", "今すぐ再試行";
    agent_exists:
        "This agent exists already. You can create a new passkey when you edit it.",
        "このエージェントは作成済みです。新しいパスキーは編集画面で発行できます。";
    theme_system: "System", "システム";
    theme_light: "Light", "ライト";
    theme_dark: "Dark", "ダーク";
    keys: "Keyboard shortcuts", "キーボードショートカット";
    single_keys: "Single-key shortcuts", "1 文字のショートカット";
    key_search: "Search this view", "この画面の検索";
    key_walk: "Next, previous", "次・前";
    key_column: "Next or previous column", "隣の列";
    key_move: "Move to the neighbouring state", "隣の状態へ移動";
    key_open: "Open", "開く";
    key_back: "Back", "戻る";
    key_chat: "Chat with the assignee", "担当とチャット";
    key_send: "Submit a form", "フォームを送信";
    not_assigned: "Not assigned to a project", "プロジェクトに未割り当て";
    comes_from: "Source", "作成元";
    conversation: "Conversation", "会話";
    goes_on: "The next launch continues it", "次の起動で継続";
    begin_afresh: "Begin afresh", "新しく始める";
    begin_afresh_hint: "The next launch begins a new conversation",
        "次の起動では新しい会話を始める";
    agent: "Agent", "エージェント";
    project: "Project", "プロジェクト";
    idle: "Idle", "アイドル";
    waits: "Waiting", "待機中";
    something_needs_person: "Something needs your attention", "対応が必要な項目があります";
    notifications: "Notify me when something needs a person and this page is in the background",
        "このページが背面にあるとき、対応が必要になったら通知する";
    notifications_refused:
        "This browser blocks notifications from this page. Allow them in its settings.",
        "このブラウザーは、このページの通知を許可していません。ブラウザーの設定で許可してください。";
    needs_attention: "Needs a person", "要対応";
    works: "Working", "作業中";
    draft_kept: "Draft kept", "下書きを保存しました";
    throw_away: "Discard", "破棄";
    block: "Block", "ブロック";
    operations: "Operations", "稼働状況";
    settings: "Settings", "設定";
    skip_to_content: "Skip to content", "本文へ移動";
    navigation: "Navigation", "ナビゲーション";
    live: "Connected", "接続中";
    reconnecting: "Reconnecting…", "再接続中…";
    theme: "Theme", "テーマ";
    log_out: "Log out", "ログアウト";
    signed_in_as: "Signed in as", "ログイン中:";
    viewer_note: "You have view-only access.", "閲覧専用でログインしています。";

    three_steps: "Three steps to the first result", "最初の結果までの 3 ステップ";
    three_things:
        "A project is a folder. An agent is a program that works in it. A task is the work to do.",
        "プロジェクトはフォルダー、エージェントはそこで作業するプログラム、タスクは作業の内容です。";
    or_an_agent: "Or use an existing agent.", "既存のエージェントも使えます。";
    switch_project: "Switch project", "プロジェクトを切り替え";
    which_folder: "Which folder is the project?", "プロジェクトのフォルダー";
    which_agent: "Which agent works in it?", "作業するエージェント";
    first_task: "First task", "最初のタスク";
    starts_when_made: "It starts as soon as you create it.", "作成するとすぐに開始します。";
    same_by_command:
        "In a terminal, this command does the same in the current folder:",
        "ターミナルでは、次のコマンドが現在のフォルダーで同じことをします:";
    looking: "Looking for agent CLIs…", "エージェントの CLI を検索中…";
    look_again: "Search again", "再検索";
    no_programs:
        "No agent CLI was found on this machine. docs/providers.md has the steps to install one.",
        "このマシンにエージェントの CLI が見つかりません。インストール手順は docs/providers.md にあります。";
    logged_in: "Logged in", "ログイン済み";
    not_logged_in: "Not logged in", "未ログイン";

    new_project: "New project", "プロジェクトを作成";
    edit_project: "Edit project", "プロジェクトを編集";
    no_projects:
        "There are no projects yet. A project is a named folder that agents work in.",
        "プロジェクトがまだありません。プロジェクトは、エージェントが作業するフォルダーに名前を付けたものです。";
    working_directory: "Working directory", "作業ディレクトリ";
    working_directory_hint:
        "An absolute path on the machine of the coordinator. Create the folder first.",
        "コーディネーターのマシン上の絶対パス。フォルダーは先に作成してください。";
    id: "ID", "ID";
    id_hint:
        "Letters, digits, and . _ - are allowed. Leave it empty to generate one.",
        "英数字と . _ - が使えます。空欄なら自動で付けます。";
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
    edit_title: "Edit title", "タイトルを編集";
    open_tasks: "Open tasks", "未完了タスク";
    assigned_agents: "Assigned agents", "割り当て済みエージェント";
    assign: "Assign", "割り当てる";
    unassign: "Unassign", "割り当て解除";
    nobody_assigned: "No agent is assigned yet.", "エージェントがまだ割り当てられていません。";
    all_assigned: "All agents are assigned.", "すべてのエージェントが割り当て済みです。";

    new_task: "New task", "タスクを作成";
    no_tasks: "No tasks yet.", "タスクがまだありません。";
    how_to_begin:
        "Create one, assign it to an agent, and move it to “In progress” to start the agent.",
        "作成してエージェントに割り当て、「進行中」に移すと、エージェントが起動します。";
    nothing_here: "No accounts.", "アカウントはありません。";
    more: "Show more", "さらに表示";
    title: "Title", "タイトル";
    description: "Description", "説明";
    assignee: "Assignee", "担当";
    nobody: "No one", "なし";
    priority: "Priority", "優先度";
    subtasks: "Subtasks", "サブタスク";
    part_of: "Subtask of", "親タスク:";
    dependencies: "Waits for", "依存タスク";
    checks: "Checks", "チェック";
    attributes_note:
        "It ran with the attributes of the base commit: the result changes .gitattributes.",
        "結果が .gitattributes を変更しているため、開始時のコミットの属性で実行しました。";
    being_checked: "The agent reported success. Checks running since", "エージェントが成功を報告しました。チェックの開始:";
    check_running: "running", "実行中";
    check_passed: "passed", "合格";
    check_failed: "failed", "不合格";
    check_not_run: "could not be run", "実行できず";
    starts_by_itself: "It starts when all of these are done.", "以下がすべて完了すると自動的に開始します。";
    waits_for_cancelled:
        "A task that it waits for was cancelled. Reopen that task, or change the dependencies.",
        "依存タスクが取り消されました。そのタスクを再開するか、依存タスクを変更してください。";
    reason: "Reason", "理由";
    comment: "Comment", "コメント";
    comment_placeholder:
        "Comment for people, and for the agent when it takes the task",
        "人とエージェント（タスクを受け取るとき）へのコメント";
    no_work_yet: "No agent has worked on this task yet.", "作業の記録はまだありません。";
    next_steps: "Next steps", "次のステップ";
    blocked: "Blocked", "ブロック中";
    low: "Low", "低";
    medium: "Medium", "中";
    high: "High", "高";
    urgent: "Urgent", "緊急";

    make_another: "Create another", "続けて作成";
    create_and_start: "Create and start", "作成して開始";
    more_places: "More", "その他";
    copy: "Copy", "コピー";
    operator: "operator", "操作可能";
    viewer: "viewer", "閲覧のみ";
    parts_of_task: "Parts of this task", "タスクの表示内容";
    overview: "Overview", "概要";
    changes: "Changes", "変更";
    output: "Output", "出力";
    branch: "Branch", "ブランチ";
    copy_branch: "Copy the name of the branch", "ブランチ名をコピー";
    workspace: "Where agents work", "エージェントの作業場所";
    workspace_hint:
        "Clones need a git repository. You cannot change this later.",
        "クローンには git リポジトリが必要です。後から変更できません。";
    clones_begin_at: "Start clones from", "クローンの開始位置";
    clones_begin_at_hint:
        "A branch, a tag, a commit or working_tree. Leave it empty to use the configured value.",
        "ブランチ、タグ、コミット、または working_tree。空欄の場合は設定に従います。";
    branch_pattern: "Task branches", "タスクのブランチ";
    branch_pattern_hint:
        "A pattern with {task_id}. Leave it empty to use the configured value.",
        "{task_id} を含むパターン。空欄の場合は設定に従います。";
    merged: "Merged", "マージ済み";
    discarded: "Discarded", "破棄済み";
    from_base: "from", "元:";
    merge: "Merge", "マージ";
    merge_squash: "Merge all in one commit", "1 つのコミットにまとめてマージ";
    merge_rebase: "Merge commit by commit (rebase)",
        "コミットごとにマージ（リベース）";
    merge_open_sure:
        "This task is still open. Merge its current result?",
        "タスクは未完了です。現時点の結果をマージしますか？";
    with_uncommitted: "Include uncommitted changes", "未コミットの変更も含める";
    publish_result: "Publish as a branch", "ブランチとして公開";
    published_as: "published as", "公開先:";
    not_published: "The result was not published.", "結果を公開していません。";
    discard_result: "Discard…", "破棄…";
    discard_forever: "Discard permanently…", "完全に破棄…";
    discard_forever_hint:
        "This discards the files and the kept commits. The commits are deleted after 14 days.",
        "ファイルと保持中のコミットを破棄します。コミットは 14 日後に削除されます。";
    give_up: "Discard permanently", "完全に破棄";
    given_up:
        "The result was discarded permanently. Its commits are deleted after 14 days.",
        "結果を破棄しました。保持中のコミットは 14 日後に削除されます。";
    not_given_up: "Nothing was discarded.", "破棄していません。";
    discarded_forever: "Discarded permanently", "完全に破棄済み";
    keep_result: "Undo discard", "破棄を取り消す";
    restore_files: "Restore files", "ファイルを復元";
    not_committed: "Uncommitted changes", "未コミットの変更";
    no_changes: "No changes yet.", "まだ変更はありません。";
    no_diff: "The changes cannot be shown now:", "変更を表示できません:";
    diff_of: "Changes of", "変更内容:";
    diff_cut:
        "The changes are too long to show in full. On the command line:",
        "変更が長すぎるため、一部のみ表示しています。コマンドライン:";
    no_newline: "No newline at the end of the file", "ファイル末尾に改行がありません";
    file_new: "New", "新規";
    file_deleted: "Deleted", "削除";
    file_renamed: "Renamed", "名前変更";
    file_copied: "Copied", "コピー";
    file_binary: "Binary", "バイナリー";
    left_out:
        "These files could not be kept, so the workspace is not removed:",
        "次のファイルは保存できないため、作業場所は削除されません:";
    workspace_in_use_hint:
        "An agent is working here. You can merge when it has ended.",
        "エージェントが作業中です。終了後にマージできます。";
    merge_conflict_hint:
        "Nothing was changed. Ask the agent to resolve the conflict, or merge manually, and merge here after that.",
        "何も変更していません。エージェントに解消を依頼するか、手動でマージした後に、ここでもマージしてください。";
    merge_again_conflict_hint:
        "Nothing was changed. The branch has commits of an earlier merge of the result, so merge manually.",
        "何も変更していません。ブランチには以前に結果をマージしたコミットがあるため、手動でマージしてください。";
    ask_agent: "Ask the agent to resolve it", "エージェントに解消を依頼";
    agent_asked:
        "Nothing was changed. The agent was asked to resolve the conflict in the same clone. Merge again when the task is done.",
        "何も変更していません。同じクローンでの解消をエージェントに依頼しました。タスクの完了後に、もう一度マージしてください。";
    changed_nothing: "The task changed nothing.", "このタスクによる変更はありません。";
    changed_nothing_short: "changed nothing", "変更なし";
    merge_reverted_hint:
        "Nothing was changed. Merge all changes once more, or only those that are newer.",
        "何も変更していません。すべての変更をもう一度マージするか、新しい変更だけをマージしてください。";
    merge_again: "Merge all again", "すべてもう一度マージ";
    merge_only_new: "Merge only newer changes", "新しい変更だけマージ";
    no_newer_changes:
        "There is no newer commit. “Merge all again” merges all changes once more.",
        "新しいコミットはありません。「すべてもう一度マージ」で、すべての変更をもう一度マージできます。";
    merge_in_the_way_hint:
        "No file was changed. Commit or stash the files that git names, then merge again.",
        "ファイルは変更していません。git が示すファイルをコミットまたは退避してから、もう一度マージしてください。";
    merge_stale:
        "The result has changed since you saw it. Look at the changes below, then merge again.",
        "表示後に結果が変わりました。下の変更を確認してから、もう一度マージしてください。";
    nothing_to_merge:
        "There is nothing to merge: the task has no new commit.",
        "マージするものがありません: 新しいコミットがありません。";
    nothing_to_merge_hint:
        "Include uncommitted changes, or let the agent commit its work.",
        "未コミットの変更も含めるか、エージェントにコミットさせてください。";

    chat_with: "Chat with", "チャット:";
    preparing: "Starting the agent…", "エージェントを起動中…";
    send: "Send", "送信";
    message_hint: "Enter to send, Shift+Enter for a new line.", "Enter で送信、Shift+Enter で改行。";
    discard: "Discard what you wrote?", "入力内容を破棄しますか？";
    was_changed:
        "This was saved elsewhere while you were writing.",
        "入力中に、ほかの場所で変更が保存されました。";
    compare: "Compare", "比較";
    save_mine: "Save mine", "自分の内容で保存";
    saved_now: "saved version", "保存済みの内容";
    send_again: "Send again", "もう一度送信";
    login_ended: "Your session has expired", "ログインの有効期限が切れました";
    login_again:
        "What you wrote is still here. Run this command where the daemon runs, and paste the link that it prints:",
        "入力内容はそのまま残っています。デーモンが動くマシンで次のコマンドを実行し、表示されたリンクを貼り付けてください:";
    login_link: "Login link", "ログインリンク";
    login_link_wrong:
        "This link does not work. A link works once, within ten minutes. Print a new one.",
        "このリンクではログインできません。リンクは 1 回のみ、10 分以内に使えます。新しいリンクを表示してください。";
    no_messages:
        "Send a message. The agent starts if it is not running.",
        "メッセージを送信してください。エージェントが起動していなければ、自動で起動します。";
    earlier: "Show earlier messages", "以前のメッセージを表示";
    agent_gone:
        "The agent has ended. Your next message starts it again.",
        "エージェントは終了しました。次のメッセージで再び起動します。";
    not_sent: "Not sent yet, trying again", "未送信、再試行中";

    new_agent: "New agent", "エージェントを作成";
    edit_agent: "Edit agent", "エージェントを編集";
    no_agents: "No agents yet.", "エージェントがまだありません。";
    first_agent: "Create one, and assign it to a project.", "作成してプロジェクトに割り当ててください。";
    kind: "Kind (ai_type)", "種別 (ai_type)";
    kind_hint:
        "The provider that starts it: claude, codex, … or an entry of ai_providers.",
        "起動に使うプロバイダー名: claude、codex など、または ai_providers の項目。";
    system_prompt: "System prompt", "システムプロンプト";
    cost_of_launches: "Cost of its launches", "起動のコスト";
    more_fields: "More options", "詳細設定";
    passkey_hint: "Only an agent that a person starts needs one.", "人が起動するエージェントにだけ必要です。";
    passkey: "Passkey", "パスキー";
    make_passkey: "Create a new passkey", "新しいパスキーを発行";
    passkey_once: "Copy it now: it is not shown again.", "今コピーしてください。再表示されません。";
    passkey_replaced: "The old one no longer works.", "以前のパスキーは使えなくなりました。";
    has_passkey: "This agent has a passkey.", "パスキーがあります。";
    no_passkey:
        "This agent has no passkey. It authenticates with launch tickets only.",
        "パスキーなし。起動チケットでのみ認証します。";
    stop: "Stop", "停止";
    resume: "Resume", "再開";
    in_english: "Error", "原文（英語）";
    memory: "Memory", "メモリー";
    process: "Process", "プロセス";
    adopted: "taken over after a restart", "再起動後に引き継ぎ";
    suspended_by_signal: "stopped by a signal", "シグナルで一時停止中";
    unkillable: "survives SIGKILL", "SIGKILL でも終了しない";
    silent_since: "silent since", "最終出力:";

    no_launches: "No agent has been started yet.", "まだ何も起動されていません。";
    no_launch_found: "No launches match.", "一致する起動がありません。";
    search_launches: "Search launches", "起動履歴を検索";
    search_launches_hint: "Task, agent, outcome", "タスク・エージェント・結果";
    all: "All", "すべて";
    ended_badly: "Ended badly", "問題あり";
    any_time: "Any time", "全期間";
    task_or_chat: "Task or chat", "タスク・チャット";
    started_at: "Started", "開始";
    tokens_heading: "Tokens", "トークン";
    launch: "Launch", "起動";
    running_for: "Running for", "実行時間";
    for_time: "for", "";
    tokens_in_out: "Tokens in / out", "トークン 入力 / 出力";
    tool_calls: "Tool calls", "ツール呼び出し";
    stop_asks: "Stop…", "停止…";
    plain_kind: "Kind", "種別";
    copy_id: "Copy ID", "ID をコピー";
    output_as: "Output as", "出力の表示形式";
    transcript: "Transcript", "実行記録";
    raw: "Raw", "生の出力";
    expand_tools: "Expand all tools", "すべてのツールを開く";
    fold_tools: "Fold all tools", "すべてのツールを閉じる";
    earlier_entries: "Show earlier entries", "以前の記録を表示";
    new_entries: "{n} new ↓", "新着 {n} 件 ↓";
    result: "Result", "結果";
    call_failed: "failed", "失敗";
    output_follow: "Follow", "自動スクロール";
    no_output: "No output yet.", "まだ出力がありません。";
    printed_nothing: "No output.", "出力はありませんでした。";
    output_cut:
        "Earlier lines are not shown here; the command line has them:",
        "以前の行は省略しました。コマンドラインで全体を表示できます:";
    timeline: "Timeline", "経過";
    claimed: "Decided to start", "起動を決定";
    started: "Process started", "プロセス開始";
    authenticated: "Authenticated", "認証完了";
    reported: "Reported", "報告";
    stop_wanted: "Stop requested", "停止要求";
    exited: "Exited", "終了";
    ended: "Ended", "終了";
    outcome: "Outcome", "結果";
    exit_code: "exit code", "終了コード";
    tokens: "tokens", "トークン";
    cost: "Cost", "コスト";
    turns: "turns", "ターン";
    took: "Duration", "所要時間";

    starting: "Starting", "起動中";
    running: "Running", "実行中";
    stopping: "Stopping", "停止処理中";
    ending: "Ending", "終了処理中";

    which_agents: "Which agents", "表示するエージェント";
    no_agent_works: "No agent is working.", "作業中のエージェントはありません。";
    no_agent_needs_person: "No agent needs a person.", "対応が必要なエージェントはありません。";
    what_it_does: "Activity, or why it does not run", "作業内容・起動しない理由";
    last_outcome: "Last outcome", "直近の結果";
    today: "Today", "今日";
    give_task: "Give a task", "タスクを割り当てる";
    assign_agent: "Assign…", "割り当てる…";
    in_a_chat: "In a chat", "チャット中";
    does_not_end: "Doesn't end", "終了不可";
    frozen: "Frozen", "凍結中";
    stopped: "Stopped", "停止中";
    deactivated: "Deactivated", "無効";
    paused: "Paused", "一時停止中";
    failed: "Failed", "失敗";
    misconfigured: "Misconfigured", "設定の誤り";
    usage_limit: "Usage limit", "利用上限";
    clone_broken: "Clone broken", "クローン異常";
    starts_now: "Starts now", "まもなく起動";
    starts_for_chat: "It starts as soon as a person sends a message.", "メッセージを送信すると起動します。";
    works_now: "Working on a task", "作業中です";
    chats_now: "In a chat", "チャット中です";
    purpose_shown: "For", "対象";
    chats: "Chats", "チャット";
    chat_wanted: "A chat is requested", "チャットが要求されている";
    no_since: "No, since", "未達成、開始:";
    no_until: "No, until", "未達成、期限:";
    no_short: "No", "未達成";
    no_ended_launches: "No launch has ended yet.", "終了した起動はまだありません。";
    latest_launches: "Latest launches", "直近の起動";
    all_launches: "All launches", "すべての起動履歴";
    copy_command: "Copy command", "コマンドをコピー";
    running_figure: "Running now", "実行中";
    of: "of", "/";
    waiting_figure: "Waiting to start", "起動待ち";
    longest_for: "longest for", "最長:";
    spent_since_midnight: "Spent today", "今日のコスト";
    tokens_today: "Tokens today", "今日のトークン数";
    starting_agents: "Active", "稼働中";
    nothing_starts: "Not starting agents", "起動停止中";
    stop_all_question: "Stop all agents?", "すべてのエージェントを停止しますか？";
    drain_question: "Drain all agents?", "すべてのエージェントをドレインしますか？";
    drain_explains:
        "No agents start until you resume. Running tasks continue, and chats are told to end.",
        "再開するまで新しい起動を止めます。タスクは最後まで続き、チャットには終了を伝えます。";
    stop_all_explains: "No agents start until you resume.", "再開するまで何も起動しません。";
    accounts: "Accounts", "アカウント";
    account_works: "Available", "利用可";
    hosts: "Hosts", "ホスト";
    not_heard: "Not responding", "応答なし";
    looked: "checked", "確認:";

    nothing_waits: "Nothing is waiting to start.", "待機中の起動はありません。";
    pause: "Pause", "一時停止";
    drain: "Drain", "ドレイン";
    refresh: "Refresh", "再確認";
    stop_all: "Stop all", "すべて停止";
    pause_hint: "Starts no more agents. Running agents continue.", "新しい起動を止めます。実行中のものは続きます。";
    drain_hint: "Starts no more agents, and ends chats.", "一時停止に加え、チャットを終了させます。";
    paused_since: "Paused since", "一時停止中:";
    no_coordinator:
        "No coordinator is connected, so no agents start. Run `agent-coordinator supervise` on the machine of the agents.",
        "コーディネーターが接続していないため、起動は行われません。エージェントのマシンで `agent-coordinator supervise` を実行してください。";
    store: "Store", "ストア";
    at_most: "at most", "最大";
    pause_file:
        "The pause file exists: no agents start, and work for forges is paused.",
        "一時停止ファイルがあるため、起動せず、フォージの作業を一時停止しています。";
    crowd:
        "Several agents work in one directory at once, and can overwrite each other's files. `workspace: clone` of the project or `workspace.shared_at_once: 1` avoids that.",
        "複数のエージェントが同じディレクトリで同時に作業しており、互いのファイルを上書きするおそれがあります。プロジェクトの `workspace: clone` または `workspace.shared_at_once: 1` で防げます。";
    failed_snapshot: "The last snapshot of the directory failed:", "ディレクトリの直近のスナップショットに失敗しました:";
    forges: "Forges", "フォージ";
    forge_items: "Forge items", "フォージの項目";
    owed: "Pending:", "未処理:";
    tried_again: "tried again", "再試行:";
    guessed: "guessed", "推定";
    dry_run: "dry run", "試行のみ";
    heard: "last contact", "最終応答";
    counters: "Since startup", "起動後の累計";
    starts: "Starts", "起動";
    adoptions: "Adoptions", "引き継ぎ";
    leaked: "Leftover processes ended", "残存プロセスの終了";
    cycles: "Cycles", "周期";
    by_poll: "Found only by polling", "ポーリングでのみ検出";
    recent_ends: "Recently ended", "最近の終了";
    none_ended: "No agent has ended yet.", "まだ何も終了していません。";
    configuration: "Configuration", "設定ファイル";
    configuration_rejected: "The file on disk is not in use:", "ディスク上のファイルは使われていません:";
    configuration_waiting: "Waiting for a restart:", "再起動待ち:";
    configuration_none:
        "There is no file. All settings have their defaults.",
        "ファイルがないため、すべて既定値です。";
    read_at: "read", "読み込み:";
    settings_hint:
        "Settings are in a file, so you can review and version them. The daemon reads the file again when you edit it. This bundled file explains each setting:",
        "設定はファイルにあり、レビューとバージョン管理ができます。編集すると、デーモンが自動で読み込みます。各設定の説明がある付属ファイル:";
    command_line: "On the command line", "コマンドライン";

    log_in: "Log in", "ログイン";
    log_in_as: "Log in as", "ログインするユーザー:";
    how_to_log_in:
        "To log in, ask for a link on the machine where the daemon runs, and open it here within ten minutes:",
        "デーモンが動くマシンで次のコマンドを実行し、表示されたリンクを 10 分以内に開いてください:";

    not_found: "Not found", "見つかりません";
    went_wrong: "Something went wrong", "エラーが発生しました";
    back_to_projects: "Go to projects", "プロジェクト一覧へ";
    lost_contact:
        "The daemon did not answer. What you wrote is still here. Send it again later.",
        "デーモンが応答しません。入力内容は残っています。復帰後にもう一度送信してください。";
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
}

#[cfg(test)]
mod tests;
