//! The earlier merges of a workspace's results.
//!
//! Each merge is noted in the keep repository before the source gets it, under
//! `refs/agent-coordinator/merged/<branch>/<number>`. The note is a commit whose subject names the
//! new commit of the source, the result, the commit of the branch before, and the branch. A merge
//! has taken place if the branch contains its new commit.

use std::path::PathBuf;

use super::{BranchMove, MergeOrder, Merged, ON_THE_WAY, Sides};
use crate::source::Source;
use crate::text::is_id;
use crate::{Clones, Git, Place, Result, Results};
use domain::workspace::{Commit, EarlierMerges, REVERTS, Repeat, Reverted, find_reverted};
use domain::{ProjectId, WorkspaceId};

/// The most recent merges that are looked at.
const MAX_NOTED: usize = 100;
/// The most commits of a merge of which a revert is looked for: the newest ones.
const MAX_BROUGHT: u32 = 10_000;
/// The most bytes of commits that are looked at for reverts.
const MAX_LISTED: u64 = 16 * 1024 * 1024;

/// A merge whose revert is looked for.
#[derive(Debug, Clone)]
pub struct RevertOrder {
    pub id: WorkspaceId,
    pub project: ProjectId,
    /// The branch of the task.
    pub branch: String,
    /// The directory of the project.
    pub source: PathBuf,
    /// The branch of the source that the work began at, as a full ref. It has the merge if the note
    /// about that does not say another one.
    pub base_ref: Option<String>,
    /// The commit by which the result came into the source.
    pub merge: String,
}

/// A revert of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRevert {
    /// The branch that has the merge and its revert.
    pub branch: String,
    /// The commit that undoes the merge.
    pub by: String,
}

/// A merge that was made.
#[derive(Debug)]
pub(super) struct Noted {
    number: u32,
    new: String,
    pub(super) result: String,
    pub(super) target: String,
    /// The branch of the source; `None` if an earlier version made the merge.
    into: Option<String>,
}

/// Returns the beginning of the names of the notes about the merges of a branch. A slash and the
/// number of the merge follow.
pub(crate) fn merged_ref(branch: &str) -> String {
    format!("refs/agent-coordinator/merged/{branch}")
}

impl Noted {
    /// Parses the number of a note, and its subject.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        // A longer name is of another branch.
        let number = words.next()?.strip_prefix('/')?.parse().ok()?;
        let mut next = || words.next().map(str::to_owned);
        Some(Self { number, new: next()?, result: next()?, target: next()?, into: next() })
    }
}

impl Results {
    /// Notes a merge of the result of a task into a branch of the source. `branch` is that of the
    /// task.
    pub(super) async fn note_merge(
        &self,
        place: &Place,
        branch: &str,
        result: &str,
        moved: BranchMove<'_>,
    ) -> Result<()> {
        let BranchMove { branch: into, target, new } = moved;
        let number = self.git.noted(place, branch).await?.first().map_or(1, |last| last.number + 1);
        let tree = format!("{new}^{{tree}}");
        let mut parents = vec![new.clone(), result.to_owned()];
        // A branch without commits has none before.
        parents.extend(self.git.resolve(place, target).await?);
        let subject = format!("{new} {result} {target} {into}\n");
        let note = self.git.commit(place, &tree, parents.iter(), &subject, ON_THE_WAY).await?;
        let name = format!("{}/{number}", merged_ref(branch));
        self.git.on(&place.keep(), ["update-ref", &name, &note]).run().await?;
        Ok(())
    }

