//! Separates agents from one another and from the daemon: by users of their own, control groups and
//! limits, as far as possible. This module looks up what this machine and its user allow, and
//! reports what is missing. `process` and its shims apply it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::unistd::User;

use config::{AgentLimits, Config, KEEPER, ProviderConfig, built_in_names};
use domain::{FileOwner, FileOwners, RunAs};
use machine::cgroup;
use machine::sys;
use supervisor::provider::AgentUser;

/// The reason why agents cannot be started as configured.
#[derive(Debug, thiserror::Error)]
pub enum UserProblem {
    #[error(
        "`ai_providers.{provider}.run_as: {user}` needs a daemon that runs as root; this one can't change its user"
    )]
    NotRoot { provider: String, user: String },
    #[error("`ai_providers.{provider}.run_as`: this machine has no user `{user}`")]
    Unknown { provider: String, user: String },
    #[error("`ai_providers.{provider}.run_as`: could not look up user `{user}`")]
    LookUp { provider: String, user: String, source: nix::Error },
    #[error(
        "`ai_providers.{provider}.run_as` needs `mcp_socket_path` outside of the state directory, which is the daemon's alone; \
         such as /run/agent-coordinator/mcp.sock"
    )]
    SocketInStateDir { provider: String },
    #[error(
        "`ai_providers.{provider}.run_as`: user `{user}` may not enter `{}` on the way to the MCP socket", .folder.display()
    )]
    NoWay { provider: String, user: String, folder: PathBuf },
    #[error(
        "`ai_providers.{provider}.run_as` needs the folder `{}` of the MCP socket to be the daemon's alone to change: others \
         could put something in the way of what is written there for its agents", .folder.display()
    )]
    OpenFolder { provider: String, folder: PathBuf },
}

/// Checks that the users that agents run as exist, and can reach what they need.
///
/// # Errors
/// Returns the first problem of the first provider that has one.
pub fn check_users(config: &Config) -> Result<(), UserProblem> {
    for (provider, user) in wanted_users(config) {
        let names = || (provider.to_owned(), user.to_owned());
        if !rustix::process::geteuid().is_root() {
            let (provider, user) = names();
            return Err(UserProblem::NotRoot { provider, user });
        }
        let found = look_up(user).map_err(|source| {
            let (provider, user) = names();
            UserProblem::LookUp { provider, user, source }
        })?;
        let Some(found) = found else {
            let (provider, user) = names();
            return Err(UserProblem::Unknown { provider, user });
        };
        if config.paths.mcp_socket_path.starts_with(&config.paths.state_dir) {
            return Err(UserProblem::SocketInStateDir { provider: provider.to_owned() });
        }
        if let Some(folder) = config
            .paths
            .mcp_socket_path
            .parent()
            .filter(|folder| sys::ownership::is_changed_by_others(folder))
        {
            return Err(UserProblem::OpenFolder {
                provider: provider.to_owned(),
                folder: folder.to_owned(),
            });
        }
        if let Some(folder) = first_closed(&found.run_as, &config.paths.mcp_socket_path) {
            let (provider, user) = names();
            return Err(UserProblem::NoWay { provider, user, folder });
        }
    }
    Ok(())
}

/// Returns the users that agents run as, by name. A user that does not exist is missing.
pub fn users(config: &Config) -> BTreeMap<String, AgentUser> {
    let names: BTreeSet<&str> = wanted_users(config).map(|(_, user)| user).collect();
    names.into_iter().filter_map(|name| Some((name.to_owned(), look_up(name).ok()??))).collect()
}

/// Returns the owners of the files that the server writes for agents. Only root can give files to
/// another user.
pub(super) fn file_owners(config: &Config) -> FileOwners {
    if !rustix::process::geteuid().is_root() {
        return FileOwners::default();
    }
    let users = users(config);
    let owner = |provider: &ProviderConfig| match &provider.run_as {
        None => FileOwner::Daemon,
        Some(name) => users.get(name).map_or_else(
            || FileOwner::Missing { name: name.clone() },
            |user| FileOwner::User(user.run_as.clone()),
        ),
    };
    let built_in = built_in_names().into_iter();
    built_in
        .map(|name| (name.to_owned(), FileOwner::Daemon))
        .chain(config.providers.iter().map(|(name, provider)| (name.clone(), owner(provider))))
        .collect()
}

