//! The texts about the starts of agents.

use super::Words;
use crate::domain::start_history::StartReason;
use crate::domain::waiting::WaitAction;

impl Words {
    /// Returns the text of the button for an action.
    pub(in crate::rest::web) const fn of_wait_action(&self, action: WaitAction) -> &'static str {
        match action {
            WaitAction::Assign | WaitAction::AssignToProject => self.assign_agent,
            WaitAction::Activate => self.language.either("Activate", "有効にする"),
            WaitAction::Resume | WaitAction::ResumeAll => self.resume,
            WaitAction::TryNow | WaitAction::TryProvider => self.try_now,
            WaitAction::EditAgent => self.edit,
            WaitAction::RetryWorkspace => self.language.either("Show", "表示"),
            WaitAction::Merge => self.merge,
            WaitAction::EndChat => self.language.either("End chat", "チャットを終了"),
            WaitAction::ChangeLimits => self.language.either("Limits…", "上限…"),
        }
    }

    /// Returns what a rule demands before an agent starts.
    pub(in crate::rest::web) const fn of_demand(&self, rule: StartReason) -> &'static str {
        let (english, japanese) = match rule {
            StartReason::Ready => ("Nothing prevents the start", "起動を妨げるものがない"),
            StartReason::Unknown => {
                ("The agent and the project exist", "エージェントとプロジェクトが存在する")
            }
            StartReason::NotAssigned => {
                ("It is assigned to the project", "プロジェクトに割り当てられている")
            }
            StartReason::Inactive => {
                ("The agent and the project are active", "エージェントとプロジェクトが有効")
            }
            StartReason::Starting | StartReason::Running | StartReason::Stopping => {
                ("It does not run already", "まだ実行されていない")
            }
            StartReason::NoWork => ("There is work for it", "作業がある"),
            StartReason::Paused => ("Starts are not paused", "起動が一時停止されていない"),
            StartReason::Held => ("No person stopped it", "人が停止していない"),
            StartReason::Suspended => ("It did not fail too often", "失敗が続いていない"),
            StartReason::Misconfigured => ("It can work as configured", "設定に誤りがない"),
            StartReason::Parked => ("Its account can be used", "アカウントを利用できる"),
            StartReason::Backoff => ("No wait after a failure", "失敗後の待機中でない"),
            StartReason::PreparingWorkspace => ("The clone is ready", "クローンの準備ができている"),
            StartReason::WorkspaceBroken => ("The clone is in order", "クローンに問題がない"),
            StartReason::WorkspaceDisk => {
                ("There is disk space for the clone", "クローン用のディスク容量がある")
            }
            StartReason::HookFailed => {
                ("The hook for its clone passed", "クローンのフックが成功している")
            }
            StartReason::OnOtherHost => ("The clone is on this host", "クローンがこのホストにある"),
            StartReason::DirectoryInUse => (
                "Its directory has room for another agent",
                "ディレクトリで作業中のエージェントが上限未満",
            ),
            StartReason::TakingSnapshot => {
                ("The snapshot of its directory is taken", "ディレクトリのスナップショットが完了")
            }
            StartReason::NoFreeSlot => ("A slot is free", "スロットが空いている"),
            StartReason::ChatReserve => {
                ("A slot is free that is not kept for chats", "チャット用でない空きスロットがある")
            }
            StartReason::ProjectLimit => {
                ("The project is below its limit", "プロジェクトが上限未満")
            }
            StartReason::AgentLimit => ("The agent is below its limit", "エージェントが上限未満"),
            StartReason::ProviderLimit => {
                ("The provider is below its limit", "プロバイダーが上限未満")
            }
            StartReason::LowDisk => ("Enough disk is free", "ディスクの空きが十分"),
            StartReason::LowMemory => ("Enough memory is free", "メモリーの空きが十分"),
            StartReason::NoPasskey => {
                ("Its coordinator has a passkey for it", "コーディネーターにパスキーがある")
            }
            StartReason::NoCoordinator => {
                ("A coordinator is connected", "コーディネーターが接続している")
            }
        };
        self.language.either(english, japanese)
    }
}
