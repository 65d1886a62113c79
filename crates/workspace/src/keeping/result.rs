//! Finds the result of a workspace, and what its agent left beside it.

use std::collections::BTreeSet;

use crate::git::GitError;
use crate::keep_repository::SOURCE;
use crate::keeping::count;
use crate::objects::lines;
use crate::refs::Refs;
use crate::remote::FORGE;
use crate::sparse::find_made;
use crate::text::ids_of_lines;
use crate::transfer::revisions;
use crate::{CheckoutError, Clones, Place, Result};
use domain::workspace::{Content, Found, KeepOrder, NewCommits, Order, OtherTip, Tip, find_result};

/// The list of the commits that a workspace began with, in the folder `git` of a kept commit.
const BEGUN: &str = "begun";
/// The most tips of a workspace that are looked at.
const MAX_TIPS: usize = 50;
/// The most new commits that are looked at: the newest ones.
const MAX_COMMITS: u32 = 100_000;
/// The most commits whose changes are compared with those of the result.
const MAX_COMPARED: usize = 1_000;
/// The most tips beside the result that are named.
const MAX_OTHERS: usize = 20;

/// The tips of a workspace, and which of them is the result.
pub(super) struct Looked {
    pub(super) found: Found,
    /// The tips with commits that the workspace did not begin with.
    tips: Vec<Tip>,
    new: NewCommits,
    begun: BTreeSet<String>,
    /// `begun` was noted when the workspace was made.
    is_noted: bool,
    base: Option<String>,
    /// Why nothing could be found.
    pub(super) reason: Option<String>,
}

impl Looked {
    /// Returns whether a commit without anything new may be the result: one of a person's branches
    /// is not the work of the agent.
    pub(super) fn may_be_result(&self, commit: &String) -> bool {
        !self.is_noted || self.base.as_ref() == Some(commit) || !self.begun.contains(commit)
    }

    /// Returns the commits of the tips.
    pub(super) fn commits(&self) -> BTreeSet<String> {
        self.tips.iter().map(|tip| tip.commit.clone()).collect()
    }

    /// Returns the branch that names the result.
    pub(super) fn branch_at(&self, result: Option<&str>) -> Option<String> {
        let at = |tip: &&Tip| Some(tip.commit.as_str()) == result && tip.branch.is_some();
        self.tips.iter().find(at)?.branch.clone()
    }
}

impl Clones {
    /// Finds the result among what the refs of a workspace name.
    pub(super) async fn look_for_result(
        &self,
        place: &Place,
        order: &KeepOrder,
        refs: &Refs,
    ) -> Result<Looked> {
        let mut tips = refs.tips();
        let is_of_task = |tip: &Tip| tip.branch.as_ref() == Some(&order.branch);
        tips.sort_by_key(|tip| tip.place.is_none() && !is_of_task(tip));
        tips.truncate(MAX_TIPS);
        let named: BTreeSet<String> = tips.iter().map(|tip| tip.commit.clone()).collect();
        let (begun, is_noted) = self.begun(place, order).await?;
        let kinds = self.git.kinds(place, named.iter()).await?;
        let is_commit = |id: &String| kinds.get(id).is_some_and(|kind| kind == "commit");
        tips.retain(|tip| is_commit(&tip.commit));
        let most = format!("--max-count={MAX_COMMITS}");
        let list = ["rev-list", "--parents", &most, "--stdin"];
        let input = revisions(named.iter().filter(|id| is_commit(id)), &begun);
        let listed = self.git.on(&place.keep(), list).input(input).long().text().await;
        let (new, reason) = match listed.map_err(CheckoutError::from) {
            Ok(listed) => (NewCommits::parse(&listed), None),
            // A history that git cannot read is kept, but nothing can be found in it.
            Err(error) if error.is_of_content() => {
                (NewCommits::default(), Some(format!(".git/refs: {error}")))
            }
            Err(error) => return Err(error),
        };
        tips.retain(|tip| new.has(&tip.commit));
        let is_wanted = |tip: &&Tip| !order.dropped.contains(&tip.commit);
        let wanted: Vec<Tip> = tips.iter().filter(is_wanted).cloned().collect();
        let found = find_result(&order.branch, order.chosen.as_ref(), &wanted, &new);
        let base = order.base_commit.clone();
        Ok(Looked { found, tips, new, begun, is_noted, base, reason })
    }

