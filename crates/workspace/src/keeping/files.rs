//! Writes the files of a workspace as trees, with an index and settings of the daemon's own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::git::Call;
use crate::nested::Nested;
use crate::rights::{Owner, blocking_as};
use crate::source::entries;
use crate::text::is_id;
use crate::{CheckoutError, KeepPolicy, Place, Result, WorkFiles, remove_folder};

/// The trees of the files.
pub(crate) struct Files {
    /// With the ignored files that are kept.
    pub(crate) all: String,
    /// Without ignored files.
    pub(crate) visible: String,
    /// The parts that git does not take with the others.
    pub(crate) nested: Nested,
}

impl WorkFiles {
    /// Begins a call on the files of a workspace, with an index of the daemon's own.
    ///
    /// # Errors
    /// `Refused` if the settings belong to another user.
    pub(crate) fn on_files(
        &self,
        place: &Place,
        arguments: &[&OsStr],
        index: &Path,
    ) -> Result<Call<'_>> {
        let files = place.files();
        // Git obeys the settings there with the rights of the user of the call.
        let is_other = |found: &Owner| place.owner.is_none_or(|owner| owner.uid != found.uid);
        if let Some(other) = Owner::of(&files).filter(is_other) {
            return Err(CheckoutError::Refused(format!(
                "git reads no files with the settings in `{}`, which belong to the user with id \
                 {}; remove that folder",
                files.display(),
                other.uid
            )));
        }
        let call = self
            .git
            .on_tree(&files, &place.tree(), arguments.iter().copied())
            .variable("GIT_INDEX_FILE", index)
            .long();
        Ok(match place.owner {
            None => call.variable("GIT_OBJECT_DIRECTORY", place.keep().join("objects")),
            // Git opens the files by their names, which lead where the owner wants.
            Some(owner) => call
                .variable("GIT_OBJECT_DIRECTORY", place.scratch().join("objects"))
                .variable("GIT_ALTERNATE_OBJECT_DIRECTORIES", place.lent(owner).join("objects"))
                .run_as(Some(owner)),
        })
    }

    /// Returns the ignored files and folders of a workspace, relative to it.
    pub(crate) async fn list_ignored(&self, place: &Place) -> Result<Vec<PathBuf>> {
        let list = ["ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"];
        let listed = self.on_files(place, &list.map(OsStr::new), &place.index())?.run().await?;
        Ok(entries(&listed).map(Path::to_owned).collect())
    }

    /// Writes the files of the workspace into the keep repository. `found` are the entries that git
    /// cannot take, each with the reason, and `aside` those that are taken in another way.
    pub(crate) async fn take_files(
        &self,
        place: &Place,
        found: Vec<(PathBuf, &'static str)>,
        aside: &[PathBuf],
        ignored: Vec<PathBuf>,
        policy: &KeepPolicy,
        left_out: &mut Vec<String>,
    ) -> Result<Files> {
        let tree = place.tree();
        let on_files = |arguments: &[&OsStr], index: &Path| self.on_files(place, arguments, index);
        // A call that was killed may have left the lock of the index.
        let index = place.index();
        for name in ["index.lock", "index-ignored.lock"] {
            let _ = std::fs::remove_file(index.with_file_name(name));
        }
        let is_ignored = |path: &Path| ignored.iter().any(|folder| path.starts_with(folder));
        // Git accepts no pattern for what it ignores anyway, and takes no `.git` at the top.
        let is_in_the_way = |path: &Path| path != ".git" && !is_ignored(path);
        let excluded = found.iter().filter(|(path, _)| is_in_the_way(path));
        let is_seen = |path: &&PathBuf| !is_ignored(path) && path.iter().all(|it| it != ".git");
        let aside_here = aside.iter().filter(is_seen);
        let excluded = excluded.map(|(path, _)| path).chain(aside_here);
        let mut patterns = b".\0".to_vec();
        for path in excluded {
            patterns.extend_from_slice(excluding(path).as_bytes());
            patterns.push(0);
        }
        let add = ["add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul"];
        on_files(&add.map(OsStr::new), &index)?.input(patterns).run().await?;
        // Another owner cannot read all files that the index names.
        let missing_ok = place.owner.map(|_| OsStr::new("--missing-ok"));
        let write: Vec<&OsStr> = [OsStr::new("write-tree")].into_iter().chain(missing_ok).collect();
        let visible = on_files(&write, &index)?.text().await?;
        let chosen = {
            let tree = tree.clone();
            let policy = policy.clone();
            let aside = aside.to_vec();
            let choose = move || Ok(choose(&tree, &ignored, found, &aside, &policy));
            blocking_as(place.owner, choose).await?
        };
        let Chosen { wanted, left_out: not_kept } = chosen;
        left_out.extend(not_kept);
        if wanted.is_empty() {
            let files = Files { all: visible.clone(), visible, nested: Nested::default() };
            return self.take_written(place, files).await;
        }
        // The index of the workspace has no ignored files, so that they never look like a change.
        let with_ignored = index.with_file_name("index-ignored");
        copy_as(place.owner, &index, &with_ignored).await?;
        let add = ["add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul"];
        on_files(&add.map(OsStr::new), &with_ignored)?
            .variable("GIT_LITERAL_PATHSPECS", "1")
            .input(wanted)
            .run()
            .await?;
        let all = on_files(&write, &with_ignored)?.text().await?;
        std::fs::remove_file(&with_ignored).map_err(CheckoutError::io("remove", &with_ignored))?;
        self.take_written(place, Files { all, visible, nested: Nested::default() }).await
    }

    /// Takes the files that git wrote as another owner into the keep repository. The owner controls
    /// what is there, so it is checked like the objects of the agent's own repository.
    async fn take_written(&self, place: &Place, files: Files) -> Result<Files> {
        if place.owner.is_none() {
            return Ok(files);
        }
        for tree in [&files.visible, &files.all] {
            if !is_id(tree) {
                return Err(CheckoutError::Refused(format!(
                    "git wrote the files of `{}` as `{tree}`, which is not the id of a tree",
                    place.tree().display()
                )));
            }
        }
        self.take_scratch(place).await?;
        // They are complete in the keep repository, or this fails.
        let trees = [&files.visible, &files.all];
        if let Err(error) = self.git.reached(place, trees.into_iter(), None).await {
            // The next attempt reads all files anew.
            let _ = std::fs::remove_file(place.index());
            return Err(error);
        }
        Ok(files)
    }

    /// Takes the objects that git wrote as another owner into the keep repository. Does nothing for
    /// the daemon's own user.
    pub(crate) async fn take_scratch(&self, place: &Place) -> Result<()> {
        if place.owner.is_none() {
            return Ok(());
        }
        let name = place.folder.file_name().unwrap_or_default().to_string_lossy();
        let quarantine = place.project.join(format!(".q-{name}-files"));
        let written = place.scratch().join("objects");
        self.git.take_from(place, &written, &quarantine).await?;
        remove_folder(&written)
    }
}

