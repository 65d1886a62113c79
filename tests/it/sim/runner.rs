//! Runs many histories, and reports one that went wrong.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use domain::TaskStatus;
use supervisor::coordinator::Mode;

use super::history::{Told, live};
use super::net::Weather;
use super::script::{Deed, Fleet, Script, Step};
use super::world::Telling;
use super::{Mutant, SESSION_MAXIMUM, illness};

const N_STEPS: usize = 100;
/// The number of histories in an ordinary run of the tests. They are always the same ones. A debug
/// build takes 0.7 s of a core for each.
const N_HISTORIES: u64 = 50;
const HISTORIES: &str = "AGENT_COORDINATOR_TEST_HISTORIES";
const SEED: &str = "AGENT_COORDINATOR_TEST_SEED";

fn number_in(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

/// Returns whether this run of the tests leaves nothing out: `tests/long/run`.
fn is_long() -> bool {
    std::env::var_os(HISTORIES).is_some()
}

#[test]
fn promises_hold_in_all_histories() {
    if let Some(seed) = number_in(SEED) {
        let told = live(&Script::of_seed(seed, N_STEPS), None, Telling::Told);
        println!("{}", told.lines.join("\n"));
        assert!(told.violations.is_empty(), "{}", report(&Script::of_seed(seed, N_STEPS), None));
        return;
    }
    let n_histories = number_in(HISTORIES).unwrap_or(N_HISTORIES);
    let next = AtomicU64::new(0);
    let n_threads = std::thread::available_parallelism().map_or(2, |n| n.get().min(16));
    let broken = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..n_threads).map(|_| scope.spawn(|| first_broken(&next, n_histories))).collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().unwrap())
            .min_by_key(|script| script.seed)
    });
    if let Some(script) = broken {
        panic!("{}", report(&script, None));
    }
}

/// Runs histories until one breaks a promise, or none is left.
fn first_broken(next: &AtomicU64, n_histories: u64) -> Option<Script> {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= n_histories {
            return None;
        }
        let script = Script::of_seed(seed, N_STEPS);
        if !live(&script, None, Telling::Silent).violations.is_empty() {
            next.store(n_histories, Ordering::Relaxed);
            return Some(script);
        }
    }
}

/// Returns the report for a person: the seed, the shortest script that was found, and what happens
/// in it.
fn report(script: &Script, mutant: Option<Mutant>) -> String {
    let script = shrunk(script.clone(), mutant);
    let told = live(&script, mutant, Telling::Told);
    let mut text =
        format!("seed {} breaks a promise ({SEED}={} replays it)\n", script.seed, script.seed);
    let _ = writeln!(text, "{}\n\n{:?}", told.violations.join("\n"), script.fleet);
    for step in &script.steps {
        let _ = writeln!(text, "    {:?}, then {:?}", step.deed, step.then_wait);
    }
    let _ = writeln!(text, "\n{}", told.lines.join("\n"));
    text
}

/// Leaves out steps, many at once and then one by one, as long as the rest still fails.
fn shrunk(mut script: Script, mutant: Option<Mutant>) -> Script {
    let fails = |script: &Script| !live(script, mutant, Telling::Silent).violations.is_empty();
    let mut size = script.steps.len().div_ceil(2);
    loop {
        let mut at = 0;
        let mut is_shorter = false;
        while at < script.steps.len() {
            let end = (at + size).min(script.steps.len());
            let mut without = script.clone();
            without.steps.drain(at..end);
            if fails(&without) {
                script = without;
                is_shorter = true;
            } else {
                at = end;
            }
        }
        if size == 1 && !is_shorter {
            return script;
        }
        size = (size / 2).max(1);
    }
}

#[test]
fn a_seed_replays_itself() {
    let n_histories = if is_long() { 10 } else { 3 };
    for seed in 0..n_histories {
        let script = Script::of_seed(seed, N_STEPS);
        let tell = || live(&script, None, Telling::Told).lines;
        let (once, again) = (tell(), tell());
        let difference = once.iter().zip(&again).find(|(once, again)| once != again);
        assert!(difference.is_none() && once.len() == again.len(), "seed {seed}: {difference:?}");
    }
}

