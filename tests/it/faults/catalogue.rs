//! The catalogue of faults: each row is a fault, with the tests that show the required behaviour of
//! the real binary, or the reason why a test can't be here. The benches measure the figures.
//!
//! | row | tests |
//! |---|---|
//! | 1 | `restart::living_agents_are_adopted_by_the_next_daemon`, `ordinary_user::an_ordinary_users_agents_work_and_are_adopted`, `chaos::whenever_the_daemon_is_killed_no_agent_is_doubled_and_no_exit_lost` |
//! | 2 | `restart::an_exit_without_a_daemon_is_recorded_with_its_code` |
//! | 3 | `files::a_pid_that_is_another_programs_by_now_is_neither_adopted_nor_signalled`, `files::a_lock_held_by_who_is_not_noted_takes_a_slot_and_signals_nobody` |
//! | 4 | `files::empty_files_double_no_agent`, `files::truncated_files_double_no_agent`, `files::garbage_doubles_no_agent`, `files::files_of_a_newer_version_double_no_agent`, `files::files_that_are_gone_double_no_agent`, `files::a_folder_that_goes_while_its_agent_works_costs_its_exit_code_alone`, `files::an_agent_that_a_restored_state_has_never_heard_of_is_ended_before_anything_starts`, `files::a_state_restored_from_a_copy_doubles_no_agent_that_it_knows` |
//! | 5 | `restart::a_second_daemon_names_the_first_and_a_third_takes_over`; the second one must end within a second: it waits only for the lock, for which a test in app/lock.rs asserts the time on a paused clock; the rest depends on the load of the machine |
//! | 6 | `trees::a_daemonised_child_is_ended_before_its_launch_is` |
//! | 7 | `trees::an_exit_is_recorded_at_once_whoever_stays_or_holds_the_pipe`, `trees::what_stays_behind_is_killed_after_the_grace` |
//! | 8 | `trees::an_agent_that_ignores_term_is_killed_at_the_stop_timeout`, which asserts that the kill is not early by more than a tenth; its delay depends on the load of the machine, because a keeper sleeps until a moment that it noted when it was told to stop |
//! | 9 | `trees::a_child_that_ignores_term_does_not_survive_an_agent_that_does_not` |
//! | 10 | `trees::a_killed_keeper_takes_its_agents_tree_with_it`, `trees::a_keeper_killed_without_a_daemon_is_found_by_the_next`, `trees::what_runs_beside_the_daemon_is_nobodys_orphan`, `trees::as_the_first_process_it_ends_what_carries_its_mark`, `crash_points::whenever_a_keeper_dies_its_agent_is_ended_and_its_slot_free`, `ordinary_user::an_ordinary_users_daemon_ends_what_a_killed_keeper_left`, `ordinary_user::what_cant_be_killed_holds_up_its_own_instance_and_no_other` |
//! | 11 | `output::an_agent_that_closed_its_output_keeps_nobody_busy` |
//! | 12 | `trees::an_exit_is_recorded_at_once_whoever_stays_or_holds_the_pipe`; the exit is known while both go on, so that it waits for neither; benches/ends measures the delay (3 ms, not 100) |
//! | 13 | `trees::sixty_agents_that_exit_at_once_are_sixty_ends` |
//! | 14 | `trees::sixty_agents_killed_in_one_loop_are_sixty_ends_and_no_zombie`; benches/ends measures five hundred of them |
//! | 15 | `output::a_flood_of_output_fills_neither_disk_nor_memory_and_holds_nobody_up`; benches/output measures a gigabyte |
//! | 16 | `output::whatever_it_prints_is_kept_as_lines_of_text` |
//! | 17 | `full_disk::a_full_disk_delays_and_loses_nothing`, `full_disk::a_limit_of_file_sizes_delays_and_loses_nothing`, `full_disk::a_daemon_without_space_for_its_state_says_so`, `full_disk::output_that_finds_no_space_is_counted_and_what_comes_later_is_kept`, `full_disk::a_log_folder_that_goes_takes_lines_with_it_and_nothing_else`, `ordinary_user::a_folder_that_cant_be_written_delays_the_end_and_loses_nothing`, `ordinary_user::a_state_directory_that_may_not_be_written_is_named` |
//! | 18 | `unstartable::a_program_that_can_not_be_run_is_named_and_waits` |
//! | 19 | `unstartable::a_directory_that_can_not_be_worked_in_is_named_and_waits`, `unstartable::a_directory_that_goes_while_an_agent_works_in_it_stops_only_the_next_one`; the directory is named after the keeper's fork and before any program of the agent is executed, because only the agent's user can find out whether it may be used |
//! | 20 | `limits::forty_agents_work_though_the_daemon_has_few_descriptors`, `limits::a_refused_fork_is_a_failed_start_and_harms_nobody_else` |
//! | 21, 22 | `trees::an_agent_has_clean_signals_and_three_descriptors_whatever_the_daemon_was_started_with` |
//! | 23 | `limits::two_hundred_processes_that_take_no_notice_of_term_are_ended_in_one_stop`, `limits::what_replaces_itself_faster_than_it_is_looked_for_is_ended_in_one_stop` |
//! | 24 | `crash_points::whenever_the_daemon_dies_the_next_one_gets_the_task_done`, `crash_points::whenever_a_starting_daemon_dies_the_next_one_takes_over`, `crash_points::whenever_a_keeper_dies_its_agent_is_ended_and_its_slot_free` |
//! | 25 | `endings::a_term_while_starting_ends_it_cleanly_at_any_moment`, `endings::a_second_term_does_not_wait_for_anybody`; that neither takes two seconds is not asserted, because it depends on the load of the machine: without agents there is nothing to wait for, and the second signal comes an hour before the deadline of its agent |
//! | 26 | `reload::a_broken_file_changes_nothing_and_is_told_until_it_is_mended` |
//! | 27 | `reload::a_lower_limit_ends_nobody_and_starts_nobody_until_it_is_kept` |
//! | 28 | `time_limits::a_daemon_that_was_stopped_by_a_signal_ends_nobody_who_is_at_work`, `crash_points::a_daemon_that_was_stopped_between_claim_and_spawn_starts_nobody_too_late`; the daemon is stopped for 4 s there, with a fuse of 4 s, because only the longer of the two matters; tests can't set the clock of the machine, so it jumps in the simulation only |
//! | 29 | `seen::an_agent_stopped_by_a_signal_is_shown_and_a_killed_one_says_why`, `time_limits::an_agent_that_was_stopped_by_a_signal_is_ended_when_its_time_is_over` |
//! | 30 | `main_job::each_crash_is_followed_by_a_longer_wait`, `main_job::a_quick_crash_loop_slows_down_also_by_a_daemon_that_comes_later`, `main_job::a_quick_crash_loop_is_suspended_until_a_person_resumes_it` |
//! | 31 | `remote::several_coordinators_start_no_twin`, `remote::a_start_that_a_dying_coordinator_had_claimed_is_nobody_elses_until_it_is_given_back`; a claim lapses after half a minute, which passes in the simulation only |
//! | 32 | `main_job::ends_are_told_apart`, `main_job::an_agent_that_reports_and_lingers_is_ended`, `time_limits::an_agent_that_neither_calls_nor_prints_is_ended`, `seen::the_numbers_are_there_for_monitoring` |
//! | 33 | `failures::a_server_that_closes_or_fails_is_outlived`, `failures::a_garbled_server_is_outlived`, `failures::a_server_that_never_answers_is_outlived`, `failures::a_server_that_never_stops_answering_is_outlived`, `failures::a_slow_server_is_asked_one_thing_at_a_time`, `remote::the_server_may_come_later_and_go_in_between` |
//! | 34 | `terminal::an_agent_of_a_daemon_in_a_terminal_reads_the_end_and_has_no_terminal` |
//! | 35 | `secrets::secrets_are_in_no_argument_list_no_log_no_answer_and_no_file` |
//! | 36 | none, because ten thousand starts take minutes and a debug build's memory is not typical; benches/fleet measures them |
//! | 37 | `endings::an_interrupt_of_the_terminal_reaches_the_daemon_alone`, `endings::an_interrupt_ends_the_agents_with_a_chance_to_report` |
//! | 38 | `files::a_replaced_program_adopts_what_the_one_before_it_started` |
//! | 39 | `endings::a_stop_while_starting_is_one_end`, `endings::of_two_stops_the_first_reason_counts`, `endings::a_stop_that_crosses_a_stop_of_the_daemon_is_the_persons` |
//! | 40 | `files::a_lost_store_ends_the_agents_that_it_does_not_know_and_starts_anew` |

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Returns the sources of all integration tests below `folder`.
fn sources(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.fold(String::new(), |text, path| match path.extension() {
        _ if path.is_dir() => text + &sources(&path),
        Some(extension) if extension == "rs" => text + &fs::read_to_string(path).unwrap(),
        _ => text,
    })
}

#[test]
fn each_row_has_its_tests_and_each_test_is_there() {
    let all = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it"));
    let mut rows = BTreeSet::new();
    for line in include_str!("catalogue.rs").lines().filter_map(|line| line.strip_prefix("//! | "))
    {
        let (numbers, shown_by) = line.split_once(" | ").unwrap();
        rows.extend(numbers.split(", ").filter_map(|number| number.parse::<u32>().ok()));
        for test in shown_by.split('`').skip(1).step_by(2) {
            let (_, name) = test.rsplit_once("::").unwrap();
            assert!(all.contains(&format!("fn {name}()")), "row {numbers}: there is no `{test}`");
        }
    }
    assert_eq!(rows.into_iter().collect::<Vec<_>>(), (1..=40).collect::<Vec<_>>());
}
