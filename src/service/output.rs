//! What an agent printed, as its keeper wrote it down: from the oldest file to the newest, then along as it grows.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use futures::Stream;

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
        let Some(dir) = instance_dir::find(&self.settings.state_dir, id) else { return Ok(None) };
        let watch = if follow && dir.starts_with(instance_dir::instances(&self.settings.state_dir)) {
            // Before the first read, so that nothing written in between goes unnoticed.
            Some(watch(&dir).map_err(|error| Refusal::Invalid(format!("could not follow the output: {error}")))?)
        } else {
            None
        };
        let files = instance_dir::output_files(&dir).into_iter().rev().collect();
        let reader = OutputReader { dir, files, current: None, watch };
        Ok(Some(futures::stream::unfold(reader, |mut reader| async move {
            match reader.next().await {
                Ok(None) => None,
                Ok(Some(chunk)) => Some((Ok(chunk), reader)),
                Err(error) => {
                    Some((Err(error), OutputReader { files: Vec::new(), current: None, watch: None, ..reader }))
                }
            }
        })))
    }
}

struct OutputReader {
    dir: PathBuf,
    /// Files to be read yet, the next one last.
    files: Vec<PathBuf>,
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
            if let Some(path) = self.files.pop() {
                self.current = File::open(&path).ok().or(self.current.take());
                continue;
            }
            if self.open_newer()? {
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

    /// Goes on with the file that took the place of the current one, if there is one.
    fn open_newer(&mut self) -> io::Result<bool> {
        let Ok(newest) = File::open(self.dir.join(instance_dir::OUTPUT_LOG)) else { return Ok(false) };
        let is_same = match &self.current {
            Some(current) => current.metadata()?.ino() == newest.metadata()?.ino(),
            None => false,
        };
        if !is_same {
            self.current = Some(newest);
        }
        Ok(!is_same)
    }
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
