//! A repository for a short time, in which git works on files as their owner.
//!
//! Another user than the daemon's can enter neither the keep repository nor, in general, the folder
//! of the clones. So git gets a bare repository that belongs to this user and has settings of the
//! daemon's. What it writes there goes to the keep repository through a pipe.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};

use super::inside::{InTheWay, Inside};
use super::rights::{Owner, run_as};
use super::{CheckoutError, make_folder};

/// A folder with a bare repository, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    /// The daemon's own folder around the repository.
    folder: PathBuf,
    path: PathBuf,
    owner: Option<Owner>,
}

impl Scratch {
    /// Makes the repository in `project` if its owner can enter that folder, and else in the
    /// system's folder for temporary files. Blocks.
    pub(super) fn new(
        project: &Path,
        owner: Option<Owner>,
        settings: &Settings<'_>,
    ) -> Result<Self, CheckoutError> {
        make_folder(project)?;
        let mut number = [0; 8];
        getrandom::fill(&mut number)
            .map_err(io::Error::from)
            .map_err(CheckoutError::io("make a folder in", project))?;
        let name = format!(".new-scratch-{:016x}", u64::from_le_bytes(number));
        let scratch = Self::make(&project.join(&name), owner)?;
        let can_enter = run_as(owner, || Ok(scratch.path.join(".").symlink_metadata().is_ok()))?;
        let scratch = if can_enter {
            scratch
        } else {
            Self::make(&std::env::temp_dir().join(format!("agent-coordinator{name}")), owner)?
        };
        run_as(owner, || make_repository(&scratch.path, settings))?;
        Ok(scratch)
    }

    /// Makes the folder. Its owner cannot put something else in the place of the repository,
    /// because the folder around it is the daemon's.
    fn make(folder: &Path, owner: Option<Owner>) -> Result<Self, CheckoutError> {
        let make = |path: &Path, mode: u32| {
            let mut builder = std::fs::DirBuilder::new();
            let made = builder.mode(mode).create(path);
            made.and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(mode)))
                .map_err(CheckoutError::io("make the folder", path))
        };
        make(folder, 0o711)?;
        let scratch = Self { folder: folder.to_owned(), path: folder.join("repository"), owner };
        make(&scratch.path, 0o700)?;
        if let Some(Owner { uid, gid }) = owner {
            lchown(&scratch.path, Some(uid), Some(gid))
                .map_err(CheckoutError::io("give to its user", &scratch.path))?;
        }
        Ok(scratch)
    }

    /// Returns the folder of the repository. It has place for other files of the step, too.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Copies a file into the folder, as its owner. Blocks.
    pub(super) fn fill(&self, name: &str, from: &mut File) -> Result<(), CheckoutError> {
        run_as(self.owner, || {
            let mut file = Inside::open(&self.path)?.make_file(Path::new(name), 0o600)?;
            io::copy(from, &mut file).map_err(CheckoutError::io("write", &self.path.join(name)))?;
            Ok(())
        })
    }

    /// Opens a regular file in the folder, as its owner. Blocks.
    pub(super) fn open_file(&self, name: &str) -> Result<File, CheckoutError> {
        run_as(self.owner, || {
            let opened = Inside::open(&self.path)?.open_file(Path::new(name));
            opened.map_err(CheckoutError::io("read", &self.path.join(name)))
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
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
pub(super) fn make_repository(folder: &Path, settings: &Settings<'_>) -> Result<(), CheckoutError> {
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
