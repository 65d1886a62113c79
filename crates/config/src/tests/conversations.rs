//! The arguments of a program that begin and continue a conversation.

use super::*;

fn entry(keys: &str) -> String {
    format!("ai_providers:\n  a: {{ cli_command: a, {keys} }}\n")
}

const BEGIN: &str = r#"begin_args: [--new, "{conversation}"]"#;
const RESUME: &str = r#"resume_args: ["--again={conversation}"]"#;

#[test]
fn arguments_that_begin_a_conversation_need_those_that_continue_it() {
    let needs_begin = "`resume_args` needs `begin_args` with `{conversation}`";
    let needs_resume = "`begin_args` needs `resume_args` with `{conversation}`";
    for (keys, problem) in [
        (BEGIN.to_owned(), needs_resume),
        (RESUME.to_owned(), needs_begin),
        (format!("{BEGIN}, resume_args: [--again]"), needs_resume),
        ("begin_args: [--new], resume_args: [--again]".to_owned(), needs_begin),
    ] {
        let report = report(&entry(&keys));
        assert!(report.contains(problem), "{report}");
    }
    let report = report(&entry(BEGIN));
    assert!(report.contains("add `resume_args` in the words of the program"), "{report}");
}

#[test]
fn arguments_that_are_not_used_need_no_others() {
    let in_cli_args = r#"cli_args: ["{conversation}"], resume_args: [--again]"#;
    for keys in
        [format!("{BEGIN}, {RESUME}"), format!("continue: off, {BEGIN}"), in_cli_args.to_owned()]
    {
        valid(&entry(&keys));
    }
}
