//! Follows the output of the agents of this host and reports their activity to the server. It
//! reports at most once a second for each agent, and at its end. While the agents are silent, it
//! does nothing.
//!
//! When an agent has printed something, and at its end, the transcript that its CLI keeps is read
//! as well. If only the transcript tells the waits of a CLI, it is also read when it grows. That
//! happens in threads of its own, because it lies in the folder of a user.
//!
//! `provider::output` decides what a line means, and `domain::activity` what the facts add up to.
//! This module stores nothing: the next coordinator reads the kept output again, and the server
//! takes the greater values.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::hanging::HangingFolders;
use self::kept::{Kept, News, Occasion};
use super::control::ControlPlane;
use crate::provider::output::{Lines, read_line};
use domain::activity::Tally;
use domain::{Activity, Instance, LaunchId, Phase, Purpose, Usage};
use machine::instance_dir;
use machine::instance_dir::output_reader::OutputReader;
use machine::locks::lock;
use runtime::clock;
use runtime::folder_watch::{FolderChanges, Folders, WatchId};
use runtime::telemetry::ErrorChain;

mod hanging;
mod kept;

/// The pause between two reads of the output of all agents.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after the server did not accept a report.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The size of one read, in bytes; other tasks run between reads. Most reads are for one line of an
/// agent that has just ended. The buffer is therefore small enough to need no memory from the
/// kernel.
const CHUNK: usize = 32 * 1024;
/// The most that is read from one agent in one round, in bytes. Longer output is read in several
/// rounds.
const MAX_LOOK: usize = 8 * 1024 * 1024;
/// The time that the end of an agent waits for its transcript.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of questions that can wait.
const INBOX: usize = 64;

/// The launches to follow, and the server that gets the reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Wanted {
    launches: BTreeSet<LaunchId>,
    /// The run of the server: a new run has no report yet.
    run: String,
}

/// The handle of the watcher. Dropping it ends the watcher's task.
pub(super) struct OutputWatcher {
    wanted: watch::Sender<Wanted>,
    questions: mpsc::Sender<Question>,
    last_output: Arc<Shared>,
    /// Aborted with the handle.
    _task: JoinSet<()>,
}

/// The state that the handle reads from the watcher.
#[derive(Default)]
struct Shared {
    /// An entry for each launch that is followed.
    last_output: Mutex<BTreeMap<LaunchId, LastOutput>>,
    /// Notified when another login was refused.
    refusal: Notify,
}

#[derive(Debug, Clone, Copy)]
struct LastOutput {
    /// The time of the last output other than its failure; at first, the time since when it is
    /// followed.
    at: Instant,
    is_login_refused: bool,
}

/// A request to read an output to its end and return the activity that it shows.
struct Question {
    launch: LaunchId,
    answer: oneshot::Sender<Option<Activity>>,
}

