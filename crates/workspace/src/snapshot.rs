//! Snapshots of the git work tree in which agents work without clones.
//!
//! A snapshot is a commit of the keep repository of the project. It reaches all files of the work
//! tree, and all commits that HEAD, refs and their logs name, with the stashes. It has these
//! folders:
//!
//! | folder | content |
//! |---|---|
//! | `worktree` | the files, byte for byte |
//! | `lost` | staged files that differ from HEAD |
//! | `git` | HEAD, refs, logs of refs, and the list of staged files, as text |
//!
//! Agents write to the work tree, so git looks at it as its owner, with settings of the daemon's.
//! In its repository, git only packs objects and compares the index with HEAD, as the owner, too.
//! No hook and no filter runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::git::GitError;
use super::keep_repository::ATTRIBUTES;
use super::keeping::Files;
use super::objects::{names_in, open};
use super::refs::{Refs, refs_in};
use super::repository::Repository;
use super::rights::{Owner, blocking_as, is_root_here};
use super::source::{Source, check_entries, check_folders, owner_of_work_tree};
use super::temporary::{Settings, TemporaryRepository};
use super::text::{is_id, read_text};
use super::walk::{find_refused, find_unreadable, path_within};
use super::{
    CheckoutError, KeepPolicy, Place, Result, Snapshots, WorkFiles, blocking, make_folder, rename,
    write,
};
use domain::plan::shared::{SnapshotCause, SnapshotOrder};
use domain::workspace::Moment;
use domain::{LaunchId, ProjectId, Timestamp};
use machine::sys::ownership::is_changed_by_others;

/// The refs of snapshots, by launch.
const SNAPSHOTS: &str = "refs/agent-coordinator/snapshot";
/// The snapshot that has everything that earlier ones have of the repository.
const LAST: &str = "refs/agent-coordinator/last-snapshot";
/// The refs of annotated tags, which no commit can reach.
const TAGS: &str = "refs/agent-coordinator/tag";
/// The number of launches after which their refs are packed into one file.
const MAX_LOOSE: usize = 200;
/// The number of attempts to read files that others may be changing.
const N_ATTEMPTS: u32 = 3;
/// The most parents of one commit.
const MAX_PARENTS: usize = 4_000;

/// A snapshot that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapped {
    pub commit: String,
    /// The entries that it does not have, each with the reason.
    pub left_out: Vec<String>,
}

/// A snapshot in the list of snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotEntry {
    pub launch: LaunchId,
    pub moment: Moment,
    pub commit: String,
    pub at: Timestamp,
}

/// The way to read the files of another user.
struct ReadAs {
    owner: Owner,
    /// The format of the ids: `sha1` or `sha256`.
    format: &'static str,
    /// The list of files that git ignores, beside `.gitignore`.
    excluded: String,
}

/// The staged files that differ from HEAD.
#[derive(Default)]
struct Staged {
    /// One line for each file.
    text: String,
    ids: BTreeSet<String>,
}

