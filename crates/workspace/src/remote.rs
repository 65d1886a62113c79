//! Fetches from a repository at a forge, and pushes results there.
//!
//! Only these calls of git have the token of the forge. It goes to git through a pipe. An agent's
//! clone has the address, and no token. Redirects are not followed. A push makes a new branch of a
//! task, or adds commits to a branch, so that no commits of other people are lost.

use super::git::{Ended, GitError};
use super::keep_repository::FETCH;
use super::objects::short_hash;
use super::source::Head;
use super::submodules::Origin;
use super::{CheckoutError, Clones, Place, Remotes, Result, WorkspacePlaces};
use domain::ProjectId;
use domain::workspace::{
    FetchOrder, Fetched, ForgeBase, PushOrder, PushWay, Pushed, Remote, RemoteError,
};
use machine::crash_point::{self, CrashPoint};
use machine::locks::lock;
use runtime::telemetry::ErrorChain;

/// The refs that follow repositories at forges.
pub(super) const FORGE: &str = "refs/agent-coordinator/forge";
/// The beginning of each branch that is made.
const OURS: &str = "agents/";
/// Parts of git's messages that say that the remote refused something.
const REFUSALS: [&str; 10] = [
    "' not found",
    "[remote rejected]",
    "[rejected]",
    "Permission to",
    "returned error: 403",
    "returned error: 404",
    "returned error: 301",
    "returned error: 302",
    "returned error: 307",
    "returned error: 308",
];

impl Remotes {
    /// Brings the default branch and the wanted refs of a remote into the keep repository. If it
    /// has them, the remote is only asked for its refs.
    ///
    /// # Errors
    /// Each error is perhaps over by the next attempt.
    pub async fn fetch(&self, order: &FetchOrder) -> Result<Fetched, RemoteError> {
        self.fetch_all(order).await.map_err(|error| remote_error(&error))
    }

    async fn fetch_all(&self, order: &FetchOrder) -> Result<Fetched> {
        self.git.check().await?;
        let FetchOrder { project, remote, refs, forks, submodules, max_disk } = order;
        let listed = self.list_refs(remote, refs).await?;
        let place = self.places.place_of_project(project);
        let default = listed.default_branch().filter(|branch| listed.id_of(branch).is_some());
        let wanted: Vec<&str> =
            default.into_iter().chain(refs.iter().map(String::as_str)).collect();
        let Some(id) = wanted.iter().find_map(|name| listed.id_of(name)) else {
            return Ok(Fetched { default: None, commits: vec![None; refs.len()] });
        };
        let locked = self.keep.lock_keep(project, &place).await?;
        let format = if id.len() == 64 { "sha256" } else { "sha1" };
        self.keep.make_keep(format, &place).await?;
        let mut specs = Vec::new();
        for name in &wanted {
            if let Some(id) = listed.id_of(name)
                && self.git.resolve(&place, &local_name(remote, name)).await?.as_deref() != Some(id)
            {
                specs.push(format!("+{name}:{}", local_name(remote, name)));
            }
        }
        if !specs.is_empty() {
            if !self.disk.has_room(*max_disk).await? {
                let message = "`workspace.max_disk` is used up, so nothing is fetched".to_owned();
                return Err(CheckoutError::NoRoom(message));
            }
            let arguments = FETCH.into_iter().chain(["--end-of-options", &remote.url]);
            let arguments = arguments.chain(specs.iter().map(String::as_str));
            let fetched = self.git.on(&place.keep(), arguments).with_remote(remote).long();
            if let Err(error) = fetched.run().await {
                // No other call writes into the repository meanwhile.
                place.remove_temporary()?;
                return Err(error.into());
            }
        }
        drop(locked);
        crash_point::reach(CrashPoint::RemoteFetched);
        let mut fetched = Fetched::default();
        if let Some(branch) = default {
            let commit = self.git.resolve(&place, &local_name(remote, branch)).await?;
            let short = branch.strip_prefix("refs/heads/").unwrap_or(branch).to_owned();
            fetched.default = commit.map(|commit| (short, commit));
        }
        for name in refs {
            fetched.commits.push(match listed.id_of(name) {
                Some(_) => self.git.resolve(&place, &local_name(remote, name)).await?,
                None => None,
            });
        }
        if *submodules {
            let own = refs.iter().zip(&fetched.commits).filter(|(name, _)| !forks.contains(name));
            let own = own.filter_map(|(_, commit)| commit.as_ref());
            let default = fetched.default.as_ref().map(|(_, commit)| commit);
            for commit in default.into_iter().chain(own) {
                self.note_submodules(project, commit, remote).await?;
            }
        }
        Ok(fetched)
    }

