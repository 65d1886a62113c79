//! Takes the objects of an agent's repository into the keep repository, without running git there.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::git::Call;
use super::keep_repository::make_new;
use super::rights::{Owner, pass_on, run_as};
use super::trees::MAX_BYTES;
use super::{CheckoutError, Git, Place, Result, blocking, make_folder, remove_folder, rename};
use domain::WorkspaceId;
use machine::crash_point::{self, CrashPoint};
use machine::sys::regular_file;

/// The index of the keep repository for the time of a call.
const INDEX: &str = "index-of-tree";
const INDEX_LOCK: &str = "index-of-tree.lock";

impl Git {
    /// Copies the objects of the workspace's own repository into the keep repository, and returns
    /// their ids. Objects that no ref reaches are among them.
    pub(super) async fn take_objects(
        &self,
        place: &Place,
        workspace: &WorkspaceId,
    ) -> Result<BTreeSet<String>> {
        self.take_objects_of(place, workspace, place.tree().join(".git/objects")).await
    }

    /// Writes a tree that has the entries of `tree` and, in place of those with the same paths, the
    /// `entries` in the form of `git update-index -z --index-info`. The index for that is in the
    /// keep repository for the time of the call. The caller has the lock of the project. A call
    /// that was killed may have left the index, and its lock.
    pub(super) async fn tree_with(
        &self,
        place: &Place,
        tree: &str,
        entries: Vec<u8>,
    ) -> Result<String> {
        let index = place.keep().join(INDEX);
        let remove = || {
            place.as_keeper(|keep| {
                for left in [INDEX, INDEX_LOCK] {
                    let _ = std::fs::remove_file(keep.join(left));
                }
                Ok(())
            })
        };
        remove()?;
        let on_index = |arguments: &[&str]| {
            self.on(&place.keep(), arguments.iter().copied())
                .variable("GIT_INDEX_FILE", &index)
                .long()
        };
        on_index(&["read-tree", tree]).run().await?;
        on_index(&["update-index", "-z", "--index-info"]).input(entries).run().await?;
        let written = on_index(&["write-tree"]).text().await?;
        remove()?;
        Ok(written)
    }

    /// Copies the objects in the folder `from`, which is in the workspace, into the keep
    /// repository, and returns their ids.
    pub(super) async fn take_objects_of(
        &self,
        place: &Place,
        workspace: &WorkspaceId,
        from: PathBuf,
    ) -> Result<BTreeSet<String>> {
        let quarantine = place.project.join(format!(".q-{workspace}"));
        self.take_from(place, &from, &quarantine).await
    }

