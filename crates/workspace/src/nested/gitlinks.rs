//! The tree of the files as a commit of the agent would have it: with submodules, with pointers in
//! place of the files of LFS, and with committed files that `.gitignore` names.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::{MAX_PARTS, Nested, Part, PartKind, path_in};
use crate::objects::is_folder;
use crate::rights::{blocking_as, may_read};
use crate::source::entries;
use crate::text::is_id;
use crate::{Place, Result, WorkFiles};

/// The index for the tree with the submodules, which earlier versions left in the folder of a
/// workspace.
pub(crate) const GITLINKS: &str = "index-gitlinks";
pub(crate) const GITLINKS_LOCK: &str = "index-gitlinks.lock";

impl WorkFiles {
    /// Returns the parts in which the work has files of its own repository. An agent made a
    /// repository in a folder that had files then.
    pub(super) async fn tracked_below(
        &self,
        place: &Place,
        parts: &[Part],
        result: Option<&str>,
    ) -> Result<BTreeSet<PathBuf>> {
        let is_work_tree = |part: &&Part| matches!(part.kind, PartKind::WorkTree(_));
        let folders: Vec<&PathBuf> =
            parts.iter().filter(is_work_tree).map(|part| &part.path).take(MAX_PARTS).collect();
        if folders.is_empty() {
            return Ok(BTreeSet::new());
        }
        let around = |path: &Path| {
            let found = folders.iter().filter(|folder| path.starts_with(folder));
            found.map(|folder| (*folder).clone()).collect::<Vec<_>>()
        };
        let paths: Vec<OsString> = folders.iter().map(|folder| folder.join("").into()).collect();
        let index = place.index();
        let mut list = ["ls-files", "-z", "--"].map(OsStr::new).to_vec();
        list.extend(paths.iter().map(OsString::as_os_str));
        let listed = self.on_files(place, &list, &index)?.variable("GIT_LITERAL_PATHSPECS", "1");
        let listed = listed.run().await?;
        let mut tracked: BTreeSet<PathBuf> = entries(&listed).flat_map(around).collect();
        let Some(result) = result else {
            return Ok(tracked);
        };
        let mut list =
            ["ls-tree", "-r", "-z", "--full-tree", result, "--"].map(OsStr::new).to_vec();
        list.extend(paths.iter().map(OsString::as_os_str));
        let listed = self.git.on(&place.keep(), list).long().run().await?;
        let mut unknown = Vec::new();
        for entry in listed.split_inclusive(|byte| *byte == 0) {
            let Some(path) = path_in(entry).filter(|_| !entry.starts_with(b"160000 ")) else {
                continue;
            };
            if around(&path).iter().all(|folder| !tracked.contains(folder)) {
                unknown.push((around(&path), entry));
            }
        }
        let lines: Vec<u8> = unknown.iter().flat_map(|(_, entry)| entry.to_vec()).collect();
        if !lines.is_empty() {
            let update = ["update-index", "-z", "--index-info"].map(OsStr::new);
            self.on_files(place, &update, &index)?.input(lines).run().await?;
        }
        tracked.extend(unknown.into_iter().flat_map(|(folders, _)| folders));
        Ok(tracked)
    }

    /// Removes the commits of submodules from the daemon's index of a workspace. Git runs a process
    /// in a submodule that it looks at, with the settings of the agent.
    pub(crate) async fn forget_gitlinks(&self, place: &Place) -> Result<()> {
        let index = place.index();
        let list = ["ls-files", "--stage", "-z"].map(OsStr::new);
        let listed = self.on_files(place, &list, &index)?.run().await?;
        let gitlinks = listed.split_inclusive(|byte| *byte == 0);
        let gitlinks = gitlinks.filter(|entry| entry.starts_with(b"160000 "));
        let paths: Vec<u8> = gitlinks
            .filter_map(|entry| entry.splitn(2, |byte| *byte == b'\t').nth(1))
            .flat_map(<[u8]>::to_vec)
            .collect();
        if !paths.is_empty() {
            let forget = ["update-index", "-z", "--force-remove", "--stdin"].map(OsStr::new);
            self.on_files(place, &forget, &index)?.input(paths).run().await?;
        }
        Ok(())
    }

