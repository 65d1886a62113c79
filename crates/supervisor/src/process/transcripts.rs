//! Finds the transcripts that agent CLIs keep in the folders of their users. Blocking.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;

use domain::cli_lines::kept::Keeper;
use domain::{CommandSpec, RunAs};
use machine::instance_dir::record::{KeptConversation, TranscriptBefore};
use machine::sys::{below, users};

/// Returns the known facts about the transcript of an agent before its process exists; `None` if
/// its program is not known to keep one.
pub fn note(command: &CommandSpec) -> Option<KeptConversation> {
    let spec = command.transcript.clone()?;
    // The others refuse to begin a conversation with an id that is used.
    let may_exist = spec.asked.is_resumed || spec.keeper == Keeper::Copilot;
    let conversation = spec.asked.conversation.as_deref().filter(|_| may_exist);
    let names = conversation.map(|id| spec.keeper.names(id));
    let mut kept = KeptConversation { spec, transcript: None, run_as: command.run_as.clone() };
    if let Some((path, file)) = names.and_then(|names| find(&kept, &names)) {
        let length = file.metadata().map_or(0, |found| found.len());
        kept.transcript = Some(TranscriptBefore { path, length });
    }
    Some(kept)
}

/// Opens the file to which these names lead below the folder of the CLI, as `below::find` does. If
/// agents run as another user, that user's rights decide.
pub fn find(kept: &KeptConversation, names: &[String]) -> Option<(PathBuf, File)> {
    let Some(user) = &kept.run_as else {
        return below::find(&kept.spec.folder, names);
    };
    // The thread keeps the rights of the other user for good, so it serves one search.
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("transcripts".to_owned());
        let finder = thread.spawn_scoped(scope, || find_as(user, &kept.spec.folder, names)).ok()?;
        finder.join().ok()?
    })
}

fn find_as(user: &RunAs, folder: &Path, names: &[String]) -> Option<(PathBuf, File)> {
    users::take_file_rights(user.uid, user.gid, &user.groups).ok()?;
    below::find(folder, names)
}
