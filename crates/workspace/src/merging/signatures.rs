//! The author and the committer of a merge.

use std::path::PathBuf;

use super::MergeOrder;
use crate::author::{address_of, readable};
use crate::rights::Owner;
use crate::source::Source;
use crate::{Place, Result, Results};
use domain::workspace::{ResultCommit, Signature};
use machine::sys::user_names::home_of;

/// The most commits of a result whose authors and subjects are read.
const MAX_COMMITS: u32 = 10_000;

/// The most bytes of them that are read.
const MAX_LISTED: u64 = 8 * 1024 * 1024;

/// The author and the committer of a commit.
#[derive(Debug)]
pub(crate) struct Signatures {
    pub(crate) author: Signature,
    pub(crate) committer: Signature,
}

impl Signatures {
    /// Returns those of a commit that the daemon makes for this author.
    pub(crate) fn of_daemon(author: String) -> Self {
        let address = address_of(&author);
        Self {
            author: Signature { name: author, address },
            committer: Signature {
                name: "agent-coordinator".to_owned(),
                address: "daemon@agent-coordinator.invalid".to_owned(),
            },
        }
    }
}

/// Returns the home folder of the owner of files, or of the daemon's own user, as git would find
/// it.
pub(super) async fn home_of_owner(owner: Option<Owner>) -> Option<PathBuf> {
    let own = || std::env::var_os("HOME").map(PathBuf::from);
    let find = move || match owner {
        Some(owner) => home_of(owner.uid),
        None => own().or_else(|| home_of(rustix::process::geteuid().as_raw())),
    };
    tokio::task::spawn_blocking(find).await.ok().flatten()
}

impl Results {
    /// Returns the author and the committer that a commit of the source's owner would have in the
    /// source. Without any, the author is the person who merges.
    pub(super) async fn signatures(&self, source: &Source, order: &MergeOrder) -> Signatures {
        let home = home_of_owner(source.owner).await;
        let own = self.signature(source, "GIT_AUTHOR_IDENT", home.clone()).await;
        let committer = self.signature(source, "GIT_COMMITTER_IDENT", home).await;
        match (own, committer) {
            (Some(author), Some(committer)) => Signatures { author, committer },
            _ => Signatures::of_daemon(order.author.name().await),
        }
    }

    /// Asks git for a signature of the source's owner, who could answer anything.
    async fn signature(
        &self,
        source: &Source,
        of: &str,
        home: Option<PathBuf>,
    ) -> Option<Signature> {
        let ask = ["-c", "user.useConfigOnly=true", "var", of];
        let mut call = source.git(&self.git, ask);
        if let Some(home) = home {
            call = call.with_settings_of(home);
        }
        let Signature { name, address } = Signature::parse(&call.text().await.ok()?)?;
        Some(Signature { name: readable(&name), address: readable(&address) })
    }

    /// Returns the commits in a range, the oldest first, without merges.
    pub(super) async fn commits_in(&self, place: &Place, range: &str) -> Result<Vec<ResultCommit>> {
        let most = format!("--max-count={MAX_COMMITS}");
        let format = "--format=%an <%ae>%n%s";
        let list = ["log", "--no-merges", "--reverse", "--topo-order", "-z", format, &most, range];
        // An agent may write subjects of any length.
        let ended = self.git.on(&place.keep(), list).long().cut_at(MAX_LISTED).end().await?;
        let listed = String::from_utf8_lossy(&ended.stdout).into_owned();
        let parse = |entry: &str| {
            let (author, subject) = entry.trim_start_matches('\n').split_once('\n')?;
            Some(ResultCommit { author: Signature::parse(author)?, subject: subject.to_owned() })
        };
        Ok(listed.split('\0').filter_map(parse).collect())
    }
}
