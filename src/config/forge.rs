//! `forge`, `github`, `gitlab`, `task_stop`, `pause_resume`: the forges whose items become work,
//! and the conditions that end that work.
//!
//! docs/forges.md describes the keys. [`host`] reads the section of a host.

mod host;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::domain::Secret;

use super::http::Http;
use super::reader::{Field, Section};
use super::report::Problem;

pub use host::{ForgeHost, ForgeToken, WatchedRepository, repositories_path};
pub(super) use host::{LABEL_KEYS, default_base_url, file_key, repositories_key};

/// The paths of the HTTP listener that have another use, by their first part.
const TAKEN_PATHS: [&str; 7] = ["api", "health", "login", "logout", "mcp", "metrics", "ui"];

const DAY: Duration = Duration::from_hours(24);

/// The settings of all forges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forges {
    /// The time between two polls of a host for new items and for the state of the items that are
    /// worked on.
    pub poll_interval: Duration,
    /// The shortest time between two writes to a host.
    pub write_interval: Duration,
    /// The greatest number of writes to a host within an hour; `None` allows any number. Stops are
    /// written in any case.
    pub writes_per_hour: Option<u32>,
    /// The daemon reads everything, but only logs its writes.
    pub dry_run: bool,
    /// The logins of other coordinators' accounts, whose claims on items count. The claims of the
    /// bot always count.
    pub claims_from: BTreeSet<String>,
    /// The webhook; `None` means that the daemon only polls.
    pub webhook: Option<Webhook>,
    /// The hosts in the order of the file, GitHub's first. No repository occurs twice.
    pub hosts: Vec<ForgeHost>,
    pub task_stop: TaskStop,
    pub pause_resume: PauseResume,
}

/// The endpoint at which forges announce changes, so that the daemon need not wait for the next
/// poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// The path on the HTTP listener. It begins with a slash.
    pub path: String,
    /// The secret that forges sign with (GitHub) or show (GitLab).
    pub secret: Secret,
}

/// The settings for ending the work on items that the bot was taken off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStop {
    pub enabled: bool,
    /// The number of polls after which the items are looked at; at least 1.
    pub check_interval: u32,
}

/// The settings for pausing the work on all items by a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseResume {
    pub enabled: bool,
    /// The file. While it exists, no item is worked on.
    pub signal_file: PathBuf,
    /// The number of polls after which the file is looked for, although it is watched; at least 1.
    pub check_interval: u32,
    /// The number of days after which paused work is not resumed; at least 1.
    pub paused_task_expiry_days: u32,
}

impl Default for TaskStop {
    fn default() -> Self {
        Self { enabled: true, check_interval: 1 }
    }
}

impl PauseResume {
    fn below(state_dir: &Path) -> Self {
        let signal_file = state_dir.join("contexts/pause_signal");
        Self { enabled: true, signal_file, check_interval: 1, paused_task_expiry_days: 30 }
    }
}

impl Forges {
    /// Returns the settings without a host, with all defaults.
    pub fn below(state_dir: &Path) -> Self {
        Self {
            poll_interval: Duration::from_secs(30),
            write_interval: Duration::from_secs(1),
            // GitHub documents 500 an hour for requests that create content. The rest is for people
            // with the same account.
            writes_per_hour: Some(450),
            dry_run: false,
            claims_from: BTreeSet::new(),
            webhook: None,
            hosts: Vec::new(),
            task_stop: TaskStop::default(),
            pause_resume: PauseResume::below(state_dir),
        }
    }

    /// Returns the settings for a daemon that goes on with `state_dir` although the file has
    /// another one, `former`.
    pub(super) fn moved(mut self, former: &Path, state_dir: &Path) -> Self {
        if let Ok(rest) = self.pause_resume.signal_file.strip_prefix(former) {
            self.pause_resume.signal_file = state_dir.join(rest);
        }
        self
    }

