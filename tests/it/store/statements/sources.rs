//! The texts of SQL in the sources of the program.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the sources below `folder` of the repository.
pub(super) fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap().to_owned();
                found.push((path, code));
            }
        }
    }
    assert!(!found.is_empty(), "the sources are found");
    found
}

/// Returns the texts between quotation marks, as the program has them.
pub(super) fn literals(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '/' if rest.peek() == Some(&'/') => while rest.next_if(|c| *c != '\n').is_some() {},
            // This is a character. A lifetime has no second quotation mark.
            '\'' => {
                let is_escape = rest.next_if_eq(&'\\').is_some();
                rest.next();
                if !is_escape && rest.peek() != Some(&'\'') {
                    continue;
                }
                while rest.next_if(|c| *c != '\'').is_some() {}
                rest.next();
            }
            '"' => {
                let mut text = String::new();
                while let Some(c) = rest.next_if(|c| *c != '"') {
                    match c {
                        '\\' if rest.next_if_eq(&'\n').is_some() => {
                            while rest.next_if(|c| c.is_whitespace()).is_some() {}
                        }
                        '\\' => text.extend(rest.next()),
                        c => text.push(c),
                    }
                }
                rest.next();
                found.push(text);
            }
            _ => {}
        }
    }
    found
}

/// Returns whether a text is SQL or a piece of it, not a name or a message.
pub(super) fn is_sql(text: &str) -> bool {
    const WORDS: &[&str] = &[
        "SELECT", "INSERT", "UPDATE", "DELETE", "FROM", "WHERE", "ORDER", "LIMIT", "JOIN",
        "EXISTS", "IN", "AND", "OR", "IS", "NOT", "VALUES", "SET", "GROUP", "CASE", "CAST",
        "COUNT", "COALESCE",
    ];
    let mut words = text.split(|c: char| !c.is_ascii_alphabetic());
    text.contains(['?', '=', '<', '>']) || words.any(|word| WORDS.contains(&word))
}

/// Returns whether the text between the placeholders of a format is in `sql`, piece after piece.
pub(super) fn is_in(literal: &str, sql: &str) -> bool {
    let mut rest = sql;
    literal.split('{').enumerate().all(|(n, piece)| {
        let piece = if n == 0 { piece } else { piece.split_once('}').map_or("", |(_, rest)| rest) };
        rest.find(piece).is_some_and(|at| {
            rest = &rest[at + piece.len()..];
            true
        })
    })
}

/// Returns the first text after each place where `start` is.
pub(super) fn literals_after(code: &str, start: &str) -> Vec<String> {
    code.split(start).skip(1).map(|rest| literals(rest).swap_remove(0)).collect()
}

#[test]
fn the_literals_of_a_source_are_found_as_the_program_has_them() {
    let code = "fn f<'a>(c: char) { // \"no\"\n if c == '\"' || c == '\\'' { g(\"a \\\"b\\\"\", \"c \\\n    d\") } }";
    assert_eq!(literals(code), ["a \"b\"", "c d"]);
    assert!(is_in("SELECT {COLUMNS} FROM {}", "SELECT id FROM tasks"));
    assert!(!is_in("SELECT {COLUMNS} FROM b", "SELECT id FROM tasks"));
}
