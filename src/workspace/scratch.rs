//! A repository for a short time, in which git works on files as their owner.
//!
//! Another user than the daemon's can enter neither the keep repository nor, in general, the folder
//! of the clones. So git gets a bare repository that belongs to this user and has settings of the
//! daemon's. What it writes there goes to the keep repository through a pipe.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::inside::{InTheWay, Inside};
use super::rights::{Owner, run_as};
use super::{CheckoutError, make_folder};

/// The number of the next folder of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A folder with a bare repository, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: PathBuf,
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
        let name =
            format!(".new-scratch-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let can_enter = |folder: &Path| {
            run_as(owner, || Ok(folder.join(".").symlink_metadata().is_ok())).unwrap_or(false)
        };
        let near = project.join(&name);
        make_private(&near)?;
        let scratch = Self { folder: near, owner };
        scratch.give()?;
        let scratch = if can_enter(&scratch.folder) {
            scratch
        } else {
            let far = std::env::temp_dir().join(format!("agent-coordinator{name}"));
            make_private(&far)?;
            let far = Self { folder: far, owner };
            far.give()?;
            far
        };
        run_as(owner, || make_repository(&scratch.folder, settings))?;
        Ok(scratch)
    }

    /// Returns the folder of the repository. It has place for other files of the step, too.
    pub(super) fn path(&self) -> &Path {
        &self.folder
    }

    /// Copies a file into the folder, as its owner. Blocks.
    pub(super) fn fill(&self, name: &str, from: &mut File) -> Result<(), CheckoutError> {
        run_as(self.owner, || {
            let mut file = Inside::open(&self.folder)?.make_file(Path::new(name), 0o600)?;
            io::copy(from, &mut file)
                .map_err(CheckoutError::io("write", &self.folder.join(name)))?;
            Ok(())
        })
    }

    /// Opens a regular file in the folder, as its owner. Blocks.
    pub(super) fn open_file(&self, name: &str) -> Result<File, CheckoutError> {
        run_as(self.owner, || {
            let opened = Inside::open(&self.folder)?.open_file(Path::new(name));
            opened.map_err(CheckoutError::io("read", &self.folder.join(name)))
        })
    }

    fn give(&self) -> Result<(), CheckoutError> {
        let Some(Owner { uid, gid }) = self.owner else {
            return Ok(());
        };
        lchown(&self.folder, Some(uid), Some(gid))
            .map_err(CheckoutError::io("give to its user", &self.folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Makes a folder that did not exist, and that only its owner can enter.
fn make_private(folder: &Path) -> Result<(), CheckoutError> {
    let mut builder = std::fs::DirBuilder::new();
    let made = match builder.mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_dir_all(folder).and_then(|()| builder.create(folder))
        }
        made => made,
    };
    made.and_then(|()| std::fs::set_permissions(folder, Permissions::from_mode(0o700)))
        .map_err(CheckoutError::io("make the folder", folder))
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
