//! Control groups (cgroup v2). If the service manager delegated a group to this daemon, each launch
//! gets a child of it. Through that child the kernel can end a whole process tree at once and limit
//! its resources.
//!
//! This module makes, fills, kills and removes only groups below the delegated one, with names of
//! this installation. Without a delegated group, agents run without groups. It knows nothing of
//! launches beyond a name. `process` calls it to find and sweep groups. The shim calls it to make
//! the group of its agent, and stays outside that group.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

mod placement;

use placement::{Facts, GroupFacts, own_path};
pub use placement::{NotDelegated, Placement};

/// The folder in which the kernel shows control groups.
pub const MOUNT: &str = "/sys/fs/cgroup";
/// The attributes by which systemd marks a delegated group. The second is for root only.
const MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];
const PROCS: &str = "cgroup.procs";
const KILL: &str = "cgroup.kill";
const SUBTREE_CONTROL: &str = "cgroup.subtree_control";
const NAME_BEGINS: &str = "agent-";

/// A group in which this daemon may make others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegated {
    dir: PathBuf,
    /// True if `memory.max` of a child has an effect.
    pub has_memory: bool,
    /// True if `pids.max` of a child has an effect.
    pub has_pids: bool,
}

/// The limits of the process tree of one agent; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CgroupLimits {
    /// The memory in bytes.
    pub memory: Option<u64>,
    pub processes: Option<u64>,
}

/// Looks below `mount` for a group that was delegated to the process whose `/proc/<pid>/cgroup` is
/// `membership`. Turns on the controllers in it that limits need, if that is possible.
///
/// # Errors
/// Returns the reason why there is none: a fact about the machine, for the log.
pub fn find(mount: &Path, membership: &str) -> Result<Delegated, NotDelegated> {
    let is_hierarchy = |dir: &PathBuf| dir.join("cgroup.controllers").exists();
    // The second is the place beside the first version of the hierarchy (systemd's hybrid mode).
    let root = [mount.to_owned(), mount.join("unified")].into_iter().find(is_hierarchy);
    let root = root.ok_or(NotDelegated::NoHierarchy)?;
    let path = own_path(membership).ok_or(NotDelegated::NoHierarchy)?;
    let own = root.join(path.trim_start_matches('/'));
    let parent = own.parent().filter(|parent| own != root && parent.starts_with(&root));
    let place = placement::decide(&Facts {
        path,
        is_superuser: rustix::process::geteuid().is_root(),
        is_machine_root: !own.join("cgroup.events").exists(),
        own: see(&own),
        parent: parent.map(see).unwrap_or_default(),
    })?;
    let dir = match (place, parent) {
        (Placement::Beside, Some(parent)) => {
            turn_on(parent);
            parent.to_owned()
        }
        // A group that contains processes can't give further controllers to its children, so only
        // those that are already on can be used.
        (Placement::Below | Placement::Beside, _) => own,
    };
    let turned_on = std::fs::read_to_string(dir.join(SUBTREE_CONTROL)).unwrap_or_default();
    let has = |controller: &str| {
        turned_on.split_ascii_whitespace().any(|word| word.trim_start_matches('+') == controller)
    };
    Ok(Delegated { has_memory: has("memory"), has_pids: has("pids"), dir })
}

fn see(dir: &Path) -> GroupFacts {
    GroupFacts { is_marked: is_marked(dir), is_writable: is_writable(dir) }
}

fn is_marked(dir: &Path) -> bool {
    MARKS.iter().any(|mark| {
        let mut value = [0; 8];
        let n = rustix::fs::getxattr(dir, *mark, &mut value);
        n.is_ok_and(|n| value[..n] == *b"1")
    })
}

fn is_writable(dir: &Path) -> bool {
    let may_write = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    may_write(dir) && may_write(&dir.join(PROCS))
}

/// The controllers are turned on one by one, because one may be missing without the other.
fn turn_on(dir: &Path) {
    let present = std::fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
    let missing = |controller: &&str| {
        let on = std::fs::read_to_string(dir.join(SUBTREE_CONTROL)).unwrap_or_default();
        !on.split_ascii_whitespace().any(|word| word == *controller)
    };
    for controller in ["memory", "pids"]
        .iter()
        .filter(|wanted| present.split_ascii_whitespace().any(|it| it == **wanted))
    {
        if missing(controller) {
            let _ = OpenOptions::new()
                .append(true)
                .open(dir.join(SUBTREE_CONTROL))
                .and_then(|mut file| file.write_all(format!("+{controller} ").as_bytes()));
        }
    }
}

impl Delegated {
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the group of a launch of this installation, whether it exists or not.
    pub fn group_of(&self, installation_id: &str, launch: &str) -> PathBuf {
        self.dir.join(format!("{}{launch}", names_begin(installation_id)))
    }

