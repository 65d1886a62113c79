//! Brings kept content back: into a new workspace, or into another new folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::git::{Call, Git};
use super::inside::Inside;
use super::keep_repository::ATTRIBUTES;
use super::refs::Refs;
use super::rights::{Owner, blocking_as};
use super::source::entries;
use super::temporary::{Settings, TemporaryRepository};
use super::text::ref_of_head;
use super::{Place, Result, WorkFiles, blocking};
use domain::workspace::{Order, Restored};

impl WorkFiles {
    /// Writes the files of the kept state that the order names, if it names one, over those of a
    /// new workspace, and makes the repositories inside again.
    pub(super) async fn bring_back(&self, order: &Order, place: &Place, tree: &Path) -> Result<()> {
        if let Some(kept) = &order.restores {
            let owner = place.user_of_order(order);
            let writer = self.write_kept(&kept.kept_commit, place, tree, owner).await?;
            self.restore_repositories(place, tree, &writer).await?;
        }
        Ok(())
    }

    /// Gives a new repository the branches, the tags, the stash and the HEAD of the kept state.
    /// `own_branches` are those of the task, at that time and now. The latter is at the result. If it
    /// was at files or commits of its own, it is again, and the result has a branch beside it. Refs that git does not
    /// accept stay in the kept commit alone.
    pub(super) async fn restore_refs(
        &self,
        kept: &Restored,
        own_branches: [&String; 2],
        place: &Place,
        own: &Path,
        owner: Option<Owner>,
    ) -> Result<()> {
        let (refs, kinds) = self.kept_refs(kept, place).await?;
        let on_own = |arguments: &[&str]| self.git.on(own, arguments.iter().copied()).run_as(owner);
        let is_commit = |id: &String| kinds.get(id).is_some_and(|kind| kind == "commit");
        let is_wanted = |name: &str| {
            let branch = name.strip_prefix("refs/heads/");
            let is_other =
                branch.is_some_and(|branch| own_branches.iter().all(|own| *own != branch));
            is_other || name.starts_with("refs/tags/") || name == "refs/stash"
        };
        let is_there = |(name, id): &(&String, &String)| {
            is_wanted(name) && !name.contains(char::is_whitespace) && kinds.contains_key(*id)
        };
        let changes = refs.iter().filter(is_there);
        let changes: Vec<String> =
            changes.map(|(name, id)| format!("create {name} {id}\n")).collect();
        let all = on_own(&["update-ref", "--stdin"]).input(changes.concat()).end().await?;
        if all.code != Some(0) {
            for change in changes {
                on_own(&["update-ref", "--stdin"]).input(change).end().await?;
            }
        }
        let [own_before, own_now] = own_branches;
        let head = refs.head.as_deref().map(str::trim).unwrap_or_default();
        let is_here = head.strip_prefix("ref: refs/heads/") == Some(own_before.as_str());
        let at = refs.branch(own_before).filter(|at| is_commit(at));
        if let (Some(at), Some(result)) = (at, &kept.head_commit)
            && at != result
            && (is_here || !self.git.contains(place, result, at).await?)
            && self.git.check_commit(place, at).await.is_ok()
        {
            on_own(&["update-ref", &format!("refs/heads/{own_now}"), at]).run().await?;
            let named = on_own(&["for-each-ref", "--points-at", result]).text().await?;
            if named.is_empty() {
                let beside = format!("refs/heads/{own_now}-result");
                on_own(&["update-ref", &beside, result]).run().await?;
            }
        }
        if let Some(name) = ref_of_head(head) {
            let find = ["show-ref", "--verify", "--quiet", name];
            if !is_wanted(name) || !refs.iter().any(|(other, _)| other == name) {
                return Ok(());
            }
            if on_own(&find).end().await?.code == Some(0) {
                on_own(&["symbolic-ref", "HEAD", name]).end().await?;
                return Ok(());
            }
        }
        if let Some(at) = refs.head_commit().filter(|at| is_commit(at)) {
            on_own(&["update-ref", "--no-deref", "HEAD", at]).end().await?;
        }
        Ok(())
    }

    /// Returns the refs of a kept state, and the kinds of the objects that they name and that
    /// exist.
    pub(super) async fn kept_refs(
        &self,
        kept: &Restored,
        place: &Place,
    ) -> Result<(Refs, BTreeMap<String, String>)> {
        let about = format!("{}:git/refs", kept.kept_commit);
        let text = self.git.on(&place.keep(), ["cat-file", "blob", &about]).long().run().await?;
        let refs = Refs::from_kept(&String::from_utf8_lossy(&text));
        let kinds = self.git.kinds(place, refs.named.iter()).await?;
        Ok((refs, kinds))
    }

    /// Writes the files of a kept commit over those of a new workspace, as they were, as the owner
    /// of the workspace. Returns what more of the commit can be written with.
    pub(super) async fn write_kept(
        &self,
        kept: &str,
        place: &Place,
        tree: &Path,
        owner: Option<Owner>,
    ) -> Result<Writer<'_>> {
        let owner = place.user_of(owner);
        let format = place.format();
        let settings = Settings { format, attributes: ATTRIBUTES, excluded: "" };
        let project = place.project.clone();
        let temporary =
            blocking(move || TemporaryRepository::new(&project, owner, &settings)).await?;
        let find = ["rev-parse", "--verify", "--end-of-options", &format!("{kept}^{{tree}}")];
        let content = self.git.on(&place.keep(), find).text().await?;
        let writer = Writer { git: &self.git, temporary, owner, keep: place.keep(), content };
        if owner.is_some() {
            // Another user cannot read the keep repository.
            let receive = |unpack: [&'static str; 3]| {
                self.git.on(writer.temporary.path(), unpack).run_as(owner)
            };
            self.git.give_pack(place, format!("{}\n", writer.content), receive).await?;
        }
        writer.on(tree, &["read-tree", &format!("{}:worktree", writer.content)]).run().await?;
        // Files that the work had deleted go away, too.
        let extra = writer.on(tree, &["ls-files", "--others", "-z"]).run().await?;
        let top = tree.to_owned();
        blocking_as(owner, move || {
            let inside = Inside::open(&top)?;
            let mut extra = entries(&extra).filter(|path| !path.starts_with(".git"));
            extra.try_for_each(|path| inside.remove_file(path))
        })
        .await?;
        writer.on(tree, &["checkout-index", "--all", "--force"]).run().await?;
        self.write_parts(place, tree, &writer).await?;
        Ok(writer)
    }
}

/// Writes the files of a kept commit.
pub(super) struct Writer<'a> {
    git: &'a Git,
    temporary: TemporaryRepository,
    pub(super) owner: Option<Owner>,
    keep: PathBuf,
    /// The tree of the commit.
    pub(super) content: String,
}

impl Writer<'_> {
    /// Begins a call that can read all objects of the commit, on the files below `top`. All calls
    /// have the same index.
    pub(super) fn on(&self, top: &Path, arguments: &[&str]) -> Call<'_> {
        let path = self.temporary.path();
        let call = self.git.on_tree(path, top, arguments.iter().copied()).long();
        let call = call.variable("GIT_INDEX_FILE", path.join("index")).run_as(self.owner);
        match self.owner {
            Some(_) => call,
            None => call.variable("GIT_OBJECT_DIRECTORY", self.keep.join("objects")),
        }
    }
}
