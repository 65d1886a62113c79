//! Checks the layers of `src/lib.rs`: the modules that a module may use. One package has no other
//! border between its modules.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The rows from the top down. A module uses only modules of lower rows.
const ROWS: [&[&str]; 12] = [
    &["cli"],
    &["app"],
    &["coordinator", "mcp", "rest", "forge"],
    &["service"],
    &["rows"],
    &["store", "process", "provider", "chat_log", "workspace"],
    &["shim"],
    &["throttle"],
    &[
        "config",
        "telemetry",
        "nudge",
        "peer",
        "lru",
        "http",
        "mcp_client",
        "folder_watch",
        "instance_dir",
        "cgroup",
        "crash_point",
    ],
    &["sys", "postgres_url"],
    &["locks", "clock"],
    &["domain"],
];

/// Narrower rules than the rows: only these modules name the first one.
const NAMED_ONLY_BY: [(&str, &[&str]); 8] = [
    ("store", &["rows", "service", "app"]),
    ("rows", &["service", "app"]),
    ("chat_log", &["service"]),
    ("process", &["coordinator", "app"]),
    ("workspace", &["service", "coordinator", "app"]),
    ("provider", &["coordinator", "app", "cli"]),
    ("shim", &["main"]),
    ("throttle", &["mcp", "rest"]),
];

/// The files beside `sys` that allow unsafe code, each with its reason. Cargo.toml denies it
/// elsewhere.
const UNSAFE: [&str; 5] =
    ["folder_watch.rs", "process/shims.rs", "shim.rs", "shim/agent.rs", "shim/tree.rs"];

/// The calls that open, make, change or remove a file by its path. Such a path may lead through a
/// link that another user has made.
const BY_PATH: [&str; 20] = [
    "fs::write(",
    "fs::create_dir",
    "fs::remove_",
    "fs::rename(",
    "fs::copy(",
    "fs::hard_link(",
    "fs::set_permissions(",
    "fs::read(",
    "fs::read_to_string(",
    "fs::open(",
    "File::open(",
    "File::create",
    "File::options",
    "OpenOptions::new",
    "DirBuilder::new",
    "symlink(",
    "chown(",
    "mkdirat(",
    "openat(",
    "unlinkat(",
];

/// The files of `workspace` with such calls, their number, and the reason why no link of another
/// user leads the daemon elsewhere. All other code uses `crates/workspace/src/inside.rs`.
const WITH_PATHS: [(&str, usize, &str); 15] = [
    ("workspace.rs", 6, "helpers for the daemon's own folders"),
    ("workspace/clean.rs", 2, "the daemon's note of a fresh clone; root changes no mode there"),
    ("workspace/create.rs", 2, "the daemon's notes of a workspace"),
    ("workspace/disk.rs", 3, "the reserve, in the folder of all clones"),
    ("workspace/git.rs", 3, "the home and the configuration of git, in the same folder"),
    ("workspace/inside.rs", 5, "goes from folder to folder"),
    ("workspace/keep_repository.rs", 5, "the keep repository"),
    ("workspace/keeping/files.rs", 4, "removes the name of an index, and copies one as its owner"),
    ("workspace/lending.rs", 2, "what is lent, which the daemon owns"),
    ("workspace/merging/record.rs", 2, "the daemon's record of a merge"),
    ("workspace/objects.rs", 4, "copies in the daemon's folders; `open` runs as the owner"),
    ("workspace/rights.rs", 2, "gives and opens the folders that the daemon has just made"),
    ("workspace/snapshot.rs", 3, "the daemon's index; makes the named folder as its owner"),
    ("workspace/temporary.rs", 4, "the daemon's folder around a repository of another user"),
    (
        "workspace/upgrade.rs",
        14,
        "the keep repository and the mark beside it; a source from folder to folder, as its owner",
    ),
];

/// The files of `workspace` with lines that use a path of the coordinator's repositories, the
/// number of these lines, and their use. All other code leaves the path to git, which runs as the
/// owner of the repository, or works as that owner (`Place::as_keeper`).
const WITH_PATHS_OF_KEEPER: [(&str, usize, &str); 10] = [
    ("workspace.rs", 3, "finds the owner, and works as the owner"),
    ("workspace/disk.rs", 1, "compares the name"),
    ("workspace/keep_repository.rs", 3, "gives new folders their names; makes the settings"),
    ("workspace/keeping/files.rs", 1, "the settings for reading files, which are root's"),
    ("workspace/lending.rs", 1, "changes modes of the settings"),
    ("workspace/objects.rs", 1, "an index for git, which is removed as the owner"),
    ("workspace/restore.rs", 1, "objects for git"),
    ("workspace/snapshot.rs", 1, "writes ignored files, only without a keeper"),
    ("workspace/transfer.rs", 1, "the name of a pack, which is read as the owner"),
    ("workspace/upgrade.rs", 3, "gives what belongs to root to the keeper"),
];

