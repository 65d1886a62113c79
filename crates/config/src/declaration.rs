//! Declares the keys of a section. Each key is declared once, with its effect, type, default, kind
//! and the time when a change counts:
//!
//! ```text
//! keys! {
//!     /// What the section is about.
//!     pub struct Chat in "chat" {
//!         /// What the key does.
//!         pub idle_timeout: Duration = 10 * MINUTE, durations(SECOND..=DAY), Now;
//!     }
//! }
//! ```
//!
//! The macro makes the struct with its `Default`, and [`Keys`]: the reader, the comparison for a
//! reload, and the description, from which the tests write `config/coordinator_config.yaml` and
//! `docs/configuration.md`. The comments of the keys are the texts of the example.
//!
//! `where a <= b` after the name of the section notes a file in which `a` is greater than `b`. A
//! struct of another module is declared as `impl Retention in "retention" { history: …, Now; }`,
//! and has its own `Default`.

pub(super) use super::diff::{Changes, DeclaredKey};
pub(super) use super::reader::Section;
pub(super) use domain::configuration::Applies;

/// The keys of a section.
pub(super) trait Keys: Default {
    /// The path of the section in the file; empty for the top level. `*` stands for a name that
    /// people choose.
    const SECTION: &'static str;

    /// Reads the keys. A key that is missing or not valid has its default.
    fn read(section: &mut Section<'_, '_>) -> Self;

    /// Compares the keys with those of a newer configuration. `section` is their path in the file.
    fn compare_at(&self, section: &str, new: &Self, changes: &mut Changes);

    /// Compares the keys of the section of this name.
    fn compare(&self, new: &Self, changes: &mut Changes) {
        self.compare_at(Self::SECTION, new, changes);
    }

    /// Returns each key with its value as people see it; `None` for a secret.
    fn values(&self) -> Vec<(&'static str, Option<String>)>;

    /// Returns the keys for a daemon that was started with `started`: those that count only after
    /// a restart keep their old values.
    fn until_restart(self, started: &Self) -> Self;

    /// Reads the whole section of this name.
    fn read_section(top: &mut Section<'_, '_>) -> Self {
        Self::read(&mut top.section(Self::SECTION))
    }

    /// Describes the section for the documents.
    #[cfg(test)]
    fn describe() -> Description;
}

/// A section as the documents describe it.
#[cfg(test)]
pub(super) struct Description {
    pub section: &'static str,
    pub about: &'static str,
    pub keys: Vec<KeyDescription>,
}

#[cfg(test)]
pub(super) struct KeyDescription {
    pub key: &'static str,
    pub effect: &'static str,
    /// The valid values.
    pub values: String,
    /// The default as a file would contain it.
    pub default: String,
    /// The value in the example file, if that is not the default.
    pub example: Option<&'static str>,
    pub is_required: bool,
    pub applies: Applies,
}

/// Returns the name of a key from that of its field, which may be a word of the language.
pub(super) fn name_of(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

macro_rules! keys {
    (
        $(#[doc = $about:literal])+
        pub struct $Section:ident in $path:literal $(where $low:ident <= $high:ident)? {
            $(
                $(#[doc = $effect:literal])+
                pub $key:ident: $Type:ty = $default:expr, $kind:expr, $applies:ident;
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $Section {
            $($(#[doc = $effect])+ pub $key: $Type,)+
        }

        impl Default for $Section {
            fn default() -> Self {
                Self { $($key: $default),+ }
            }
        }

        $crate::declaration::keys! {
            $(#[doc = $about])+
            impl $Section in $path $(where $low <= $high)? {
                $($(#[doc = $effect])+ $key: $kind, $applies;)+
            }
        }
    };
    (
        $(#[doc = $about:literal])+
        impl $Section:ident in $path:literal $(where $low:ident <= $high:ident)? {
            $(
                $(#[doc = $effect:literal])+
                $key:ident: $kind:expr, $applies:ident;
            )+
        }
    ) => {
        const _: () = {
            use $crate::declaration::{Applies, Changes, DeclaredKey, Keys, Section};

            impl Keys for $Section {
                const SECTION: &'static str = $path;

                fn read(section: &mut Section<'_, '_>) -> Self {
                    let default = Self::default();
                    let read = Self {
                        $($key: $kind.read(section, $crate::declaration::name_of(stringify!($key))).unwrap_or(default.$key)),+
                    };
                    $(section.check_order(
                        [stringify!($low), stringify!($high)],
                        &read.$low,
                        &read.$high,
                    );)?
                    read
                }

                fn compare_at(&self, section: &str, new: &Self, changes: &mut Changes) {
                    $(changes.key(
                        &DeclaredKey {
                            section,
                            key: $crate::declaration::name_of(stringify!($key)),
                            kind: &$kind,
                            applies: Applies::$applies,
                        },
                        &self.$key,
                        &new.$key,
                    );)+
                }

                fn values(&self) -> Vec<(&'static str, Option<String>)> {
                    vec![$(($crate::declaration::name_of(stringify!($key)), $kind.show(&self.$key))),+]
                }

                fn until_restart(self, started: &Self) -> Self {
                    Self { $($key: Applies::$applies.choose(self.$key, &started.$key)),+ }
                }

                #[cfg(test)]
                fn describe() -> $crate::declaration::Description {
                    let default = Self::default();
                    $crate::declaration::Description {
                        section: $path,
                        about: concat!($($about, "\n"),+),
                        keys: vec![$($kind.describe(
                            $crate::declaration::name_of(stringify!($key)),
                            concat!($($effect, "\n"),+),
                            &default.$key,
                            Applies::$applies,
                        )),+],
                    }
                }
            }
        };
    };
}

pub(super) use keys;
