//! The page of the settings: those of a reader for these pages alone, the configuration in use, and
//! the logins of people and scripts.

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
use crate::extract::{InForm, InPath};
use crate::{Problem, RestState, public_path};
use domain::configuration::ConfigurationState;
use domain::credential::{CredentialKind, Role};
use domain::{CredentialId, Language};
use service::people;

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    frame: Frame,
    configuration_state: ConfigurationState,
    version: &'static str,
    /// `None` for a reader who may not change anything.
    logins: Option<Vec<ShownCredential>>,
}

/// The configuration in use, and the mistakes of a file that is not.
#[derive(Template)]
#[template(path = "parts/configuration.html")]
struct ConfigurationPart {
    frame: Frame,
    configuration_state: ConfigurationState,
}

#[derive(Template)]
#[template(path = "parts/logins.html")]
struct LoginsPart {
    frame: Frame,
    logins: Vec<ShownCredential>,
}

/// A login, a link to one, or a token.
struct ShownCredential {
    id: CredentialId,
    kind: CredentialKind,
    name: String,
    role: Role,
    last_used: Option<When>,
    expires: Option<When>,
    /// True for the login of this browser.
    is_own: bool,
}

impl ShownCredential {
    /// Returns all that are valid, the newest first.
    async fn all(frame: &Frame, state: &RestState) -> Result<Vec<Self>, Problem> {
        let own = frame.operator.as_ref().and_then(|operator| operator.credential.as_ref());
        let all = state.service.credentials.list().await?;
        let names = people::names_of(all.iter().map(|credential| &credential.name)).await;
        let of = all.into_iter().rev().map(|credential| Self {
            is_own: Some(&credential.id) == own,
            name: names.get(&credential.name).cloned().unwrap_or(credential.name),
            id: credential.id,
            kind: credential.kind,
            role: credential.role,
            last_used: credential.last_used_at.map(When),
            expires: credential.expires_at.map(When),
        });
        Ok(of.collect())
    }
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
    Router::new()
        .route("/ui/settings", get(page))
        .route("/ui/parts/settings/configuration", get(configuration))
        .route("/ui/parts/keys", get(keys))
        .route("/ui/do/logins/{credential}/revoke", post(revoke))
}

/// Returns the routes that need no login. Viewers may use them, too, because they change only the
/// own browser.
pub(super) fn open_routes() -> Router<RestState> {
    Router::new().route("/ui/do/language", post(choose_language))
}

async fn page(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    let configuration_state = state.configuration.configuration_state();
    let version = env!("CARGO_PKG_VERSION");
    let logins =
        if frame.may_change() { Some(ShownCredential::all(&frame, &state).await?) } else { None };
    let frame = frame.at(NavSection::Settings);
    Ok(rendered(&SettingsPage { frame, configuration_state, version, logins }))
}

async fn configuration(frame: Frame, State(state): State<RestState>) -> Response {
    let configuration_state = state.configuration.configuration_state();
    rendered(&ConfigurationPart { frame, configuration_state })
}

/// Revokes a login, a link or a token, and returns those that are left.
async fn revoke(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<CredentialId>,
) -> Result<Response, Problem> {
    state.service.credentials.revoke(&id).await?;
    let logins = ShownCredential::all(&frame, &state).await?;
    Ok(rendered(&LoginsPart { frame, logins }))
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
