//! Looks in the file system for the reason why a program or a directory starts no process.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::Access;

use crate::sys::regular_file;
use domain::RunAs;

/// Returns why no process can work in a directory, as this process or as `user`.
pub fn fault_of_directory(directory: &Path, user: Option<&RunAs>) -> Option<String> {
    let name = format!("working directory `{}`", directory.display());
    match std::fs::metadata(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Some(format!("{name} does not exist")),
        // The rights of this process do not show those of another user.
        Err(_) if user.is_some() => None,
        Err(error) => Some(format!("{name} is not accessible: {error}")),
        Ok(found) if !found.is_dir() => Some(format!("{name} is not a directory")),
        Ok(_) => {
            let may_enter =
                user.is_some() || rustix::fs::access(directory, Access::EXEC_OK).is_ok();
            (!may_enter).then(|| format!("{name} may not be entered by this user"))
        }
    }
}

/// Returns why a program cannot be executed by any user. A program that cannot be looked at has no
/// fault.
pub fn fault_of_program(program: &Path) -> Option<String> {
    let name = format!("program `{}`", program.display());
    match std::fs::metadata(program) {
        Err(error) if error.kind() == ErrorKind::NotFound => Some(format!("{name} does not exist")),
        Err(_) => None,
        Ok(found) if found.is_dir() => Some(format!("{name} is a directory")),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => {
            Some(format!("{name} is not executable"))
        }
        Ok(_) => {
            let interpreter = interpreter(program)?;
            let found = std::fs::metadata(&interpreter);
            let is_missing = found.is_err_and(|error| error.kind() == ErrorKind::NotFound);
            is_missing.then(|| format!("interpreter `{interpreter}` of {name} does not exist"))
        }
    }
}

/// Returns the interpreter that the first line of a script names.
fn interpreter(program: &Path) -> Option<String> {
    first_line(program)?.into_iter().next()
}

/// Returns the name of the interpreter that `env` looks for in the PATH, as in
/// `#!/usr/bin/env node`.
pub fn interpreter_in_path(program: &Path) -> Option<String> {
    let words = first_line(program)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [env, name, ..] = words.as_slice() else { return None };
    let name = match words.as_slice() {
        [_, "-S", name, ..] => name,
        _ => name,
    };
    // Other options of `env` and variables are before a name that is not known here.
    let is_name = !name.starts_with('-') && !name.contains(['=', '/']);
    (is_name && Path::new(env).file_name() == Some(OsStr::new("env"))).then(|| (*name).to_owned())
}

/// Returns the words behind `#!` in the first line of a script. Does not wait if a pipe is in its
/// place.
fn first_line(program: &Path) -> Option<Vec<String>> {
    let mut start = [0; 256];
    let mut script = regular_file::open_followed(program).ok()?;
    let n = script.read(&mut start).ok()?;
    let line = start[..n].strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).split_whitespace().map(str::to_owned).collect())
}

/// Returns whether this is a file that some user can execute.
pub fn is_program(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
