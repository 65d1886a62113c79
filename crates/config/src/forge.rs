//! `forge`, `github`, `gitlab`, `task_stop`, `pause_resume`: the forges whose items become work,
//! and the conditions that end that work.
//!
//! docs/forges.md describes the keys. [`host`] has the keys of a host.

mod host;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::Secret;
use domain::forge::ForgeKind;

use super::Config;
use super::declaration::{Changes, Keys, keys};
use super::http::Http;
use super::kinds::{DAY, HOUR, Kind, MINUTE, SECOND, durations, list, numbers, secret, truth};
use super::reader::Section;
use super::report::Problem;

pub use host::{ForgeAccount, ForgeHost, WatchedRepository, repositories_path};
#[cfg(test)]
pub(super) use host::{RepositoryKeys, default_base_url};

/// The paths of the HTTP listener that have another use, by their first part.
const TAKEN_PATHS: [&str; 7] = ["api", "health", "login", "logout", "mcp", "metrics", "ui"];

/// The settings of all forges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forges {
    pub access: ForgeAccess,
    /// The webhook; `None` means that the daemon only polls.
    pub webhook: Option<Webhook>,
    /// The hosts in the order of the file, GitHub's first. No repository occurs twice.
    pub hosts: Vec<ForgeHost>,
    pub task_stop: TaskStop,
    pub pause_resume: PauseResume,
}

keys! {
    /// The access to all hosts. Issues, pull requests and merge requests that have the bot's label
    /// and are assigned to the bot become tasks. Taking the bot off them stops these tasks.
    /// docs/forges.md leads from a token to the first issue. `agent-coordinator forge check` checks
    /// these settings.
    pub struct ForgeAccess in "forge" {
        /// The time between two polls of a host. A shorter time sees new work, and the end of work,
        /// sooner. A longer one spares the host's limits on requests. Unchanged lists hardly
        /// count against them.
        pub poll_interval: Duration = 30 * SECOND, durations(SECOND / 10..=DAY), Now;

        /// The shortest time between two labels or comments that are written to a host. Forges ask
        /// for a second. With less, a host may answer with a limit for all requests.
        pub write_interval: Duration = SECOND, durations(Duration::ZERO..=MINUTE), Now;

        /// The greatest number of labels and comments that are written to a host within an hour.
        /// GitHub documents 500 an hour for requests that create content, and people may use the
        /// same account. Servers of your own may allow more. Notes that work was stopped count, and
        /// never wait. Each item at work keeps the writes that it needs for its end, so further
        /// items are claimed only if the budget has room for them.
        pub writes_per_hour: Option<u32> = Some(450), numbers(1..=1_000_000).or_off(), Now;

        /// The time for which an item waits after the daemon sent a label, comment or draft for it
        /// and got no answer. The host may still carry out the request in this time. Then the
        /// daemon looks whether it did, and sends the request again only if it did not. So nothing
        /// is written twice. A restart of the daemon does not shorten the wait. A host that may
        /// need longer for a request needs a longer time here.
        pub write_settle: Duration = MINUTE, durations(Duration::ZERO..=HOUR), Now;

        /// `true` reads everything and writes nothing to a forge. The log says what would be
        /// written, and no agent is started. It is for trying out.
        pub dry_run: bool = false, truth(), Now;

        /// The logins of the accounts of other coordinators that watch the same repositories. The
        /// first account that claims an item has it. The claims of other accounts do not count,
        /// except those of `bot_name` and of the token's account. An example: `[other-coder]`.
        pub claims_from: BTreeSet<String> = BTreeSet::new(), list(host::login()).or_empty(), Now;
    }
}

keys! {
    /// The endpoint at which forges announce changes, so that the daemon need not wait for the next
    /// poll. It needs `http.listen`, and an address for it that the forge reaches. Without this
    /// section there is no webhook.
    pub struct Webhook in "forge.webhook" {
        /// The path on the HTTP listener. It begins with a slash.
        pub path: String = "/webhooks/forge".to_owned(), webhook_path(), Now;

        /// Required. The secret that was entered for the webhook at the forge. GitHub signs with
        /// it, and GitLab shows it. Take it from a variable rather than writing it here.
        pub secret: Secret = Secret::new(""), webhook_secret(), Now;
    }
}

keys! {
    /// Ends the work on items that the bot was taken off.
    pub struct TaskStop in "task_stop" {
        /// `false` changes no task, also if its item is closed or unassigned.
        pub enabled: bool = true, truth(), Now;

        /// The number of polls after which the items that are worked on are checked. A greater
        /// number asks less, and stops later.
        pub check_interval: u32 = 1, numbers(1..=1_000), Now;
    }
}

