//! The folders where agent CLIs are usually installed, and which the `PATH` of a service lacks. A
//! person is told of a program that is in one of them. No launch takes a program from there by
//! itself.

use std::path::{Path, PathBuf};

use super::executable::{interpreter_in_path, is_program};

/// A program that is not in the `PATH`, but in a usual folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    pub program: PathBuf,
    /// The `PATH` with which the program is found, and its interpreter, if that is in one as well.
    pub path: String,
    /// The interpreter that neither this `PATH` nor a usual folder has.
    pub lacks: Option<String>,
}

/// The programs that are looked for: the wanted one, its interpreter, and the interpreter of that.
const LONGEST_CHAIN: usize = 3;

/// Returns the usual folders of the user with this home.
pub fn usual_folders(home: &Path) -> Vec<PathBuf> {
    let before = [".local/bin", ".claude/local", ".npm-global/bin", ".bun/bin", ".volta/bin"];
    let after = [".local/share/mise/shims", ".asdf/shims"];
    let below_home = |folders: &[&str]| -> Vec<PathBuf> {
        folders.iter().map(|folder| home.join(folder)).collect()
    };
    let mut folders = below_home(&before);
    folders.extend(newest_of_nvm(home));
    folders.extend(below_home(&after));
    folders.push("/opt/homebrew/bin".into());
    folders
}

/// Returns the folder of the newest version of node that nvm has installed.
fn newest_of_nvm(home: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(home.join(".nvm/versions/node")).ok()?.flatten();
    let versions = entries.filter_map(|entry| {
        let name = entry.file_name();
        let numbers = name.to_str()?.strip_prefix('v')?.split('.').map(str::parse::<u64>);
        Some((numbers.collect::<Result<Vec<_>, _>>().ok()?, entry.path()))
    });
    versions.max().map(|(_, folder)| folder.join("bin"))
}

/// Returns where a program is, or else its interpreter, if it is not in `path`, but in a usual
/// folder of the user with this home.
pub fn find_elsewhere(program: &str, path: &str, home: &Path) -> Option<Elsewhere> {
    let usual = usual_folders(home);
    let mut path = path.to_owned();
    let mut first = None;
    let mut lacks = None;
    let mut wanted = PathBuf::from(program);
    for _ in 0..LONGEST_CHAIN {
        // A path stands for itself: `join` with it returns it.
        let mut in_path = path.split(':').map(|folder| Path::new(folder).join(&wanted));
        let file = if let Some(file) = in_path.find(|file| is_program(file)) {
            file
        } else {
            let holds = |folder: &&PathBuf| is_program(&folder.join(&wanted));
            let Some(folder) = usual.iter().find(holds) else {
                lacks = Some(wanted.display().to_string());
                break;
            };
            path = format!("{}:{path}", folder.display());
            let file = folder.join(&wanted);
            first = first.or_else(|| Some(file.clone()));
            file
        };
        let Some(interpreter) = interpreter_in_path(&file) else { break };
        wanted = interpreter.into();
    }
    first.map(|program| Elsewhere { program, path, lacks })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn write(file: &Path, text: &str) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn the_newest_version_of_nvm_is_by_number() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        for version in ["v9.9.0", "v20.2.0", "v20.11.1", "vnext", "20.12.0"] {
            std::fs::create_dir_all(home.join(".nvm/versions/node").join(version)).unwrap();
        }
        let folders = usual_folders(home);
        let of_nvm: Vec<&PathBuf> =
            folders.iter().filter(|folder| folder.starts_with(home.join(".nvm"))).collect();
        assert_eq!(of_nvm, [&home.join(".nvm/versions/node/v20.11.1/bin")]);
        let names = [
            ".local/bin",
            ".claude/local",
            ".npm-global/bin",
            ".bun/bin",
            ".volta/bin",
            ".local/share/mise/shims",
            ".asdf/shims",
        ];
        for name in names {
            assert!(folders.contains(&home.join(name)), "{name}");
        }
        assert!(folders.contains(&"/opt/homebrew/bin".into()));
    }

    #[test]
    fn a_program_and_its_interpreter_are_found_in_usual_folders() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let at = |name: &str| home.join(name);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let find = |program: &str| find_elsewhere(program, &text(&at("bin")), home);
        write(&at("bin/known"), "#!/bin/sh\n");
        write(&at(".bun/bin/known"), "#!/bin/sh\n");
        write(&at(".bun/bin/single"), "#!/bin/sh\n");
        assert_eq!((find("known"), find("absent")), (None, None));
        let single = find("single").unwrap();
        assert_eq!(single.program, at(".bun/bin/single"));
        let expected = format!("{}:{}", at(".bun/bin").display(), at("bin").display());
        assert_eq!(single.path, expected);

        write(&at(".npm-global/bin/script"), "#!/usr/bin/env own-node\nx\n");
        write(&at("bin/other"), "#!/usr/bin/env -S own-node --quiet\n");
        let script = find("script").unwrap();
        assert_eq!(script.program, at(".npm-global/bin/script"));
        assert_eq!(script.lacks.as_deref(), Some("own-node"));
        assert_eq!(find("other"), None, "there is no node");
        write(&at(".volta/bin/own-node"), "");
        let script = find("script").unwrap();
        assert_eq!(script.lacks, None);
        assert_eq!(script.program, at(".npm-global/bin/script"));
        let folders = [at(".volta/bin"), at(".npm-global/bin"), at("bin")].map(|it| text(&it));
        assert_eq!(script.path, folders.join(":"));
        for program in ["other".to_owned(), text(&at("bin/other"))] {
            assert_eq!(find(&program).unwrap().program, at(".volta/bin/own-node"));
        }
    }
}