    /// Gives a branch of a remote a commit of the keep repository, in the wanted way or not at all.
    /// A repeated push ends in the same state.
    ///
    /// # Errors
    /// `Refused` names the message of the remote.
    pub async fn push(&self, order: &PushOrder) -> Result<Pushed, RemoteError> {
        self.push_safely(order).await.map_err(|error| remote_error(&error))
    }

    async fn push_safely(&self, order: &PushOrder) -> Result<Pushed> {
        self.git.check().await?;
        let PushOrder { project, remote, commit, branch, way } = order;
        if *way == PushWay::Create && !branch.starts_with(OURS) {
            return Err(CheckoutError::Refused(format!(
                "`{branch}` is not made: only the branches of tasks, `{OURS}…`, are"
            )));
        }
        let name = format!("refs/heads/{branch}");
        let place = self.places.place_of_project(project);
        if self.git.resolve(&place, commit).await?.is_none() {
            return Err(CheckoutError::Refused(format!(
                "`{}` does not have the commit {commit}",
                place.keep().display()
            )));
        }
        for is_last in [false, true] {
            let listed = self.list_refs(remote, std::slice::from_ref(&name)).await?;
            let there = listed.id_of(&name);
            match (there, way) {
                (Some(there), _) if there == commit => return Ok(Pushed::Done),
                // It may have become the default branch since the work began.
                (_, PushWay::Advance) if listed.default_branch() == Some(name.as_str()) => {
                    return Ok(Pushed::Taken);
                }
                (Some(there), PushWay::Advance) => {
                    let _locked = self.keep.lock_keep(project, &place).await?;
                    self.fetch_ref(&place, remote, &name).await?;
                    if self.git.contains(&place, there, commit).await? {
                        return Ok(Pushed::Done);
                    }
                    if !self.git.contains(&place, commit, there).await? {
                        return Ok(Pushed::Taken);
                    }
                }
                (Some(_), PushWay::Create) | (None, PushWay::Advance) => return Ok(Pushed::Taken),
                (None, PushWay::Create) => {}
            }
            // The branch must be as it was just seen; without a value, it must not exist.
            let lease = format!("--force-with-lease={name}:{}", there.unwrap_or_default());
            let spec = format!("{commit}:{name}");
            let arguments = [
                "push",
                "--porcelain",
                "--no-verify",
                "--no-follow-tags",
                "--recurse-submodules=no",
                &lease,
                "--end-of-options",
                &remote.url,
                &spec,
            ];
            let call = self.git.on(&place.keep(), arguments).with_remote(remote).long();
            let ended = call.end().await?;
            crash_point::reach(CrashPoint::ResultPushed);
            if ended.code == Some(0) {
                return Ok(Pushed::Done);
            }
            let message = push_message(&ended);
            // Another push changed the branch meanwhile. The next question tells to which commit.
            if is_last || !message.contains("stale info") {
                let command = "push".to_owned();
                return Err(GitError::Failed { command, message }.into());
            }
        }
        Ok(Pushed::Taken)
    }

    /// Fetches the submodules of a commit at a forge. A failure delays only the work that needs
    /// them.
    pub(super) async fn note_submodules(
        &self,
        project: &ProjectId,
        commit: &str,
        remote: &Remote,
    ) -> Result<()> {
        let place = self.places.place_of_project(project);
        let _locked = self.keep.lock_keep(project, &place).await?;
        let fetched = self.fetch_submodules(&place, commit, &Origin::of_remote(remote)).await;
        let mut failures = lock(&self.submodule_failures);
        match fetched {
            Ok(()) => drop(failures.remove(commit)),
            Err(error) => {
                let reason = ErrorChain(&error).to_string();
                tracing::warn!(project_id = %project, reason, "could not fetch a submodule");
                failures.insert(commit.to_owned(), reason);
            }
        }
        Ok(())
    }

    /// Brings the present commit of a ref of a remote into the keep repository.
    async fn fetch_ref(&self, place: &Place, remote: &Remote, name: &str) -> Result<()> {
        let spec = format!("+{name}:{}", local_name(remote, name));
        let arguments = FETCH.into_iter().chain(["--end-of-options", &remote.url, &spec]);
        self.git.on(&place.keep(), arguments).with_remote(remote).long().run().await?;
        Ok(())
    }