    /// Returns the names of those `limits` that have no effect here.
    pub fn not_kept(&self, limits: CgroupLimits) -> Vec<&'static str> {
        let memory = limits.memory.filter(|_| !self.has_memory).map(|_| "limits.memory_per_agent");
        let processes =
            limits.processes.filter(|_| !self.has_pids).map(|_| "limits.processes_per_agent");
        memory.into_iter().chain(processes).collect()
    }

    /// Returns those `limits` whose controllers are there.
    pub fn kept(&self, limits: CgroupLimits) -> CgroupLimits {
        CgroupLimits {
            memory: limits.memory.filter(|_| self.has_memory),
            processes: limits.processes.filter(|_| self.has_pids),
        }
    }

    /// Ends and removes the groups of this installation whose launch is not in `live`. Returns
    /// their number.
    pub fn sweep(&self, installation_id: &str, live: &BTreeSet<String>) -> usize {
        let begin = names_begin(installation_id);
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let dead = names
            .filter(|name| name.strip_prefix(&begin).is_some_and(|launch| !live.contains(launch)));
        dead.map(|name| Group::at(self.dir.join(name)).end()).count()
    }
}

/// Returns the beginning of the names of this installation's groups. It contains the end of
/// `installation_id`, which stands for the place of the state directory. Therefore two daemons in
/// one group have different names.
fn names_begin(installation_id: &str) -> String {
    format!("{NAME_BEGINS}{}-", installation_id.rsplit('-').next().unwrap_or_default())
}

/// Returns whether this installation made `group` for `launch`. A copied state directory names the
/// groups of the original.
pub fn is_group_of(group: &Path, installation_id: &str, launch: &str) -> bool {
    group.file_name().and_then(|name| name.to_str())
        == Some(&format!("{}{launch}", names_begin(installation_id)))
}

/// The group of one launch.
#[derive(Debug, Clone)]
pub struct Group {
    dir: PathBuf,
}

impl Group {
    /// Returns a group that exists or existed.
    pub const fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Makes an empty group with its limits.
    ///
    /// # Errors
    /// Fails if the group can't be made or a limit can't be set. Nothing is left of it then.
    pub fn create(dir: &Path, limits: CgroupLimits) -> io::Result<Self> {
        let group = Self::at(dir.to_owned());
        match std::fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let wanted = [("memory.max", limits.memory), ("pids.max", limits.processes)];
        for (file, limit) in wanted.into_iter().filter_map(|(file, limit)| Some((file, limit?))) {
            if let Err(error) = group.write(file, &limit.to_string()) {
                group.remove();
                return Err(error);
            }
        }
        Ok(group)
    }

    /// Opens the file that moves a process into the group when its pid is written there.
    pub fn entrance(&self) -> io::Result<File> {
        self.open(PROCS)
    }

    pub fn has(&self, pid: i32) -> bool {
        let pids = std::fs::read_to_string(self.dir.join(PROCS)).unwrap_or_default();
        pids.split_ascii_whitespace().any(|text| text.parse() == Ok(pid))
    }

    /// Sends KILL to all processes of the group at once, including those that are being forked. It
    /// has no effect before Linux 5.14.
    pub fn kill(&self) {
        let _ = self.write(KILL, "1");
    }

    /// Returns the number of its processes that were killed for lack of memory; `None` without the
    /// controller.
    pub fn n_oom_kills(&self) -> Option<u32> {
        let events = std::fs::read_to_string(self.dir.join("memory.events")).ok()?;
        events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    }

    /// Removes the group if it has no processes.
    pub fn remove(&self) {
        let _ = std::fs::remove_dir(&self.dir);
    }

    /// Kills the processes of the group and removes it, as far as that is possible at once. Dead
    /// processes may take a moment to disappear.
    #[allow(
        clippy::disallowed_methods,
        reason = "the shim and the thread that removes a group may block"
    )]
    pub fn end(&self) {
        if !self.dir.exists() {
            return;
        }
        self.kill();
        for _ in 0..20 {
            if std::fs::remove_dir(&self.dir).is_ok() || !self.is_populated() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        self.remove();
    }

    fn is_populated(&self) -> bool {
        let events = std::fs::read_to_string(self.dir.join("cgroup.events")).unwrap_or_default();
        events.lines().any(|line| line == "populated 1")
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        self.open(file)?.write_all(text.as_bytes())
    }

    fn open(&self, file: &str) -> io::Result<File> {
        // The kernel has made the files of a group by now, and refuses to make others. `create` is
        // for the plain folder of a test, which has no such files.
        OpenOptions::new().write(true).create(true).truncate(false).open(self.dir.join(file))
    }
}

#[cfg(test)]
mod tests;
