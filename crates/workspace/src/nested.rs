//! Keeps what git does not take with the other files of a workspace: repositories inside the
//! repository, and names that git refuses.
//!
//! Git would record only the newest commit of a repository inside another one. Each such part is
//! read on its own instead, with an index and settings of the daemon. Nothing of its `.git` is ever
//! used by a process: objects are copied, and refs are read as text. The kept commit has a folder
//! `nested`, with one folder for each part:
//!
//! | entry | content |
//! |---|---|
//! | `path` | the path of the part, relative to the workspace |
//! | `worktree` | its files, byte for byte |
//! | `file` | the file or the link, if the part is one |
//! | `git` | HEAD, refs, logs of refs and settings as text, and objects that have no other place |
//! | `lost` | objects that no commit reaches any more |
//!
//! The commits of a repository are ancestors of the kept commit.

mod find;
mod gitlinks;
mod restore;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::git::GitError;
use super::keeping::{Files, size_of};
use super::objects::{lines, open};
use super::refs::{Refs, refs_in};
use super::repository::Repository;
use super::rights::{blocking_as, open_passage, run_as};
use super::text::{borrowed_folders, read_text};
use super::walk::Walk;
use super::{CheckoutError, Git, KeepPolicy, Place, Result, WorkFiles, make_folder};
use domain::workspace::KeepOrder;

pub(super) use find::{is_kept_aside, part_at, part_place, settle};
pub(super) use gitlinks::{GITLINKS, GITLINKS_LOCK};

/// The folder with the daemon's own indexes of parts, in the folder of a workspace.
pub(super) const PARTS: &str = "nested";
/// The most parts of a workspace that are kept.
const MAX_PARTS: usize = 1_000;
/// The most parents of one commit.
const MAX_PARENTS: usize = 4_000;
/// The folder of a repository with the files of LFS, which the commits do not have.
pub(super) const LFS: &str = "lfs/objects";
/// The reason for which an entry that is a link is no repository.
const IS_LINK: &str = "it is a link, which is not followed";

/// Something in a workspace that git does not take with the other files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Relative to the workspace.
    pub(super) path: PathBuf,
    pub(super) kind: PartKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PartKind {
    /// A folder with a `.git`. Without a repository that can be kept, only the files are.
    WorkTree(Option<Repository>),
    /// A repository below a `.git`, such as that of a submodule whose files are not there.
    Repository,
    /// A folder whose name git refuses.
    Folder,
    /// A file or a link whose name git refuses.
    File,
}

/// The parts of a workspace that were taken.
#[derive(Default)]
pub(super) struct Nested {
    /// The lines of the tree `nested`, for `git mktree`.
    pub(super) entries: String,
    /// A commit for each repository.
    pub(super) commits: Vec<String>,
    /// The objects that the kept commit must reach.
    pub(super) objects: BTreeSet<String>,
    /// The commits that the HEADs of the repositories name.
    pub(super) heads: BTreeMap<PathBuf, String>,
    /// The trees of the files in the linked work trees of the workspace, without ignored ones.
    pub(super) linked: BTreeMap<PathBuf, String>,
}

/// A part that was taken, with its tree.
enum TakenPart {
    Files(String),
    Repository {
        entry: String,
        commit: String,
        /// The commit that HEAD names.
        head: Option<String>,
        /// The tree of its files without ignored ones, if it is a linked work tree of the workspace.
        linked: Option<String>,
        objects: BTreeSet<String>,
    },
}

impl TakenPart {
    /// Notes the facts about the part at `path`, and returns its tree.
    fn note_in(self, nested: &mut Nested, path: &Path) -> String {
        match self {
            Self::Files(entry) => entry,
            Self::Repository { entry, commit, head, linked, objects } => {
                nested.commits.push(commit);
                nested.linked.extend(linked.map(|tree| (path.to_owned(), tree)));
                nested.heads.extend(head.map(|head| (path.to_owned(), head)));
                nested.objects.extend(objects);
                entry
            }
        }
    }
}

/// The text in a repository.
struct Texts {
    refs: Refs,
    config: Option<String>,
    /// The commits whose parents lack.
    shallow: Option<String>,
    /// The folders whose objects it borrows.
    borrowed: Option<String>,
}

