//! `/logins` and `/tokens`: the credentials of people and scripts.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::auth::Operator;
use crate::extract::{InBody, InPath, whole_number};
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use domain::credential::{CredentialKind, Role};
use domain::{Credential, CredentialId, Timestamp, limits};

/// The fields of a login link.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoginRequest {
    /// The name of the person who logs in. The default is the name of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::NAME.described())]
    pub name: Option<String>,
    /// `operator` without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

/// The longest life of a token, in seconds: a hundred years.
const MAX_LIFE: u64 = 36_525 * 24 * 60 * 60;

/// A link that logs one browser in. It is shown this once.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoginBody {
    pub url: String,
    pub name: String,
    pub role: Role,
    pub expires_at: Timestamp,
}

/// The fields of a token.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenRequest {
    /// The name of the token. The default is the name of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::NAME.described())]
    pub name: Option<String>,
    /// `operator` without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// In seconds from now, at most a hundred years; without it, until it is revoked.
    #[serde(default, deserialize_with = "whole_number", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_LIFE))]
    pub expires_in: Option<u64>,
}

/// A way in as it is shown. Its secret is not, but in the answer that made it.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialBody {
    pub id: CredentialId,
    /// `token`, or `cookie` for a browser that is logged in, or `link` for one that may yet.
    pub kind: CredentialKind,
    pub name: String,
    pub role: Role,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// To five minutes exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

impl From<Credential> for CredentialBody {
    fn from(credential: Credential) -> Self {
        Self {
            id: credential.id,
            kind: credential.kind,
            name: credential.name,
            role: credential.role,
            created_at: credential.created_at,
            expires_at: credential.expires_at,
            last_used_at: credential.last_used_at,
            token: None,
        }
    }
}

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
