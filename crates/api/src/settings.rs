//! `/settings`: the settings in use. The configuration is a file, so a person changes that file,
//! and it is read again.

use serde::{Deserialize, Serialize};

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