impl Texts {
    /// Reads the text of a repository; the reason if its refs and objects cannot be taken. `format`
    /// is that of the ids in the keep repository.
    fn read(repository: &Repository, format: &str) -> Result<Self, String> {
        let own_format = repository.format();
        if own_format != format {
            return Err(format!("its ids are of another kind ({own_format})"));
        }
        if repository.has_ref_database() {
            return Err("its refs are in a database, which is not read".to_owned());
        }
        let Repository { own, common } = repository;
        Ok(Self {
            refs: refs_in(own, common),
            config: read_text(&common.join("config")),
            shallow: read_text(&common.join("shallow")),
            borrowed: read_text(&repository.objects().join("info/alternates")),
        })
    }

    /// Returns whether commits lack their parents.
    fn has_cut_history(&self) -> bool {
        self.shallow.as_ref().is_some_and(|text| !text.trim().is_empty())
    }

    /// Returns why objects are missing.
    fn missing(&self) -> String {
        match self.borrowed.as_deref().and_then(|text| borrowed_folders(text).next()) {
            Some(folder) => {
                format!("some of its objects are missing; it borrows those of `{folder}`")
            }
            None => "some of its objects are missing".to_owned(),
        }
    }
}

/// A repository that was taken.
struct TakenRepository {
    texts: Texts,
    /// The commits that no other commit of the repository reaches.
    tips: BTreeSet<String>,
    /// The lines of the tree `lost`, for `git mktree`.
    lost: String,
    /// Tags, and commits whose parents lack, in the form of `git cat-file --batch`.
    raw: Vec<u8>,
    objects: BTreeSet<String>,
}

impl Part {
    /// Returns whether its files are among those of the workspace, in place of below a `.git`.
    fn has_files(&self) -> bool {
        self.kind != PartKind::Repository
    }

    /// Returns the entry about a part beyond the limit. It names the repository of a work tree, so
    /// that the inbox tells of commits that are not kept.
    pub(super) fn beyond_limit(&self) -> String {
        let path = match self.kind {
            PartKind::WorkTree(Some(_)) => self.path.join(".git"),
            _ => self.path.clone(),
        };
        format!("{}: at most {MAX_PARTS} repositories inside are kept", path.display())
    }
}

/// Returns the part that has an entry: the deepest one of those around it.
fn owner<'a>(parts: &'a [Part], path: &Path) -> Option<&'a Part> {
    parts.iter().rev().find(|part| part.has_files() && path.starts_with(&part.path))
}

impl WorkFiles {
    /// Writes the files of the workspace and all parts into the keep repository. `result` is the
    /// commit that the work has come to. The entries that cannot be kept are added to `left_out`.
    pub(super) async fn take_with_parts(
        &self,
        place: &Place,
        order: &KeepOrder,
        walk: &Walk,
        result: Option<&str>,
        policy: &KeepPolicy,
        left_out: &mut Vec<String>,
    ) -> Result<Files> {
        let parts = &walk.parts;
        let tracked = self.tracked_below(place, parts, result).await?;
        let is_own = |path: &Path| match owner(parts, path) {
            Some(part) => tracked.contains(&part.path) && path != part.path.join(".git"),
            None => true,
        };
        let own = walk.left_out.iter().filter(|(path, _)| is_own(path)).cloned().collect();
        let is_aside = |part: &&Part| part.has_files() && !tracked.contains(&part.path);
        let aside: Vec<PathBuf> =
            parts.iter().filter(is_aside).map(|part| part.path.clone()).collect();
        let ignored = self.list_ignored(place).await?;
        let mut taking = Taking::new(policy);
        taking.note_ignored(Path::new(""), &ignored);
        let files = self.take_files(place, own, &aside, ignored, policy, left_out).await?;
        let mut nested = Nested::default();
        for (n, part) in parts.iter().enumerate() {
            match taking.choose(place, part, n)? {
                Choice::Take => {}
                Choice::Drop => continue,
                Choice::LeaveOut(entry) => {
                    left_out.push(entry);
                    continue;
                }
            }
            let taken = self.take_part(place, order, walk, part, &mut taking, left_out);
            let entry = taken.await?.note_in(&mut nested, &part.path);
            let _ = writeln!(nested.entries, "040000 tree {entry}\t{n:04}");
        }
        Ok(Files { nested, ..files })
    }

