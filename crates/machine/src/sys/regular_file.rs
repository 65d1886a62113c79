//! Opens small files in folders that other processes may change. A record may have been replaced by
//! a directory, a pipe, a device, a link or a huge file. Such a replacement neither blocks the
//! caller nor fills its memory.
//!
//! The code is the same on both systems. It blocks as long as the disk is slow. All code that reads
//! or writes small files below the state directory uses it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

/// The largest size of a small file, in bytes.
pub const MAX_SMALL: u64 = 64 * 1024;

/// The paths below which a shell passes on what it has opened: `<(command)` is `/dev/fd/63`, for
/// example.
const PASSED_ON: [&str; 3] = ["/dev/fd", "/dev/stdin", "/proc"];

/// The reason why a file cannot be used, now or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Unusable {
    #[error("it is {0}, not a regular file; move it away")]
    Kind(&'static str),
    #[error("it is {0}, not a regular file; name another path")]
    NamedKind(&'static str),
    #[error("it is larger than {} KiB; move it away", MAX_SMALL / 1024)]
    TooLarge,
}

impl From<Unusable> for io::Error {
    fn from(unusable: Unusable) -> Self {
        Self::new(io::ErrorKind::InvalidData, unusable)
    }
}

/// Opens a regular file for reading.
///
/// # Errors
/// Returns an error also if something else has this path; see [`is_lasting`].
pub fn open(path: &Path) -> io::Result<File> {
    open_at(CWD, path)
}

/// Opens a regular file for reading like [`open`], also behind links.
///
/// # Errors
/// Returns the errors of [`open`].
pub fn open_followed(path: &Path) -> io::Result<File> {
    open(&path.canonicalize()?)
}

/// Opens a regular file for reading like [`open`], with a path that starts at `folder`.
///
/// # Errors
/// Returns the errors of [`open`].
pub fn open_at(folder: impl AsFd, path: &Path) -> io::Result<File> {
    open_with(folder, path, OFlags::RDONLY)
}

/// Opens a regular file for writing without changing it; makes a private one if there is none.
///
/// # Errors
/// Returns the errors of [`open`].
pub fn open_or_make(path: &Path) -> io::Result<File> {
    open_with(CWD, path, OFlags::RDWR | OFlags::CREATE)
}

/// Opens a regular file to add to its end; makes a private one if there is none.
///
/// # Errors
/// Returns the errors of [`open`].
pub fn open_to_append(path: &Path) -> io::Result<File> {
    open_with(CWD, path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)
}

/// Makes a private, empty file. A file or link of this name is removed first.
///
/// # Errors
/// Returns an error also if a directory has this name.
pub fn make_anew(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    open_with(CWD, path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
}

/// Returns the content of a regular file of at most [`MAX_SMALL`] bytes.
///
/// # Errors
/// Returns the errors of [`open`], and an error if the file is larger.
pub fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    read_small_of(open(path)?)
}

fn read_small_of(file: File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(MAX_SMALL + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_SMALL {
        return Err(Unusable::TooLarge.into());
    }
    Ok(content)
}

/// Reads a file like [`read_small`], as text.
///
/// # Errors
/// Returns the errors of [`read_small`], and an error if the file is not UTF-8.
pub fn read_small_text(path: &Path) -> io::Result<String> {
    read_small_text_of(open(path)?)
}

/// Reads an open file like [`read_small_text`].
///
/// # Errors
/// Returns an error if the file is larger, or is not UTF-8.
pub fn read_small_text_of(file: File) -> io::Result<String> {
    String::from_utf8(read_small_of(file)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Refuses a pipe, a socket or a device at a path that a person named, because reading it may never
/// end. What a shell passes on and `/dev/null` can be read. A missing file is left to the caller.
///
/// # Errors
/// Returns an error that names the kind of the file.
pub fn check_named(path: &Path) -> io::Result<()> {
    let Ok(kind) = std::fs::metadata(path).map(|found| found.file_type()) else { return Ok(()) };
    let is_null = || std::fs::canonicalize(path).is_ok_and(|path| path == Path::new("/dev/null"));
    let is_passed_on = PASSED_ON.iter().any(|start| path.starts_with(start));
    if kind.is_file() || kind.is_dir() || is_passed_on || is_null() {
        return Ok(());
    }
    let kind = match () {
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(Unusable::NamedKind(kind).into())
}

/// Returns whether trying again later cannot help: `false` if memory or descriptors ran out, the
/// disk failed, or a signal came.
pub fn is_lasting(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let passes = |errno| {
        matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR | Errno::IO)
    };
    !errno.is_some_and(passes)
}

/// Opens without blocking and without following a link in the last component, and checks the type
/// of the opened file.
fn open_with(folder: impl AsFd, path: &Path, access: OFlags) -> io::Result<File> {
    // The flag is non-blocking: otherwise a pipe would wait for its other end, and a lease for its
    // holder.
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(folder, path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP) => return Err(Unusable::Kind("a symbolic link").into()),
        Err(Errno::ISDIR) => return Err(Unusable::Kind("a directory").into()),
        Err(Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP) => {
            return Err(Unusable::Kind("a socket, a pipe or a device").into());
        }
        Err(error) => return Err(error.into()),
    };
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        FileType::Directory => Err(Unusable::Kind("a directory").into()),
        FileType::Fifo => Err(Unusable::Kind("a pipe").into()),
        _ => Err(Unusable::Kind("a device").into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[track_caller]
    fn check_refused(result: io::Result<impl Sized>, expected: &str) {
        let error = result.err().expect("it is refused");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(is_lasting(&error), "{error}");
    }

    #[test]
    fn what_is_no_regular_file_is_named_and_never_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("folder")).unwrap();
        rustix::fs::mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        symlink("loop", path("loop")).unwrap();
        std::fs::write(path("target"), "secret").unwrap();
        symlink("target", path("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        let found = [
            ("folder", "a directory"),
            ("pipe", "pipe"),
            ("loop", "link"),
            ("link", "link"),
            ("socket", "socket"),
        ];
        for (name, kind) in found {
            check_refused(read_small(&path(name)), kind);
            check_refused(open_or_make(&path(name)).map(drop), "not a regular file");
        }
        symlink("pipe", path("to_pipe")).unwrap();
        check_refused(open_followed(&path("to_pipe")), "pipe");
        assert_eq!(read_small_text_of(open_followed(&path("link")).unwrap()).unwrap(), "secret");
        check_refused(read_small(Path::new("/dev/zero")), "a device");
        assert_eq!(std::fs::read_to_string(path("target")).unwrap(), "secret");
        for name in ["pipe", "loop", "link", "socket"] {
            make_anew(&path(name)).unwrap();
            assert_eq!(read_small(&path(name)).unwrap(), b"");
        }
        make_anew(&path("folder")).unwrap_err();
    }

    #[test]
    fn a_pipe_that_a_person_names_is_refused_unless_a_shell_passes_it_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        rustix::fs::mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        std::fs::write(path("file"), "").unwrap();
        for (target, name) in [("pipe", "to_pipe"), ("file", "to_file"), ("/dev/null", "to_null")] {
            symlink(target, path(name)).unwrap();
        }
        for (name, kind) in [
            ("pipe", "a pipe"),
            ("to_pipe", "a pipe"),
            ("socket", "a socket"),
            ("/dev/zero", "a device"),
        ] {
            check_refused(check_named(&path(name)), &format!("it is {kind}, not a regular file"));
        }
        for name in ["file", "to_file", "missing", "/dev/null", "to_null"] {
            check_named(&path(name)).unwrap();
        }
        let (end, _other) = std::io::pipe().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&end);
        check_named(Path::new(&format!("/dev/fd/{fd}"))).unwrap();
    }

    #[test]
    fn a_sparse_file_is_read_no_further_than_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = File::create(&path).unwrap();
        file.set_len(MAX_SMALL).unwrap();
        assert_eq!(read_small(&path).unwrap().len() as u64, MAX_SMALL);
        file.set_len(20 << 30).unwrap();
        check_refused(read_small(&path), "larger than 64 KiB");
        check_refused(read_small_text_of(File::open(&path).unwrap()), "larger than 64 KiB");
    }

    #[test]
    fn a_shortage_passes() {
        for (errno, lasts) in [
            (Errno::MFILE, false),
            (Errno::NOMEM, false),
            (Errno::ACCESS, true),
            (Errno::AGAIN, true),
        ] {
            assert_eq!(is_lasting(&errno.into()), lasts, "{errno}");
        }
    }
}
