//! Many histories, and the telling of one that went wrong.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Mutant;
use super::history::{Told, live};
use super::script::{Deed, Fleet, Script, Step};
use super::world::Telling;

const N_STEPS: usize = 100;
/// In an ordinary run of the tests, always the same: a debug build lives about nine in a second and core.
const N_HISTORIES: u64 = 450;
const HISTORIES: &str = "AGENT_COORDINATOR_TEST_HISTORIES";
const SEED: &str = "AGENT_COORDINATOR_TEST_SEED";

fn number_in(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
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
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(|| first_broken(&next, n_histories))).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).min_by_key(|script| script.seed)
    });
    if let Some(script) = broken {
        panic!("{}", report(&script, None));
    }
}

/// Lives histories until one breaks a promise, or none is left.
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

/// What a person wants to know: the seed, the shortest script that was found, and what happens in it.
fn report(script: &Script, mutant: Option<Mutant>) -> String {
    let script = shrunk(script.clone(), mutant);
    let told = live(&script, mutant, Telling::Told);
    let mut text = format!("seed {} breaks a promise ({SEED}={} replays it)\n", script.seed, script.seed);
    let _ = writeln!(text, "{}\n\n{:?}", told.violations.join("\n"), script.fleet);
    for step in &script.steps {
        let _ = writeln!(text, "    {:?}, then {:?}", step.deed, step.then_wait);
    }
    let _ = writeln!(text, "\n{}", told.lines.join("\n"));
    text
}

/// Leaves out steps, many at once and then one by one, as long as what is left goes wrong.
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
    for seed in 0..10 {
        let script = Script::of_seed(seed, N_STEPS);
        let tell = || live(&script, None, Telling::Told).lines;
        let (once, again) = (tell(), tell());
        let difference = once.iter().zip(&again).find(|(once, again)| once != again);
        assert!(difference.is_none() && once.len() == again.len(), "seed {seed}: {difference:?}");
    }
}

/// A life from claim to end, with work to do for two coordinators.
fn quiet_script() -> Script {
    let fleet = Fleet { max_concurrent: vec![1, 1], ..Fleet::SMALL };
    let wait = |seconds| Step { deed: Deed::Nothing, then_wait: Duration::from_secs(seconds) };
    Script { seed: 0, fleet, steps: vec![wait(5), wait(60)] }
}

#[test]
fn a_coordinator_may_die_wherever_it_waits() {
    for has_local in [true, false] {
        let mut quiet = quiet_script();
        quiet.fleet.has_local = has_local;
        let Told { n_polls, violations, .. } = live(&quiet, None, Telling::Silent);
        assert!(violations.is_empty() && n_polls > 50, "{n_polls} {violations:?}");
        for after_polls in 0..n_polls {
            let mut script = quiet.clone();
            let deed = Deed::Crash { coordinator: 0, after_polls, down_for: Duration::from_secs(after_polls % 40) };
            script.steps.insert(0, Step { deed, then_wait: Duration::ZERO });
            let is_clean = live(&script, None, Telling::Silent).violations.is_empty();
            assert!(is_clean, "{}", report(&script, None));
        }
    }
}

/// That the simulation sees what this mistake breaks, soon.
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
    check_found(Mutant::PidTrusted, "a signal for the keeper");
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
fn a_slot_that_is_freed_at_a_deadline_is_found() {
    check_found(Mutant::FreedAtDeadline, "the server has freed its key");
    check_found(Mutant::FreedAtDeadline, "two live instances");
}
