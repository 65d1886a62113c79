//! Follows the output of the agents of this host and reports their activity to the server. It
//! reports at most once a second for each agent, and at its end. While the agents are silent, it
//! does nothing.
//!
//! `provider::output` decides what a line means, and `domain::activity` what the facts add up to.
//! This module stores nothing: the next coordinator reads the kept output again, and the server
//! takes the greater values.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::control::ControlPlane;
use crate::clock;
use crate::domain::activity::Tally;
use crate::domain::{Activity, Instance, LaunchId, Phase};
use crate::folder_watch::{Folders, Seen, WatchId};
use crate::instance_dir;
use crate::instance_dir::output_reader::OutputReader;
use crate::locks::lock;
use crate::provider::output::{Lines, read_line};
use crate::telemetry::ErrorChain;

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
/// The number of questions that can wait.
const INBOX: usize = 64;

/// The launches to follow, and the server that is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Wanted {
    launches: BTreeSet<LaunchId>,
    /// The run of the server: a new run was told nothing yet.
    run: String,
}

/// The handle of the listener. Dropping it ends the listener's task.
pub(super) struct Ears {
    wanted: watch::Sender<Wanted>,
    questions: mpsc::Sender<Question>,
    heard: Arc<Shared>,
    /// Aborted with the handle.
    _task: JoinSet<()>,
}

/// The state that the handle reads from the listener.
#[derive(Default)]
struct Shared {
    /// An entry for each launch that is followed.
    heard: Mutex<BTreeMap<LaunchId, Heard>>,
    /// Notified when another login was refused.
    refusal: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Heard {
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

impl Ears {
    /// Starts the listener. Must be called within a tokio runtime.
    pub(super) fn new<C: ControlPlane>(state_dir: PathBuf, control: Arc<C>) -> Self {
        let (wanted, wanted_seen) = watch::channel(Wanted::default());
        let (questions, asked) = mpsc::channel(INBOX);
        let heard = Arc::<Shared>::default();
        let mut task = JoinSet::new();
        match Folders::new() {
            Ok(folders) => {
                let listener = Listener {
                    state_dir,
                    control,
                    folders,
                    ears: BTreeMap::new(),
                    watched: HashMap::new(),
                    stirred: BTreeSet::new(),
                    run: String::new(),
                    look_at: clock::now(),
                    retry_at: None,
                    telling: JoinSet::new(),
                    heard: Arc::clone(&heard),
                };
                task.spawn(listener.run(wanted_seen, asked));
            }
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "could not watch the agents' output; usage is not known");
            }
        }
        Self { wanted, questions, heard, _task: task }
    }

    /// Follows these instances and no others. Instances that have no folder yet are not followed.
    pub(super) fn follow(&self, instances: &[Instance], run: &str) {
        let has_folder = instances.iter().filter(|instance| instance.phase != Phase::Starting);
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
        let heard = self.heard.lock().clone();
        move |launch| {
            let heard_at = heard.get(launch)?.at;
            Some(now.saturating_duration_since(heard_at).saturating_sub(2 * PAUSE))
        }
    }

    /// Returns the launches whose login is refused for good, as far as their output was read.
    pub(super) fn refused(&self) -> BTreeSet<LaunchId> {
        let heard = self.heard.lock();
        heard
            .iter()
            .filter(|(_, heard)| heard.is_login_refused)
            .map(|(launch, _)| launch.clone())
            .collect()
    }

    /// Returns when another login was refused since the last return. Cancel-safe.
    pub(super) async fn login_refused(&self) {
        self.heard.refusal.notified().await;
    }

    /// Returns the activity that the whole output of `launch` shows; `None` if there is none.
    /// Cancel-safe.
    pub(super) async fn hear_out(&self, launch: &LaunchId) -> Option<Activity> {
        let (answer, answered) = oneshot::channel();
        self.questions.send(Question { launch: launch.clone(), answer }).await.ok()?;
        answered.await.ok().flatten()
    }
}

/// The state of one agent's output.
struct Ear {
    reader: OutputReader,
    watch: WatchId,
    lines: Lines,
    tally: Tally,
    /// The activity that was last reported to the server.
    told: Activity,
    /// A report is on its way.
    is_telling: bool,
    /// The total number of bytes that were read.
    n_read: u64,
}

struct Listener<C> {
    state_dir: PathBuf,
    control: Arc<C>,
    folders: Folders,
    ears: BTreeMap<LaunchId, Ear>,
    watched: HashMap<WatchId, LaunchId>,
    /// The launches that may have printed something.
    stirred: BTreeSet<LaunchId>,
    run: String,
    /// The output is not read again before this time.
    look_at: Instant,
    /// The time when refused reports are sent again.
    retry_at: Option<Instant>,
    telling: JoinSet<(LaunchId, bool)>,
    heard: Arc<Shared>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<LaunchId, Heard>> {
        lock(&self.heard)
    }
}