    /// Returns the tree `visible` as a commit of the agent would have it. The submodules of
    /// `result` are at the commit of their HEAD, or as in `result` if their files were never
    /// fetched. A file of LFS with the content that the pointer in `result` names is that pointer.
    /// A file that `result` has is there, also if `.gitignore` names it.
    pub(crate) async fn as_committed(
        &self,
        visible: String,
        result: Option<&str>,
        nested: &Nested,
        place: &Place,
    ) -> Result<String> {
        let Some(result) = result else {
            return Ok(visible);
        };
        let tree = format!("{result}^{{tree}}");
        let list = ["diff-tree", "-r", "--no-renames", "--raw", "--no-abbrev", "-z"];
        let list = list.into_iter().chain([tree.as_str(), &visible]);
        let listed = self.git.on(&place.keep(), list).long().run().await?;
        let mut fields = entries(&listed);
        let mut gitlinks = Vec::new();
        let mut hidden = Vec::new();
        let mut pointers = BTreeMap::new();
        let mut modes = BTreeMap::new();
        let mut present: BTreeSet<&Path> = BTreeSet::new();
        while let (Some(change), Some(path)) = (fields.next(), fields.next()) {
            let change = change.to_string_lossy().into_owned();
            let mut columns = change.trim_start_matches(':').split(' ');
            let (Some(old), Some(new), Some(id)) = (columns.next(), columns.next(), columns.next())
            else {
                continue;
            };
            if new != "000000" {
                present.insert(path);
            }
            if old == "160000" && new == "000000" {
                gitlinks.push((path.to_owned(), id.to_owned()));
            }
            if matches!(old, "100644" | "100755" | "120000") && new == "000000" {
                hidden.push(path.to_owned());
            }
            if old.starts_with("100") && new.starts_with("100") {
                pointers.insert(path.to_owned(), id.to_owned());
                modes.insert(path.to_owned(), new.to_owned());
            }
        }
        let is_free = |path: &Path| {
            !present.iter().any(|other| other.starts_with(path) || path.starts_with(other))
        };
        gitlinks.retain(|(path, _)| is_free(path));
        hidden.retain(|path| is_free(path));
        let tree = place.tree();
        let look = move || {
            gitlinks.retain(|(path, _)| is_folder(&tree.join(path)));
            hidden.retain(|path| is_file_or_link(&tree.join(path)));
            Ok((gitlinks, hidden))
        };
        let (gitlinks, hidden) = blocking_as(place.owner, look).await?;
        let mut lines = Vec::new();
        for (path, id) in &gitlinks {
            let id = nested.heads.get(path).unwrap_or(id);
            lines.extend_from_slice(format!("160000 commit {id}\t").as_bytes());
            lines.extend_from_slice(path.as_os_str().as_bytes());
            lines.push(0);
        }
        for path in self.find_smudged(place, &pointers).await? {
            let id = &pointers[&path];
            let mode = &modes[&path];
            lines.extend_from_slice(format!("{mode} blob {id}\t").as_bytes());
            lines.extend_from_slice(path.as_os_str().as_bytes());
            lines.push(0);
        }
        lines.extend(self.take_hidden(place, &hidden).await?);
        if lines.is_empty() {
            return Ok(visible);
        }
        self.git.tree_with(place, &visible, lines).await
    }

    /// Takes files that commits have, but that `.gitignore` names. Returns their entries in the
    /// daemon's index, each ended by NUL.
    async fn take_hidden(&self, place: &Place, hidden: &[PathBuf]) -> Result<Vec<u8>> {
        if hidden.is_empty() {
            return Ok(Vec::new());
        }
        let paths: Vec<u8> =
            hidden.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat()).collect();
        let index = place.index();
        // The folder for new objects of another owner was removed when they were taken.
        self.prepare_reading(place).await?;
        let add = ["add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul"];
        let add = self.on_files(place, &add.map(OsStr::new), &index)?.input(paths);
        add.variable("GIT_LITERAL_PATHSPECS", "1").run().await?;
        let list = self.on_files(place, &["ls-files", "--stage", "-z"].map(OsStr::new), &index);
        let listed = list?.run().await?;
        self.take_scratch(place).await?;
        let hidden: BTreeSet<&PathBuf> = hidden.iter().collect();
        let found = listed.split_inclusive(|byte| *byte == 0);
        let found = found.filter(|entry| path_in(entry).is_some_and(|it| hidden.contains(&it)));
        let found: Vec<&[u8]> = found.filter(|entry| is_of_a_file(entry)).collect();
        let ids = found.iter().filter_map(|entry| id_in(entry)).collect::<BTreeSet<String>>();
        let known = self.git.kinds(place, ids.iter()).await?;
        let is_known = |entry: &&&[u8]| id_in(entry).is_some_and(|id| known.contains_key(&id));
        Ok(found.iter().filter(is_known).flat_map(|entry| entry.to_vec()).collect())
    }
}

/// Returns whether an entry of an index is a file or a link without conflicts. Another owner can
/// change the index.
fn is_of_a_file(entry: &[u8]) -> bool {
    let modes: [&[u8]; 3] = [b"100644 ", b"100755 ", b"120000 "];
    let tab = entry.iter().position(|byte| *byte == b'\t').unwrap_or(0);
    modes.iter().any(|mode| entry.starts_with(mode)) && entry[..tab].ends_with(b" 0")
}

/// Returns the id in an entry of an index.
fn id_in(entry: &[u8]) -> Option<String> {
    let id = std::str::from_utf8(entry.split(|byte| *byte == b' ').nth(1)?).ok()?;
    is_id(id).then(|| id.to_owned())
}

/// Returns whether an entry is a link, or a file that this thread may read.
fn is_file_or_link(path: &Path) -> bool {
    let found = path.symlink_metadata();
    found.is_ok_and(|found| found.is_symlink() || (found.is_file() && may_read(path)))
}