    /// Returns the commits that a new workspace begins with beside its base: those of the branches
    /// of the source as they are now. Restored work began when it began first; `None` if that was
    /// not noted. If the restored result counts as its base, so does all that was beside it.
    pub(crate) async fn begun_for(
        &self,
        order: &Order,
        place: &Place,
    ) -> Result<Option<BTreeSet<String>>> {
        let Some(kept) = &order.restores else {
            return self.of_source_now(place, None).await.map(Some);
        };
        if kept.base_commit.is_none() {
            let (refs, _) = self.files.kept_refs(kept, place).await?;
            return Ok(Some(refs.tips().into_iter().map(|tip| tip.commit).collect()));
        }
        let about = format!("{}:git/{BEGUN}", kept.kept_commit);
        let listed = self.git.on(&place.keep(), ["cat-file", "blob", &about]).end().await?;
        // Work that an earlier version kept has no such list.
        Ok((listed.code == Some(0)).then(|| {
            let listed = String::from_utf8_lossy(&listed.stdout);
            ids_of_lines(&listed).map(str::to_owned).collect()
        }))
    }

    /// Returns the commits of the branches of the source as they are now, apart from those that
    /// contain `result`.
    async fn of_source_now(&self, place: &Place, result: Option<&str>) -> Result<BTreeSet<String>> {
        let without = result.map(|result| format!("--no-contains={result}"));
        let list = ["for-each-ref", "--format=%(objectname)"].into_iter();
        let list = list.chain(without.as_deref()).chain([SOURCE, FORGE]);
        let listed = self.git.on(&place.keep(), list).text().await?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// Returns the line of a tree that names the list of the commits that a workspace began with; no
    /// line if they were not noted.
    pub(super) async fn begun_entry(&self, place: &Place, order: &KeepOrder) -> Result<String> {
        let (begun, is_noted) = self.begun(place, order).await?;
        if !is_noted {
            return Ok(String::new());
        }
        let write = self.git.on(&place.keep(), ["hash-object", "-w", "--stdin"]);
        let blob = write.input(lines(&begun)).text().await?;
        Ok(format!("100644 blob {blob}\t{BEGUN}\n"))
    }

    /// Returns the commits that a workspace began with, as far as they are there, and whether they
    /// were noted. It began with all that they reach, too.
    async fn begun(&self, place: &Place, order: &KeepOrder) -> Result<(BTreeSet<String>, bool)> {
        let made = find_made(place)?;
        let noted = made.and_then(|made| made.begun);
        let is_noted = noted.is_some();
        let mut begun = if let Some(begun) = noted {
            begun
        } else {
            // An earlier version made it, and the source may have got its result since.
            let result = self.git.resolve(place, &format!("refs/heads/{}", order.branch)).await?;
            let result = result.filter(|result| order.base_commit.as_ref() != Some(result));
            self.of_source_now(place, result.as_deref()).await?
        };
        begun.extend(order.base_commit.clone());
        let kinds = self.git.kinds(place, begun.iter()).await?;
        begun.retain(|id| kinds.get(id).is_some_and(|kind| kind == "commit"));
        Ok((begun, is_noted))
    }

    /// Makes a commit that was kept the result of a workspace, as a person chose. The result before
    /// is beside it then.
    ///
    /// # Errors
    /// `Refused` if the commit is gone.
    pub async fn choose_result(
        &self,
        order: &KeepOrder,
        chosen: OtherTip,
        mut content: Content,
    ) -> Result<Content> {
        self.git.check().await?;
        let place = self.places.place(&order.project, &order.id);
        let _locked = self.keep.lock_keep(&order.project, &place).await?;
        if self.git.resolve(&place, &chosen.commit).await?.is_none() {
            let commit = chosen.commit;
            let keep = place.keep();
            return Err(CheckoutError::Refused(format!(
                "`{}` does not have the commit {commit}",
                keep.display()
            )));
        }
        self.git.check_commit(&place, &chosen.commit).await?;
        let base = order.base_commit.as_deref();
        let before = content.head_commit.replace(chosen.commit.clone());
        let before = before.filter(|before| base != Some(before) && !content.is_undecided);
        let branch = std::mem::replace(&mut content.found_on, chosen.branch);
        let before = before.map(|commit| OtherTip { branch, commit, n_commits: 0 });
        let (begun, _) = self.begun(&place, order).await?;
        let former = before.as_ref().map(|before| before.commit.clone());
        let all = std::mem::take(&mut content.others).into_iter().chain(before);
        for mut other in all.filter(|other| other.commit != chosen.commit) {
            let result = Some(chosen.commit.as_str());
            let is_former = former.as_ref() == Some(&other.commit);
            other.n_commits =
                self.n_more(&place, result, &other.commit, &begun, other.n_commits).await?;
            content.others.extend((other.n_commits > 0 || is_former).then_some(other));
        }
        self.git.count_changes(&place, order, Some(&chosen.commit), &mut content).await?;
        // All that can fail comes before.
        let name = format!("refs/heads/{}", order.branch);
        self.git.on(&place.keep(), ["update-ref", &name, &chosen.commit]).run().await?;
        Ok(Content { is_undecided: false, chosen: Some(chosen.commit), ..content })
    }

    /// Returns the number of commits of a tip whose changes the result lacks, apart from those that
    /// the workspace began with; `otherwise` if a comparison takes too long.
    async fn n_more(
        &self,
        place: &Place,
        result: Option<&str>,
        tip: &str,
        begun: &BTreeSet<String>,
        otherwise: u32,
    ) -> Result<u32> {
        let range = result.map_or_else(|| tip.to_owned(), |result| format!("{result}...{tip}"));
        let compare = ["rev-list", "--count", "--no-merges", "--cherry-pick", "--right-only"];
        // With a path, git leaves out commits without changes.
        let of_files = ["--full-history", "--stdin", "--", "."];
        let compare = self.git.on(&place.keep(), compare.into_iter().chain(of_files));
        match compare.input(revisions([&range], begun)).text().await.map_err(CheckoutError::from) {
            Ok(counted) => Ok(counted.parse().unwrap_or(0)),
            Err(CheckoutError::Git(GitError::TimedOut { .. })) => Ok(otherwise),
            Err(error) if error.is_of_content() => Ok(otherwise),
            Err(error) => Err(error),
        }
    }

    /// Returns the tips with changes that the result lacks; all tips if there is no result.
    pub(super) async fn others(
        &self,
        place: &Place,
        order: &KeepOrder,
        result: Option<&str>,
        looked: &Looked,
    ) -> Result<Vec<OtherTip>> {
        let is_undecided = looked.found == Found::Undecided;
        let result = result.filter(|_| !is_undecided);
        let mut others: Vec<OtherTip> = Vec::new();
        for tip in &looked.tips {
            let is_named = others.iter().any(|other| other.commit == tip.commit);
            let is_dropped = |commit: &String| order.dropped.contains(commit);
            let n_open = others.iter().filter(|other| !is_dropped(&other.commit)).count();
            let is_beyond = n_open == MAX_OTHERS && !is_dropped(&tip.commit);
            if is_named || Some(tip.commit.as_str()) == result || is_beyond {
                continue;
            }
            let n_beyond = looked.new.n_beyond(&tip.commit, result);
            let n_commits = match n_beyond {
                1..=MAX_COMPARED => {
                    self.n_more(place, result, &tip.commit, &looked.begun, count(n_beyond)).await?
                }
                n_beyond => count(n_beyond),
            };
            // A person can take a choice back, so the result before it is named, too.
            let is_former = order.chosen.is_some() && tip.branch.as_ref() == Some(&order.branch);
            if n_commits > 0 || is_former || is_undecided {
                let Tip { branch, commit, .. } = tip.clone();
                others.push(OtherTip { branch, commit, n_commits });
            }
        }
        Ok(others)
    }
}