impl OutputWatcher {
    /// Starts the watcher. Must be called within a tokio runtime.
    pub(super) fn new<C: ControlPlane>(state_dir: PathBuf, control: Arc<C>) -> Self {
        let (wanted, wanted_seen) = watch::channel(Wanted::default());
        let (questions, asked) = mpsc::channel(INBOX);
        let last_output = Arc::<Shared>::default();
        let mut task = JoinSet::new();
        match Folders::new() {
            Ok(folders) => {
                let watcher = Watcher {
                    state_dir,
                    control,
                    folders,
                    outputs: BTreeMap::new(),
                    watched: HashMap::new(),
                    stirred: BTreeSet::new(),
                    run: String::new(),
                    look_at: clock::now(),
                    retry_at: None,
                    reporting: JoinSet::new(),
                    reading: JoinSet::new(),
                    hanging: HangingFolders::default(),
                    last_output: Arc::clone(&last_output),
                };
                task.spawn(watcher.run(wanted_seen, asked));
            }
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "could not watch the agents' output; usage is not known");
            }
        }
        Self { wanted, questions, last_output, _task: task }
    }

    /// Follows these instances and no others. Instances that have no folder yet are not followed.
    pub(super) fn follow(&self, instances: &[Instance], run: &str) {
        // The output of a check is not that of an agent.
        let has_folder = instances.iter().filter(|instance| {
            instance.phase != Phase::Starting && instance.key.purpose != Purpose::Check
        });
        let launches = has_folder.map(|instance| instance.launch.clone()).collect();
        let wanted = Wanted { launches, run: run.to_owned() };
        self.wanted.send_if_modified(|before| {
            let is_news = *before != wanted;
            *before = wanted;
            is_news
        });
    }

    /// Returns a function that gives a lower bound of the time since a launch printed anything, as
    /// of `now`. It gives `None` for a launch that is not followed. Output since the last round is
    /// not known yet.
    pub(super) fn quiet_for(&self, now: Instant) -> impl Fn(&LaunchId) -> Option<Duration> {
        let last_output = self.last_output.lock().clone();
        move |launch| {
            let printed_at = last_output.get(launch)?.at;
            Some(now.saturating_duration_since(printed_at).saturating_sub(2 * PAUSE))
        }
    }

    /// Returns the launches whose login is refused for good, as far as their output was read.
    pub(super) fn refused(&self) -> BTreeSet<LaunchId> {
        let last_output = self.last_output.lock();
        last_output
            .iter()
            .filter(|(_, last_output)| last_output.is_login_refused)
            .map(|(launch, _)| launch.clone())
            .collect()
    }

    /// Returns when another login was refused since the last return. Cancel-safe.
    pub(super) async fn login_refused(&self) {
        self.last_output.refusal.notified().await;
    }

    /// Returns the activity that the whole output of `launch` shows; `None` if there is none.
    /// Cancel-safe.
    pub(super) async fn read_to_end(&self, launch: &LaunchId) -> Option<Activity> {
        let (answer, answered) = oneshot::channel();
        self.questions.send(Question { launch: launch.clone(), answer }).await.ok()?;
        answered.await.ok().flatten()
    }
}

/// The state of one agent's output.
struct WatchedOutput {
    reader: OutputReader,
    lines: Lines,
    tally: Tally,
    /// The activity that was last reported to the server.
    reported: Activity,
    /// A report is on its way.
    is_reporting: bool,
    /// The total number of bytes that were read.
    n_read: u64,
    transcript: WatchedTranscript,
}

/// The state of the transcript that the agent's CLI keeps.
struct WatchedTranscript {
    /// `None` if there is none, or while it is being read.
    kept: Option<Box<Kept>>,
    /// The folder of the CLI; `None` if there is no transcript.
    folder: Option<PathBuf>,
    is_found: bool,
    has_more: bool,
    /// The usage of the conversation before the process, if the transcript cannot be read.
    used_before_without: Option<Usage>,
}

impl WatchedTranscript {
    fn of(dir: &Path) -> Self {
        let kept = Kept::of(dir).map(Box::new);
        Self {
            folder: kept.as_ref().map(|kept| kept.folder().to_owned()),
            used_before_without: kept.as_ref().and_then(|kept| kept.used_before_without()),
            kept,
            is_found: false,
            has_more: false,
        }
    }

    const fn is_being_read(&self) -> bool {
        self.folder.is_some() && self.kept.is_none()
    }
}

struct Watcher<C> {
    state_dir: PathBuf,
    control: Arc<C>,
    folders: Folders,
    outputs: BTreeMap<LaunchId, WatchedOutput>,
    /// The watch of a transcript belongs to the newest launch that continues its conversation.
    watched: HashMap<WatchId, LaunchId>,
    /// The launches that may have printed something.
    stirred: BTreeSet<LaunchId>,
    run: String,
    /// The output is not read again before this time.
    look_at: Instant,
    /// The time when refused reports are sent again.
    retry_at: Option<Instant>,
    reporting: JoinSet<(LaunchId, bool)>,
    /// The transcripts that are read.
    reading: JoinSet<(LaunchId, Box<Kept>, News)>,
    hanging: HangingFolders,
    last_output: Arc<Shared>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<LaunchId, LastOutput>> {
        lock(&self.last_output)
    }
}

