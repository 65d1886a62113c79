//! Makes a workspace: a clone that borrows the objects of the keep repository.

use std::ffi::OsStr;
use std::path::Path;

use super::keep_repository::SOURCE;
use super::source::{Head, Source};
use super::{CheckoutError, Checkouts, Place, make_folder, remove_folder, rename, write};
use crate::crash_point::{self, CrashPoint};
use crate::domain::workspace::{Order, Prepared};

/// The objects of the keep repository, seen from the folder `objects` of a workspace. It is relative,
/// so that the root can be moved.
const ALTERNATES: &str = "../../../../keep.git/objects\n";
/// A push of the agent goes nowhere: what it made is taken from its clone.
const PUSH_ADDRESS: &str = "agent-coordinator:the-coordinator-publishes-the-work";
const MADE: &str = "made.json";

impl Checkouts {
    /// Makes a workspace. One that exists already is left as it is.
    ///
    /// # Errors
    /// `Refused` if the project's directory is in no repository. The other errors are perhaps over
    /// by the next attempt.
    pub async fn prepare(&self, order: &Order) -> Result<Prepared, CheckoutError> {
        self.git.check().await?;
        let place = self.place(&order.project, &order.id);
        if place.tree().join(".git/HEAD").is_file() {
            return read_made(&place);
        }
        let source = Source::find(&self.git, &order.source).await?;
        let begins_at = match &order.begins_at {
            Some(parent) => self.take(&order.project, parent).await?,
            None => None,
        };
        let prepared = {
            let _locked = self.lock_keep(&order.project, &place).await?;
            let head = self.follow(&source, &place).await?;
            crash_point::reach(CrashPoint::SourceFollowed);
            self.choose_base(order, &source, &place, head, begins_at).await?
        };
        let new = place.project.join(format!(".new-{}", order.id));
        remove_folder(&new)?;
        make_folder(&new)?;
        self.check_out(order, &prepared, &source, &place, &new).await?;
        let made = serde_json::to_vec(&prepared).unwrap_or_default();
        write(&new.join(MADE), made)?;
        crash_point::reach(CrashPoint::WorkspaceMade);
        rename(&new, &place.folder)?;
        crash_point::reach(CrashPoint::WorkspaceNamed);
        Ok(prepared)
    }

    /// Chooses the commit that the work begins at, and pins it with a ref. An earlier attempt may
    /// have pinned one already.
    async fn choose_base(
        &self,
        order: &Order,
        source: &Source,
        place: &Place,
        head: Head,
        begins_at: Option<String>,
    ) -> Result<Prepared, CheckoutError> {
        let branch = self.free_branch(&order.branch, place).await?;
        let result = self.resolve(place, &format!("refs/heads/{branch}")).await?;
        let pin = format!("refs/agent-coordinator/base/{}", order.id);
        let commit = match self.resolve(place, &pin).await? {
            Some(pinned) => Some(pinned),
            // The work of an earlier workspace of the task goes on.
            None => result.or(begins_at).or(head.commit),
        };
        if let Some(commit) = &commit {
            self.git.on(&place.keep(), ["update-ref", &pin, commit]).run().await?;
        }
        Ok(Prepared {
            branch,
            base_ref: head.branch,
            base_commit: commit,
            subdirectory: source.subdirectory.clone(),
        })
    }

    /// Returns the name of the branch, with a number if a person has a branch of this name in the
    /// source, whose commits are not those of a task.
    async fn free_branch(&self, wanted: &str, place: &Place) -> Result<String, CheckoutError> {
        let mut name = wanted.to_owned();
        for n in 2.. {
            let theirs = self.resolve(place, &format!("{SOURCE}/heads/{name}")).await?;
            let ours = self.resolve(place, &format!("refs/heads/{name}")).await?;
            let is_ours = match (&theirs, &ours) {
                (None, _) => true,
                (Some(theirs), Some(ours)) => self.contains(place, ours, theirs).await?,
                (Some(_), None) => false,
            };
            if is_ours {
                break;
            }
            name = format!("{wanted}-{n}");
        }
        Ok(name)
    }

