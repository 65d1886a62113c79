//! The obstacles to archiving or deleting a thing, in both languages.

use crate::Language;

/// A thing that must end first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    english: String,
    japanese: String,
}

impl Obstacle {
    /// Makes an obstacle of its texts. Each can be one of a list.
    pub fn new(english: impl Into<String>, japanese: impl Into<String>) -> Self {
        Self { english: english.into(), japanese: japanese.into() }
    }

    /// Returns the text.
    pub fn text(&self, language: Language) -> &str {
        language.either(self.english.as_str(), self.japanese.as_str())
    }

    /// Returns the texts as a list.
    pub fn list(all: &[Self], language: Language) -> String {
        let texts: Vec<&str> = all.iter().map(|it| it.text(language)).collect();
        texts.join(language.either("; ", "、"))
    }
}
