//! The counts that a coordinator reports.

/// The counts of a coordinator since its start.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    pub cycles: u64,
    pub starts: u64,
    pub adoptions: u64,
    /// Processes that survived their agent, and were ended.
    #[serde(default)]
    pub leaked: u64,
    /// Work that the coordinator found without a wake-up. It should stay 0.
    pub found_by_poll_only: u64,
}
