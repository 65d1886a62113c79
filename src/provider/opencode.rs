//! The preset `opencode`.

use super::preset::{BuiltIn, Composition};

pub(super) const OPENCODE: BuiltIn =
    BuiltIn { program: "opencode", compose: |_| Composition::default(), logins: &[], places: &[], installation: "" };
