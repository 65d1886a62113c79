//! Files that Git LFS keeps outside of commits (`workspace.lfs`).
//!
//! A commit has a pointer in place of such a file. A new workspace gets the file itself if git-lfs
//! is installed and the repository of the person has the file on this machine. No program of LFS
//! runs for that, and no `.lfsconfig` is read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::inside::Inside;
use super::nested::{path_in, raw_objects};
use super::objects::{lines, open};
use super::rights::{Owner, blocking_as, run_as};
use super::source::{Source, entries};
use super::{CheckoutError, Clones, Place, Result, WorkFiles, blocking};

/// The largest pointer, in bytes.
const MAX_POINTER: u64 = 1_024;
/// The first line of a pointer.
const VERSION: &str = "version https://git-lfs.github.com/spec/v1";
/// The settings with which git gives and takes such files.
const FILTER: [(&str, &str); 4] = [
    ("filter.lfs.clean", "git-lfs clean -- %f"),
    ("filter.lfs.smudge", "git-lfs smudge -- %f"),
    ("filter.lfs.process", "git-lfs filter-process"),
    ("filter.lfs.required", "true"),
];

/// The files that a workspace gets in the place of pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LfsFill {
    /// The files that the repository of the person has.
    FromSource,
    /// The files that the work had, which comes back.
    AsKept,
}

/// The facts in a pointer about its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pointer {
    /// The SHA-256 of the content, as 64 digits.
    id: String,
    size: u64,
}

impl Pointer {
    /// Reads a pointer; `None` for another file.
    pub(super) fn parse(content: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(content).ok().filter(|it| it.len() as u64 <= MAX_POINTER)?;
        let mut lines = text.lines();
        if lines.next()? != VERSION {
            return None;
        }
        let rest: Vec<&str> = lines.collect();
        let value = |key: &str| rest.iter().find_map(|line| line.strip_prefix(key));
        let id = value("oid sha256:")?;
        let is_id = id.len() == 64 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let size = value("size ")?.parse().ok()?;
        is_id.then(|| Self { id: id.to_owned(), size })
    }

    /// Returns whether a file has the content that the pointer names. Blocks.
    fn is_of(&self, inside: &Inside, path: &Path) -> bool {
        let is_of = || {
            let mut file = inside.open_file(path)?;
            if file.metadata()?.len() != self.size {
                return Ok(false);
            }
            Ok::<_, io::Error>(copy_hashed(&mut file, &mut io::sink())? == self.id)
        };
        is_of().unwrap_or(false)
    }

    /// Returns the place of the file in a folder of LFS.
    fn place_in(&self, objects: &Path) -> PathBuf {
        objects.join(&self.id[..2]).join(&self.id[2..4]).join(&self.id)
    }
}

impl WorkFiles {
    /// Returns those of the files of a workspace whose content is the one that the pointer in a
    /// commit names. `pointers` are the ids of blobs, by path.
    pub(super) async fn find_smudged(
        &self,
        place: &Place,
        pointers: &BTreeMap<PathBuf, String>,
    ) -> Result<Vec<PathBuf>> {
        let known = self.read_pointers(place, pointers.values()).await?;
        let tree = place.tree();
        let files =
            pointers.iter().filter_map(|(path, id)| Some((path.clone(), known.get(id)?.clone())));
        let files: Vec<(PathBuf, Pointer)> = files.collect();
        blocking_as(place.owner, move || {
            let inside = Inside::open(&tree)?;
            let is_of = |(path, pointer): &(PathBuf, Pointer)| pointer.is_of(&inside, path);
            Ok(files.into_iter().filter(is_of).map(|(path, _)| path).collect())
        })
        .await
    }

