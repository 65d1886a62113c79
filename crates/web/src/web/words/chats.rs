//! The texts of a chat.

use super::Words;
use domain::Language;

impl Words {
    /// Returns the name of the field for a message to an agent.
    pub(in crate::web) fn of_message_to(&self, agent: &str) -> String {
        match self.language {
            Language::English => format!("Message {agent}"),
            Language::Japanese => format!("{agent} へのメッセージ"),
        }
    }

    /// Returns the name of a person who is not known.
    pub(in crate::web) const fn of_unknown_author(&self) -> &'static str {
        self.language.either("A person", "不明な人")
    }

    pub(in crate::web) const fn writing_answer(&self) -> &'static str {
        self.language.either("Writing an answer", "回答を作成中")
    }

    /// Returns the state of an agent that has answered everything.
    pub(in crate::web) const fn listening(&self) -> &'static str {
        self.language.either("Ready for your message", "メッセージを待っています")
    }

    /// Returns the line before the first message that the reader has not seen.
    pub(in crate::web) const fn new_messages_line(&self) -> &'static str {
        self.language.either("New", "未読")
    }

    /// Returns the mark of an agent for whom the reader began to write a message.
    pub(in crate::web) const fn draft(&self) -> &'static str {
        self.language.either("Draft", "下書き")
    }
}
