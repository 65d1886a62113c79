//! Moves objects between the repository of a person and the keep repository.
//!
//! Neither side opens files of the other one. Git packs the objects as the owner of the side that
//! has them, and takes them from a pipe as the owner of the other side. A person is never given
//! more than the history of one result.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::git::{Call, GitError};
use super::keep_repository::SOURCE;
use super::objects::lines;
use super::rights::blocking_as;
use super::source::{Head, Source};
use super::text::{ids_of_lines, is_id, read_text};
use super::{CheckoutError, Git, Place, Result, rename, write};
use machine::sys::user_names::name_of;

/// Packs the objects that revisions of the standard input reach.
const PACK: [&str; 5] = ["pack-objects", "--quiet", "--revs", "--stdout", "--delta-base-offset"];
/// Takes such a pack. It has the base of each delta, so that all its objects come from the sender.
const UNPACK: [&str; 3] = ["index-pack", "--stdin", MAX_PACK];
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

impl Git {
    /// Brings the branches and the HEAD of the source into the keep repository, unless they are
    /// there. Branches that the source has no more stay.
    pub(super) async fn bring_branches(
        &self,
        source: &Source,
        place: &Place,
        head: &Head,
    ) -> Result<()> {
        let mut theirs: BTreeMap<String, String> = self.branches_of(source).await?;
        theirs = theirs.into_iter().map(|(name, id)| (format!("heads/{name}"), id)).collect();
        theirs.extend(head.commit.clone().map(|commit| ("HEAD".to_owned(), commit)));
        let ours = self.followed(place).await?;
        let is_new = |(name, id): &(&String, &String)| ours.get(*name) != Some(*id);
        let new: Vec<(&String, &String)> = theirs.iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        let known: BTreeSet<String> = ours.values().cloned().collect();
        let wanted = theirs.values().filter(|id| !known.contains(*id)).cloned().collect();
        self.bring(source, place, &wanted, &known).await?;
        // Git has no branch below another one, so one that the source lacks makes room.
        let is_below = |name: &str, other: &str| {
            name.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'))
        };
        let is_in_the_way = |old: &&String| {
            let mut names = new.iter().map(|(name, _)| name.as_str());
            !theirs.contains_key(*old)
                && names.any(|name| is_below(name, old) || is_below(old, name))
        };
        let gone = ours.keys().filter(is_in_the_way);
        let deletions: String =
            gone.flat_map(|name| ["delete ", SOURCE, "/", name, "\n"]).collect();
        let updates = new.iter().map(|(name, id)| format!("update {SOURCE}/{name} {id}\n"));
        for changes in [deletions, updates.collect()] {
            self.on(&place.keep(), ["update-ref", "--stdin"]).input(changes).run().await?;
        }
        Ok(())
    }

    /// Returns the refs of the keep repository that follow those of the source, below `refs/`. The
    /// keep repository has all that they reach.
    pub(super) async fn followed(&self, place: &Place) -> Result<BTreeMap<String, String>> {
        let list = ["for-each-ref", "--format=%(objectname) %(refname)", SOURCE];
        let listed = self.on(&place.keep(), list).text().await?;
        let refs = listed.lines().filter_map(|line| line.split_once(' '));
        let below = |name: &str| Some(name.strip_prefix(SOURCE)?.strip_prefix('/')?.to_owned());
        Ok(refs.filter_map(|(id, name)| Some((below(name)?, id.to_owned()))).collect())
    }

