//! The gates of all hosts, and the file that keeps their limits and their writes of the last hour
//! over a restart.
//!
//! ```text
//! <state_dir>/forge_limits.json
//!     {"hosts":[{"forge":"github","host":"api.github.com",
//!       "limited_until":"2026-01-01T10:00:00.000Z","writes":[[1767261600,12]]}]}
//! ```
//!
//! `writes` has the minutes with writes: when they began, in seconds since 1970, and how many
//! writes they have. Limits are written at once; writes a few seconds later, so a crash may forget
//! a few of them.
//!
//! An entry that can't be read is logged and ignored: the host says again what it wants. Other
//! versions of the daemon may add fields.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::gate::Gate;
use domain::Timestamp;
use domain::forge::ForgeKind;
use domain::forge::pacing::Pace;
use machine::locks::lock;
use machine::sys::regular_file;
use runtime::clock;
use runtime::nudge::Nudge;
use service::Service;

/// The delay after the first write, after which several writes are stored together.
const SAVE_DELAY: Duration = Duration::from_secs(5);
/// The longest age of a minute that is stored.
const LONGEST_AGO: Duration = Duration::from_hours(2);

const FILE: &str = "forge_limits.json";

/// The gates of all hosts that were configured since the daemon started, or had a limit when it
/// started.
pub(super) struct Gates {
    file: PathBuf,
    gates: Mutex<BTreeMap<(ForgeKind, String), Arc<Gate>>>,
    /// Held while the file is written, so that a newer state is not replaced by an older one.
    saving: Mutex<()>,
    /// Woken after each write to any host.
    written: Nudge,
}

#[derive(Serialize)]
struct Saved {
    hosts: Vec<SavedHost>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SavedHost {
    forge: ForgeKind,
    host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limited_until: Option<Timestamp>,
    /// The minutes, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    writes: Vec<(i64, u32)>,
}

impl Gates {
    /// Reads the file. Blocks for the time that reading a small file takes.
    pub(super) fn open(state_dir: &Path, now: Timestamp) -> Self {
        let file = state_dir.join(FILE);
        let saved = match regular_file::read_small_text(&file) {
            Ok(text) => read(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let (hosts, problem) = saved;
        if let Some(problem) = problem {
            tracing::warn!(
                file = %file.display(), error = problem,
                "ignored an invalid part of the file with the rate limits of forges"
            );
        }
        let mut gates = BTreeMap::new();
        let written = Nudge::new();
        for host in hosts {
            let gate = Gate::new(Pace::unlimited(), written.clone());
            let pause = host.limited_until.map_or(Duration::ZERO, |until| until.since(now));
            if !pause.is_zero() {
                gate.limit(pause);
            }
            for (begin, n) in host.writes {
                let begin = Timestamp::from_millis(begin.saturating_mul(1_000));
                let ago = now.since(begin);
                if ago < LONGEST_AGO {
                    gate.count(ago, n);
                }
            }
            gates.insert((host.forge, host.host), Arc::new(gate));
        }
        Self { file, gates: Mutex::new(gates), saving: Mutex::default(), written }
    }

    /// Returns the gate of a host. All callers for the same host get the same gate.
    pub(super) fn of(&self, forge: ForgeKind, host: &str, pace: Pace) -> Arc<Gate> {
        let mut gates = self.lock();
        let gate = gates
            .entry((forge, host.to_owned()))
            .or_insert_with(|| Arc::new(Gate::new(Pace::unlimited(), self.written.clone())));
        gate.set_pace(pace);
        Arc::clone(gate)
    }

    /// Stores the writes, some time after they were sent, as long as it is polled.
    pub(super) async fn keep(self: &Arc<Self>, service: &Service) -> Infallible {
        let mut written = self.written.listen();
        loop {
            written.woken().await;
            tokio::time::sleep(SAVE_DELAY).await;
            self.save(service.time()).await;
        }
    }

    /// Stores the present limits. A failure is logged: without the file, a restart only asks a host
    /// too early.
    pub(super) async fn save(self: &Arc<Self>, now: Timestamp) {
        let gates = Arc::clone(self);
        let saved = tokio::task::spawn_blocking(move || {
            let _saving = lock(&gates.saving);
            gates.write(now)
        });
        match saved.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(file = %self.file.display(), %error, "could not save the rate limits of forges");
            }
            Err(error) => tracing::error!(%error, "could not save the rate limits of forges"),
        }
    }