impl Snapshots {
    /// Takes a snapshot of a git work tree. One that is taken before a start has no name yet
    /// ([`Self::name_snapshot`]).
    ///
    /// # Errors
    /// The work tree is gone, and each error of git. Nothing in the work tree has changed then.
    pub async fn snapshot(&self, order: &SnapshotOrder, policy: &KeepPolicy) -> Result<Snapped> {
        self.git.check().await?;
        let place = self.place_of_snapshots(&order.project, &order.work_tree);
        let mut state = self.keep.lock_keep(&order.project, &place).await?;
        // If this is given up half-way, the next step removes what is left.
        state.is_tidied = false;
        let owner = owner_of_work_tree(&order.work_tree)?;
        let Read { repository, is_damaged, format, excluded, refs } =
            read(&order.work_tree, owner).await?;
        let mut left_out = Vec::new();
        if repository.has_ref_database() {
            left_out
                .push(".git: its refs are in a database, and only the files are kept".to_owned());
        }
        let source = Source {
            top: order.work_tree.clone(),
            subdirectory: String::new(),
            is_bare: false,
            owner,
            common: repository.common,
        };
        self.keep.mend(&source, &place).await?;
        self.keep.make_keep(format, &place).await?;
        make_folder(&place.folder)?;
        let last = self.git.resolve(&place, LAST).await?;
        let staged = if is_damaged {
            // Git would look for a repository in the folders above.
            left_out.push(".git: HEAD or the objects are missing; only the files are kept".into());
            Staged::default()
        } else {
            self.take_commits(&place, &source, &refs, last.as_deref(), &mut left_out).await?
        };
        // The ignored files of a person are named there, too.
        let files = if let Some(owner) = place.user_of(owner) {
            let read = ReadAs { owner, format, excluded };
            self.take_files_of_owner(&place, read, policy, &mut left_out).await?
        } else {
            let exclude = place.files().join("info/exclude");
            write(&exclude, excluded)?;
            self.take_shared_files(&place, policy, &mut left_out).await?
        };
        let root = self.write_root(&place, &refs, &staged, &files.all).await?;
        let kinds = self.git.kinds(&place, refs.named.iter()).await?;
        let message = message(order, &left_out);
        let commit = self.write_snapshot(&place, order, &refs, &kinds, &root, &message).await?;
        let is_whole = self.is_whole(&place, &commit, last.as_deref()).await?;
        if !is_whole {
            left_out.push(".git/objects: some objects are missing".to_owned());
        }
        let name = match &order.cause {
            SnapshotCause::Start(_) => format!("{SNAPSHOTS}/taken/{commit}"),
            SnapshotCause::End(launch) => format!("{SNAPSHOTS}/{launch}/{}", Moment::After),
        };
        let mut changes = format!("update {name} {commit}\n");
        if is_whole {
            let _ = writeln!(changes, "update {LAST} {commit}");
        }
        for (tag, _) in kinds.iter().filter(|(_, kind)| *kind == "tag") {
            let _ = writeln!(changes, "update {TAGS}/{tag} {tag}");
        }
        self.change_refs(&place, changes).await?;
        state.is_tidied = true;
        Ok(Snapped { commit, left_out })
    }

    /// Names a snapshot that was taken before a start with the launch. May be repeated.
    ///
    /// # Errors
    /// Each error of git.
    pub async fn name_snapshot(
        &self,
        project: &ProjectId,
        commit: &str,
        launch: &LaunchId,
    ) -> Result<()> {
        let place = self.place_of_snapshots(project, Path::new(""));
        let _locked = self.keep.lock_keep(project, &place).await?;
        let before = Moment::Before;
        let named = format!("update {SNAPSHOTS}/{launch}/{before} {commit}\n");
        self.change_refs(&place, named + &format!("delete {SNAPSHOTS}/taken/{commit}\n")).await?;
        let here = place.clone();
        let count = move || here.as_keeper(|keep| Ok(names_in(&keep.join(SNAPSHOTS)).len()));
        if blocking(count).await? > MAX_LOOSE {
            self.git.on(&place.keep(), ["pack-refs", "--all"]).run().await?;
        }
        Ok(())
    }

    /// Returns the snapshots of a project, the newest first. A project without any has none.
    ///
    /// # Errors
    /// Each error of git.
    pub async fn snapshots(&self, project: &ProjectId) -> Result<Vec<SnapshotEntry>> {
        let place = self.place_of_snapshots(project, Path::new(""));
        if !place.keep().is_dir() {
            return Ok(Vec::new());
        }
        self.git.check().await?;
        let format = "--format=%(refname) %(objectname) %(committerdate:unix)";
        let order = "--sort=-committerdate";
        let list = ["for-each-ref", format, order, SNAPSHOTS];
        let listed = self.git.on(&place.keep(), list).text().await?;
        Ok(listed.lines().filter_map(parse_entry).collect())
    }

    /// Writes the files of a snapshot into `to`, a folder that is empty or does not exist.
    ///
    /// # Errors
    /// `Refused` for another folder, and if there is no such snapshot.
    pub async fn restore_snapshot(
        &self,
        project: &ProjectId,
        launch: &LaunchId,
        moment: Moment,
        to: &Path,
    ) -> Result<()> {
        self.git.check().await?;
        let place = self.place_of_snapshots(project, Path::new(""));
        let _locked = self.keep.lock_keep(project, &place).await?;
        let name = format!("{SNAPSHOTS}/{launch}/{moment}");
        let found =
            if place.keep().is_dir() { self.git.resolve(&place, &name).await? } else { None };
        let Some(commit) = found else {
            return Err(CheckoutError::Refused(format!(
                "project {project} has no snapshot {moment} launch {launch}"
            )));
        };
        self.files.write_into_new(&commit, &place, to).await
    }

