//! Brings the parts of a kept commit back.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::{LFS, PARTS, path_in, raw_objects};
use crate::inside::{InTheWay, Inside};
use crate::lending::alternates;
use crate::objects::lines;
use crate::refs::Refs;
use crate::restore::Writer;
use crate::rights::{Owner, blocking_as};
use crate::source::entries;
use crate::text::{is_id, ref_of_head};
use crate::{Place, Result, WorkFiles};

/// A part of a kept commit.
struct KeptPart {
    /// The name of its tree, in the form `<commit or tree>:<path>`.
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

impl WorkFiles {
    /// Writes the parts of a kept commit into a folder that has the other files already.
    /// Repositories come back as files only.
    pub(crate) async fn write_parts(
        &self,
        place: &Place,
        tree: &Path,
        writer: &Writer<'_>,
    ) -> Result<()> {
        for part in self.list_kept(&writer.content, place).await? {
            if !part.is_store() {
                self.write_part(&part, place, tree, writer).await?;
            }
        }
        Ok(())
    }

    async fn write_part(
        &self,
        part: &KeptPart,
        place: &Place,
        tree: &Path,
        writer: &Writer<'_>,
    ) -> Result<()> {
        let file = match &part.file_mode {
            Some(mode) => {
                let blob = format!("{}/file", part.name);
                let print = self.git.on(&place.keep(), ["cat-file", "blob", &blob]);
                Some((mode.clone(), print.long().run().await?))
            }
            None => None,
        };
        let top = tree.to_owned();
        let path = part.path.clone();
        blocking_as(writer.owner, move || {
            let inside = Inside::open(&top)?;
            // A link that is in its place, or above it, would lead elsewhere.
            let folder = if file.is_some() { path.parent().unwrap_or(&path) } else { &path };
            inside.make_folder(folder, InTheWay::Remove)?;
            match file {
                Some((mode, target)) if mode == "120000" => {
                    inside.link(&path, OsStr::from_bytes(&target))
                }
                Some((mode, content)) => {
                    let mode = if mode == "100755" { 0o755 } else { 0o644 };
                    inside.write(&path, &content, mode)
                }
                None => Ok(()),
            }
        })
        .await?;
        if part.has_files {
            let path = tree.join(&part.path);
            let files = format!("{}/worktree", part.name);
            writer.on(&path, &["read-tree", &files]).run().await?;
            writer.on(&path, &["checkout-index", "--all", "--force"]).run().await?;
        }
        Ok(())
    }

    /// Makes the repositories of the parts of a kept commit again, in a workspace that no agent
    /// has used yet. They have the refs and HEAD, and borrow the objects of the keep repository, or
    /// those that are lent to the owner.
    pub(crate) async fn restore_repositories(
        &self,
        place: &Place,
        tree: &Path,
        writer: &Writer<'_>,
    ) -> Result<()> {
        let owner = writer.owner;
        for part in self.list_kept(&writer.content, place).await? {
            if part.is_store() {
                self.write_part(&part, place, tree, writer).await?;
            }
            if !part.is_work_tree() {
                continue;
            }
            let blob = |name: &'static str| self.read_about(&part, name, place);
            let top = tree.join(&part.path);
            let init = ["init", "--quiet", "--template="].map(OsStr::new);
            let init = self.git.call(init.into_iter().chain([top.as_os_str()]));
            init.run_as(owner).run().await?;
            let own = top.join(".git");
            let shallow = blob("shallow").await?;
            let up = "../".repeat(part.path.components().count());
            let borrowed = format!("{up}{}", alternates(owner));
            let inside = own.clone();
            blocking_as(owner, move || {
                let inside = Inside::open(&inside)?;
                let alternates = Path::new("objects/info/alternates");
                inside.write(alternates, borrowed.as_bytes(), 0o644)?;
                if !shallow.is_empty() {
                    inside.write(Path::new("shallow"), &shallow, 0o644)?;
                }
                Ok(())
            })
            .await?;
            for (kind, content) in raw_objects(&blob("objects").await?) {
                let object = self.git.on(&own, ["hash-object", "-w", "-t", kind, "--stdin"]);
                object.run_as(owner).input(content).end().await?;
            }
            let refs = Refs::from_kept(&String::from_utf8_lossy(&blob("refs").await?));
            self.restore_refs_of(&refs, &own, owner).await?;
        }
        Ok(())
    }

    /// Returns what the repositories of the parts of a kept commit borrow when they are made again.
    pub(crate) async fn borrowed_by_parts(
        &self,
        kept: &str,
        place: &Place,
    ) -> Result<BTreeSet<String>> {
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
            borrowed.extend(self.git.kinds(place, named.iter()).await?.into_keys());
        }
        Ok(borrowed)
    }

    /// Reads what a kept commit has as text about the repository of a part. It is empty if there is
    /// nothing of this name.
    async fn read_about(&self, part: &KeptPart, name: &str, place: &Place) -> Result<Vec<u8>> {
        let name = format!("{}/git/{name}", part.name);
        let print = ["cat-file", "blob", &name];
        Ok(self.git.on(&place.keep(), print).long().end().await?.stdout)
    }

    /// Gives a new repository refs, HEAD and an index. Refs that git does not accept stay in the
    /// kept commit alone.
    async fn restore_refs_of(&self, refs: &Refs, own: &Path, owner: Option<Owner>) -> Result<()> {
        let on_own =
            |arguments: &[&str]| self.git.on(own, arguments.iter().copied()).run_as(owner).long();
        let check = ["cat-file", "--batch-check=%(objectname)"];
        let listed = on_own(&check).input(lines(&refs.named)).text().await?;
        let there: BTreeSet<&str> = listed.lines().filter(|line| !line.contains(' ')).collect();
        for (name, id) in refs.iter() {
            let is_name = name.starts_with("refs/") && !name.contains(char::is_whitespace);
            if is_name && there.contains(id.as_str()) {
                on_own(&["update-ref", name, id]).end().await?;
            }
        }
        let head = refs.head.as_deref().map(str::trim).unwrap_or_default();
        if let Some(name) = ref_of_head(head) {
            on_own(&["symbolic-ref", "HEAD", name]).end().await?;
        } else if there.contains(head) {
            on_own(&["update-ref", "--no-deref", "HEAD", head]).end().await?;
        }
        on_own(&["read-tree", "HEAD"]).end().await?;
        Ok(())
    }

    /// Returns the parts of a kept commit, or of its tree.
    async fn list_kept(&self, kept: &str, place: &Place) -> Result<Vec<KeptPart>> {
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
