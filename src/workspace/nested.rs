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

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::FileType;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::git::GitError;
use super::keeping::{Files, size_of};
use super::objects::{lines, open};
use super::refs::{Refs, read_text, refs_in};
use super::repository::Repository;
use super::rights::may_read;
use super::source::entries;
use super::walk::Walk;
use super::{CheckoutError, Checkouts, KeepPolicy, Place, blocking, make_folder, write};
use crate::domain::workspace::KeepOrder;

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

/// The reason for which a part stays where it is, and its workspace with it.
const OF_OTHER_USER: &str = "a repository inside the clone of an agent with `run_as` is not kept";

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
    heads: BTreeMap<PathBuf, String>,
}

/// A part that was taken, with its tree.
enum TakenPart {
    Files(String),
    Repository {
        entry: String,
        commit: String,
        /// The commit that HEAD names.
        head: Option<String>,
        objects: BTreeSet<String>,
    },
}

impl TakenPart {
    /// Notes the facts about the part at `path`, and returns its tree.
    fn note_in(self, nested: &mut Nested, path: &Path) -> String {
        match self {
            Self::Files(entry) => entry,
            Self::Repository { entry, commit, head, objects } => {
                nested.commits.push(commit);
                nested.heads.extend(head.map(|head| (path.to_owned(), head)));
                nested.objects.extend(objects);
                entry
            }
        }
    }
}

/// A repository that was taken.
struct Taken {
    refs: Refs,
    /// The commits that no other commit of the repository reaches.
    tips: BTreeSet<String>,
    /// The lines of the tree `lost`, for `git mktree`.
    lost: String,
    /// Tags, and commits whose parents lack, in the form of `git cat-file --batch`.
    raw: Vec<u8>,
    objects: BTreeSet<String>,
}

/// Returns whether git refuses an entry of this name and kind under every setting.
pub(super) fn is_kept_aside(name: &OsStr, kind: FileType) -> bool {
    let is_like = |other: &[u8]| name.as_bytes().eq_ignore_ascii_case(other);
    (name != ".git" && is_like(b".git")) || (kind.is_symlink() && is_like(b".gitmodules"))
}

/// Returns the part that an entry begins, if git does not take the entry with the other files; with
/// the reason if its repository cannot be kept. `path` is relative to `tree`.
pub(super) fn part_at(
    tree: &Path,
    path: &Path,
    kind: FileType,
) -> Option<(Part, Option<&'static str>)> {
    let name = path.file_name()?;
    if !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
        return None;
    }
    let aside = if kind.is_dir() { PartKind::Folder } else { PartKind::File };
    if name != ".git" {
        let part = Part { path: path.to_owned(), kind: aside };
        return is_kept_aside(name, kind).then_some((part, None));
    }
    if kind.is_file() && read_text(&tree.join(path)).is_none() {
        return None;
    }
    let work_tree = |repository| {
        let path = path.parent().unwrap_or(path).to_owned();
        Part { path, kind: PartKind::WorkTree(repository) }
    };
    Some(match repository_at(tree, path, kind) {
        Ok(Some(repository)) => (work_tree(Some(repository)), None),
        Ok(None) => (Part { path: path.to_owned(), kind: aside }, None),
        Err(reason) => (work_tree(None), Some(reason)),
    })
}

/// Returns the repository that an entry `.git` is or names, with paths relative to `tree`. An
/// entry that git does not take for one is none.
fn repository_at(
    tree: &Path,
    path: &Path,
    kind: FileType,
) -> Result<Option<Repository>, &'static str> {
    if kind.is_symlink() {
        return Err(IS_LINK);
    }
    let inside = |folder: PathBuf| {
        let top = tree.canonicalize().ok()?;
        Some(folder.canonicalize().ok()?.strip_prefix(top).ok()?.to_owned())
    };
    let mut own = path.to_owned();
    if kind.is_file() {
        let text = read_text(&tree.join(path)).unwrap_or_default();
        let Some(named) = text.strip_prefix("gitdir: ") else {
            return Ok(None);
        };
        let folder = tree.join(path.parent().unwrap_or(path)).join(named.trim_end());
        if !folder.exists() {
            return Ok(None);
        }
        own = inside(folder).ok_or("the repository that it names is not in the clone")?;
    }
    let kind_of = |path: PathBuf| path.symlink_metadata().ok().map(|found| found.file_type());
    let folder = tree.join(&own);
    let Some(head) = kind_of(folder.join("HEAD")).filter(|kind| !kind.is_dir()) else {
        return Ok(None);
    };
    let common = match read_text(&folder.join("commondir")) {
        Some(named) => inside(folder.join(named.trim_end()))
            .ok_or("the repository that it belongs to is not in the clone")?,
        None => own.clone(),
    };
    let [objects, refs] = ["objects", "refs"].map(|name| kind_of(tree.join(&common).join(name)));
    if objects.is_none() && refs.is_none() {
        return Ok(None);
    }
    if [Some(head), objects, refs].iter().flatten().any(FileType::is_symlink) {
        return Err("a part of it is a link, which is not followed");
    }
    Ok(Some(Repository { own, common }))
}

