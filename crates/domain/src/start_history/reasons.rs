//! The reasons why a key may or may not start, and what is known of each without the facts of one
//! agent. The table of `table.rs` has a row for each. `domain::waiting` adds the facts.

use crate::attention::AttentionKind;
use crate::id::{AgentId, ProjectId};
use crate::language::Language;
use crate::waiting::WaitAction;

/// A text in English and in Japanese.
type Text = (&'static str, &'static str);

/// A row of the table.
#[derive(Debug)]
pub struct ReasonRow {
    /// The sentence that says why the agent does not start.
    sentence: Text,
    /// The same with names and figures, for which placeholders such as `{agent}` stand.
    pub named: Option<Text>,
    /// The reverse of the reason, in the checklist of the page.
    demand: Text,
    /// The same, in the rules that `why` prints, with the command or the setting that is about it.
    pub rule: &'static str,
    pub ends: WaitEnd,
    /// The item of the checklist that it belongs to; `None` if the checklist leaves it out.
    pub item: Option<ChecklistItem>,
    /// The action of a person on the page that ends it at once.
    pub action: Option<WaitAction>,
    /// The command with which a person ends it, if there is a simple one. `{agent}` and `{project}`
    /// stand for the ids.
    remedy: Option<Text>,
    /// The kind of its entry in the inbox; `None` if it has none of its own.
    pub inbox: Option<AttentionKind>,
    /// The setting of the limit that is reached.
    pub limit: Option<&'static str>,
    /// Coordinators give it, and not their server.
    pub is_of_coordinator: bool,
    /// A chat that does not start for it also refuses messages.
    pub refuses_messages: bool,
    /// It is about the clone for the task.
    pub is_about_clone: bool,
    /// The rank among the reasons of the pairs of an agent. The lowest one is told to clients that
    /// do not send a project.
    pub rank: u8,
}

impl ReasonRow {
    /// The usual values of the columns that a row may leave out.
    const USUAL: Self = Self {
        sentence: ("", ""),
        named: None,
        demand: ("", ""),
        rule: "",
        ends: WaitEnd::ByItself,
        item: None,
        action: None,
        remedy: None,
        inbox: None,
        limit: None,
        is_of_coordinator: false,
        refuses_messages: false,
        is_about_clone: false,
        rank: 4,
    };
}

/// The end of a wait for a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitEnd {
    /// It is not a wait: the agent may start, runs, or has no work.
    NoWait,
    ByItself,
    /// Only a person ends it.
    ByPerson,
    /// A person wanted it, and ends it at some time.
    AsWanted,
    /// It ends when the account works again. Only a person ends a failed login.
    WithAccount,
    /// Only a person ends it, or another coordinator that comes.
    ByCoordinator,
}

/// The items of the checklist of a start, in their order. Each stands for one or several reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecklistItem {
    Assigned,
    Work,
    /// The last launch of the key has ended.
    LastLaunch,
    NotHeld,
    NoFailures,
    /// The agent can work as it and its coordinator are configured.
    Configuration,
    Account,
    NotPaused,
    /// The clone, the directory and the machine.
    Place,
    Slot,
}

/// Defines the enum and the table. The columns after `with` are those whose values are not the
/// usual ones.
macro_rules! reasons {
    (
        $(#[$doc:meta])*
        pub enum $Reasons:ident as $kind:literal {
            $(
                $(#[$about:meta])*
                $reason:ident = $word:literal, ends: $ends:ident $(, item: $item:ident)? {
                    sentence: $sentence:literal, $sentence_ja:literal;
                    $(named: $named:literal, $named_ja:literal;)?
                    demand: $demand:literal, $demand_ja:literal;
                    rule: $rule:literal;
                    $(remedy: $remedy:literal, $remedy_ja:literal;)?
                    $(with $($column:ident: $value:expr),+;)?
                }
            )+
        }
    ) => {
        words! {
            $(#[$doc])*
            pub enum $Reasons as $kind {
                $($(#[$about])* $reason = $word,)+
            }
        }

        impl $Reasons {
            /// Returns all that is known of the reason without the facts of one agent.
            pub const fn row(self) -> &'static ReasonRow {
                match self {
                    $(Self::$reason => {
                        const ROW: ReasonRow = ReasonRow {
                            sentence: ($sentence, $sentence_ja),
                            $(named: Some(($named, $named_ja)),)?
                            demand: ($demand, $demand_ja),
                            rule: $rule,
                            ends: WaitEnd::$ends,
                            $(item: Some(ChecklistItem::$item),)?
                            $(remedy: Some(($remedy, $remedy_ja)),)?
                            $($($column: $value,)+)?
                            ..ReasonRow::USUAL
                        };
                        &ROW
                    })+
                }
            }
        }
    };
}

mod table;

pub use table::StartReason;

impl StartReason {
    /// Returns the sentence that says why the agent does not start, without figures and names.
    pub const fn sentence(self, language: Language) -> &'static str {
        let text = self.row().sentence;
        language.either(text.0, text.1)
    }

    /// Returns the sentence with names and figures; `None` if the reason has none, or if a value is
    /// not known. `value` returns what stands for a placeholder.
    pub fn named_sentence(
        self,
        language: Language,
        value: impl Fn(&str) -> Option<String>,
    ) -> Option<String> {
        let (english, japanese) = self.row().named?;
        Some(language.choose(filled(english, &value)?, filled(japanese, &value)?))
    }

    /// Returns the reverse of the reason, for a checklist of what an agent needs to start.
    pub const fn demand(self, language: Language) -> &'static str {
        let text = self.row().demand;
        language.either(text.0, text.1)
    }

    /// Returns how a person ends it on the command line, if that is simple.
    pub fn remedy(
        self,
        agent: &AgentId,
        project: &ProjectId,
        language: Language,
    ) -> Option<String> {
        let (english, japanese) = self.row().remedy?;
        filled(language.either(english, japanese), &|placeholder| match placeholder {
            "agent" => Some(agent.to_string()),
            "project" => Some(project.to_string()),
            _ => None,
        })
    }

    /// Returns whether the start waits for a person, or for something else without a known end.
    pub const fn waits_indefinitely(self) -> bool {
        matches!(self.row().ends, WaitEnd::ByPerson | WaitEnd::AsWanted | WaitEnd::WithAccount)
    }
}

/// Returns a text with the values of its placeholders; `None` if one is not known.
fn filled(text: &str, value: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut filled = String::new();
    for (n, part) in text.split(['{', '}']).enumerate() {
        // Each second part stands between braces.
        if n % 2 == 0 {
            filled.push_str(part);
        } else {
            filled.push_str(&value(part)?);
        }
    }
    Some(filled)
}

#[cfg(test)]
mod tests;
