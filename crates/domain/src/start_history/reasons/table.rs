//! The table of the reasons why a key may or may not start.

use super::{ChecklistItem, ReasonRow, WaitEnd};
use crate::attention::AttentionKind;
use crate::waiting::WaitAction;
use crate::words::words;

reasons! {
    /// The reason why a key may or may not start. It contains no state of a task, which a
    /// coordinator does not know (R-004-2).
    pub enum StartReason as "start reason" {
        Ready = "ready", ends: NoWait {
            sentence: "Starts now", "まもなく起動";
            demand: "Nothing prevents the start", "起動を妨げるものがない";
            rule: "nothing keeps it";
            with rank: 0;
        }
        /// No such agent or project.
        Unknown = "unknown", ends: ByPerson, item: Assigned {
            sentence: "The agent or the project does not exist", "エージェントかプロジェクトが存在しない";
            demand: "The agent and the project exist", "エージェントとプロジェクトが存在する";
            rule: "agent and project exist";
            with refuses_messages: true, rank: 6;
        }
        NotAssigned = "not_assigned", ends: ByPerson, item: Assigned {
            sentence: "Not assigned to this project", "プロジェクトに未割り当て";
            named: "Not assigned to {project}", "{project} に未割り当て";
            demand: "It is assigned to the project", "プロジェクトに割り当てられている";
            rule: "the agent is assigned to the project";
            remedy: "`project set {project} --assign {agent}` assigns it",
                "`project set {project} --assign {agent}` で割り当て";
            with action: Some(WaitAction::AssignToProject), refuses_messages: true, rank: 6;
        }
        /// The agent or the project is not active.
        Inactive = "inactive", ends: ByPerson, item: Assigned {
            sentence: "The agent or the project is deactivated", "エージェントかプロジェクトが無効";
            named: "{inactive} is deactivated", "{inactive} は無効";
            demand: "The agent and the project are active", "エージェントとプロジェクトが有効";
            rule: "agent and project are active";
            with action: Some(WaitAction::Activate), refuses_messages: true, rank: 6;
        }
        Starting = "starting", ends: NoWait {
            sentence: "Starting", "起動中";
            demand: "It does not run already", "まだ実行されていない";
            rule: "none of it runs";
            with rank: 1;
        }
        Running = "running", ends: NoWait {
            sentence: "Running", "実行中";
            demand: "It does not run already", "まだ実行されていない";
            rule: "none of it runs";
            with rank: 2;
        }
        /// On its way out: its tree is not empty yet.
        Stopping = "stopping", ends: ByItself, item: LastLaunch {
            sentence: "Stopping", "停止処理中";
            demand: "It does not run already", "まだ実行されていない";
            rule: "none of it runs";
            with rank: 3;
        }
        NoWork = "no_work", ends: NoWait, item: Work {
            sentence: "No task for it", "担当タスクなし";
            demand: "There is work for it", "作業がある";
            rule: "a task of it is in progress";
            with rank: 5;
        }
        Paused = "paused", ends: AsWanted, item: NotPaused {
            sentence: "Starts are paused", "起動を一時停止中";
            demand: "Starts are not paused", "起動が一時停止されていない";
            rule: "starts are not paused (`resume` without arguments ends that)";
            with action: Some(WaitAction::ResumeAll);
        }
        Held = "held", ends: AsWanted, item: NotHeld {
            sentence: "A person stopped it", "人が停止";
            named: "{person} stopped it", "{person} が停止";
            demand: "No person stopped it", "人が停止していない";
            rule: "it is not held (`resume` ends a hold)";
            remedy: "`resume {agent} {project}` lets it start", "`resume {agent} {project}` で再開";
            with action: Some(WaitAction::Resume);
        }
        /// It failed too often in too short a time, and waits for a person.
        Suspended = "suspended", ends: ByPerson, item: NoFailures {
            sentence: "Failed too often", "失敗が続いた";
            named: "Failed {times} in a row", "{failures} 回連続で失敗";
            demand: "It did not fail too often", "失敗が続いていない";
            rule: "it has not failed too often (`resume` ends that)";
            remedy: "mend the cause, then `resume {agent} {project}`",
                "原因を取り除いてから `resume {agent} {project}`";
            with action: Some(WaitAction::Resume), inbox: Some(AttentionKind::Suspended);
        }
        /// It can't work as it is configured, and waits for a person.
        Misconfigured = "misconfigured", ends: ByPerson, item: Configuration {
            sentence: "Can't work as configured", "設定に誤り";
            demand: "It can work as configured", "設定に誤りがない";
            rule: "it can work as it is configured \
                   (`reload` or `resume` after mending it ends that)";
            remedy: "mend the cause, then `reload` or `resume {agent} {project}`",
                "原因を取り除いてから `reload` または `resume {agent} {project}`";
            with action: Some(WaitAction::EditAgent), inbox: Some(AttentionKind::Misconfigured);
        }
        /// The account of its provider failed, and waits; or another one is trying whether it works
        /// again.
        Parked = "parked", ends: WithAccount, item: Account {
            sentence: "Its account waits", "アカウントが待機中";
            named: "Usage limit of {account}, tried again", "{account} の利用上限。再試行を待機中";
            demand: "Its account can be used", "アカウントを利用できる";
            rule: "the account of its provider works (`resume --provider` ends that)";
            with action: Some(WaitAction::TryProvider);
        }
        /// It failed lately and waits before the next try.
        Backoff = "backoff", ends: ByItself, item: NoFailures {
            sentence: "Failed, tries again", "失敗。再試行を待機中";
            named: "Failed {times}, tries again", "{failures} 回失敗。再試行を待機中";
            demand: "No wait after a failure", "失敗後の待機中でない";
            rule: "it does not wait after a failure";
            remedy: "`resume {agent} {project}` starts it at once",
                "`resume {agent} {project}` ですぐに起動";
            with action: Some(WaitAction::TryNow);
        }
        /// The clone for its task is not ready.
        PreparingWorkspace = "preparing_workspace", ends: ByItself, item: Place {
            sentence: "Its clone is being prepared", "クローンを準備中";
            demand: "The clone is ready", "クローンの準備ができている";
            rule: "the clone for its task is ready";
            with is_about_clone: true;
        }
        /// The clone for its task needs a person.
        WorkspaceBroken = "workspace_broken", ends: ByPerson, item: Place {
            sentence: "Its clone needs a person", "クローンに対応が必要";
            demand: "The clone is in order", "クローンに問題がない";
            rule: "the clone for its task is in order \
                   (`workspace retry` after mending it ends that)";
            remedy: "`workspace list` shows the clone; `workspace retry` after mending it",
                "`workspace list` でクローンを確認し、原因を取り除いてから `workspace retry`";
            with action: Some(WaitAction::RetryWorkspace), inbox: Some(AttentionKind::Workspace),
                is_about_clone: true;
        }
        /// A command of the operator failed in the clone for its task, and is tried again.
        HookFailed = "hook_failed", ends: ByItself, item: Place {
            sentence: "A hook failed, tries again", "フックが失敗。再試行を待機中";
            demand: "The hook for its clone passed", "クローンのフックが成功している";
            rule: "the hook for its clone passed (`workspace.hooks`)";
            remedy: "the log has its output; mend `workspace.hooks` or what it needs",
                "出力はログにあります。`workspace.hooks` かその前提を修正";
            with inbox: Some(AttentionKind::Workspace), is_about_clone: true;
        }
        /// There is no disk space for the clone for its task.
        WorkspaceDisk = "workspace_disk", ends: ByPerson, item: Place {
            sentence: "No disk space for its clone", "クローン用のディスク容量が不足";
            demand: "There is disk space for the clone", "クローン用のディスク容量がある";
            rule: "there is disk space for the clone for its task (`workspace.max_disk`)";
            remedy: "`task merge` or `task discard` lets a clone of a closed task be removed; \
                 `workspace.max_disk` is the limit",
                "終了したタスクのクローンは、`task merge` か `task discard` の後に削除されます。\
                 上限は `workspace.max_disk`";
            with inbox: Some(AttentionKind::Workspace), is_about_clone: true;
        }
        /// A task that its task depends on has several results, and a person is to choose one.
        ResultToChoose = "result_to_choose", ends: ByPerson, item: Place {
            sentence: "A task that it depends on has several results", "依存するタスクに結果が複数あり、選択待ち";
            named: "{dependency} has several results; \
                    `task result {dependency} --take BRANCH` takes one",
                "{dependency} に結果が複数あり、`task result {dependency} --take BRANCH` での選択待ち";
            demand: "The results that it begins with are chosen", "前提となる結果が選択されている";
            rule: "no task that its task depends on has several results (`task result` takes one)";
        }
        /// The clone for its task is on the host of another coordinator.
        OnOtherHost = "on_other_host", ends: ByItself, item: Place {
            sentence: "Its clone is on another host", "クローンは別のホストにある";
            demand: "The clone is on this host", "クローンがこのホストにある";
            rule: "the clone for its task is on this host";
        }
        /// The number of agents in its git work tree has reached its limit.
        DirectoryInUse = "directory_in_use", ends: ByItself, item: Place {
            sentence: "As many agents as may work in its directory", "ディレクトリで作業中のエージェントが上限";
            demand: "Its directory has room for another agent", "ディレクトリで作業中のエージェントが上限未満";
            rule: "fewer than `workspace.shared_at_once` agents work in its git work tree";
            with is_of_coordinator: true;
        }
        /// A snapshot of its git work tree is being taken.
        TakingSnapshot = "taking_snapshot", ends: ByItself, item: Place {
            sentence: "A snapshot of its directory is being taken", "ディレクトリのスナップショットを作成中";
            demand: "The snapshot of its directory is taken", "ディレクトリのスナップショットが完了";
            rule: "the snapshot of its git work tree is taken";
            with is_of_coordinator: true;
        }
        /// All slots are taken.
        NoFreeSlot = "no_free_slot", ends: ByItself, item: Slot {
            sentence: "No free slot, next in line", "空きスロットなし（次の順番）";
            // The figures behind it say how many are ahead.
            named: "No free slot", "空きスロットなし（先に {ahead} 件）";
            demand: "A slot is free", "スロットが空いている";
            rule: "a slot is free";
            with action: Some(WaitAction::ChangeLimits), limit: Some("max_concurrent"),
                is_of_coordinator: true;
        }
        /// The free slots are reserved for chats.
        ChatReserve = "chat_reserve", ends: ByItself, item: Slot {
            sentence: "The free slots are kept for chats", "空きはチャット用に確保";
            demand: "A slot is free that is not kept for chats", "チャット用でない空きスロットがある";
            rule: "a slot is free that is not kept for chats (`limits.chat_reserve`)";
            with is_of_coordinator: true;
        }
        /// Its project has as many as it may.
        ProjectLimit = "project_limit", ends: ByItself, item: Slot {
            sentence: "The project runs as many agents as it may", "プロジェクトの同時実行が上限";
            named: "{project} runs {running} of {limit}",
                "{project} は上限 {limit} 件中 {running} 件を実行中";
            demand: "The project is below its limit", "プロジェクトが上限未満";
            rule: "its project runs fewer agents than `limits.per_project`";
            with action: Some(WaitAction::ChangeLimits), limit: Some("limits.per_project"),
                is_of_coordinator: true;
        }
        /// Its agent has as many as it may.
        AgentLimit = "agent_limit", ends: ByItself, item: Slot {
            sentence: "The agent runs as often as it may", "エージェントの同時実行が上限";
            named: "{agent} runs {running} of {limit}", "{agent} は上限 {limit} 件中 {running} 件を実行中";
            demand: "The agent is below its limit", "エージェントが上限未満";
            rule: "the agent has fewer instances than `limits.per_agent`";
            with action: Some(WaitAction::ChangeLimits), limit: Some("limits.per_agent"),
                is_of_coordinator: true;
        }
        /// Its provider has as many as it may.
        ProviderLimit = "provider_limit", ends: ByItself, item: Slot {
            sentence: "The provider runs as many agents as it may", "プロバイダーの同時実行が上限";
            named: "{provider} runs {running} of {limit}",
                "{provider} は上限 {limit} 件中 {running} 件を実行中";
            demand: "The provider is below its limit", "プロバイダーが上限未満";
            rule: "its provider runs fewer agents than `limits.per_provider`";
            with action: Some(WaitAction::ChangeLimits), limit: Some("limits.per_provider"),
                is_of_coordinator: true;
        }
        /// There is too little free space where the daemon keeps its state.
        LowDisk = "low_disk", ends: ByItself, item: Place {
            sentence: "Too little disk free", "ディスクの空き不足";
            named: "Too little disk free on {host}", "{host} のディスクの空き不足";
            demand: "Enough disk is free", "ディスクの空きが十分";
            rule: "there is enough free disk (`limits.min_free_disk`)";
            with is_of_coordinator: true;
        }
        /// There is too little free memory.
        LowMemory = "low_memory", ends: ByItself, item: Place {
            sentence: "Too little memory free", "メモリーの空き不足";
            named: "Too little memory free on {host}", "{host} のメモリーの空き不足";
            demand: "Enough memory is free", "メモリーの空きが十分";
            rule: "there is enough free memory (`limits.min_free_memory`)";
            with is_of_coordinator: true;
        }
        /// The configuration of the coordinator has no passkey for the agent (R-004-8).
        NoPasskey = "no_passkey", ends: ByCoordinator, item: Configuration {
            sentence: "Its coordinator has no passkey for it", "コーディネーターにパスキーがない";
            demand: "Its coordinator has a passkey for it", "コーディネーターにパスキーがある";
            rule: "its coordinator has a passkey for it";
            remedy: "add its passkey to the configuration of the coordinator",
                "コーディネーターの設定にパスキーを追加";
            with inbox: Some(AttentionKind::Misconfigured), is_of_coordinator: true;
        }
        /// No coordinator is connected, so nothing starts.
        NoCoordinator = "no_coordinator", ends: ByCoordinator, item: Configuration {
            sentence: "No coordinator is connected, so nothing starts", "コーディネーターが未接続";
            demand: "A coordinator is connected", "コーディネーターが接続している";
            rule: "a coordinator is connected (`supervise` is one)";
            remedy: "`supervise` on the machine of the agents connects one",
                "エージェントのマシンで `supervise` を実行";
        }
    }
}
