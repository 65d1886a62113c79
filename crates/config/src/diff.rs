//! Compares two configurations setting by setting, and says when each change takes effect. It is
//! pure, so that the log, `status` and `reload` agree.
//!
//! Each section compares its own keys ([`Keys::compare`]). A section that is added and not compared
//! here is a compile error, and a test compares the list with the keys of the reader.

use std::collections::{BTreeMap, BTreeSet};

use super::declaration::Keys;
use super::kinds::Kind;
use super::reader::{SettingPlaces, join};
use super::{Config, Forges, ProviderConfig};
use domain::configuration::{Applies, Change, Setting};
use postgres_url::HIDDEN;

/// The changes that were found so far.
#[derive(Default)]
pub(super) struct Changes {
    all: Vec<Change>,
    /// True if unchanged settings are listed, too.
    with_same: bool,
    /// The time when all changes of an entry count, in place of that of each key.
    of_entry: Option<Applies>,
}

/// A key as its section declares it.
pub(super) struct DeclaredKey<'a, T> {
    /// The path of the section in the file.
    pub section: &'a str,
    pub key: &'static str,
    pub kind: &'a Kind<T>,
    pub applies: Applies,
}

impl Changes {
    /// Compares the values of a declared key.
    pub fn key<T: PartialEq + 'static>(&mut self, key: &DeclaredKey<'_, T>, old: &T, new: &T) {
        let values = key.kind.show(old).zip(key.kind.show(new));
        let is_same = match &values {
            // Values that look alike are the same for people, such as a default that is written
            // down. That is unknown if a part of them is hidden.
            Some((old, new)) if !new.contains(HIDDEN) => old == new,
            _ => old == new,
        };
        if !is_same || self.with_same {
            let values = values.map(<[String; 2]>::from);
            let values = values.filter(|[old, new]| is_same || old != new);
            let applies = self.of_entry.unwrap_or(key.applies);
            self.all.push(Change { setting: join(key.section, key.key), values, applies });
        }
    }
}

/// Returns the settings that are different in `new`, in the order of the sections.
pub fn diff(old: &Config, new: &Config) -> Vec<Change> {
    compare(old, new, Changes::default())
}

/// Returns every setting in use, in the order of the sections, with its place in the file. Secrets
/// are listed without their values.
pub fn settings(config: &Config, places: &SettingPlaces) -> Vec<Setting> {
    let defaults = Config::with_state_dir(&config.paths.state_dir);
    let different: BTreeSet<String> =
        diff(&defaults, config).into_iter().map(|change| change.setting).collect();
    let all = compare(&defaults, config, Changes { with_same: true, ..Changes::default() });
    all.into_iter()
        .map(|Change { setting, values, applies }| Setting {
            is_default: !different.contains(&setting),
            line: places.get(&setting).map(|place| place.line),
            variables: places
                .get(&setting)
                .map(|place| place.variables.clone())
                .unwrap_or_default(),
            value: values.map(|[_, value]| value),
            setting,
            applies,
        })
        .collect()
}

fn compare(old: &Config, new: &Config, mut changes: Changes) -> Vec<Change> {
    let Config {
        general,
        paths,
        store,
        http,
        providers: _,
        agents: _,
        checks: _,
        limits,
        agent_limits,
        creation,
        parking,
        conversations,
        session,
        start,
        stop,
        run,
        notice,
        chat,
        backoff,
        shutdown,
        log,
        output,
        workspace,
        hooks,
        git_limits,
        retention,
        forges: _,
        // It has no key, because the values themselves are compared.
        secret_variables: _,
    } = old;
    general.compare(&new.general, &mut changes);
    paths.compare(&new.paths, &mut changes);
    http.compare(&new.http, &mut changes);
    store.compare(&new.store, &mut changes);
    of_providers(&mut changes, old, new);
    let agents: BTreeSet<_> = old.agents.keys().chain(new.agents.keys()).collect();
    for agent in agents {
        let of = |config: &Config| config.agents.get(agent).cloned().unwrap_or_default();
        of(old).compare_at(&format!("agents.{agent}"), &of(new), &mut changes);
    }
    of_checks(&mut changes, old, new);
    limits.compare(&new.limits, &mut changes);
    agent_limits.compare(&new.agent_limits, &mut changes);
    creation.compare(&new.creation, &mut changes);
    parking.compare(&new.parking, &mut changes);
    conversations.compare(&new.conversations, &mut changes);
    session.compare(&new.session, &mut changes);
    start.compare(&new.start, &mut changes);
    backoff.compare(&new.backoff, &mut changes);
    stop.compare(&new.stop, &mut changes);
    run.compare(&new.run, &mut changes);
    notice.compare(&new.notice, &mut changes);
    chat.compare(&new.chat, &mut changes);
    shutdown.compare(&new.shutdown, &mut changes);
    log.compare(&new.log, &mut changes);
    output.compare(&new.output, &mut changes);
    workspace.compare(&new.workspace, &mut changes);
    hooks.compare(&new.hooks, &mut changes);
    git_limits.compare(&new.git_limits, &mut changes);
    retention.compare(&new.retention, &mut changes);
    Forges::compare(old, new, &mut changes);
    changes.all
}

