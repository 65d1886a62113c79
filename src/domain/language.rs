//! The languages in which agents are spoken to.

use super::words::words;

words! {
    /// Language of every text an agent reads.
    pub enum Language as "language" {
        English = "en",
        /// The wording of the specifications, where they give one.
        Japanese = "ja",
    }
}
