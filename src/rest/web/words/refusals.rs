//! The Japanese texts of refusals. They have the same values as the English ones.

use super::Words;
use crate::domain::{Language, Refusal, TaskId};

impl Words {
    /// Returns the sentence of a refusal in the language of the page. `None` in English, which the
    /// refusal itself has, and for a refusal whose reason exists in English only.
    pub(in crate::rest::web) fn of_refusal(&self, refusal: &Refusal) -> Option<String> {
        (self.language == Language::Japanese).then(|| self.japanese_refusal(refusal)).flatten()
    }

    fn japanese_refusal(&self, refusal: &Refusal) -> Option<String> {
        Some(match refusal {
            Refusal::ProjectNotFound { project } => {
                format!("プロジェクト {project} が見つかりません")
            }
            Refusal::AgentNotFound { agent } => format!("エージェント {agent} が見つかりません"),
            Refusal::TaskNotFound { task } | Refusal::NoSuchTask { task, .. } => {
                self.of_missing(task.as_str())
            }
            Refusal::LaunchNotFound { launch } => format!("起動履歴 {launch} が見つかりません"),
            Refusal::MessageNotFound { .. } => "メッセージが見つかりません".to_owned(),
            Refusal::CredentialNotFound { credential } => {
                format!("ログイン {credential} が見つかりません")
            }
            Refusal::AttentionNotFound { .. } => {
                "この項目は見つかりません。対応が不要になった可能性があります".to_owned()
            }
            Refusal::NotAssigned { agent, project } => {
                format!("エージェント {agent} はプロジェクト {project} に割り当てられていません")
            }
            Refusal::Inactive => "エージェントまたはプロジェクトが無効です".to_owned(),
            Refusal::NoOpenLaunch { agent, project, .. } => {
                format!("{project} で実行中の {agent} はありません")
            }
            Refusal::OutputElsewhere { coordinator, .. } => {
                format!("出力は {coordinator} のマシンにあります")
            }
            Refusal::ProviderNotFound { ai_type } => {
                format!("種別 {ai_type} のエージェントはありません")
            }
            Refusal::ImpossibleStatus { task, from, to } => format!(
                "{task} は「{}」のため、「{}」には変更できません",
                self.of_status(*from),
                self.of_status(*to)
            ),
            Refusal::NeedsAssignee { task } => {
                format!("{task} に担当がいないため、進行中にできません")
            }
            Refusal::DependenciesOpen { task, open } => {
                format!("{task} の依存タスクが完了していません: {}", open.join("、"))
            }
            Refusal::SubtasksOpen { task, open } => {
                format!("{task} に未完了のサブタスクがあります: {}", open.join("、"))
            }
            Refusal::ChecksPending { task } => {
                format!("{task} にはチェックがあり、作業中の起動だけが完了にできます")
            }
            Refusal::ParentClosed { parent, status } => format!(
                "親タスク {parent} が「{}」のため、サブタスクを未完了にできません",
                self.of_status(*status)
            ),
            Refusal::StaysInProject { task, project } => {
                format!("{task} は {project} のタスクで、他のプロジェクトに移動できません")
            }
            Refusal::PartOfItself { task } => {
                format!("{task} を自分自身のサブタスクにはできません")
            }
            Refusal::DependsOnKin { task, dependency } => {
                format!("{task} と {dependency} は親子のため、依存関係にできません")
            }
            Refusal::WaitsForItself { way } => {
                let way: Vec<&str> = way.iter().map(TaskId::as_str).collect();
                format!("依存関係が循環しています: {}", way.join(" → "))
            }
            Refusal::KeyEdited { project, key } => {
                format!("{project} のキー {key} は変更済みです。変更は 1 回だけです")
            }
            Refusal::KeyTaken { key, project } => {
                format!("キー {key} はプロジェクト {project} のものです")
            }
            Refusal::NoWorkspace { task } => format!("{task} には専用の作業場所がありません"),
            Refusal::OfForge { tasks, .. } => {
                format!("フォージの項目は削除できません: {}", tasks.join("、"))
            }
            Refusal::UnmergedWork { tasks, .. } => {
                format!("マージしていない作業があるため削除できません: {}", tasks.join("、"))
            }
            Refusal::UndoOver { id, .. } => format!("{id} の削除はもう元に戻せません"),
            Refusal::DeletedId { id, .. } => {
                format!("ID {id} は削除されたものに使われていたため、使えません")
            }
            Refusal::RateLimited | Refusal::TooManyAttempts => "試行が多すぎます".to_owned(),
            Refusal::InBatch { refusal, .. } => return self.japanese_refusal(refusal),
            _ => return None,
        })
    }

