//! Keeps the content of a workspace: a commit of the keep repository that reaches all of it.
//!
//! No process runs in the repository of the agent. Its objects are copied, its refs are read as
//! text, and its files are read with an index and settings of the daemon's own. Pipes for which
//! git would wait are removed first. If another user owns the tree, git runs as that user, with an
//! index that this user can change. The kept commit has these folders:
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

mod files;
mod result;
mod uncommitted;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::inside::Inside;
use super::merging::Signatures;
use super::objects::lines;
use super::refs::{Refs, read_refs};
use super::rights::blocking_as;
use super::sparse::{cone_at, find_made};
use super::text::read_text;
use super::walk::{Walk, find_unreadable, walk};
use super::{CheckoutError, Clones, Git, KeepPolicy, Place, Result, WorkFiles};
use domain::workspace::{Cone, Content, Found, KeepOrder};
use domain::{ProjectId, WorkspaceId};
use machine::crash_point::{self, CrashPoint};

pub(super) use files::{Files, copy_as, excluding, size_of};
use uncommitted::WorkTree;
pub(super) use uncommitted::uncommitted_ref;

impl Clones {
    /// Keeps the content of a workspace in which no process runs.
    ///
    /// # Errors
    /// `Gone` if the folder of the workspace is missing. After another error, nothing was removed
    /// and the next attempt begins anew.
    pub async fn keep(&self, order: &KeepOrder, policy: &KeepPolicy) -> Result<Content> {
        self.git.check().await?;
        self.places.take_back(&order.project, &order.id)?;
        let place = self.places.place(&order.project, &order.id);
        self.keep_at(&place, order, policy).await
    }

    pub(super) async fn keep_at(
        &self,
        place: &Place,
        order: &KeepOrder,
        policy: &KeepPolicy,
    ) -> Result<Content> {
        place.check_tree()?;
        let cone = cone_at(place)?;
        remove_unreadable(place).await?;
        let before = walked(place).await?;
        let mut left_out = Vec::new();
        let _locked = self.keep.lock_keep(&order.project, place).await?;
        // The keep repository may have gone to the keeper meanwhile.
        let place = &Place { owner: place.user_of(place.owner), ..place.clone() };
        let mut objects = match self.git.take_objects(place, &order.id).await {
            Ok(objects) => objects,
            Err(error) if self.disk.is_disk_full(&error) => return Err(error),
            // Content that git cannot read, or that is not to be used, is left where it is.
            Err(error) if error.is_of_content() => {
                left_out.push(format!(".git/objects: {error}"));
                BTreeSet::new()
            }
            Err(error) => return Err(error),
        };
        crash_point::reach(CrashPoint::ObjectsTaken);
        let mut refs = read_refs(place).await?;
        if let Some(reason) =
            self.files.forget_foreign(place, &order.id, &mut refs, &mut objects).await?
        {
            left_out.push(format!(".git/objects: {reason}"));
        }
        let looked = self.look_for_result(place, order, &refs).await?;
        left_out.extend(looked.reason.clone());
        let found = match &looked.found {
            Found::Result(commit) => Some(commit),
            // The agent may have moved the branch back.
            Found::Nothing => refs
                .branch(&order.branch)
                .filter(|id| looked.may_be_result(id) && !order.dropped.contains(*id)),
            Found::Undecided => None,
        };
        let mut result = self.git.existing(place, found).await?;
        // An agent that removed its repository does not take back what it had committed.
        let earlier = self.git.resolve(place, &format!("refs/heads/{}", order.branch)).await?;
        if let Some(commit) = &result
            && result != earlier
            && result != order.base_commit
        {
            match self.git.check_result(place, &order.id, commit, &objects).await {
                Err(CheckoutError::Malformed(reason)) => {
                    left_out.push(format!(".git/objects: {reason}"));
                    result = None;
                }
                checked => checked?,
            }
        }
        let result = result.or(earlier);
        let result = result.or_else(|| order.base_commit.clone());
        self.files.prepare_reading(place).await?;
        // The owner of a workspace can change its index.
        let has_none = find_made(place)?.is_some_and(|made| made.has_no_gitlinks);
        if place.owner.is_some() || !has_none {
            self.files.forget_gitlinks(place).await?;
        }
        let at = refs.head_commit();
        let head = self.head_of_files(place, order, at, result.as_deref(), &objects).await?;
        let newest = head.as_deref();
        let files = self
            .files
            .take_with_parts(place, order, &before, newest, policy, &mut left_out)
            .await?;
        let visible = self.files.with_absent(&cone, files.visible, newest, place).await?;
        let visible = self.files.as_committed(visible, newest, &files.nested, place).await?;
        let files = Files { visible, ..files };
        crash_point::reach(CrashPoint::FilesTaken);
        // All that is kept was read, so a later change shows in this walk.
        let kept = self.write_commit(place, order, &refs, &files, &cone, &objects);
        let (kept, after) = tokio::try_join!(kept, walked(place))?;
        crash_point::reach(CrashPoint::ContentKept);
        let all = objects.union(&files.nested.objects).cloned().collect();
        let missing = self.git.unreached(place, &kept, order, &all).await?;
        left_out.extend(missing.iter().map(|id| format!(".git/objects: {id}")));
        let is_proved = left_out.is_empty() && after.digest == before.digest;
        let is_undecided = looked.found == Found::Undecided;
        // The work has gone on elsewhere since the choice.
        let chosen = order.chosen.as_ref().filter(|_| !is_undecided);
        let mut content = Content {
            head_commit: result.clone(),
            disk_bytes: after.disk_bytes,
            kept_commit: kept,
            proof: is_proved.then_some(after.digest),
            left_out,
            others: self.others(place, order, result.as_deref(), &looked).await?,
            dropped: order.dropped.clone(),
            is_undecided,
            found_on: looked.branch_at(result.as_deref()),
            chosen: chosen.map(|choice| choice.commit.clone()),
            tips: looked.commits(),
            is_elsewhere: newest != result.as_deref(),
            conflict: self.conflict_left(place, order, result.as_ref()).await?,
            ..Content::default()
        };
        let result = result.as_deref();
        let linked =
            self.linked_work_trees(place, order, &files.nested, &cone, result, &objects).await?;
        let own = WorkTree { visible: files.visible, head };
        let work_trees: Vec<WorkTree> = std::iter::once(own).chain(linked).collect();
        self.publish(place, order, result, &work_trees, &mut content).await?;
        self.keep.lend_to_all(place).await?;
        crash_point::reach(CrashPoint::ResultNamed);
        Ok(content)
    }

