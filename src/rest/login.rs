//! Logging in and out with a browser. A link that is only looked at (by a chat program that previews it, say) is used up by
//! nobody: its page has a button, and the button uses it.

use std::convert::Infallible;

use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use super::RestState;
use super::auth::{COOKIE, check_origin, cookie_of, hold_back};
use super::problem::Problem;
use crate::domain::Secret;
use crate::domain::credential::{COOKIE_LIFE, CredentialKind};
use crate::domain::host::Origin;
use crate::peer::Peer;
use crate::service::ServiceError;
use crate::service::audit::{self, Actor};

/// A form with one link is far shorter.
const MAX_FORM: usize = 4096;

#[derive(Deserialize)]
struct LinkForm {
    #[serde(default)]
    link: String,
}

/// Open to everybody.
pub(super) fn routes() -> Router<RestState> {
    Router::new().route("/login", get(show).post(log_in)).route("/logout", post(log_out))
}

async fn show(
    State(state): State<RestState>,
    peer: NetworkPeer,
    Query(LinkForm { link }): Query<LinkForm>,
) -> Response {
    if link.is_empty() {
        return page(
            StatusCode::OK,
            "<p>To log in, ask for a link on the machine where the daemon runs, and open it \
            here within ten minutes:</p><pre>agent-coordinator login</pre>",
        );
    }
    match state.service.look_at_link(&Secret::new(link.as_str())).await {
        Ok(credential) => {
            let (link, name, role) = (escaped(&link), escaped(&credential.name), credential.role);
            page(
                StatusCode::OK,
                &format!(
                    "<p>Log in as <strong>{name}</strong> ({role})?</p>\
                 <form method=\"post\" action=\"/login\"><input type=\"hidden\" name=\"link\" value=\"{link}\">\
                 <button type=\"submit\">Log in</button></form>"
                ),
            )
        }
        Err(error) => refused(wrong_link(&state, &peer, error).await),
    }
}

async fn log_in(State(state): State<RestState>, peer: NetworkPeer, headers: HeaderMap, body: Bytes) -> Response {
    match try_log_in(&state, &peer, &headers, &body).await {
        Ok(cookie) => ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response(),
        Err(problem) => refused(problem),
    }
}

/// The cookie to set.
async fn try_log_in(
    state: &RestState,
    peer: &NetworkPeer,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<HeaderValue, Problem> {
    // Nobody is logged in by a page of somebody else's, as somebody else.
    check_origin(headers, state.public_origin.as_ref())?;
    let link = link_of(body).ok_or_else(|| {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_body", "the form of a login has one field, `link`")
    })?;
    let used = async {
        let known = state.service.look_at_link(&link).await?;
        audit::acting(Actor::from(&known), state.service.use_link(&link)).await
    };
    let made = match used.await {
        Ok(made) => made,
        Err(error) => return Err(wrong_link(state, peer, error).await),
    };
    tracing::info!(who = %made.credential.name, role = %made.credential.role, credential_id = %made.credential.id, "logged in");
    Ok(cookie(made.secret.reveal(), COOKIE_LIFE.as_secs(), state))
}

/// Why a link lets nobody in; after a while, where it is guessed at.
async fn wrong_link(state: &RestState, peer: &NetworkPeer, error: ServiceError) -> Problem {
    match (&error, peer) {
        (ServiceError::Refused(_), NetworkPeer(Some(peer))) => hold_back(state, peer, error.into()).await,
        _ => error.into(),
    }
}

/// Who asks, where that is over the network.
struct NetworkPeer(Option<Peer>);

impl<S: Sync> FromRequestParts<S> for NetworkPeer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get::<ConnectInfo<Peer>>().map(|ConnectInfo(peer)| peer.clone())))
    }
}

fn link_of(body: &[u8]) -> Option<Secret> {
    let form = std::str::from_utf8(body).ok().filter(|form| form.len() <= MAX_FORM)?;
    // A form in a body is written as a query is.
    let uri: Uri = format!("/?{form}").parse().ok()?;
    let Query(LinkForm { link }) = Query::try_from_uri(&uri).ok()?;
    (!link.is_empty()).then(|| Secret::new(link))
}

async fn log_out(State(state): State<RestState>, headers: HeaderMap) -> Response {
    if let Err(problem) = check_origin(&headers, state.public_origin.as_ref()) {
        return refused(problem);
    }
    if let Some(secret) = cookie_of(&headers) {
        let revoked = match state.service.credential_of(CredentialKind::Cookie, &secret).await {
            Ok(Some(credential)) => {
                let revoking = state.service.revoke_credential(&credential.id);
                audit::acting(Actor::from(&credential), revoking).await.map(Some)
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        match revoked {
            Ok(Some(gone)) => tracing::info!(who = %gone.name, credential_id = %gone.id, "logged out"),
            Ok(None) => {}
            // It would still be good: nobody is told that it isn't.
            Err(error) => return refused(error.into()),
        }
    }
    ([(header::SET_COOKIE, cookie("", 0, &state))], Redirect::to("/login")).into_response()
}

fn cookie(value: &str, max_age: u64, state: &RestState) -> HeaderValue {
    let is_encrypted = state.public_origin.as_ref().is_some_and(Origin::is_encrypted);
    let secure = if is_encrypted { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}");
    HeaderValue::try_from(cookie).expect("a token has no characters that a header can't have")
}

/// A problem as a page: it is a person who reads it.
fn refused(problem: Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let hint = problem.hint.map(|hint| format!("<p>{}</p>", escaped(&hint))).unwrap_or_default();
    page(
        status,
        &format!("<p role=\"alert\" data-code=\"{}\">{}</p>{hint}", escaped(&problem.code), escaped(&problem.detail)),
    )
}

fn page(status: StatusCode, content: &str) -> Response {
    let html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Log in · agent-coordinator</title>\
         </head><body><main><h1>agent-coordinator</h1>{content}</main></body></html>"
    );
    (status, Html(html)).into_response()
}

/// As text in HTML, in an attribute too.
fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, c| {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
        escaped
    })
}
