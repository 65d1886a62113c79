//! Checks the documents of the tree: cited numbers are defined, links lead to something, and the
//! tests, functions and files that a document names exist.
#![allow(clippy::unwrap_used, reason = "a test")]

mod reference;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const SPECIFICATION: &str = "docs/project/specification.md";
const FAULTS: &str = "docs/project/faults.md";
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// The files that may cite numbers, by their extension.
const CITING: [&str; 9] = ["rs", "md", "yaml", "toml", "py", "ts", "sh", "snap", "html"];

/// Returns whether a folder is not part of the tree, by its name.
fn is_foreign(name: &str) -> bool {
    let is_hidden = name.starts_with('.') && ![".ci", ".github", ".gitlab"].contains(&name);
    is_hidden || ["target", "node_modules", "__pycache__"].contains(&name)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text_of(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the files of the tree with one of these extensions, by their paths in the tree.
fn files(extensions: &[&str]) -> Vec<(String, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![root().to_owned()]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() {
                folders.extend((!is_foreign(&name)).then_some(path));
            } else if path.extension().is_some_and(|it| extensions.iter().any(|other| it == *other))
            {
                let shown = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
                found.extend(fs::read_to_string(&path).ok().map(|text| (shown, text)));
            }
        }
    }
    found.sort();
    found
}

/// Returns whether a file of the tree is one of the program, by its path.
fn is_product(file: &str) -> bool {
    file.starts_with("src/") || file.starts_with("crates/")
}

/// Returns the path of a source as documents name it: that of `crates/web/src/routes.rs` is
/// `src/web/routes.rs`, and that of `crates/web/src/lib.rs` is `src/web.rs`.
fn module_path(file: &str) -> String {
    match file.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/")) {
        Some((of, "lib.rs")) => format!("src/{of}.rs"),
        Some((of, inside)) => format!("src/{of}/{inside}"),
        None => file.to_owned(),
    }
}

// ── Numbers ──

/// Returns the numbers in a text: `R-` with a specification and a number, `C-` and `F-` with a
/// number.
fn numbers(text: &str) -> BTreeSet<&str> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let words = text.split(|letter: char| !letter.is_ascii() || !is_part(letter as u8));
    words.filter(|word| is_number(word)).collect()
}

fn is_number(word: &str) -> bool {
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match word.split('-').collect::<Vec<_>>()[..] {
        ["R", specification, number] => {
            specification.len() == 3 && is_digits(specification) && is_digits(number)
        }
        ["C" | "F", number] => is_digits(number),
        _ => false,
    }
}

/// Returns the defined numbers in their order.
fn defined() -> Vec<String> {
    let (specification, faults) = (text_of(SPECIFICATION), text_of(FAULTS));
    let requirements = specification.lines().filter_map(|line| line.strip_prefix("- **"));
    let requirements = requirements.filter_map(|line| line.split("**").next());
    let faults = faults.lines().filter_map(|line| line.strip_prefix("### "));
    let faults = faults.filter_map(|line| line.split(':').next());
    requirements.chain(faults).filter(|word| is_number(word)).map(str::to_owned).collect()
}

