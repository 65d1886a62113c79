//! A repository for a short time, in which git works on files as their owner.
//!
//! Another user than the daemon's can enter neither the keep repository nor, in general, the folder
//! of the clones. So git gets a bare repository that belongs to this user and has settings of the
//! daemon's. What it writes there goes to the keep repository through a pipe.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::inside::{InTheWay, Inside};
use super::objects::short_hash;
use super::rights::{Owner, give, run_as};
use super::{CheckoutError, Result, make_folder};

/// The beginning of the names of these folders.
const NAME: &str = ".new-temporary-";

/// A folder with a bare repository, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct TemporaryRepository {
    /// The daemon's own folder around the repository.
    folder: PathBuf,
    path: PathBuf,
    owner: Option<Owner>,
}

impl TemporaryRepository {
    /// Makes the repository in `parent`, a folder of the daemon, if its owner can enter that
    /// folder, and else in the system's folder for temporary files. Blocks.
    pub(super) fn new(
        parent: &Path,
        owner: Option<Owner>,
        settings: &Settings<'_>,
    ) -> Result<Self> {
        make_folder(parent)?;
        let mut number = [0; 8];
        getrandom::fill(&mut number)
            .map_err(io::Error::from)
            .map_err(CheckoutError::io("make a folder in", parent))?;
        let name = format!("{NAME}{:016x}", u64::from_le_bytes(number));
        let made = Self::make(&parent.join(&name), owner)?;
        let can_enter = run_as(owner, || Ok(made.path.join(".").symlink_metadata().is_ok()))?;
        let made = if can_enter {
            made
        } else {
            let name = format!("{}{name}", elsewhere(parent));
            Self::make(&std::env::temp_dir().join(name), owner)?
        };
        run_as(owner, || make_repository(&made.path, settings))?;
        Ok(made)
    }

    /// Makes the folder. Its owner cannot put something else in the place of the repository,
    /// because the folder around it is the daemon's.
    fn make(folder: &Path, owner: Option<Owner>) -> Result<Self> {
        let make = |path: &Path, mode: u32| {
            let mut builder = std::fs::DirBuilder::new();
            let made = builder.mode(mode).create(path);
            made.and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(mode)))
                .map_err(CheckoutError::io("make the folder", path))
        };
        make(folder, 0o711)?;
        let made = Self { folder: folder.to_owned(), path: folder.join("repository"), owner };
        make(&made.path, 0o700)?;
        if let Some(owner) = owner {
            give(&made.path, owner)?;
        }
        Ok(made)
    }

    /// Returns the folder of the repository. It has place for other files of the step, too.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Copies a file into the folder, as its owner. Blocks.
    pub(super) fn fill(&self, name: &str, from: &mut File) -> Result<()> {
        run_as(self.owner, || {
            let mut file = Inside::open(&self.path)?.make_file(Path::new(name), 0o600)?;
            io::copy(from, &mut file).map_err(CheckoutError::io("write", &self.path.join(name)))?;
            Ok(())
        })
    }

    /// Opens a regular file in the folder, as its owner. Blocks.
    pub(super) fn open_file(&self, name: &str) -> Result<File> {
        run_as(self.owner, || {
            let opened = Inside::open(&self.path)?.open_file(Path::new(name));
            opened.map_err(CheckoutError::io("read", &self.path.join(name)))
        })
    }
}

impl Drop for TemporaryRepository {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the beginning of the names that folders for `parent` have in the system's folder for
/// temporary files. Other daemons have other ones.
fn elsewhere(parent: &Path) -> String {
    format!("agent-coordinator-{}", short_hash(parent.as_os_str().as_bytes()))
}

/// Removes the folders for `parent` that an earlier process of the daemon left. Blocks.
pub(super) fn remove_remains(parent: &Path) {
    let own_uid = rustix::process::geteuid().as_raw();
    let elsewhere = elsewhere(parent);
    let system = std::env::temp_dir();
    for (folder, beginning) in [(parent, NAME), (&system, &elsewhere)] {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let is_ours = entry.file_name().to_string_lossy().starts_with(beginning)
                && entry.metadata().is_ok_and(|it| it.is_dir() && it.uid() == own_uid);
            if is_ours {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// The settings of a bare repository.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings<'a> {
    /// The format of the ids: `sha1` or `sha256`.
    pub(super) format: &'a str,
    /// The attributes that come before those of the files.
    pub(super) attributes: &'a str,
    /// The list of files that git ignores, beside `.gitignore`.
    pub(super) excluded: &'a str,
}

/// Writes a bare repository without the help of git. Blocks.
pub(super) fn make_repository(folder: &Path, settings: &Settings<'_>) -> Result<()> {
    let Settings { format, attributes, excluded } = settings;
    let inside = Inside::open(folder)?;
    for name in ["objects", "refs", "info"] {
        inside.make_folder(Path::new(name), InTheWay::Refuse)?;
    }
    let (version, extension) = match *format {
        "sha1" => (0, String::new()),
        format => (1, format!("[extensions]\n\tobjectFormat = {format}\n")),
    };
    let config = format!(
        "[core]\n\trepositoryFormatVersion = {version}\n\tbare = true\n\tprotectHFS = false\n\
         \tprotectNTFS = false\n{extension}"
    );
    for (name, content) in [
        ("HEAD", "ref: refs/heads/main\n"),
        ("config", &config),
        ("info/attributes", attributes),
        ("info/exclude", excluded),
    ] {
        inside.write(Path::new(name), content.as_bytes(), 0o600)?;
    }
    Ok(())
}

/// Returns a setting in the form of a file of settings, such as `remote.origin.url`.
pub(super) fn setting(name: &str, value: &str) -> String {
    let (section, key) = name.rsplit_once('.').unwrap_or((name, ""));
    let section = match section.split_once('.') {
        Some((section, middle)) => format!("{section} \"{middle}\""),
        None => section.to_owned(),
    };
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("[{section}]\n\t{key} = \"{value}\"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::run_git;

    #[test]
    fn git_reads_a_setting_as_it_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config");
        for (name, value) in [("user.name", "ann"), ("remote.origin.url", "a \"b\"\\c;#\n\t[d]")] {
            std::fs::write(&config, setting(name, value)).unwrap();
            let get = ["config", "--file", "config", "--get", name];
            assert_eq!(run_git(folder.path(), folder.path(), &get), value);
        }
    }
}
