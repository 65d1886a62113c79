//! Files with any bytes at all: none panics the loader, and none makes it tell a secret.

use std::path::Path;

use proptest::prelude::*;

use super::{Environment, load, manifest, parse};

/// Pieces that are likely to be found by a parser's weak sides.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("agents:"),
        Just("passkey:"),
        Just("session: "),
        Just("ai_providers:"),
        Just("default_timeout: "),
        Just("polling_interval: "),
        Just("\n"),
        Just("\r\n"),
        Just("  "),
        Just("\t"),
        Just("- "),
        Just("["),
        Just("]"),
        Just("{"),
        Just("}"),
        Just("${"),
        Just("${HOME:-"),
        Just("$$"),
        Just("~/"),
        Just("\""),
        Just("'"),
        Just("|"),
        Just(">"),
        Just("&a "),
        Just("*a "),
        Just("<<: "),
        Just("!!int "),
        Just("!x "),
        Just("# "),
        Just("---\n"),
        Just("? "),
        Just(": "),
        Just(","),
        Just("é"),
        Just("\u{feff}"),
        Just("\u{0}"),
        Just("\u{202e}"),
        Just("1e999"),
        Just("99999999999999999999"),
        Just("null"),
        Just("%YAML 1.2\n"),
        Just("\u{2028}"),
        Just("\u{85}"),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_bytes_panic_the_loader(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("c.yaml"), &bytes).expect("a file");
        let environment = Environment::new(folder.path(), [("HOME", "/h")]);
        let _ = load(Some(Path::new("c.yaml")), &environment).map_err(|error| error.colored());
        let _ = manifest::load(Path::new("c.yaml"), &environment).map_err(|error| error.to_string());
    }

    #[test]
    fn no_text_panics_the_loader_or_tells_a_secret(text in pieces()) {
        if let Err(report) = parse(&text) {
            prop_assert!(!report.contains("/home/me"), "{report}");
            prop_assert!(!report.contains(['\u{0}', '\u{202e}', '\u{1b}']), "{report}");
        }
    }
}