    /// Returns the commit with which the files of a work tree are compared: that of its HEAD, which
    /// is another one than the result if the work was done elsewhere.
    async fn head_of_files(
        &self,
        place: &Place,
        order: &KeepOrder,
        head: Option<&String>,
        result: Option<&str>,
        objects: &BTreeSet<String>,
    ) -> Result<Option<String>> {
        let result = result.map(str::to_owned);
        let Some(head) = self.git.existing(place, head).await? else {
            return Ok(result);
        };
        if Some(&head) == result.as_ref() || Some(&head) == order.base_commit.as_ref() {
            return Ok(Some(head));
        }
        match self.git.check_result(place, &order.id, &head, objects).await {
            // The reason was named with the result, or its files are all new.
            Err(CheckoutError::Malformed(_)) => Ok(result),
            checked => checked.map(|()| Some(head)),
        }
    }

    /// Takes the commits of a workspace that an agent may be using, and returns the newest one of
    /// its branch.
    pub(super) async fn take(
        &self,
        project: &ProjectId,
        workspace: &WorkspaceId,
    ) -> Result<Option<String>> {
        let place = self.places.place(project, workspace);
        if place.check_tree().is_err() {
            return Ok(None);
        }
        let _locked = self.keep.lock_keep(project, &place).await?;
        let objects = match self.git.take_objects(&place, workspace).await {
            Err(CheckoutError::Malformed(_)) => return Ok(None),
            taken => taken?,
        };
        let refs = read_refs(&place).await?;
        let newest = self.git.existing(&place, refs.head_commit()).await?;
        let Some(commit) = &newest else {
            return Ok(None);
        };
        match self.git.check_result(&place, workspace, commit, &objects).await {
            Err(CheckoutError::Malformed(_)) => Ok(None),
            checked => checked.map(|()| newest),
        }
    }