    /// Brings all that `wanted` reach into the keep repository, which has all that `known` reach.
    ///
    /// # Errors
    /// Each error of git, also if the source lacks some of it. `Refused` if another user has named
    /// objects that only the keep repository has, such as those of an agent.
    pub(super) async fn bring(
        &self,
        source: &Source,
        place: &Place,
        wanted: &BTreeSet<String>,
        known: &BTreeSet<String>,
    ) -> Result<()> {
        self.note_shallow(source, place).await?;
        if wanted.is_empty() {
            return Ok(());
        }
        // Another user can name objects that the source lacks.
        let is_proof_needed = source.owner.is_some() && self.has_refs(place).await?;
        if !is_proof_needed && self.is_complete(place, wanted, known, None).await? {
            return Ok(());
        }
        let mut there = self.present_in(source, known.iter()).await?;
        there.retain(|id| known.contains(id));
        let sender = |pack: [&'static str; 5]| source.git(self, pack);
        if self.take_all(place, sender, wanted, known, there, is_proof_needed).await? {
            return Ok(());
        }
        Err(CheckoutError::Refused(format!(
            "`{}` lacks objects that its branches reach; run `git fsck` there",
            source.top.display()
        )))
    }

    /// Takes all that `wanted` reach beyond `known` from another repository, which has `there` of
    /// that. Returns whether the keep repository has it all then. With `is_proof_needed`, all of it
    /// must have come from the sender.
    pub(super) async fn take_all<'a>(
        &'a self,
        place: &Place,
        sender: impl Fn([&'static str; 5]) -> Call<'a>,
        wanted: &BTreeSet<String>,
        known: &BTreeSet<String>,
        mut there: BTreeSet<String>,
        is_proof_needed: bool,
    ) -> Result<bool> {
        loop {
            let sent = self.take_pack(place, &sender, revisions(wanted, &there)).await;
            let is_everything = there.is_empty();
            match sent {
                Ok(sent) => {
                    let sent = is_proof_needed.then_some(sent.as_path());
                    let is_complete = self.is_complete(place, wanted, known, sent).await?;
                    if is_complete || is_everything {
                        return Ok(is_complete);
                    }
                }
                Err(GitError::Failed { .. }) if !is_everything => {}
                Err(error) => return Err(error.into()),
            }
            // The sender may lack a part of what it once had, so it sends everything.
            there.clear();
        }
    }

    /// Returns whether the keep repository has anything.
    async fn has_refs(&self, place: &Place) -> Result<bool> {
        let list = ["for-each-ref", "--count=1", "--format=%(refname)"];
        Ok(!self.on(&place.keep(), list).text().await?.is_empty())
    }

    /// Returns those of these objects that the source has.
    async fn present_in(
        &self,
        source: &Source,
        ids: impl Iterator<Item = &String>,
    ) -> Result<BTreeSet<String>> {
        let check = ["cat-file", "--batch-check=%(objectname)"];
        let listed = source.git(self, check).input(lines(ids)).long().text().await?;
        Ok(ids_of_lines(&listed).map(str::to_owned).collect())
    }

    /// Returns whether the keep repository has all that `wanted` reach. It has what `known` reach.
    /// The rest must be in the pack `sent`, if one is given.
    async fn is_complete(
        &self,
        place: &Place,
        wanted: &BTreeSet<String>,
        known: &BTreeSet<String>,
        sent: Option<&Path>,
    ) -> Result<bool> {
        let format = if sent.is_some() { "--no-object-names" } else { "--quiet" };
        let list = ["rev-list", "--objects", format, "--stdin"];
        let list = self.on(&place.keep(), list).input(revisions(wanted, known)).long();
        let ended = list.end().await?;
        let Some(sent) = sent.filter(|_| ended.code == Some(0)) else {
            return Ok(ended.code == Some(0));
        };
        let sent = self.ids_in(place, sent).await?;
        let listed = String::from_utf8_lossy(&ended.stdout);
        Ok(listed.lines().all(|id| sent.contains(id)))
    }

    /// Brings all that those of `named` reach that the source has. The keep repository has all that
    /// the snapshot `last` reaches.
    pub(super) async fn bring_named(
        &self,
        source: &Source,
        place: &Place,
        named: &BTreeSet<String>,
        last: Option<&str>,
    ) -> Result<()> {
        let last: BTreeSet<String> = last.into_iter().map(str::to_owned).collect();
        let mut known = BTreeSet::new();
        for last in &last {
            let parents = self.on(&place.keep(), ["rev-parse", &format!("{last}^@")]);
            known.extend(parents.text().await?.lines().map(str::to_owned));
        }
        let there = self.present_in(source, named.union(&known)).await?;
        let wanted: BTreeSet<String> = named.intersection(&there).cloned().collect();
        if wanted.is_empty() || self.is_complete(place, &wanted, &last, None).await? {
            return Ok(());
        }
        let input = revisions(&wanted, known.intersection(&there));
        let pack = |pack: [&'static str; 5]| {
            source.git(self, pack.into_iter().chain(["--missing=allow-any"]))
        };
        self.take_pack(place, pack, input).await?;
        Ok(())
    }

    /// Gives the source all that a commit of the keep repository reaches.
    ///
    /// # Errors
    /// `Refused` with the remedy if the owner of the source cannot write there.
    pub(super) async fn give(&self, source: &Source, place: &Place, commit: &String) -> Result<()> {
        let theirs = self.branches_of(source).await?;
        let theirs: BTreeSet<String> = theirs.into_values().collect();
        let known = self.kinds(place, theirs.iter()).await?;
        let input = revisions([commit], known.keys());
        let receive = |unpack: [&'static str; 3]| source.git(self, unpack);
        let given = self.give_pack(place, input, receive).await;
        given.map_err(|error| source.explain(error))
    }

    /// Takes the objects that revisions reach in another repository into the keep repository, and
    /// returns their pack. `sender` begins the call of git there. The caller has the lock of the
    /// project.
    pub(super) async fn take_pack<'a>(
        &'a self,
        place: &Place,
        sender: impl FnOnce([&'static str; 5]) -> Call<'a>,
        input: String,
    ) -> Result<PathBuf, GitError> {
        let to = self.on(&place.keep(), UNPACK);
        let taken = sender(PACK).input(input).long().send_to(to).await;
        if taken.is_err() {
            // No other call writes into the repository meanwhile.
            let _ = place.remove_temporary();
        }
        let printed = String::from_utf8_lossy(&taken?).trim_end().to_owned();
        let name = printed.rsplit('\t').next().unwrap_or_default();
        Ok(place.keep().join(format!("objects/pack/pack-{name}.pack")))
    }

    /// Gives the objects that revisions of the keep repository reach to another repository.
    /// `receiver` begins the call of git there.
    pub(super) async fn give_pack<'a>(
        &'a self,
        place: &Place,
        input: String,
        receiver: impl FnOnce([&'static str; 3]) -> Call<'a>,
    ) -> Result<(), GitError> {
        let pack = self.on(&place.keep(), PACK).input(input).long();
        pack.send_to(receiver(UNPACK)).await.map(drop)
    }

    /// Adds the commits at which the history of the source is cut off to those of the keep
    /// repository.
    pub(super) async fn note_shallow(&self, source: &Source, place: &Place) -> Result<()> {
        let file = source.common.join("shallow");
        let Some(theirs) = blocking_as(source.owner, move || Ok(read_text(&file))).await? else {
            return Ok(());
        };
        let ours = place.as_keeper(|keep| Ok(read_text(&keep.join("shallow"))))?;
        let ours = ours.unwrap_or_default();
        // A commit that is there already, perhaps of an agent, keeps its parents.
        let theirs: BTreeSet<String> = ids_of_lines(&theirs).map(str::to_owned).collect();
        let there = self.kinds(place, theirs.iter()).await?;
        let new = theirs.iter().filter(|id| !there.contains_key(*id)).map(String::as_str);
        let all: BTreeSet<&str> = ours.lines().chain(new).collect();
        if all.len() > ours.lines().count() {
            let text: String = all.iter().flat_map(|id| [id, "\n"]).collect();
            place.as_keeper(|keep| {
                let new = keep.join("shallow.new");
                write(&new, text)?;
                rename(&new, &keep.join("shallow"))
            })?;
        }
        Ok(())
    }

    /// Returns the branches of the source as they are now, each with its commit.
    pub(super) async fn branches_of(&self, source: &Source) -> Result<BTreeMap<String, String>> {
        let list = ["for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "refs/heads/"];
        let listed = source.git(self, list).text().await?;
        let branches = listed.lines().filter_map(|line| line.split_once(' '));
        let branches = branches.filter(|(id, _)| is_id(id));
        // Git allows no such name, but its answer may not be git's.
        let branches = branches.filter(|(_, name)| !name.contains(char::is_whitespace));
        Ok(branches.map(|(id, name)| (name.to_owned(), id.to_owned())).collect())
    }
}

impl Source {
    /// Adds what a person can do to the error of a call that writes into the source.
    pub(super) fn explain(&self, error: GitError) -> CheckoutError {
        let is_refused = |message: &str| {
            let mut lines = message.lines().filter(|line| !line.starts_with("warning:"));
            lines.any(|line| line.contains("ermission"))
        };
        match (error, self.owner) {
            (GitError::Failed { message, .. }, Some(owner)) if is_refused(&message) => {
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