impl<C: ControlPlane> Watcher<C> {
    async fn run(
        mut self,
        mut wanted: watch::Receiver<Wanted>,
        mut questions: mpsc::Receiver<Question>,
    ) {
        loop {
            let has_stirred = !self.stirred.is_empty();
            // All branches are cancel-safe: each takes a value only when it returns it.
            tokio::select! {
                biased;
                Some(question) = questions.recv() => {
                    let activity = self.read_to_end(&question.launch).await;
                    let _ = question.answer.send(activity);
                }
                changed = wanted.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let wanted = wanted.borrow_and_update().clone();
                    self.follow(wanted);
                }
                Some(Ok((launch, kept, news))) = self.reading.join_next() => {
                    self.on_kept(&launch, kept, &news);
                    self.tell(&launch);
                }
                Some(Ok((launch, is_told))) = self.reporting.join_next() => self.on_told(launch, is_told),
                // Meanwhile the kernel collects the events, however many there are.
                () = tokio::time::sleep_until(self.look_at), if has_stirred => self.look().await,
                seen = heard(&self.folders, self.look_at), if !has_stirred => match seen {
                    Ok(FolderChanges::Folders(ids)) => self.stirred.extend(ids.iter().filter_map(|id| self.watched.get(id).cloned())),
                    Ok(FolderChanges::Anything) => self.stirred.extend(self.outputs.keys().cloned()),
                    Err(error) => {
                        tracing::warn!(error = %ErrorChain(&error), "could not watch the folders with the agents' output");
                        self.look_at = clock::now() + RETRY_AFTER;
                    }
                },
                () = tokio::time::sleep_until(self.retry_at.unwrap_or(self.look_at)), if self.retry_at.is_some() => {
                    self.retry_at = None;
                    self.stirred.extend(self.outputs.keys().cloned());
                }
            }
        }
    }

    fn follow(&mut self, wanted: Wanted) {
        let gone: Vec<LaunchId> = self
            .outputs
            .keys()
            .filter(|launch| !wanted.launches.contains(*launch))
            .cloned()
            .collect();
        for launch in gone {
            self.stirred.remove(&launch);
            self.last_output.lock().remove(&launch);
            self.outputs.remove(&launch);
        }
        let Self { folders, outputs, watched, .. } = self;
        watched.retain(|watch, launch| {
            let is_followed = outputs.contains_key::<LaunchId>(launch);
            if !is_followed {
                folders.unwatch(*watch);
            }
            is_followed
        });
        if wanted.run != self.run {
            self.run = wanted.run;
            self.outputs.values_mut().for_each(|output| output.reported = Activity::default());
            self.stirred.extend(self.outputs.keys().cloned());
        }
        for launch in wanted.launches {
            if !self.outputs.contains_key(&launch) {
                self.begin(launch);
            }
        }
    }

    fn begin(&mut self, launch: LaunchId) {
        let Some(dir) = instance_dir::find(&self.state_dir, &launch) else {
            return;
        };
        // The watch begins before the first read, so that output in between is noticed.
        let watch = self.folders.watch_all(&dir);
        let opened = OutputReader::open(&dir);
        match (watch, opened) {
            (Ok(watch), Ok(reader)) => {
                self.watched.insert(watch, launch.clone());
                self.stirred.insert(launch.clone());
                let last_output = LastOutput { at: clock::now(), is_login_refused: false };
                self.last_output.lock().insert(launch.clone(), last_output);
                let transcript = WatchedTranscript::of(&dir);
                let mut tally = Tally::default();
                if transcript.kept.is_some() {
                    tally.set_before(None);
                }
                let output = WatchedOutput {
                    transcript,
                    reader,
                    lines: Lines::default(),
                    tally,
                    reported: Activity::default(),
                    is_reporting: false,
                    n_read: 0,
                };
                self.outputs.insert(launch, output);
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::debug!(launch_id = %launch, error = %ErrorChain(&error), "could not follow the output");
            }
        }
    }

    /// Reads the new output of the stirred launches and reports it.
    async fn look(&mut self) {
        for launch in std::mem::take(&mut self.stirred) {
            let Some(output) = self.outputs.get_mut(&launch) else {
                continue;
            };
            let n_before = output.n_read;
            let read = output.read(MAX_LOOK).await;
            if let Some(last_output) =
                self.last_output.lock().get_mut(&launch).filter(|_| output.n_read > n_before)
            {
                // An agent that only repeats its failure does not count as active.
                if !output.tally.has_printed_failure() {
                    last_output.at = clock::now();
                }
                let is_login_refused = output.tally.is_login_refused();
                if is_login_refused && !last_output.is_login_refused {
                    tracing::info!(launch_id = %launch, "the model's service refuses the login of the agent");
                    self.last_output.refusal.notify_one();
                }
                last_output.is_login_refused = is_login_refused;
            }
            match read {
                Ok(Read::All) => {}
                Ok(Read::Part) => drop(self.stirred.insert(launch.clone())),
                Err(error) => {
                    tracing::debug!(launch_id = %launch, error = %ErrorChain(&error), "could not read the output");
                }
            }
            // One report has the output and the transcript, unless the transcript takes long.
            if !self.read_kept(&launch, Occasion::Output) {
                self.tell(&launch);
            }
        }
        self.look_at = clock::now() + PAUSE;
    }

    /// Begins to read the transcript of a launch; `false` if it is being read, or there is none.
    fn read_kept(&mut self, launch: &LaunchId, occasion: Occasion) -> bool {
        let Some(output) = self.outputs.get_mut(launch) else {
            return false;
        };
        let Some(mut kept) = output.transcript.kept.take() else {
            return false;
        };
        let told = output.tally.conversation().map(str::to_owned);
        let launch = launch.clone();
        let folders = self.folders.clone();
        self.reading.spawn_blocking(move || {
            let mut news = kept.read(told.as_deref(), occasion);
            if news.is_anew {
                news.watch = kept.watch(&folders);
                // It may have grown before the watch began.
                news.has_more |= news.watch.is_some();
            }
            (launch, kept, news)
        });
        true
    }

    fn on_kept(&mut self, launch: &LaunchId, kept: Box<Kept>, news: &News) {
        self.hanging.answered(kept.folder());
        self.watched.extend(news.watch.map(|watch| (watch, launch.clone())));
        let Some(WatchedOutput { transcript, tally, .. }) = self.outputs.get_mut(launch) else {
            return;
        };
        transcript.kept = Some(kept);
        transcript.has_more = news.has_more;
        if news.is_anew {
            tally.forget_transcript();
        }
        if news.is_found {
            transcript.is_found = true;
            tally.set_before(news.used_before);
        }
        for fact in &news.facts {
            tally.hear_transcript(fact);
        }
        if news.has_more {
            self.stirred.insert(launch.clone());
        }
    }

    /// Reads the transcript of a launch to its end. If it is not found, the totals of the CLI count
    /// as they are, unless the CLI was to continue a conversation.
    async fn read_kept_to_end(&mut self, launch: &LaunchId) {
        let output = self.outputs.get(launch);
        let Some(folder) = output.and_then(|output| output.transcript.folder.clone()) else {
            return;
        };
        let give_up_at = clock::now() + self.hanging.patience(&folder);
        let mut has_begun = false;
        while let Some(WatchedOutput { transcript, .. }) = self.outputs.get(launch) {
            if transcript.is_being_read() {
                match tokio::time::timeout_at(give_up_at, self.reading.join_next()).await {
                    Ok(Some(Ok((read, kept, news)))) => {
                        self.on_kept(&read, kept, &news);
                        if read != *launch {
                            self.tell(&read);
                        }
                    }
                    Ok(_) => break,
                    Err(_) => {
                        tracing::warn!(launch_id = %launch, "could not read the transcript of the agent in time; its usage may be incomplete");
                        self.hanging.waited_in_vain(folder);
                        break;
                    }
                }
            } else if has_begun && !transcript.has_more {
                break;
            } else {
                has_begun = self.read_kept(launch, Occasion::End);
                if !has_begun {
                    break;
                }
            }
        }
        if let Some(WatchedOutput { transcript, tally, .. }) = self.outputs.get_mut(launch)
            && !transcript.is_found
        {
            tally.set_before(transcript.used_before_without);
        }
    }

    /// Reports the activity of a launch. Only one report of a launch is on its way; the next one
    /// waits for the next round.
    fn tell(&mut self, launch: &LaunchId) {
        let Some(output) = self.outputs.get_mut(launch).filter(|output| !output.is_reporting)
        else {
            return;
        };
        let activity = output.tally.activity();
        if activity == output.reported {
            return;
        }
        (output.reported, output.is_reporting) = (activity.clone(), true);
        let control = Arc::clone(&self.control);
        let launch = launch.clone();
        self.reporting.spawn(async move {
            let reported = control.report_activity(&launch, &activity).await;
            if let Err(error) = &reported {
                tracing::debug!(launch_id = %launch, error = %ErrorChain(error), "the server did not take the activity of the agent");
            }
            (launch, reported.is_ok())
        });
    }

    fn on_told(&mut self, launch: LaunchId, is_told: bool) {
        let Some(output) = self.outputs.get_mut(&launch) else {
            return;
        };
        output.is_reporting = false;
        if is_told {
            if output.tally.activity() != output.reported {
                self.stirred.insert(launch);
            }
        } else {
            output.reported = Activity::default();
            self.retry_at.get_or_insert_with(|| clock::now() + RETRY_AFTER);
        }
    }

    async fn read_to_end(&mut self, launch: &LaunchId) -> Option<Activity> {
        if !self.outputs.contains_key(launch) {
            self.begin(launch.clone());
        }
        let output = self.outputs.get_mut(launch)?;
        if let Err(error) = output.read(usize::MAX).await {
            tracing::debug!(launch_id = %launch, error = %ErrorChain(&error), "could not read the output to its end");
        }
        let printed_at = output.reader.written_at();
        output.lines.finish(|line| hear(&mut output.tally, line, &printed_at));
        self.read_kept_to_end(launch).await;
        let output = self.outputs.get_mut(launch)?;
        let activity = output.tally.activity();
        // The asker reports it.
        output.reported = activity.clone();
        (activity != Activity::default()).then_some(activity)
    }
}

/// The extent of a read.
enum Read {
    All,
    Part,
}

impl WatchedOutput {
    /// Reads further: `most` bytes or a little more.
    async fn read(&mut self, most: usize) -> io::Result<Read> {
        let mut chunk = vec![0; CHUNK];
        let mut n_read = 0;
        while n_read < most {
            match self.reader.read(&mut chunk)? {
                0 => return Ok(Read::All),
                n => {
                    n_read += n;
                    self.n_read += n as u64;
                    let printed_at = self.reader.written_at();
                    self.lines.push(&chunk[..n], |line| hear(&mut self.tally, line, &printed_at));
                    tokio::task::yield_now().await;
                }
            }
        }
        Ok(Read::Part)
    }
}

fn hear(tally: &mut Tally, line: &str, printed_at: &jiff::Zoned) {
    for fact in read_line(line, Some(printed_at)) {
        *tally = std::mem::take(tally).heard(fact);
    }
}

/// Waits until `from` and returns the events of the folders. Cancel-safe.
async fn heard(folders: &Folders, from: Instant) -> io::Result<FolderChanges> {
    tokio::time::sleep_until(from).await;
    folders.seen().await
}
