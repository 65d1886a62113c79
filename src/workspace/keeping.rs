//! Keeps the content of a workspace: a commit of the keep repository that reaches all of it.
//!
//! No process runs in the repository of the agent. Its objects are copied, its refs are read as
//! text, and its files are read with an index and settings of the daemon's own. The kept commit has
//! these folders:
//!
//! | folder | content |
//! |---|---|
//! | `worktree` | the files, byte for byte |
//! | `lost` | objects that no commit reaches any more, such as files that were staged once |
//! | `git` | HEAD, refs, logs of refs and settings, as text |
//! | `nested` | repositories inside, and names that git refuses ([`super::nested`]) |
//!
//! Its parents are all commits that no other commit of the workspace reaches: branches, stashes,
//! and commits that were amended or reset.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::author::address_of;
use super::create::{MADE, read_made};
use super::git::{Call, GitError};
use super::nested::Nested;
use super::objects::lines;
use super::refs::{Refs, is_id, read_refs, read_text};
use super::rights::{Owner, blocking_as};
use super::source::entries;
use super::sparse::cone_at;
use super::walk::{Walk, walk};
use super::{CheckoutError, Checkouts, KeepPolicy, Place, remove_folder};
use crate::crash_point::{self, CrashPoint};
use crate::domain::workspace::{Cone, Content, KeepOrder};
use crate::domain::{ProjectId, WorkspaceId};

impl Checkouts {
    /// Keeps the content of a workspace in which no process runs.
    ///
    /// # Errors
    /// `Gone` if the folder of the workspace is missing. After another error, nothing was removed
    /// and the next attempt begins anew.
    pub async fn keep(
        &self,
        order: &KeepOrder,
        policy: &KeepPolicy,
    ) -> Result<Content, CheckoutError> {
        self.git.check().await?;
        self.take_back(&order.project, &order.id)?;
        let place = self.place(&order.project, &order.id);
        self.keep_at(&place, order, policy).await
    }

    pub(super) async fn keep_at(
        &self,
        place: &Place,
        order: &KeepOrder,
        policy: &KeepPolicy,
    ) -> Result<Content, CheckoutError> {
        place.check_tree()?;
        let cone = cone_at(place)?;
        let before = walked(place).await?;
        let mut left_out = Vec::new();
        let _locked = self.lock_keep(&order.project, place).await?;
        let objects = match self.take_objects(place, &order.id).await {
            Ok(objects) => objects,
            Err(error) if self.is_disk_full(&error) => return Err(error),
            // Content that git cannot read is left where it is.
            Err(CheckoutError::Git(GitError::Failed { message, .. })) => {
                left_out.push(format!(".git/objects: {message}"));
                BTreeSet::new()
            }
            Err(error) => return Err(error),
        };
        crash_point::reach(CrashPoint::ObjectsTaken);
        let refs = read_refs(place).await?;
        let mut result = self.existing(place, refs.result(&order.branch)).await?;
        if result.is_none() {
            // An agent that removed its repository does not take back what it had committed.
            result = self.resolve(place, &format!("refs/heads/{}", order.branch)).await?;
        }
        let result = result.or_else(|| order.base_commit.clone());
        self.prepare_reading(place).await?;
        let is_own = place.owner.is_none();
        if is_own && (!place.folder.join(MADE).exists() || !read_made(place)?.has_no_gitlinks) {
            self.forget_gitlinks(place, &place.tree(), &place.index()).await?;
        }
        let newest = result.as_deref();
        let files =
            self.take_with_parts(place, order, &before, newest, policy, &mut left_out).await?;
        let mut visible = self.with_absent(&cone, files.visible, newest, place).await?;
        if is_own {
            visible = self.as_committed(visible, newest, &files.nested, place).await?;
        }
        let files = Files { visible, ..files };
        crash_point::reach(CrashPoint::FilesTaken);
        // All that is kept was read, so a later change shows in this walk.
        let kept = self.write_commit(place, order, &refs, (&files, &cone), &objects);
        let (kept, after) = tokio::try_join!(kept, walked(place))?;
        crash_point::reach(CrashPoint::ContentKept);
        let all = objects.union(&files.nested.objects).cloned().collect();
        let missing = self.unreached(place, &kept, order, &all).await?;
        left_out.extend(missing.iter().map(|id| format!(".git/objects: {id}")));
        let is_proved = left_out.is_empty() && after.digest == before.digest;
        let mut content = Content {
            head_commit: result.clone(),
            disk_bytes: after.disk_bytes,
            kept_commit: kept,
            proof: is_proved.then_some(after.digest),
            left_out,
            ..Content::default()
        };
        self.publish(place, order, result.as_deref(), &files.visible, &mut content).await?;
        self.lend_to_all(place).await?;
        crash_point::reach(CrashPoint::ResultNamed);
        Ok(content)
    }