    /// Returns whether the history of `commit` contains `earlier`.
    pub(super) async fn contains(
        &self,
        place: &Place,
        commit: &str,
        earlier: &str,
    ) -> Result<bool, CheckoutError> {
        let arguments = ["merge-base", "--is-ancestor", earlier, commit];
        Ok(self.git.on(&place.keep(), arguments).end().await?.code == Some(0))
    }

    /// Makes the repository and the files in `new`. No agent has used it yet, so its `.git` is the
    /// daemon's.
    async fn check_out(
        &self,
        order: &Order,
        prepared: &Prepared,
        source: &Source,
        place: &Place,
        new: &Path,
    ) -> Result<(), CheckoutError> {
        let tree = new.join("tree");
        let initial = format!("--initial-branch={}", prepared.branch);
        let init = ["init", "--quiet", "--template=", &initial].map(OsStr::new);
        self.git.call(init.into_iter().chain([tree.as_os_str()])).run().await?;
        let own = tree.join(".git");
        make_folder(&own.join("objects/info"))?;
        write(&own.join("objects/info/alternates"), ALTERNATES)?;
        make_folder(&own.join("info"))?;
        let email = format!("{}@agent-coordinator.invalid", order.agent);
        let mut settings = vec![
            ("user.name", order.agent.to_string()),
            ("user.email", email),
            ("remote.origin.pushurl", PUSH_ADDRESS.to_owned()),
            ("push.default", "nothing".to_owned()),
        ];
        settings.extend(source.upstream(&self.git).await.map(|url| ("remote.origin.url", url)));
        for (name, value) in &settings {
            self.git.on(&own, ["config", name, value]).run().await?;
        }
        let Some(base) = &prepared.base_commit else {
            return Ok(());
        };
        let branch = format!("refs/heads/{}", prepared.branch);
        self.git.on(&own, ["update-ref", &branch, base]).run().await?;
        let on_tree = |arguments: &[&str]| {
            self.git.on(&own, arguments.iter().copied()).variable("GIT_WORK_TREE", &tree).long()
        };
        on_tree(&["-c", "checkout.workers=0", "read-tree", "--reset", "-u", "HEAD"]).run().await?;
        crash_point::reach(CrashPoint::WorkspaceCheckedOut);
        // From here on the daemon has an index of its own, whose times the agent cannot change.
        let index = new.join("index");
        std::fs::copy(own.join("index"), &index).map_err(CheckoutError::io("write", &index))?;
        if let Some(kept) = &order.restores {
            self.write_kept(kept, place, &tree).await?;
        }
        Ok(())
    }

    /// Writes the files of a kept commit over those of a new workspace, as they were.
    pub(super) async fn write_kept(
        &self,
        kept: &str,
        place: &Place,
        tree: &Path,
    ) -> Result<(), CheckoutError> {
        let index = place.project.join(format!(".new-index-{}", kept.get(..16).unwrap_or(kept)));
        let on_files = |arguments: &[&str]| {
            self.git
                .on(&place.files(), arguments.iter().copied())
                .variable("GIT_OBJECT_DIRECTORY", place.keep().join("objects"))
                .variable("GIT_INDEX_FILE", &index)
                .variable("GIT_WORK_TREE", tree)
                .long()
        };
        let files = format!("{kept}:worktree");
        on_files(&["read-tree", &files]).run().await?;
        // Files that the work had deleted go away, too.
        let extra = on_files(&["ls-files", "--others", "-z"]).run().await?;
        for path in super::source::entries(&extra).filter(|path| !path.starts_with(".git")) {
            let path = tree.join(path);
            std::fs::remove_file(&path).map_err(CheckoutError::io("remove", &path))?;
        }
        on_files(&["checkout-index", "--all", "--force"]).run().await?;
        std::fs::remove_file(&index).map_err(CheckoutError::io("remove", &index))
    }
}

fn read_made(place: &Place) -> Result<Prepared, CheckoutError> {
    let path = place.folder.join(MADE);
    let text = std::fs::read(&path).map_err(CheckoutError::io("read", &path))?;
    serde_json::from_slice(&text).map_err(|error| {
        CheckoutError::Refused(format!("`{}` is not readable: {error}", path.display()))
    })
}
