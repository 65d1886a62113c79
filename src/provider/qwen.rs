//! The preset `qwen`.

use super::preset::{BuiltIn, Composition};

pub(super) const QWEN: BuiltIn =
    BuiltIn { program: "qwen", compose: |_| Composition::default(), logins: &[], places: &[], installation: "" };
