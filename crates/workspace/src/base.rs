//! Chooses the commit that the work of a task begins at.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::keep_repository::SOURCE;
use super::keeping::{excluding, uncommitted_ref};
use super::nested::path_in;
use super::repository::Repository;
use super::rights::blocking_as;
use super::source::{Head, Source, advice_on_open, entries};
use super::temporary::{Settings, TemporaryRepository};
use super::text::{is_id, read_text};
use super::walk::{find_open, path_within};
use super::{CheckoutError, Clones, Place, Result, blocking};
use domain::WorkspaceId;
use domain::nearest::nearest;
use domain::workspace::{BASE_WORKING_TREE, Order, Prepared};

/// The author of the commits that the daemon makes for a base.
const AUTHOR: &str = "agent-coordinator";

/// Returns the ref that pins the commit at which a workspace begins.
pub(super) fn pin_of(id: &WorkspaceId) -> String {
    format!("refs/agent-coordinator/base/{id}")
}

impl Clones {
    /// Chooses the commit that the work begins at, and pins it with a ref. An earlier attempt may
    /// have pinned one already. Returns it after the facts about the workspace. Work that comes
    /// back goes on at its last commit, and its base stays.
    pub(super) async fn choose_base(
        &self,
        order: &Order,
        source: Option<&Source>,
        place: &Place,
        head: Head,
        begins_at: Option<String>,
    ) -> Result<(Prepared, Option<String>)> {
        let branch = self.free_branch(&order.branch, place).await?;
        let pin = pin_of(&order.id);
        let pinned = self.git.resolve(place, &pin).await?;
        let kept = order.restores.as_ref().and_then(|kept| kept.head_commit.clone());
        let mut base_ref = head.branch.clone();
        // An earlier attempt may have pinned the commit of the branch that the configuration names.
        if let (None, Some(_), Some(base)) = (&begins_at, source, &order.base)
            && base != BASE_WORKING_TREE
            && self.git.resolve(place, &format!("{SOURCE}/heads/{base}")).await?.is_some()
        {
            base_ref = Some(format!("refs/heads/{base}"));
        }
        // The work of an earlier workspace of the task goes on.
        let mut commit = kept.or(pinned);
        if commit.is_none() {
            commit = self.git.resolve(place, &format!("refs/heads/{branch}")).await?;
        }
        if commit.is_none() {
            let base = match (begins_at, source) {
                (Some(parent), _) => Some(parent),
                // An item of a forge begins where the forge says.
                (None, None) => head.commit,
                (None, Some(source)) => {
                    let named = self.named_base(order, source, place, head).await?;
                    base_ref = named.branch;
                    named.commit
                }
            };
            commit = self.with_dependencies(place, base, &order.dependencies).await?;
        }
        if let Some(commit) = &commit {
            self.git.on(&place.keep(), ["update-ref", &pin, commit]).run().await?;
        }
        if order.restores.is_some() {
            self.carry_over(&order.branch, &branch, place).await?;
        }
        let earlier = order.restores.as_ref().filter(|kept| kept.base_commit.is_some());
        let (base_ref, base_commit) = match earlier {
            Some(kept) => (kept.base_ref.clone(), kept.base_commit.clone()),
            None => (base_ref, commit.clone()),
        };
        let subdirectory = source.map(|source| source.subdirectory.clone()).unwrap_or_default();
        Ok((Prepared { branch, base_ref, base_commit, subdirectory }, commit))
    }

    /// Gives the result of a task the name that its branch has now. People took the earlier one.
    async fn carry_over(&self, from: &str, to: &str, place: &Place) -> Result<()> {
        let heads = |branch: &str| format!("refs/heads/{branch}");
        for (old, new) in [(heads(from), heads(to)), (uncommitted_ref(from), uncommitted_ref(to))] {
            if self.git.resolve(place, &new).await?.is_none()
                && let Some(id) = self.git.resolve(place, &old).await?
            {
                self.git.on(&place.keep(), ["update-ref", &new, &id]).run().await?;
            }
        }
        if from != to {
            self.carry_notes(from, to, place).await?;
        }
        Ok(())
    }

    /// Returns the branch and the commit that the configuration names, or else those of HEAD.
    async fn named_base(
        &self,
        order: &Order,
        source: &Source,
        place: &Place,
        head: Head,
    ) -> Result<Head> {
        let Some(base) = &order.base else {
            return Ok(head);
        };
        if base == BASE_WORKING_TREE {
            let commit = self.commit_of_work_tree(source, place, &head).await?;
            return Ok(Head { commit, ..head });
        }
        if let Some(commit) = self.git.resolve(place, &format!("{SOURCE}/heads/{base}")).await? {
            return Ok(Head { branch: Some(format!("refs/heads/{base}")), commit: Some(commit) });
        }
        let tag = format!("{SOURCE}/tags/{base}");
        let find =
            ["rev-parse", "--verify", "--quiet", &format!("refs/tags/{base}")].map(str::to_owned);
        let found = source.git(&self.git, find).end().await?;
        let id = String::from_utf8_lossy(&found.stdout).trim().to_owned();
        if found.code == Some(0) && is_id(&id) {
            let known = self.git.followed(place).await?.into_values().collect();
            self.git.bring(source, place, &BTreeSet::from([id.clone()]), &known).await?;
            self.git.on(&place.keep(), ["update-ref", &tag, &id]).run().await?;
        }
        let is_id = base.len() >= 7 && base.bytes().all(|byte| byte.is_ascii_hexdigit());
        let commit = match self.git.resolve(place, &tag).await? {
            Some(commit) => Some(commit),
            None if is_id => self.git.resolve(place, base).await?,
            None => None,
        };
        if commit.is_some() {
            return Ok(Head { branch: head.branch, commit });
        }
        let list = ["for-each-ref", "--format=%(refname:lstrip=4)", &format!("{SOURCE}/heads/")];
        let branches = self.git.on(&place.keep(), list).text().await?;
        let similar = nearest(base, branches.lines());
        let similar = similar.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        Err(CheckoutError::Refused(format!(
            "`workspace.base` is `{base}`, which is no branch, tag or commit of the project's \
             repository{similar}"
        )))
    }