    fn place_of_snapshots(&self, project: &ProjectId, work_tree: &Path) -> Place {
        let project = self.places.root.join(project.as_str());
        let folder = project.join("shared");
        Place::new(project, folder, work_tree.to_owned())
    }

    /// Takes the files. Other agents may be working, so a file can vanish while git reads it. Git
    /// then fails, and is asked again.
    async fn take_shared_files(
        &self,
        place: &Place,
        policy: &KeepPolicy,
        left_out: &mut Vec<String>,
    ) -> Result<Files> {
        let mut n_left = N_ATTEMPTS;
        loop {
            n_left -= 1;
            check_readable(place).await?;
            let ignored = self.files.list_ignored(place).await?;
            let is_rebuildable = |path: &&PathBuf| policy.is_rebuildable(path);
            let skipped: BTreeSet<PathBuf> =
                ignored.iter().filter(is_rebuildable).cloned().collect();
            let tree = place.tree();
            let root = self.places.root.clone();
            let refused = blocking_as(place.owner, move || {
                let mut refused = find_refused(&tree, &skipped)?;
                // The snapshots would contain each other.
                if let Some(own) = path_within(&root, &tree) {
                    refused.retain(|(path, _)| !path.starts_with(&own));
                    refused.push((own, "the coordinator keeps its work there"));
                }
                Ok(refused)
            })
            .await?;
            let mut of_files = Vec::new();
            match self.files.take_files(place, refused, &[], ignored, policy, &mut of_files).await {
                Err(CheckoutError::Git(GitError::Failed { .. })) if n_left > 0 => {}
                taken => {
                    left_out.extend(of_files);
                    return taken;
                }
            }
        }
    }

    /// Takes the files of another user, in a repository of that user. The index goes there and
    /// back, so that only new files are read.
    async fn take_files_of_owner(
        &self,
        place: &Place,
        read: ReadAs,
        policy: &KeepPolicy,
        left_out: &mut Vec<String>,
    ) -> Result<Files> {
        let ReadAs { owner, format, excluded } = read;
        let index = place.folder.join("index");
        let temporary = blocking({
            let project = place.project.clone();
            let index = index.clone();
            move || {
                let settings = Settings { format, attributes: ATTRIBUTES, excluded: &excluded };
                let temporary = TemporaryRepository::new(&project, Some(owner), &settings)?;
                if let Ok(mut ours) = open(&index) {
                    temporary.fill("index", &mut ours)?;
                }
                Ok(Arc::new(temporary))
            }
        })
        .await?;
        let here = Place {
            folder: temporary.path().to_owned(),
            owner: Some(owner),
            temporary: Some(temporary.path().to_owned()),
            ..place.clone()
        };
        let taken = self.take_shared_files(&here, policy, left_out).await;
        if taken.is_err() {
            // Perhaps git cannot read the index, which its owner could change.
            let _ = std::fs::remove_file(&index);
        }
        let files = taken?;
        blocking(move || {
            let mut theirs = temporary.open_file("index")?;
            let new = index.with_extension("new");
            let mut ours = std::fs::File::create(&new).map_err(CheckoutError::io("write", &new))?;
            io::copy(&mut theirs, &mut ours).map_err(CheckoutError::io("write", &new))?;
            rename(&new, &index)
        })
        .await?;
        Ok(files)
    }

    /// Takes the commits that refs and logs name, and the staged files, with all that they reach.
    async fn take_commits(
        &self,
        place: &Place,
        source: &Source,
        refs: &Refs,
        last: Option<&str>,
        left_out: &mut Vec<String>,
    ) -> Result<Staged> {
        let mut staged = Staged::default();
        let taken = async {
            self.git.note_shallow(source, place).await?;
            match self.staged(place, source, refs).await {
                // Only the staged files are missing if git cannot read the index.
                Err(error) if error.is_of_content() => {
                    left_out.push(format!(".git/index: {error}"));
                }
                found => staged = found?,
            }
            let named = refs.named.union(&staged.ids).cloned().collect();
            self.git.bring_named(source, place, &named, last).await
        };
        match taken.await {
            // The files are taken, although git cannot read the repository.
            Err(error) if error.is_of_content() => left_out.push(format!(".git: {error}")),
            taken => taken?,
        }
        Ok(staged)
    }

