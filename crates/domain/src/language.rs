//! The languages of the texts for agents.

use super::words::words;

words! {
    /// Language of every text an agent reads.
    pub enum Language as "language" {
        English = "en",
        /// The wording of the specifications, if they give one (C-22).
        Japanese = "ja",
    }
}

impl Language {
    /// Returns the value for this language.
    pub const fn either<T: Copy>(self, english: T, japanese: T) -> T {
        match self {
            Self::English => english,
            Self::Japanese => japanese,
        }
    }

    /// Returns the text for this language, of two that were made.
    pub fn choose(self, english: String, japanese: String) -> String {
        match self {
            Self::English => english,
            Self::Japanese => japanese,
        }
    }
}
