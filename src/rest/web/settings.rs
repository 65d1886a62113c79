//! The page of the configuration in use, and the settings of a reader for these pages alone.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use super::HOME;
use super::layout::{Frame, LANGUAGE_COOKIE, NavSection, rendered};
use super::shown::When;
use crate::config::ConfigurationState;
use crate::domain::Language;
use crate::rest::extract::InForm;
use crate::rest::{Problem, RestState, public_path};

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    frame: Frame,
    configuration_state: ConfigurationState,
    version: &'static str,
}

#[derive(Template)]
#[template(path = "parts/keys_dialog.html")]
struct KeysPart {
    frame: Frame,
}

impl SettingsPage {
    /// Returns the code of each language with its own name.
    #[allow(clippy::unused_self, reason = "called by its template")]
    fn languages(&self) -> [(&'static str, &'static str); 2] {
        [(Language::English.as_str(), "English"), (Language::Japanese.as_str(), "日本語")]
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LanguageFields {
    language: Language,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new().route("/ui/settings", get(page)).route("/ui/parts/keys", get(keys))
}

/// Returns the routes that need no login. Viewers may use them, too, because they change only the
/// own browser.
pub(super) fn open_routes() -> Router<RestState> {
    Router::new().route("/ui/do/language", post(choose_language))
}

async fn page(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    let configuration_state = state.configuration.configuration_state();
    let version = env!("CARGO_PKG_VERSION");
    Ok(rendered(&SettingsPage {
        frame: frame.at(NavSection::Settings),
        configuration_state,
        version,
    }))
}

async fn keys(frame: Frame) -> Response {
    rendered(&KeysPart { frame })
}

/// Stores the language in a cookie of the browser, and redirects to the page where it was chosen.
async fn choose_language(
    State(state): State<RestState>,
    headers: HeaderMap,
    InForm(fields): InForm<LanguageFields>,
) -> Response {
    let cookie =
        format!("{LANGUAGE_COOKIE}={}; Path=/; Max-Age=31536000; SameSite=Strict", fields.language);
    let came_from = headers.get("hx-current-url").or_else(|| headers.get(header::REFERER));
    let came_from = came_from.and_then(|url| url.to_str().ok()?.parse::<axum::http::Uri>().ok());
    let path =
        came_from.as_ref().and_then(|url| url.path_and_query()).map_or(HOME, |path| path.as_str());
    let path = path.strip_prefix(public_path::of(&state, &headers)).unwrap_or(HOME);
    // A path of another site's URL would be taken for one of this server. A path that begins with
    // two slashes would be another site.
    let path = if path.starts_with("/ui") { path } else { HOME };
    ([(header::SET_COOKIE, cookie.as_str()), (header::LOCATION, path)], StatusCode::SEE_OTHER)
        .into_response()
}
