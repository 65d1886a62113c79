//! `/settings`: the settings in use. The configuration is a file, so a person changes that file,
//! and it is read again.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use crate::RestState;
use crate::openapi::{Api, about};
use domain::configuration::{ConfigurationState, Setting};

/// The configuration in use.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettingsBody {
    /// Where it is from, and what of the file is not in use.
    pub configuration: ConfigurationState,
    /// In the order of the sections; secrets without their values.
    pub settings: Vec<Setting>,
}

pub(super) fn routes() -> Api {
    Api::new().get(
        "/settings",
        show,
        about("The configuration in use, without its secrets").gives::<SettingsBody>(),
    )
}

async fn show(State(state): State<RestState>) -> Json<SettingsBody> {
    let configuration = state.configuration.configuration_state();
    Json(SettingsBody { settings: configuration.settings.to_vec(), configuration })
}
