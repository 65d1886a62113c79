//! Authentication. Every request of a person or a script gets an [`Operator`] or is refused. On the
//! control socket the kernel identifies the user (`guard`). Over the network a token or a cookie
//! does.
//!
//! This module also refuses requests that another site makes a browser send. A browser adds the
//! cookie to every request of any page. Therefore a request that could change something must prove
//! that it comes from this server. A browser does not add a token by itself, so that a request with
//! a token need not prove that.

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use std::convert::Infallible;
use std::sync::Arc;

use futures::StreamExt as _;

use super::problem::Problem;
use super::{RestState, login, web};
use domain::credential::CredentialKind;
use domain::host::{Origin, is_same_origin};
use domain::{Credential, CredentialId, Refusal, Secret};
use runtime::clock;
use runtime::http::only_header;
use runtime::peer::Peer;
use runtime::throttle::{Attempt, Guesser, SlotRule};
use service::Service;
use service::audit::{self, Actor};

pub use domain::credential::Role;

/// The cookie in which a browser keeps its secret.
pub(super) const COOKIE: &str = "agent_coordinator_session";

/// The operator of a request, with its role. A handler takes it as an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// The name of the operator; `local:<uid>` on the control socket.
    pub name: String,
    pub role: Role,
    /// The credential of the login; `None` on the control socket.
    pub credential: Option<CredentialId>,
}

impl Operator {
    /// Returns whether a request of the operator counts as an open view of a chat. A chat ends after
    /// its last view is closed, so a request of a viewer does not count. Neither does one that the
    /// browser sends from a page of another site, such as for a picture.
    pub(super) fn may_view_chats(&self, headers: &HeaderMap) -> bool {
        let is_own_page = headers.get(&SEC_FETCH_SITE).is_none_or(|site| site == "same-origin");
        self.role == Role::Operator && is_own_page
    }

    /// Returns the operator for the user at the other end of the control socket.
    pub(super) fn local(uid: u32) -> Self {
        Self { name: format!("local:{uid}"), role: Role::Operator, credential: None }
    }

    /// Checks that the role allows the method. A viewer may only read.
    pub(super) fn check(&self, method: &Method) -> Result<(), Problem> {
        if self.role == Role::Operator || method.is_safe() {
            return Ok(());
        }
        let detail = format!("`{}` is a viewer, and viewers change nothing", self.name);
        let hint =
            "a person who may change things logs in with: agent-coordinator login --role operator";
        Err(Problem::new(StatusCode::FORBIDDEN, "viewer_may_not", detail).with_hint(Some(hint)))
    }
}

impl From<Credential> for Operator {
    fn from(credential: Credential) -> Self {
        Self { name: credential.name, role: credential.role, credential: Some(credential.id) }
    }
}

impl<S: Sync> FromRequestParts<S> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(not_authenticated)
    }
}

/// The [`Operator`] if there is one, for pages that need no login.
pub struct MaybeOperator(pub Option<Operator>);

impl<S: Sync> FromRequestParts<S> for MaybeOperator {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get::<Operator>().cloned()))
    }
}

/// Returns `router` for requests with a valid token or cookie. Paths that are not its routes need
/// no protection.
pub(super) fn authenticated(router: Router, state: &RestState) -> Router {
    router.route_layer(from_fn_with_state(state.clone(), authenticate))
}

/// Carries out a request for `operator`, whose permission was checked.
pub(super) async fn run_for(operator: Operator, mut request: Request, next: Next) -> Response {
    // Without these headers, no later code can log the secrets.
    request.headers_mut().remove(header::AUTHORIZATION);
    forget_cookie(request.headers_mut());
    let actor = Actor { name: operator.name.clone(), credential: operator.credential.clone() };
    let changes_something = !request.method().is_safe();
    request.extensions_mut().insert(operator);
    if changes_something {
        audit::acting(actor, next.run(request)).await
    } else {
        next.run(request).await
    }
}

async fn authenticate(
    State(state): State<RestState>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let operator = match operator_of(&state, &peer, request.method(), request.headers()).await {
        Ok(operator) => operator,
        Err(problem) if problem.status == StatusCode::UNAUTHORIZED && is_for_page(&request) => {
            return login::asked_by(&state, request.uri());
        }
        Err(problem) => {
            // Requests without a credential, and requests that come too fast, must not fill the
            // log.
            if problem.status == StatusCode::FORBIDDEN {
                let route = request.uri().path();
                tracing::info!(%peer, route, reason = %problem.code, "HTTP request refused");
            }
            let is_of_page = request.uri().path().starts_with("/ui/");
            let told = if is_of_page { web::in_words(request.headers(), problem) } else { problem };
            return refused(told);
        }
    };
    let credential = operator.credential.clone();
    let response = run_for(operator, request, next).await;
    match credential {
        Some(credential) => while_good(response, state.service, credential),
        None => response,
    }
}

/// Returns `response`. A stream ends when the credential of its reader ends.
fn while_good(response: Response, service: Arc<Service>, credential: CredentialId) -> Response {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    let ended = Box::pin(async move { service.credentials.ended(&credential).await });
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(ended)))
}

