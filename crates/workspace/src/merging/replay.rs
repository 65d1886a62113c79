//! Replays the commits of a result on a branch, without files.

use super::ON_THE_WAY;
use crate::{CheckoutError, Place, Result, Results};
use domain::workspace::Signature;

/// The end of a replay: the newest commit, or the files that conflict.
pub(super) type Replayed = Result<String, Vec<String>>;

/// The commits to replay: those that `result` has beyond `begin`, on `target`.
#[derive(Clone, Copy)]
pub(super) struct Replay<'a> {
    pub(super) begin: &'a str,
    pub(super) result: &'a str,
    pub(super) target: &'a str,
}

impl Results {
    /// Replays commits, each with its author and its message. A commit whose changes are there
    /// already is left out.
    ///
    /// # Errors
    /// `Refused` if one of them is a merge: its resolved conflicts would be lost.
    pub(super) async fn replay(
        &self,
        place: &Place,
        replay: Replay<'_>,
        committer: &Signature,
    ) -> Result<Replayed> {
        let Replay { begin, result, target } = replay;
        let range = format!("{begin}..{result}");
        let list = ["rev-list", "--reverse", "--topo-order", "--parents", &range];
        let listed = self.git.on(&place.keep(), list).long().text().await?;
        let commits: Vec<Vec<&str>> =
            listed.lines().map(|line| line.split(' ').collect()).collect();
        if let Some([merge, ..]) = commits.iter().find(|ids| ids.len() > 2).map(Vec::as_slice) {
            return Err(CheckoutError::Refused(format!(
                "the result has the merge {merge}, which cannot be replayed; leave out `--rebase`"
            )));
        }
        let committer = self.committed_now(place, committer).await?;
        let mut tip = target.to_owned();
        for ids in &commits {
            let (commit, parent) = match ids.as_slice() {
                [commit, parent] => ((*commit).to_owned(), (*parent).to_owned()),
                // The first commit of a history counts as a change of nothing.
                [commit, ..] => {
                    let empty = self.git.on(&place.keep(), ["mktree"]).text().await?;
                    let parent =
                        self.git.commit(place, &empty, [].iter(), "nothing\n", ON_THE_WAY).await?;
                    let tree = format!("{commit}^{{tree}}");
                    let parents = std::iter::once(&parent);
                    (self.git.commit(place, &tree, parents, "first\n", ON_THE_WAY).await?, parent)
                }
                [] => continue,
            };
            // Git merges from the commit that both sides have last in common. This side has all of
            // the branch as one change of the parent.
            let tree = format!("{tip}^{{tree}}");
            let parents = std::iter::once(&parent);
            let ours = self.git.commit(place, &tree, parents, "the branch\n", ON_THE_WAY).await?;
            let merged = match self.git.merged_tree(place, &ours, &commit).await? {
                Ok(merged) => merged,
                Err(files) => return Ok(Err(files)),
            };
            let tree = self.git.on(&place.keep(), ["rev-parse", &tree]).text().await?;
            if merged == tree {
                continue;
            }
            let original = ids.first().copied().unwrap_or_default();
            let raw = self.git.on(&place.keep(), ["cat-file", "commit", original]).run().await?;
            let raw = moved(&raw, &merged, &tip, &committer);
            let write = ["hash-object", "-t", "commit", "-w", "--stdin"];
            tip = self.git.on(&place.keep(), write).input(raw).text().await?;
        }
        Ok(Ok(tip))
    }

    /// Returns a committer as git writes it into commits, with the time now.
    async fn committed_now(
        &self,
        place: &Place,
        Signature { name, address }: &Signature,
    ) -> Result<String> {
        let call = self.git.on(&place.keep(), ["var", "GIT_COMMITTER_IDENT"]);
        let call = call.variable("GIT_COMMITTER_NAME", name);
        Ok(call.variable("GIT_COMMITTER_EMAIL", address).text().await?)
    }
}

/// Returns the text of a commit with another tree, parent and committer. Its author and its message
/// stay byte for byte. A signature is left out, because it was of the other commit.
fn moved(raw: &[u8], tree: &str, parent: &str, committer: &str) -> Vec<u8> {
    let end = raw.windows(2).position(|two| two == b"\n\n").unwrap_or(raw.len());
    let (head, message) = raw.split_at(end);
    let mut text = format!("tree {tree}\nparent {parent}").into_bytes();
    let mut is_kept = false;
    for line in head.split(|byte| *byte == b'\n') {
        // A line that begins with a space goes on with the one before.
        if !line.starts_with(b" ") {
            let is = |name: &[u8]| line.starts_with(name);
            is_kept = is(b"author ") || is(b"encoding ");
            if is(b"committer ") {
                text.extend_from_slice(b"\ncommitter ");
                text.extend_from_slice(committer.as_bytes());
            }
        }
        if is_kept {
            text.push(b'\n');
            text.extend_from_slice(line);
        }
    }
    text.extend_from_slice(message);
    text
}

#[cfg(test)]
mod tests {
    use super::moved;

    #[test]
    fn a_commit_keeps_its_author_and_its_message() {
        let raw = b"tree 1\nparent 2\nauthor \xc4nn <a@b> 5 +0100\ncommitter Bo <b@c> 6 +0000\n\
            encoding latin1\ngpgsig -----BEGIN\n abc\n -----END\n\nm\xfct\n\nparent 2\n";
        let expected = b"tree 3\nparent 4\nauthor \xc4nn <a@b> 5 +0100\ncommitter me 7\n\
            encoding latin1\n\nm\xfct\n\nparent 2\n";
        assert_eq!(moved(raw, "3", "4", "me 7"), expected);
    }
}
