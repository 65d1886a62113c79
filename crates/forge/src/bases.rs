//! Fetches the commits at which the work on waiting items begins, before they are claimed.
//!
//! An issue begins at the default branch. A pull or merge request begins at its own head, which the
//! repository also has for forks.

use super::RequestBranches;
use super::host_state::HostState;
use super::list_cursor::ItemNumber;
use super::remotes::NoRemote;
use config::WatchedRepository;
use domain::forge::{Base, DiffBase, ItemKind, Publish};
use domain::workspace::{FetchOrder, RemoteError};
use runtime::telemetry::ErrorChain;
use service::RepositoryKey;

/// The number of pull or merge requests whose branches one fetch asks for. The next fetches ask for
/// the others.
pub(super) const MAX_REQUESTS: usize = 20;

/// Fetches the base commits of the waiting items of a repository, and notes them. Without waiting
/// items, it fetches the default branch, so that the first item need not wait long. `asked` are the
/// pull or merge requests whose branches the forge is asked for.
///
/// # Errors
/// The reason for people why the items have to wait.
pub(super) async fn fetch(
    host_state: &HostState,
    repository: &RepositoryKey,
    watched: &WatchedRepository,
    asked: &[ItemNumber],
) -> Result<(), String> {
    let forge = host_state.forge().map_err(|error| error.to_string())?;
    let forge = &forge;
    let failed = |error: &dyn std::error::Error| {
        format!("its items wait: the repository was not fetched: {}", ErrorChain(error))
    };
    let remote = host_state.remote(forge, &watched.name).await;
    let remote = remote.map_err(|error: NoRemote| failed(&error))?;
    let service = &host_state.service;
    let items = service.forges.waiting_in(repository);
    let mut requests = Vec::new();
    let mut problem = None;
    for (kind, number) in asked.iter().copied() {
        let ask = |name: String| async move { forge.branches_of(&name, number).await };
        let branches = host_state.ask_in(forge, &watched.name, ask).await;
        match branches {
            Ok(branches) => requests.push(((kind, number), branches)),
            // The others need not wait for it.
            Err(error) => problem = Some(failed(&error)),
        }
    }
    // Each request has two refs: its head, and the branch that it is compared with.
    let refs = requests.iter().flat_map(|((kind, number), branches)| {
        [head_of(*kind, *number), format!("refs/heads/{}", branches.target)]
    });
    let refs = refs.collect();
    let of_forks = requests.iter().filter(|(_, branches)| branches.is_of_fork);
    let forks = of_forks.map(|((kind, number), _)| head_of(*kind, *number)).collect();
    let upstream = remote.url.clone();
    let max_disk = service.settings().workspace.max_disk;
    let project = watched.project.clone();
    // The service knows the setting of submodules.
    let order = FetchOrder { project, remote, refs, forks, submodules: false, max_disk };
    let fetched = service.workspaces.fetch(&order).await.map_err(|error: RemoteError| {
        host_state.forget_remote(&watched.name);
        failed(&error)
    })?;
    let Some((target, commit)) = fetched.default else {
        return Err("its items wait: the default branch of the repository has no commit".to_owned());
    };
    let default_branch = target.clone();
    let of_issues = Base {
        target,
        commit,
        upstream: upstream.clone(),
        is_read_only: false,
        diff_base: None,
        push_to: None,
    };
    for item in items.iter().filter(|(kind, _)| *kind == ItemKind::Issue) {
        service.forges.note_base(repository, *item, of_issues.clone());
    }
    for ((item, branches), commits) in requests.into_iter().zip(fetched.commits.chunks(2)) {
        // A request without a head has no commits.
        if let [Some(commit), compared] = commits {
            let may_push = watched.push_to_pr && branches.branch != default_branch;
            let base = base_of(branches, commit.clone(), compared.clone(), upstream.clone());
            let push_to = Some(base.target.clone()).filter(|_| may_push && !base.is_read_only);
            let base = Base { push_to, ..base };
            service.forges.note_base(repository, item, base);
        }
    }
    service.forges.serve_waiting();
    problem.map_or(Ok(()), Err)
}

/// Returns the base of a pull or merge request. Its result is proposed for its own branch. If that
/// is in a fork, nothing is pushed.
fn base_of(
    branches: RequestBranches,
    commit: String,
    compared: Option<String>,
    upstream: String,
) -> Base {
    let RequestBranches { branch, target: into, is_of_fork } = branches;
    let diff_base = compared.map(|commit| DiffBase { branch: into.clone(), commit });
    let target = if is_of_fork { into } else { branch };
    Base { target, commit, upstream, is_read_only: is_of_fork, diff_base, push_to: None }
}

/// Returns the ref by which the base repository has the head of a pull or merge request.
fn head_of(kind: ItemKind, number: u64) -> String {
    match kind {
        ItemKind::MergeRequest => format!("refs/merge-requests/{number}/head"),
        ItemKind::PullRequest | ItemKind::Issue => format!("refs/pull/{number}/head"),
    }
}

/// Returns whether the items of a repository need base commits.
pub(super) fn are_needed(watched: &WatchedRepository) -> bool {
    watched.publish != Publish::Nothing
}