    /// Writes the commit that reaches everything, with a ref, and returns it.
    async fn write_commit(
        &self,
        place: &Place,
        order: &KeepOrder,
        refs: &Refs,
        files: &Files,
        cone: &Cone,
        objects: &BTreeSet<String>,
    ) -> Result<String> {
        let keep = place.keep();
        let kinds = self.git.kinds(place, objects.iter().chain(&refs.named)).await?;
        let of_kind = |wanted: &str| {
            let found = kinds.iter().filter(move |(_, kind)| *kind == wanted);
            found.map(|(id, _)| id.clone()).collect::<BTreeSet<String>>()
        };
        let tips = self.git.tips(place, of_kind("commit")).await?;
        let text = self.git.on(&keep, ["hash-object", "-w", "--stdin"]);
        let text = text.input(refs.text.as_bytes()).text().await?;
        let about = self.git.on(&keep, ["mktree"]);
        let paths = self.paths_entry(cone, place).await?;
        let begun = self.begun_entry(place, order).await?;
        let mut entries = format!("{paths}{begun}100644 blob {text}\trefs\n");
        let config = place.tree().join(".git/config");
        if let Some(settings) = blocking_as(place.owner, move || Ok(read_text(&config))).await? {
            let settings = self.git.on(&keep, ["hash-object", "-w", "--stdin"]).input(settings);
            let _ = writeln!(entries, "100644 blob {}\tconfig", settings.text().await?);
        }
        let about = about.input(entries).text().await?;
        let base = order.base_commit.as_deref();
        // Without objects of its own, the workspace has lost none. The question takes long.
        let reached = if objects.is_empty() {
            BTreeSet::new()
        } else {
            self.git.reached(place, tips.iter().chain([&files.all]), base).await?
        };
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
        let head = self.git.existing(place, refs.head_commit()).await?;
        let head = head.or_else(|| order.base_commit.clone());
        let parents = head.iter().chain(tips.iter().filter(|tip| Some(*tip) != head.as_ref()));
        let parents = parents.chain(&nested.commits);
        let message = format!("kept the workspace {} of {}\n", order.id, order.agent);
        let commit = self.git.commit(place, &root, parents, &message, &order.agent).await?;
        let name = self.free_kept_ref(place, &order.id).await?;
        self.git.on(&keep, ["update-ref", &name, &commit]).run().await?;
        // A tag that is in no list of refs any more can be neither a parent nor in a folder.
        for tag in of_kind("tag") {
            let name = format!("refs/agent-coordinator/kept/{}/tag-{tag}", order.id);
            self.git.on(&keep, ["update-ref", &name, &tag]).run().await?;
        }
        Ok(commit)
    }

    async fn free_kept_ref(&self, place: &Place, id: &WorkspaceId) -> Result<String> {
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
        work_trees: &[WorkTree],
        content: &mut Content,
    ) -> Result<()> {
        let keep = place.keep();
        if let Some(result) = result {
            let name = format!("refs/heads/{}", order.branch);
            self.git.on(&keep, ["update-ref", &name, result]).run().await?;
        }
        let uncommitted = uncommitted_ref(&order.branch);
        let left = self.take_uncommitted(place, order, result, work_trees, content).await?;
        if let Some(commit) = left {
            self.git.on(&keep, ["update-ref", &uncommitted, &commit]).run().await?;
        } else if self.git.resolve(place, &uncommitted).await?.is_some() {
            // The agent committed or removed the files that an earlier launch had left.
            self.git.on(&keep, ["update-ref", "-d", &uncommitted]).run().await?;
        }
        self.git.count_changes(place, order, result, content).await
    }
}

impl WorkFiles {
    /// Forgets what the owner of a clone can have from nowhere, but names. A restored clone would
    /// get it. Returns the reason.
    pub(super) async fn forget_foreign(
        &self,
        place: &Place,
        id: &WorkspaceId,
        refs: &mut Refs,
        objects: &mut BTreeSet<String>,
    ) -> Result<Option<String>> {
        let all = objects.union(&refs.named);
        let foreign = self.git.foreign(place, id, all, objects).await?;
        let named = foreign.iter().find(|id| refs.named.contains(*id));
        let Some(first) = named.or(foreign.first()).cloned() else {
            return Ok(None);
        };
        refs.forget(&foreign);
        if !self.git.foreign(place, id, &*objects, objects).await?.is_empty() {
            // Some of them reach it.
            refs.forget(objects);
            objects.clear();
        }
        Ok(Some(format!("neither the clone nor what it borrows from has {first}, which it names")))
    }
}

impl Git {
    /// Returns `id` if the keep repository has this commit.
    pub(super) async fn existing(
        &self,
        place: &Place,
        id: Option<&String>,
    ) -> Result<Option<String>> {
        match id {
            Some(id) => self.resolve(place, id).await,
            None => Ok(None),
        }
    }

