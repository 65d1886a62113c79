//! Brings the parts of a kept commit back.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use super::{LFS, PARTS, path_in, raw_objects};
use crate::workspace::lending::alternates;
use crate::workspace::objects::lines;
use crate::workspace::refs::{Refs, is_id};
use crate::workspace::rights::Owner;
use crate::workspace::source::entries;
use crate::workspace::{CheckoutError, Checkouts, Place, make_folder, write};

/// A part of a kept commit.
struct KeptPart {
    /// The name of its tree, in the form `<commit>:<path>`.
    name: String,
    path: PathBuf,
    /// The mode of the file or the link that it is.
    file_mode: Option<String>,
    has_files: bool,
    is_repository: bool,
}

impl KeptPart {
    /// Returns whether it has the files of LFS. They belong to a repository.
    fn is_store(&self) -> bool {
        self.path.ends_with(LFS)
    }

    fn is_work_tree(&self) -> bool {
        self.has_files && self.is_repository
    }
}

impl Checkouts {
    /// Writes the parts of a kept commit into a folder that has the other files already.
    /// Repositories come back as files only.
    pub(in crate::workspace) async fn write_parts(
        &self,
        kept: &str,
        place: &Place,
        tree: &Path,
    ) -> Result<(), CheckoutError> {
        for part in self.list_kept(kept, place).await? {
            if !part.is_store() {
                self.write_part(&part, place, tree).await?;
            }
        }
        Ok(())
    }

    async fn write_part(
        &self,
        part: &KeptPart,
        place: &Place,
        tree: &Path,
    ) -> Result<(), CheckoutError> {
        let path = tree.join(&part.path);
        let parent = path.parent().unwrap_or(tree);
        let folder = if part.file_mode.is_some() { parent } else { &path };
        clear_way(tree, &part.path, part.file_mode.is_some())?;
        std::fs::create_dir_all(folder).map_err(CheckoutError::io("make", folder))?;
        if let Some(mode) = &part.file_mode {
            let blob = format!("{}/file", part.name);
            let content = self.git.on(&place.keep(), ["cat-file", "blob", &blob]);
            write_file(&path, mode, content.long().run().await?)?;
        }
        if part.has_files {
            let name = part.name.replace(['/', ':'], "-");
            let index = place.project.join(format!(".new-index-{name}"));
            let on_files = |arguments: &[&str]| {
                self.git
                    .on_tree(&place.files(), &path, arguments.iter().copied())
                    .variable("GIT_OBJECT_DIRECTORY", place.keep().join("objects"))
                    .variable("GIT_INDEX_FILE", &index)
                    .long()
            };
            on_files(&["read-tree", &format!("{}/worktree", part.name)]).run().await?;
            on_files(&["checkout-index", "--all", "--force"]).run().await?;
            std::fs::remove_file(&index).map_err(CheckoutError::io("remove", &index))?;
        }
        Ok(())
    }

    /// Makes the repositories of the parts of a kept commit again, in a workspace that no agent
    /// has used yet. They have the refs and HEAD, and borrow the objects of the keep repository, or
    /// those that are lent to `owner`.
    pub(in crate::workspace) async fn restore_repositories(
        &self,
        kept: &str,
        place: &Place,
        owner: Option<Owner>,
        tree: &Path,
    ) -> Result<(), CheckoutError> {
        for part in self.list_kept(kept, place).await? {
            if part.is_store() {
                self.write_part(&part, place, tree).await?;
            }
            if !part.is_work_tree() {
                continue;
            }
            let blob = |name: &'static str| self.read_about(&part, name, place);
            let top = tree.join(&part.path);
            let init = ["init", "--quiet", "--template="].map(OsStr::new);
            self.git.call(init.into_iter().chain([top.as_os_str()])).run().await?;
            let own = top.join(".git");
            make_folder(&own.join("objects/info"))?;
            let up = "../".repeat(part.path.components().count());
            let borrowed = format!("{up}{}", alternates(owner));
            write(&own.join("objects/info/alternates"), borrowed)?;
            let shallow = blob("shallow").await?;
            if !shallow.is_empty() {
                write(&own.join("shallow"), shallow)?;
            }
            for (kind, content) in raw_objects(&blob("objects").await?) {
                let object = self.git.on(&own, ["hash-object", "-w", "-t", kind, "--stdin"]);
                object.input(content).end().await?;
            }
            let refs = Refs::from_kept(&String::from_utf8_lossy(&blob("refs").await?));
            self.restore_refs_of(&refs, &own).await?;
        }
        Ok(())
    }

    /// Returns what the repositories of the parts of a kept commit borrow when they are made again.
    pub(in crate::workspace) async fn borrowed_by_parts(
        &self,
        kept: &str,
        place: &Place,
    ) -> Result<BTreeSet<String>, CheckoutError> {
        let mut borrowed = BTreeSet::new();
        for part in self.list_kept(kept, place).await?.iter().filter(|part| part.is_work_tree()) {
            if !self.read_about(part, "shallow", place).await?.is_empty() {
                // Its commits lack their parents and are kept as text.
                let lost = format!("{}/lost", part.name);
                let find = ["rev-parse", "--verify", "--quiet", "--end-of-options", &lost];
                let found = self.git.on(&place.keep(), find).end().await?;
                let id = String::from_utf8_lossy(&found.stdout).trim().to_owned();
                borrowed.extend((found.code == Some(0)).then_some(id));
                continue;
            }
            let refs = self.read_about(part, "refs", place).await?;
            let refs = Refs::from_kept(&String::from_utf8_lossy(&refs));
            let tags = self.read_about(part, "objects", place).await?;
            let tagged = raw_objects(&tags).into_iter().filter_map(|(_, text)| tagged_in(text));
            let named: BTreeSet<String> = refs.named.iter().cloned().chain(tagged).collect();
            borrowed.extend(self.kinds(place, named.iter()).await?.into_keys());
        }
        Ok(borrowed)
    }

