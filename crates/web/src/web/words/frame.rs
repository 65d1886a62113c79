//! The texts of the frame of a page: its connection, what loads, and its keys.

use super::Words;

impl Words {
    /// Returns the text of a part that could not be fetched.
    pub(in crate::web) const fn no_answer(&self) -> &'static str {
        self.language.either("The daemon did not answer.", "デーモンが応答しません。")
    }

    pub(in crate::web) const fn try_again(&self) -> &'static str {
        self.language.either("Try again", "再試行")
    }

    pub(in crate::web) const fn connection_lost(&self) -> &'static str {
        self.language.either("The daemon does not answer.", "デーモンが応答しません。")
    }

    pub(in crate::web) const fn connection_lost_help(&self) -> &'static str {
        self.language.either(
            "This page continues when it is back. What you write stays here.",
            "復帰すると、この画面は自動で再開します。入力中の内容は失われません。",
        )
    }

    /// Returns the name of a menu of what is wanted seldom.
    pub(in crate::web) const fn more_actions(&self) -> &'static str {
        self.language.either("More actions", "その他の操作")
    }

    pub(in crate::web) const fn key_send_in_chat(&self) -> &'static str {
        self.language.either("Send in a chat", "チャットで送信")
    }

    pub(in crate::web) const fn key_break_in_chat(&self) -> &'static str {
        self.language.either("New line in a chat", "チャットで改行")
    }

    pub(in crate::web) const fn single_keys_hint(&self) -> &'static str {
        self.language.either(
            "You can turn off single-key shortcuts in",
            "1 文字のショートカットは次の画面で無効にできます:",
        )
    }
}
