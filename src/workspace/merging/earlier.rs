//! The earlier merges of a workspace's results.
//!
//! Each merge is noted in the keep repository before the source gets it, under
//! `refs/agent-coordinator/merged/<branch>/<number>`. The note is a commit whose subject names the
//! new commit of the source, the result, and the commit of the branch before. A merge has taken
//! place if the branch contains its new commit.

use std::path::Path;

use super::{MergeOrder, ON_THE_WAY};
use crate::domain::workspace::{Commit, EarlierMerges, Reverted, find_reverted};
use crate::workspace::source::Source;
use crate::workspace::{CheckoutError, Checkouts, Place};

/// The most recent merges that are looked at.
const MAX_NOTED: usize = 100;

/// A merge that was made.
#[derive(Debug)]
struct Noted {
    number: u32,
    new: String,
    result: String,
    target: String,
}

/// Returns the names of the notes about the merges of a branch, up to the number.
pub(in crate::workspace) fn merged_ref(branch: &str) -> String {
    format!("refs/agent-coordinator/merged/{branch}")
}

impl Noted {
    /// Parses the number of a note, and its subject.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        // A longer name is of another branch.
        let number = words.next()?.strip_prefix('/')?.parse().ok()?;
        let mut next = || words.next().map(str::to_owned);
        Some(Self { number, new: next()?, result: next()?, target: next()? })
    }
}

impl Checkouts {
    /// Notes a merge: the new commit, the result and the commit of the branch before.
    pub(super) async fn note_merge(
        &self,
        place: &Place,
        branch: &str,
        commits: [&String; 3],
    ) -> Result<(), CheckoutError> {
        let [new, result, target] = commits;
        let number = self.noted(place, branch).await?.first().map_or(1, |last| last.number + 1);
        let tree = format!("{new}^{{tree}}");
        let is_first = self.resolve(place, target).await?.is_none();
        let parents = commits.into_iter().filter(|commit| !(is_first && *commit == target));
        let subject = format!("{new} {result} {target}\n");
        let note = self.commit(place, &tree, parents, &subject, ON_THE_WAY).await?;
        let name = format!("{}/{number}", merged_ref(branch));
        self.git.on(&place.keep(), ["update-ref", &name, &note]).run().await?;
        Ok(())
    }

    /// Returns the notes about merges, the newest first.
    async fn noted(&self, place: &Place, branch: &str) -> Result<Vec<Noted>, CheckoutError> {
        let names = merged_ref(branch);
        let list = ["for-each-ref", "--format=%(refname) %(subject)", &names];
        let listed = self.git.on(&place.keep(), list).text().await?;
        let lines = listed.lines().filter_map(|line| line.strip_prefix(&names));
        let mut noted: Vec<Noted> = lines.filter_map(Noted::parse).collect();
        noted.sort_by_key(|it| std::cmp::Reverse(it.number));
        noted.truncate(MAX_NOTED);
        Ok(noted)
    }

    /// Returns the earlier merges of a result that the branch at `target` has.
    pub(super) async fn earlier_merges(
        &self,
        order: &MergeOrder,
        place: &Place,
        target: &str,
        result: &str,
    ) -> Result<EarlierMerges, CheckoutError> {
        let has_result = self.contains(place, target, result).await?;
        let reverted = self.reverted_on(place, target, result).await?;
        let mut found = EarlierMerges { has_result, ..EarlierMerges::default() };
        // The newest merge of which nothing is undone.
        let mut valid: Option<Noted> = None;
        for noted in self.noted(place, &order.branch).await? {
            if !self.contains(place, target, &noted.new).await? {
                continue;
            }
            let undone = self.undone_of(place, &noted, &reverted).await?;
            let Some(undone) = undone else {
                valid = valid.or(Some(noted));
                continue;
            };
            // A later merge knew of the revert.
            let is_settled = match &valid {
                Some(valid) => self.contains(place, &valid.new, &undone.by).await?,
                None => false,
            };
            let is_whole = self.contains(place, &noted.new, &noted.result).await?;
            if is_whole && !is_settled && found.reverted.is_none() {
                found.reverted = Some(undone);
            }
        }
        if let Some(Noted { new, result: stood_for, .. }) = valid {
            let is_known = self.contains(place, result, &new).await?;
            let is_part = self.contains(place, result, &stood_for).await?;
            let is_there = self.contains(place, target, &stood_for).await?;
            found.stood_for = (is_part && !is_known && !is_there).then_some(stood_for);
        }
        Ok(found)
    }

    /// Returns the commit of a branch of the source that undoes a merge.
    ///
    /// # Errors
    /// Git cannot be run, or does not know the branch or the merge.
    pub async fn revert_of(
        &self,
        source: &Path,
        branch: &str,
        merge: &str,
    ) -> Result<Option<String>, CheckoutError> {
        self.git.check().await?;
        let source = Source::of_folder(source).await?;
        let range = format!("{merge}..{branch}");
        let listed = source.git(&self.git, list_reverts(&range)).long().text().await?;
        let found = find_reverted(&parse_commits(&listed)).into_iter();
        let mut of_merge = found.filter(|it| merge.starts_with(&it.commit));
        Ok(of_merge.next().map(|it| it.by))
    }

    /// Returns what is undone on the branch at `target`, as far as the result does not know of it.
    async fn reverted_on(
        &self,
        place: &Place,
        target: &str,
        result: &str,
    ) -> Result<Vec<Reverted>, CheckoutError> {
        let range = format!("{result}..{target}");
        let call = self.git.on(&place.keep(), list_reverts(&range));
        Ok(find_reverted(&parse_commits(&call.long().text().await?)))
    }

    /// Returns a commit that a merge brought and that is undone.
    async fn undone_of(
        &self,
        place: &Place,
        noted: &Noted,
        reverted: &[Reverted],
    ) -> Result<Option<Reverted>, CheckoutError> {
        if reverted.is_empty() {
            return Ok(None);
        }
        let Noted { new, target, .. } = noted;
        let range = match self.resolve(place, target).await? {
            Some(target) => format!("{target}..{new}"),
            None => new.clone(),
        };
        let listed = self.git.on(&place.keep(), ["rev-list", &range]).long().text().await?;
        let undone = listed.lines().find_map(|commit| {
            let one = reverted.iter().find(|it| commit.starts_with(&it.commit))?;
            Some(Reverted { commit: commit.to_owned(), by: one.by.clone() })
        });
        Ok(undone)
    }
}

/// Returns the arguments with which git lists the commits in a range that may revert others.
fn list_reverts(range: &str) -> [&str; 8] {
    let grep = "--grep=This reverts commit ";
    ["log", "--topo-order", "-z", "--format=%H%n%B", "--fixed-strings", grep, range, "--"]
}

fn parse_commits(listed: &str) -> Vec<Commit> {
    let parse = |entry: &str| {
        let (id, message) = entry.split_once('\n')?;
        Some(Commit { id: id.to_owned(), message: message.to_owned() })
    };
    listed.split('\0').filter_map(parse).collect()
}
