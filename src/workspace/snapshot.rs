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
//! Agents write to the work tree, so git never runs in its repository: ids are read as text, and
//! objects are read as those of another folder. No hook and no filter runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use super::git::{Call, GitError};
use super::keeping::Files;
use super::objects::{lines, names_in, open};
use super::refs::{Refs, read_text, refs_in};
use super::repository::Repository;
use super::walk::find_refused;
use super::{
    CheckoutError, Checkouts, KeepPolicy, Place, blocking, make_folder, remove_folder, write,
};
use crate::domain::plan::shared::{SnapshotCause, SnapshotOrder};
use crate::domain::workspace::Moment;
use crate::domain::{LaunchId, ProjectId, Timestamp};

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

/// The staged files that differ from HEAD.
#[derive(Default)]
struct Staged {
    /// One line for each file.
    text: String,
    ids: BTreeSet<String>,
}

impl Checkouts {
    /// Takes a snapshot of a git work tree. One that is taken before a start has no name yet
    /// ([`Self::name_snapshot`]).
    ///
    /// # Errors
    /// The work tree is gone, and each error of git. Nothing in the work tree has changed then.
    pub async fn snapshot(
        &self,
        order: &SnapshotOrder,
        policy: &KeepPolicy,
    ) -> Result<Snapped, CheckoutError> {
        self.git.check().await?;
        let place = self.place_of_snapshots(&order.project, &order.work_tree);
        let mut state = self.lock_keep(&order.project, &place).await?;
        // If this is given up half-way, the next step removes what is left.
        state.is_tidied = false;
        let Some(repository) = Repository::of(&order.work_tree) else {
            return Err(CheckoutError::Gone(order.work_tree.join(".git")));
        };
        self.make_keep_for_snapshots(repository.format(), &place).await?;
        make_folder(&place.folder)?;
        // The ignored files of a person are named there, too.
        let excluded = read_text(&repository.common.join("info/exclude")).unwrap_or_default();
        let exclude = place.files().join("info/exclude");
        std::fs::write(&exclude, excluded).map_err(CheckoutError::io("write", &exclude))?;
        let mut left_out = Vec::new();
        let Repository { own, common } = repository.clone();
        let refs = blocking(move || Ok(refs_in(&own, &common))).await?;
        if repository.has_ref_database() {
            left_out
                .push(".git: its refs are in a database, and only the files are kept".to_owned());
        }
        let last = self.resolve(&place, LAST).await?;
        let staged =
            self.take_commits(&place, &repository, &refs, last.as_deref(), &mut left_out).await?;
        let files = self.take_shared_files(&place, policy, &mut left_out).await?;
        let root = self.write_root(&place, &refs, &staged, &files.all).await?;
        let kinds = self.kinds(&place, refs.named.iter()).await?;
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
    ) -> Result<(), CheckoutError> {
        let place = self.place_of_snapshots(project, Path::new(""));
        let _locked = self.lock_keep(project, &place).await?;
        let before = Moment::Before;
        let named = format!("update {SNAPSHOTS}/{launch}/{before} {commit}\n");
        self.change_refs(&place, named + &format!("delete {SNAPSHOTS}/taken/{commit}\n")).await?;
        let folder = place.keep().join(SNAPSHOTS);
        if blocking(move || Ok(names_in(&folder).len())).await? > MAX_LOOSE {
            self.git.on(&place.keep(), ["pack-refs", "--all"]).run().await?;
        }
        Ok(())
    }

    /// Returns the snapshots of a project, the newest first. A project without any has none.
    ///
    /// # Errors
    /// Each error of git.
    pub async fn snapshots(
        &self,
        project: &ProjectId,
    ) -> Result<Vec<SnapshotEntry>, CheckoutError> {
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
    ) -> Result<(), CheckoutError> {
        self.git.check().await?;
        let place = self.place_of_snapshots(project, Path::new(""));
        let _locked = self.lock_keep(project, &place).await?;
        let name = format!("{SNAPSHOTS}/{launch}/{moment}");
        let found = if place.keep().is_dir() { self.resolve(&place, &name).await? } else { None };
        let Some(commit) = found else {
            return Err(CheckoutError::Refused(format!(
                "project {project} has no snapshot {moment} launch {launch}"
            )));
        };
        self.write_into_new(&commit, &place, to).await
    }

    /// Writes the files of a kept commit into a new or an empty folder.
    pub(super) async fn write_into_new(
        &self,
        commit: &str,
        place: &Place,
        to: &Path,
    ) -> Result<(), CheckoutError> {
        if !to.is_absolute() || !is_empty_or_missing(to) {
            return Err(CheckoutError::Refused(format!(
                "`{}` is not a new or an empty folder; name another one, with its whole path",
                to.display()
            )));
        }
        std::fs::create_dir_all(to).map_err(CheckoutError::io("make the folder", to))?;
        self.write_kept(commit, place, to).await
    }

