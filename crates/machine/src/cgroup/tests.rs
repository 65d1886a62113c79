use super::*;

/// A hierarchy of plain files with the group of a daemon in it, and the content of
/// `/proc/self/cgroup` there.
struct Fake(tempfile::TempDir);

const MEMBERSHIP: &str = "0::/unit.service/daemon\n";

impl Fake {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["", "unit.service", "unit.service/daemon"] {
            let dir = root.path().join(dir);
            std::fs::create_dir_all(&dir).unwrap();
            for (file, text) in [
                ("cgroup.controllers", "cpu memory pids\n"),
                ("cgroup.events", "populated 1\n"),
                (PROCS, ""),
                (SUBTREE_CONTROL, ""),
            ] {
                std::fs::write(dir.join(file), text).unwrap();
            }
        }
        Self(root)
    }

    /// Marks a group like systemd. Returns `false` if the file system has no such attributes.
    fn mark(&self, group: &str) -> bool {
        let dir = self.0.path().join(group);
        rustix::fs::setxattr(dir, MARKS[0], b"1", rustix::fs::XattrFlags::empty()).is_ok()
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.path().join(file)).unwrap()
    }
}

#[test]
fn beside_the_daemon_controllers_are_turned_on() {
    let fake = Fake::new();
    if !fake.mark("unit.service") {
        return;
    }
    let found = find(fake.0.path(), MEMBERSHIP).unwrap();
    assert_eq!(found.dir(), fake.0.path().join("unit.service"));
    assert!(found.has_memory && found.has_pids);
    assert_eq!(fake.read("unit.service/cgroup.subtree_control"), "+memory +pids ");
    assert_eq!(fake.read("cgroup.subtree_control"), "", "what is above is somebody else's");
}

#[test]
fn below_the_daemon_there_are_groups_without_limits() {
    let fake = Fake::new();
    if !fake.mark("unit.service/daemon") {
        return;
    }
    let found = find(fake.0.path(), MEMBERSHIP).unwrap();
    assert_eq!(found.dir(), fake.0.path().join("unit.service/daemon"));
    assert!(!found.has_memory && !found.has_pids);
    let limits = CgroupLimits { memory: Some(1), processes: None };
    assert_eq!(found.not_kept(limits), ["limits.memory_per_agent"]);
    assert_eq!(found.kept(limits), CgroupLimits::default());
}

#[test]
fn without_a_hierarchy_there_is_nothing() {
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(find(empty.path(), MEMBERSHIP), Err(NotDelegated::NoHierarchy));
    assert_eq!(find(Fake::new().0.path(), "4:memory:/a\n"), Err(NotDelegated::NoHierarchy));
}

#[test]
fn the_hierarchy_beside_the_first_version_is_found() {
    let fake = Fake::new();
    let mount = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(fake.0.path(), mount.path().join("unified")).unwrap();
    if fake.mark("unit.service") {
        assert_eq!(
            find(mount.path(), MEMBERSHIP).unwrap().dir(),
            mount.path().join("unified/unit.service")
        );
    }
}

#[test]
fn a_group_has_its_limits_and_tells_who_ran_out_of_memory() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("agent-x-lch_1");
    let group =
        Group::create(&dir, CgroupLimits { memory: Some(4096), processes: Some(7) }).unwrap();
    assert_eq!(std::fs::read_to_string(dir.join("memory.max")).unwrap(), "4096");
    assert_eq!(std::fs::read_to_string(dir.join("pids.max")).unwrap(), "7");
    assert_eq!(group.n_oom_kills(), None);
    std::fs::write(dir.join("memory.events"), "low 0\noom 2\noom_kill 1\noom_group_kill 0\n")
        .unwrap();
    assert_eq!(group.n_oom_kills(), Some(1));
    group.entrance().unwrap().write_all(b"42").unwrap();
    assert!(group.has(42) && !group.has(4));
}

#[test]
fn only_dead_groups_of_this_installation_are_swept() {
    let root = tempfile::tempdir().unwrap();
    let delegated = Delegated { dir: root.path().to_owned(), has_memory: false, has_pids: false };
    let ours = "0193-aaaa-1111";
    let other = "0193-aaaa-2222";
    for (id, launch) in [(ours, "lch_dead"), (ours, "lch_live"), (other, "lch_dead")] {
        std::fs::create_dir(delegated.group_of(id, launch)).unwrap();
    }
    std::fs::create_dir(root.path().join("daemon")).unwrap();
    assert_eq!(delegated.sweep(ours, &BTreeSet::from(["lch_live".to_owned()])), 1);
    // In a plain folder, the order to kill stays behind as a file.
    let dead = std::fs::read_dir(delegated.group_of(ours, "lch_dead")).unwrap();
    assert_eq!(dead.map(|file| file.unwrap().file_name()).collect::<Vec<_>>(), [KILL]);
    for (id, launch) in [(ours, "lch_live"), (other, "lch_dead")] {
        let group = delegated.group_of(id, launch);
        assert_eq!(std::fs::read_dir(&group).unwrap().count(), 0);
        assert!(is_group_of(&group, id, launch) && !is_group_of(&group, "0193-bbbb-3333", launch));
    }
}