    /// Reads those of these blobs that are pointers.
    async fn read_pointers(
        &self,
        place: &Place,
        blobs: impl Iterator<Item = &String>,
    ) -> Result<BTreeMap<String, Pointer>> {
        let blobs = blobs.cloned().collect::<BTreeSet<_>>();
        if blobs.is_empty() {
            return Ok(BTreeMap::new());
        }
        let print = ["cat-file", "--batch-check=%(objectname) %(objectsize)"];
        let listed = self.git.on(&place.keep(), print).input(lines(&blobs)).long().text().await?;
        let small = listed.lines().filter_map(|line| {
            let (id, size) = line.split_once(' ')?;
            (size.parse::<u64>().ok()? <= MAX_POINTER).then(|| id.to_owned())
        });
        let small: Vec<String> = small.collect();
        if small.is_empty() {
            return Ok(BTreeMap::new());
        }
        let print = self.git.on(&place.keep(), ["cat-file", "--batch"]);
        let printed = print.input(lines(&small)).long().run().await?;
        let contents = raw_objects(&printed).into_iter().map(|(_, content)| content);
        let found = small.into_iter().zip(contents);
        Ok(found.filter_map(|(id, content)| Some((id, Pointer::parse(content)?))).collect())
    }
}

impl Clones {
    /// Gives a workspace, which no agent has used yet, the settings of LFS, and files in the place
    /// of pointers. Other files stay pointers.
    pub(super) async fn add_lfs(
        &self,
        place: &Place,
        source: &Source,
        commit: &str,
        fill: LfsFill,
        tree: &Path,
        owner: Option<Owner>,
    ) -> Result<()> {
        let own = tree.join(".git");
        let on_own =
            |arguments: &[&str]| self.git.on(&own, arguments.iter().copied()).run_as(owner);
        let on_tree = |arguments: &[&str]| {
            self.git.on_tree(&own, tree, arguments.iter().copied()).run_as(owner).long()
        };
        let search = ["grep", "--quiet", "--fixed-strings", "filter=lfs", commit, "--"];
        let search = search.into_iter().chain([":(glob)**/.gitattributes"]);
        if self.git.on(&place.keep(), search).end().await?.code != Some(0) {
            return Ok(());
        }
        if !self.git.has_program("git-lfs") {
            return Ok(());
        }
        for (name, value) in FILTER {
            on_own(&["config", name, value]).run().await?;
        }
        // The file `.lfsconfig` does not change this folder, which is the usual one.
        on_own(&["config", "lfs.storage", "lfs"]).run().await?;
        let from = source.common.join("lfs/objects");
        let reader = source.owner;
        let upstream = source.upstream(&self.git).await;
        let upstream = upstream.filter(|url| url.starts_with("https://"));
        let url = upstream.unwrap_or_else(|| format!("file://{}", source.top.display()));
        on_own(&["config", "lfs.url", &url]).run().await?;
        let list = ["ls-tree", "-r", "-l", "-z", "--full-tree", commit];
        let listed = self.git.on(&place.keep(), list).long().run().await?;
        let mut small = BTreeMap::new();
        for entry in entries(&listed).map(|entry| entry.as_os_str().as_bytes()) {
            let Some(path) = path_in(entry) else {
                continue;
            };
            let end = entry.iter().position(|byte| *byte == b'\t').unwrap_or(0);
            let about = String::from_utf8_lossy(&entry[..end]).into_owned();
            let columns: Vec<&str> = about.split_whitespace().collect();
            if let [mode, "blob", id, size] = columns.as_slice()
                && mode.starts_with("100")
                && size.parse::<u64>().is_ok_and(|size| size <= MAX_POINTER)
            {
                small.insert(path, ((*mode).to_owned(), (*id).to_owned()));
            }
        }
        let known = self.files.read_pointers(place, small.values().map(|(_, id)| id)).await?;
        small.retain(|_, (_, id)| known.contains_key(id));
        let mut paths = Vec::new();
        for path in small.keys() {
            paths.extend_from_slice(path.as_os_str().as_bytes());
            paths.push(0);
        }
        let check = ["check-attr", "-z", "--stdin", "filter"];
        let checked = on_tree(&check).input(paths).run().await?;
        let fields: Vec<&Path> = entries(&checked).collect();
        let is_lfs = |field: &&[&Path]| field.get(2) == Some(&Path::new("lfs"));
        let files = fields.chunks(3).filter(is_lfs).filter_map(|field| {
            let path = field.first()?.to_path_buf();
            let (_, id) = small.get(&path)?;
            Some((path, known.get(id)?.clone()))
        });
        let files: Vec<(PathBuf, Pointer)> = files.collect();
        let top = tree.to_owned();
        let filled = blocking(move || {
            let mut filled = Vec::new();
            for (path, pointer) in files {
                let is_filled = match fill {
                    LfsFill::FromSource => fill_in(&top, &path, &pointer, &from, reader, owner)?,
                    LfsFill::AsKept => {
                        run_as(owner, || Ok(pointer.is_of(&Inside::open(&top)?, &path)))?
                    }
                };
                if is_filled {
                    filled.push(path);
                }
            }
            Ok(filled)
        });
        // Git looks at the content of a file whose size it does not know, and finds it unchanged.
        let mut lines = Vec::new();
        for path in filled.await? {
            let (mode, id) = &small[&path];
            lines.extend_from_slice(format!("{mode} blob {id}\t").as_bytes());
            lines.extend_from_slice(path.as_os_str().as_bytes());
            lines.push(0);
        }
        if !lines.is_empty() {
            let forget = ["update-index", "-z", "--index-info"];
            on_tree(&forget).input(lines).run().await?;
        }
        Ok(())
    }
}

