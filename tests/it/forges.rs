//! Items of forges become work, and taking the bot off them stops it. The tests use the real
//! daemon, the scripted agent, and a server that has both APIs.
#![allow(clippy::unwrap_used, reason = "a test")]

mod crashes;
mod faults;
mod inputs;
mod late;
mod life;
mod limits;
mod outages;
mod published;
mod publishing_faults;
mod queue;
mod restarts;
mod rivals;
mod seen;

use std::path::PathBuf;
use std::time::Duration;

use domain::forge::ForgeKind;
use domain::forge::marker::Marker;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::forge::fake::{Fake, Item, TOKEN};
use crate::support::{until, until_some_within};

/// The watched repository.
pub const NAME: &str = "ann/site";
pub const BOT: &str = "robot";
/// The deadline of a wait. Comments and labels are written one a second.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The states of an item that is over. Without a pending write it is only in the list of the past.
const ENDS: [&str; 4] = ["done", "stopped", "expired", "elsewhere"];

/// A daemon with an agent, and a forge with a repository that it watches.
pub struct Bed {
    pub fake: Fake,
    pub daemon: Daemon,
    pub forge: ForgeKind,
}

impl Bed {
    /// Starts a bed whose agent takes these steps for each item.
    pub fn new(forge: ForgeKind, steps: &[&str]) -> Self {
        Self::with(forge, steps, "")
    }

    /// Starts a bed with further settings.
    pub fn with(forge: ForgeKind, steps: &[&str], settings: &str) -> Self {
        let fake = Fake::start();
        fake.repository(forge, NAME);
        let text = format!("{}\n{settings}", Self::settings(&fake, forge, ""));
        let daemon = Daemon::running(&text);
        daemon.project("prj");
        daemon.agent("agt", "prj", steps);
        Self { fake, daemon, forge }
    }

    /// Returns the configuration of the forge. `more` goes to its host.
    pub fn settings(fake: &Fake, forge: ForgeKind, more: &str) -> String {
        let (section, repositories) = match forge {
            ForgeKind::GitHub => ("github", "repositories"),
            ForgeKind::GitLab => ("gitlab", "projects"),
        };
        let url = fake.url(forge);
        format!(
            "polling_interval: 1h\nforge: {{ write_settle: 100ms, \
             poll_interval: 100ms, write_interval: 0s, writes_per_hour: off }}\n\
             {section}:\n  base_url: {url}\n  token: {TOKEN}\n  bot_name: {BOT}\n  {more}\n  {repositories}:\n    {NAME}: {{ project_id: prj, agent: agt }}\n"
        )
    }

    /// Makes an issue with the bot's label, assigned to it.
    pub fn issue(&self, title: &str) -> Item {
        let issue = self.fake.repository(self.forge, NAME).issue(title);
        issue.label("coding agent").assign(BOT);
        issue
    }

    /// Returns the daemon's items that are not over.
    pub fn items(&self) -> Vec<Value> {
        self.daemon.status()["forge_items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until the only item, open or over, is in this state without a pending write, and
    /// returns it.
    #[track_caller]
    pub fn until(&self, state: &str) -> Value {
        let found = || {
            let items = if ENDS.contains(&state) {
                self.daemon.json(&["forge", "list", "--ended"])
            } else {
                self.daemon.status()["forge_items"].take()
            };
            items
                .as_array()?
                .iter()
                .find(|item| {
                    item["state"] == state && item["owed"].as_array().is_none_or(Vec::is_empty)
                })
                .cloned()
        };
        until_some_within(TIMEOUT, found, || {
            format!(
                "waited in vain for an item that is {state}: {:?}\n{}",
                self.items(),
                self.daemon.log()
            )
        })
    }

    /// Returns the folder of an item.
    pub fn folder(&self, place: &str, item: &Value) -> PathBuf {
        self.daemon.state().join("contexts").join(place).join(item["id"].as_str().unwrap())
    }

    pub fn read(&self, place: &str, item: &Value, file: &str) -> Value {
        let path = self.folder(place, item).join(file);
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).unwrap()
    }

    /// Returns the places with a folder of the item.
    pub fn places(&self, item: &Value) -> Vec<&'static str> {
        ["running", "paused", "completed"]
            .into_iter()
            .filter(|place| self.folder(place, item).exists())
            .collect()
    }

    /// Waits until the agent of the items runs.
    #[track_caller]
    pub fn until_agent_runs(&self) {
        self.daemon.until_in_state("agt", "running");
    }

    /// Waits until the issue has only this label.
    #[track_caller]
    pub fn until_labelled(&self, item: &Item, label: &str) {
        let labelled = || (item.labels() == [label]).then_some(());
        until_some_within(TIMEOUT, labelled, || {
            format!(
                "waited in vain for `{label}`: {:?} {:?}\n{}",
                item.labels(),
                self.items(),
                self.daemon.log()
            )
        });
    }

    /// Returns the daemon's state of the only host.
    pub fn host(&self) -> Value {
        self.daemon.status()["forges"][0].clone()
    }

    /// Waits until the only repository has a problem with this text.
    #[track_caller]
    pub fn until_problem(&self, problem: &str) {
        until(problem, || {
            self.host()["repositories"][0]["problem"]
                .as_str()
                .is_some_and(|text| text.contains(problem))
        });
    }

    pub fn task(&self, item: &Value) -> Value {
        self.daemon.json(&["task", "show", item["task_id"].as_str().unwrap()])
    }
}

/// Returns the number of comments with this text.
pub fn n_comments(item: &Item, text: &str) -> usize {
    item.comments().iter().filter(|comment| comment.contains(text)).count()
}

/// Checks that an item has the daemon's comments with these titles, in this order, each once.
#[track_caller]
pub fn check_comments(item: &Item, titles: &[&str]) {
    let comments = item.comments();
    let ours: Vec<_> =
        comments.iter().filter_map(|body| Some((body, Marker::find(body)?))).collect();
    let found: Vec<&str> = ours.iter().map(|(body, _)| body.lines().next().unwrap()).collect();
    let is_title = |(line, title): (&&str, &&str)| line.contains(title);
    assert!(
        found.len() == titles.len() && found.iter().zip(titles).all(is_title),
        "{found:?}, not {titles:?}"
    );
    let mut markers: Vec<_> =
        ours.iter().map(|(_, marker)| (marker.item.to_string(), marker.number)).collect();
    markers.sort();
    markers.dedup();
    assert_eq!(markers.len(), titles.len(), "a comment is there twice: {comments:?}");
}
