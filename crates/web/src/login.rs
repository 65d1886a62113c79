//! Logging in and out with a browser. A GET of a link, such as a chat program's preview, does not
//! use it up. The page has a button, and the button uses the link.

use std::convert::Infallible;

use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Query, State};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{AppendHeaders, IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use super::RestState;
use super::auth::{COOKIE, attempt, check_origin, cookie_of, hold_back, only_cookie};
use super::problem::Problem;
use super::public_path;
use super::web::{LoginContent, login_page};
use domain::Secret;
use domain::credential::{COOKIE_LIFE, CredentialKind};
use domain::host::Origin;
use runtime::peer::Peer;
use service::audit::{self, Actor};
use service::{ServiceError, people};

/// The longest form, in bytes. A form with one link is far shorter.
const MAX_FORM: usize = 4096;

#[derive(Deserialize)]
struct LinkForm {
    #[serde(default)]
    link: String,
}

/// Returns the routes, which need no login.
pub(super) fn routes(state: RestState) -> Router<RestState> {
    let routes =
        Router::new().route("/login", get(show).post(log_in)).route("/logout", post(log_out));
    // The sender has shown nothing yet, so the body is limited. A form that is a little too long
    // gets the page.
    routes
        .layer(from_fn_with_state(state, public_path::in_pages))
        .layer(DefaultBodyLimit::max(4 * MAX_FORM))
}

async fn show(
    State(state): State<RestState>,
    peer: NetworkPeer,
    headers: HeaderMap,
    Query(LinkForm { link }): Query<LinkForm>,
) -> Response {
    if link.is_empty() {
        return login_page(&headers, LoginContent::HowTo);
    }
    let link = secret_in(&link);
    let secret = Secret::new(link.as_str());
    let says = match peer
        .checked(&state, &secret, state.service.credentials.look_at_link(&secret))
        .await
    {
        Ok(credential) => {
            let name = people::name_of(credential.name).await;
            LoginContent::Ready { link, name, role: credential.role }
        }
        Err(problem) => LoginContent::Refused(problem),
    };
    login_page(&headers, says)
}

async fn log_in(
    State(state): State<RestState>,
    peer: NetworkPeer,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match try_log_in(&state, &peer, &headers, &body).await {
        Ok(cookie) => {
            let back = only_cookie(&headers, BACK).filter(|path| is_page(path));
            let cookies = [cookie, cookie_of_page("", 0, &state)];
            let cookies = AppendHeaders(cookies.map(|cookie| (header::SET_COOKIE, cookie)));
            (cookies, Redirect::to(back.unwrap_or("/"))).into_response()
        }
        Err(problem) => login_page(&headers, LoginContent::Refused(problem)),
    }
}

/// Logs the browser in and returns the cookie to set.
async fn try_log_in(
    state: &RestState,
    peer: &NetworkPeer,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<HeaderValue, Problem> {
    // Another site's page must not log a person in under another name.
    check_origin(headers, state.public_origin())?;
    let link = link_of(body).ok_or_else(|| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "invalid_body",
            "the form of a login has one field, `link`",
        )
    })?;
    let used = async {
        let known = state.service.credentials.look_at_link(&link).await?;
        audit::acting(Actor::from(&known), state.service.credentials.use_link(&link)).await
    };
    let made = peer.checked(state, &link, used).await?;
    state.guesses.remember(&made.secret.token_hash());
    tracing::info!(who = %made.credential.name, role = %made.credential.role, credential_id = %made.credential.id, "logged in");
    Ok(cookie(made.secret.reveal(), COOKIE_LIFE.as_secs(), state))
}

/// The peer, if the request came over the network.
struct NetworkPeer(Option<Peer>);

impl NetworkPeer {
    /// Runs the check of a link. The answer to a wrong link over the network is delayed.
    async fn checked<T>(
        &self,
        state: &RestState,
        link: &Secret,
        check: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, Problem> {
        let Self(Some(peer)) = self else {
            return Ok(check.await?);
        };
        let attempt = attempt(state, peer, link).await?;
        match check.await {
            Ok(found) => {
                attempt.succeeded(None);
                Ok(found)
            }
            Err(error @ ServiceError::Refused(_)) => {
                Err(hold_back(attempt, peer, error.into()).await)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for NetworkPeer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get::<ConnectInfo<Peer>>().map(|ConnectInfo(peer)| peer.clone())))
    }
}

/// Returns the secret of a login link, of which a person may paste the whole address.
fn secret_in(link: &str) -> String {
    match link.trim().rsplit_once("link=") {
        Some((_, secret)) => secret.to_owned(),
        None => link.trim().to_owned(),
    }
}

fn link_of(body: &[u8]) -> Option<Secret> {
    let form = std::str::from_utf8(body).ok().filter(|form| form.len() <= MAX_FORM)?;
    // A form in a body has the syntax of a query.
    let uri: Uri = format!("/?{form}").parse().ok()?;
    let Query(LinkForm { link }) = Query::try_from_uri(&uri).ok()?;
    (!link.is_empty()).then(|| Secret::new(secret_in(&link)))
}

async fn log_out(State(state): State<RestState>, headers: HeaderMap) -> Response {
    if let Err(problem) = check_origin(&headers, state.public_origin()) {
        return login_page(&headers, LoginContent::Refused(problem));
    }
    if let Some(secret) = cookie_of(&headers) {
        let revoked = match state.service.credentials.find(CredentialKind::Cookie, &secret).await {
            Ok(Some(credential)) => {
                let revoking = state.service.credentials.revoke(&credential.id);
                audit::acting(Actor::from(&credential), revoking).await.map(Some)
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        match revoked {
            Ok(Some(gone)) => {
                tracing::info!(who = %gone.name, credential_id = %gone.id, "logged out");
            }
            Ok(None) => {}
            // The cookie is still valid then, so the answer must not claim that it is not.
            Err(error) => return login_page(&headers, LoginContent::Refused(error.into())),
        }
    }
    ([(header::SET_COOKIE, cookie("", 0, &state))], Redirect::to("/login")).into_response()
}

/// The cookie with the page that a reader who is not logged in asked for.
const BACK: &str = "agent_coordinator_back";
/// The time for a login that leads back to that page, in seconds.
const BACK_LIFE: u64 = 3600;

/// Leads the reader of a page to the login. A login in this browser leads back to the page.
pub(super) fn asked_by(state: &RestState, page: &Uri) -> Response {
    let login = Redirect::to("/login");
    match page.path_and_query().map(PathAndQuery::as_str).filter(|page| is_page(page)) {
        Some(page) => {
            ([(header::SET_COOKIE, cookie_of_page(page, BACK_LIFE, state))], login).into_response()
        }
        None => login.into_response(),
    }
}

/// Returns whether a login may lead to a path: it is a page of this server, and fits in a cookie.
fn is_page(path: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, ';' | ',' | '"' | '\\');
    path.starts_with("/ui/") && path.len() <= 1000 && path.chars().all(is_plain)
}

fn cookie_of_page(page: &str, max_age: u64, state: &RestState) -> HeaderValue {
    named_cookie(BACK, page, max_age, state)
}

fn cookie(value: &str, max_age: u64, state: &RestState) -> HeaderValue {
    named_cookie(COOKIE, value, max_age, state)
}

fn named_cookie(name: &str, value: &str, max_age: u64, state: &RestState) -> HeaderValue {
    let is_encrypted = state.public_origin().is_some_and(Origin::is_encrypted);
    let secure = if is_encrypted { "; Secure" } else { "" };
    let cookie =
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}");
    HeaderValue::try_from(cookie)
        .expect("neither a token nor a page has characters that a header can't have")
}
