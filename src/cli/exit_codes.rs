//! The part "Exit codes" of the help of each command. A command whose codes differ from the usual
//! ones says so itself, or has a line here.

use clap::{Command, CommandFactory as _};

use super::Arguments;

/// The beginning of the part.
const TITLE: &str = "Exit codes: ";

/// The codes of the commands that ask a daemon.
const USUAL: &str = "0 done, 1 refused or failed, 2 usage, 69 no daemon, 78 configuration.";
/// The codes of the commands that need no daemon.
const WITHOUT_DAEMON: &str = "0 done, 1 failed, 2 usage, 78 configuration.";

/// Returns the codes of a command whose names are `path`.
fn codes(path: &[&str]) -> &'static str {
    match path {
        ["run" | "serve" | "supervise"] => {
            "0 ended by a signal; 130 or 143 if a second signal hurried it; 1 failed, 2 usage, 78 \
             configuration: starting again does not mend it."
        }
        ["check"] => {
            "0 correct; 1 the store, or the program of an agent, cannot be used; 2 usage, 78 \
             configuration."
        }
        ["doctor"] => "0 no problem; 1 a problem; 2 usage, 78 configuration.",
        ["forge", "check"] => {
            "0 no problem; 1 a problem prevents work on items; 2 usage, 78 configuration."
        }
        ["task", "add"] => {
            "0 done, 1 refused or failed, 2 usage, 69 no daemon, 78 configuration. With --wait: 3, \
             4 and 124 as of `task wait`; with --follow, also 130 after Ctrl-C."
        }
        ["backup" | "restore"] | ["store", "copy"] => WITHOUT_DAEMON,
        ["completions" | "man"] => "0 done, 1 failed, 2 usage.",
        _ => USUAL,
    }
}

/// Returns the command line, in which the help of each command lists its exit codes.
pub(super) fn command() -> Command {
    with_codes(Arguments::command(), &mut Vec::new())
}

fn with_codes(command: Command, path: &mut Vec<String>) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let path_of_it: Vec<&str> = path.iter().map(String::as_str).collect();
    let mut command = if help.contains(TITLE) {
        command
    } else {
        let gap = if help.is_empty() { "" } else { "\n\n" };
        let codes = codes(&path_of_it);
        command.after_help(format!("{help}{gap}{TITLE}{codes}"))
    };
    for name in names {
        path.push(name.clone());
        command = command.mut_subcommand(name, |subcommand| with_codes(subcommand, path));
        path.pop();
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands without `--json`, and why.
    const WITHOUT_JSON: &[(&str, &str)] = &[
        ("run", "the daemon; its log has a format of its own"),
        ("serve", "the daemon"),
        ("supervise", "the daemon"),
        ("mcp", "a bridge: the output belongs to the protocol"),
        ("metrics", "the text format of Prometheus"),
        ("logs", "the output of an agent, byte by byte"),
        ("chat", "a conversation on a terminal; its subcommands have it"),
        ("inbox done", "prints nothing"),
        ("inbox later", "prints nothing"),
        ("inbox reopen", "prints nothing"),
        ("token revoke", "prints nothing"),
        ("task diff", "a patch"),
        ("completions", "a script for a shell"),
        ("complete", "words for the scripts of `completions`"),
        ("man", "manual pages"),
    ];

    /// Hands each command over, with its names.
    fn walk(command: &Command, path: &str, look: &mut impl FnMut(&Command, &str)) {
        look(command, path);
        for subcommand in command.get_subcommands() {
            let name = subcommand.get_name();
            let below = if path.is_empty() { name.to_owned() } else { format!("{path} {name}") };
            walk(subcommand, &below, look);
        }
    }

    #[test]
    fn every_command_that_prints_has_json() {
        let (mut missing, mut unused) = (Vec::new(), WITHOUT_JSON.to_vec());
        walk(&command(), "", &mut |command, path| {
            let has_json = command.get_arguments().any(|it| it.get_long() == Some("json"));
            let is_group = command.is_subcommand_required_set() || path.is_empty();
            unused.retain(|(name, _)| *name != path || has_json);
            let is_excused = WITHOUT_JSON.iter().any(|(name, _)| *name == path);
            if !has_json && !is_group && !is_excused {
                missing.push(path.to_owned());
            }
        });
        assert!(missing.is_empty(), "without --json, and without a reason: {missing:?}");
        assert!(unused.is_empty(), "has --json, or does not exist: {unused:?}");
    }

    #[test]
    fn the_help_of_every_command_lists_its_exit_codes_once() {
        let mut n_commands = 0;
        walk(&command(), "", &mut |command, path| {
            n_commands += 1;
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert_eq!(help.matches(TITLE).count(), 1, "{path}: {help}");
        });
        assert!(n_commands > 60, "only {n_commands} commands were found");
    }
}
