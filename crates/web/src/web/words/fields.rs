//! The texts of mistakes in the fields of forms. Each stands beside its field, so that it need not
//! name the field.

use super::Words;
use crate::problem::FieldProblem;
use domain::{Language, Refusal};

impl Words {
    /// Returns the field of a form that a refusal is about, and what is to be written into it;
    /// `None` for a refusal of something else.
    pub(in crate::web) fn of_field(&self, refusal: &Refusal) -> Option<FieldProblem> {
        let is_english = self.language == Language::English;
        let (field, message) = match refusal {
            Refusal::Missing { text: "title", .. } => ("title", self.needs_title.to_owned()),
            Refusal::Missing { text, .. } => (*text, self.needs_text.to_owned()),
            Refusal::TooLong { text, length, limit } if is_english => {
                let message = format!("This has {length} characters. The limit is {limit}.");
                (*text, message)
            }
            Refusal::TooLong { text, length, limit } => {
                let message =
                    format!("{limit} 文字以内で入力してください（現在は {length} 文字です）。");
                (*text, message)
            }
            Refusal::NotOneLine { text, position } if is_english => {
                let message = format!(
                    "Character {position} is a control character. Write one line of plain text."
                );
                (*text, message)
            }
            Refusal::NotOneLine { text, position } => {
                let message = format!(
                    "{position} 文字目に制御文字があります。改行のない 1 行で入力してください。"
                );
                (*text, message)
            }
            Refusal::NeedsAssignee { .. } => ("assignee", self.needs_agent().to_owned()),
            Refusal::NotAbsolute { .. } => ("working_directory", self.needs_path.to_owned()),
            Refusal::UnknownAiType { meant, .. } => {
                ("ai_type", self.of_unknown_kind(meant.as_deref()))
            }
            Refusal::AlreadyExists { .. } => ("id", self.id_taken.to_owned()),
            Refusal::DeletedId { .. } => ("id", self.id_deleted.to_owned()),
            Refusal::BadWorkspaceSetting { key, problem } => {
                let field = match *key {
                    "base" => "workspace_base",
                    "branch" => "workspace_branch",
                    key => key,
                };
                (field, self.of_refusal(refusal, problem.clone()))
            }
            Refusal::NoSuchTask { .. }
            | Refusal::DependsOnKin { .. }
            | Refusal::WaitsForItself { .. } => {
                ("dependencies", self.of_refusal(refusal, refusal.to_string()))
            }
            _ => return None,
        };
        Some(FieldProblem { path: field.to_owned(), message })
    }

    const fn needs_agent(&self) -> &'static str {
        self.language.either(
            "Choose an agent to start the task.",
            "開始するには担当エージェントを選択してください。",
        )
    }

    fn of_unknown_kind(&self, meant: Option<&str>) -> String {
        match (self.language, meant) {
            (Language::English, Some(meant)) => {
                format!("No provider starts this kind. Did you mean {meant}?")
            }
            (Language::English, None) => {
                "No provider starts this kind. Choose one from the list.".to_owned()
            }
            (Language::Japanese, Some(meant)) => {
                format!("この種別を起動できるものがありません。「{meant}」ではありませんか？")
            }
            (Language::Japanese, None) => {
                "この種別を起動できるものがありません。一覧から選択してください。".to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::limits;

    #[test]
    fn a_mistake_is_told_at_its_field_in_the_language_of_the_reader() {
        let long = limits::TITLE.take(&"x".repeat(501)).unwrap_err();
        let english = Words::of(Language::English).of_field(&long).unwrap();
        assert_eq!(english.path, "title");
        assert!(english.message.starts_with("This has 501 characters"), "{}", english.message);
        let japanese = Words::of(Language::Japanese).of_field(&long).unwrap();
        assert!(japanese.message.starts_with("500 文字以内"), "{}", japanese.message);
        assert_eq!(Words::of(Language::English).of_field(&Refusal::Inactive), None);
    }
}