async fn operator_of(
    state: &RestState,
    peer: &Peer,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Operator, Problem> {
    let (kind, secret) = match bearer_of(headers)? {
        Some(token) => (CredentialKind::Token, token),
        None => (CredentialKind::Cookie, cookie_of(headers).ok_or_else(not_authenticated)?),
    };
    let attempt = attempt(state, peer, &secret).await?;
    let Some(operator) = state.service.credentials.find(kind, &secret).await?.map(Operator::from)
    else {
        return Err(hold_back(attempt, peer, not_authenticated()).await);
    };
    attempt.succeeded(None);
    if kind == CredentialKind::Cookie && !method.is_safe() {
        check_origin(headers, state.public_origin())?;
    }
    operator.check(method)?;
    Ok(operator)
}

/// Admits the check of a token, cookie or link.
///
/// # Errors
/// Returns `too_many_attempts` if this peer guesses.
pub(super) async fn attempt(
    state: &RestState,
    peer: &Peer,
    secret: &Secret,
) -> Result<Attempt, Problem> {
    let guesser = Guesser::of(peer);
    let slot_rule = SlotRule::of(peer);
    let attempt =
        state.guesses.try_token(guesser, secret.token_hash(), slot_rule, clock::unpaused());
    attempt.await.ok_or_else(|| Refusal::TooManyAttempts.into())
}

/// Returns the answer to a wrong secret, after a delay.
pub(super) async fn hold_back(attempt: Attempt, peer: &Peer, problem: Problem) -> Problem {
    match attempt.failed(None, clock::unpaused()) {
        Some(delay) => {
            let delay_ms = domain::time::millis(delay);
            tracing::warn!(%peer, reason = %problem.code, delay_ms, "an HTTP client presented an invalid token, cookie or link");
            tokio::time::sleep(delay).await;
            problem
        }
        None => Refusal::TooManyAttempts.into(),
    }
}

fn not_authenticated() -> Problem {
    let detail = "this needs a token (`Authorization: Bearer op_…`) or a login; those presented are not valid, or have expired";
    let hint = "agent-coordinator token create makes a token; agent-coordinator login prints a link for a browser";
    Problem::new(StatusCode::UNAUTHORIZED, "not_authenticated", detail).with_hint(Some(hint))
}

fn refused(problem: Problem) -> Response {
    let is_unauthorized = problem.status == StatusCode::UNAUTHORIZED;
    let mut response = problem.into_response();
    if is_unauthorized {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Returns the token of `Authorization`. The header may occur once.
fn bearer_of(headers: &HeaderMap) -> Result<Option<Secret>, Problem> {
    let Some(value) = only_header(headers, &header::AUTHORIZATION)? else {
        return Ok(None);
    };
    match value.split_once(' ') {
        Some((scheme, token))
            if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() =>
        {
            Ok(Some(Secret::new(token.trim())))
        }
        _ => Err(not_authenticated()),
    }
}

/// Returns the secret of the cookie [`COOKIE`].
pub(super) fn cookie_of(headers: &HeaderMap) -> Option<Secret> {
    only_cookie(headers, COOKIE).map(Secret::new)
}

/// Returns the value of the first cookie with a name, unless it is empty.
pub(super) fn only_cookie<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs =
        lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, value)| *name == wanted && !value.is_empty()).map(|(_, value)| value)
}

/// Removes the cookie [`COOKIE`], and keeps the others.
fn forget_cookie(headers: &mut HeaderMap) {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).map(str::trim);
    let others: Vec<&str> = pairs.filter(|pair| pair.split('=').next() != Some(COOKIE)).collect();
    let others = HeaderValue::try_from(others.join("; ")).ok();
    headers.remove(header::COOKIE);
    if let Some(others) = others {
        headers.insert(header::COOKIE, others);
    }
}

/// Checks that a browser made this request for a page of this server, not for one of another site.
pub(super) fn check_origin(headers: &HeaderMap, public: Option<&Origin>) -> Result<(), Problem> {
    let from_elsewhere = |found: &str| {
        let detail = format!(
            "a browser's request must come from a page of this server, and this one comes from {found}"
        );
        Err(Problem::new(StatusCode::FORBIDDEN, "not_same_origin", detail))
    };
    if let Some(site) = only_header(headers, &SEC_FETCH_SITE)? {
        return if site == "same-origin" {
            Ok(())
        } else {
            from_elsewhere(&format!("elsewhere (`{site}`)"))
        };
    }
    let host = only_header(headers, &header::HOST)?.unwrap_or_default();
    match only_header(headers, &header::ORIGIN)? {
        Some(origin) if is_same_origin(origin, host, public) => Ok(()),
        Some(origin) => from_elsewhere(&format!("`{origin}`")),
        None => from_elsewhere("nowhere: it has no Origin"),
    }
}

const SEC_FETCH_SITE: header::HeaderName = header::HeaderName::from_static("sec-fetch-site");

/// Returns whether a browser requests a page. A person is then shown the login.
fn is_for_page(request: &Request) -> bool {
    let accept = request
        .headers()
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let path = request.uri().path();
    let is_api = path == "/api" || path.starts_with("/api/");
    // A script of a page that isn't logged in any more reports that, and must not show a login
    // inside the page.
    let is_part = request.headers().contains_key("hx-request");
    request.method() == Method::GET && accept.contains("text/html") && !is_api && !is_part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_panel_counts_as_a_view_only_of_an_operator_and_on_a_page_of_this_server() {
        let of = |role| Operator { name: "ann".to_owned(), role, credential: None };
        let from = |site| HeaderMap::from_iter([(SEC_FETCH_SITE, HeaderValue::from_static(site))]);
        assert!(of(Role::Operator).may_view_chats(&HeaderMap::new()));
        assert!(of(Role::Operator).may_view_chats(&from("same-origin")));
        assert!(!of(Role::Operator).may_view_chats(&from("cross-site")));
        assert!(!of(Role::Viewer).may_view_chats(&from("same-origin")));
    }
}
