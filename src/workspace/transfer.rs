//! Moves objects between the repository of a person and the keep repository.
//!
//! Neither side opens files of the other one. Git packs the objects as the owner of the side that
//! has them, and takes them from a pipe as the owner of the other side. A person is never given
//! more than the history of one result.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::git::{Call, GitError};
use super::keep_repository::{SOURCE, remove_temporary};
use super::objects::lines;
use super::refs::{is_id, read_text};
use super::rights::blocking_as;
use super::source::{Head, Source};
use super::{CheckoutError, Checkouts, Place, write};
use crate::sys::user_names::name_of;

/// Packs the objects that revisions of the standard input reach.
const PACK: [&str; 6] =
    ["pack-objects", "--quiet", "--revs", "--stdout", "--thin", "--delta-base-offset"];
/// Takes such a pack.
const UNPACK: [&str; 4] = ["index-pack", "--stdin", "--fix-thin", MAX_PACK];
/// The largest pack: 64 GiB.
const MAX_PACK: &str = "--max-input-size=68719476736";

/// Returns the lines that name what is wanted, and what is there.
pub(super) fn revisions<'a>(
    wanted: impl IntoIterator<Item = &'a String>,
    known: impl IntoIterator<Item = &'a String>,
) -> String {
    let mut input = lines(wanted);
    input.extend(known.into_iter().flat_map(|id| ["^", id, "\n"]));
    input
}

impl Checkouts {
    /// Brings the branches and the HEAD of the source into the keep repository, unless they are
    /// there. Branches that the source has no more stay.
    pub(super) async fn bring_branches(
        &self,
        source: &Source,
        place: &Place,
        head: &Head,
    ) -> Result<(), CheckoutError> {
        let mut theirs: BTreeMap<String, String> = self.branches_of(source).await?;
        theirs = theirs.into_iter().map(|(name, id)| (format!("heads/{name}"), id)).collect();
        theirs.extend(head.commit.clone().map(|commit| ("HEAD".to_owned(), commit)));
        let ours = self.followed(place).await?;
        let is_new = |(name, id): &(&String, &String)| ours.get(*name) != Some(*id);
        let new: Vec<(&String, &String)> = theirs.iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        let known: BTreeSet<String> = ours.into_values().collect();
        let wanted = theirs.values().filter(|id| !known.contains(*id)).cloned().collect();
        self.bring(source, place, &wanted, &known).await?;
        let mut changes = String::new();
        for (name, id) in new {
            let _ = writeln!(changes, "update {SOURCE}/{name} {id}");
        }
        self.git.on(&place.keep(), ["update-ref", "--stdin"]).input(changes).run().await?;
        Ok(())
    }

    /// Returns the refs of the keep repository that follow those of the source, below `refs/`. The
    /// keep repository has all that they reach.
    pub(super) async fn followed(
        &self,
        place: &Place,
    ) -> Result<BTreeMap<String, String>, CheckoutError> {
        let list = ["for-each-ref", "--format=%(objectname) %(refname)", SOURCE];
        let listed = self.git.on(&place.keep(), list).text().await?;
        let refs = listed.lines().filter_map(|line| line.split_once(' '));
        let below = |name: &str| Some(name.strip_prefix(SOURCE)?.strip_prefix('/')?.to_owned());
        Ok(refs.filter_map(|(id, name)| Some((below(name)?, id.to_owned()))).collect())
    }

    /// Brings all that `wanted` reach into the keep repository, which has all that `known` reach.
    ///
    /// # Errors
    /// Each error of git, also if the source lacks some of it.
    pub(super) async fn bring(
        &self,
        source: &Source,
        place: &Place,
        wanted: &BTreeSet<String>,
        known: &BTreeSet<String>,
    ) -> Result<(), CheckoutError> {
        self.note_shallow(source, place).await?;
        if wanted.is_empty() || self.is_complete(place, wanted, known).await? {
            return Ok(());
        }
        let check = ["cat-file", "--batch-check=%(objectname)"];
        let there = source.git(&self.git, check).input(lines(known)).text().await?;
        let there: BTreeSet<String> =
            there.lines().filter(|line| is_id(line)).map(str::to_owned).collect();
        let there: Vec<&String> = known.intersection(&there).collect();
        let mut sent = self.send(source, place, revisions(wanted, there.iter().copied())).await;
        if matches!(sent, Err(GitError::Failed { .. })) && !there.is_empty() {
            // The source may lack a part of what it once had.
            sent = self.send(source, place, lines(wanted)).await;
        }
        sent?;
        if self.is_complete(place, wanted, known).await? {
            return Ok(());
        }
        Err(CheckoutError::Refused(format!(
            "`{}` lacks objects that its branches reach; run `git fsck` there",
            source.top.display()
        )))
    }

    async fn send(&self, source: &Source, place: &Place, input: String) -> Result<(), GitError> {
        let to = self.git.on(&place.keep(), UNPACK);
        let sent = source.git(&self.git, PACK).input(input).long().send_to(to).await;
        if sent.is_err() {
            // No other call writes into the repository meanwhile.
            remove_temporary(&place.keep().join("objects"));
        }
        sent
    }

    /// Returns whether the keep repository has all that `wanted` reach. It has what `known` reach.
    async fn is_complete(
        &self,
        place: &Place,
        wanted: &BTreeSet<String>,
        known: &BTreeSet<String>,
    ) -> Result<bool, CheckoutError> {
        let list = ["rev-list", "--objects", "--quiet", "--stdin"];
        let list = self.git.on(&place.keep(), list).input(revisions(wanted, known)).long();
        Ok(list.end().await?.code == Some(0))
    }