/// Sorts the parts, and removes those repositories that belong to the work tree of another part.
pub(super) fn settle(parts: &mut Vec<Part>) {
    let used: BTreeSet<PathBuf> = parts
        .iter()
        .filter_map(|part| match &part.kind {
            PartKind::WorkTree(Some(repository)) => Some(repository.clone()),
            _ => None,
        })
        .flat_map(|Repository { own, common }| [own, common])
        .collect();
    parts.retain(|part| part.kind != PartKind::Repository || !used.contains(&part.path));
    parts.sort_by(|one, other| one.path.cmp(&other.path));
}

impl Part {
    /// Returns whether its files are among those of the workspace, in place of below a `.git`.
    fn has_files(&self) -> bool {
        self.kind != PartKind::Repository
    }
}

/// Returns the part that has an entry: the deepest one of those around it.
fn owner<'a>(parts: &'a [Part], path: &Path) -> Option<&'a Part> {
    parts.iter().rev().find(|part| part.has_files() && path.starts_with(&part.path))
}

impl Checkouts {
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
    ) -> Result<Files, CheckoutError> {
        let parts = &walk.parts;
        if place.owner.is_some() {
            // They could only be taken with the rights of that user.
            let mut found = walk.left_out.clone();
            found.extend(parts.iter().map(|part| (part.path.clone(), OF_OTHER_USER)));
            let ignored = self.list_ignored(place).await?;
            return self.take_files(place, (found, &[]), ignored, policy, left_out).await;
        }
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
        let files = self.take_files(place, (own, &aside), ignored, policy, left_out).await?;
        let mut nested = Nested::default();
        for (n, part) in parts.iter().enumerate() {
            match taking.choose(&place.tree(), part, n) {
                Choice::Take => {}
                Choice::Drop => continue,
                Choice::LeaveOut(reason) => {
                    left_out.push(format!("{}: {reason}", part.path.display()));
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
    ) -> Result<TakenPart, CheckoutError> {
        let shown = part.path.display();
        let path = self.blob(place, part.path.as_os_str().as_bytes()).await?;
        let mut entry = format!("100644 blob {path}\tpath\n");
        if part.kind == PartKind::File {
            let (mode, content) = read_file(&place.tree().join(&part.path))?;
            let blob = self.blob(place, content).await?;
            let _ = writeln!(entry, "{mode} blob {blob}\tfile");
        } else if part.has_files() {
            let files = self.take_files_of(place, walk, part, taking, left_out).await?;
            let _ = writeln!(entry, "040000 tree {files}\tworktree");
        }
        let repository = match &part.kind {
            PartKind::WorkTree(Some(repository)) => repository.clone(),
            PartKind::Repository => {
                Repository { own: part.path.clone(), common: part.path.clone() }
            }
            _ => return Ok(TakenPart::Files(self.tree(place, entry).await?)),
        };
        let is_taken = !taking.objects_of.insert(repository.common.clone());
        let taken = match self.take_repository(place, order, &repository, is_taken).await {
            Err(error) if self.is_disk_full(&error) => return Err(error),
            Err(CheckoutError::Git(
                error @ (GitError::Failed { .. } | GitError::TooMuch { .. }),
            )) => Err(error.to_string()),
            taken => taken?,
        };
        let taken = match taken {
            Ok(taken) => taken,
            Err(reason) => {
                left_out.push(format!("{}: {reason}", repository.own.display()));
                return Ok(TakenPart::Files(self.tree(place, entry).await?));
            }
        };
        let about = self.about_repository(place, &repository, &taken).await?;
        let _ = writeln!(entry, "040000 tree {about}\tgit");
        if !taken.lost.is_empty() {
            let lost = self.tree(place, taken.lost).await?;
            let _ = writeln!(entry, "040000 tree {lost}\tlost");
        }
        let entry = self.tree(place, entry).await?;
        let head = taken.refs.head_commit().cloned();
        let mut parents: Vec<String> = taken.tips.into_iter().collect();
        let message = format!("kept `{shown}` of the workspace {} of {}\n", order.id, order.agent);
        while parents.len() > MAX_PARENTS {
            let some = parents.split_off(parents.len() - MAX_PARENTS);
            parents.push(self.commit(place, &entry, some.iter(), &message, &order.agent).await?);
        }
        let commit = self.commit(place, &entry, parents.iter(), &message, &order.agent).await?;
        Ok(TakenPart::Repository { entry, commit, head, objects: taken.objects })
    }

    /// Writes the files of a part, and returns their tree.
    async fn take_files_of(
        &self,
        place: &Place,
        walk: &Walk,
        part: &Part,
        taking: &mut Taking<'_>,
        left_out: &mut Vec<String>,
    ) -> Result<String, CheckoutError> {
        let name = Sha256::digest(part.path.as_os_str().as_bytes());
        let name = name.iter().take(8).fold(0_u64, |all, byte| (all << 8) | u64::from(*byte));
        let folder = place.folder.join(PARTS).join(format!("{name:016x}"));
        make_folder(&folder)?;
        let tree = place.tree().join(&part.path);
        let inner = Place { folder, tree, project: place.project.clone(), owner: place.owner };
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
            self.take_files(&inner, (found, &aside), ignored, taking.policy, &mut of_part).await?;
        left_out.extend(of_part.iter().map(|entry| format!("{}/{entry}", part.path.display())));
        Ok(files.all)
    }

    /// Takes the objects and reads the refs of a repository. Returns the reason if that cannot be
    /// done completely.
    async fn take_repository(
        &self,
        place: &Place,
        order: &KeepOrder,
        repository: &Repository,
        is_taken: bool,
    ) -> Result<Result<Taken, String>, CheckoutError> {
        let tree = place.tree();
        let repository =
            Repository { own: tree.join(&repository.own), common: tree.join(&repository.common) };
        let keep = Repository { own: place.keep(), common: place.keep() };
        let format = repository.format();
        if format != keep.format() {
            return Ok(Err(format!("its ids are of another kind ({format})")));
        }
        if repository.has_ref_database() {
            return Ok(Err("its refs are in a database, which is not read".to_owned()));
        }
        let refs = blocking({
            let Repository { own, common } = repository.clone();
            move || Ok(refs_in(&own, &common))
        });
        let refs = refs.await?;
        let objects = if is_taken {
            BTreeSet::new()
        } else {
            self.take_objects_of(place, &order.id, repository.objects()).await?
        };
        let kinds = self.kinds(place, objects.iter().chain(&refs.named)).await?;
        let missing = || Ok(Err(missing(&repository)));
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
        if has_cut_history(&repository) {
            // The keep repository must not take the history of the project for one that is cut.
            roots = self.trees_of(place, &tips).await?;
            raw.append(&mut tips);
        } else {
            tips = self.tips(place, tips).await?;
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
        Ok(Ok(Taken { refs, tips, lost: entries, raw, objects }))
    }

    /// Returns what these commits, trees and files reach; `None` if something of it is missing.
    async fn try_reached(
        &self,
        place: &Place,
        from: &BTreeSet<String>,
    ) -> Result<Option<BTreeSet<String>>, CheckoutError> {
        if from.is_empty() {
            return Ok(Some(BTreeSet::new()));
        }
        match self.reached(place, from.iter(), None).await {
            Err(CheckoutError::Git(GitError::Failed { .. })) => Ok(None),
            reached => reached.map(Some),
        }
    }

    /// Returns the trees of commits, whose parents may lack.
    async fn trees_of(
        &self,
        place: &Place,
        commits: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>, CheckoutError> {
        if commits.is_empty() {
            return Ok(BTreeSet::new());
        }
        let list = ["rev-list", "--no-walk=unsorted", "--format=%T", "--stdin"];
        let listed = self.git.on(&place.keep(), list).input(lines(commits)).long().text().await?;
        let trees = listed.lines().filter(|line| !line.starts_with("commit "));
        Ok(trees.map(str::to_owned).collect())
    }

    /// Writes what is known of a repository as text, and returns the tree.
    async fn about_repository(
        &self,
        place: &Place,
        repository: &Repository,
        taken: &Taken,
    ) -> Result<String, CheckoutError> {
        let mut about = String::new();
        let common = place.tree().join(&repository.common);
        let own = repository.own.as_os_str().as_bytes().to_vec();
        let text = |name: &str| read_text(&common.join(name)).map(String::into_bytes);
        for (name, content) in [
            ("config", text("config")),
            ("folder", Some(own)),
            ("objects", Some(taken.raw.clone()).filter(|raw| !raw.is_empty())),
            ("refs", Some(taken.refs.text.clone().into_bytes())),
            ("shallow", text("shallow")),
        ] {
            if let Some(content) = content {
                let blob = self.blob(place, content).await?;
                let _ = writeln!(about, "100644 blob {blob}\t{name}");
            }
        }
        self.tree(place, about).await
    }

    async fn blob(
        &self,
        place: &Place,
        content: impl Into<Vec<u8>>,
    ) -> Result<String, CheckoutError> {
        let write = self.git.on(&place.keep(), ["hash-object", "-w", "--no-filters", "--stdin"]);
        Ok(write.input(content).text().await?)
    }

    async fn tree(&self, place: &Place, entries: String) -> Result<String, CheckoutError> {
        Ok(self.git.on(&place.keep(), ["mktree"]).input(entries).text().await?)
    }

    /// Returns the parts in which the work has files of its own repository. An agent made a
    /// repository in a folder that had files then.
    async fn tracked_below(
        &self,
        place: &Place,
        parts: &[Part],
        result: Option<&str>,
    ) -> Result<BTreeSet<PathBuf>, CheckoutError> {
        let is_work_tree = |part: &&Part| matches!(part.kind, PartKind::WorkTree(_));
        let folders: Vec<&PathBuf> =
            parts.iter().filter(is_work_tree).map(|part| &part.path).take(MAX_PARTS).collect();
        if folders.is_empty() {
            return Ok(BTreeSet::new());
        }
        let around = |path: &Path| {
            let found = folders.iter().filter(|folder| path.starts_with(folder));
            found.map(|folder| (*folder).clone()).collect::<Vec<_>>()
        };
        let paths: Vec<OsString> = folders.iter().map(|folder| folder.join("").into()).collect();
        let index = place.index();
        let mut list = ["ls-files", "-z", "--"].map(OsStr::new).to_vec();
        list.extend(paths.iter().map(OsString::as_os_str));
        let listed = self.on_files(place, &list, &index).variable("GIT_LITERAL_PATHSPECS", "1");
        let listed = listed.run().await?;
        let mut tracked: BTreeSet<PathBuf> = entries(&listed).flat_map(around).collect();
        let Some(result) = result else {
            return Ok(tracked);
        };
        let mut list =
            ["ls-tree", "-r", "-z", "--full-tree", result, "--"].map(OsStr::new).to_vec();
        list.extend(paths.iter().map(OsString::as_os_str));
        let listed = self.git.on(&place.keep(), list).long().run().await?;
        let mut unknown = Vec::new();
        for entry in listed.split_inclusive(|byte| *byte == 0) {
            let Some(path) = path_in(entry).filter(|_| !entry.starts_with(b"160000 ")) else {
                continue;
            };
            if around(&path).iter().all(|folder| !tracked.contains(folder)) {
                unknown.push((around(&path), entry));
            }
        }
        let lines: Vec<u8> = unknown.iter().flat_map(|(_, entry)| entry.to_vec()).collect();
        if !lines.is_empty() {
            let update = ["update-index", "-z", "--index-info"].map(OsStr::new);
            self.on_files(place, &update, &index).input(lines).run().await?;
        }
        tracked.extend(unknown.into_iter().flat_map(|(folders, _)| folders));
        Ok(tracked)
    }

    /// Removes the commits of submodules from an index of the daemon. Git runs a process in a
    /// submodule that it looks at, with the settings of the agent.
    pub(super) async fn forget_gitlinks(
        &self,
        place: &Place,
        tree: &Path,
        index: &Path,
    ) -> Result<(), CheckoutError> {
        let on_index = |arguments: &[&str]| {
            self.git
                .on_tree(&place.files(), tree, arguments.iter().copied())
                .variable("GIT_INDEX_FILE", index)
                .long()
        };
        let listed = on_index(&["ls-files", "--stage", "-z"]).run().await?;
        let gitlinks = listed.split_inclusive(|byte| *byte == 0);
        let gitlinks = gitlinks.filter(|entry| entry.starts_with(b"160000 "));
        let paths: Vec<u8> = gitlinks
            .filter_map(|entry| entry.splitn(2, |byte| *byte == b'\t').nth(1))
            .flat_map(<[u8]>::to_vec)
            .collect();
        if !paths.is_empty() {
            let forget = ["update-index", "-z", "--force-remove", "--stdin"];
            on_index(&forget).input(paths).run().await?;
        }
        Ok(())
    }

    /// Returns the tree `visible` as a commit of the agent would have it. The submodules of `result`
    /// are at the commit of their HEAD, or as in `result` if their files were never fetched. A file
    /// of LFS with the content that the pointer in `result` names is that pointer. A file that
    /// `result` has is there, also if `.gitignore` names it.
    pub(super) async fn as_committed(
        &self,
        visible: String,
        result: Option<&str>,
        nested: &Nested,
        place: &Place,
    ) -> Result<String, CheckoutError> {
        let Some(result) = result else {
            return Ok(visible);
        };
        let tree = format!("{result}^{{tree}}");
        let list = ["diff-tree", "-r", "--no-renames", "--raw", "--no-abbrev", "-z"];
        let list = list.into_iter().chain([tree.as_str(), &visible]);
        let listed = self.git.on(&place.keep(), list).long().run().await?;
        let mut fields = entries(&listed);
        let mut changes = Vec::new();
        let mut hidden = Vec::new();
        let mut pointers = BTreeMap::new();
        let mut modes = BTreeMap::new();
        let mut present: BTreeSet<&Path> = BTreeSet::new();
        while let (Some(change), Some(path)) = (fields.next(), fields.next()) {
            let change = change.to_string_lossy().into_owned();
            let mut columns = change.trim_start_matches(':').split(' ');
            let (Some(old), Some(new), Some(id)) = (columns.next(), columns.next(), columns.next())
            else {
                continue;
            };
            if new != "000000" {
                present.insert(path);
            }
            if old == "160000" && new == "000000" {
                changes.push((path, id.to_owned()));
            }
            if matches!(old, "100644" | "100755" | "120000") && new == "000000" {
                hidden.push(path.to_owned());
            }
            if old.starts_with("100") && new.starts_with("100") {
                pointers.insert(path.to_owned(), id.to_owned());
                modes.insert(path.to_owned(), new.to_owned());
            }
        }
        let is_free = |path: &Path| {
            !present.iter().any(|other| other.starts_with(path) || path.starts_with(other))
        };
        let tree = place.tree();
        let is_there = |path: &Path| tree.join(path).symlink_metadata().is_ok_and(|it| it.is_dir());
        let mut lines = Vec::new();
        for (path, id) in changes.iter().filter(|(path, _)| is_there(path) && is_free(path)) {
            let id = nested.heads.get(*path).unwrap_or(id);
            lines.extend_from_slice(format!("160000 commit {id}\t").as_bytes());
            lines.extend_from_slice(path.as_os_str().as_bytes());
            lines.push(0);
        }
        for path in self.find_smudged(place, &pointers).await? {
            let id = &pointers[&path];
            let mode = &modes[&path];
            lines.extend_from_slice(format!("{mode} blob {id}\t").as_bytes());
            lines.extend_from_slice(path.as_os_str().as_bytes());
            lines.push(0);
        }
        let is_hidden = |path: &PathBuf| {
            let found = tree.join(path).symlink_metadata();
            found.is_ok_and(|found| found.is_file() || found.is_symlink()) && is_free(path)
        };
        hidden.retain(is_hidden);
        hidden.retain(|path| may_read(&tree.join(path)) || tree.join(path).is_symlink());
        lines.extend(self.take_hidden(place, &hidden).await?);
        if lines.is_empty() {
            return Ok(visible);
        }
        let index = place.folder.join(GITLINKS);
        for name in [GITLINKS, GITLINKS_LOCK] {
            let _ = std::fs::remove_file(place.folder.join(name));
        }
        let on_index = |arguments: &[&str]| {
            self.git
                .on(&place.keep(), arguments.iter().copied())
                .variable("GIT_INDEX_FILE", &index)
                .long()
        };
        on_index(&["read-tree", &visible]).run().await?;
        on_index(&["update-index", "-z", "--index-info"]).input(lines).run().await?;
        let tree = on_index(&["write-tree"]).text().await?;
        std::fs::remove_file(&index).map_err(CheckoutError::io("remove", &index))?;
        Ok(tree)
    }

    /// Takes files that commits have, but that `.gitignore` names. Returns their entries in the
    /// daemon's index, each ended by NUL.
    async fn take_hidden(
        &self,
        place: &Place,
        hidden: &[PathBuf],
    ) -> Result<Vec<u8>, CheckoutError> {
        if hidden.is_empty() {
            return Ok(Vec::new());
        }
        let paths: Vec<u8> =
            hidden.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat()).collect();
        let index = place.index();
        let add = ["add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul"];
        let add = self.on_files(place, &add.map(OsStr::new), &index).input(paths);
        add.variable("GIT_LITERAL_PATHSPECS", "1").run().await?;
        let list = self.on_files(place, &["ls-files", "--stage", "-z"].map(OsStr::new), &index);
        let listed = list.run().await?;
        let is_hidden = |entry: &&[u8]| path_in(entry).is_some_and(|path| hidden.contains(&path));
        let found = listed.split_inclusive(|byte| *byte == 0).filter(is_hidden);
        Ok(found.flat_map(<[u8]>::to_vec).collect())
    }

    /// Writes the parts of a kept commit into a folder that has the other files already.
    /// Repositories come back as files only.
    pub(super) async fn write_parts(
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
    /// has used yet. They have the refs and HEAD, and borrow the objects of the keep repository.
    pub(super) async fn restore_repositories(
        &self,
        kept: &str,
        place: &Place,
        tree: &Path,
    ) -> Result<(), CheckoutError> {
        for part in self.list_kept(kept, place).await? {
            if part.is_store() {
                self.write_part(&part, place, tree).await?;
            }
            if !(part.has_files && part.is_repository) {
                continue;
            }
            let blob = |name: &str| {
                let name = format!("{}/git/{name}", part.name);
                async move {
                    let print = ["cat-file", "blob", &name];
                    let ended = self.git.on(&place.keep(), print).long().end().await?;
                    Ok::<_, CheckoutError>(ended.stdout)
                }
            };
            let top = tree.join(&part.path);
            let init = ["init", "--quiet", "--template="].map(OsStr::new);
            self.git.call(init.into_iter().chain([top.as_os_str()])).run().await?;
            let own = top.join(".git");
            make_folder(&own.join("objects/info"))?;
            let up = "../".repeat(part.path.components().count());
            let alternates = format!("{up}{}", super::create::ALTERNATES);
            write(&own.join("objects/info/alternates"), alternates)?;
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

/// The index for the tree with the submodules, in the folder of a workspace.
pub(super) const GITLINKS: &str = "index-gitlinks";
pub(super) const GITLINKS_LOCK: &str = "index-gitlinks.lock";

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
    fn choose(&mut self, tree: &Path, part: &Part, n: usize) -> Choice {
        let is_in = |folders: &[PathBuf]| folders.iter().any(|it| part.path.starts_with(it));
        if is_in(&self.dropped) {
            return Choice::Drop;
        }
        if n >= MAX_PARTS {
            self.dropped.push(part.path.clone());
            return Choice::LeaveOut(format!("at most {MAX_PARTS} repositories inside are kept"));
        }
        if is_in(&self.ignored) && !is_in(&self.counted) {
            let max = self.policy.ignored_max;
            let n_bytes = size_of(&tree.join(&part.path), max);
            if self.n_bytes + n_bytes > max {
                self.dropped.push(part.path.clone());
                return Choice::LeaveOut(format!("ignored files are kept up to {max} bytes"));
            }
            self.n_bytes += n_bytes;
            self.counted.push(part.path.clone());
        }
        Choice::Take
    }
}

/// The fate of a part.
enum Choice {
    Take,
    /// It is in a folder of which nothing is kept.
    Drop,
    /// It cannot be kept, for this reason.
    LeaveOut(String),
}

/// Returns whether commits of a repository lack their parents.
fn has_cut_history(repository: &Repository) -> bool {
    read_text(&repository.common.join("shallow")).is_some_and(|text| !text.trim().is_empty())
}

/// Returns why objects of a repository are missing.
fn missing(repository: &Repository) -> String {
    let borrowed = read_text(&repository.objects().join("info/alternates")).unwrap_or_default();
    match borrowed.lines().next() {
        Some(folder) => {
            format!("some of its objects are missing; it borrows those of `{folder}`")
        }
        None => "some of its objects are missing".to_owned(),
    }
}

/// Reads a file or a link, with its mode in a tree.
fn read_file(path: &Path) -> Result<(&'static str, Vec<u8>), CheckoutError> {
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