#[test]
fn each_illness_of_the_store_befalls_writes() {
    let illnesses = [illness::FAILS, illness::IS_UNANSWERED, illness::IS_SLOW, illness::IS_FULL];
    let endings = illnesses.map(|illness| format!("store  {illness}"));
    let mut n_times = [0; 4];
    for seed in 0..20 {
        let lines = live(&Script::of_seed(seed, N_STEPS), None, Telling::Told).lines;
        for (n, ending) in n_times.iter_mut().zip(&endings) {
            *n += lines.iter().filter(|line| line.ends_with(ending.as_str())).count();
        }
        if n_times.iter().all(|n| *n >= 10) {
            return;
        }
    }
    panic!("{endings:?}: {n_times:?} times");
}

/// Returns a script with one task and two coordinators, of which the second is disconnected until
/// the first wait is over. Each deed happens this number of seconds before the next.
fn script_of(seed: u64, deeds: &[(Deed, u64)]) -> Script {
    let fleet = Fleet { max_concurrent: vec![1, 1], ..Fleet::SMALL };
    let step = |(deed, seconds): &(Deed, u64)| Step {
        deed: deed.clone(),
        then_wait: Duration::from_secs(*seconds),
    };
    let mut steps: Vec<Step> = deeds.iter().map(step).collect();
    let hears = |weather| step(&(Deed::SetWeather { coordinator: 1, weather }, 0));
    steps.insert(first_wait(&steps) + 1, hears(Weather::default()));
    steps.insert(0, hears(Weather::STORM));
    Script { seed, fleet, steps }
}

/// Returns the first step after which time passes.
fn first_wait(steps: &[Step]) -> usize {
    steps.iter().position(|step| !step.then_wait.is_zero()).unwrap()
}

/// The seed whose first agent on the first machine authenticates, works, reports, and exits. It
/// follows its notices.
const OBEDIENT: u64 = 0;
/// The seed whose first agent authenticates and never exits, in spite of notices and TERM.
const STUBBORN: u64 = 496;
const KILLED: &str = "exits ExitStatus { exit_code: None, signal: Some(9) }";

/// The place of the first coordinator: in one process with the server, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Local,
    Remote,
}

/// Checks that the first coordinator may die at each of its awaits during these deeds, or at each
/// third one in an ordinary run of the tests. `told` is a part of the lines of the history.
#[track_caller]
fn check_deaths(seed: u64, first: First, told: &str, deeds: &[(Deed, u64)]) {
    let mut script = script_of(seed, deeds);
    script.fleet.has_local = first == First::Local;
    let Told { n_polls, violations, lines } = live(&script, None, Telling::Told);
    assert!(violations.is_empty() && n_polls > 30, "{n_polls} {violations:?}");
    assert!(
        lines.iter().any(|line| line.contains(told)),
        "`{told}` is no part of this:\n{}",
        lines.join("\n")
    );
    // The crash comes after the steps of the beginning.
    let at = first_wait(&script.steps);
    let step = if is_long() { 1 } else { 3 };
    for after_polls in (0..n_polls).step_by(step) {
        let mut script = script.clone();
        let deed = Deed::Crash {
            coordinator: 0,
            after_polls,
            down_for: Duration::from_secs(after_polls % 40),
        };
        script.steps.insert(at, Step { deed, then_wait: Duration::ZERO });
        let is_clean = live(&script, None, Telling::Silent).violations.is_empty();
        assert!(is_clean, "{}", report(&script, None));
    }
}

/// The deeds let a launch live from its claim to its end.
#[test]
fn a_coordinator_may_die_wherever_it_waits() {
    for first in [First::Local, First::Remote] {
        check_deaths(OBEDIENT, first, "ended: blocked", &[(Deed::Nothing, 5), (Deed::Nothing, 60)]);
    }
}

#[test]
fn a_coordinator_may_die_wherever_it_waits_while_a_person_stops_its_agent() {
    let (agent, project) = (0, 0);
    let deeds = [
        (Deed::Nothing, 5),
        (Deed::StopPair { agent, project }, 10),
        (Deed::ResumePair { agent, project }, 30),
    ];
    check_deaths(STUBBORN, First::Remote, KILLED, &deeds);
}

#[test]
fn a_coordinator_may_die_wherever_it_waits_when_a_shim_is_killed() {
    let deeds = [(Deed::Nothing, 5), (Deed::KillShim { host: 0, which: 0 }, 40)];
    check_deaths(OBEDIENT, First::Local, "ended: lost", &deeds);
}