    /// Takes one part.
    async fn take_part(
        &self,
        place: &Place,
        order: &KeepOrder,
        walk: &Walk,
        part: &Part,
        taking: &mut Taking<'_>,
        left_out: &mut Vec<String>,
    ) -> Result<TakenPart> {
        let shown = part.path.display();
        let path = self.git.blob(place, part.path.as_os_str().as_bytes()).await?;
        let mut entry = format!("100644 blob {path}\tpath\n");
        let mut visible = None;
        if part.kind == PartKind::File {
            let file = place.tree().join(&part.path);
            let (mode, content) = blocking_as(place.owner, move || read_file(&file)).await?;
            let blob = self.git.blob(place, content).await?;
            let _ = writeln!(entry, "{mode} blob {blob}\tfile");
        } else if part.has_files() {
            let files = self.take_files_of(place, walk, part, taking, left_out).await?;
            let _ = writeln!(entry, "040000 tree {}\tworktree", files.all);
            visible = Some(files.visible);
        }
        let repository = match &part.kind {
            PartKind::WorkTree(Some(repository)) => repository.clone(),
            PartKind::Repository => Repository::bare(part.path.clone()),
            _ => return Ok(TakenPart::Files(self.git.tree(place, entry).await?)),
        };
        let is_taken = !taking.objects_of.insert(repository.common.clone());
        let taken = match self.take_repository(place, order, &repository, is_taken).await {
            Err(error) if self.disk.is_disk_full(&error) => return Err(error),
            Err(error) if error.is_of_content() => Err(error.to_string()),
            taken => taken?,
        };
        let taken = match taken {
            Ok(taken) => taken,
            Err(reason) => {
                left_out.push(format!("{}: {reason}", repository.own.display()));
                return Ok(TakenPart::Files(self.git.tree(place, entry).await?));
            }
        };
        let about = self.about_repository(place, &repository.own, &taken).await?;
        let _ = writeln!(entry, "040000 tree {about}\tgit");
        if !taken.lost.is_empty() {
            let lost = self.git.tree(place, taken.lost).await?;
            let _ = writeln!(entry, "040000 tree {lost}\tlost");
        }
        let entry = self.git.tree(place, entry).await?;
        let head = taken.texts.refs.head_commit().cloned();
        let mut parents: Vec<String> = taken.tips.into_iter().collect();
        let message = format!("kept `{shown}` of the workspace {} of {}\n", order.id, order.agent);
        while parents.len() > MAX_PARENTS {
            let some = parents.split_off(parents.len() - MAX_PARENTS);
            parents
                .push(self.git.commit(place, &entry, some.iter(), &message, &order.agent).await?);
        }
        let commit = self.git.commit(place, &entry, parents.iter(), &message, &order.agent).await?;
        let linked = visible.filter(|_| repository.common == Path::new(".git"));
        Ok(TakenPart::Repository { entry, commit, head, linked, objects: taken.objects })
    }

    /// Writes the files of a part.
    async fn take_files_of(
        &self,
        place: &Place,
        walk: &Walk,
        part: &Part,
        taking: &mut Taking<'_>,
        left_out: &mut Vec<String>,
    ) -> Result<Files> {
        let inner = part_place(place, &part.path);
        make_folder(&inner.folder)?;
        if place.owner.is_some() {
            open_passage(&place.folder.join(PARTS))?;
            open_passage(&inner.folder)?;
        }
        self.prepare_reading(&inner).await?;
        let below = |path: &PathBuf| path.strip_prefix(&part.path).ok().map(Path::to_owned);
        let is_own = |path: &Path| owner(&walk.parts, path).is_some_and(|owner| owner == part);
        let found = walk.left_out.iter().filter(|(path, _)| is_own(path));
        let found = found.filter_map(|(path, reason)| Some((below(path)?, *reason))).collect();
        let is_inside = |path: &PathBuf| !path.as_os_str().is_empty();
        let aside = walk.parts.iter().filter(|part| part.has_files());
        let aside: Vec<PathBuf> =
            aside.filter_map(|part| below(&part.path)).filter(is_inside).collect();
        let ignored = self.list_ignored(&inner).await?;
        taking.note_ignored(&part.path, &ignored);
        let mut of_part = Vec::new();
        let files =
            self.take_files(&inner, found, &aside, ignored, taking.policy, &mut of_part).await?;
        left_out.extend(of_part.iter().map(|entry| format!("{}/{entry}", part.path.display())));
        Ok(files)
    }

