//! The preset `copilot`.

use super::preset::{BuiltIn, Composition};

pub(super) const COPILOT: BuiltIn =
    BuiltIn { program: "copilot", compose: |_| Composition::default(), logins: &[], places: &[], installation: "" };