#[test]
fn each_cited_number_is_defined_once() {
    let all = defined();
    let defined: BTreeSet<&str> = all.iter().map(String::as_str).collect();
    assert_eq!(all.len(), defined.len(), "a number is defined twice: {all:?}");
    let mut unknown = Vec::new();
    let this = "tests/it/documents.rs";
    for (file, text) in files(&CITING).iter().filter(|(file, _)| file != this) {
        for number in numbers(text).difference(&defined) {
            unknown.push(format!("{file} cites {number}, which no document defines"));
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// A number that was given away twice, or lost, is found by its neighbours.
#[test]
fn the_numbers_of_faults_and_requirements_have_no_gaps() {
    let mut of_kind: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for number in defined() {
        let (kind, number) = number.rsplit_once('-').unwrap();
        of_kind.entry(kind.to_owned()).or_default().insert(number.parse().unwrap());
    }
    // The contract leaves room between its parts.
    of_kind.remove("C").unwrap();
    assert_eq!(of_kind.len(), 6, "five specifications and the faults: {:?}", of_kind.keys());
    for (kind, numbers) in of_kind {
        let expected: BTreeSet<u32> = (1..=u32::try_from(numbers.len()).unwrap()).collect();
        assert_eq!(numbers, expected, "{kind}");
    }
}

/// Returns the numbers of a cell: single ones, and those from one to another one.
fn range(cell: &str) -> Vec<String> {
    let (first, last) = cell.split_once(" to ").unwrap_or((cell, cell));
    let (kind, first) = first.rsplit_once('-').unwrap();
    let last = last.strip_prefix(kind).unwrap().strip_prefix('-').unwrap();
    let numbers = first.parse::<u32>().unwrap()..=last.parse::<u32>().unwrap();
    numbers.map(|number| format!("{kind}-{number}")).collect()
}

#[test]
fn each_requirement_has_tests() {
    let text = text_of(SPECIFICATION);
    let (_, table) = text.split_once("## Where it is tested").unwrap();
    let mut tested = BTreeSet::new();
    for line in table.lines().filter(|line| line.contains('`') && line.starts_with('|')) {
        let cell = line.split('|').nth(1).unwrap().trim();
        tested.extend(range(cell));
        for file in spans(line) {
            let folder = if is_product(file) { "" } else { "tests/it" };
            assert!(root().join(folder).join(file).exists(), "{cell}: there is no {file}");
        }
    }
    let wanted = defined().into_iter().filter(|number| !number.starts_with('F'));
    assert_eq!(wanted.collect::<BTreeSet<_>>(), tested);
}

#[test]
fn numbers_are_found_in_text() {
    let found = numbers("see R-004-12, (F-3) and C-10; not UTF-8, R-4, C-x, AF-3 or F-3-4");
    assert_eq!(found, BTreeSet::from(["C-10", "F-3", "R-004-12"]));
}

// ── Links ──

/// Returns a document without its fenced code and its code spans, by lines.
fn without_code(text: &str) -> String {
    let (mut plain, mut is_fenced) = (String::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            // A span that is not closed in its line continues to the end of the line.
            plain.extend(line.split('`').step_by(2));
        }
        plain.push('\n');
    }
    plain
}

/// Returns the targets of the links and pictures of a document.
pub fn targets(text: &str) -> Vec<String> {
    let plain = without_code(text);
    let inline = plain.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let definitions = plain.lines().filter_map(|line| {
        let (_, target) = line.strip_prefix('[')?.split_once("]: ")?;
        target.split(' ').next()
    });
    let all = inline.chain(definitions).map(|target| target.split(' ').next().unwrap_or_default());
    all.map(|target| target.trim_matches(['<', '>']).to_owned()).collect()
}

/// Returns the anchors of a document's headings by the rule of GitHub: letters in lower case,
/// digits, `_` and `-` stay, blanks become `-`, and a repeated anchor gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut found, mut is_fenced) = (BTreeMap::<String, usize>::new(), false);
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        is_fenced ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if is_fenced || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        // Of a link, the heading shows only the text.
        let mut shown = String::new();
        for (n_part, part) in heading.trim().split("](").enumerate() {
            shown.push_str(if n_part == 0 { part } else { part.split_once(')').unwrap().1 });
        }
        let slug: String = shown
            .to_lowercase()
            .chars()
            .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
            .map(|letter| if letter == ' ' { '-' } else { letter })
            .collect();
        let n_before = found.entry(slug.clone()).or_default();
        anchors.insert(if *n_before == 0 { slug } else { format!("{slug}-{n_before}") });
        *n_before += 1;
    }
    anchors
}

