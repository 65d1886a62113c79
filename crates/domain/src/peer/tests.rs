use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const OWN_NAME: &[u8] = b"agent-coordinat";
const OWN: ProcessId = ProcessId { pid: 1, start_ticks: 0 };
const COORDINATOR: ProcessId = ProcessId { pid: 2, start_ticks: 0 };

/// A process as it is, whether or not the daemon can read it.
#[derive(Debug, Clone)]
struct Process {
    name: Vec<u8>,
    role: Role,
    executable: Executable,
    is_readable: bool,
}

const fn id(start_ticks: u64) -> ProcessId {
    ProcessId { pid: 3, start_ticks }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A process of the daemon's user. It may give itself any name.
    Ordinary,
    /// A process of another user. It may give itself any name.
    OtherUser,
    /// A shim. It could change its own name, but does not.
    Shim,
    /// The deciding daemon, whose executable it can read.
    Daemon,
    /// A coordinator that connected to the daemon. Its program was replaced, so it seems to execute
    /// another one.
    Coordinator,
    /// A daemon that never connected, and hides its executable from other processes. It could
    /// change its own name, too.
    OtherDaemon,
}

/// Returns the ancestry that the daemon observes for the first of `processes`. The last of them has
/// no parent.
fn observed(processes: &[Process]) -> Ancestry {
    let mut ancestry = Ancestry::UNKNOWN;
    for (start_ticks, process) in (0..).zip(processes) {
        if !process.is_readable {
            ancestry.top =
                if process.role == Role::OtherUser { Top::OtherUser } else { Top::Unknown };
            return ancestry;
        }
        let (id, executable) = match process.role {
            Role::Daemon => (OWN, Executable::Ours),
            Role::Coordinator => (COORDINATOR, Executable::Other),
            Role::OtherDaemon => (id(start_ticks), Executable::Unreadable),
            Role::Ordinary | Role::OtherUser | Role::Shim => (id(start_ticks), process.executable),
        };
        let is_of_daemons_user = process.role != Role::OtherUser;
        ancestry.chain.push(Ancestor {
            id,
            name: process.name.clone(),
            is_of_daemons_user,
            executable,
        });
    }
    ancestry.top = Top::Root;
    ancestry
}

/// Returns the decision of the daemon about these processes.
fn rights_as(user: PeerUser, processes: &[Process]) -> PeerRights {
    let coordinators = BTreeSet::from([COORDINATOR]);
    let daemons = Daemons { own: OWN, own_name: OWN_NAME, coordinators: &coordinators };
    rights(user, &observed(processes), daemons)
}

fn rights_of(processes: &[Process]) -> PeerRights {
    rights_as(PeerUser::Daemon, processes)
}

fn ordinary(name: &[u8]) -> Process {
    Process {
        name: name.to_vec(),
        role: Role::Ordinary,
        executable: Executable::Other,
        is_readable: true,
    }
}

fn of_other_user() -> Process {
    Process { role: Role::OtherUser, ..ordinary(b"sshd") }
}

fn shim() -> Process {
    Process {
        role: Role::Shim,
        executable: Executable::Unreadable,
        ..ordinary(SHIM_COMM.as_bytes())
    }
}

fn daemon() -> Process {
    Process { role: Role::Daemon, ..ordinary(OWN_NAME) }
}

#[track_caller]
fn check(processes: &[Process], expected: PeerRights) {
    assert_eq!(rights_of(processes), expected, "{processes:?}");
}

#[test]
fn a_shell_is_an_operator_and_what_a_shim_or_a_daemon_started_is_an_agent() {
    let shell = ordinary(b"bash");
    let init = of_other_user();
    check(&[shell.clone(), shell.clone(), init.clone()], PeerRights::Operator);
    check(&[shell.clone(), shim(), daemon(), init.clone()], PeerRights::Agent);
    let with_name = |name: &[u8]| Process { name: name.to_vec(), ..shell.clone() };
    check(&[shell.clone(), with_name(SHIM_COMM.as_bytes()), init.clone()], PeerRights::Agent);
    for role in [Role::Daemon, Role::Coordinator, Role::OtherDaemon] {
        let daemon = Process { role, ..daemon() };
        check(&[shell.clone(), daemon.clone(), init.clone()], PeerRights::Agent);
        // A daemon is not below itself.
        check(&[daemon, init.clone()], PeerRights::Operator);
    }
}

#[test]
fn a_script_that_is_named_like_the_daemon_is_an_operators() {
    let script = ordinary(OWN_NAME);
    check(&[ordinary(b"curl"), script.clone(), of_other_user()], PeerRights::Operator);
    // The name does not matter if it executes this program, or may execute it.
    let executing = |executable| Process { executable, ..script.clone() };
    for name in [OWN_NAME, b"bash"] {
        let ours = Process { name: name.to_vec(), ..executing(Executable::Ours) };
        check(&[ordinary(b"curl"), ours, of_other_user()], PeerRights::Agent);
    }
    check(
        &[ordinary(b"curl"), executing(Executable::Unreadable), of_other_user()],
        PeerRights::Agent,
    );
    let sshd = Process { executable: Executable::Unreadable, ..ordinary(b"sshd-session") };
    check(&[ordinary(b"bash"), sshd, of_other_user()], PeerRights::Operator);
}

