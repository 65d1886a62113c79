//! Checks what the compiler cannot see of the layers in ARCHITECTURE.md: which crates a crate may
//! name in its manifest, the order of the modules within a crate, and that some code is pure or
//! opens files only in safe ways.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates of the workspace, and the ones that each may use. `src` is the program itself.
const CRATES: [(&str, &[&str]); 15] = [
    ("domain", &[]),
    ("machine", &["domain"]),
    ("shim", &["machine", "domain"]),
    ("runtime", &["machine", "domain"]),
    ("postgres-url", &["domain"]),
    ("config", &["postgres-url", "machine", "domain"]),
    ("store", &["postgres-url", "runtime", "machine", "domain"]),
    ("workspace", &["runtime", "machine", "domain"]),
    ("service", &["store", "workspace", "config", "runtime", "machine", "domain"]),
    ("api", &["domain"]),
    ("client", &["machine", "domain"]),
    ("supervisor", &["service", "workspace", "client", "config", "runtime", "machine", "domain"]),
    ("mcp", &["service", "runtime", "machine", "domain"]),
    ("forge", &["service", "client", "config", "runtime", "machine", "domain"]),
    ("web", &["service", "api", "config", "runtime", "machine", "domain"]),
];

/// The modules of a crate from the top down. A module uses only modules of lower rows.
const ROWS: [(&str, &[&[&str]]); 4] = [
    ("src", &[&["cli"], &["app"]]),
    ("supervisor", &[&["coordinator"], &["process", "provider"]]),
    (
        "runtime",
        &[
            &["throttle"],
            &["http", "telemetry", "nudge", "peer", "folder_watch"],
            &["connections", "rate_limiter"],
            &["clock", "lru", "single_look"],
        ],
    ),
    ("machine", &[&["instance_dir", "cgroup", "crash_point"], &["sys"], &["locks"]]),
];

/// Narrower rules than the manifests: only files whose names begin like this name the module.
const NAMED_ONLY_BY: [(&str, &[&str]); 6] = [
    ("supervisor::process", &["app"]),
    ("supervisor::provider", &["app", "cli"]),
    ("store::rows", &["service", "app"]),
    ("shim::", &["main.rs", "bin/", "shim"]),
    ("runtime::throttle", &["mcp", "web"]),
    ("web::", &["app"]),
];

/// The files beside `sys` that allow unsafe code, each with its reason. Cargo.toml denies it
/// elsewhere.
const UNSAFE: [&str; 5] = [
    "runtime/folder_watch.rs",
    "supervisor/process/shims.rs",
    "shim.rs",
    "shim/agent.rs",
    "shim/tree.rs",
];

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
const WITH_PATHS: [(&str, usize, &str); 17] = [
    ("workspace.rs", 4, "helpers for the daemon's own folders"),
    ("workspace/clean.rs", 2, "the daemon's note of a fresh clone; root changes no mode there"),
    ("workspace/create.rs", 2, "the daemon's notes of a workspace"),
    ("workspace/disk.rs", 3, "the reserve, in the folder of all clones"),
    ("workspace/git.rs", 3, "the home and the configuration of git, in the same folder"),
    ("workspace/handover.rs", 6, "repositories of root, and the mark beside them"),
    ("workspace/inside.rs", 5, "goes from folder to folder"),
    ("workspace/keep_repository.rs", 5, "the keep repository"),
    ("workspace/keeping/files.rs", 4, "removes the name of an index, and copies one as its owner"),
    ("workspace/lending.rs", 2, "what is lent, which the daemon owns"),
    ("workspace/merging/record.rs", 2, "the daemon's record of a merge"),
    ("workspace/objects.rs", 4, "copies in the daemon's folders; `open` runs as the owner"),
    ("workspace/place.rs", 2, "the daemon's own files of a workspace that is gone"),
    ("workspace/rights.rs", 2, "gives and opens the folders that the daemon has just made"),
    ("workspace/snapshot.rs", 3, "the daemon's index; makes the named folder as its owner"),
    ("workspace/temporary.rs", 4, "the daemon's folder around a repository of another user"),
    ("workspace/upgrade.rs", 11, "the keep repository; a source folder by folder, as its owner"),
];

