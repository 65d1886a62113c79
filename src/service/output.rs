//! What an agent printed, as its keeper wrote it down: from the oldest file to the newest, then along as it grows.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use futures::Stream;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use crate::domain::{LaunchId, Refusal};
use crate::folder_watch::Folders;
use crate::instance_dir;

use super::{Service, ServiceError};

/// How much is read at once.
const CHUNK: usize = 16 * 1024;

impl Service {
    /// The output of a launch, as far as this machine has it: what there is, or with `follow` until the launch has ended.
    /// `None` if nothing of it is here.
    ///
    /// # Errors
    /// When the folder can't be watched.
    pub fn output(
        &self,
        id: &LaunchId,
        follow: bool,
    ) -> Result<Option<impl Stream<Item = io::Result<Vec<u8>>> + Send + use<>>, ServiceError> {
        read_output(&self.settings.state_dir, id, follow)
    }

    /// What is known of the output of a launch whose coordinator is on another machine.
    ///
    /// # Errors
    /// `OutputElsewhere` as long as nothing of it is here, `LaunchNotFound`.
    pub async fn output_elsewhere(&self, id: &LaunchId) -> Result<Option<String>, ServiceError> {
        let launch = self.launch(id).await?;
        match launch.coordinator.filter(|coordinator| !self.coordinators.is_here(coordinator)) {
            None => Ok(None),
            Some(coordinator) => match self.store.output_tail(id).await? {
                Some(tail) => Ok(Some(tail)),
                None => Err(Refusal::OutputElsewhere { launch: id.clone(), coordinator }.into()),
            },
        }
    }
}

/// As [`Service::output`], where there is no server: of the launches that were kept in `state_dir`.
///
/// # Errors
/// When the folder can't be watched.
pub fn read_output(
    state_dir: &Path,
    id: &LaunchId,
    follow: bool,
) -> Result<Option<impl Stream<Item = io::Result<Vec<u8>>> + Send + use<>>, ServiceError> {
    let Some(dir) = instance_dir::find(state_dir, id) else { return Ok(None) };
    let watch = if follow && dir.starts_with(instance_dir::instances(state_dir)) {
        // Before the first read, so that nothing written in between goes unnoticed.
        Some(watch(&dir).map_err(|error| Refusal::Invalid(format!("could not follow the output: {error}")))?)
    } else {
        None
    };
    let Ok(folder) = File::open(&dir) else { return Ok(None) };
    let reader = OutputReader { dir, folder, files: Vec::new(), current: None, watch };
    Ok(Some(futures::stream::unfold(reader, |mut reader| async move {
        match reader.next().await {
            Ok(None) => None,
            Ok(Some(chunk)) => Some((Ok(chunk), reader)),
            Err(error) => Some((Err(error), OutputReader { files: Vec::new(), current: None, watch: None, ..reader })),
        }
    })))
}

struct OutputReader {
    dir: PathBuf,
    /// The same, also when it is moved to the ended ones.
    folder: File,
    /// Files to be read yet, the next one last.
    files: Vec<File>,
    current: Option<File>,
    watch: Option<Folders>,
}

impl OutputReader {
    /// The next piece; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(file) = &mut self.current {
                let mut chunk = vec![0; CHUNK];
                let n_read = file.read(&mut chunk)?;
                if n_read > 0 {
                    chunk.truncate(n_read);
                    return Ok(Some(chunk));
                }
            }
            if let Some(file) = self.files.pop() {
                self.current = Some(file);
                continue;
            }
            if self.open_newer()? {
                // The end of the current one may have been written just before the newer one came.
                continue;
            }
            let Some(watch) = &self.watch else { return Ok(None) };
            if is_over(&self.dir) {
                // What was written before the end is still to be read.
                self.watch = None;
                continue;
            }
            watch.seen().await?;
        }
    }

    /// Opens what is newer than the current file; `false` if nothing is.
    ///
    /// From the newest to the oldest: a rotation meanwhile moves files on before us, so that we may meet one twice but miss
    /// none.
    fn open_newer(&mut self) -> io::Result<bool> {
        let current = self.current.as_ref().map(inode).transpose()?;
        let mut last = None;
        let mut is_gap = false;
        for n in 0.. {
            let Some(file) = self.open(n)? else {
                // Between two steps of a rotation one number is free.
                if is_gap {
                    break;
                }
                is_gap = true;
                continue;
            };
            is_gap = false;
            let inode = Some(inode(&file)?);
            if inode == current {
                break;
            }
            if inode != last {
                self.files.push(file);
            }
            last = inode;
        }
        Ok(!self.files.is_empty())
    }

    /// The newest file, or the nth older one.
    fn open(&self, n: u32) -> io::Result<Option<File>> {
        let name =
            if n == 0 { PathBuf::from(instance_dir::OUTPUT_LOG) } else { instance_dir::rotated_log(Path::new(""), n) };
        match openat(&self.folder, &name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => Ok(Some(file.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn inode(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.ino())
}

fn watch(dir: &Path) -> io::Result<Folders> {
    let folders = Folders::new()?;
    folders.watch_all(dir)?;
    Ok(folders)
}

/// Whether nothing more will be written: the tree is empty, or the folder went to the ended ones.
fn is_over(dir: &Path) -> bool {
    !dir.exists() || instance_dir::is_ended(dir)
}