    fn write(&self, now: Timestamp) -> io::Result<()> {
        let saved = |((forge, host), gate): (&(ForgeKind, String), &Arc<Gate>)| {
            let pause = |until: Instant| until.saturating_duration_since(clock::now());
            let limited_until = gate.limited_until().map(|until| now + pause(until));
            let second = |ago: Duration| {
                let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
                now.as_millis().saturating_sub(ago).div_euclid(1_000)
            };
            let writes: Vec<_> =
                gate.writes().into_iter().map(|(ago, n)| (second(ago), n)).collect();
            let is_news = limited_until.is_some() || !writes.is_empty();
            is_news.then(|| SavedHost { forge: *forge, host: host.clone(), limited_until, writes })
        };
        let hosts = self.lock().iter().filter_map(saved).collect();
        let text = serde_json::to_string(&Saved { hosts })?;
        let draft = self.file.with_extension("new");
        let mut file = regular_file::make_anew(&draft)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        std::fs::rename(draft, &self.file)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(ForgeKind, String), Arc<Gate>>> {
        lock(&self.gates)
    }
}

/// Returns the entries that can be read, and the problem of the first of the others.
fn read(text: &str) -> (Vec<SavedHost>, Option<String>) {
    let list = match serde_json::from_str::<Value>(text) {
        Ok(mut file) => file.get_mut("hosts").map(Value::take),
        Err(error) => return (Vec::new(), Some(error.to_string())),
    };
    let Some(Value::Array(list)) = list else {
        return (Vec::new(), Some("expected a list `hosts`".to_owned()));
    };
    let mut hosts = Vec::new();
    let mut problem = None;
    for (n, entry) in list.into_iter().enumerate() {
        match serde_json::from_value(entry) {
            Ok(host) => hosts.push(host),
            Err(error) => {
                problem.get_or_insert_with(|| format!("`hosts[{n}]`: {error}"));
            }
        }
    }
    (hosts, problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::forge::pacing::Urgency;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const MINUTE: Duration = Duration::from_mins(1);

    /// Returns the limit of the host `h` that a daemon reads from this file.
    fn limit_of(folder: &Path) -> Option<Duration> {
        let gate = Gates::open(folder, NOW).of(ForgeKind::GitHub, "h", Pace::unlimited());
        Some(gate.limited_until()?.saturating_duration_since(Instant::now()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_is_known_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let gates = Arc::new(Gates::open(folder.path(), NOW));
        let gate = gates.of(ForgeKind::GitHub, "h", Pace::unlimited());
        gate.limit(5 * MINUTE);
        assert!(Arc::ptr_eq(&gate, &gates.of(ForgeKind::GitHub, "h", Pace::unlimited())));
        gates.save(NOW).await;
        assert_eq!(limit_of(folder.path()), Some(5 * MINUTE));
        let later = Gates::open(folder.path(), NOW + 4 * MINUTE);
        let gate = later.of(ForgeKind::GitHub, "h", Pace::unlimited());
        let left = gate.limited_until().map(|until| until - Instant::now());
        assert_eq!(left, Some(MINUTE));
        let other = later.of(ForgeKind::GitLab, "h", Pace::unlimited());
        assert_eq!(other.limited_until(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_writes_of_the_last_hour_are_known_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let gates = Arc::new(Gates::open(folder.path(), NOW));
        let gate = gates.of(ForgeKind::GitHub, "h", Pace::unlimited());
        for _ in 0..3 {
            gate.write(Urgency::Work).await.expect("there is no limit");
        }
        tokio::time::advance(20 * MINUTE).await;
        gate.write(Urgency::Work).await.expect("there is no limit");
        gates.save(NOW + 20 * MINUTE).await;
        let writes_of = |now| {
            Gates::open(folder.path(), now).of(ForgeKind::GitHub, "h", Pace::unlimited()).writes()
        };
        assert_eq!(writes_of(NOW + 30 * MINUTE), [(30 * MINUTE, 3), (10 * MINUTE, 1)]);
        assert_eq!(writes_of(NOW + 70 * MINUTE), [(50 * MINUTE, 1)]);
        assert_eq!(writes_of(NOW + 999 * MINUTE), []);
        let set_back = NOW + Duration::ZERO;
        assert_eq!(writes_of(set_back), [(Duration::ZERO, 4)], "a clock that was set back");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_file_says_wrongly_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let entry = |until: &str| {
            format!(r#"{{"forge":"github","host":"h","limited_until":"{until}","new_field":1}}"#)
        };
        let (past, soon, far) =
            (NOW + Duration::ZERO, NOW + MINUTE, NOW + Duration::from_hours(99_999));
        for (text, expected) in [
            (format!(r#"{{"hosts":[{}]}}"#, entry(&past.to_string())), None),
            (format!(r#"{{"hosts":[{}]}}"#, entry(&far.to_string())), Some(60 * MINUTE)),
            (format!(r#"{{"hosts":[7, {}]}}"#, entry(&soon.to_string())), Some(MINUTE)),
            (format!(r#"{{"hosts":[{}]}}"#, entry("soon")), None),
            ("{".to_owned(), None),
            ("[]".to_owned(), None),
            (String::new(), None),
        ] {
            std::fs::write(folder.path().join(FILE), &text).unwrap();
            assert_eq!(limit_of(folder.path()), expected, "{text}");
        }
        std::fs::write(folder.path().join(FILE), b"\xff\xfe").unwrap();
        assert_eq!(limit_of(folder.path()), None);
    }

    #[test]
    fn the_problem_with_an_entry_is_named() {
        let (hosts, problem) = read(r#"{"hosts":[{"forge":"svn","host":"h"}]}"#);
        assert!(hosts.is_empty());
        assert!(problem.is_some_and(|problem| problem.starts_with("`hosts[0]`: ")));
    }
}