/// Returns the part of `new` that a daemon started with `started` can use. Settings that take
/// effect only after a restart keep their old values.
pub fn without_restart(new: Config, started: &Config) -> Config {
    let forges = new.forges.moved(&new.paths.state_dir, &started.paths.state_dir);
    Config {
        paths: new.paths.until_restart(&started.paths),
        store: new.store.until_restart(&started.store),
        http: new.http.until_restart(&started.http),
        log: new.log.until_restart(&started.log),
        workspace: new.workspace.until_restart(&started.workspace),
        git_limits: new.git_limits.until_restart(&started.git_limits),
        providers: providers_without_restart(&new.providers, &started.providers),
        forges,
        ..new
    }
}

/// Returns the providers that a running daemon can use. A changed entry for another user waits for
/// the restart as a whole, because half of it could start agents as the wrong user.
fn providers_without_restart(
    new: &BTreeMap<String, ProviderConfig>,
    started: &BTreeMap<String, ProviderConfig>,
) -> BTreeMap<String, ProviderConfig> {
    let names: BTreeSet<&String> = new.keys().chain(started.keys()).collect();
    let counts = |name: &String| {
        let old = in_use(started, name);
        let new = new.get(name);
        if user_of(old) == user_of(new) {
            return new.cloned();
        }
        // The built-in provider of this name must not take its place, because it would use the
        // daemon's own user.
        let waiting = || Some(ProviderConfig { waits_for_restart: true, ..new?.clone() });
        old.cloned().or_else(waiting)
    };
    names.into_iter().filter_map(|name| Some((name.clone(), counts(name)?))).collect()
}

/// Returns the entry of this name with which agents are started.
fn in_use<'a>(
    entries: &'a BTreeMap<String, ProviderConfig>,
    name: &str,
) -> Option<&'a ProviderConfig> {
    entries.get(name).filter(|entry| !entry.waits_for_restart)
}

fn user_of(entry: Option<&ProviderConfig>) -> Option<&str> {
    entry?.run_as.as_deref()
}

fn of_checks(changes: &mut Changes, old: &Config, new: &Config) {
    let names: BTreeSet<&String> =
        old.checks.iter().chain(&new.checks).map(|check| &check.name).collect();
    for name in names {
        let of = |config: &Config| {
            let found = config.checks.iter().find(|check| check.name == *name);
            found.map(|check| check.keys.clone()).unwrap_or_default()
        };
        of(old).compare_at(&format!("checks.{name}"), &of(new), changes);
    }
}

fn of_providers(changes: &mut Changes, old: &Config, new: &Config) {
    let names: BTreeSet<&String> = old.providers.keys().chain(new.providers.keys()).collect();
    for name in names {
        let setting = format!("ai_providers.{name}");
        let old = in_use(&old.providers, name);
        let new = in_use(&new.providers, name);
        let applies =
            if user_of(old) == user_of(new) { Applies::ToNewStarts } else { Applies::AfterRestart };
        match (old, new) {
            (Some(old), Some(new)) => {
                changes.of_entry = Some(applies);
                old.keys().compare_at(&setting, &new.keys(), changes);
                changes.of_entry = None;
            }
            (old, new) => {
                if old.is_some() != new.is_some() || changes.with_same {
                    let word = |entry: Option<&ProviderConfig>| {
                        if entry.is_some() { "an entry" } else { "no entry" }.to_owned()
                    };
                    let values = Some([word(old), word(new)]);
                    changes.all.push(Change { setting, values, applies });
                }
            }
        }
    }
}