impl<C: ControlPlane> Listener<C> {
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
                    let activity = self.hear_out(&question.launch).await;
                    let _ = question.answer.send(activity);
                }
                changed = wanted.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let wanted = wanted.borrow_and_update().clone();
                    self.follow(wanted);
                }
                Some(Ok((launch, is_told))) = self.telling.join_next() => self.on_told(launch, is_told),
                // Meanwhile the kernel collects the events, however many there are.
                () = tokio::time::sleep_until(self.look_at), if has_stirred => self.look().await,
                seen = heard(&self.folders, self.look_at), if !has_stirred => match seen {
                    Ok(Seen::Folders(ids)) => self.stirred.extend(ids.iter().filter_map(|id| self.watched.get(id).cloned())),
                    Ok(Seen::Anything) => self.stirred.extend(self.ears.keys().cloned()),
                    Err(error) => {
                        tracing::warn!(error = %ErrorChain(&error), "could not listen to the agents' output");
                        self.look_at = clock::now() + RETRY_AFTER;
                    }
                },
                () = tokio::time::sleep_until(self.retry_at.unwrap_or(self.look_at)), if self.retry_at.is_some() => {
                    self.retry_at = None;
                    self.stirred.extend(self.ears.keys().cloned());
                }
            }
        }
    }

    fn follow(&mut self, wanted: Wanted) {
        let gone: Vec<LaunchId> =
            self.ears.keys().filter(|launch| !wanted.launches.contains(*launch)).cloned().collect();
        for launch in gone {
            self.stirred.remove(&launch);
            self.heard.lock().remove(&launch);
            if let Some(ear) = self.ears.remove(&launch) {
                self.folders.unwatch(ear.watch);
                self.watched.remove(&ear.watch);
            }
        }
        if wanted.run != self.run {
            self.run = wanted.run;
            self.ears.values_mut().for_each(|ear| ear.told = Activity::default());
            self.stirred.extend(self.ears.keys().cloned());
        }
        for launch in wanted.launches {
            if !self.ears.contains_key(&launch) {
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
                let heard = Heard { at: clock::now(), is_login_refused: false };
                self.heard.lock().insert(launch.clone(), heard);
                let ear = Ear {
                    reader,
                    watch,
                    lines: Lines::default(),
                    tally: Tally::default(),
                    told: Activity::default(),
                    is_telling: false,
                    n_read: 0,
                };
                self.ears.insert(launch, ear);
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::debug!(launch_id = %launch, error = %ErrorChain(&error), "could not follow the output");
            }
        }
    }

    /// Reads the new output of the stirred launches and reports it.
    async fn look(&mut self) {
        for launch in std::mem::take(&mut self.stirred) {
            let Some(ear) = self.ears.get_mut(&launch) else {
                continue;
            };
            let n_before = ear.n_read;
            let read = ear.read(MAX_LOOK).await;
            if let Some(heard) =
                self.heard.lock().get_mut(&launch).filter(|_| ear.n_read > n_before)
            {
                // An agent that only repeats its failure does not count as active.
                if ear.tally.activity().failure.is_none() {
                    heard.at = clock::now();
                }
                let is_login_refused = ear.tally.is_login_refused();
                if is_login_refused && !heard.is_login_refused {
                    tracing::info!(launch_id = %launch, "the model's service refuses the login of the agent");
                    self.heard.refusal.notify_one();
                }
                heard.is_login_refused = is_login_refused;
            }
            match read {
                Ok(Read::All) => {}
                Ok(Read::Part) => drop(self.stirred.insert(launch.clone())),
                Err(error) => {
                    tracing::debug!(launch_id = %launch, error = %ErrorChain(&error), "could not read the output");
                }
            }
            self.tell(&launch);
        }
        self.look_at = clock::now() + PAUSE;
    }

    /// Reports the activity of a launch. Only one report of a launch is on its way; the next one
    /// waits for the next round.
    fn tell(&mut self, launch: &LaunchId) {
        let Some(ear) = self.ears.get_mut(launch).filter(|ear| !ear.is_telling) else {
            return;
        };
        let activity = ear.tally.activity();
        if activity == ear.told {
            return;
        }
        (ear.told, ear.is_telling) = (activity.clone(), true);
        let control = Arc::clone(&self.control);
        let launch = launch.clone();
        self.telling.spawn(async move {
            let told = control.report_activity(&launch, &activity).await;
            if let Err(error) = &told {
                tracing::debug!(launch_id = %launch, error = %ErrorChain(error), "the activity was not taken");
            }
            (launch, told.is_ok())
        });
    }

    fn on_told(&mut self, launch: LaunchId, is_told: bool) {
        let Some(ear) = self.ears.get_mut(&launch) else {
            return;
        };
        ear.is_telling = false;
        if is_told {
            if ear.tally.activity() != ear.told {
                self.stirred.insert(launch);
            }
        } else {
            ear.told = Activity::default();
            self.retry_at.get_or_insert_with(|| clock::now() + RETRY_AFTER);
        }
    }

    async fn hear_out(&mut self, launch: &LaunchId) -> Option<Activity> {
        if !self.ears.contains_key(launch) {
            self.begin(launch.clone());
        }
        let ear = self.ears.get_mut(launch)?;
        if let Err(error) = ear.read(usize::MAX).await {
            tracing::debug!(launch_id = %launch, error = %ErrorChain(&error), "could not read the output to its end");
        }
        ear.lines.finish(|line| hear(&mut ear.tally, line));
        let activity = ear.tally.activity();
        // The asker reports it.
        ear.told = activity.clone();
        (activity != Activity::default()).then_some(activity)
    }
}

/// The extent of a read.
enum Read {
    All,
    Part,
}

impl Ear {
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
                    self.lines.push(&chunk[..n], |line| hear(&mut self.tally, line));
                    tokio::task::yield_now().await;
                }
            }
        }
        Ok(Read::Part)
    }
}

fn hear(tally: &mut Tally, line: &str) {
    for fact in read_line(line, Some(jiff::Zoned::now)) {
        *tally = std::mem::take(tally).heard(fact);
    }
}

/// Waits until `from` and returns the events of the folders. Cancel-safe.
async fn heard(folders: &Folders, from: Instant) -> io::Result<Seen> {
    tokio::time::sleep_until(from).await;
    folders.seen().await
}
