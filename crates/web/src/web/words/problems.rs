//! The texts of problems.

use super::Words;
use domain::refusal::JapaneseText;
use domain::{Language, Refusal};

impl Words {
    /// Returns the text of a refusal. `detail` is its English text.
    pub(in crate::web) fn of_refusal(&self, refusal: &Refusal, detail: String) -> String {
        joined(self.parts_of_refusal(refusal, detail))
    }

    /// Does the same as [`Words::of_refusal`], with the English text apart from its heading.
    pub(in crate::web) fn parts_of_refusal(
        &self,
        refusal: &Refusal,
        detail: String,
    ) -> (String, Option<String>) {
        match (self.language, refusal.japanese()) {
            (Language::English, _) => (detail, None),
            (Language::Japanese, Some(JapaneseText::Whole(text))) => (text, None),
            (Language::Japanese, Some(JapaneseText::Heading(text))) => {
                (text.to_owned(), Some(detail))
            }
            (Language::Japanese, None) => (self.went_wrong.to_owned(), Some(detail)),
        }
    }

    /// Returns the text of a problem with this code. `detail` is its English text, which names the
    /// objects, so a translation keeps it.
    pub(in crate::web) fn of_problem(&self, code: &str, detail: String) -> String {
        joined(self.parts_of_problem(code, detail))
    }

    /// Does the same as [`Words::of_problem`], with the English text apart from its translation.
    pub(in crate::web) fn parts_of_problem(
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
    pub(in crate::web) fn of_missing(&self, task: &str) -> String {
        match self.language {
            Language::English => format!("There is no {task}."),
            Language::Japanese => format!("タスク {task} が見つかりません"),
        }
    }

    /// Returns the text of a link to the board of a project.
    pub(in crate::web) fn of_board(&self, project: &str) -> String {
        match self.language {
            Language::English => format!("Board of {project}"),
            Language::Japanese => format!("{project} のボード"),
        }
    }
}

fn joined(parts: (String, Option<String>)) -> String {
    match parts {
        (text, Some(detail)) => format!("{text}（{detail}）"),
        (text, None) => text,
    }
}

/// The codes whose English text names no object.
const COMPLETE: [&str; 8] = [
    "no_such_route",
    "not_authenticated",
    "viewer_may_not",
    "not_allowed",
    "body_too_large",
    "stopping",
    "unavailable",
    "bug",
];

/// Returns the Japanese text for the code of a problem that people meet on the pages and that is not
/// a refusal.
fn japanese_problem(code: &str) -> Option<&'static str> {
    Some(match code {
        "no_such_route" => "ページが見つかりません",
        "invalid" | "invalid_form" | "invalid_body" | "invalid_query" | "invalid_path" => {
            "入力内容が正しくありません"
        }
        "no_output" => "出力がありません",
        "not_authenticated" => "ログインが必要です",
        "viewer_may_not" => "閲覧のみ可能です",
        "not_allowed" => "許可されていません",
        "body_too_large" => "送信データが大きすぎます",
        "stopping" => "サーバーを停止しています",
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
        let detail = "launch lch_2 has printed nothing".to_owned();
        let japanese = Words::of(Language::Japanese).of_problem("no_output", detail.clone());
        assert_eq!(japanese, "出力がありません（launch lch_2 has printed nothing）");
        let route = Words::of(Language::Japanese).of_problem("no_such_route", "no such".to_owned());
        assert_eq!(route, "ページが見つかりません");
        let english = Words::of(Language::English).of_problem("no_output", detail.clone());
        assert_eq!(english, detail);
    }

    #[test]
    fn a_refusal_has_its_english_text_in_japanese_only_if_the_text_says_more() {
        let w = Words::of(Language::Japanese);
        assert_eq!(w.parts_of_refusal(&Refusal::Inactive, "not active".to_owned()).1, None);
        let refusal = Refusal::Invalid("the clone of tsk_2 has no commit".to_owned());
        let text = w.of_refusal(&refusal, refusal.detail());
        assert_eq!(text, "入力内容が正しくありません（the clone of tsk_2 has no commit）");
        let english = Words::of(Language::English);
        assert_eq!(english.of_refusal(&refusal, refusal.detail()), refusal.detail());
    }
}