    /// Returns a commit with the files of the project's directory that are in no commit yet. Files
    /// that `.gitignore` or `.git/info/exclude` name are not in it.
    async fn commit_of_work_tree(
        &self,
        source: &Source,
        place: &Place,
        head: &Head,
    ) -> Result<Option<String>> {
        if source.is_bare {
            return Err(CheckoutError::Refused(
                "`workspace.base` is `working_tree`, but the project's repository has no files"
                    .to_owned(),
            ));
        }
        let format = place.format();
        let project = place.project.clone();
        let owner = source.owner;
        let excluded = source.common.join("info/exclude");
        let excluded = blocking_as(owner, move || Ok(read_text(&excluded))).await?;
        let temporary = blocking(move || {
            let excluded = excluded.as_deref().unwrap_or_default();
            let settings = Settings { format, attributes: "", excluded };
            TemporaryRepository::new(&project, owner, &settings)
        })
        .await?;
        let top = source.top.clone();
        // Another owner runs git with rights of its own.
        let look = move || Ok(if owner.is_none() { find_open(&top) } else { None });
        let open = blocking(look).await?;
        if let Some(open) = open {
            return Err(CheckoutError::Refused(advice_on_open(&source.top, &open)));
        }
        let theirs = Repository::bare(source.common.clone());
        let on_files = |arguments: &[&OsStr]| {
            self.git
                .on_tree(temporary.path(), &source.top, arguments.iter().copied())
                .variable("GIT_INDEX_FILE", temporary.path().join("index"))
                .variable("GIT_ALTERNATE_OBJECT_DIRECTORIES", theirs.as_alternate())
                .run_as(owner)
                .long()
        };
        let from = head.commit.as_deref().unwrap_or("--empty");
        on_files(&["read-tree", from].map(OsStr::new)).run().await?;
        let mut add: Vec<OsString> = ["add", "--all", "--", "."].map(OsString::from).to_vec();
        // Git runs a process in a submodule that it looks at, with settings that agents can change.
        let listed = on_files(&["ls-files", "--stage", "-z"].map(OsStr::new)).run().await?;
        let is_gitlink = |entry: &&Path| entry.as_os_str().as_bytes().starts_with(b"160000 ");
        let gitlinks = entries(&listed).filter(is_gitlink);
        let gitlinks = gitlinks.filter_map(|entry| path_in(entry.as_os_str().as_bytes()));
        add.extend(gitlinks.map(|path| excluding(&path)));
        if let Some(own) = path_within(&self.places.root, &source.top) {
            let check = ["check-ignore", "--quiet", "--"].map(OsStr::new);
            let check = check.into_iter().chain([own.as_os_str()]);
            let is_ignored = on_files(&check.collect::<Vec<_>>()).end().await?.code == Some(0);
            // Git accepts no pattern for what it ignores anyway.
            add.extend((!is_ignored).then(|| excluding(&own)));
        }
        on_files(&add.iter().map(OsString::as_os_str).collect::<Vec<_>>()).run().await?;
        let tree = on_files(&[OsStr::new("write-tree")]).text().await?;
        let sender = |pack: [&'static str; 5]| on_files(&pack.map(OsStr::new));
        let wanted = BTreeSet::from([tree.clone()]);
        let known: BTreeSet<String> = head.commit.iter().cloned().collect();
        let there = known.clone();
        let is_proof_needed = owner.is_some();
        if !is_id(&tree)
            || !self.git.take_all(place, sender, &wanted, &known, there, is_proof_needed).await?
        {
            let top = source.top.display();
            return Err(CheckoutError::Refused(format!("git does not read all files of `{top}`")));
        }
        if let Some(commit) = &head.commit {
            let committed = format!("{commit}^{{tree}}");
            let committed = self.git.on(&place.keep(), ["rev-parse", &committed]).text().await?;
            if committed == tree {
                return Ok(head.commit.clone());
            }
        }
        let message = "the project's directory, with what is in no commit\n";
        let commit = self.git.commit(place, &tree, head.commit.iter(), message, AUTHOR).await?;
        Ok(Some(commit))
    }

    /// Returns a commit that has the base and all of these results. If they conflict, it is the
    /// base alone, and the agent merges them.
    async fn with_dependencies(
        &self,
        place: &Place,
        base: Option<String>,
        results: &[String],
    ) -> Result<Option<String>> {
        let Some(mut all) = base.clone() else {
            return Ok(base);
        };
        for result in results {
            let is_there = self.git.resolve(place, result).await?.is_some();
            if !is_there || self.git.contains(place, &all, result).await? {
                continue;
            }
            if self.git.contains(place, result, &all).await? {
                all.clone_from(result);
                continue;
            }
            let is_related = self.git.on(&place.keep(), ["merge-base", &all, result]).end().await?;
            // Results without a common commit cannot be merged.
            if is_related.code == Some(1) {
                return Ok(base);
            }
            let Ok(tree) = self.git.merged_tree(place, &all, result).await? else {
                return Ok(base);
            };
            let message = "Merge the results that the task depends on\n";
            let parents = [all, result.clone()];
            all = self.git.commit(place, &tree, parents.iter(), message, AUTHOR).await?;
        }
        Ok(Some(all))
    }
}