    /// Returns what to do about a refusal, in the language of the page.
    pub(in crate::rest::web) fn of_hint(&self, refusal: &Refusal) -> Option<&'static str> {
        match self.language {
            Language::English => refusal.hint(),
            Language::Japanese => japanese_hint(refusal),
        }
    }
}

/// Returns the hint about a refusal that people meet on the pages.
fn japanese_hint(refusal: &Refusal) -> Option<&'static str> {
    use crate::domain::TaskStatus::{Cancelled, Done};
    Some(match refusal {
        Refusal::ImpossibleStatus { from: Done | Cancelled, .. } => "先に未着手に戻してください",
        Refusal::NotAssigned { .. } => "プロジェクトの編集画面で割り当ててください",
        Refusal::OutputElsewhere { .. } => {
            "そのマシンで agent-coordinator logs を実行してください。終了後は最後の行をここに表示します"
        }
        Refusal::Changed { .. } => "読み込み直してから、もう一度お試しください",
        Refusal::ServerStopping | Refusal::RateLimited | Refusal::TooManyAttempts => {
            "少し待ってからもう一度お試しください"
        }
        Refusal::SubtasksOpen { .. } => "先にサブタスクを完了するか取り消してください",
        Refusal::DependenciesOpen { .. } => "先に依存タスクを完了してください",
        Refusal::ChecksPending { .. } => "エージェントの成功報告の後にチェックを実行します",
        Refusal::NeedsAssignee { .. } => "先に担当エージェントを割り当ててください",
        Refusal::ParentClosed { .. } => "先に親タスクを未着手に戻してください",
        Refusal::DependsOnKin { .. } => "サブタスクの完了は自動的に待つため、依存関係は不要です",
        Refusal::WaitsForItself { .. } => "依存関係を 1 つ外してください",
        Refusal::TooLong { .. } => {
            "短くするか、長い文章は作業ディレクトリのファイルに書いてください"
        }
        Refusal::AttentionNotFound { .. } => "要対応の一覧で現在の項目を確認してください",
        Refusal::LinkNotValid(_) => "agent-coordinator login で新しいリンクを取得してください",
        Refusal::KeyTaken { .. } => "別のキーを入力してください",
        Refusal::NotRemovable { .. } => "先にこれらを終わらせてください",
        Refusal::OfForge { .. } => "代わりにアーカイブしてください",
        Refusal::UnmergedWork { .. } => "マージするか、作業を破棄して削除してください",
        Refusal::DeletedId { .. } | Refusal::AlreadyExists { field: Some(_), .. } => {
            "別の ID を入力してください"
        }
        Refusal::InBatch { refusal, .. } => return japanese_hint(refusal),
        Refusal::UnknownAiType { .. } => {
            "既知の種別を使うか、同じ名前の項目を ai_providers に追加してください"
        }
        Refusal::WorkspaceModeFixed { .. } => {
            "同じディレクトリのプロジェクトを新しく作成してください"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::TaskStatus;

    #[test]
    fn a_japanese_refusal_has_its_values_and_no_english_word() {
        let w = Words::of(Language::Japanese);
        let refusal = Refusal::ImpossibleStatus {
            task: "SHOP-1".to_owned(),
            from: TaskStatus::Done,
            to: TaskStatus::InProgress,
        };
        let text = w.of_refusal(&refusal).unwrap();
        assert_eq!(text, "SHOP-1 は「完了」のため、「進行中」には変更できません");
        assert_eq!(w.of_hint(&refusal), Some("先に未着手に戻してください"));
        let open = vec!["SHOP-2".to_owned(), "SHOP-3".to_owned()];
        let refusal = Refusal::DependenciesOpen { task: "SHOP-1".to_owned(), open };
        let text = w.of_refusal(&refusal).unwrap();
        assert_eq!(text, "SHOP-1 の依存タスクが完了していません: SHOP-2、SHOP-3");
        let english = Words::of(Language::English);
        assert_eq!(english.of_refusal(&refusal), None, "the refusal has it");
        assert_eq!(english.of_hint(&refusal), Some("finish the dependencies first"));
    }
}