/// Returns the problem of a relative link in `document`, if it has one.
fn problem_of(document: &str, target: &str) -> Option<String> {
    if target.contains(':') || target.starts_with("//") {
        return None;
    }
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (target, None),
    };
    let folder = Path::new(document).parent().unwrap();
    let file = if path.is_empty() { PathBuf::from(document) } else { folder.join(path) };
    if !root().join(&file).exists() {
        return Some(format!("{document}: there is no {} ({target})", file.display()));
    }
    let anchor = anchor?;
    let Ok(text) = fs::read_to_string(root().join(&file)) else {
        return Some(format!("{document}: {} has no anchors ({target})", file.display()));
    };
    let is_there = anchors(&text).contains(anchor);
    (!is_there).then(|| format!("{document}: {} has no heading `#{anchor}`", file.display()))
}

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    let (mut problems, mut n_links) = (Vec::new(), 0);
    for (document, text) in files(&["md"]) {
        for target in targets(&text) {
            n_links += 1;
            problems.extend(problem_of(&document, &target));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(n_links > 20, "only {n_links} links were found");
}

#[test]
fn a_link_to_nothing_is_found() {
    let text = "[a](docs/none.md) ![b](LICENSE) `[c](d)` [e](#none) [f](README.md#none)\n\
                ```\n[g](h)\n```\n[i]: nowhere.md\n[j](https://example.com/k#l)";
    let problems: Vec<String> =
        targets(text).iter().filter_map(|target| problem_of(ARCHITECTURE, target)).collect();
    assert_eq!(
        problems,
        [
            "ARCHITECTURE.md: there is no docs/none.md (docs/none.md)",
            "ARCHITECTURE.md: ARCHITECTURE.md has no heading `#none`",
            "ARCHITECTURE.md: README.md has no heading `#none`",
            "ARCHITECTURE.md: there is no nowhere.md (nowhere.md)",
        ]
    );
}

#[test]
fn a_heading_has_the_anchor_that_github_gives_it() {
    let text = "# F-1: the `run` command's end\n## A, B\n## A, B\n### [Two](x.md) words_here\n\
                #none\n```\n# code\n```\n";
    assert_eq!(
        anchors(text),
        BTreeSet::from(
            ["f-1-the-run-commands-end", "a-b", "a-b-1", "two-words_here"].map(str::to_owned)
        )
    );
}

/// A comment in the code names documents without a link.
#[test]
fn a_document_that_a_comment_names_exists() {
    let mut missing = Vec::new();
    for (file, text) in files(&["rs", "yaml", "toml"]) {
        let comments = text.lines().map(str::trim_start);
        let comments = comments.filter(|line| line.starts_with("//") || line.starts_with('#'));
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
        let words = comments.flat_map(|line| line.split(|letter: char| !is_part(letter)));
        for word in words.filter(|word| word.starts_with("docs/")) {
            let path = word.trim_end_matches(['.', '/']);
            if !root().join(path).exists() {
                missing.push(format!("{file} names {path}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

// ── Names ──

/// Returns the code spans of a document outside of its fenced code.
fn spans(text: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    });
    lines.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Returns whether the text begins after the end of a word.
fn is_after_word(text: &str) -> bool {
    !text.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_')
}

/// Returns whether `name` is in `text` as a whole word after one of these prefixes.
fn has(text: &str, prefixes: &[&str], name: &str) -> bool {
    let follows = |prefix: &&str| text.split(&format!("{prefix}{name}")).skip(1).any(is_after_word);
    prefixes.iter().any(follows)
}

#[test]
fn each_fault_says_what_happens_and_its_tests_exist() {
    let faults = text_of(FAULTS);
    for fault in faults.split("\n### ").skip(1) {
        let title = fault.lines().next().unwrap();
        for part in ["\n- Behaviour: ", "\n- Seen: ", "\n- Tests: "] {
            assert!(fault.contains(part), "{title} lacks `{}`", part.trim());
        }
        let (_, tests) = fault.split_once("\n- Tests: ").unwrap();
        let tests: Vec<&str> = spans(tests).into_iter().filter(|it| it.contains("::")).collect();
        assert!(!tests.is_empty() || fault.contains("- Tests: none. "), "{title} names no test");
        for test in tests {
            let (module, name) = test.rsplit_once("::").unwrap();
            let file = format!("tests/it/{}.rs", module.replace("::", "/"));
            let text = fs::read_to_string(root().join(&file));
            let text = text.unwrap_or_else(|_| panic!("{title}: there is no {file} for `{test}`"));
            assert!(has(&text, &["fn "], name), "{title}: {file} has no test `{name}`");
        }
    }
}

/// The words before the name of a type.
const TYPES: [&str; 4] = ["struct ", "enum ", "trait ", "type "];

/// Returns whether the sources define this item. `module::item` is in a file of this module.
/// `Type::item` is in a file that defines the type or has an `impl` of it.
fn is_defined(sources: &[(String, String)], span: &str) -> bool {
    let names: Vec<&str> = span.split("::").collect();
    let (name, parents) = names.split_last().unwrap();
    let (parent, above) = parents.split_last().unwrap();
    let is_type = parent.starts_with(char::is_uppercase);
    let modules = if is_type { above } else { parents };
    let path = format!("/{}", modules.join("/"));
    let is_place = |file: &str| {
        let module = format!("/{}", file.trim_end_matches(".rs"));
        modules.is_empty() || module.ends_with(&path) || module.contains(&format!("{path}/"))
    };
    let is_of_type = |text: &str| {
        let mut impls = text.lines().filter(|line| line.starts_with("impl"));
        has(text, &TYPES, parent) || impls.any(|line| has(line, &[" ", "for "], parent))
    };
    let is_variant = |line: &str| line.trim_start().strip_prefix(name).is_some_and(is_after_word);
    let has_item = |text: &str| {
        has(text, &["fn ", "const ", "static "], name)
            || has(text, &TYPES, name)
            || is_type && text.lines().any(is_variant)
    };
    let mut places = sources.iter().filter(|(file, _)| is_place(file));
    places.any(|(_, text)| (!is_type || is_of_type(text)) && has_item(text))
}

#[test]
fn the_architecture_names_functions_and_files_that_exist() {
    let (text, sources) = (text_of(ARCHITECTURE), files(&["rs"]));
    let sources: Vec<_> = sources
        .into_iter()
        .filter(|(file, _)| is_product(file))
        .map(|(file, text)| (module_path(&file), text))
        .collect();
    let (mut missing, mut n_items) = (Vec::new(), 0);
    let is_name = |span: &str| {
        let is_part =
            |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
        span.chars().all(is_part)
    };
    for span in spans(&text) {
        if span.contains("::") && is_name(span) {
            n_items += 1;
            missing.extend((!is_defined(&sources, span)).then_some(span));
        } else if Path::new(span).extension().is_some_and(|extension| extension == "rs") {
            let is_there = root().join(span).exists()
                || sources.iter().any(|(file, _)| file.strip_prefix("src/") == Some(span));
            missing.extend((!is_there).then_some(span));
        }
    }
    assert!(missing.is_empty(), "{ARCHITECTURE} names what does not exist: {missing:#?}");
    assert!(n_items > 40, "only {n_items} names were found");
}

#[test]
fn a_name_that_is_gone_is_found() {
    let source = |file: &str, text: &str| (file.to_owned(), text.to_owned());
    let sources = [
        source("src/service/tasks/rules.rs", "pub fn change_task(\nenum Kind {\n    First,\n}\n"),
        source("src/service/tasks.rs", "impl Tasks {\n    pub async fn set(\n}\n"),
    ];
    for name in ["rules::change_task", "service::tasks::rules::change_task", "Tasks::set"] {
        assert!(is_defined(&sources, name), "{name}");
    }
    for name in ["tasks::Tasks::set", "Kind::First", "rules::Kind"] {
        assert!(is_defined(&sources, name), "{name}");
    }
    for name in ["rules::change", "other::change_task", "Tasks::change_task", "Kind::Second"] {
        assert!(!is_defined(&sources, name), "{name}");
    }
}