#[test]
fn a_coordinator_may_die_wherever_it_waits_when_it_never_hears_that_its_claim_was_granted() {
    let deeds =
        [(Deed::LoseClaimAnswer { coordinator: 0 }, 0), (Deed::Nothing, 5), (Deed::Nothing, 60)];
    check_deaths(OBEDIENT, First::Remote, "crd_0: the answer to claim is lost", &deeds);
}

#[test]
fn a_coordinator_may_die_wherever_it_waits_while_people_talk() {
    let (agent, project) = (0, 0);
    let say = Deed::Say { agent, project, n_bytes: 10, times: 1 };
    let deeds = [
        (Deed::SetTask { task: 0, status: TaskStatus::Todo }, 0),
        (say.clone(), 5),
        (say, 5),
        (Deed::EndChat { agent, project }, 20),
    ];
    check_deaths(OBEDIENT, First::Remote, "has answered up to", &deeds);
}

#[test]
fn a_coordinator_may_die_wherever_it_waits_while_it_is_restarted() {
    let restart = |mode| Deed::Restart { coordinator: 0, mode, down_for: Duration::from_secs(2) };
    let deeds = |mode| [(Deed::Nothing, 5), (restart(mode), 20)];
    check_deaths(STUBBORN, First::Local, "adopted; kept true", &deeds(Mode::LeavingAgents));
    check_deaths(STUBBORN, First::Remote, KILLED, &deeds(Mode::StoppingAgents));
}

#[test]
fn a_clock_that_is_set_back_while_a_claim_is_granted_prolongs_no_fuse() {
    let slow =
        Deed::SetWeather { coordinator: 0, weather: Weather { slow: 100, ..Weather::default() } };
    let sleeps = Deed::Suspend { host: 0, lasts: Duration::from_mins(2) };
    for seed in 0..48 {
        // This is at some moment while it asks for work, claims a start, and gets the answer.
        let deeds = [
            (slow.clone(), 0),
            (Deed::Nothing, 2 + seed % 12),
            (Deed::SetClock(-3_600_000), 0),
            (sleeps.clone(), 130),
        ];
        let mut script = script_of(seed, &deeds);
        script.fleet.has_local = false;
        assert!(
            live(&script, None, Telling::Silent).violations.is_empty(),
            "{}",
            report(&script, None)
        );
    }
}

/// In the random histories another coordinator nearly always ends it first.
#[test]
fn a_session_past_its_maximum_is_to_end_though_its_coordinator_is_away() {
    let away = Deed::Crash { coordinator: 0, after_polls: 0, down_for: 2 * SESSION_MAXIMUM };
    let script = script_of(STUBBORN, &[(Deed::Nothing, 5), (away, 2 * SESSION_MAXIMUM.as_secs())]);
    let Told { violations, lines, .. } = live(&script, None, Telling::Told);
    assert!(
        violations.is_empty() && lines.iter().any(|line| line.contains("authenticated")),
        "{violations:?}"
    );
}

/// Checks that the simulation soon finds the promise that this mistake breaks.
#[track_caller]
fn check_found(mutant: Mutant, broken: &str) {
    for seed in 0..200 {
        let script = Script::of_seed(seed, N_STEPS);
        let told = live(&script, Some(mutant), Telling::Silent);
        if told.violations.iter().any(|violation| violation.contains(broken)) {
            return;
        }
    }
    panic!("{mutant:?} is not found: in no history {broken}");
}

#[test]
fn a_start_without_a_claim_is_found() {
    check_found(Mutant::ClaimSkipped, "two live instances");
}

#[test]
fn a_pid_that_is_trusted_is_found() {
    check_found(Mutant::PidTrusted, "a signal for the shim");
}

#[test]
fn a_message_that_is_read_when_it_is_handed_out_is_found() {
    check_found(Mutant::ReadWhenHandedOut, "counts as read");
}

#[test]
fn a_limit_that_is_forgotten_is_found() {
    for of_what in ["a project", "an agent", "a provider"] {
        check_found(Mutant::CapsForgotten, &format!("more live instances of {of_what}"));
    }
}

#[test]
fn a_fuse_that_sleeps_is_found() {
    check_found(Mutant::FuseSleeps, "the server has freed its key");
}

#[test]
fn a_slot_that_is_freed_at_a_deadline_is_found() {
    check_found(Mutant::FreedAtDeadline, "the server has freed its key");
    check_found(Mutant::FreedAtDeadline, "two live instances");
}