/// Copies the index of a workspace.
pub(crate) async fn copy_as(owner: Option<Owner>, from: &Path, to: &Path) -> Result<()> {
    let from = from.to_owned();
    let to = to.to_owned();
    let copy = move || std::fs::copy(&from, &to).map_err(CheckoutError::io("write", &to));
    blocking_as(owner, copy).await.map(drop)
}

fn shown((path, reason): &(PathBuf, &'static str)) -> String {
    format!("{}: {reason}", path.display())
}

/// Returns the pattern with which `git add` leaves out `path`. For a `.git`
/// folder, it leaves out the folder around it: git would record only its newest commit.
pub(crate) fn excluding(path: &Path) -> OsString {
    let is_nested = path.file_name() == Some(OsStr::new(".git"));
    let path = path.parent().filter(|_| is_nested).unwrap_or(path);
    let mut pattern = OsString::from(":(exclude,top,literal)");
    pattern.push(path);
    pattern
}

/// The choice of ignored files that are kept, and the entries that are not kept at all.
struct Chosen {
    /// The ignored files and folders that are kept, each ended by NUL.
    wanted: Vec<u8>,
    /// Each entry with the reason. Nothing in a rebuildable folder is among them.
    left_out: Vec<String>,
}

/// Chooses the ignored files and folders that are kept: all but the rebuildable ones, up to the
/// limit. A folder with something that cannot be kept is left out as a whole, because git would
/// refuse it. `found` is what the walk left out, and `aside` is taken in another way.
fn choose(
    tree: &Path,
    ignored: &[PathBuf],
    mut found: Vec<(PathBuf, &'static str)>,
    aside: &[PathBuf],
    policy: &KeepPolicy,
) -> Chosen {
    let mut wanted = Vec::new();
    let mut too_much = Vec::new();
    let mut used = 0;
    let mut pieces = Vec::new();
    for path in ignored {
        if policy.is_rebuildable(path) {
            found.retain(|(inside, _)| !inside.starts_with(path));
        } else {
            split(tree, path, aside, &mut pieces);
        }
    }
    for path in &pieces {
        if found.iter().any(|(inside, _)| inside.starts_with(path)) {
            too_much.push(format!("{}: something in it cannot be kept", path.display()));
            continue;
        }
        let size = size_of(&tree.join(path), policy.ignored_max);
        if used + size > policy.ignored_max {
            too_much.push(format!(
                "{}: ignored files are kept up to {} bytes",
                path.display(),
                policy.ignored_max
            ));
            continue;
        }
        used += size;
        wanted.extend_from_slice(path.as_os_str().as_bytes());
        wanted.push(0);
    }
    let left_out = found.iter().map(shown).chain(too_much).collect();
    Chosen { wanted, left_out }
}

/// Adds `path`, or what is in it beside `aside`.
fn split(tree: &Path, path: &Path, aside: &[PathBuf], pieces: &mut Vec<PathBuf>) {
    let is_aside = |other: &PathBuf| path.starts_with(other);
    if aside.iter().any(is_aside) {
        return;
    }
    if !aside.iter().any(|other| other.starts_with(path)) {
        return pieces.push(path.to_owned());
    }
    for entry in std::fs::read_dir(tree.join(path)).into_iter().flatten().flatten() {
        split(tree, &path.join(entry.file_name()), aside, pieces);
    }
}

/// Returns the size of a file or a folder in bytes. The count ends when it is greater than `limit`.
pub(crate) fn size_of(path: &Path, limit: u64) -> u64 {
    let Ok(found) = path.symlink_metadata() else {
        return 0;
    };
    if !found.is_dir() {
        return found.len();
    }
    let mut sum = 0;
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        sum += size_of(&entry.path(), limit);
        if sum > limit {
            break;
        }
    }
    sum
}
