//! Signs the commits of a merge, as git of the source's owner would (`commit.gpgsign`).

use std::collections::BTreeMap;
use std::time::Duration;

use super::parts::Parts;
use super::signatures::home_of_owner;
use super::{Sides, is_none};
use crate::git::{Call, GitError};
use crate::source::Source;
use crate::{CheckoutError, Place, Result, Results};

/// The longest time for one signature. A key that asks for a passphrase would wait for ever.
const LONGEST: Duration = Duration::from_secs(30);

impl Results {
    /// Returns the commit that stands for `new` on a branch at `target`: it and the commits that
    /// were made with it are signed, if the owner of the source signs commits. Those of the result
    /// itself stay as they are.
    ///
    /// # Errors
    /// `Refused` if git cannot sign.
    pub(super) async fn signed(
        &self,
        sides: &Sides<'_>,
        target: &str,
        new: String,
    ) -> Result<String> {
        let Sides { source, place, result } = *sides;
        let Some(home) = home_of_owner(source.owner).await else { return Ok(new) };
        let ask = ["config", "--type=bool", "--get", "commit.gpgsign"];
        let answer = source.git(&self.git, ask).with_settings_of(home.clone()).end().await?;
        if answer.stdout != b"true\n" {
            return Ok(new);
        }
        let begun = [target, result].into_iter().filter(|commit| !is_none(commit));
        let list = ["rev-list", "--reverse", "--topo-order", &new, "--not"].into_iter();
        let made = self.git.on(&place.keep(), list.chain(begun)).long().text().await?;
        if made.is_empty() {
            return Ok(new);
        }
        self.git.give(source, place, &new).await?;
        let mut signed: BTreeMap<&str, String> = BTreeMap::new();
        let mut tip = new.clone();
        for commit in made.lines() {
            let mut parts = self.parts_of(place, commit).await?;
            if parts.is_encoded {
                return Err(CheckoutError::Refused(format!(
                    "the commit {commit} is not in UTF-8, so that it is not signed again; merge \
                     without `--rebase`"
                )));
            }
            for parent in &mut parts.parents {
                if let Some(other) = signed.get(parent.as_str()) {
                    parent.clone_from(other);
                }
            }
            let call = self.commit_tree(source, &parts).with_settings_of(home.clone());
            let made = call.within(LONGEST).text().await.map_err(unsigned)?;
            // The owner of the source could answer anything, so only the signature is taken.
            let raw = source.git(&self.git, ["cat-file", "commit", &made]).run().await?;
            if Parts::parse(&raw) != parts {
                return Err(CheckoutError::Refused(format!(
                    "git of the repository signed another commit than {commit}"
                )));
            }
            let write = ["hash-object", "-t", "commit", "-w", "--stdin"];
            tip = self.git.on(&place.keep(), write).input(raw).text().await?;
            signed.insert(commit, tip.clone());
        }
        Ok(tip)
    }

    /// Returns the call by which the owner of the source makes a commit with a signature.
    fn commit_tree(&self, source: &Source, parts: &Parts) -> Call<'_> {
        let Parts { tree, parents, author, committer, message, .. } = parts;
        let mut arguments = vec!["commit-tree", "-S", tree];
        arguments.extend(parents.iter().flat_map(|parent| ["-p", parent]));
        source
            .git(&self.git, arguments)
            .variable("GIT_AUTHOR_NAME", &author.name)
            .variable("GIT_AUTHOR_EMAIL", &author.address)
            .variable("GIT_AUTHOR_DATE", format!("@{}", author.time))
            .variable("GIT_COMMITTER_NAME", &committer.name)
            .variable("GIT_COMMITTER_EMAIL", &committer.address)
            .variable("GIT_COMMITTER_DATE", format!("@{}", committer.time))
            .input(message.clone())
    }

    /// Returns the parts of a commit that the keep repository has.
    pub(super) async fn parts_of(&self, place: &Place, commit: &str) -> Result<Parts> {
        let raw = self.git.on(&place.keep(), ["cat-file", "commit", commit]).run().await?;
        Ok(Parts::parse(&raw))
    }
}

/// Returns the refusal of a merge whose commit git could not sign.
fn unsigned(error: GitError) -> CheckoutError {
    let reason = match error {
        GitError::Failed { message, .. } => message,
        GitError::TimedOut { .. } => format!(
            "it did not end within {} s; a key that asks for a passphrase cannot be used here",
            LONGEST.as_secs()
        ),
        error => return error.into(),
    };
    CheckoutError::Refused(format!(
        "the repository signs commits (`commit.gpgsign`), but the commit of the merge could not be \
         signed: {reason}"
    ))
}