    /// Copies the objects in a folder of the owner of a workspace into the keep repository, by way
    /// of the folder `quarantine`, and returns their ids.
    pub(super) async fn take_from(
        &self,
        place: &Place,
        from: &Path,
        quarantine: &Path,
    ) -> Result<BTreeSet<String>> {
        make_new(quarantine, place.keeper())?;
        let from = from.to_owned();
        let owner = place.owner;
        let to = quarantine.join("objects");
        let copied = blocking({
            let to = to.clone();
            let users = [owner, place.keeper()];
            move || copy_objects(users, &from, &to)
        });
        let Copied { loose, packs, mut unread } = copied.await?;
        crash_point::reach(CrashPoint::ObjectsCopied);
        let mut loose: BTreeSet<String> = loose.into_iter().collect();
        if owner.is_some() && !loose.is_empty() {
            // The name of a file says nothing: it can be that of another agent's object.
            let found = self.ids_by_content(place, &loose, quarantine).await?;
            unread.extend(loose.difference(&found).cloned());
            loose.retain(|id| found.contains(id));
        }
        let mut ids = loose;
        let on_copies = |arguments: &[&OsStr]| -> Call<'_> {
            self.on(&place.keep(), arguments.iter().copied())
                .variable("GIT_OBJECT_DIRECTORY", &to)
                .variable("GIT_ALTERNATE_OBJECT_DIRECTORIES", place.keep().join("objects"))
                .long()
        };
        for pack in &packs {
            on_copies(&[OsStr::new("index-pack"), pack.as_os_str()]).run().await?;
            ids.append(&mut self.ids_in(place, pack).await?);
        }
        let most = self.limits.objects;
        if ids.len() > most {
            return Err(CheckoutError::Malformed(format!(
                "there are more than {most} objects (`workspace.limits.objects`)"
            )));
        }
        self.pack_missing(place, &ids, quarantine, on_copies).await?;
        remove_folder(quarantine)?;
        // No commit reaches these, so they are named as left out. They have not proved their ids.
        ids.extend(unread.iter().map(|name| format!("unreadable:{name}")));
        Ok(ids)
    }

    /// Returns the ids of the objects in a pack, by its index.
    pub(super) async fn ids_in(&self, place: &Place, pack: &Path) -> Result<BTreeSet<String>> {
        let index = pack.with_extension("idx");
        let read = || std::fs::read(&index).map_err(CheckoutError::io("read", &index));
        let index = place.as_keeper(|_| read())?;
        let show = self.on(&place.keep(), ["show-index"]);
        let listed = show.input(index).long().text().await?;
        Ok(listed.lines().filter_map(|line| line.split(' ').nth(1)).map(str::to_owned).collect())
    }

    /// Returns the ids that the copies of `loose` have by their content.
    async fn ids_by_content(
        &self,
        place: &Place,
        loose: &BTreeSet<String>,
        quarantine: &Path,
    ) -> Result<BTreeSet<String>> {
        let on_copies = |arguments: &[&OsStr]| {
            self.on(&place.keep(), arguments.iter().copied())
                .variable("GIT_OBJECT_DIRECTORY", quarantine.join("objects"))
                .long()
        };
        let base = quarantine.join("loose");
        let pack = [OsStr::new("pack-objects"), OsStr::new("--quiet"), base.as_os_str()];
        let name = on_copies(&pack).input(lines(loose)).text().await?;
        let pack = quarantine.join(format!("loose-{name}.pack"));
        // The index is made anew from the content.
        on_copies(&[OsStr::new("index-pack"), pack.as_os_str()]).run().await?;
        self.ids_in(place, &pack).await
    }

    /// Adds those of `ids` to the keep repository that it does not have. `on_copies` begins a call
    /// that can read all of them, and `quarantine` is a folder for what is being made.
    ///
    /// # Errors
    /// `Malformed` if a tree among them is not to be used. None is added then.
    pub(super) async fn pack_missing<'a>(
        &'a self,
        place: &Place,
        ids: &BTreeSet<String>,
        quarantine: &Path,
        on_copies: impl Fn(&[&OsStr]) -> Call<'a>,
    ) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let new = self.missing(place, ids).await?;
        if new.is_empty() {
            return Ok(());
        }
        let on_objects =
            |arguments: &[&str]| on_copies(&arguments.iter().map(OsStr::new).collect::<Vec<_>>());
        self.check_trees(&new, &on_objects).await?;
        let base = quarantine.join("pack");
        let pack = [OsStr::new("pack-objects"), OsStr::new("--quiet"), base.as_os_str()];
        let name = on_copies(&pack).input(lines(&new)).text().await?;
        let file = format!("pack-{name}.pack");
        let to = place.as_keeper(|keep| {
            let packs = keep.join("objects/pack");
            make_folder(&packs)?;
            rename(&quarantine.join(&file), &packs.join(&file))?;
            Ok(packs.join(&file))
        })?;
        crash_point::reach(CrashPoint::PackMoved);
        // The index is made anew, so the names of the objects are those of their content.
        let index = [OsStr::new("index-pack"), to.as_os_str()];
        self.on(&place.keep(), index).long().run().await?;
        Ok(())
    }

    /// Returns those of `ids` that the keep repository does not have.
    async fn missing(&self, place: &Place, ids: &BTreeSet<String>) -> Result<BTreeSet<String>> {
        let call = self.on(&place.keep(), ["cat-file", "--batch-check=%(objectname)"]);
        let listed = call.input(lines(ids)).long().text().await?;
        let missing = listed.lines().filter_map(|line| line.strip_suffix(" missing"));
        Ok(missing.map(str::to_owned).collect())
    }
}

/// Returns one line for each id.
pub(super) fn lines<'a>(ids: impl IntoIterator<Item = &'a String>) -> String {
    ids.into_iter().flat_map(|id| [id.as_str(), "\n"]).collect()
}