/// Names that pure code can't contain.
const IMPURE: [&str; 12] = [
    "tokio",
    "async fn",
    ".await",
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
    "std::thread",
    "SystemTime",
    "Instant::now",
    "Timestamp::now",
    "getrandom",
];

#[test]
fn modules_use_only_what_is_below_them() {
    for (file, module, used) in uses() {
        let Some(row) = row_of(&module) else { continue };
        for used in used.iter().filter(|used| **used != module) {
            let below = row_of(used)
                .unwrap_or_else(|| panic!("{file:?} uses `{used}`, which is in no row"));
            assert!(below > row, "{}: `{module}` may not use `{used}`", file.display());
        }
    }
}

#[test]
fn some_modules_are_named_by_few() {
    for (file, module, used) in uses() {
        for (name, by) in
            NAMED_ONLY_BY.iter().filter(|(name, _)| *name != module && used.contains(*name))
        {
            assert!(
                by.contains(&module.as_str()),
                "{}: `{module}` may not name `{name}`",
                file.display()
            );
        }
    }
}

#[test]
fn the_domain_is_pure() {
    for file in sources().into_iter().filter(|file| module_of(file) == "domain") {
        let code = code_of(&file);
        for impure in IMPURE {
            assert!(!code.contains(impure), "{} has `{impure}`", file.display());
        }
    }
}

#[test]
fn unsafe_code_is_in_few_files() {
    for file in sources().into_iter().filter(|file| module_of(file) != "sys") {
        if code_of(&file).contains("allow(unsafe_code") {
            let name = file.strip_prefix(root()).unwrap().to_str().unwrap();
            assert!(UNSAFE.contains(&name), "{name} may not allow unsafe code");
        }
    }
}

#[test]
fn the_files_of_others_are_opened_only_below_a_folder() {
    let n_paths_in = |code: &str| {
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        let is_call = |line: &&str| {
            let line = line.replace("is_symlink(", "");
            BY_PATH.iter().any(|call| line.contains(call))
        };
        code.lines().filter(is_call).count()
    };
    for file in sources().into_iter().filter(|file| module_of(file) == "workspace") {
        let name = file.strip_prefix(root()).unwrap().to_str().unwrap();
        if name.contains("tests") {
            continue;
        }
        let code = code_of(&file);
        let allowed = WITH_PATHS.iter().find(|(other, ..)| *other == name);
        let n_allowed = allowed.map_or(0, |(_, n, _)| *n);
        assert_eq!(
            n_paths_in(&code),
            n_allowed,
            "{name}: if another user can write there, use `Inside`, and else change WITH_PATHS"
        );
    }
    assert_eq!(n_paths_in("std::fs::write(tree, b\"\")\npath.is_symlink()\nsymlink(a, b)"), 2);
}

/// A daemon of root opens nothing in the repositories of the keeper with its own rights.
#[test]
fn few_lines_use_a_path_of_the_keeper() {
    const FOR_GIT: [&str; 4] = [".on(&", ".on_tree(&", ".variable(", "let keep = place.keep();"];
    const ALLOWED: [&str; 2] = [".display()", ".is_dir()"];
    for file in sources().into_iter().filter(|file| module_of(file) == "workspace") {
        let name = file.strip_prefix(root()).unwrap().to_str().unwrap();
        if name.contains("tests") {
            continue;
        }
        let code = code_of(&file);
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        let lines =
            code.lines().filter(|line| line.contains(".keep()") || line.contains(".files()"));
        let has = |line: &str, words: &[&str]| words.iter().any(|word| line.contains(word));
        // Git obeys `files.git`, so each call with it counts.
        let is_harmless = |line: &&str| {
            has(line, &ALLOWED) || (has(line, &FOR_GIT) && !line.contains(".files()"))
        };
        let n_lines = lines.filter(|line| !is_harmless(line)).count();
        let allowed = WITH_PATHS_OF_KEEPER.iter().find(|(other, ..)| *other == name);
        let n_allowed = allowed.map_or(0, |(_, n, _)| *n);
        assert_eq!(n_lines, n_allowed, "{name}: use `as_keeper`, or change WITH_PATHS_OF_KEEPER");
    }
}

/// The helpers for the daemon's own folders are not for what an agent or a person owns.
#[test]
fn no_helper_for_own_folders_names_a_tree() {
    const HELPERS: [&str; 4] = ["make_folder(", "remove_folder(", "write(", "rename("];
    const OF_OTHERS: [&str; 4] = ["tree", ".top", ".common", "\".git"];
    /// Makes the folder, before it is given to its owner.
    const ALLOWED: [&str; 1] = ["make_folder(&tree)?;"];
    for file in sources().into_iter().filter(|file| module_of(file) == "workspace") {
        let name = file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let code = code_of(&file);
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = code.lines().map(str::trim).filter(|line| !line.contains("Inside::open("));
        for line in lines.filter(|_| !name.contains("tests")) {
            let calls = HELPERS.iter().filter_map(|helper| line.split_once(helper));
            for (before, arguments) in calls.filter(|(before, _)| !before.ends_with(['.', '_'])) {
                let is_of_others = OF_OTHERS.iter().any(|word| arguments.contains(word));
                assert!(!is_of_others || ALLOWED.contains(&line), "{name}: {before}… {line}");
            }
        }
    }
}

