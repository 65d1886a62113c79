//! Enums that are one word each in JSON, SQL, YAML and on the command line. One list defines each
//! enum.

use super::printable::excerpt;

/// Defines an enum with `ALL`, `as_str`, `FromStr`, `Display`, serde and a schema that all agree.
#[macro_export]
macro_rules! define_words {
    ($(#[$doc:meta])* pub enum $name:ident as $kind:literal { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All values, in their order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text).ok_or_else(|| {
                    $crate::words::UnknownWord::new($kind, text, Self::ALL.iter().map(|word| word.as_str()))
                })
            }
        }
    };
}

pub use define_words as words;

/// The error for a word that is not a value of its enum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is not a valid {kind}: expected one of {expected}")]
pub struct UnknownWord {
    kind: &'static str,
    word: String,
    expected: String,
}

impl UnknownWord {
    /// Makes the error. The macro calls it.
    pub fn new<'a>(
        kind: &'static str,
        word: &str,
        expected: impl Iterator<Item = &'a str>,
    ) -> Self {
        Self {
            kind,
            word: excerpt(word, 80).into_owned(),
            expected: expected.collect::<Vec<_>>().join(", "),
        }
    }
}