    /// Writes a commit with the daemon as its committer.
    pub(super) async fn commit<'a>(
        &self,
        place: &Place,
        tree: &str,
        parents: impl Iterator<Item = &'a String>,
        message: &str,
        author: impl std::fmt::Display,
    ) -> Result<String> {
        let signatures = Signatures::of_daemon(author.to_string());
        self.commit_as(place, tree, parents, message, &signatures).await
    }

    /// Makes a commit of this author and this committer.
    pub(super) async fn commit_as<'a>(
        &self,
        place: &Place,
        tree: &str,
        parents: impl Iterator<Item = &'a String>,
        message: &str,
        Signatures { author, committer }: &Signatures,
    ) -> Result<String> {
        let mut arguments = vec!["commit-tree", tree];
        for parent in parents {
            arguments.extend(["-p", parent]);
        }
        let call = self
            .on(&place.keep(), arguments)
            .variable("GIT_AUTHOR_EMAIL", &author.address)
            .variable("GIT_AUTHOR_NAME", &author.name)
            .variable("GIT_COMMITTER_NAME", &committer.name)
            .variable("GIT_COMMITTER_EMAIL", &committer.address);
        Ok(call.input(message).text().await?)
    }

    /// Returns the kind of each object that exists.
    pub(super) async fn kinds<'a>(
        &self,
        place: &Place,
        ids: impl Iterator<Item = &'a String>,
    ) -> Result<BTreeMap<String, String>> {
        let ids: BTreeSet<String> = ids.cloned().collect();
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let check = ["cat-file", "--batch-check=%(objectname) %(objecttype)"];
        let listed = self.on(&place.keep(), check).input(lines(&ids)).long().text().await?;
        let kinds = listed.lines().filter_map(|line| line.split_once(' '));
        let exists = |(_, kind): &(&str, &str)| *kind != "missing";
        Ok(kinds.filter(exists).map(|(id, kind)| (id.to_owned(), kind.to_owned())).collect())
    }

    /// Returns the commits that are no parent of another one of `commits`.
    pub(super) async fn tips(
        &self,
        place: &Place,
        commits: BTreeSet<String>,
    ) -> Result<BTreeSet<String>> {
        if commits.is_empty() {
            return Ok(commits);
        }
        let list = ["rev-list", "--no-walk=unsorted", "--parents", "--stdin"];
        let listed = self.on(&place.keep(), list).input(lines(&commits)).long().text().await?;
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
    ) -> Result<BTreeSet<String>> {
        let mut input = lines(from);
        input.extend(except.into_iter().flat_map(|commit| ["^", commit, "\n"]));
        let list = ["rev-list", "--objects", "--no-object-names", "--stdin"];
        let listed = self.on(&place.keep(), list).input(input).long().text().await?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// Returns those of `objects` that no kept ref reaches.
    async fn unreached(
        &self,
        place: &Place,
        kept: &String,
        order: &KeepOrder,
        objects: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>> {
        if objects.is_empty() {
            return Ok(BTreeSet::new());
        }
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

    /// Returns the arguments of `git diff` for the changes of a result since its base. If the two
    /// have no commit in common, the files themselves are compared.
    pub(super) async fn changes(
        &self,
        place: &Place,
        base: &str,
        result: &str,
    ) -> Result<Vec<String>> {
        let find = self.on(&place.keep(), ["merge-base", base, result]).end().await?;
        Ok(match find.code {
            Some(0) => vec![format!("{base}...{result}")],
            _ => vec![base.to_owned(), result.to_owned()],
        })
    }

    /// Counts the commits and the changes of a result since its base, without what came from the
    /// branch of the source meanwhile.
    async fn count_changes(
        &self,
        place: &Place,
        order: &KeepOrder,
        result: Option<&str>,
        content: &mut Content,
    ) -> Result<()> {
        let keep = place.keep();
        content.n_commits = 0;
        content.n_files = 0;
        content.n_additions = 0;
        content.n_deletions = 0;
        if let Some(result) = result.filter(|result| order.base_commit.as_deref() != Some(result)) {
            let begin = self.begin_of(place, order, result).await?;
            // Without a base, all commits are those of the work.
            let changes = match &begin {
                Some(begin) => self.changes(place, begin, result).await?,
                None => vec![self.empty_tree(place).await?, result.to_owned()],
            };
            let since: BTreeSet<&String> = begin.iter().chain(&order.base_commit).collect();
            let since = since.into_iter().map(|commit| format!("^{commit}"));
            let list = ["rev-list", "--count", result].map(str::to_owned).into_iter();
            let n = self.on(&keep, list.chain(since)).text().await?;
            content.n_commits = n.parse().unwrap_or(0);
            let list = ["diff", "--no-ext-diff", "--no-textconv", "--numstat", "--end-of-options"];
            let list = list.into_iter().chain(changes.iter().map(String::as_str));
            let listed = self.on(&keep, list).long().text().await?;
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

/// Removes the pipes of a clone for which git would wait. No process is there that would use them,
/// and a pipe has no content.
///
/// # Errors
/// `Refused` for a file of git that is too large.
async fn remove_unreadable(place: &Place) -> Result<()> {
    let tree = place.tree();
    blocking_as(place.owner, move || {
        for (path, reason) in find_unreadable(&tree) {
            let shown = tree.join(&path);
            if shown.symlink_metadata().is_ok_and(|found| found.is_file()) {
                let shown = shown.display();
                return Err(CheckoutError::Refused(format!("`{shown}` {reason}; move it away")));
            }
            tracing::warn!(path = %shown.display(), "removed a pipe for which git would wait");
            Inside::open(&tree)?.remove_file(&path)?;
        }
        Ok(())
    })
    .await
}

async fn walked(place: &Place) -> Result<Walk> {
    let tree = place.tree();
    blocking_as(place.owner, move || walk(&tree)).await
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
