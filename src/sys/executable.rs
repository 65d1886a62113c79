//! Looks in the file system for the reason why a program or a directory starts no process.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::Access;

use crate::domain::RunAs;

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
        // A pipe would keep its reader waiting.
        Ok(found) if !found.is_file() => None,
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
    let mut start = [0; 256];
    let n = File::open(program).and_then(|mut file| file.read(&mut start)).ok()?;
    let line = start[..n].strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).split_whitespace().next()?.to_owned())
}