/// Returns a short name for content: the first 16 hexadecimal digits of its SHA-256.
pub(super) fn short_hash(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    let hash = digest.iter().take(8).fold(0_u64, |hash, byte| (hash << 8) | u64::from(*byte));
    format!("{hash:016x}")
}

/// The objects of a workspace that were copied.
struct Copied {
    /// The ids of objects in files of their own.
    loose: Vec<String>,
    /// The copies of packs.
    packs: Vec<PathBuf>,
    /// The names of what cannot be read, such as a link.
    unread: Vec<String>,
}

/// A file with an object or a pack.
struct ObjectFile {
    /// The folder in the folder of the objects: `pack`, or the beginning of an id.
    folder: String,
    name: String,
    /// `None` if it cannot be read.
    file: Option<File>,
}

/// Copies the objects of a repository. The first user is their owner, with whose rights they are
/// opened, and the second one the owner of the copies.
fn copy_objects(users: [Option<Owner>; 2], from: &Path, to: &Path) -> Result<Copied> {
    let mut copied = Copied { loose: Vec::new(), packs: Vec::new(), unread: Vec::new() };
    run_as(users[1], || make_folder(&to.join("pack")))?;
    let mut n_bytes = 0;
    let take = |ObjectFile { folder, name, file }: ObjectFile| {
        let is_pack = folder == "pack";
        let id = if is_pack { plain(&name) } else { format!("{folder}{name}") };
        let Some(mut file) = file else {
            copied.unread.push(id);
            return Ok(());
        };
        n_bytes += file.metadata().map_err(CheckoutError::io("read", from))?.len();
        if n_bytes > MAX_BYTES {
            return Err(CheckoutError::Malformed(format!(
                "there are more than {MAX_BYTES} bytes of objects"
            )));
        }
        let target = to.join(&folder).join(&name);
        make_folder(&to.join(&folder))?;
        copy_into(&mut file, &target)?;
        if is_pack {
            copied.packs.push(target);
        } else {
            copied.loose.push(id);
        }
        Ok(())
    };
    pass_on(users, |found| find_objects(from, found), take)?;
    Ok(copied)
}

/// Opens the objects of a repository. Follows no link, and takes no index of a pack.
fn find_objects(from: &Path, take: &mut dyn FnMut(ObjectFile) -> Result<()>) -> Result<()> {
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    if !from.parent().is_some_and(is_folder) || !is_folder(from) {
        return Ok(());
    }
    for folder in names_in(from) {
        let source = from.join(&folder);
        if source.is_symlink() {
            continue;
        }
        let is_pack = |name: &str| Path::new(name).extension() == Some(OsStr::new("pack"));
        let is_loose = folder.len() == 2 && is_hex(&folder);
        let is_wanted =
            |name: &String| if is_loose { is_hex(name) } else { folder == "pack" && is_pack(name) };
        for name in names_in(&source).into_iter().filter(is_wanted) {
            let path = source.join(&name);
            let file = match open(&path) {
                Ok(file) => Some(file),
                Err(error) if regular_file::is_lasting(&error) => None,
                Err(error) => return Err(CheckoutError::io("read", &path)(error)),
            };
            take(ObjectFile { folder: folder.clone(), name, file })?;
        }
    }
    Ok(())
}

/// Returns the name of a file without characters by which git could take it for another name.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    name.chars().map(|c| if is_plain(c) { c } else { '?' }).collect()
}

fn copy_into(source: &mut File, to: &Path) -> Result<()> {
    let mut target = File::create(to).map_err(CheckoutError::io("write", to))?;
    io::copy(source, &mut target).map_err(CheckoutError::io("write", to))?;
    Ok(())
}

/// Returns the names in a folder. A folder that cannot be read has none.
pub(super) fn names_in(folder: &Path) -> Vec<String> {
    let read = std::fs::read_dir(folder).ok();
    let names = read.into_iter().flatten().flatten().map(|entry| entry.file_name().into_string());
    names.flatten().collect()
}

/// Returns whether `path` is a folder, and not a link to one.
pub(super) fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

/// Opens a file for reading. A link is an error, and a pipe does not block.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_hash_is_the_beginning_of_the_long_one() {
        assert_eq!(short_hash(b""), "e3b0c44298fc1c14");
        assert_eq!(short_hash(b"abc"), "ba7816bf8f01cfea");
    }
}
