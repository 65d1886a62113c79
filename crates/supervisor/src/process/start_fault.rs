//! Looks for what keeps a command from being executed, without executing it.

use std::path::{Path, PathBuf};

use super::launcher::{find_in_path, path_of};
use domain::CommandSpec;
use machine::sys::executable::{fault_of_directory, fault_of_program, interpreter_in_path};
use machine::sys::user_names;
use machine::sys::usual_folders::{self, Elsewhere};

/// A reason why a command cannot be executed until a person mends it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartFault {
    /// The working directory.
    #[error("{0}")]
    Directory(String),
    /// The program of the agent or the check.
    #[error("{0}")]
    Program(String),
    /// The program that starts the agent.
    #[error("{0}")]
    Wrapper(String),
    /// The program that `#!/usr/bin/env` of one of these looks for.
    #[error(
        "interpreter `{name}` of program `{}` was not found in the PATH of the agent",
        .program.display()
    )]
    Interpreter { name: String, program: PathBuf },
    /// The user that the agent runs as does not exist.
    #[error("this machine has no user `{0}`")]
    User(String),
    /// The user was made again since the configuration was read.
    #[error("user `{0}` has another id than before")]
    UserId(String),
}

/// Returns what keeps a command from being executed. It may block for long, because files and the
/// users of a machine may be on the network.
pub fn find_fault(command: &CommandSpec) -> Option<StartFault> {
    let fault_of = |name: &str, kind: fn(String) -> StartFault| {
        let program = match find_in_path(name, command) {
            Ok(program) => program,
            Err(error) => return Some(kind(error.to_string())),
        };
        if let Some(fault) = fault_of_program(&program) {
            return Some(kind(fault));
        }
        let name = interpreter_in_path(&program)?;
        let is_missing = find_in_path(&name, command).is_err();
        is_missing.then_some(StartFault::Interpreter { name, program })
    };
    let user = command.run_as.as_ref();
    let of_user = user.and_then(|user| match user_names::uid_of(&user.name) {
        Ok(None) => Some(StartFault::User(user.name.clone())),
        Ok(Some(uid)) if uid != user.uid => Some(StartFault::UserId(user.name.clone())),
        _ => None,
    });
    let directory = &command.working_directory;
    let of_directory = || {
        if directory.is_absolute() {
            return fault_of_directory(directory, user);
        }
        Some(format!("working directory `{}` is not absolute", directory.display()))
    };
    let of_program = || match command.wrap.first() {
        None => fault_of(&command.program, StartFault::Program),
        Some(wrapper) => fault_of(wrapper, StartFault::Wrapper).or_else(|| {
            // A wrapper may see another file system, so only a bare name is looked up here.
            let error = find_in_path(&command.program, command).err()?;
            Some(StartFault::Program(error.to_string()))
        }),
    };
    of_user.or_else(|| of_directory().map(StartFault::Directory)).or_else(of_program)
}

/// Returns where the program is that a command does not find in its `PATH`, if that is a usual
/// folder of its user.
pub fn find_elsewhere(fault: &StartFault, command: &CommandSpec) -> Option<Elsewhere> {
    let program = match fault {
        StartFault::Program(_) => command.program.as_str(),
        StartFault::Interpreter { program, .. } => program.to_str()?,
        StartFault::Directory(_)
        | StartFault::Wrapper(_)
        | StartFault::User(_)
        | StartFault::UserId(_) => return None,
    };
    // No PATH changes where a relative path leads.
    if program.contains('/') && !program.starts_with('/') {
        return None;
    }
    let (_, home) = command.environment.iter().find(|(name, _)| name == "HOME")?;
    let home = Some(Path::new(home.reveal())).filter(|home| home.is_absolute())?;
    usual_folders::find_elsewhere(program, path_of(command), home)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use domain::{RunAs, Secret};

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_only_a_person_mends_is_seen_without_a_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let name = |name: &str| path(name).to_str().unwrap().to_owned();
        std::fs::create_dir(path("empty")).unwrap();
        write(&path("good"), "#!/bin/sh\n", 0o755);
        write(&path("plain"), "#!/bin/sh\n", 0o644);
        write(&path("widow"), "#!/no/such/interpreter\n", 0o755);
        write(&path("by-env"), "#!/usr/bin/env good\n", 0o755);
        write(&path("orphan"), "#!/usr/bin/env no-such-node\n", 0o755);
        let command = |program: &str| CommandSpec {
            wrap: Vec::new(),
            program: program.to_owned(),
            arguments: Vec::new(),
            environment: vec![("PATH".to_owned(), Secret::new(name("")))],
            working_directory: folder.path().to_owned(),
            stdin: None,
            redact: Vec::new(),
            files: Vec::new(),
            files_in: None,
            transcript: None,
            run_as: None,
        };
        let wrapped = |wrap: &str, program: &str| CommandSpec {
            wrap: vec![wrap.to_owned()],
            ..command(program)
        };
        let at = |directory: &str| CommandSpec {
            working_directory: directory.into(),
            ..command("good")
        };
        let elsewhere = CommandSpec {
            environment: vec![("PATH".to_owned(), Secret::new(name("empty")))],
            ..command("good")
        };
        let as_user = |name: &str| {
            let run_as = Some(RunAs { name: name.into(), uid: 7, gid: 7, groups: vec![7] });
            CommandSpec { run_as, ..command("good") }
        };
        let cases = [
            (command("good"), None),
            (command("absent"), Some("`absent` was not found in the PATH of the agent")),
            (elsewhere, Some("`good` was not found in the PATH of the agent")),
            (command(&name("absent")), Some("absent` does not exist")),
            (command(&name("plain")), Some("plain` is not executable")),
            (command(&name("empty")), Some("empty` is a directory")),
            (command("widow"), Some("interpreter `/no/such/interpreter`")),
            (command("by-env"), None),
            (command("orphan"), Some("interpreter `no-such-node` of program")),
            (wrapped("good", "good"), None),
            (wrapped("absent", "good"), Some("`absent` was not found")),
            (wrapped("good", "absent"), Some("`absent` was not found")),
            (wrapped("good", "/in/a/container"), None),
            (at(&name("absent")), Some("absent` does not exist")),
            (at(&name("plain")), Some("plain` is not a directory")),
            (at("relative"), Some("`relative` is not absolute")),
            (as_user("no-such-user-7"), Some("no user `no-such-user-7`")),
            (as_user("root"), Some("user `root` has another id than before")),
        ];
        for (command, expected) in cases {
            let found = find_fault(&command).map(|fault| fault.to_string());
            let is_expected = match (&found, expected) {
                (Some(found), Some(expected)) => found.contains(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{command:?}: {found:?}, not {expected:?}");
        }
        // A usual folder is named only if a PATH could lead there.
        std::fs::create_dir_all(path("home/.bun/bin")).unwrap();
        write(&path("home/.bun/bin/agent"), "#!/bin/sh\n", 0o755);
        let elsewhere = |mut command: CommandSpec| {
            command.environment.push(("HOME".to_owned(), Secret::new(name("home"))));
            find_elsewhere(&find_fault(&command).unwrap(), &command).map(|it| it.program)
        };
        assert_eq!(elsewhere(command("agent")), Some(path("home/.bun/bin/agent")));
        assert_eq!(elsewhere(command("./agent")), None);
        assert_eq!(elsewhere(wrapped("orphan", "agent")), None);
        let relative = at("relative");
        assert!(matches!(find_fault(&relative), Some(StartFault::Directory(_))));
        let both = wrapped("absent", "absent");
        assert!(matches!(find_fault(&both), Some(StartFault::Wrapper(_))));
    }
}
