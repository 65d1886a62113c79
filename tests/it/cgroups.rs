//! A control group for each agent: on plain files everywhere, and on the kernel's own if this
//! machine lets the tests make one for themselves.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use domain::launch::ProcessEnd;
use machine::cgroup::{self, CgroupLimits};
use machine::sys::processes;
use rustix::process::Signal;

use crate::daemon::{Daemon, PROGRAM};
use crate::support::{Bed, exited, is_gone, kill, killed, skip, until, until_some};

/// Returns the root of a container, as plain files.
fn fake_root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("cgroup.controllers", "cpu memory pids\n"),
        ("cgroup.events", "populated 1\n"),
        ("cgroup.procs", ""),
        ("cgroup.subtree_control", "memory pids\n"),
    ] {
        fs::write(root.path().join(file), text).unwrap();
    }
    root
}

async fn bed_with(root: &Path, limits: CgroupLimits) -> Bed {
    let found = cgroup::find(root, "0::/\n").unwrap();
    Bed::with(|config| {
        config.cgroups = Some(found);
        config.limits = limits;
    })
    .await
}

fn only_group(root: &Path) -> PathBuf {
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let groups: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    assert_eq!(groups.len(), 1, "{groups:?}");
    groups[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_is_put_into_a_group_with_its_limits_and_its_shim_is_not() {
    let root = fake_root();
    let bed =
        bed_with(root.path(), CgroupLimits { memory: Some(1 << 30), processes: Some(100) }).await;
    let launch = bed.start(&["write:ready", "wait-for:go", "exit:4"]).await;
    bed.written("ready");
    let (pid, group) = (bed.until_running(&launch), only_group(root.path()));
    let read = |file: &str| fs::read_to_string(group.join(file)).unwrap();
    assert_eq!((read("memory.max"), read("pids.max")), ("1073741824".to_owned(), "100".to_owned()));
    assert_eq!(read("cgroup.procs"), pid.to_string());
    assert!(group.to_str().unwrap().ends_with(&format!("-{launch}")));
    assert!(!group.join("cgroup.kill").exists(), "while it lives");
    std::fs::write(bed.file("go"), "").unwrap();
    assert_eq!(bed.until_ended(&launch), exited(4));
    assert!(!bed.dir(&launch).join("shim.log").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_stop_sequence_kills_the_group() {
    let root = fake_root();
    let bed = bed_with(root.path(), CgroupLimits::default()).await;
    let launch = bed.start(&["ignore-term", "write:ready", "sleep:600"]).await;
    bed.written("ready");
    let group = only_group(root.path());
    bed.table()
        .request_stop(&launch, domain::StopReason::Person, Some(Duration::ZERO))
        .await
        .unwrap();
    assert_eq!(bed.until_ended(&launch), killed(9));
    assert_eq!(fs::read_to_string(group.join("cgroup.kill")).unwrap(), "1");
    assert!(!group.join("memory.max").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_ran_out_of_memory_is_recorded() {
    let root = fake_root();
    let bed = bed_with(root.path(), CgroupLimits { memory: Some(1 << 30), processes: None }).await;
    let launch = bed.start(&["write:ready", "sleep:600"]).await;
    bed.written("ready");
    let pid = bed.until_running(&launch);
    // The kernel writes the file like this.
    fs::write(only_group(root.path()).join("memory.events"), "oom 1\noom_kill 2\n").unwrap();
    kill(pid, Signal::KILL);
    assert_eq!(bed.until_ended(&launch), killed(9));
    let record = bed.exit_record(&launch);
    assert_eq!((record.n_oom_kills, record.was_killed_by_others), (2, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_cant_be_set_keeps_the_agent_from_starting_and_a_missing_group_alone_does_not()
{
    let root = fake_root();
    for (limits, expected) in [
        (CgroupLimits { memory: Some(1 << 30), processes: None }, None),
        (CgroupLimits::default(), Some(exited(0))),
    ] {
        let bed = bed_with(root.path(), limits).await;
        let request = bed.request(&["write:started"]);
        let launch = with_group_in_the_way(&bed, root.path(), request).await;
        let end = bed.until_ended(&launch);
        if let Some(expected) = expected {
            assert_eq!(end, expected);
            continue;
        }
        let named = matches!(&end, ProcessEnd::StartFailed(text) if text.contains("could not make control group"));
        assert!(named, "{end:?}");
        assert!(!bed.file("started").exists());
    }
}

/// Starts an agent whose group can't be made, because its folder has become a file.
async fn with_group_in_the_way(
    bed: &Bed,
    root: &Path,
    request: supervisor::process::StartRequest,
) -> domain::LaunchId {
    let aside = root.with_extension("aside");
    fs::rename(root, &aside).unwrap();
    fs::write(root, "").unwrap();
    let launch = bed.start_request(request).await;
    bed.until_ended(&launch);
    fs::remove_file(root).unwrap();
    fs::rename(aside, root).unwrap();
    launch
}

/// The number of groups that this process has made, so that each has a name of its own.
static N_MADE: AtomicU32 = AtomicU32::new(0);

/// A group of the kernel that the tests have made, without other processes in it.
struct RealGroup(PathBuf);

impl RealGroup {
    /// Makes a group. If there is no way to do so, prints the reason and returns `None`.
    fn new() -> Option<Self> {
        let mount = Path::new(cgroup::MOUNT);
        let is_hierarchy = |dir: &PathBuf| dir.join("cgroup.controllers").exists();
        let Some(root) = [mount.to_owned(), mount.join("unified")].into_iter().find(is_hierarchy)
        else {
            skip("this machine shows no cgroup v2 hierarchy");
            return None;
        };
        let membership = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = membership.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let n = N_MADE.fetch_add(1, Ordering::Relaxed);
        let group =
            Self(root.join(own).join(format!("agent-coordinator-test-{}-{n}", std::process::id())));
        if let Err(error) = fs::create_dir(&group.0) {
            skip(&format!("no control group can be made here: {error}"));
            return None;
        }
        if !group.0.join("cgroup.kill").exists() {
            skip("this kernel has no cgroup.kill");
            return None;
        }
        let mark =
            rustix::fs::setxattr(&group.0, "user.delegate", b"1", rustix::fs::XattrFlags::empty());
        if let Err(error) = mark {
            skip(&format!("control groups can't be marked here: {error}"));
            return None;
        }
        Some(group)
    }

    /// Starts the daemon in the group.
    fn start(&self, daemon: &mut Daemon) {
        let plain = daemon.command();
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$0/cgroup.procs\"; exec \"$@\""]).arg(&self.0).arg(PROGRAM);
        command.args(plain.get_args()).current_dir(plain.get_current_dir().unwrap());
        daemon.spawn_as(command);
        daemon.until_ready();
    }

    fn children(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect()
    }
}

impl Drop for RealGroup {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let remove = || {
            for child in fs::read_dir(&self.0)
                .into_iter()
                .flatten()
                .flatten()
                .filter(|entry| entry.path().is_dir())
            {
                let _ = fs::remove_dir(child.path());
            }
            fs::remove_dir(&self.0).is_ok() || !self.0.exists()
        };
        until("the tests' control group is removed", remove);
    }
}

fn group_of(pid: i32) -> String {
    let membership = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    membership.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned()
}

/// A step that starts a child that only its group can find without a daemon: it has no mark in its
/// environment, and no parent.
const DAEMONISED_CHILD: &str =
    "run:(env -i setsid sh -c 'echo $$ >child; exec sleep 600' >/dev/null 2>&1 &)";

#[test]
fn the_kernels_own_groups_hold_whole_trees() {
    let Some(group) = RealGroup::new() else {
        return;
    };
    let mut daemon = Daemon::configured("backoff: { initial: 1m }");
    group.start(&mut daemon);
    assert_eq!(daemon.logged("each agent gets a control group").len(), 1, "{}", daemon.log());
    daemon.with_one_task(&[
        "authenticate",
        DAEMONISED_CHILD,
        "write:ready",
        "wait-for:go",
        "exit:3",
    ]);
    let (agent, child) = (daemon.written_pid("ready"), daemon.written_pid("child"));
    let shim = processes::read(agent).unwrap().parent;
    let theirs = group.children();
    assert_eq!(theirs.len(), 1);
    assert!(group_of(agent).ends_with(theirs[0].file_name().unwrap().to_str().unwrap()));
    assert_eq!(group_of(child), group_of(agent));
    assert_eq!(group_of(shim), group_of(daemon.pid()), "it outlives cgroup.kill");
    fs::write(daemon.work().join("go"), "").unwrap();
    assert_eq!(daemon.until_ended("agt")["exit_code"], 3);
    assert!(is_gone(child));
    assert!(group.children().is_empty());
    daemon.until_nothing_is_left();
}

/// Returns a killed daemon, whose agent's shim was killed after it, and a living process of the
/// agent's tree.
fn with_what_a_shim_left(group: &RealGroup) -> (Daemon, i32) {
    let mut daemon = Daemon::configured("backoff: { initial: 1m }");
    group.start(&mut daemon);
    daemon.with_one_task(&["authenticate", DAEMONISED_CHILD, "write:ready", "sleep:600"]);
    let (agent, child) = (daemon.written_pid("ready"), daemon.written_pid("child"));
    let shim = processes::read(agent).unwrap().parent;
    daemon.kill();
    kill(shim, Signal::KILL);
    until("the leader went with its shim", || is_gone(agent));
    (daemon, child)
}

#[test]
fn what_a_shim_left_while_no_daemon_was_there_is_found_by_its_group() {
    let Some(group) = RealGroup::new() else {
        return;
    };
    let (mut daemon, child) = with_what_a_shim_left(&group);
    assert!(!is_gone(child));
    group.start(&mut daemon);
    assert_eq!(daemon.until_ended("agt")["outcome"], "lost");
    assert!(is_gone(child));
    assert!(group.children().is_empty());
}

#[test]
fn the_group_of_a_launch_without_a_folder_is_swept() {
    let Some(group) = RealGroup::new() else {
        return;
    };
    let (mut daemon, child) = with_what_a_shim_left(&group);
    for folder in fs::read_dir(machine::instance_dir::instances(&daemon.state())).unwrap() {
        fs::remove_dir_all(folder.unwrap().path()).unwrap();
    }
    group.start(&mut daemon);
    until_some("it is told", || {
        daemon.logged("removed the control groups of ended launches").pop()
    });
    assert!(is_gone(child));
    until("the agent's end is known", || !daemon.ended("agt").is_empty());
}

#[test]
fn without_a_delegated_group_one_line_says_so() {
    let daemon = Daemon::running("limits: { memory_per_agent: 1 GiB }");
    let said = daemon.log().matches("control group").count();
    if daemon.logged("each agent gets a control group").is_empty() {
        let lines = daemon.logged(
            "agents get no control groups: limits of memory and processes are not enforced",
        );
        assert_eq!((lines.len(), said), (1, 1), "{}", daemon.log());
        assert!(!lines[0]["reason"].as_str().unwrap().is_empty());
    }
}
