//! The reasons for a launch that begins a conversation afresh.

use crate::language::Language;
use crate::words::words;

words! {
    /// The reason why a launch does not continue the conversation of the launch before. The reasons
    /// are checked in this order.
    pub enum FreshReason as "reason for a fresh start" {
        /// Continuing is turned off, or the CLI cannot do it.
        Off = "off",
        /// There is no conversation, or its first launch never authenticated.
        None = "none",
        /// A person asked for it.
        Asked = "asked",
        /// The task was cancelled, reported as failed, or given to another agent.
        Closed = "closed",
        /// Another entry of `ai_providers`, preset, user or wrapper.
        OtherAccount = "other_account",
        OtherModel = "other_model",
        /// The CLI continues a conversation only in its own directory.
        OtherDirectory = "other_directory",
        /// The transcript is on another machine.
        OtherHost = "other_host",
        /// The transcript is missing or empty.
        Gone = "gone",
        /// The clone of the conversation was removed.
        WorkspaceGone = "workspace_gone",
        /// The CLI did not accept the conversation.
        Refused = "refused",
        /// Two launches in a row continued it and did not authenticate.
        Unhelpful = "unhelpful",
        /// It was not used for longer than `continue.max_age`.
        TooOld = "too_old",
    }
}

impl FreshReason {
    /// Returns the reason as a clause for people.
    pub const fn clause(self, language: Language) -> &'static str {
        match self {
            Self::Off => language.either("continuing is turned off", "会話の継続が無効"),
            Self::None => language.either("there was none before", "以前の会話がない"),
            Self::Asked => language.either("a person asked for it", "ユーザーが要求した"),
            Self::Closed => language.either(
                "the task was cancelled, failed, or was given to another agent",
                "タスクが中止・失敗したか、別のエージェントに割り当てられた",
            ),
            Self::OtherAccount => {
                language.either("the provider has changed", "プロバイダーが変更された")
            }
            Self::OtherModel => language.either("the model has changed", "モデルが変更された"),
            Self::OtherDirectory => {
                language.either("the directory has changed", "ディレクトリが変更された")
            }
            Self::OtherHost => {
                language.either("its transcript is on another host", "会話の記録が別のホストにある")
            }
            Self::Gone => language.either("its transcript is gone", "会話の記録が失われた"),
            Self::WorkspaceGone => language.either("its clone was removed", "クローンが削除された"),
            Self::Refused => {
                language.either("the CLI did not accept it", "CLI が会話を受け付けなかった")
            }
            Self::Unhelpful => language
                .either("its agent did not go on in it", "エージェントが会話を再開しなかった"),
            Self::TooOld => language.either("it is too old", "会話が古すぎる"),
        }
    }

    /// Returns whether a conversation existed that is not continued.
    pub const fn is_news(self) -> bool {
        !matches!(self, Self::None)
    }
}