    /// Returns the earlier merges of a result that the branch at `target` has.
    pub(super) async fn earlier_merges(
        &self,
        order: &MergeOrder,
        place: &Place,
        target: &str,
        result: &str,
    ) -> Result<EarlierMerges> {
        let has_result = self.git.contains(place, target, result).await?;
        // A person who wants only the newer changes does not want the reverted ones.
        let reverted = match order.repeat {
            Repeat::OnlyNew => Vec::new(),
            Repeat::Once | Repeat::Again => self.reverted_on(place, target, result).await?,
        };
        let mut found = EarlierMerges { has_result, ..EarlierMerges::default() };
        // The merges of which nothing is undone, the newest first.
        let mut valid: Vec<Noted> = Vec::new();
        for noted in self.merges_on(order, place, target, result).await? {
            found.begin = self.git.common(place, &noted.target, result).await?;
            let Some(undone) = self.undone_of(place, &noted, &reverted).await? else {
                valid.push(noted);
                continue;
            };
            // A later merge knew of the revert.
            let is_settled = match valid.first() {
                Some(later) => self.git.contains(place, &later.new, &undone.by).await?,
                None => false,
            };
            if !is_settled && found.reverted.is_none() {
                found.reverted = Some(undone);
            }
        }
        for Noted { new, result: merged, .. } in valid {
            // A merge with more, such as files in no commit, brought the result, too.
            if self.git.contains(place, &merged, result).await? {
                found.stood_for = Some(result.to_owned());
                break;
            }
            let is_part = self.git.contains(place, result, &merged).await?;
            let is_known = self.git.contains(place, result, &new).await?;
            if is_part && !is_known && !self.git.contains(place, target, &merged).await? {
                found.stood_for = Some(merged);
                break;
            }
        }
        Ok(found)
    }

    /// Returns the end of a merge for which the branch at `target` had the result before.
    pub(super) async fn already(
        &self,
        order: &MergeOrder,
        sides: &Sides<'_>,
        branch: String,
        target: &str,
    ) -> Result<Merged> {
        let Sides { place, result, .. } = *sides;
        let mut merge = None;
        for noted in self.merges_on(order, place, target, result).await? {
            if self.git.contains(place, &noted.result, result).await? {
                merge = Some(noted.new);
                break;
            }
        }
        Ok(Merged::Already { branch, commit: target.to_owned(), merge })
    }

    /// Returns the merges whose commit the branch at `target` has, the newest first. One that an
    /// earlier version made is not noted.
    async fn merges_on(
        &self,
        order: &MergeOrder,
        place: &Place,
        target: &str,
        result: &str,
    ) -> Result<Vec<Noted>> {
        let mut all = self.git.noted(place, &order.branch).await?;
        if let Some(new) = order.merged.as_ref().filter(|_| all.is_empty()) {
            let [new, result, target] = [new, result, &format!("{new}^1")].map(str::to_owned);
            all.push(Noted { number: 0, new, result, target, into: None });
        }
        let mut found = Vec::new();
        for noted in all {
            if found.len() < MAX_NOTED && self.git.contains(place, target, &noted.new).await? {
                found.push(noted);
            }
        }
        Ok(found)
    }

    /// Returns the commit of the source that undoes a merge, or one of the commits that the merge
    /// brought. It is on the branch that got the result.
    ///
    /// # Errors
    /// Git cannot be run, or does not know the merge.
    pub async fn revert_of(&self, order: &RevertOrder) -> Result<Option<FoundRevert>> {
        self.git.check().await?;
        let RevertOrder { id, project, branch, source, base_ref, merge } = order;
        let place = self.places.place(project, id);
        let all = self.git.noted(&place, branch).await?;
        let noted = all.iter().find(|noted| noted.new == *merge);
        let base = base_ref.as_deref().and_then(|name| name.strip_prefix("refs/heads/"));
        let Some(into) = noted.and_then(|noted| noted.into.as_deref()).or(base) else {
            return Ok(None);
        };
        let source = Source::of_folder(source).await?;
        let range = format!("{merge}..refs/heads/{into}");
        let call = source.git(&self.git, list_reverts(&range)).long().cut_at(MAX_LISTED);
        let reverted = find_reverted(&parse_commits(&call.end().await?.stdout));
        if reverted.is_empty() {
            return Ok(None);
        }
        let brought = match noted {
            Some(noted) => self.brought_by(&place, noted).await?,
            // A version before the notes made it.
            None => vec![merge.clone()],
        };
        let is_brought = |it: &&Reverted| brought.iter().any(|id| id.starts_with(&it.commit));
        let found = reverted.iter().find(is_brought);
        Ok(found.map(|it| FoundRevert { branch: into.to_owned(), by: it.by.clone() }))
    }

