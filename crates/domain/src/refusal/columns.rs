//! The columns of the table of refusals, and the macro that makes the type `Refusal` of the table.

/// The obstacle to a refused request. REST has one status for each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// The named object does not exist.
    NotFound,
    /// The object existed, and does not come back.
    Gone,
    /// The request is not valid in any state.
    Invalid,
    /// The caller has not proved who it is.
    Unauthenticated,
    /// The caller may not do this.
    Forbidden,
    /// The present state does not allow it.
    Conflict,
    /// The object was changed after the caller read it.
    Outdated,
    /// The caller came too often. The same call may be granted a moment later.
    TooMany,
    /// The server ends. The same call may be granted a moment later.
    Unavailable,
}

/// The Japanese text of a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JapaneseText {
    /// It says all.
    Whole(String),
    /// It stands before the English text, which has the reason.
    Heading(&'static str),
}

/// The advice of a row. Only refusals that people meet on the pages have it in Japanese.
pub(super) struct Hint {
    pub en: &'static str,
    pub ja: Option<&'static str>,
}

/// Makes the enum, its `Display`, and a function for each column. A function `own_…` returns what
/// the row itself has; `None` if it leaves the column out.
macro_rules! refusals {
    (
        $(#[$about:meta])*
        pub enum $Refusal:ident {
            $(
                $(#[$doc:meta])*
                $Variant:ident
                $({ $($field:ident: $Type:ty),+ })?
                $(($value:ident: $Value:ty))?
                => {
                    code: $code:expr, $kind:expr;
                    en: $en:literal $(, $en_value:expr)*;
                    $(detail: $detail:literal;)?
                    $(ja: $ja:literal $(, $ja_value:expr)*;)?
                    $(ja_heading: $ja_heading:expr;)?
                    $(hint: $hint:literal $(, $ja_hint:literal)? $(if $applies:expr)?;)?
                }
            )+
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $Refusal {
            $($(#[$doc])* $Variant $({ $($field: $Type),+ })? $(($Value))?,)+
        }

        impl std::error::Error for $Refusal {}

        #[allow(unused_variables, reason = "a text need not have all values of its row")]
        impl std::fmt::Display for $Refusal {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$Variant $({ $($field),+ })? $(($value))? => {
                        write!(f, $en $(, $en_value)*)
                    })+
                }
            }
        }

        #[allow(unused_variables, reason = "a column need not use all values of its row")]
        impl $Refusal {
            /// Returns the word that programs branch on.
            pub fn code(&self) -> &'static str {
                match self {
                    $(Self::$Variant $({ $($field),+ })? $(($value))? => $code,)+
                }
            }

            /// Returns the obstacle, which decides the status in REST.
            pub fn kind(&self) -> RefusalKind {
                match self {
                    $(Self::$Variant $({ $($field),+ })? $(($value))? => $kind,)+
                }
            }

            fn own_detail(&self) -> Option<String> {
                match self {
                    $(Self::$Variant $({ $($field),+ })? $(($value))? => {
                        refusals!(@or_none $(Some(format!($detail)))?)
                    })+
                }
            }

            fn own_japanese(&self) -> Option<JapaneseText> {
                match self {
                    $(Self::$Variant $({ $($field),+ })? $(($value))? => refusals!(
                        @or_none
                        $(Some(JapaneseText::Whole(format!($ja $(, $ja_value)*))))?
                        $(Some(JapaneseText::Heading($ja_heading)))?
                    ),)+
                }
            }

            fn own_hint(&self) -> Option<Hint> {
                match self {
                    $(Self::$Variant $({ $($field),+ })? $(($value))? => refusals!(
                        @or_none
                        $(Some(Hint { en: $hint, ja: refusals!(@or_none $(Some($ja_hint))?) })
                            $(.filter(|_| $applies))?)?
                    ),)+
                }
            }
        }
    };
    // A column that a row may leave out.
    (@or_none) => { None };
    (@or_none $column:expr) => { $column };
}

pub(super) use refusals;
