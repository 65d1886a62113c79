//! The output of an agent, as its shim stored it: from the oldest file to the newest, and then as
//! it grows.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use futures::Stream;

use domain::instance::ExitHint;
use domain::{LaunchId, Refusal};
use machine::instance_dir::output_pages::{self, OutputPage, OutputPlace};
use machine::instance_dir::output_reader::OutputReader;
use machine::instance_dir::record::{self, Exit};
use machine::instance_dir::{self};
use runtime::folder_watch::shared::{FollowedFolder, SharedFolders};
use store::rows::output_tails;

use super::{Launches, find};
use crate::ServiceError;

/// The lines of an output that a reader wants.
#[derive(Debug, Clone, Copy)]
pub enum WantedLines {
    /// At most `n_lines` lines that end at a place, or at the end.
    Before {
        /// The place; `None` for the end.
        place: Option<OutputPlace>,
        /// The number of lines.
        n_lines: usize,
    },
    /// The lines after a place.
    After(Option<OutputPlace>),
}

/// The number of bytes that are read at once.
const CHUNK: usize = 16 * 1024;

impl Launches {
    /// Returns the output of a launch that this machine has. With `follow` it goes on until the
    /// launch has ended. Returns `None` if this machine has no output of it.
    ///
    /// # Errors
    /// A folder that cannot be watched.
    pub fn output(
        &self,
        id: &LaunchId,
        follow: bool,
    ) -> Result<Option<impl Stream<Item = io::Result<Vec<u8>>> + Send + use<>>, ServiceError> {
        read_output(&self.core.settings().state_dir, id, follow.then_some(&self.output_folders))
    }

    /// Returns some lines of the output of a launch; `None` if this machine has no output of it.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub async fn output_page(
        &self,
        id: &LaunchId,
        wanted: WantedLines,
    ) -> Result<Option<OutputPage>, ServiceError> {
        let Some(dir) = instance_dir::find(&self.core.settings().state_dir, id) else {
            return Ok(None);
        };
        let read = move || match wanted {
            WantedLines::Before { place, n_lines } => output_pages::before(&dir, place, n_lines),
            WantedLines::After(place) => output_pages::after(&dir, place),
        };
        let page = tokio::task::spawn_blocking(read)
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        page.map(Some).map_err(|error| {
            Refusal::Invalid(format!("could not read the output of launch `{id}`: {error}")).into()
        })
    }

    /// Returns the kept end of the output of a launch whose coordinator is on another machine.
    ///
    /// # Errors
    /// `OutputElsewhere` as long as the server has no part of it, `LaunchNotFound`.
    pub async fn output_elsewhere(&self, id: &LaunchId) -> Result<Option<String>, ServiceError> {
        let of = id.clone();
        let read = self.core.read(move |tx| Ok((find(tx, &of)?, output_tails::get(tx, &of)?)));
        let (launch, tail) = read.await?;
        match launch.coordinator.filter(|coordinator| !self.coordinators.is_here(coordinator)) {
            None => Ok(None),
            Some(_) if tail.is_some() => Ok(tail),
            Some(coordinator) => {
                Err(Refusal::OutputElsewhere { launch: id.clone(), coordinator }.into())
            }
        }
    }
}

impl Launches {
    /// Returns the hints of the shims about the ends of these launches, for launches on this
    /// machine that have hints.
    pub async fn exit_hints(&self, launches: Vec<LaunchId>) -> BTreeMap<LaunchId, Vec<ExitHint>> {
        let state_dir = self.core.settings().state_dir.clone();
        let read = move || {
            let hints = launches.into_iter().filter_map(|launch| {
                let exit =
                    record::read::<Exit>(&instance_dir::find(&state_dir, &launch)?).ok()??;
                Some((launch, exit.hints())).filter(|(_, hints)| !hints.is_empty())
            });
            hints.collect()
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_default()
    }
}

/// Returns what [`Launches::output`] returns, without a server: the output of launches that were
/// kept in `state_dir`. It is followed with `follow`, which all followers of a process share.
///
/// # Errors
/// A folder that cannot be watched.
pub fn read_output(
    state_dir: &Path,
    id: &LaunchId,
    follow: Option<&SharedFolders>,
) -> Result<Option<impl Stream<Item = io::Result<Vec<u8>>> + Send + use<>>, ServiceError> {
    let Some(dir) = instance_dir::find(state_dir, id) else {
        return Ok(None);
    };
    let watch = match follow {
        // The watch begins before the first read, so that no write in between is missed.
        Some(folders) if dir.starts_with(instance_dir::instances(state_dir)) => {
            let followed = folders.follow(&dir);
            Some(followed.map_err(|error| {
                Refusal::Invalid(format!("could not follow the output: {error}"))
            })?)
        }
        _ => None,
    };
    let Ok(reader) = OutputReader::open(&dir) else {
        return Ok(None);
    };
    let following = Some(Following { dir, reader: Some(reader), watch });
    Ok(Some(futures::stream::unfold(following, |following| async move {
        let mut following = following?;
        match following.next().await {
            Ok(None) => None,
            Ok(Some(chunk)) => Some((Ok(chunk), Some(following))),
            Err(error) => Some((Err(error), None)),
        }
    })))
}

struct Following {
    dir: PathBuf,
    /// `None` while a thread that may wait for the disk has it.
    reader: Option<OutputReader>,
    watch: Option<FollowedFolder>,
}

impl Following {
    /// Returns the next piece; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let chunk = self.read().await?;
            if !chunk.is_empty() {
                return Ok(Some(chunk));
            }
            let Some(watch) = &mut self.watch else {
                return Ok(None);
            };
            let dir = self.dir.clone();
            if tokio::task::spawn_blocking(move || is_over(&dir)).await? {
                // The output from before the end must still be read.
                self.watch = None;
                continue;
            }
            watch.stirred().await?;
        }
    }

    /// Returns the next piece; empty if there is no more at present.
    async fn read(&mut self) -> io::Result<Vec<u8>> {
        let Some(mut reader) = self.reader.take() else {
            return Ok(Vec::new());
        };
        let read = move || {
            let mut chunk = vec![0; CHUNK];
            let n_read = reader.read(&mut chunk)?;
            chunk.truncate(n_read);
            Ok::<_, io::Error>((reader, chunk))
        };
        let (reader, chunk) = tokio::task::spawn_blocking(read).await??;
        self.reader = Some(reader);
        Ok(chunk)
    }
}

/// Returns whether the output is complete: the tree is empty, or the folder is among the ended
/// ones.
fn is_over(dir: &Path) -> bool {
    !dir.exists() || instance_dir::is_ended(dir)
}
