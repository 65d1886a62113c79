//! The style sheet has no rule for a class that no page has.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The classes that pages make of a value, or that htmx sets.
const MADE: [&str; 10] =
    ["h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "htmx-request", "backlog"];

/// Returns the files below `crates/web/src/web` with one of these extensions.
fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/web/src/web")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if path.is_dir() {
                open.push(path);
            } else if extension.is_some_and(|extension| extensions.contains(&extension)) {
                found.push(path);
            }
        }
    }
    found
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_')
}

/// Returns the classes in the selectors of a style sheet.
fn classes(css: &str) -> BTreeSet<&str> {
    let mut classes = BTreeSet::new();
    // The text before a brace is a selector, or the end of the rule before it and a selector.
    for piece in css.split('{') {
        let selector = piece.rsplit(['}', ';']).next().unwrap();
        let selector = selector.rsplit("*/").next().unwrap();
        for name in selector.split('.').skip(1) {
            let name = words(name).next().unwrap();
            if name.starts_with(|c: char| c.is_ascii_lowercase()) {
                classes.insert(name);
            }
        }
    }
    classes
}

#[test]
fn each_class_of_the_style_sheet_is_on_a_page() {
    let pages: Vec<String> = files(&["html", "js", "rs"])
        .iter()
        .filter(|path| !path.ends_with("htmx.min.js"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let used: BTreeSet<&str> = pages.iter().flat_map(|page| words(page)).chain(MADE).collect();
    let mut n_classes = 0;
    for path in files(&["css"]) {
        let css = fs::read_to_string(&path).unwrap();
        let classes = classes(&css);
        n_classes += classes.len();
        let dead: Vec<_> = classes.difference(&used).collect();
        assert!(dead.is_empty(), "{}: {dead:?}", path.display());
    }
    assert!(n_classes > 100, "the classes are found: {n_classes}");
}

#[test]
fn a_class_without_a_page_is_found() {
    let css =
        "/* a.b */ @media (min-width: 2.5rem) { .one:not(.two-x) > p.three { margin: .5rem; } }";
    assert_eq!(classes(css).into_iter().collect::<Vec<_>>(), ["one", "three", "two-x"]);
}
