//! The answers to commands of earlier builds that do not exist any more. They name what to use in
//! the place of the command. This module does not know the commands of now; `cli` calls it.

use clap::Error;
use clap::error::{ContextKind, ContextValue};

/// The removed commands, under any command, and the answers.
const REMOVED: [(&str, &str); 2] = [
    (
        "run-once",
        "`run-once` does not exist any more; use `task add --wait --follow`, which prints what the \
         agent prints until the task is over",
    ),
    (
        "undelete",
        "`undelete` does not exist any more, because deletions are final; archive what may be \
         needed again, and bring it back with `unarchive`",
    ),
];

/// Returns the answer to a command line that was not understood because it names a removed command.
pub(super) fn find_answer(error: &Error) -> Option<&'static str> {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    REMOVED.iter().find(|(removed, _)| removed == name).map(|(_, answer)| *answer)
}