    /// Returns the staged files that differ from HEAD.
    async fn staged(&self, place: &Place, source: &Source, refs: &Refs) -> Result<Staged> {
        let mut staged = Staged::default();
        let empty = self.git.on(&place.keep(), ["mktree"]).text().await?;
        let head = refs.head_commit().unwrap_or(&empty);
        let list =
            ["diff-index", "--cached", "--raw", "--no-abbrev", "--no-renames", "-z", head.as_str()];
        let listed = source.git(&self.git, list).long().run().await?;
        let mut entries = super::source::entries(&listed);
        while let (Some(change), Some(path)) = (entries.next(), entries.next()) {
            let change = change.to_string_lossy();
            let mut columns = change.split(' ').skip(1);
            if let Some(mode) = columns.next()
                && let Some(id) = columns.nth(1)
                && mode != "160000"
                && is_id(id)
            {
                staged.ids.insert(id.to_owned());
            }
            let _ = writeln!(staged.text, "{change} {}", path.display());
        }
        Ok(staged)
    }

    /// Writes the tree of a snapshot.
    async fn write_root(
        &self,
        place: &Place,
        refs: &Refs,
        staged: &Staged,
        files: &str,
    ) -> Result<String> {
        let keep = place.keep();
        let mut about = String::new();
        for (name, text) in [("refs", &refs.text), ("staged", &staged.text)] {
            let call = self.git.on(&keep, ["hash-object", "-w", "--stdin"]);
            let blob = call.input(text.as_bytes()).text().await?;
            let _ = writeln!(about, "100644 blob {blob}\t{name}");
        }
        let about = self.git.on(&keep, ["mktree"]).input(about).text().await?;
        let mut root = format!("040000 tree {about}\tgit\n");
        let mut lost = String::new();
        for (id, _) in self.git.kinds(place, staged.ids.iter()).await? {
            let _ = writeln!(lost, "100644 blob {id}\t{id}");
        }
        if !lost.is_empty() {
            let lost = self.git.on(&keep, ["mktree"]).input(lost).text().await?;
            let _ = writeln!(root, "040000 tree {lost}\tlost");
        }
        let _ = writeln!(root, "040000 tree {files}\tworktree");
        Ok(self.git.on(&keep, ["mktree"]).input(root).text().await?)
    }

    /// Writes the commit of a snapshot. Its parents are HEAD and all commits that no other named
    /// commit has as its parent.
    async fn write_snapshot(
        &self,
        place: &Place,
        order: &SnapshotOrder,
        refs: &Refs,
        kinds: &BTreeMap<String, String>,
        root: &str,
        message: &str,
    ) -> Result<String> {
        let commits = kinds.iter().filter(|(_, kind)| *kind == "commit");
        let tips = self.git.tips(place, commits.map(|(id, _)| id.clone()).collect()).await?;
        let head = refs.head_commit().filter(|head| kinds.contains_key(*head)).cloned();
        let others = tips.into_iter().filter(|tip| Some(tip) != head.as_ref());
        let mut parents: Vec<String> = head.clone().into_iter().chain(others).collect();
        while parents.len() > MAX_PARENTS {
            let some = parents.split_off(parents.len() - MAX_PARENTS);
            let about = "commits that refs and logs name\n";
            let group = self.git.commit(place, root, some.iter(), about, &order.agent).await?;
            parents.push(group);
        }
        self.git.commit(place, root, parents.iter(), message, &order.agent).await
    }

    /// Returns whether the keep repository has all that the commit reaches. `last` is known to be
    /// whole.
    async fn is_whole(&self, place: &Place, commit: &str, last: Option<&str>) -> Result<bool> {
        let except = last.map(|last| format!("^{last}"));
        let list = ["rev-list", "--objects", "--quiet", commit];
        let list = list.into_iter().chain(except.as_deref());
        Ok(self.git.on(&place.keep(), list).long().end().await?.code == Some(0))
    }

    /// Changes refs together. Logs of them would say nothing more.
    async fn change_refs(&self, place: &Place, changes: String) -> Result<()> {
        let update = ["-c", "core.logAllRefUpdates=false", "update-ref", "--stdin"];
        self.git.on(&place.keep(), update).input(changes).run().await?;
        Ok(())
    }
}