    /// Asks a remote for its HEAD and for these refs.
    async fn list_refs(&self, remote: &Remote, refs: &[String]) -> Result<Listed> {
        let options = ["ls-remote", "--symref", "--end-of-options", &remote.url, "HEAD"];
        // The pattern `HEAD` alone does not show the branch that HEAD names.
        let arguments = options.into_iter().chain(refs.iter().map(String::as_str));
        let call = self.git.call(arguments).run_as(self.keep.keeper).with_remote(remote);
        let printed = call.text().await?;
        Ok(Listed::parse(&printed))
    }
}

impl Clones {
    /// Returns the commit at a forge that a workspace begins at, as a HEAD.
    pub(super) async fn fetched_head(
        &self,
        base: Option<&ForgeBase>,
        place: &Place,
    ) -> Result<Head> {
        let Some(ForgeBase { target, commit, .. }) = base else {
            return Ok(Head::default());
        };
        let Some(found) = self.git.resolve(place, commit).await? else {
            return Err(CheckoutError::Refused(format!(
                "the keep repository lacks the commit {commit}, at which the work begins; \
                 remove the bot's label from the item and add it again"
            )));
        };
        Ok(Head { branch: Some(format!("refs/heads/{target}")), commit: Some(found) })
    }
}

impl WorkspacePlaces {
    fn place_of_project(&self, project: &ProjectId) -> Place {
        let project = self.root.join(project.as_str());
        let folder = project.join("forge");
        let tree = folder.join("tree");
        Place::new(project, folder, tree)
    }
}

/// The refs of a remote.
#[derive(Debug, Default)]
struct Listed {
    /// The branch that HEAD names, as a full ref.
    branch: Option<String>,
    /// Full names of refs, with their ids.
    refs: Vec<(String, String)>,
}

impl Listed {
    fn parse(printed: &str) -> Self {
        let mut listed = Self::default();
        for line in printed.lines() {
            match line.split_once('\t') {
                Some((target, "HEAD")) if target.starts_with("ref: ") => {
                    listed.branch = target.strip_prefix("ref: ").map(str::to_owned);
                }
                Some((id, name)) => listed.refs.push((name.to_owned(), id.to_owned())),
                None => {}
            }
        }
        // HEAD has the commit of its branch, also if the branch itself was not asked for.
        if let Some(branch) = listed.branch.clone()
            && listed.id_of(&branch).is_none()
            && let Some(id) = listed.id_of("HEAD").map(str::to_owned)
        {
            listed.refs.push((branch, id));
        }
        listed
    }

    fn default_branch(&self) -> Option<&str> {
        self.branch.as_deref()
    }

    fn id_of(&self, name: &str) -> Option<&str> {
        self.refs.iter().find(|(known, _)| known == name).map(|(_, id)| id.as_str())
    }
}

/// Returns the ref of the keep repository that follows a ref of a remote.
fn local_name(remote: &Remote, name: &str) -> String {
    let hash = short_hash(remote.url.as_bytes());
    // A flat name, because the remote may replace the branch `release` with `release/1`.
    let flat = name.strip_prefix("refs/").unwrap_or(name).replace('%', "%25").replace('/', "%2F");
    format!("{FORGE}/{hash}/{flat}")
}

/// Returns git's message about a push, with the reason of the remote.
fn push_message(ended: &Ended) -> String {
    let printed = String::from_utf8_lossy(&ended.stdout);
    let refused = printed.lines().filter_map(|line| line.strip_prefix("!\t"));
    let refused = refused.map(|line| line.replace('\t', " "));
    let lines: Vec<String> = refused.chain([ended.message.clone()]).collect();
    lines.join("\n").trim().to_owned()
}

fn remote_error(error: &CheckoutError) -> RemoteError {
    let message = ErrorChain(error).to_string();
    match error {
        CheckoutError::Refused(_) | CheckoutError::Gone(_) => RemoteError::Refused(message),
        CheckoutError::Git(GitError::Failed { message: said, .. })
            if REFUSALS.iter().any(|sign| said.contains(sign)) =>
        {
            RemoteError::Refused(message)
        }
        _ => RemoteError::Unanswered(message),
    }
}
