//! `/reload`, whose answer is [`domain::configuration::Reloaded`].

/// The code of the problem for a file with mistakes.
pub const INVALID_CONFIGURATION: &str = "invalid_configuration";