    /// Brings all that those of `named` reach that the source has. The keep repository has all that
    /// the snapshot `last` reaches.
    pub(super) async fn bring_named(
        &self,
        source: &Source,
        place: &Place,
        named: &BTreeSet<String>,
        last: Option<&str>,
    ) -> Result<(), CheckoutError> {
        let last: BTreeSet<String> = last.into_iter().map(str::to_owned).collect();
        let mut known = BTreeSet::new();
        for last in &last {
            let parents = self.git.on(&place.keep(), ["rev-parse", &format!("{last}^@")]);
            known.extend(parents.text().await?.lines().map(str::to_owned));
        }
        let check = ["cat-file", "--batch-check=%(objectname)"];
        let asked = source.git(&self.git, check).input(lines(named.union(&known))).long();
        let there = asked.text().await?;
        let there: BTreeSet<String> =
            there.lines().filter(|line| is_id(line)).map(str::to_owned).collect();
        let wanted: BTreeSet<String> = named.intersection(&there).cloned().collect();
        if wanted.is_empty() || self.is_complete(place, &wanted, &last).await? {
            return Ok(());
        }
        let input = revisions(&wanted, known.intersection(&there));
        let to = self.git.on(&place.keep(), UNPACK);
        let pack = PACK.into_iter().chain(["--missing=allow-any"]);
        source.git(&self.git, pack).input(input).long().send_to(to).await?;
        Ok(())
    }

    /// Gives the source all that a commit of the keep repository reaches.
    ///
    /// # Errors
    /// `Refused` with the remedy if the owner of the source cannot write there.
    pub(super) async fn give(
        &self,
        source: &Source,
        place: &Place,
        commit: &String,
    ) -> Result<(), CheckoutError> {
        let theirs = self.branches_of(source).await?;
        let theirs: BTreeSet<String> = theirs.into_values().collect();
        let known = self.kinds(place, theirs.iter()).await?;
        let input = revisions([commit], known.keys());
        let to = source.git(&self.git, UNPACK);
        let given = self.git.on(&place.keep(), PACK).input(input).long().send_to(to).await;
        given.map_err(|error| source.explain(error))
    }

    /// Sends what revisions reach in a repository that `sender` is about, into the keep repository.
    pub(super) async fn take_pack<'a>(
        &'a self,
        place: &Place,
        sender: impl FnOnce([&'static str; 6]) -> Call<'a>,
        input: String,
    ) -> Result<(), CheckoutError> {
        let to = self.git.on(&place.keep(), UNPACK);
        Ok(sender(PACK).input(input).long().send_to(to).await?)
    }

    /// Sends what revisions of the keep repository reach to `receiver`.
    pub(super) async fn give_pack<'a>(
        &'a self,
        place: &Place,
        input: String,
        receiver: impl FnOnce([&'static str; 4]) -> Call<'a>,
    ) -> Result<(), CheckoutError> {
        Ok(self.git.on(&place.keep(), PACK).input(input).long().send_to(receiver(UNPACK)).await?)
    }

    /// Adds the commits at which the history of the source is cut off to those of the keep
    /// repository.
    pub(super) async fn note_shallow(
        &self,
        source: &Source,
        place: &Place,
    ) -> Result<(), CheckoutError> {
        let file = source.common.join("shallow");
        let Some(theirs) = blocking_as(source.owner, move || Ok(read_text(&file))).await? else {
            return Ok(());
        };
        let path = place.keep().join("shallow");
        let ours = read_text(&path).unwrap_or_default();
        // A commit that is there already, perhaps of an agent, keeps its parents.
        let theirs: BTreeSet<String> =
            theirs.lines().filter(|line| is_id(line)).map(str::to_owned).collect();
        let there = self.kinds(place, theirs.iter()).await?;
        let new = theirs.iter().filter(|id| !there.contains_key(*id)).map(String::as_str);
        let all: BTreeSet<&str> = ours.lines().chain(new).collect();
        if all.len() > ours.lines().count() {
            let text: String = all.iter().flat_map(|id| [id, "\n"]).collect();
            write(&path, text)?;
        }
        Ok(())
    }

    /// Returns the branches of the source as they are now, each with its commit.
    pub(super) async fn branches_of(
        &self,
        source: &Source,
    ) -> Result<BTreeMap<String, String>, CheckoutError> {
        let list = ["for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "refs/heads/"];
        let listed = source.git(&self.git, list).text().await?;
        let branches = listed.lines().filter_map(|line| line.split_once(' '));
        let branches = branches.filter(|(id, _)| is_id(id));
        Ok(branches.map(|(id, name)| (name.to_owned(), id.to_owned())).collect())
    }
}

impl Source {
    /// Adds what a person can do to the error of a call that writes into the source.
    pub(super) fn explain(&self, error: GitError) -> CheckoutError {
        match (error, self.owner) {
            (GitError::Failed { message, .. }, Some(owner)) if message.contains("ermission") => {
                let folder = self.common.display();
                CheckoutError::Refused(format!(
                    "{} cannot write into the repository `{}`: {message}; run `chown -R {} \
                     {folder}`",
                    name_of(owner.uid),
                    self.top.display(),
                    owner.uid
                ))
            }
            (error, _) => error.into(),
        }
    }
}