/// The files of `workspace` with lines that use a path of the coordinator's repositories, the
/// number of these lines, and their use. All other code leaves the path to git, which runs as the
/// owner of the repository, or works as that owner (`Place::as_keeper`).
const WITH_PATHS_OF_KEEPER: [(&str, usize, &str); 11] = [
    ("workspace/disk.rs", 1, "compares the name"),
    ("workspace/handover.rs", 3, "gives what belongs to root to the keeper"),
    ("workspace/keep_repository.rs", 3, "gives new folders their names; makes the settings"),
    ("workspace/keeping/files.rs", 1, "the settings for reading files, which are root's"),
    ("workspace/lending.rs", 1, "changes modes of the settings"),
    ("workspace/objects.rs", 1, "an index for git, which is removed as the owner"),
    ("workspace/place.rs", 3, "finds the owner, and works as the owner"),
    ("workspace/restore.rs", 1, "objects for git"),
    ("workspace/snapshot.rs", 1, "writes ignored files, only without a keeper"),
    ("workspace/transfer.rs", 1, "the name of a pack, which is read as the owner"),
    ("workspace/upgrade.rs", 1, "copies files only without a keeper"),
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
fn crates_use_only_what_the_table_allows() {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let (_, text) = text.split_once("[dependencies]").unwrap();
        let text = text.split("\n[").next().unwrap();
        let used = text.lines().filter_map(|line| line.split_once(".workspace")).map(|it| it.0);
        let allowed = CRATES.iter().find(|(crate_name, _)| *crate_name == name);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("`{name}` is not in the table"));
        for used in used.filter(|used| CRATES.iter().any(|(name, _)| name == used)) {
            assert!(allowed.contains(&used), "`{name}` may not use `{used}`");
        }
        found.insert(name);
    }
    let expected: BTreeSet<String> = CRATES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, expected);
}

/// The map leaves out the crates that most others use.
#[test]
fn the_map_of_the_architecture_says_the_same_as_the_table() {
    let is_listed = |name: &&str| !["domain", "machine", "runtime"].contains(name);
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, map) = text.split_once("| crate | what it knows | uses |\n|---|---|---|\n").unwrap();
    let rows = map.lines().map_while(|line| line.strip_prefix("| `"));
    let mut uses = BTreeMap::new();
    for row in rows {
        let (name, cells) = row.split_once('`').unwrap();
        let (_, used) = cells.trim_end_matches([' ', '|']).rsplit_once('|').unwrap();
        let used: BTreeSet<&str> = used.split('`').skip(1).step_by(2).filter(is_listed).collect();
        uses.insert(name, used);
    }
    assert!(uses.remove("src").is_some(), "the program uses all: {uses:?}");
    let of_table = |used: &[&'static str]| used.iter().copied().filter(is_listed).collect();
    let expected: BTreeMap<&str, BTreeSet<&str>> =
        CRATES.iter().map(|(name, used)| (*name, of_table(used))).collect();
    assert_eq!(uses, expected);
}

#[test]
fn modules_use_only_what_is_below_them() {
    for (crate_name, rows) in ROWS {
        let row_of = |module: &str| rows.iter().position(|row| row.contains(&module));
        let mut seen = BTreeSet::new();
        for (name, file) in sources() {
            let module = match (crate_name, name.split_once('/')) {
                ("src", _) => name.split(['/', '.']).next().unwrap(),
                (_, Some((start, rest))) if start == crate_name => {
                    rest.split(['/', '.']).next().unwrap()
                }
                _ => continue,
            };
            let Some(row) = row_of(module) else { continue };
            seen.insert(module.to_owned());
            for used in named_in(&code_of(&file)).iter().filter(|used| *used != module) {
                let below = row_of(used);
                assert!(
                    below.is_none_or(|below| below > row),
                    "{name}: `{module}` may not use `{used}`"
                );
            }
        }
        let all: BTreeSet<String> =
            rows.iter().flat_map(|row| row.iter().map(|&name| name.to_owned())).collect();
        assert_eq!(seen, all, "the modules of `{crate_name}` are found");
    }
}

#[test]
fn some_modules_are_named_by_few() {
    for (name, file) in sources() {
        let code = code_of(&file);
        for (module, by) in NAMED_ONLY_BY {
            let of_own = name.starts_with(module.split("::").next().unwrap());
            let may = of_own || by.iter().any(|start| name.starts_with(start));
            assert!(may || !names(&code, module), "{name} may not name `{module}`");
        }
    }
}

