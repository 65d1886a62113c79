//! The web pages of the real daemon, in a real browser.
//!
//! What the page promises, and the tests that prove it:
//!
//! | promise | tests |
//! |---|---|
//! | 1 six columns fit on each screen, and only lists scroll | `frame::six_columns_fit_on_each_screen_and_only_their_lists_scroll` |
//! | 2 a dialog moves nothing, and gives focus and text back | `acceptance::the_dialog_for_a_new_task_moves_nothing_and_returns_the_focus` |
//! | 3 a form does its work once, and keeps its text after a mistake | `panel::a_new_task_keeps_its_draft_and_is_made_once_however_often_it_is_sent`, `bad_input::each_form_keeps_an_unusual_text_once_however_often_it_is_sent`, `bad_input::each_form_tells_a_mistake_at_its_field_and_keeps_what_was_written` |
//! | 4 cards are dragged to each column that they may go to | `acceptance::the_last_card_of_a_column_is_dragged_to_each_column_that_it_may_go_to` |
//! | 5 the panel has an address, and the focus returns to its card | `panel::a_card_opens_the_panel_and_escape_returns_to_it` |
//! | 6 the keyboard is enough | `acceptance::the_keyboard_walks_a_long_column_and_reaches_the_panel_soon`, `board::a_card_is_moved_by_the_keyboard_and_by_hand` |
//! | 7 what waits says why, everywhere in the same words | `waits` |
//! | 8 an agent is live only where it runs | `waits::a_task_that_waits_says_why_everywhere_and_its_button_ends_that` |
//! | 9 a chat keeps its place and its draft, and people have names | `chat_reading`, `people::two_people_have_two_names` |
//! | 10 a phone shows all, with targets for a thumb | `frame::a_phone_shows_one_column_high_up_and_its_targets_are_large`, `acceptance::the_smallest_phone_shows_all_and_its_targets_are_large` |
//! | 11 axe-core finds nothing, larger text is not cut, states do not depend on colours | `axe::axe_finds_nothing_on_any_screen`, `acceptance::larger_text_and_wider_spaces_cut_nothing`, `acceptance::states_differ_with_the_colours_of_the_reader` |
//! | 12 a Japanese page has no words of the program, and its marks fit | `acceptance::a_japanese_page_has_no_words_of_the_program_and_its_longest_marks_fit` |
//! | 13 Markdown does nothing but look well | `board::what_people_write_is_text_wherever_it_is_shown`, `transcript::a_transcript_of_a_hundred_thousand_entries_begins_at_its_end`, and the time in `benches/page.rs` |
//! | 14 output is seen within a second, and shown once a second at most | `acceptance::a_line_is_on_its_card_within_a_second`, `acceptance::an_agent_that_prints_much_changes_its_card_once_a_second_at_most` |
//! | 15 a viewer is offered nothing that is refused | `viewer`, `looks::a_viewer_sees_everything_and_is_offered_nothing_to_change`, `acceptance::a_page_that_is_not_there_keeps_the_way_back` |
//!
//! Bad input: `bad_input` and `trouble`. A line that is slow or lost, two people at one field, a login
//! that ended, and things that are gone are in `trouble`.
#![allow(clippy::unwrap_used, reason = "a test")]

mod acceptance;
mod agents;
mod axe;
mod bad_input;
mod board;
mod board_bar;
mod browser;
mod changes;
mod chat;
mod chat_reading;
mod comments;
mod filters;
mod first_run;
mod frame;
mod inbox;
mod keys;
mod launches;
mod looks;
mod moves;
mod operations;
mod page_parts;
mod palette;
mod panel;
mod path;
mod people;
mod pictures;
mod removals;
mod settings;
mod styles;
mod task_tabs;
mod transcript;
mod trouble;
mod viewer;
mod waits;

use browser::Browser;

use crate::daemon::Daemon;

/// Starts a daemon with pages, a project `prj` and its agents.
fn daemon(agents: &[&str]) -> Daemon {
    daemon_with(agents, "")
}

/// Returns the same with more settings.
fn daemon_with(agents: &[&str], settings: &str) -> Daemon {
    let settings = format!(
        "http: {{ listen: \"127.0.0.1:0\" }}\nsession: {{ cleanup_interval: 1 }}\n{settings}"
    );
    let daemon = Daemon::running(&settings);
    daemon.project("prj");
    for agent in agents {
        daemon.agent(agent, "prj", &["authenticate", "chat"]);
    }
    daemon
}

/// Checks that the browser refused no action of a page, and that none failed.
#[track_caller]
fn assert_quiet(browser: &Browser) {
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}
