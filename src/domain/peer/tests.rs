use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const OWN_NAME: &[u8] = b"agent-coordinat";

/// A process as it is, whether or not the daemon can read it.
#[derive(Debug, Clone)]
struct Process {
    name: Vec<u8>,
    role: Role,
    is_readable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Of the daemon's user; it may call itself anything.
    Ordinary,
    /// Of another user; it may call itself anything.
    OtherUser,
    /// Its name is its own to change, and it does not.
    Shim,
    Daemon,
}

/// The ancestry that the daemon observes of the first of `processes`; the last of them has no parent.
fn observed(processes: &[Process]) -> Ancestry {
    let mut ancestry = Ancestry::UNKNOWN;
    for (start_ticks, process) in (0..).zip(processes) {
        if !process.is_readable {
            ancestry.top = if process.role == Role::OtherUser { Top::OtherUser } else { Top::Unknown };
            return ancestry;
        }
        ancestry.chain.push(Ancestor {
            id: ProcessId { pid: 1, start_ticks },
            name: process.name.clone(),
            is_of_daemons_user: process.role != Role::OtherUser,
        });
    }
    ancestry.top = Top::Root;
    ancestry
}

fn standing_of(processes: &[Process]) -> Standing {
    standing(PeerUser::Daemon, &observed(processes), OWN_NAME)
}

fn ordinary(name: &[u8]) -> Process {
    Process { name: name.to_vec(), role: Role::Ordinary, is_readable: true }
}

fn of_other_user() -> Process {
    Process { name: b"sshd".to_vec(), role: Role::OtherUser, is_readable: true }
}

fn shim() -> Process {
    Process { name: SHIM_COMM.as_bytes().to_vec(), role: Role::Shim, is_readable: true }
}

fn daemon() -> Process {
    Process { name: OWN_NAME.to_vec(), role: Role::Daemon, is_readable: true }
}

#[track_caller]
fn check(processes: &[Process], expected: Standing) {
    assert_eq!(standing_of(processes), expected, "{processes:?}");
}

const AGENT: Standing = Standing::Agent { shim: None };

#[test]
fn a_shell_is_an_operator_and_what_a_shim_or_a_daemon_started_is_an_agent() {
    let (shell, init) = (ordinary(b"bash"), of_other_user());
    check(&[shell.clone(), shell.clone(), init.clone()], Standing::Operator);
    let below_shim = [shell.clone(), shim(), daemon(), init.clone()];
    check(&below_shim, Standing::Agent { shim: Some(ProcessId { pid: 1, start_ticks: 1 }) });
    check(&[shell, daemon(), init.clone()], AGENT);
    // A coordinator beside the daemon is not below itself.
    check(&[daemon(), init], Standing::Operator);
}

#[test]
fn a_chain_that_ends_in_an_unreadable_process_is_an_operators_only_if_another_user_owns_the_process() {
    let shell = ordinary(b"bash");
    let hidden = |process: Process| Process { is_readable: false, ..process };
    check(&[shell.clone(), hidden(of_other_user())], Standing::Operator);
    check(&[shell.clone(), hidden(ordinary(b"bash"))], AGENT);
    check(&[hidden(of_other_user()), shell], AGENT);
    check(&[], AGENT);
}

#[test]
fn a_process_of_an_agents_user_must_be_below_a_shim_of_the_daemon() {
    let of_agents = |processes: &[Process]| standing(PeerUser::OfAgents, &observed(processes), OWN_NAME);
    let agent = of_other_user();
    let forged = Process { name: SHIM_COMM.as_bytes().to_vec(), ..of_other_user() };
    let below = |shim: Process| [agent.clone(), shim, daemon()];
    assert_eq!(of_agents(&below(shim())), Standing::Agent { shim: Some(ProcessId { pid: 1, start_ticks: 1 }) });
    for chain in [&below(forged.clone())[..], &below(agent.clone()), &[agent.clone(), agent.clone()]] {
        assert_eq!(of_agents(chain), Standing::Stranger, "{chain:?}");
    }
    // It may have put one of its own in between.
    let between = [agent, forged, shim(), daemon()];
    assert_eq!(of_agents(&between), Standing::Agent { shim: Some(ProcessId { pid: 1, start_ticks: 2 }) });
    assert_eq!(standing(PeerUser::Other, &observed(&between), OWN_NAME), Standing::Stranger);
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let known = select(vec![&b"bash"[..], SHIM_COMM.as_bytes(), OWN_NAME, b"\xff\xfe", b"a) R 1 (b", b""]);
    prop_oneof![known.prop_map(<[u8]>::to_vec), proptest::collection::vec(any::<u8>(), 0..16)]
}

fn any_ordinary() -> impl Strategy<Value = Process> {
    (any_name(), any::<bool>()).prop_map(|(name, is_readable)| Process { is_readable, ..ordinary(&name) })
}

fn any_process() -> impl Strategy<Value = Process> {
    prop_oneof![
        6 => any_name().prop_map(|name| ordinary(&name)),
        2 => any_name().prop_map(|name| Process { name, ..of_other_user() }),
        1 => Just(Process { is_readable: false, ..of_other_user() }),
        1 => any_ordinary(),
        2 => Just(shim()),
        1 => Just(daemon()),
    ]
}

/// Returns whether a process is an agent's even if no process of the chain took a name for that.
fn is_agents(processes: &[Process]) -> bool {
    let plain: Vec<Process> = processes
        .iter()
        .map(|process| match process.role {
            Role::Ordinary | Role::OtherUser => Process { name: b"bash".to_vec(), ..process.clone() },
            Role::Shim | Role::Daemon => process.clone(),
        })
        .collect();
    standing_of(&plain) != Standing::Operator
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
        prop_assert_ne!(standing_of(&changed), Standing::Operator, "{:?}", changed);
    }
}