/// The folder of a new clone in which LFS finds its files.
const STORE: &str = ".git/lfs/objects";

/// Puts the file that a pointer names in the place of the pointer at `path`, and into the clone's
/// own store, if the folder `from` of the user `reader` has it. Writes as `owner`. Returns whether
/// that was done.
fn fill_in(
    top: &Path,
    path: &Path,
    pointer: &Pointer,
    from: &Path,
    reader: Option<Owner>,
    owner: Option<Owner>,
) -> Result<bool> {
    let named = pointer.place_in(from);
    let Some(mut source) = run_as(reader, || Ok(open(&named).ok()))? else {
        return Ok(false);
    };
    run_as(owner, || {
        let inside = Inside::open(top)?;
        // A sparse checkout leaves it out.
        let Some(mode) = inside.mode_of(path) else {
            return Ok(false);
        };
        let stored = pointer.place_in(Path::new(STORE));
        let failed = |path: &Path| {
            let path = top.join(path);
            move |error| CheckoutError::io("write", &path)(error)
        };
        let mut file = inside.make_file(&stored, 0o644)?;
        let id = copy_hashed(&mut source, &mut file).map_err(failed(&stored))?;
        let size = file.metadata().map_err(failed(&stored))?.len();
        if id != pointer.id || size != pointer.size {
            // It was damaged in the repository of the person.
            inside.remove_file(&stored)?;
            return Ok(false);
        }
        let mut stored = inside.open_file(&stored).map_err(failed(path))?;
        let mut file = inside.make_file(path, mode)?;
        io::copy(&mut stored, &mut file).map_err(failed(path))?;
        Ok(true)
    })
}

/// Copies all, and returns its SHA-256 as digits.
fn copy_hashed(from: &mut impl io::Read, to: &mut impl io::Write) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let n = from.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
        to.write_all(&buffer[..n])?;
    }
    let mut id = String::new();
    for byte in &hash.finalize() {
        let _ = write!(id, "{byte:02x}");
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pointers_are_pointers() {
        let id = "0123456789abcdef".repeat(4);
        let pointer = format!("{VERSION}\noid sha256:{id}\nsize 12\n");
        assert_eq!(Pointer::parse(pointer.as_bytes()), Some(Pointer { id: id.clone(), size: 12 }));
        for other in [
            String::new(),
            pointer.replace("v1", "v9"),
            pointer.replace("size 12", "size x"),
            pointer.replace('f', "F"),
            format!("{VERSION}\nsize 12\n"),
            format!("{pointer}{}", "x".repeat(2_000)),
        ] {
            assert_eq!(Pointer::parse(other.as_bytes()), None, "{other}");
        }
    }
}