    /// Returns what is undone on the branch at `target`, as far as the result does not know of it.
    async fn reverted_on(
        &self,
        place: &Place,
        target: &str,
        result: &str,
    ) -> Result<Vec<Reverted>> {
        let range = format!("{result}..{target}");
        let call = self.git.on(&place.keep(), list_reverts(&range)).long().cut_at(MAX_LISTED);
        Ok(find_reverted(&parse_commits(&call.end().await?.stdout)))
    }

    /// Returns a commit that a merge brought and that is undone.
    async fn undone_of(
        &self,
        place: &Place,
        noted: &Noted,
        reverted: &[Reverted],
    ) -> Result<Option<Reverted>> {
        if reverted.is_empty() {
            return Ok(None);
        }
        for commit in self.brought_by(place, noted).await? {
            let Some(one) = reverted.iter().find(|it| commit.starts_with(&it.commit)) else {
                continue;
            };
            // The merge itself brought that revert, which the agent made.
            if !self.git.contains(place, &noted.new, &one.by).await? {
                return Ok(Some(Reverted { commit, by: one.by.clone() }));
            }
        }
        Ok(None)
    }

    /// Returns the newest commits that a merge brought.
    async fn brought_by(
        &self,
        place: &Place,
        Noted { new, target, .. }: &Noted,
    ) -> Result<Vec<String>> {
        let range = match self.git.resolve(place, target).await? {
            Some(target) => format!("{target}..{new}"),
            None => new.clone(),
        };
        let most = format!("--max-count={MAX_BROUGHT}");
        let list = ["rev-list", &most, &range];
        let listed = self.git.on(&place.keep(), list).long().text().await?;
        Ok(listed.lines().map(str::to_owned).collect())
    }
}

impl Git {
    /// Returns the notes about merges, the newest first.
    pub(super) async fn noted(&self, place: &Place, branch: &str) -> Result<Vec<Noted>> {
        let names = merged_ref(branch);
        let list = ["for-each-ref", "--format=%(refname) %(subject)", &names];
        let listed = self.on(&place.keep(), list).text().await?;
        let lines = listed.lines().filter_map(|line| line.strip_prefix(&names));
        let mut noted: Vec<Noted> = lines.filter_map(Noted::parse).collect();
        noted.sort_by_key(|it| std::cmp::Reverse(it.number));
        Ok(noted)
    }
}

impl Clones {
    /// Gives a branch the notes of another one, whose result it has.
    pub(crate) async fn carry_notes(&self, from: &str, to: &str, place: &Place) -> Result<()> {
        let names = [merged_ref(from)];
        for (name, note) in self.git.refs_below(place, &names).await? {
            let number = name.trim_start_matches(names[0].as_str());
            let new = format!("{}{number}", merged_ref(to));
            self.git.on(&place.keep(), ["update-ref", &new, &note]).run().await?;
        }
        Ok(())
    }
}

/// Returns the arguments with which git lists the commits in a range that may revert others. A
/// signature is not looked at, because that runs a program which the repository names.
fn list_reverts(range: &str) -> impl Iterator<Item = String> {
    let list = ["log", "--no-show-signature", "--topo-order", "-z", "--format=%H%n%B"];
    let grep = format!("--grep={REVERTS}");
    let which = ["--fixed-strings", &grep, range, "--"].map(str::to_owned);
    list.map(str::to_owned).into_iter().chain(which)
}

/// Parses what git lists. It may be cut, and another user may have answered.
fn parse_commits(listed: &[u8]) -> Vec<Commit> {
    let parse = |entry: &str| {
        let (id, message) = entry.split_once('\n')?;
        is_id(id).then(|| Commit { id: id.to_owned(), message: message.to_owned() })
    };
    String::from_utf8_lossy(listed).split('\0').filter_map(parse).collect()
}
