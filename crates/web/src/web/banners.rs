//! The banners under the bar of a page. A page shows the worst one, and the others when asked for.

use super::shown::Since;

/// A state that concerns everything on a page.
pub(super) struct Banner {
    /// True if something is broken.
    pub(super) is_bad: bool,
    /// The name of a symbol of the sprite.
    pub(super) icon: &'static str,
    pub(super) text: String,
    pub(super) since: Option<Since>,
    /// The rest of the text, which exists in English only.
    pub(super) detail_in_english: Option<String>,
    /// The page that shows more.
    pub(super) href: Option<&'static str>,
    /// A button lets agents start again.
    pub(super) has_resume: bool,
}

impl Banner {
    /// Returns the banner of something broken.
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self { is_bad: true, ..Self::of("i-warn", text) }
    }

    /// Returns the banner of something that a person should know.
    pub(super) fn note(text: impl Into<String>) -> Self {
        Self::of("i-warn", text)
    }

    /// Returns the banner of a pause of all starts by a person.
    pub(super) fn paused(text: impl Into<String>, since: Since) -> Self {
        Self { since: Some(since), has_resume: true, ..Self::of("i-pause", text) }
    }

    /// Returns the banner of a pause by a file, which only a person at the machine ends.
    pub(super) fn pause_file(text: impl Into<String>) -> Self {
        Self::of("i-pause", text)
    }

    fn of(icon: &'static str, text: impl Into<String>) -> Self {
        Self {
            is_bad: false,
            icon,
            text: text.into(),
            since: None,
            detail_in_english: None,
            href: None,
            has_resume: false,
        }
    }
}