    /// Takes the objects and reads the refs of a repository. Returns the reason if that cannot be
    /// done completely.
    async fn take_repository(
        &self,
        place: &Place,
        order: &KeepOrder,
        repository: &Repository,
        is_taken: bool,
    ) -> Result<Result<TakenRepository, String>> {
        let tree = place.tree();
        let repository =
            Repository { own: tree.join(&repository.own), common: tree.join(&repository.common) };
        let format = place.format();
        let read = {
            let repository = repository.clone();
            blocking_as(place.owner, move || Ok(Texts::read(&repository, format)))
        };
        let mut texts = match read.await? {
            Ok(texts) => texts,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut objects = BTreeSet::new();
        // The ids that another user names are compared with the objects that this user has.
        if !is_taken || place.owner.is_some() {
            objects = self.git.take_objects_of(place, &order.id, repository.objects()).await?;
        }
        let refs = &mut texts.refs;
        if let Some(reason) = self.forget_foreign(place, &order.id, refs, &mut objects).await? {
            return Ok(Err(reason));
        }
        if is_taken {
            objects.clear();
        }
        let refs = &texts.refs;
        let kinds = self.git.kinds(place, objects.iter().chain(&refs.named)).await?;
        let missing = || Ok(Err(texts.missing()));
        if !refs.iter().map(|(_, id)| id).all(|id| kinds.contains_key(id)) {
            return missing();
        }
        let of_kind = |wanted: &str| {
            let found = kinds.iter().filter(move |(_, kind)| *kind == wanted);
            found.map(|(id, _)| id.clone()).collect::<BTreeSet<String>>()
        };
        let mut tips = of_kind("commit");
        let mut raw = of_kind("tag");
        let mut roots = BTreeSet::new();
        if texts.has_cut_history() {
            // The keep repository must not take the history of the project for one that is cut.
            roots = self.trees_of(place, &tips).await?;
            raw.append(&mut tips);
        } else {
            tips = self.git.tips(place, tips).await?;
        }
        let is_lost = |kind: &str| kind == "blob" || kind == "tree";
        let all = roots.union(&tips).cloned().collect();
        let Some(reached) = self.try_reached(place, &all).await? else {
            return missing();
        };
        let unreached = objects.iter().filter(|id| !reached.contains(*id));
        let mut lost: BTreeSet<String> = unreached
            .filter(|id| kinds.get(*id).is_some_and(|kind| is_lost(kind)))
            .cloned()
            .collect();
        lost.append(&mut roots);
        if self.try_reached(place, &lost).await?.is_none() {
            return missing();
        }
        let mut entries = String::new();
        for id in &lost {
            let is_blob = kinds.get(id).is_some_and(|kind| kind == "blob");
            let kind = if is_blob { "100644 blob" } else { "040000 tree" };
            let _ = writeln!(entries, "{kind} {id}\t{id}");
        }
        let objects = objects.into_iter().filter(|id| !raw.contains(id)).collect();
        let raw = if raw.is_empty() {
            Vec::new()
        } else {
            let print = self.git.on(&place.keep(), ["cat-file", "--batch"]);
            print.input(lines(&raw)).long().run().await?
        };
        Ok(Ok(TakenRepository { texts, tips, lost: entries, raw, objects }))
    }

    /// Returns what these commits, trees and files reach; `None` if something of it is missing.
    async fn try_reached(
        &self,
        place: &Place,
        from: &BTreeSet<String>,
    ) -> Result<Option<BTreeSet<String>>> {
        if from.is_empty() {
            return Ok(Some(BTreeSet::new()));
        }
        match self.git.reached(place, from.iter(), None).await {
            Err(CheckoutError::Git(GitError::Failed { .. })) => Ok(None),
            reached => reached.map(Some),
        }
    }

    /// Returns the trees of commits, whose parents may lack.
    async fn trees_of(
        &self,
        place: &Place,
        commits: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>> {
        if commits.is_empty() {
            return Ok(BTreeSet::new());
        }
        let list = ["rev-list", "--no-walk=unsorted", "--format=%T", "--stdin"];
        let listed = self.git.on(&place.keep(), list).input(lines(commits)).long().text().await?;
        let trees = listed.lines().filter(|line| !line.starts_with("commit "));
        Ok(trees.map(str::to_owned).collect())
    }

    /// Writes what is known of the repository in `folder` as text, and returns the tree.
    async fn about_repository(
        &self,
        place: &Place,
        folder: &Path,
        taken: &TakenRepository,
    ) -> Result<String> {
        let mut about = String::new();
        let Texts { refs, config, shallow, .. } = &taken.texts;
        for (name, content) in [
            ("config", config.as_deref().map(str::as_bytes)),
            ("folder", Some(folder.as_os_str().as_bytes())),
            ("objects", Some(taken.raw.as_slice()).filter(|raw| !raw.is_empty())),
            ("refs", Some(refs.text.as_bytes())),
            ("shallow", shallow.as_deref().map(str::as_bytes)),
        ] {
            if let Some(content) = content {
                let blob = self.git.blob(place, content).await?;
                let _ = writeln!(about, "100644 blob {blob}\t{name}");
            }
        }
        self.git.tree(place, about).await
    }
}

impl Git {
    async fn blob(&self, place: &Place, content: impl Into<Vec<u8>>) -> Result<String> {
        let write = self.on(&place.keep(), ["hash-object", "-w", "--no-filters", "--stdin"]);
        Ok(write.input(content).text().await?)
    }

    async fn tree(&self, place: &Place, entries: String) -> Result<String> {
        Ok(self.on(&place.keep(), ["mktree"]).input(entries).text().await?)
    }
}

/// The state while the parts of a workspace are taken.
struct Taking<'a> {
    policy: &'a KeepPolicy,
    /// Folders of which nothing is kept.
    dropped: Vec<PathBuf>,
    ignored: Vec<PathBuf>,
    /// Parts in ignored folders, whose sizes were counted.
    counted: Vec<PathBuf>,
    n_bytes: u64,
    /// The repositories whose objects were taken.
    objects_of: BTreeSet<PathBuf>,
}

impl<'a> Taking<'a> {
    fn new(policy: &'a KeepPolicy) -> Self {
        let objects_of = BTreeSet::from([PathBuf::from(".git")]);
        let (dropped, ignored, counted) = Default::default();
        Self { policy, dropped, ignored, counted, n_bytes: 0, objects_of }
    }