/// Returns the folder where such users find the files of their launches. It is beside the socket,
/// because they cannot reach the state directory.
pub fn users_files(config: &Config) -> PathBuf {
    config.paths.mcp_socket_path.with_file_name("files")
}

/// Returns the user and the group of the account that is reserved for the daemon's repositories;
/// `None` if this machine has no such account.
pub(super) fn find_keeper() -> Option<(u32, u32)> {
    let found = User::from_name(KEEPER).ok().flatten()?;
    Some((found.uid.as_raw(), found.gid.as_raw()))
}

fn wanted_users(config: &Config) -> impl Iterator<Item = (&str, &str)> {
    let entries = config.providers.iter();
    entries.filter_map(|(name, provider)| Some((name.as_str(), provider.run_as.as_deref()?)))
}

fn look_up(name: &str) -> Result<Option<AgentUser>, nix::Error> {
    let Some(user) = User::from_name(name)? else {
        return Ok(None);
    };
    let groups = match CString::new(name) {
        Ok(name) => sys::users::groups_of(&name, user.gid)?,
        Err(_) => return Ok(None),
    };
    let run_as =
        RunAs { name: name.to_owned(), uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups };
    Ok(Some(AgentUser { run_as, home: user.dir, shell: user.shell }))
}

/// Returns the uppermost existing folder above `path` that `user` may not enter, according to its
/// mode.
fn first_closed(user: &RunAs, path: &Path) -> Option<PathBuf> {
    let mut folders: Vec<&Path> = path.ancestors().skip(1).collect();
    folders.reverse();
    folders
        .into_iter()
        .find(|folder| std::fs::metadata(folder).is_ok_and(|found| !may_enter(user, &found)))
        .map(Path::to_owned)
}

fn may_enter(user: &RunAs, folder: &std::fs::Metadata) -> bool {
    let bit = match (folder.uid() == user.uid, user.groups.contains(&folder.gid())) {
        (true, _) => 0o100,
        (false, true) => 0o010,
        (false, false) => 0o001,
    };
    user.uid == 0 || folder.mode() & bit != 0
}

/// The soft limit of open files that this process was started with.
static DESCRIPTORS: OnceLock<u64> = OnceLock::new();

/// Gives agents this soft limit of open files, independent of the daemon's own limit: some programs
/// do not work well with a high one.
pub fn give_agents_descriptors(soft: u64) {
    let _ = DESCRIPTORS.set(soft);
}

/// Returns the value that [`give_agents_descriptors`] was given.
pub(super) fn descriptors() -> Option<u64> {
    DESCRIPTORS.get().copied()
}

/// Returns the limits for the process tree of one agent.
pub(super) fn limits(config: &Config) -> cgroup::CgroupLimits {
    let AgentLimits { memory_per_agent, processes_per_agent } = config.agent_limits;
    cgroup::CgroupLimits { memory: memory_per_agent, processes: processes_per_agent }
}

/// Finds the control group for agents, and logs once which features agents get.
pub(super) fn find_cgroups(config: &Config) -> Option<cgroup::Delegated> {
    let limits = limits(config);
    let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    match cgroup::find(Path::new(cgroup::MOUNT), &membership) {
        Ok(found) => {
            let not_kept = found.not_kept(limits);
            let group = found.dir().display();
            let memory = found.has_memory;
            let processes = found.has_pids;
            if not_kept.is_empty() {
                tracing::info!(%group, memory, processes, "each agent gets a control group");
            } else {
                let not_kept = not_kept.join(", ");
                tracing::warn!(
                    %group, memory, processes, not_kept,
                    "each agent gets a control group without limits: the daemon may not use the controllers"
                );
            }
            Some(found)
        }
        Err(reason) if limits == cgroup::CgroupLimits::default() => {
            tracing::info!(%reason, "agents get no control groups; the daemon finds and ends their processes without them");
            None
        }
        Err(reason) => {
            tracing::warn!(%reason, "agents get no control groups: limits of memory and processes are not enforced");
            None
        }
    }
}
