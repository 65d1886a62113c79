//! `/settings`: the settings in use. The configuration is a file, so a person changes that file,
//! and it is read again.

use axum::Json;
use axum::extract::State;

use crate::RestState;
use crate::openapi::{Api, about};
use api::settings::SettingsBody;

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
