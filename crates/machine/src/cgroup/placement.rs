//! Decides from facts where a daemon may make control groups.

/// The reason why agents get no control groups.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotDelegated {
    #[error("this machine shows no cgroup v2 hierarchy")]
    NoHierarchy,
    #[error("the daemon runs in the root cgroup of the machine, which is never delegated")]
    MachineRoot,
    #[error("control group `{path}` is outside of what this process sees")]
    OutOfSight { path: String },
    #[error(
        "control group `{path}` belongs to the service manager, which did not delegate it (Delegate=yes)"
    )]
    NotMarked { path: String },
    #[error("control group `{path}` is not writable")]
    NotWritable { path: String },
}

/// The place of the agents' groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// The groups are in the daemon's own group.
    Below,
    /// The groups are beside the daemon's own group, in the one above (`DelegateSubgroup=`). Only
    /// such a group can limit its children.
    Beside,
}

/// The facts about the daemon's own group and the one above.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'a> {
    /// The path of the own group, from the root of the hierarchy as this process sees it.
    pub path: &'a str,
    pub is_superuser: bool,
    pub is_machine_root: bool,
    pub own: GroupFacts,
    pub parent: GroupFacts,
}

/// The facts about one group.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GroupFacts {
    /// True if the service manager has marked the group as delegated.
    pub is_marked: bool,
    pub is_writable: bool,
}

/// Returns the path of a process in the hierarchy of the second version, from its
/// `/proc/<pid>/cgroup`.
pub(super) fn own_path(membership: &str) -> Option<&str> {
    membership.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Returns the place of the groups. A mark of the service manager has the highest rank. Without
/// one, the root group of a container belongs to the container. A group that an ordinary user may
/// write belongs to that user, unless its name shows that a service manager uses it. Write
/// permission of root means nothing, because root may write everywhere.
pub(super) fn decide(facts: &Facts<'_>) -> Result<Placement, NotDelegated> {
    let path = || facts.path.to_owned();
    if facts.is_machine_root {
        return Err(NotDelegated::MachineRoot);
    }
    // The path of a process from outside this namespace begins like this.
    if facts.path.starts_with("/..") {
        return Err(NotDelegated::OutOfSight { path: path() });
    }
    let is_tended =
        [".service", ".scope", ".slice"].iter().any(|suffix| facts.path.ends_with(suffix));
    // A unit directly below a delegated group has a marked parent, too. That parent belongs to the
    // unit's manager, for the groups of the manager.
    if facts.parent.is_marked && facts.parent.is_writable && !is_tended {
        return Ok(Placement::Beside);
    }
    let is_ours = facts.own.is_marked || facts.path == "/" || (!facts.is_superuser && !is_tended);
    match (is_ours, facts.own.is_writable) {
        (true, true) => Ok(Placement::Below),
        (true, false) => Err(NotDelegated::NotWritable { path: path() }),
        (false, _) => Err(NotDelegated::NotMarked { path: path() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Facts<'_> = Facts {
        path: "/system.slice/agent-coordinator.service",
        is_superuser: true,
        is_machine_root: false,
        own: WRITABLE,
        parent: WRITABLE,
    };
    const WRITABLE: GroupFacts = GroupFacts { is_marked: false, is_writable: true };
    const MARKED: GroupFacts = GroupFacts { is_marked: true, is_writable: true };
    const CLOSED: GroupFacts = GroupFacts { is_marked: false, is_writable: false };

    #[track_caller]
    fn check(facts: Facts<'_>, expected: Result<Placement, &str>) {
        let decided = decide(&facts).map_err(|reason| reason.to_string());
        match expected {
            Ok(place) => assert_eq!(decided, Ok(place)),
            Err(text) => {
                assert!(decided.clone().is_err_and(|reason| reason.contains(text)), "{decided:?}");
            }
        }
    }

    #[test]
    fn what_systemd_delegated_is_taken_and_nothing_else_of_it() {
        check(SERVICE, Err("did not delegate"));
        check(Facts { own: MARKED, ..SERVICE }, Ok(Placement::Below));
        let subgroup = Facts { path: "/system.slice/agent-coordinator.service/daemon", ..SERVICE };
        check(Facts { parent: MARKED, ..subgroup }, Ok(Placement::Beside));
        check(Facts { parent: MARKED, ..SERVICE }, Err("did not delegate"));
        check(Facts { is_superuser: false, ..SERVICE }, Err("did not delegate"));
        check(
            Facts { own: GroupFacts { is_writable: false, ..MARKED }, ..SERVICE },
            Err("not writable"),
        );
    }

    #[test]
    fn a_users_own_group_and_the_root_of_a_container_are_taken() {
        let own = Facts { path: "/fleet", is_superuser: false, ..SERVICE };
        check(own, Ok(Placement::Below));
        check(Facts { is_superuser: true, ..own }, Err("did not delegate"));
        check(Facts { path: "/", ..SERVICE }, Ok(Placement::Below));
        check(Facts { path: "/", own: CLOSED, ..SERVICE }, Err("not writable"));
    }

    #[test]
    fn the_root_of_the_machine_and_what_cant_be_seen_are_left_alone() {
        check(Facts { path: "/", is_machine_root: true, ..SERVICE }, Err("root cgroup"));
        check(Facts { path: "/../other", own: MARKED, ..SERVICE }, Err("outside"));
    }

    #[test]
    fn the_own_path_is_that_of_the_second_version() {
        assert_eq!(own_path("9:name=systemd:/\n4:memory:/a\n0::/b/c\n"), Some("/b/c"));
        assert_eq!(own_path("4:memory:/a\n"), None);
    }
}
