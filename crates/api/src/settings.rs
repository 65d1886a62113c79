//! `/settings`: the settings in use. The configuration is a file, so a person changes that file,
//! and it is read again.

use serde::{Deserialize, Serialize};

use domain::configuration::{ConfigurationState, Setting};

/// The configuration in use.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettingsBody {
    /// The source of the configuration, and the changes in the file that are not in use.
    pub configuration: ConfigurationState,
    /// The settings in the order of the sections. Secrets have no values here.
    pub settings: Vec<Setting>,
}
