//! Looks up whether other users can change a folder.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Returns whether another user than root can create entries in an existing folder, or replace it
/// by way of a folder above it.
pub fn is_changed_by_others(folder: &Path) -> bool {
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let is_open = |folder: &Path, allowed: u32| {
        let found = std::fs::metadata(folder).ok();
        found.is_some_and(|found| {
            found.uid() != 0 || (found.mode() & OTHERS_WRITE != 0 && found.mode() & allowed == 0)
        })
    };
    // Only its owner can move an entry of a sticky folder.
    is_open(folder, 0) || folder.ancestors().skip(1).any(|above| is_open(above, STICKY))
}

/// Returns whether only root can change an existing folder or program, also by way of the links
/// that lead to it.
pub fn is_only_of_root(path: &Path) -> bool {
    let real = path.canonicalize();
    real.is_ok_and(|real| !is_changed_by_others(&real)) && !is_changed_by_others(path)
}
