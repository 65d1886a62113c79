//! `completions` and `man`: shell completions and manual pages from the definition of the command
//! line.

use std::io::{self, Write as _};
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Arguments;
use super::error::CliError;

/// The name under which the program is installed.
const PROGRAM: &str = "agent-coordinator";

pub(super) fn completions(shell: Shell) -> Result<(), CliError> {
    // The text is collected first, because the generator can't report that its reader has gone.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), PROGRAM, &mut text);
    io::stdout().write_all(&text)?;
    Ok(())
}

pub(super) fn man(folder: Option<&Path>) -> Result<(), CliError> {
    let Some(folder) = folder else {
        let mut text = Vec::new();
        clap_mangen::Man::new(Arguments::command()).render(&mut text)?;
        io::stdout().write_all(&text)?;
        return Ok(());
    };
    if !folder.is_dir() {
        return Err(CliError::Failed(format!("there is no folder {}", folder.display())));
    }
    clap_mangen::generate_to(Arguments::command(), folder).map_err(|error| {
        CliError::Failed(format!("could not write into {}: {error}", folder.display()))
    })
}