    pub(super) fn read(top: &mut Section<'_, '_>, state_dir: &Path, http: &Http) -> Self {
        let default = Self::below(state_dir);
        let mut forge = top.section("forge");
        let poll_interval = forge.duration(
            "poll_interval",
            default.poll_interval,
            Duration::from_millis(100)..=DAY,
        );
        let write_interval = forge.duration(
            "write_interval",
            default.write_interval,
            Duration::ZERO..=Duration::from_mins(1),
        );
        let writes_per_hour = forge
            .field("writes_per_hour")
            .map_or(default.writes_per_hour, |field| writes_per_hour(&field));
        let dry_run = switch(&mut forge, "dry_run", default.dry_run);
        let claims_from = forge.optional("claims_from").map(Field::list).unwrap_or_default();
        let claims_from = claims_from.iter().filter_map(host::read_login).collect();
        let webhook =
            forge.optional_section("webhook").and_then(|section| Webhook::read(section, http));
        drop(forge);
        Self {
            poll_interval,
            write_interval,
            writes_per_hour,
            dry_run,
            claims_from,
            webhook,
            hosts: host::read_all(top),
            task_stop: TaskStop::read(top.section("task_stop")),
            pause_resume: PauseResume::read(top.section("pause_resume"), state_dir),
        }
    }
}

impl Webhook {
    const DEFAULT_PATH: &str = "/webhooks/forge";

    fn read(mut section: Section<'_, '_>, http: &Http) -> Option<Self> {
        let what = "a path such as `/webhooks/forge` (letters, digits, `.`, `_`, `-`, `~` between the slashes) that the server \
                    doesn't use itself";
        let path = section
            .field("path")
            .map(|field| field.parsed(what, |text| is_path(text).then(|| text.to_owned())));
        let path = path.unwrap_or_else(|| Some(Self::DEFAULT_PATH.to_owned()));
        let secret = section.required("secret").and_then(|field| field.secret());
        if http.listen.is_none() {
            let problem =
                Problem::new("`forge.webhook` is set, and `http.listen` is `off`", section.span());
            section
                .reader()
                .note(problem.help("webhooks come over HTTP: let `http.listen` be an address"));
        }
        Some(Self { path: path?, secret: secret? })
    }
}

fn is_path(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_plain =
            part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-~".contains(&byte));
        is_plain && !matches!(part, "" | "." | "..")
    };
    text.strip_prefix('/').is_some_and(|rest| {
        let first = rest.split('/').next().unwrap_or_default();
        rest.split('/').all(is_part) && !TAKEN_PATHS.contains(&first)
    })
}

impl TaskStop {
    fn read(mut section: Section<'_, '_>) -> Self {
        let default = Self::default();
        Self {
            enabled: switch(&mut section, "enabled", default.enabled),
            check_interval: small(&mut section, "check_interval", default.check_interval, 1_000),
        }
    }
}

impl PauseResume {
    fn read(mut section: Section<'_, '_>, state_dir: &Path) -> Self {
        let default = Self::below(state_dir);
        // Unlike other paths, a relative path does not start at the folder of the file. It is below
        // `state_dir`, because the file is part of the state.
        let below =
            |field: Field<'_, '_>| Some(state_dir.join(field.word()?).components().collect());
        Self {
            enabled: switch(&mut section, "enabled", default.enabled),
            signal_file: section
                .field("signal_file")
                .and_then(below)
                .unwrap_or(default.signal_file),
            check_interval: small(&mut section, "check_interval", default.check_interval, 1_000),
            paused_task_expiry_days: small(
                &mut section,
                "paused_task_expiry_days",
                default.paused_task_expiry_days,
                3_650,
            ),
        }
    }
}

fn switch(section: &mut Section<'_, '_>, key: &'static str, default: bool) -> bool {
    section.field(key).and_then(|field| field.boolean()).unwrap_or(default)
}

/// Returns a number of writes; `None` for `off` and for an invalid value.
fn writes_per_hour(field: &Field<'_, '_>) -> Option<u32> {
    let is_sane = |number: &u32| (1..=1_000_000).contains(number);
    let read = |text: &str| match text.trim() {
        "off" => Some(None),
        text => text.parse().ok().filter(is_sane).map(Some),
    };
    field.parsed("`off` or a whole number from 1 to 1000000", read).flatten()
}

/// Returns a number from 1 to `most`.
fn small(section: &mut Section<'_, '_>, key: &'static str, default: u32, most: u16) -> u32 {
    let number = section.field(key).and_then(|field| field.integer(1..=usize::from(most)));
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
}