    fn place_of_snapshots(&self, project: &ProjectId, work_tree: &Path) -> Place {
        let project = self.root.join(project.as_str());
        let tree = work_tree.to_owned();
        Place { folder: project.join("shared"), project, tree, owner: None }
    }

    /// Takes the files. Other agents may be working, so a file can vanish while git reads it. Git
    /// then fails, and is asked again.
    async fn take_shared_files(
        &self,
        place: &Place,
        policy: &KeepPolicy,
        left_out: &mut Vec<String>,
    ) -> Result<Files, CheckoutError> {
        let mut n_left = N_ATTEMPTS;
        loop {
            n_left -= 1;
            let ignored = self.list_ignored(place).await?;
            let is_rebuildable = |path: &&PathBuf| policy.is_rebuildable(path);
            let skipped: BTreeSet<PathBuf> =
                ignored.iter().filter(is_rebuildable).cloned().collect();
            let tree = place.tree();
            let root = self.root.clone();
            let refused = blocking(move || {
                let mut refused = find_refused(&tree, &skipped)?;
                // The snapshots would contain each other.
                if let Some(own) = inside(&root, &tree) {
                    refused.retain(|(path, _)| !path.starts_with(&own));
                    refused.push((own, "the coordinator keeps its work there"));
                }
                Ok(refused)
            })
            .await?;
            let mut of_files = Vec::new();
            match self.take_files(place, (refused, &[]), ignored, policy, &mut of_files).await {
                Err(CheckoutError::Git(GitError::Failed { .. })) if n_left > 0 => {}
                taken => {
                    left_out.extend(of_files);
                    return taken;
                }
            }
        }
    }

