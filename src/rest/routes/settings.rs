//! `/settings`: what is in use. The configuration is a file: whoever wants it otherwise changes that, and it is read again.

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use crate::config::{Setting, Standing};
use crate::rest::RestState;

/// The configuration in use.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SettingsBody {
    /// Where it is from, and what of the file is not in use.
    pub configuration: Standing,
    /// In the order of the sections; secrets without their values.
    pub settings: Vec<Setting>,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new().route("/settings", get(show))
}

async fn show(State(state): State<RestState>) -> Json<SettingsBody> {
    let configuration = state.configuration.standing();
    Json(SettingsBody { settings: configuration.settings.to_vec(), configuration })
}
