//! The texts of the inbox.

use super::Words;
use crate::domain::Language;
use crate::domain::attention::{AttentionGroup, AttentionState};

impl Words {
    pub(in crate::rest::web) const fn of_attention_group(
        &self,
        group: AttentionGroup,
    ) -> &'static str {
        let (english, japanese) = match group {
            AttentionGroup::Accounts => ("Accounts", "アカウント"),
            AttentionGroup::Failed => ("Failed", "失敗"),
            AttentionGroup::Blocked => ("Blocked", "ブロック中"),
            AttentionGroup::Operation => ("Operation", "運用"),
        };
        self.language.either(english, japanese)
    }

    pub(in crate::rest::web) const fn of_attention_state(
        &self,
        state: AttentionState,
    ) -> &'static str {
        let (english, japanese) = match state {
            AttentionState::Open => ("Open", "未対応"),
            AttentionState::Later => ("Later", "保留中"),
            AttentionState::Done => ("Done", "対応済み"),
        };
        self.language.either(english, japanese)
    }

    /// Returns the heading of an entry about an agent in a project.
    pub(in crate::rest::web) fn of_pair(&self, agent: &str, project: &str) -> String {
        match self.language {
            Language::English => format!("{agent} in {project}"),
            Language::Japanese => format!("{agent}（{project}）"),
        }
    }

    /// Returns the text of an inbox without entries of this state.
    pub(in crate::rest::web) fn of_empty_inbox(
        &self,
        state: AttentionState,
        n_running: usize,
    ) -> String {
        match state {
            AttentionState::Open => {
                let works =
                    if n_running == 1 { "1 agent is" } else { &format!("{n_running} agents are") };
                let english = format!("Nothing needs you. {works} working.");
                let japanese = format!(
                    "対応が必要な項目はありません。{n_running} 件のエージェントが作業中です。"
                );
                match self.language {
                    Language::English => english,
                    Language::Japanese => japanese,
                }
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
