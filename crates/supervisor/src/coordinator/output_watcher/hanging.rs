//! The folders with transcripts that hang, for example on a network file system.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{PATIENCE, PAUSE};

/// The folders in which the end of an agent waited in vain for its transcript.
#[derive(Debug, Default)]
pub struct HangingFolders(BTreeSet<PathBuf>);

impl HangingFolders {
    /// Returns how long the end of an agent waits for its transcript in a folder.
    pub fn patience(&self, folder: &Path) -> Duration {
        if self.0.contains(folder) { PAUSE } else { PATIENCE }
    }

    pub fn waited_in_vain(&mut self, folder: PathBuf) {
        self.0.insert(folder);
    }

    /// Notes that a read in a folder has ended.
    pub fn answered(&mut self, folder: &Path) {
        self.0.remove(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_read_in_the_folder_itself_restores_the_patience() {
        let [hangs, works] = ["/net/ann/.claude", "/home/bob/.claude"].map(Path::new);
        let mut folders = HangingFolders::default();
        assert_eq!(folders.patience(hangs), PATIENCE);
        folders.waited_in_vain(hangs.to_owned());
        folders.answered(works);
        assert_eq!((folders.patience(hangs), folders.patience(works)), (PAUSE, PATIENCE));
        folders.answered(hangs);
        assert_eq!(folders.patience(hangs), PATIENCE);
    }
}
