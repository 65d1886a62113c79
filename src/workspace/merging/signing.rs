//! Signs the commits of a merge, as git of the source's owner would (`commit.gpgsign`).

use std::collections::BTreeMap;
use std::time::Duration;

use super::signatures::home_of_owner;
use super::{Sides, is_none};
use crate::workspace::git::{Call, GitError};
use crate::workspace::{CheckoutError, Checkouts};

/// The longest time for one signature. A key that asks for a passphrase would wait for ever.
const LONGEST: Duration = Duration::from_secs(30);

/// The parts of a commit, as its text has them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    tree: String,
    parents: Vec<String>,
    author: Person,
    committer: Person,
    message: Vec<u8>,
}

/// A person in a commit: the name, the address, and the time with its zone.
#[derive(Debug, Default, PartialEq, Eq)]
struct Person {
    name: String,
    address: String,
    time: String,
}

impl Checkouts {
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
    ) -> Result<String, CheckoutError> {
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
        self.give(source, place, &new).await?;
        let mut signed: BTreeMap<&str, String> = BTreeMap::new();
        let mut tip = new.clone();
        for commit in made.lines() {
            let raw = self.git.on(&place.keep(), ["cat-file", "commit", commit]).run().await?;
            let mut parts = Parts::parse(&raw);
            for parent in &mut parts.parents {
                if let Some(other) = signed.get(parent.as_str()) {
                    parent.clone_from(other);
                }
            }
            let call = parts.commit_tree(|arguments| source.git(&self.git, arguments));
            let call = call.with_settings_of(home.clone()).within(LONGEST);
            let made = call.text().await.map_err(unsigned)?;
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
}

impl Parts {
    fn parse(raw: &[u8]) -> Self {
        let end = raw.windows(2).position(|two| two == b"\n\n").unwrap_or(raw.len());
        let (head, message) = raw.split_at(end);
        let head = String::from_utf8_lossy(head);
        let mut parts = Self { message: message.to_vec(), ..Self::default() };
        for line in head.lines() {
            match line.split_once(' ') {
                Some(("tree", tree)) => tree.clone_into(&mut parts.tree),
                Some(("parent", parent)) => parts.parents.push(parent.to_owned()),
                Some(("author", author)) => parts.author = Person::parse(author),
                Some(("committer", committer)) => parts.committer = Person::parse(committer),
                // A signature, and its further lines.
                _ => {}
            }
        }
        parts
    }

    /// Returns the call that makes the commit with a signature.
    fn commit_tree<'a>(&self, call: impl FnOnce(Vec<&str>) -> Call<'a>) -> Call<'a> {
        let mut arguments = vec!["commit-tree", "-S", self.tree.as_str()];
        arguments.extend(self.parents.iter().flat_map(|parent| ["-p", parent.as_str()]));
        let Self { author, committer, .. } = self;
        let message = self.message.strip_prefix(b"\n\n").unwrap_or(&self.message);
        call(arguments)
            .variable("GIT_AUTHOR_NAME", &author.name)
            .variable("GIT_AUTHOR_EMAIL", &author.address)
            .variable("GIT_AUTHOR_DATE", &author.time)
            .variable("GIT_COMMITTER_NAME", &committer.name)
            .variable("GIT_COMMITTER_EMAIL", &committer.address)
            .variable("GIT_COMMITTER_DATE", &committer.time)
            .input(message)
    }
}

impl Person {
    fn parse(text: &str) -> Self {
        let (name, rest) = text.split_once(" <").unwrap_or((text, ""));
        let (address, time) = rest.split_once("> ").unwrap_or((rest, ""));
        Self { name: name.to_owned(), address: address.to_owned(), time: time.to_owned() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_the_same_with_and_without_a_signature() {
        let raw = b"tree 1\nparent 2\nparent 3\nauthor Ann Lee <a@b> 5 +0100\n\
            committer Bo <b@c> 6 +0000\n\nm\n\nparent 4\n";
        let signed = b"tree 1\nparent 2\nparent 3\nauthor Ann Lee <a@b> 5 +0100\n\
            committer Bo <b@c> 6 +0000\ngpgsig -----BEGIN\n parent 5\n -----END\n\nm\n\nparent 4\n";
        let parts = Parts::parse(raw);
        assert_eq!(parts, Parts::parse(signed));
        assert_eq!(parts.parents, ["2", "3"]);
        let Person { name, address, time } = &parts.author;
        assert_eq!([name, address, time], ["Ann Lee", "a@b", "5 +0100"]);
        assert_ne!(parts, Parts::parse(b"tree 1\nparent 2\n\nm\n"));
    }
}
