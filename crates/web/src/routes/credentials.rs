//! `/logins` and `/tokens`: the credentials of people and scripts.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::auth::Operator;
use crate::extract::{InBody, InPath};
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use api::credentials::{CredentialBody, LoginBody, LoginRequest, MAX_LIFE, TokenRequest};
use domain::CredentialId;
use domain::credential::Role;

pub(super) fn routes() -> Api {
    Api::new()
        .post(
            "/logins",
            make_link,
            about("Makes a link that logs one browser in")
                .takes::<LoginRequest>()
                .makes::<LoginBody>(),
        )
        .get(
            "/tokens",
            list,
            about("The tokens and logins of people and scripts").gives::<Vec<CredentialBody>>(),
        )
        .post(
            "/tokens",
            make_token,
            about("Makes a token for a script").takes::<TokenRequest>().makes::<CredentialBody>(),
        )
        .delete("/tokens/{credential}", revoke, about("Revokes a token or a login"))
}

async fn make_link(
    State(state): State<RestState>,
    operator: Operator,
    InBody(request): InBody<LoginRequest>,
) -> Result<(StatusCode, Json<LoginBody>), Problem> {
    let Some(base) = state.page_url() else {
        let detail = "there is no page to log in to: the server doesn't listen for HTTP";
        let problem = Problem::new(StatusCode::CONFLICT, "http_is_off", detail);
        return Err(problem.with_hint(Some(
            "set http.listen to an address such as 127.0.0.1:7420, and start it again",
        )));
    };
    let role = request.role.unwrap_or(Role::Operator);
    let made = state
        .service
        .credentials
        .make_link(request.name.as_deref().unwrap_or(&operator.name), role)
        .await?;
    state.guesses.remember(&made.secret.token_hash());
    let url = format!("{base}/login?link={}", made.secret.reveal());
    let expires_at = made.credential.expires_at.unwrap_or_default();
    Ok((StatusCode::CREATED, Json(LoginBody { url, name: made.credential.name, role, expires_at })))
}

async fn list(State(state): State<RestState>) -> Result<Json<Vec<CredentialBody>>, Problem> {
    Ok(Json(
        state.service.credentials.list().await?.into_iter().map(CredentialBody::from).collect(),
    ))
}

async fn make_token(
    State(state): State<RestState>,
    operator: Operator,
    InBody(request): InBody<TokenRequest>,
) -> Result<(StatusCode, Json<CredentialBody>), Problem> {
    if request.expires_in.is_some_and(|life| !(1..=MAX_LIFE).contains(&life)) {
        let detail =
            format!("the body is not as expected: expiresIn: expected 1 to {MAX_LIFE} seconds");
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail));
    }
    let name = request.name.as_deref().unwrap_or(&operator.name);
    let life = request.expires_in.map(Duration::from_secs);
    let made = state
        .service
        .credentials
        .make_token(name, request.role.unwrap_or(Role::Operator), life)
        .await?;
    state.guesses.remember(&made.secret.token_hash());
    let token = Some(made.secret.reveal().to_owned());
    Ok((StatusCode::CREATED, Json(CredentialBody { token, ..made.credential.into() })))
}

async fn revoke(
    State(state): State<RestState>,
    InPath(id): InPath<CredentialId>,
) -> Result<StatusCode, Problem> {
    state.service.credentials.revoke(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