#[test]
fn the_shim_has_no_runtime() {
    for file in
        sources().into_iter().filter(|file| ["shim", "sys"].contains(&module_of(file).as_str()))
    {
        let code = code_of(&file);
        assert!(!code.contains("tokio") && !code.contains("tracing"), "{}", file.display());
    }
}

/// The code asks for the system only to choose between the two versions of a module, and nowhere
/// else.
#[test]
fn the_system_is_asked_for_only_to_choose_a_twin() {
    let mut n_choices = 0;
    for file in sources() {
        let text = fs::read_to_string(&file).unwrap();
        n_choices += text.matches("target_os").count();
        if let Some(n_line) = first_undisciplined(&text) {
            panic!(
                "{}:{n_line} asks for the system, and chooses no module and no constant",
                file.display()
            );
        }
    }
    assert!(n_choices >= 4, "the choice of `sys` is found");
}

#[test]
fn an_undisciplined_cfg_is_found() {
    let asks = |text| first_undisciplined(text);
    assert_eq!(
        asks(
            "#[cfg(target_os = \"linux\")]\nmod linux;\n#[cfg(target_os = \"linux\")]\nuse linux as twin;"
        ),
        None
    );
    assert_eq!(asks("#[cfg(target_os = \"macos\")]\nconst A: u8 = 1;"), None);
    assert_eq!(asks("#[cfg(target_os = \"linux\")]\nfn a() {}"), Some(1));
    assert_eq!(asks("#[cfg(target_os = \"linux\")]\nmod a {\n    fn b() {}\n}"), Some(1));
    assert_eq!(asks("fn a() {\n    #[cfg(target_os = \"linux\")]\n    use b;\n}"), Some(2));
    assert_eq!(asks("const A: u8 = if cfg!(target_os = \"linux\") { 1 } else { 2 };"), Some(1));
}

/// Returns the number of the first line that asks for the system in another way than allowed.
/// Allowed is the outermost level, for the module, import or constant of the next line.
fn first_undisciplined(text: &str) -> Option<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let is_choice = |n: usize| {
        let chosen = lines.get(n + 1).map_or("", |line| line.trim_start_matches("pub "));
        lines[n].starts_with("#[cfg(")
            && ["mod ", "use ", "const "].iter().any(|kind| chosen.starts_with(kind))
            && chosen.ends_with(';')
    };
    (0..lines.len()).find(|&n| lines[n].contains("target_os") && !is_choice(n)).map(|n| n + 1)
}

#[test]
fn each_module_of_the_crate_has_its_row() {
    let modules: BTreeSet<String> = sources().iter().map(|file| module_of(file)).collect();
    let rows: BTreeSet<String> =
        ROWS.iter().flat_map(|row| row.iter().map(|&name| name.to_owned())).collect();
    let without_row: Vec<_> = modules
        .difference(&rows)
        .filter(|name| !["main", "lib"].contains(&name.as_str()))
        .collect();
    assert!(without_row.is_empty(), "{without_row:?}");
}

fn row_of(module: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&module))
}

/// Returns each source file with its module and the modules of this crate that it names.
fn uses() -> Vec<(PathBuf, String, BTreeSet<String>)> {
    let found: Vec<_> = sources()
        .into_iter()
        .map(|file| (file.clone(), module_of(&file), named_in(&code_of(&file))))
        .collect();
    assert!(found.len() > 50, "the sources are found");
    found
}

fn named_in(code: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for prefix in ["crate::", "agent_coordinator::"] {
        for (at, _) in code.match_indices(prefix) {
            let rest = &code[at + prefix.len()..];
            let names =
                rest.strip_prefix('{').map_or(rest, |group| group.split('}').next().unwrap());
            for name in if rest.starts_with('{') { names.split(',').collect() } else { vec![names] }
            {
                let name: String = name
                    .trim()
                    .chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                    .collect();
                // A name that begins with a capital letter is not a module.
                if name.starts_with(|c: char| c.is_ascii_lowercase()) && name != "self" {
                    named.insert(name);
                }
            }
        }
    }
    named
}

/// Returns the top-level module that a file belongs to.
fn module_of(file: &Path) -> String {
    let inside = file.strip_prefix(root()).unwrap();
    inside
        .components()
        .next()
        .unwrap()
        .as_os_str()
        .to_str()
        .unwrap()
        .trim_end_matches(".rs")
        .to_owned()
}

/// Returns the text of a file without its comments.
fn code_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}
