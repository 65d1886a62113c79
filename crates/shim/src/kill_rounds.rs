//! The pauses between the rounds of KILL for a process tree that is not empty yet.

use std::collections::BTreeSet;
use std::time::Duration;

use machine::sys::processes::Process;

/// The pause after a round that found processes that the round before did not: a tree that forks
/// must be listed more often than it forks.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause between two rounds that find the same processes.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The rounds of KILL of one tree.
#[derive(Debug, Default)]
pub struct KillRounds {
    /// The pid and the start time of each process of the last round.
    last: BTreeSet<(i32, u64)>,
    last_pause: Option<Duration>,
}

impl KillRounds {
    /// Notes a round of KILL to `living`, and returns the pause until the next one. It doubles while
    /// only processes are found that were already killed, because a process that cannot be killed
    /// now is seldom gone a few milliseconds later. It also doubles if the tree is
    /// overdue: then it has processes that cannot be killed, such as those of another user, and
    /// these may go on to fork.
    pub fn next_pause(&mut self, living: &[Process], is_overdue: bool) -> Duration {
        let found: BTreeSet<_> = living.iter().map(|each| (each.pid, each.start_ticks)).collect();
        let has_new = !found.is_subset(&self.last);
        self.last = found;
        let pause = match self.last_pause {
            Some(last) if !has_new || is_overdue => (last * 2).min(LONGEST_PAUSE),
            _ => FIRST_PAUSE,
        };
        self.last_pause = Some(pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, start_ticks: u64) -> Process {
        Process {
            pid,
            parent: 1,
            group: pid,
            session: pid,
            start_ticks,
            is_zombie: false,
            is_stopped: false,
        }
    }

    fn pauses_ms(rounds: &[&[Process]]) -> Vec<u128> {
        let mut kill_rounds = KillRounds::default();
        rounds.iter().map(|living| kill_rounds.next_pause(living, false).as_millis()).collect()
    }

    #[test]
    fn the_pause_grows_while_the_same_processes_stay() {
        let same: &[Process] = &[process(7, 100), process(8, 100)];
        assert_eq!(pauses_ms(&[same; 9]), [5, 10, 20, 40, 80, 160, 320, 500, 500]);
        let fewer: &[Process] = &[process(8, 100)];
        assert_eq!(pauses_ms(&[same, fewer, fewer]), [5, 10, 20]);
    }

    #[test]
    fn processes_that_replace_each_other_are_looked_for_at_once() {
        let rounds: Vec<[Process; 2]> =
            (0..6).map(|n| [process(7, 100), process(20 + n, 100)]).collect();
        let rounds: Vec<&[Process]> = rounds.iter().map(<[Process; 2]>::as_slice).collect();
        assert_eq!(pauses_ms(&rounds), [5; 6]);
    }

    #[test]
    fn a_tree_that_cannot_be_killed_and_forks_is_looked_for_less_and_less() {
        let mut kill_rounds = KillRounds::default();
        let pauses: Vec<u128> = (0..9)
            .map(|n| kill_rounds.next_pause(&[process(20 + n, 100)], n > 1).as_millis())
            .collect();
        assert_eq!(pauses, [5, 5, 10, 20, 40, 80, 160, 320, 500]);
    }

    #[test]
    fn another_process_with_the_same_pid_is_new() {
        assert_eq!(
            pauses_ms(&[&[process(7, 100)], &[process(7, 100)], &[process(7, 101)]]),
            [5, 10, 5]
        );
    }
}
