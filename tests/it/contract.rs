//! The contract of the MCP tools, once for all interfaces. A tool gives the same answer on each.
//!
//! [`contract`] lists every test. `cargo test contract::http` runs those of one interface, and
//! `cargo test forms::` one subject on all of them. The tests of a transport are in its own file.
#![allow(clippy::unwrap_used, reason = "a test")]

mod agents;
pub mod bed;
mod chats;
pub mod client;
mod coordinators;
mod forms;
mod identity;
mod reports;
mod starts;
mod waits;

/// Lists all tests of the contract.
macro_rules! contract {
    ($endpoint:ident) => {
        tests! { $endpoint:
            forms {
                an_answer_is_the_same_as_structure_and_as_text
                a_refusal_has_one_form
                a_negative_answer_is_no_refusal
                a_malformed_call_names_the_argument
                a_refusal_of_wrong_arguments_has_a_hint_and_tells_of_notices
                every_answer_to_an_agent_tells_of_its_notices
                a_tool_of_coordinators_ignores_what_it_does_not_know
                a_tool_of_agents_refuses_what_it_does_not_know
                an_unknown_tool_and_params_that_are_none_are_told_so
                an_id_has_a_grammar
                what_is_no_request_is_told_so
                a_batch_is_answered_in_the_revision_that_has_batches
                the_tools_are_listed
                a_schema_has_nothing_that_some_client_does_not_take
                what_is_not_declared_is_not_there
            }
            identity {
                a_coordinator_shows_its_token_where_nobody_sees_its_process
                an_agent_s_token_opens_no_tool_of_coordinators
                a_session_token_has_two_names
                a_token_that_is_none_is_refused_by_every_tool
                a_session_reaches_its_own_work_only
            }
            agents {
                an_agent_does_its_task
                a_passkey_opens_a_session_too
                who_is_refused_at_the_door_is_told_to_exit
                an_unknown_agent_and_a_wrong_passkey_get_the_same_answer
                a_ticket_used_again_rotates_the_token
                only_success_is_refused_while_subtasks_are_open
                a_logout_ends_the_session_without_a_report
            }
            coordinators {
                health_check_says_who_answers_and_how_much_there_is
                active_projects_are_listed_with_their_active_agents
                a_status_is_shown_to_people
                an_earlier_start_of_a_coordinator_is_refused
            }
            starts {
                a_yes_reserves_the_start_for_who_asked
                a_ticket_is_only_for_a_coordinator_that_says_its_name
                a_no_says_why
                an_action_is_the_same_decision_in_one_word
            }
            reports {
                a_server_asks_for_a_shim_that_it_was_not_told
                a_report_may_be_repeated
                the_first_reason_of_a_stop_is_the_one_that_counts
                a_start_that_failed_says_why
                an_activity_is_the_newest_word_and_its_usage_never_shrinks
                a_launch_is_its_coordinators
                a_report_may_leave_the_launch_unsaid
            }
            chats {
                an_agent_in_a_chat_answers_what_was_said
                a_tool_of_the_other_purpose_says_what_to_call
                a_held_poll_ends_with_the_message
                a_poll_that_is_given_up_loses_no_message
                whoever_waits_for_messages_is_told_to_come_back_when_the_server_stops
            }
            waits {
                who_has_seen_nothing_is_answered_at_once
                a_wait_ends_with_the_news_and_delays_nothing_else
                a_wait_without_news_ends_in_time
                a_coordinator_sees_its_own_launches_and_stops
                a_wait_that_is_given_up_harms_nobody
                a_wait_that_is_cancelled_is_dropped
                a_cancelled_request_of_a_batch_is_dropped_and_the_others_are_answered
                a_wait_of_a_client_that_is_gone_is_dropped
                who_asks_for_it_is_told_that_a_wait_goes_on
                who_waits_says_its_name
                whoever_waits_is_told_that_the_server_stops
            }
        }
    };
}

macro_rules! tests {
    ($endpoint:ident: $($subject:ident { $($fact:ident)+ })+) => {
        $(mod $subject {
            $(#[test]
            fn $fact() {
                crate::contract::$subject::$fact(&mut crate::contract::bed::Bed::behind(crate::contract::bed::Endpoint::$endpoint));
            })+
        })+
    };
}

mod in_process {
    contract!(InProcess);
}
mod socket {
    contract!(Socket);
}
mod http {
    contract!(Http);
}
mod bridge {
    contract!(Bridge);
}
mod http_bridge {
    contract!(HttpBridge);
}