impl WorkFiles {
    /// Writes the files of a kept commit into a new or an empty folder. They belong to the owner of
    /// that folder, or of the one above it.
    pub(super) async fn write_into_new(
        &self,
        commit: &str,
        place: &Place,
        to: &Path,
    ) -> Result<()> {
        if !to.is_absolute() || !is_empty_or_missing(to) {
            return Err(CheckoutError::Refused(format!(
                "`{}` is not a new or an empty folder; name another one, with its whole path",
                to.display()
            )));
        }
        let above = to.ancestors().find(|folder| folder.is_dir()).unwrap_or(to);
        let owner = Owner::of(above);
        if is_root_here() && owner.is_none() && is_changed_by_others(to) {
            return Err(CheckoutError::Refused(format!(
                "other users can change `{}` or a folder above it, so root writes no files there; \
                 name another folder",
                to.display()
            )));
        }
        let folder = to.to_owned();
        let make = move || {
            std::fs::create_dir_all(&folder).map_err(CheckoutError::io("make the folder", &folder))
        };
        blocking_as(owner, make).await?;
        self.write_kept(commit, place, to, owner).await.map(drop)
    }
}

fn message(order: &SnapshotOrder, left_out: &[String]) -> String {
    let SnapshotOrder { agent, cause, .. } = order;
    let mut message = match cause {
        SnapshotCause::Start(_) => format!("before a start of {agent}\n"),
        SnapshotCause::End(launch) => format!("after the end of {launch} of {agent}\n"),
    };
    let _ = write!(message, "\nDirectory: {}\n", order.work_tree.display());
    for entry in left_out {
        let _ = writeln!(message, "Left out: {entry}");
    }
    message
}

fn parse_entry(line: &str) -> Option<SnapshotEntry> {
    let mut columns = line.split(' ');
    let (launch, moment) =
        columns.next()?.strip_prefix(SNAPSHOTS)?.strip_prefix('/')?.split_once('/')?;
    let moment = moment.parse().ok()?;
    let commit = columns.next()?.to_owned();
    let seconds: i64 = columns.next()?.parse().ok()?;
    let at = Timestamp::from_millis(seconds.saturating_mul(1_000));
    Some(SnapshotEntry { launch: launch.parse().ok()?, moment, commit, at })
}

fn is_empty_or_missing(folder: &Path) -> bool {
    match std::fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound && !folder.is_symlink(),
    }
}

/// Checks that git can read the files in the work tree of a person that are for git itself.
async fn check_readable(place: &Place) -> Result<()> {
    let tree = place.tree();
    blocking_as(place.owner, move || match find_unreadable(&tree).first() {
        Some((path, reason)) => {
            let path = tree.join(path);
            Err(CheckoutError::Refused(format!("`{}` {reason}; remove it", path.display())))
        }
        None => Ok(()),
    })
    .await
}

/// The facts that are read from a repository with the rights of its owner.
struct Read {
    repository: Repository,
    /// Git finds no repository in its folder.
    is_damaged: bool,
    format: &'static str,
    /// The list of ignored files beside `.gitignore`.
    excluded: String,
    refs: Refs,
}

/// Reads a repository with the rights of its owner.
///
/// # Errors
/// `Gone` if there is none; `Refused` for one of several users, and for a pipe for which git would
/// wait.
async fn read(work_tree: &Path, owner: Option<Owner>) -> Result<Read> {
    let shown = work_tree.to_owned();
    let work_tree = work_tree.to_owned();
    let read = blocking_as(owner, move || {
        let whole = Repository::of(&work_tree);
        let is_damaged = whole.is_none();
        let Some(repository) = whole.or_else(|| Repository::damaged(&work_tree)) else {
            return Err(CheckoutError::Gone(work_tree.join(".git")));
        };
        repository.folders().iter().try_for_each(|folder| check_entries(&work_tree, folder))?;
        let excluded = read_text(&repository.common.join("info/exclude")).unwrap_or_default();
        let refs = refs_in(&repository.own, &repository.common);
        Ok(Read { format: repository.format(), is_damaged, excluded, refs, repository })
    })
    .await?;
    let folders = read.repository.folders();
    blocking(move || check_folders(&shown, &folders, owner)).await?;
    Ok(read)
}

#[cfg(test)]
mod tests;
