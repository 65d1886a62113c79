//! `completions` and `man`: shell completions and manual pages from the definition of the command
//! line.

use std::io::{self, Write as _};
use std::path::Path;

use clap_complete::Shell;

use super::error::CliError;
use super::exit_codes::command;

/// The name under which the program is installed.
const PROGRAM: &str = "agent-coordinator";

/// The functions of bash and zsh that complete the words of the commands themselves.
#[cfg(test)]
const BASH_WORDS: &str = "_agent__coordinator";
const ZSH_WORDS: &str = "_agent-coordinator";

/// Prints the script for a shell. Where a word names an agent, a project or a task, the scripts for
/// bash, zsh and fish ask the hidden command `complete`. They print no errors.
pub(super) fn completions(shell: Shell) -> Result<(), CliError> {
    // The text is collected first, because the generator can't report that its reader has gone.
    let text = words_of(shell)?;
    let text = match shell {
        // The last lines of this script register a function, and the added ones another one.
        Shell::Bash => with_fixed_names(&text) + include_str!("complete/bash"),
        Shell::Zsh => with_names_for_zsh(&text),
        Shell::Fish => with_names_for_fish(&text) + include_str!("complete/fish"),
        _ => text,
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Returns the script that completes the words of the commands themselves, without hidden ones.
fn words_of(shell: Shell) -> Result<String, CliError> {
    let all = command();
    let visible = all.get_subcommands().filter(|it| !it.is_hide_set()).cloned();
    let mut shown = clap::Command::new(PROGRAM)
        .version(env!("CARGO_PKG_VERSION"))
        .args(all.get_arguments().cloned())
        .subcommands(visible);
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut shown, PROGRAM, &mut text);
    String::from_utf8(text).map_err(|error| CliError::Failed(error.to_string()))
}

/// Mends the script for bash. clap_complete 4.6 writes the name of a program with `-` in two ways,
/// so that the script would complete no word after a subcommand.
fn with_fixed_names(text: &str) -> String {
    text.replace("agent__subcmd__coordinator", "agent__coordinator")
}

/// Gives the function of the script another name, so that the added one has the name by which zsh
/// loads it.
fn with_names_for_zsh(text: &str) -> String {
    let begin = format!("\n{ZSH_WORDS}() {{\n");
    let end = "\nif [ \"$funcstack[1]\" = ";
    let renamed = text.replacen(&begin, &format!("\n{ZSH_WORDS}-words() {{\n"), 1);
    let body = renamed.rfind(end).map_or(renamed.as_str(), |at| &renamed[..at]);
    format!("{body}\n{}", include_str!("complete/zsh"))
}

/// Lets every option with a value offer names. The function offers none if the value is something
/// else.
fn with_names_for_fish(text: &str) -> String {
    let has_value = |line: &str| line.starts_with("complete ") && line.ends_with(" -r");
    let lines = text.lines().map(|line| {
        let names = if has_value(line) { " -a '(__agent_coordinator_names)'" } else { "" };
        format!("{line}{names}\n")
    });
    lines.collect()
}

pub(super) fn man(folder: Option<&Path>) -> Result<(), CliError> {
    let Some(folder) = folder else {
        let mut text = Vec::new();
        clap_mangen::Man::new(command()).render(&mut text)?;
        io::stdout().write_all(&text)?;
        return Ok(());
    };
    if !folder.is_dir() {
        return Err(CliError::Failed(format!("there is no folder {}", folder.display())));
    }
    clap_mangen::generate_to(command(), folder).map_err(|error| {
        CliError::Failed(format!("could not write into {}: {error}", folder.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The added scripts call functions of the generated ones.
    #[test]
    fn the_generator_names_its_functions_as_the_added_scripts_expect() {
        let generated = |shell| words_of(shell).unwrap();
        assert!(generated(Shell::Bash).contains(&format!("{BASH_WORDS}() {{\n")));
        assert!(include_str!("complete/bash").contains(&format!("{BASH_WORDS} \"$@\"")));
        let bash = with_fixed_names(&generated(Shell::Bash));
        let task = format!("{}__subcmd__task", &BASH_WORDS[1..]);
        assert!(bash.contains(&format!("cmd=\"{task}\"")) && bash.contains(&format!(" {task})\n")));
        let zsh = with_names_for_zsh(&generated(Shell::Zsh));
        assert!(zsh.starts_with("#compdef agent-coordinator\n"));
        assert!(zsh.contains(&format!("\n{ZSH_WORDS}-words() {{\n")));
        assert_eq!(zsh.matches(&format!("\n{ZSH_WORDS}() {{\n")).count(), 1);
        assert_eq!(zsh.matches("$funcstack[1]").count(), 1);
        let fish = with_names_for_fish(&generated(Shell::Fish));
        assert!(fish.contains(" -l project -d 'Select this project' -r -a '(__"), "{fish}");
    }
}
