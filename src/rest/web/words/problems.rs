//! The texts of problems.

use super::Words;
use crate::domain::Language;

impl Words {
    /// Returns the text of a problem with this code. `detail` is its English text, which names the
    /// objects, so a translation keeps it.
    pub(in crate::rest::web) fn of_problem(&self, code: &str, detail: String) -> String {
        match self.parts_of_problem(code, detail) {
            (text, Some(detail)) => format!("{text}（{detail}）"),
            (text, None) => text,
        }
    }

    /// Does the same as [`Words::of_problem`], with the English text apart from its translation.
    pub(in crate::rest::web) fn parts_of_problem(
        &self,
        code: &str,
        detail: String,
    ) -> (String, Option<String>) {
        match (self.language, japanese_problem(code)) {
            (Language::English, _) => (detail, None),
            (Language::Japanese, Some(text)) if COMPLETE.contains(&code) => (text.to_owned(), None),
            (Language::Japanese, text) => {
                (text.unwrap_or(self.went_wrong).to_owned(), Some(detail))
            }
        }
    }

    /// Returns the text of the page of a task that does not exist.
    pub(in crate::rest::web) fn of_missing(&self, task: &str) -> String {
        match self.language {
            Language::English => format!("There is no {task}."),
            Language::Japanese => format!("タスク {task} が見つかりません"),
        }
    }

    /// Returns the text of a link to the board of a project.
    pub(in crate::rest::web) fn of_board(&self, project: &str) -> String {
        match self.language {
            Language::English => format!("Board of {project}"),
            Language::Japanese => format!("{project} のボード"),
        }
    }
}

/// The codes whose English text names no object.
const COMPLETE: [&str; 10] = [
    "no_such_route",
    "link_not_valid",
    "not_authenticated",
    "viewer_may_not",
    "not_allowed",
    "body_too_large",
    "server_stopping",
    "stopping",
    "unavailable",
    "bug",
];

/// Returns the Japanese text for the code of a problem that people meet on the pages. A refusal whose
/// sentence has values is in `refusals.rs` alone.
fn japanese_problem(code: &str) -> Option<&'static str> {
    Some(match code {
        "session_not_found" => "セッションが見つかりません",
        "no_such_route" => "ページが見つかりません",
        "unknown_ai_type" => "この種別 (ai_type) を起動できるプロバイダーがありません",
        "form_foreign" => {
            "このフォームは別の人のために作られたものです。もう一度送信すると、あなたの操作として実行されます"
        }
        "form_expired" => {
            "このフォームは作成から 1 日以上たっています。まだ送信していない場合は、もう一度送信してください"
        }
        "form_sent" => {
            "このフォームは別の内容ですでに送信されています。もう一度送信すると、もう 1 件作成します"
        }
        "already_exists" => "同じ ID がすでに存在します",
        "invalid" | "invalid_form" | "invalid_body" | "invalid_query" | "invalid_path" => {
            "入力内容が正しくありません"
        }
        "too_long" => "入力が長すぎます",
        "not_one_line" => "改行や制御文字は使えません",
        "precondition_failed" => "他の変更が先に保存されました。読み込み直してください",
        "limit_reached" => "上限に達しています",
        "not_removable" => "まだ終わっていないものがあるため実行できません",
        "cannot_come_back" => "必要なものが残っていないため、元に戻せません",
        "workspace_failed" => "作業場所の処理に失敗しました",
        "no_output" => "出力がありません",
        "link_not_valid" => "このログインリンクは使えません",
        "not_authenticated" => "ログインが必要です",
        "viewer_may_not" => "閲覧のみ可能です",
        "not_allowed" => "許可されていません",
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
        let detail = "the clone of tsk_2 has no commit".to_owned();
        let japanese = Words::of(Language::Japanese).of_problem("workspace_failed", detail.clone());
        assert!(japanese.starts_with("作業場所の処理") && japanese.contains("tsk_2"), "{japanese}");
        let route = Words::of(Language::Japanese).of_problem("no_such_route", "no such".to_owned());
        assert_eq!(route, "ページが見つかりません");
        let english = Words::of(Language::English).of_problem("workspace_failed", detail.clone());
        assert_eq!(english, detail);
    }
}