    /// Notes what the repository at `path` ignores.
    fn note_ignored(&mut self, path: &Path, ignored: &[PathBuf]) {
        for inside in ignored {
            let is_rebuildable = self.policy.is_rebuildable(inside);
            let list = if is_rebuildable { &mut self.dropped } else { &mut self.ignored };
            list.push(path.join(inside));
        }
    }

    /// Chooses what happens to a part, which is the `n`th one.
    fn choose(&mut self, place: &Place, part: &Part, n: usize) -> Result<Choice> {
        let is_in = |folders: &[PathBuf]| folders.iter().any(|it| part.path.starts_with(it));
        if is_in(&self.dropped) {
            return Ok(Choice::Drop);
        }
        if n >= MAX_PARTS {
            self.dropped.push(part.path.clone());
            return Ok(Choice::LeaveOut(part.beyond_limit()));
        }
        if is_in(&self.ignored) && !is_in(&self.counted) {
            let max = self.policy.ignored_max;
            let path = place.tree().join(&part.path);
            let n_bytes = run_as(place.owner, || Ok(size_of(&path, max)))?;
            if self.n_bytes + n_bytes > max {
                self.dropped.push(part.path.clone());
                let path = part.path.display();
                let entry = format!("{path}: ignored files are kept up to {max} bytes");
                return Ok(Choice::LeaveOut(entry));
            }
            self.n_bytes += n_bytes;
            self.counted.push(part.path.clone());
        }
        Ok(Choice::Take)
    }
}

/// The fate of a part.
enum Choice {
    Take,
    /// It is in a folder of which nothing is kept.
    Drop,
    /// It cannot be kept. This entry has its path and the reason.
    LeaveOut(String),
}

/// Reads a file or a link, with its mode in a tree.
fn read_file(path: &Path) -> Result<(&'static str, Vec<u8>)> {
    let read = || {
        let found = path.symlink_metadata()?;
        if found.is_symlink() {
            return Ok(("120000", std::fs::read_link(path)?.as_os_str().as_bytes().to_vec()));
        }
        let mut content = Vec::new();
        open(path)?.read_to_end(&mut content)?;
        let is_executable = found.permissions().mode() & 0o100 != 0;
        Ok((if is_executable { "100755" } else { "100644" }, content))
    };
    read().map_err(CheckoutError::io("read", path))
}

/// Returns the objects in the output of `git cat-file --batch`, each with its kind.
pub(super) fn raw_objects(mut text: &[u8]) -> Vec<(&str, &[u8])> {
    let mut objects = Vec::new();
    while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
        let (line, rest) = text.split_at(end);
        let mut columns = std::str::from_utf8(line).unwrap_or_default().split(' ').skip(1);
        let (Some(kind), Some(Ok(size))) =
            (columns.next(), columns.next().map(str::parse::<usize>))
        else {
            break;
        };
        let Some(content) = rest.get(1..=size) else {
            break;
        };
        objects.push((kind, content));
        text = rest.get(size + 2..).unwrap_or_default();
    }
    objects
}

/// Returns the path in an entry that `git ls-tree` printed.
pub(super) fn path_in(entry: &[u8]) -> Option<PathBuf> {
    let entry = entry.strip_suffix(b"\0").unwrap_or(entry);
    let tab = entry.iter().position(|byte| *byte == b'\t')?;
    Some(PathBuf::from(OsStr::from_bytes(entry.get(tab + 1..)?)))
}