keys! {
    /// The pause file keeps every agent from starting, also without a forge. Agents that work on
    /// items of forges are told to save their work and end. The items go on when the file is gone.
    pub struct PauseResume in "pause_resume" {
        /// `false` ignores the file.
        pub enabled: bool = true, truth(), Now;

        /// While this file exists, no agent starts and items are paused. Relative paths start at
        /// `state_dir`.
        pub signal_file: PathBuf = "contexts/pause_signal".into(), state_path(), Now;

        /// The number of polls after which the file is checked for, although it is watched.
        pub check_interval: u32 = 1, numbers(1..=1_000), Now;

        /// The number of days after which paused work is not resumed.
        pub paused_task_expiry_days: u32 = 30, numbers(1..=3_650), Now;
    }
}

impl Forges {
    /// Returns the settings without a host, with all defaults.
    pub fn below(state_dir: &Path) -> Self {
        Self {
            access: ForgeAccess::default(),
            webhook: None,
            hosts: Vec::new(),
            task_stop: TaskStop::default(),
            pause_resume: PauseResume::default().below(state_dir),
        }
    }

    /// Returns the settings for a daemon that goes on with `state_dir` although the file has
    /// another one, `former`.
    pub(super) fn moved(mut self, former: &Path, state_dir: &Path) -> Self {
        self.pause_resume = self.pause_resume.as_written(former).below(state_dir);
        self
    }

    /// Compares the forges of two configurations.
    pub(super) fn compare(old: &Config, new: &Config, changes: &mut Changes) {
        // The file is compared as it is written. It moves with `state_dir`, which is a change of
        // its own.
        let pause_resume =
            |config: &Config| config.forges.pause_resume.as_written(&config.paths.state_dir);
        let webhook = |config: &Config| config.forges.webhook.clone().unwrap_or_default();
        old.forges.access.compare(&new.forges.access, changes);
        webhook(old).compare(&webhook(new), changes);
        host::compare(&old.forges.hosts, &new.forges.hosts, changes);
        old.forges.task_stop.compare(&new.forges.task_stop, changes);
        pause_resume(old).compare(&pause_resume(new), changes);
    }

    /// Returns the hosts, each with the path of its section in the file.
    pub(super) fn sections(&self) -> impl Iterator<Item = (String, &ForgeHost)> {
        ForgeKind::ALL.iter().flat_map(|kind| {
            let hosts = host::of_kind(&self.hosts, *kind);
            let n_hosts = hosts.len();
            let named = hosts.into_iter().enumerate();
            named.map(move |(i, host)| (host::section_of(*kind, i, n_hosts), host))
        })
    }

    pub(super) fn read(top: &mut Section<'_, '_>, state_dir: &Path, http: &Http) -> Self {
        let mut forge = top.section(ForgeAccess::SECTION);
        let access = ForgeAccess::read(&mut forge);
        let webhook = forge.optional_section("webhook").map(|mut section| {
            let webhook = Webhook::read(&mut section);
            if http.listen.address.is_none() {
                let message = "`forge.webhook` is set, and `http.listen` is `off`";
                let help = "webhooks come over HTTP: let `http.listen` be an address";
                section.reader().note(Problem::new(message, section.span()).help(help));
            }
            webhook
        });
        drop(forge);
        Self {
            access,
            webhook,
            hosts: host::read_all(top),
            task_stop: TaskStop::read_section(top),
            pause_resume: PauseResume::read_section(top).below(state_dir),
        }
    }
}

impl PauseResume {
    /// Returns the settings with the absolute path of a file that is relative to `state_dir`.
    fn below(self, state_dir: &Path) -> Self {
        // The components are joined again, so that `./x` does not leave a `.` in logs and answers.
        Self { signal_file: state_dir.join(self.signal_file).components().collect(), ..self }
    }

    /// Returns the settings with the path of the file as it is written, relative to `state_dir`.
    fn as_written(&self, state_dir: &Path) -> Self {
        let file = self.signal_file.strip_prefix(state_dir).unwrap_or(&self.signal_file);
        Self { signal_file: file.to_owned(), ..self.clone() }
    }
}

fn webhook_path() -> Kind<String> {
    Kind::parsed(
        "a path such as `/webhooks/forge` (letters, digits, `.`, `_`, `-`, `~` between the slashes) that the server \
         doesn't use itself",
        |text| is_path(text).then(|| text.to_owned()),
        Clone::clone,
    )
}

fn webhook_secret() -> Kind<Secret> {
    secret().required().for_example("${FORGE_WEBHOOK_SECRET}")
}

/// A path below `state_dir`. Unlike other paths, a relative path does not start at the folder of
/// the file, because the file is part of the state.
fn state_path() -> Kind<PathBuf> {
    Kind::new(
        "a path",
        |field, _| field.word().map(PathBuf::from),
        |path: &PathBuf| path.display().to_string(),
    )
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
