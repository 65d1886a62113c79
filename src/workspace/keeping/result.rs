//! Finds the result of a workspace, and what its agent left beside it.

use std::collections::BTreeSet;

use crate::domain::workspace::{
    Content, Found, KeepOrder, NewCommits, Order, OtherTip, Tip, find_result,
};
use crate::workspace::create::{MADE, read_made};
use crate::workspace::keep_repository::SOURCE;
use crate::workspace::objects::lines;
use crate::workspace::refs::{Refs, is_id};
use crate::workspace::remote::FORGE;
use crate::workspace::transfer::revisions;
use crate::workspace::{CheckoutError, Checkouts, Place};

/// The list of the commits that a workspace began with, in the folder `git` of a kept commit.
const BEGUN: &str = "begun";
/// The most tips of a workspace that are looked at.
const MAX_TIPS: usize = 200;
/// The most tips beside the result that are named.
const MAX_OTHERS: usize = 20;

/// The tips of a workspace, and which of them is the result.
pub(super) struct Looked {
    pub(super) found: Found,
    /// Those with commits that the workspace did not begin with.
    tips: Vec<Tip>,
}

impl Checkouts {
    /// Finds the result among what the refs of a workspace name.
    pub(super) async fn look_for_result(
        &self,
        place: &Place,
        order: &KeepOrder,
        refs: &Refs,
    ) -> Result<Looked, CheckoutError> {
        let mut tips = refs.tips();
        tips.truncate(MAX_TIPS);
        let named: BTreeSet<String> = tips.iter().map(|tip| tip.commit.clone()).collect();
        let begun = Self::begun(place, order)?;
        let kinds = self.kinds(place, named.union(&begun)).await?;
        let is_commit = |id: &&String| kinds.get(*id).is_some_and(|kind| kind == "commit");
        let list = ["rev-list", "--parents", "--stdin"];
        let input = revisions(named.iter().filter(is_commit), begun.iter().filter(is_commit));
        let listed = self.git.on(&place.keep(), list).input(input).long().text().await;
        let new = match listed.map_err(CheckoutError::from) {
            Ok(listed) => NewCommits::parse(&listed),
            // A history that git cannot read is kept, but nothing can be found in it.
            Err(error) if error.is_of_content() => NewCommits::default(),
            Err(error) => return Err(error),
        };
        let found = find_result(&order.branch, order.chosen.as_deref(), &tips, &new);
        tips.retain(|tip| new.has(&tip.commit));
        Ok(Looked { found, tips })
    }

    /// Returns the commits that a new workspace begins with beside its base: those of the branches
    /// of the source as they are now. Restored work began when it began first. If the restored
    /// result counts as its base, so does all that was beside it.
    pub(in crate::workspace) async fn begun_for(
        &self,
        order: &Order,
        place: &Place,
    ) -> Result<BTreeSet<String>, CheckoutError> {
        let Some(kept) = &order.restores else {
            let list = ["for-each-ref", "--format=%(objectname)", SOURCE, FORGE];
            let listed = self.git.on(&place.keep(), list).text().await?;
            return Ok(listed.lines().map(str::to_owned).collect());
        };
        if kept.base_commit.is_none() {
            let (refs, _) = self.kept_refs(kept, place).await?;
            return Ok(refs.tips().into_iter().map(|tip| tip.commit).collect());
        }
        // Work that an earlier version kept has no such list.
        let about = format!("{}:git/{BEGUN}", kept.kept_commit);
        let listed = self.git.on(&place.keep(), ["cat-file", "blob", &about]).end().await?;
        let listed = String::from_utf8_lossy(&listed.stdout);
        Ok(listed.lines().filter(|line| is_id(line)).map(str::to_owned).collect())
    }

    /// Returns the line of a tree that names the list of the commits that a workspace began with.
    pub(super) async fn begun_entry(
        &self,
        place: &Place,
        order: &KeepOrder,
    ) -> Result<String, CheckoutError> {
        let write = self.git.on(&place.keep(), ["hash-object", "-w", "--stdin"]);
        let blob = write.input(lines(&Self::begun(place, order)?)).text().await?;
        Ok(format!("100644 blob {blob}\t{BEGUN}\n"))
    }

    /// Returns the commits that a workspace began with. It began with all that they reach, too.
    fn begun(place: &Place, order: &KeepOrder) -> Result<BTreeSet<String>, CheckoutError> {
        let mut begun: BTreeSet<String> = order.base_commit.iter().cloned().collect();
        if place.folder.join(MADE).exists() {
            begun.append(&mut read_made(place)?.begun);
        }
        Ok(begun)
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
    ) -> Result<Content, CheckoutError> {
        self.git.check().await?;
        let place = self.place(&order.project, &order.id);
        let _locked = self.lock_keep(&order.project, &place).await?;
        if self.resolve(&place, &chosen.commit).await?.is_none() {
            let commit = chosen.commit;
            let keep = place.keep();
            return Err(CheckoutError::Refused(format!(
                "`{}` does not have the commit {commit}",
                keep.display()
            )));
        }
        let name = format!("refs/heads/{}", order.branch);
        self.git.on(&place.keep(), ["update-ref", &name, &chosen.commit]).run().await?;
        let base = order.base_commit.as_deref();
        let before = content.head_commit.replace(chosen.commit.clone());
        let before = before.filter(|before| base != Some(before) && *before != chosen.commit);
        let branch = Some(order.branch.clone());
        let before = before.map(|commit| OtherTip { branch, commit, n_commits: 0 });
        let all = content.others.into_iter().chain(before);
        content.others = Vec::new();
        for mut other in all.filter(|other| other.commit != chosen.commit) {
            other.n_commits = self.n_more(&place, Some(&chosen.commit), &other.commit).await?;
            content.others.extend((other.n_commits > 0).then_some(other));
        }
        self.count_changes(&place, base, Some(&chosen.commit), &mut content).await?;
        Ok(Content { is_undecided: false, chosen: Some(chosen.commit), ..content })
    }

    /// Returns the number of commits of a tip whose changes the result lacks.
    async fn n_more(
        &self,
        place: &Place,
        result: Option<&str>,
        tip: &str,
    ) -> Result<u32, CheckoutError> {
        let range = result.map(|result| format!("{result}...{tip}"));
        let range = range.as_deref().unwrap_or(tip);
        let count = ["rev-list", "--count", "--no-merges", "--cherry-pick", "--right-only"];
        let count = self.git.on(&place.keep(), count.into_iter().chain([range]));
        Ok(count.long().text().await?.parse().unwrap_or(0))
    }

    /// Returns the tips with changes that the result lacks.
    pub(super) async fn others(
        &self,
        place: &Place,
        result: Option<&str>,
        looked: &Looked,
    ) -> Result<Vec<OtherTip>, CheckoutError> {
        let mut others: Vec<OtherTip> = Vec::new();
        for tip in &looked.tips {
            let is_named = others.iter().any(|other| other.commit == tip.commit);
            if is_named || Some(tip.commit.as_str()) == result || others.len() == MAX_OTHERS {
                continue;
            }
            let n_commits = self.n_more(place, result, &tip.commit).await?;
            if n_commits > 0 {
                let Tip { branch, commit, .. } = tip.clone();
                others.push(OtherTip { branch, commit, n_commits });
            }
        }
        Ok(others)
    }
}