    /// Takes the commits of a workspace that an agent may be using, and returns the newest one of
    /// its branch.
    pub(super) async fn take(
        &self,
        project: &ProjectId,
        workspace: &WorkspaceId,
    ) -> Result<Option<String>, CheckoutError> {
        let place = self.place(project, workspace);
        if place.check_tree().is_err() {
            return Ok(None);
        }
        let _locked = self.lock_keep(project, &place).await?;
        self.take_objects(&place, workspace).await?;
        let refs = read_refs(&place).await?;
        self.existing(&place, refs.head_commit()).await
    }

    /// Returns `id` if the keep repository has this commit.
    pub(super) async fn existing(
        &self,
        place: &Place,
        id: Option<&String>,
    ) -> Result<Option<String>, CheckoutError> {
        match id {
            Some(id) => self.resolve(place, id).await,
            None => Ok(None),
        }
    }

    /// Begins a call on the files of a workspace, with an index of the daemon's own.
    pub(super) fn on_files(&self, place: &Place, arguments: &[&OsStr], index: &Path) -> Call<'_> {
        let call = self
            .git
            .on_tree(&place.files(), &place.tree(), arguments.iter().copied())
            .variable("GIT_INDEX_FILE", index)
            .long();
        match place.owner {
            None => call.variable("GIT_OBJECT_DIRECTORY", place.keep().join("objects")),
            // Git opens the files by their names, which lead where the owner wants.
            Some(owner) => call
                .variable("GIT_OBJECT_DIRECTORY", place.scratch().join("objects"))
                .variable("GIT_ALTERNATE_OBJECT_DIRECTORIES", place.lent(owner).join("objects"))
                .run_as(owner),
        }
    }

    /// Returns the ignored files and folders of a workspace, relative to it.
    pub(super) async fn list_ignored(&self, place: &Place) -> Result<Vec<PathBuf>, CheckoutError> {
        let list = ["ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"];
        let listed = self.on_files(place, &list.map(OsStr::new), &place.index()).run().await?;
        Ok(entries(&listed).map(Path::to_owned).collect())
    }

    /// Writes the files of the workspace into the keep repository. `found` are the entries that git
    /// cannot take, each with the reason, and `aside` those that are taken in another way.
    pub(super) async fn take_files(
        &self,
        place: &Place,
        (found, aside): (Vec<(PathBuf, &'static str)>, &[PathBuf]),
        ignored: Vec<PathBuf>,
        policy: &KeepPolicy,
        left_out: &mut Vec<String>,
    ) -> Result<Files, CheckoutError> {
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
        on_files(&add.map(OsStr::new), &index).input(patterns).run().await?;
        // Another owner cannot read all files that the index names.
        let missing_ok = place.owner.map(|_| OsStr::new("--missing-ok"));
        let write: Vec<&OsStr> = [OsStr::new("write-tree")].into_iter().chain(missing_ok).collect();
        let visible = on_files(&write, &index).text().await?;
        let chosen = {
            let tree = tree.clone();
            let policy = policy.clone();
            let aside = aside.to_vec();
            let choose = move || Ok(choose(&tree, &ignored, (found, &aside), &policy));
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
        on_files(&add.map(OsStr::new), &with_ignored)
            .variable("GIT_LITERAL_PATHSPECS", "1")
            .input(wanted)
            .run()
            .await?;
        let all = on_files(&write, &with_ignored).text().await?;
        std::fs::remove_file(&with_ignored).map_err(CheckoutError::io("remove", &with_ignored))?;
        self.take_written(place, Files { all, visible, nested: Nested::default() }).await
    }

    /// Takes the files that git wrote as another owner into the keep repository. The owner controls
    /// what is there, so it is checked like the objects of the agent's own repository.
    async fn take_written(&self, place: &Place, files: Files) -> Result<Files, CheckoutError> {
        if place.owner.is_none() {
            return Ok(files);
        }
        for tree in [&files.visible, &files.all] {
            if !is_id(tree) {
                return Err(CheckoutError::Refused(format!(
                    "git wrote the files of `{}` as `{tree}`, which is no id of a tree",
                    place.tree().display()
                )));
            }
        }
        let name = place.folder.file_name().unwrap_or_default().to_string_lossy();
        let quarantine = place.project.join(format!(".q-{name}-files"));
        self.take_from(place, &place.scratch().join("objects"), &quarantine).await?;
        // They are complete in the keep repository, or this fails.
        let trees = [&files.visible, &files.all];
        if let Err(error) = self.reached(place, trees.into_iter(), None).await {
            // The next attempt reads all files anew.
            let _ = std::fs::remove_file(place.index());
            return Err(error);
        }
        remove_folder(&place.scratch().join("objects"))?;
        Ok(files)
    }

    /// Writes the commit that reaches everything, with a ref, and returns it.
    async fn write_commit(
        &self,
        place: &Place,
        order: &KeepOrder,
        refs: &Refs,
        (files, cone): (&Files, &Cone),
        objects: &BTreeSet<String>,
    ) -> Result<String, CheckoutError> {
        let keep = place.keep();
        let kinds = self.kinds(place, objects.iter().chain(&refs.named)).await?;
        let of_kind = |wanted: &str| {
            let found = kinds.iter().filter(move |(_, kind)| *kind == wanted);
            found.map(|(id, _)| id.clone()).collect::<BTreeSet<String>>()
        };
        let tips = self.tips(place, of_kind("commit")).await?;
        let text = self.git.on(&keep, ["hash-object", "-w", "--stdin"]);
        let text = text.input(refs.text.as_bytes()).text().await?;
        let about = self.git.on(&keep, ["mktree"]);
        let paths = self.paths_entry(cone, place).await?;
        let mut entries = format!("{paths}100644 blob {text}\trefs\n");
        let config = place.tree().join(".git/config");
        if let Some(settings) = blocking_as(place.owner, move || Ok(read_text(&config))).await? {
            let settings = self.git.on(&keep, ["hash-object", "-w", "--stdin"]).input(settings);
            let _ = writeln!(entries, "100644 blob {}\tconfig", settings.text().await?);
        }
        let about = about.input(entries).text().await?;
        let base = order.base_commit.as_deref();
        let reached = self.reached(place, tips.iter().chain([&files.all]), base).await?;
        let is_lost = |id: &&String| objects.contains(*id) && !reached.contains(*id);
        let mut lost = String::new();
        for id in of_kind("blob").iter().filter(is_lost) {
            let _ = writeln!(lost, "100644 blob {id}\t{id}");
        }
        for id in of_kind("tree").iter().filter(is_lost) {
            let _ = writeln!(lost, "040000 tree {id}\t{id}");
        }
        let mut root = format!("040000 tree {about}\tgit\n");
        if !lost.is_empty() {
            let lost = self.git.on(&keep, ["mktree"]).input(lost).text().await?;
            let _ = writeln!(root, "040000 tree {lost}\tlost");
        }
        let nested = &files.nested;
        if !nested.entries.is_empty() {
            let nested = self.git.on(&keep, ["mktree"]).input(nested.entries.as_bytes());
            let _ = writeln!(root, "040000 tree {}\tnested", nested.text().await?);
        }
        let _ = writeln!(root, "040000 tree {}\tworktree", files.all);
        let root = self.git.on(&keep, ["mktree"]).input(root).text().await?;
        let head = self.existing(place, refs.head_commit()).await?;
        let head = head.or_else(|| order.base_commit.clone());
        let parents = head.iter().chain(tips.iter().filter(|tip| Some(*tip) != head.as_ref()));
        let parents = parents.chain(&nested.commits);
        let message = format!("kept the workspace {} of {}\n", order.id, order.agent);
        let commit = self.commit(place, &root, parents, &message, &order.agent).await?;
        let name = self.free_kept_ref(place, &order.id).await?;
        self.git.on(&keep, ["update-ref", &name, &commit]).run().await?;
        // A tag that is in no list of refs any more can be neither a parent nor in a folder.
        for tag in of_kind("tag") {
            let name = format!("refs/agent-coordinator/kept/{}/tag-{tag}", order.id);
            self.git.on(&keep, ["update-ref", &name, &tag]).run().await?;
        }
        Ok(commit)
    }

    /// Writes a commit with the daemon as its committer.
    pub(super) async fn commit<'a>(
        &self,
        place: &Place,
        tree: &str,
        parents: impl Iterator<Item = &'a String>,
        message: &str,
        author: impl std::fmt::Display,
    ) -> Result<String, CheckoutError> {
        let mut arguments = vec!["commit-tree", tree];
        for parent in parents {
            arguments.extend(["-p", parent]);
        }
        let committer = "agent-coordinator";
        let author = author.to_string();
        let call = self
            .git
            .on(&place.keep(), arguments)
            .variable("GIT_AUTHOR_EMAIL", address_of(&author))
            .variable("GIT_AUTHOR_NAME", author)
            .variable("GIT_COMMITTER_NAME", committer)
            .variable("GIT_COMMITTER_EMAIL", "daemon@agent-coordinator.invalid");
        Ok(call.input(message).text().await?)
    }

    /// Returns the kind of each object that exists.
    pub(super) async fn kinds<'a>(
        &self,
        place: &Place,
        ids: impl Iterator<Item = &'a String>,
    ) -> Result<BTreeMap<String, String>, CheckoutError> {
        let ids: BTreeSet<String> = ids.cloned().collect();
        let check = ["cat-file", "--batch-check=%(objectname) %(objecttype)"];
        let listed = self.git.on(&place.keep(), check).input(lines(&ids)).long().text().await?;
        let kinds = listed.lines().filter_map(|line| line.split_once(' '));
        let exists = |(_, kind): &(&str, &str)| *kind != "missing";
        Ok(kinds.filter(exists).map(|(id, kind)| (id.to_owned(), kind.to_owned())).collect())
    }

    /// Returns the commits that are no parent of another one of `commits`.
    pub(super) async fn tips(
        &self,
        place: &Place,
        commits: BTreeSet<String>,
    ) -> Result<BTreeSet<String>, CheckoutError> {
        if commits.is_empty() {
            return Ok(commits);
        }
        let list = ["rev-list", "--no-walk=unsorted", "--parents", "--stdin"];
        let listed = self.git.on(&place.keep(), list).input(lines(&commits)).long().text().await?;
        let parents: BTreeSet<&str> =
            listed.lines().flat_map(|line| line.split(' ').skip(1)).collect();
        Ok(commits.iter().filter(|commit| !parents.contains(commit.as_str())).cloned().collect())
    }

    /// Returns all objects that these commits and trees reach, and `except` does not reach.
    pub(super) async fn reached<'a>(
        &self,
        place: &Place,
        from: impl Iterator<Item = &'a String>,
        except: Option<&str>,
    ) -> Result<BTreeSet<String>, CheckoutError> {
        let mut input = lines(from);
        input.extend(except.into_iter().flat_map(|commit| ["^", commit, "\n"]));
        let list = ["rev-list", "--objects", "--no-object-names", "--stdin"];
        let listed = self.git.on(&place.keep(), list).input(input).long().text().await?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// Returns those of `objects` that no kept ref reaches.
    async fn unreached(
        &self,
        place: &Place,
        kept: &String,
        order: &KeepOrder,
        objects: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>, CheckoutError> {
        let base = order.base_commit.as_deref();
        let since = self.reached(place, std::iter::once(kept), base).await?;
        let mut rest: BTreeSet<String> = objects.difference(&since).cloned().collect();
        if !rest.is_empty() {
            // Perhaps the base reaches them. That is rare, and its history may be long.
            let all = self.reached(place, std::iter::once(kept), None).await?;
            let kinds = self.kinds(place, rest.iter()).await?;
            let has_ref = |id: &String| kinds.get(id).is_some_and(|kind| kind == "tag");
            rest.retain(|id| !all.contains(id) && !has_ref(id));
        }
        Ok(rest)
    }

    async fn free_kept_ref(
        &self,
        place: &Place,
        id: &WorkspaceId,
    ) -> Result<String, CheckoutError> {
        let folder = format!("refs/agent-coordinator/kept/{id}/");
        let list = ["for-each-ref", "--format=%(refname)", &folder];
        let listed = self.git.on(&place.keep(), list).text().await?;
        let numbers = listed.lines().filter_map(|name| name.strip_prefix(&folder)?.parse().ok());
        let last: u32 = numbers.max().unwrap_or(0);
        Ok(format!("{folder}{}", last + 1))
    }

    /// Names the result with the branch of the task, and what is in no commit with a second one.
    async fn publish(
        &self,
        place: &Place,
        order: &KeepOrder,
        result: Option<&str>,
        visible: &str,
        content: &mut Content,
    ) -> Result<(), CheckoutError> {
        let keep = place.keep();
        if let Some(result) = result {
            let name = format!("refs/heads/{}", order.branch);
            self.git.on(&keep, ["update-ref", &name, result]).run().await?;
        }
        let empty_tree = || self.git.on(&keep, ["mktree"]).text();
        let from = match result {
            Some(result) => format!("{result}^{{tree}}"),
            None => empty_tree().await?,
        };
        let list = ["diff-tree", "-r", "--no-renames", "--name-status", "-z", &from, visible];
        let changed = self.git.on(&keep, list).long().run().await?;
        // Each path follows a letter, which is A for a file that the commit does not have.
        let letters: Vec<&Path> = entries(&changed).step_by(2).collect();
        content.n_uncommitted = count(letters.len());
        content.n_changed = count(letters.iter().filter(|kind| **kind != Path::new("A")).count());
        let uncommitted = uncommitted_ref(&order.branch);
        if content.n_uncommitted > 0 {
            let message = format!("left uncommitted by {}\n", order.agent);
            let parent = result.map(str::to_owned);
            let commit = self.commit(place, visible, parent.iter(), &message, &order.agent).await?;
            self.git.on(&keep, ["update-ref", &uncommitted, &commit]).run().await?;
        } else if self.resolve(place, &uncommitted).await?.is_some() {
            // The agent committed or removed the files that an earlier launch had left.
            self.git.on(&keep, ["update-ref", "-d", &uncommitted]).run().await?;
        }
        let base = order.base_commit.as_deref();
        if let Some(result) = result.filter(|result| base != Some(result)) {
            // Without a base, all commits are those of the work.
            let (commits, changes) = match base {
                Some(base) => (format!("{base}..{result}"), vec![format!("{base}...{result}")]),
                None => (result.to_owned(), vec![empty_tree().await?, result.to_owned()]),
            };
            let n = self.git.on(&keep, ["rev-list", "--count", &commits]).text().await?;
            content.n_commits = n.parse().unwrap_or(0);
            let list = ["diff", "--no-ext-diff", "--no-textconv", "--numstat", "--end-of-options"];
            let list = list.into_iter().chain(changes.iter().map(String::as_str));
            let listed = self.git.on(&keep, list).long().text().await?;
            for line in listed.lines() {
                let mut columns = line.split('\t').map(|column| column.parse().unwrap_or(0));
                content.n_files += 1;
                content.n_additions += columns.next().unwrap_or(0);
                content.n_deletions += columns.next().unwrap_or(0);
            }
        }
        Ok(())
    }
}

/// Returns the ref of what is in no commit. It is beside the branch, not below it: git allows no
/// branch below another one.
pub(super) fn uncommitted_ref(branch: &str) -> String {
    format!("refs/heads/{branch}-uncommitted")
}

/// The trees of the files.
pub(super) struct Files {
    /// With the ignored files that are kept.
    pub(super) all: String,
    /// Without ignored files.
    pub(super) visible: String,
    /// What git does not take with the others.
    pub(super) nested: Nested,
}

async fn walked(place: &Place) -> Result<Walk, CheckoutError> {
    let tree = place.tree();
    blocking_as(place.owner, move || walk(&tree)).await
}

/// Copies the index of a workspace.
async fn copy_as(owner: Option<Owner>, from: &Path, to: &Path) -> Result<(), CheckoutError> {
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
pub(super) fn excluding(path: &Path) -> OsString {
    let is_nested = path.file_name() == Some(OsStr::new(".git"));
    let path = path.parent().filter(|_| is_nested).unwrap_or(path);
    let mut pattern = OsString::from(":(exclude,top,literal)");
    pattern.push(path);
    pattern
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
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
    (mut found, aside): (Vec<(PathBuf, &'static str)>, &[PathBuf]),
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
pub(super) fn size_of(path: &Path, limit: u64) -> u64 {
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