    /// Reads what a kept commit has as text about the repository of a part. It is empty if there is
    /// nothing of this name.
    async fn read_about(
        &self,
        part: &KeptPart,
        name: &str,
        place: &Place,
    ) -> Result<Vec<u8>, CheckoutError> {
        let name = format!("{}/git/{name}", part.name);
        let print = ["cat-file", "blob", &name];
        Ok(self.git.on(&place.keep(), print).long().end().await?.stdout)
    }

    /// Gives a new repository refs, HEAD and an index. Refs that git does not accept stay in the
    /// kept commit alone.
    async fn restore_refs_of(&self, refs: &Refs, own: &Path) -> Result<(), CheckoutError> {
        let check = ["cat-file", "--batch-check=%(objectname)"];
        let listed = self.git.on(own, check).input(lines(&refs.named)).long().text().await?;
        let there: BTreeSet<&str> = listed.lines().filter(|line| !line.contains(' ')).collect();
        for (name, id) in refs.iter() {
            let is_name = name.starts_with("refs/") && !name.contains(char::is_whitespace);
            if is_name && there.contains(id.as_str()) {
                self.git.on(own, ["update-ref", name, id]).end().await?;
            }
        }
        let head = refs.head.as_deref().map(str::trim).unwrap_or_default();
        if let Some(name) = head.strip_prefix("ref: ") {
            self.git.on(own, ["symbolic-ref", "HEAD", name]).end().await?;
        } else if there.contains(head) {
            self.git.on(own, ["update-ref", "--no-deref", "HEAD", head]).end().await?;
        }
        self.git.on(own, ["read-tree", "HEAD"]).long().end().await?;
        Ok(())
    }

    /// Returns the parts of a kept commit.
    async fn list_kept(&self, kept: &str, place: &Place) -> Result<Vec<KeptPart>, CheckoutError> {
        let mut parts = Vec::new();
        let list = |folder: String| {
            self.git.on(&place.keep(), ["ls-tree", "-z", "--full-tree", kept, "--", &folder]).run()
        };
        let listed = list(format!("{PARTS}/")).await?;
        let folders = entries(&listed).filter_map(|entry| path_in(entry.as_os_str().as_bytes()));
        for folder in folders.collect::<Vec<PathBuf>>() {
            let folder = folder.to_string_lossy().into_owned();
            let listed = list(format!("{folder}/")).await?;
            let has = |name: &str| {
                let mut all = entries(&listed).map(|entry| entry.as_os_str().as_bytes());
                all.find(|entry| path_in(entry).is_some_and(|path| path.ends_with(name)))
            };
            let name = format!("{kept}:{folder}");
            let print = ["cat-file", "blob", &format!("{name}/path")];
            let path = self.git.on(&place.keep(), print).run().await?;
            let path = PathBuf::from(OsStr::from_bytes(&path));
            if !path.components().all(|part| matches!(part, Component::Normal(_))) {
                continue;
            }
            let mode = has("file").and_then(|entry| entry.get(..6));
            parts.push(KeptPart {
                path,
                file_mode: mode.map(|mode| String::from_utf8_lossy(mode).into_owned()),
                has_files: has("worktree").is_some(),
                is_repository: has("git").is_some(),
                name,
            });
        }
        Ok(parts)
    }
}

/// Returns the id of the object that a tag names.
fn tagged_in(tag: &[u8]) -> Option<String> {
    let line = tag.split(|byte| *byte == b'\n').next()?;
    let id = std::str::from_utf8(line.strip_prefix(b"object ")?).ok()?;
    is_id(id).then(|| id.to_owned())
}

/// Makes room for a part at `path` below `tree`, where the other files of the kept commit are: for a
/// file, or for a folder. A link that is in its place, or above it, would lead elsewhere.
fn clear_way(tree: &Path, path: &Path, is_file: bool) -> Result<(), CheckoutError> {
    let mut place = tree.to_owned();
    let n_above = path.components().count().saturating_sub(usize::from(is_file));
    for (n, name) in path.components().enumerate() {
        place.push(name);
        let Ok(found) = place.symlink_metadata() else {
            return Ok(());
        };
        if n < n_above && found.is_dir() {
            continue;
        }
        return std::fs::remove_file(&place).map_err(CheckoutError::io("remove", &place));
    }
    Ok(())
}

/// Writes a file or a link with a mode of a tree, over a new file at most.
fn write_file(path: &Path, mode: &str, content: Vec<u8>) -> Result<(), CheckoutError> {
    if mode == "120000" {
        return std::os::unix::fs::symlink(OsStr::from_bytes(&content), path)
            .map_err(CheckoutError::io("make", path));
    }
    write(path, content)?;
    let mode = if mode == "100755" { 0o755 } else { 0o644 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .map_err(CheckoutError::io("change", path))
}