#[test]
fn a_chain_that_ends_in_an_unreadable_process_is_an_operators_only_if_another_user_owns_the_process()
 {
    let shell = ordinary(b"bash");
    let hidden = |process: Process| Process { is_readable: false, ..process };
    check(&[shell.clone(), hidden(of_other_user())], PeerRights::Operator);
    check(&[shell.clone(), hidden(ordinary(b"bash"))], PeerRights::Agent);
    check(&[hidden(of_other_user()), shell], PeerRights::Agent);
    check(&[], PeerRights::Agent);
}

#[test]
fn a_process_of_an_agents_user_must_be_below_a_shim_of_the_daemon() {
    let of_agents = |processes: &[Process]| rights_as(PeerUser::OfAgents, processes);
    let agent = of_other_user();
    let forged = Process { name: SHIM_COMM.as_bytes().to_vec(), ..of_other_user() };
    let below = |shim: Process| [agent.clone(), shim, daemon()];
    assert_eq!(of_agents(&below(shim())), PeerRights::Agent);
    for chain in
        [&below(forged.clone())[..], &below(agent.clone()), &[agent.clone(), agent.clone()]]
    {
        assert_eq!(of_agents(chain), PeerRights::Unauthenticated, "{chain:?}");
    }
    // The agent may have put one of its own shims in between.
    let between = [agent, forged, shim(), daemon()];
    assert_eq!(of_agents(&between), PeerRights::Agent);
    assert_eq!(rights_as(PeerUser::Other, &between), PeerRights::Unauthenticated);
}

#[test]
fn an_agent_can_not_put_another_outermost_shim_above_itself() {
    let forged = ordinary(SHIM_COMM.as_bytes());
    let outermost = |processes: &[Process]| outermost_shim(&observed(processes));
    assert_eq!(outermost(&[ordinary(b"sh"), shim(), daemon()]), Some(id(1)));
    assert_eq!(
        outermost(&[ordinary(b"sh"), forged.clone(), forged, shim(), daemon()]),
        Some(id(3))
    );
    assert_eq!(outermost(&[ordinary(b"sh"), daemon()]), None);
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let known =
        select(vec![&b"bash"[..], SHIM_COMM.as_bytes(), OWN_NAME, b"\xff\xfe", b"a) R 1 (b", b""]);
    prop_oneof![known.prop_map(<[u8]>::to_vec), proptest::collection::vec(any::<u8>(), 0..16)]
}

fn any_ordinary() -> impl Strategy<Value = Process> {
    let executable = select(vec![Executable::Ours, Executable::Other, Executable::Unreadable]);
    (any_name(), executable, any::<bool>()).prop_map(|(name, executable, is_readable)| Process {
        executable,
        is_readable,
        ..ordinary(&name)
    })
}

fn any_process() -> impl Strategy<Value = Process> {
    prop_oneof![
        6 => any_name().prop_map(|name| ordinary(&name)),
        2 => any_name().prop_map(|name| Process { name, ..of_other_user() }),
        1 => Just(Process { is_readable: false, ..of_other_user() }),
        1 => any_ordinary(),
        2 => Just(shim()),
        1 => select(vec![Role::Daemon, Role::Coordinator, Role::OtherDaemon]).prop_map(|role| Process { role, ..daemon() }),
    ]
}

/// Returns whether a process belongs to an agent even if no process of the chain took a name for
/// that.
fn is_agents(processes: &[Process]) -> bool {
    let plain: Vec<Process> = processes
        .iter()
        .map(|process| match process.role {
            Role::Ordinary | Role::OtherUser => {
                Process { name: b"bash".to_vec(), ..process.clone() }
            }
            Role::Shim | Role::Daemon | Role::Coordinator | Role::OtherDaemon => process.clone(),
        })
        .collect();
    rights_of(&plain) != PeerRights::Operator
}

proptest! {
    #[test]
    fn no_name_and_no_further_process_of_the_daemons_user_turns_an_agent_into_an_operator(
        peer in any_ordinary(),
        ancestors in proptest::collection::vec(any_process(), 0..8),
        names in proptest::collection::vec(any_name(), 9),
        added in proptest::collection::vec((any::<proptest::sample::Index>(), any_ordinary()), 0..4),
    ) {
        let mut changed = [vec![peer], ancestors].concat();
        prop_assume!(is_agents(&changed));
        for (process, name) in changed.iter_mut().zip(names) {
            if matches!(process.role, Role::Ordinary | Role::OtherUser) {
                process.name = name;
            }
        }
        for (at, process) in added {
            changed.insert(at.index(changed.len() + 1), process);
        }
        prop_assert_ne!(rights_of(&changed), PeerRights::Operator, "{:?}", changed);
    }
}