    /// Takes the commits that refs and logs name, and the staged files, with all that they reach.
    async fn take_commits(
        &self,
        place: &Place,
        repository: &Repository,
        refs: &Refs,
        last: Option<&str>,
        left_out: &mut Vec<String>,
    ) -> Result<Staged, CheckoutError> {
        let with_objects = |arguments: &[&OsStr]| -> Call<'_> {
            self.git
                .on(&place.keep(), arguments.iter().copied())
                .variable("GIT_ALTERNATE_OBJECT_DIRECTORIES", repository.as_alternate())
                .long()
        };
        if last.is_none() {
            let objects = repository.objects();
            let keep = place.keep().join("objects");
            blocking(move || link_packs(&objects, &keep)).await?;
        }
        note_shallow(repository, place)?;
        let mut staged = Staged::default();
        let taken = async {
            match self.staged(place, repository, refs, &with_objects).await {
                // Only the staged files are missing if git cannot read the index.
                Err(CheckoutError::Git(
                    error @ (GitError::Failed { .. } | GitError::TooMuch { .. }),
                )) => left_out.push(format!(".git/index: {error}")),
                found => staged = found?,
            }
            let mut wanted = lines(refs.named.iter().chain(&staged.ids));
            wanted.extend(last.into_iter().flat_map(|last| ["^", last, "\n"]));
            let list = [
                "rev-list",
                "--objects",
                "--no-object-names",
                "--ignore-missing",
                "--missing=allow-any",
                "--stdin",
            ];
            let listed = with_objects(&list.map(OsStr::new)).input(wanted).text().await?;
            let ids: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
            let quarantine = place.project.join(".q-shared");
            remove_folder(&quarantine)?;
            self.pack_missing(place, &ids, &quarantine, with_objects).await?;
            remove_folder(&quarantine)
        };
        match taken.await {
            // The files are taken, although git cannot read the repository.
            Err(CheckoutError::Git(
                error @ (GitError::Failed { .. } | GitError::TooMuch { .. }),
            )) => left_out.push(format!(".git: {error}")),
            taken => taken?,
        }
        Ok(staged)
    }

    /// Returns the staged files that differ from HEAD. The index of the repository is copied first.
    async fn staged<'a>(
        &'a self,
        place: &Place,
        repository: &Repository,
        refs: &Refs,
        with_objects: &impl Fn(&[&OsStr]) -> Call<'a>,
    ) -> Result<Staged, CheckoutError> {
        let mut staged = Staged::default();
        let theirs = place.folder.join("their-index");
        {
            let from = repository.own.join("index");
            let to = theirs.clone();
            let Ok(mut from) = open(&from) else {
                return Ok(staged);
            };
            blocking(move || {
                let mut file =
                    std::fs::File::create(&to).map_err(CheckoutError::io("write", &to))?;
                io::copy(&mut from, &mut file).map_err(CheckoutError::io("write", &to))?;
                Ok(())
            })
            .await?;
        }
        let empty = self.git.on(&place.keep(), ["mktree"]).text().await?;
        let head = refs.head_commit().unwrap_or(&empty);
        let list =
            ["diff-index", "--cached", "--raw", "--no-abbrev", "--no-renames", "-z", head.as_str()];
        let listed = with_objects(&list.map(OsStr::new)).variable("GIT_INDEX_FILE", &theirs);
        let listed = listed.run().await?;
        let mut entries = super::source::entries(&listed);
        while let (Some(change), Some(path)) = (entries.next(), entries.next()) {
            let change = change.to_string_lossy();
            let mut columns = change.split(' ').skip(1);
            let (mode, id) = (columns.next(), columns.nth(1));
            if let Some((mode, id)) = mode.zip(id)
                && mode != "160000"
                && id.bytes().any(|byte| byte != b'0')
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
    ) -> Result<String, CheckoutError> {
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
        for (id, _) in self.kinds(place, staged.ids.iter()).await? {
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
    ) -> Result<String, CheckoutError> {
        let commits = kinds.iter().filter(|(_, kind)| *kind == "commit");
        let tips = self.tips(place, commits.map(|(id, _)| id.clone()).collect()).await?;
        let head = refs.head_commit().filter(|head| kinds.contains_key(*head)).cloned();
        let others = tips.into_iter().filter(|tip| Some(tip) != head.as_ref());
        let mut parents: Vec<String> = head.clone().into_iter().chain(others).collect();
        while parents.len() > MAX_PARENTS {
            let some = parents.split_off(parents.len() - MAX_PARENTS);
            let about = "commits that refs and logs name\n";
            let group = self.commit(place, root, some.iter(), about, &order.agent).await?;
            parents.push(group);
        }
        self.commit(place, root, parents.iter(), message, &order.agent).await
    }

    /// Returns whether the keep repository has all that the commit reaches. `last` is known to be
    /// whole.
    async fn is_whole(
        &self,
        place: &Place,
        commit: &str,
        last: Option<&str>,
    ) -> Result<bool, CheckoutError> {
        let except = last.map(|last| format!("^{last}"));
        let list = ["rev-list", "--objects", "--quiet", commit];
        let list = list.into_iter().chain(except.as_deref());
        Ok(self.git.on(&place.keep(), list).long().end().await?.code == Some(0))
    }

    /// Changes refs together. Logs of them would say nothing more.
    async fn change_refs(&self, place: &Place, changes: String) -> Result<(), CheckoutError> {
        let update = ["-c", "core.logAllRefUpdates=false", "update-ref", "--stdin"];
        self.git.on(&place.keep(), update).input(changes).run().await?;
        Ok(())
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

/// Returns the path of `folder` in a work tree, if it is in there.
pub(super) fn inside(folder: &Path, tree: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let path = folder.strip_prefix(tree.canonicalize().ok()?).ok()?;
    Some(path.to_owned()).filter(|path| !path.as_os_str().is_empty())
}

fn is_empty_or_missing(folder: &Path) -> bool {
    match std::fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound && !folder.is_symlink(),
    }
}

/// Links the packs of a repository into the keep repository, if both are on one file system. Git
/// never changes a pack. Packs that cannot be linked are copied by git later.
fn link_packs(objects: &Path, keep: &Path) -> Result<(), CheckoutError> {
    let from = objects.join("pack");
    let to = keep.join("pack");
    make_folder(&to)?;
    for name in names_in(&from) {
        let Some(stem) = name.strip_suffix(".idx") else {
            continue;
        };
        let pack = format!("{stem}.pack");
        // Git looks for the index, so the pack comes first.
        if std::fs::hard_link(from.join(&pack), to.join(&pack)).is_ok() {
            let _ = std::fs::hard_link(from.join(&name), to.join(&name));
        }
    }
    Ok(())
}

/// Adds the commits at which the history of the repository is cut off to those of the keep
/// repository.
fn note_shallow(repository: &Repository, place: &Place) -> Result<(), CheckoutError> {
    let Some(theirs) = read_text(&repository.common.join("shallow")) else {
        return Ok(());
    };
    let path = place.keep().join("shallow");
    let ours = read_text(&path).unwrap_or_default();
    let all: BTreeSet<&str> = theirs.lines().chain(ours.lines()).collect();
    if all.len() > ours.lines().count() {
        let text: Vec<OsString> = all.into_iter().map(|id| format!("{id}\n").into()).collect();
        write(&path, text.join(OsStr::new("")).as_encoded_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
