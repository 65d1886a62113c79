//! The frame that all pages have, and its form for the reader.

use askama::Template;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use serde::Deserialize;

use super::assets::Assets;
use super::shown::{hue_of, initials_of};
use super::side::Side;
use super::words::Words;
use crate::auth::{Operator, Role};
use crate::{Problem, RestState};
use domain::{Language, ProjectId};
use service::people;

/// The cookie of the language that was chosen on the page.
pub(super) const LANGUAGE_COOKIE: &str = "agent_coordinator_language";

/// The places that the navigation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NavSection {
    Inbox,
    Projects,
    Agents,
    Launches,
    Operations,
    Settings,
}

impl NavSection {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Inbox => "inbox",
            Self::Projects => "projects",
            Self::Agents => "agents",
            Self::Launches => "launches",
            Self::Operations => "operations",
            Self::Settings => "settings",
        }
    }
}

/// The part that is the same on all pages of one reader.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    /// The texts.
    pub(super) w: &'static Words,
    pub(super) assets: &'static Assets,
    pub(super) place: NavSection,
    /// The project whose board or form is shown.
    pub(super) project: Option<ProjectId>,
    /// The side of a whole page; `None` for a part of one.
    pub(super) side: Option<Side>,
    /// The number of the newest event before the page was read. The page shows at least its
    /// effects; later events are news.
    pub(super) newest_event: i64,
    /// The operator who reads the page, if logged in.
    pub(super) operator: Option<Operator>,
    /// The name of the reader for people; empty without a login.
    pub(super) person: String,
}

impl Frame {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let w = Words::of(language_of(headers));
        Self {
            w,
            assets: Assets::get(),
            place: NavSection::Projects,
            project: None,
            side: None,
            newest_event: 0,
            operator: None,
            person: String::new(),
        }
    }

    pub(super) fn at(self, place: NavSection) -> Self {
        Self { place, ..self }
    }

    pub(super) fn may_change(&self) -> bool {
        self.operator.as_ref().is_some_and(|operator| operator.role == Role::Operator)
    }

    pub(super) fn is_at(&self, place: NavSection) -> bool {
        self.place == place
    }

    pub(super) fn is_in(&self, project: &ProjectId) -> bool {
        self.project.as_ref() == Some(project)
    }

    /// Returns whether a part of a page is asked for. Only whole pages have a side.
    pub(super) fn is_part(&self) -> bool {
        self.side.is_none()
    }

    /// Returns the number of entries of the inbox that are open for the reader.
    pub(super) fn n_attention(&self) -> usize {
        self.side.as_ref().map_or(0, |side| side.n_attention)
    }

    /// Returns the initials of the reader.
    pub(super) fn initials(&self) -> String {
        initials_of(&self.person)
    }

    /// Returns the colour of the reader.
    pub(super) fn hue(&self) -> u8 {
        hue_of(&self.person)
    }

    /// Reads the frame of a whole page: who reads it, and its side.
    pub(super) async fn read(parts: &Parts, state: &RestState) -> Result<Self, Problem> {
        // This comes before the content of the page is read.
        let newest_event = state.service.events.newest().await?;
        let operator: Option<Operator> = parts.extensions.get().cloned();
        let path = parts.uri.path();
        let is_part = path.starts_with("/ui/parts") || path.starts_with("/ui/do");
        let side = if is_part { None } else { Some(Side::read(state, operator.as_ref()).await?) };
        let person = match &operator {
            Some(operator) => people::name_of(operator.name.clone()).await,
            None => String::new(),
        };
        let project = path.strip_prefix("/ui/projects/").and_then(|rest| rest.split('/').next());
        let project = project.and_then(|project| project.parse().ok());
        Ok(Self { project, side, newest_event, operator, person, ..Self::of(&parts.headers) })
    }
}

impl FromRequestParts<RestState> for Frame {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &RestState) -> Result<Self, Problem> {
        Self::read(parts, state).await
    }
}

/// Returns the chosen language, else the one of the two that the browser prefers.
fn language_of(headers: &HeaderMap) -> Language {
    let chosen = cookie(headers, LANGUAGE_COOKIE).and_then(|language| language.parse().ok());
    let preferred = || {
        let languages =
            headers.get_all(header::ACCEPT_LANGUAGE).iter().filter_map(|value| value.to_str().ok());
        let mut languages = languages.flat_map(|languages| languages.split(','));
        languages.find_map(|language| language.trim().get(..2)?.to_ascii_lowercase().parse().ok())
    };
    chosen.or_else(preferred).unwrap_or(Language::English)
}

fn cookie<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut cookies = cookies
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='));
    cookies.find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

/// Returns a page or a part of one.
pub(super) fn rendered(template: &impl Template) -> Response {
    match template.render() {
        Ok(html) => Html(html).into_response(),
        Err(error) => {
            tracing::error!(%error, "could not write a page");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "bug", "this page could not be written")
                .into_response()
        }
    }
}

/// Declares a page and the part of it that is shown anew after a change. Both have the same
/// content; the address says which of them is asked for.
macro_rules! page_and_part {
    ($page:ident $of_page:tt, $part:ident $of_part:tt { $($field:ident: $kind:ty),+ $(,)? }) => {
        #[derive(askama::Template)]
        #[template(path = $of_page)]
        struct $page {
            frame: $crate::web::layout::Frame,
            $($field: $kind,)+
        }

        #[derive(askama::Template)]
        #[template(path = $of_part)]
        struct $part {
            frame: $crate::web::layout::Frame,
            $($field: $kind,)+
        }

        impl $page {
            fn shown(self) -> axum::response::Response {
                if !self.frame.is_part() {
                    return $crate::web::layout::rendered(&self);
                }
                let Self { frame, $($field),+ } = self;
                $crate::web::layout::rendered(&$part { frame, $($field),+ })
            }
        }
    };
}
pub(super) use page_and_part;

/// Sends the browser to another page, whether htmx or a plain form sent the request.
pub(super) fn go_to(path: &str) -> Response {
    ([("hx-redirect", path)], StatusCode::NO_CONTENT).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(headers: &[(header::HeaderName, &'static str)], expected: Language) {
        let headers =
            headers.iter().map(|(name, value)| (name.clone(), (*value).parse().unwrap())).collect();
        assert_eq!(language_of(&headers), expected, "{headers:?}");
    }

    #[test]
    fn a_page_speaks_the_language_that_was_chosen_else_the_one_that_is_preferred() {
        check(&[], Language::English);
        check(&[(header::ACCEPT_LANGUAGE, "ja,en-US;q=0.7")], Language::Japanese);
        check(&[(header::ACCEPT_LANGUAGE, "fr-CH, JA;q=0.9, en;q=0.8")], Language::Japanese);
        check(&[(header::ACCEPT_LANGUAGE, "de")], Language::English);
        let chosen = (header::COOKIE, "a=b; agent_coordinator_language=en");
        check(&[(header::ACCEPT_LANGUAGE, "ja"), chosen], Language::English);
        check(
            &[(header::COOKIE, "agent_coordinator_language=xx"), (header::ACCEPT_LANGUAGE, "ja")],
            Language::Japanese,
        );
    }
}
