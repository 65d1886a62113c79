//! The texts of the inbox.

use super::Words;
use domain::Language;
use domain::attention::{AttentionGroup, AttentionKind, AttentionState};

impl Words {
    /// Returns the button that sets a blocked task in progress again.
    pub(in crate::web) const fn continue_task(&self) -> &'static str {
        self.language.either("Continue the task", "タスクを再開")
    }

    pub(in crate::web) const fn unread(&self) -> &'static str {
        self.language.either("Unread", "未読")
    }

    pub(in crate::web) const fn of_attention_group(&self, group: AttentionGroup) -> &'static str {
        match group {
            AttentionGroup::Accounts => self.accounts,
            AttentionGroup::Failed => self.failed,
            AttentionGroup::Blocked => self.blocked,
            AttentionGroup::Results => self.language.either("Results", "結果"),
            AttentionGroup::Operation => self.language.either("Operation", "運用"),
        }
    }

    pub(in crate::web) const fn of_attention_kind(&self, kind: AttentionKind) -> &'static str {
        let (english, japanese) = match kind {
            AttentionKind::Account => ("Account", "アカウント"),
            AttentionKind::Suspended => ("Failed too often", "連続で失敗"),
            AttentionKind::Misconfigured => return self.misconfigured,
            AttentionKind::Failed => return self.failed,
            AttentionKind::Blocked => return self.blocked,
            AttentionKind::Chain => ("Waits for a cancelled task", "取り消されたタスク待ち"),
            AttentionKind::Workspace => ("Clone", "クローン"),
            AttentionKind::Unmerged => ("Result to merge", "マージ待ちの結果"),
            AttentionKind::Conflict => return self.conflict(),
            AttentionKind::InterruptedMerge => ("Interrupted merge", "中断されたマージ"),
            AttentionKind::Unkillable => ("Process that does not end", "終了しないプロセス"),
            AttentionKind::Coordinator => ("Coordinator", "コーディネーター"),
            AttentionKind::Configuration => return self.configuration,
            AttentionKind::Forge => ("Forge", "フォージ"),
        };
        self.language.either(english, japanese)
    }

    pub(in crate::web) const fn of_attention_state(&self, state: AttentionState) -> &'static str {
        let (english, japanese) = match state {
            AttentionState::Open => ("Open", "未対応"),
            AttentionState::Later => ("Later", "保留中"),
            AttentionState::Done => ("Done", "対応済み"),
        };
        self.language.either(english, japanese)
    }

    /// Returns the heading of an entry about an agent in a project.
    pub(in crate::web) fn of_pair(&self, agent: &str, project: &str) -> String {
        match self.language {
            Language::English => format!("{agent} in {project}"),
            Language::Japanese => format!("{agent}（{project}）"),
        }
    }

    /// Returns the text of an inbox without entries of this state.
    pub(in crate::web) fn of_empty_inbox(&self, state: AttentionState, n_running: usize) -> String {
        match state {
            AttentionState::Open => {
                let works = match (self.language, n_running) {
                    (_, 0) => self.no_agent_works.to_owned(),
                    (Language::English, 1) => "1 agent is working.".to_owned(),
                    (Language::English, n) => format!("{n} agents are working."),
                    (Language::Japanese, n) => format!("{n} 体のエージェントが作業中です。"),
                };
                let needs = ("Nothing needs you. ", "対応が必要な項目はありません。");
                self.language.either(needs.0, needs.1).to_owned() + &works
            }
            AttentionState::Later => {
                self.language.either("Nothing is put off.", "保留中の項目はありません。").to_owned()
            }
            AttentionState::Done => self
                .language
                .either("Nothing is marked as done.", "対応済みの項目はありません。")
                .to_owned(),
        }
    }
}