/// Returns whether code has this path, and not only a longer one that ends like it. A path may begin
/// with `::`.
fn names(code: &str, path: &str) -> bool {
    code.match_indices(path).any(|(at, _)| {
        let before = &code[..at];
        let before = before.strip_suffix("::").unwrap_or(before);
        !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
    })
}

#[test]
fn a_path_is_named_also_from_its_crate_on() {
    for code in ["use store::rows::A;", "use ::store::rows::A;", "(store::rows::a())"] {
        assert!(names(code, "store::rows"), "{code}");
    }
    for code in ["crate::store::rows", "my_store::rows", "crate::a::store::rows"] {
        assert!(!names(code, "store::rows"), "{code}");
    }
}

#[test]
fn the_domain_is_pure() {
    for (name, file) in sources_of("domain") {
        let code = code_of(&file);
        for impure in IMPURE {
            assert!(!code.contains(impure), "{name} has `{impure}`");
        }
    }
}

#[test]
fn unsafe_code_is_in_few_files() {
    let others = sources().into_iter().filter(|(name, _)| !name.starts_with("machine/sys"));
    for (name, file) in others {
        if code_of(&file).contains("allow(unsafe_code") {
            assert!(UNSAFE.contains(&name.as_str()), "{name} may not allow unsafe code");
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
    for (name, file) in sources_of("workspace") {
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
    for (name, file) in sources_of("workspace") {
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
    for (name, file) in sources_of("workspace") {
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
    for (name, file) in sources_of("shim").into_iter().chain(sources_of("machine")) {
        let code = code_of(&file);
        assert!(!code.contains("tokio") && !code.contains("tracing"), "{name}");
    }
}

/// The code asks for the system only to choose between the two versions of a module, and nowhere
/// else.
#[test]
fn the_system_is_asked_for_only_to_choose_a_twin() {
    let mut n_choices = 0;
    for (name, file) in sources() {
        let text = fs::read_to_string(&file).unwrap();
        n_choices += text.matches("target_os").count();
        if let Some(n_line) = first_undisciplined(&text) {
            panic!("{name}:{n_line} asks for the system, and chooses no module and no constant");
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

/// Returns the modules of its own crate that code names.
fn named_in(code: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for (at, prefix) in code.match_indices("crate::") {
        let rest = &code[at + prefix.len()..];
        let group = rest.strip_prefix('{').map(|group| group.split('}').next().unwrap());
        for name in group.map_or(vec![rest], |group| group.split(',').collect()) {
            let is_part = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
            named.insert(name.trim().chars().take_while(is_part).collect());
        }
    }
    named
}

/// Returns the text of a file without its comments.
fn code_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources_of(crate_name: &str) -> Vec<(String, PathBuf)> {
    let is_of = |name: &str| name.split(['/', '.']).next() == Some(crate_name);
    let found: Vec<_> = sources().into_iter().filter(|(name, _)| is_of(name)).collect();
    assert!(!found.is_empty(), "the sources of `{crate_name}` are found");
    found
}

/// Returns all product files by their names. The name of `crates/web/src/routes.rs` is
/// `web/routes.rs`, that of `crates/web/src/lib.rs` is `web.rs`, and that of `src/app/http.rs` is
/// `app/http.rs`.
fn sources() -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|it| it.unwrap().path());
    let mut open: Vec<(PathBuf, String)> = crates
        .map(|folder| {
            (folder.join("src"), folder.file_name().unwrap().to_str().unwrap().to_owned())
        })
        .collect();
    open.push((root().join("src"), String::new()));
    while let Some((folder, name)) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let own = path.file_name().unwrap().to_str().unwrap();
            let inside = if name.is_empty() { own.to_owned() } else { format!("{name}/{own}") };
            if path.is_dir() {
                open.push((path, inside));
            } else if own == "lib.rs" && !name.is_empty() {
                found.insert(format!("{name}.rs"), path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.insert(inside, path);
            }
        }
    }
    assert!(found.len() >= n_tracked(), "only {} sources are found", found.len());
    found
}

/// Returns the number of product files that git knows; 0 outside a checkout.
fn n_tracked() -> usize {
    let patterns = ["src/*.rs", "crates/*/src/*.rs"];
    let listed = Command::new("git").arg("ls-files").args(patterns).current_dir(root()).output();
    let is_there = |line: &&str| root().join(line).exists();
    listed.map_or(0, |it| String::from_utf8_lossy(&it.stdout).lines().filter(is_there).count())
}
