//! Compares two configurations setting by setting, and says when each change takes effect. It is
//! pure, so that the log, `status` and `reload` agree.
//!
//! Every section is destructured by name. A setting that is added and not listed here is a compile
//! error, and a test compares the list with the keys of the reader.

mod forges;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{
    AgentLimits, AtShutdown, Backoff, Chat, CommandLine, Config, Http, Limits, LogConfig,
    LogFormat, Notice, Output, Parking, Permissions, Preset, PromptVia, ProviderConfig, Run,
    Session, Shutdown, Start, Stop, StoreUrl, Telemetry, units,
};
use crate::domain::creation::CreationLimits;
use crate::domain::plan::silence::SilenceLimits;
use crate::domain::retention::Retention;
use crate::domain::{Language, Secret};

/// When a changed setting counts in a daemon that runs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Applies {
    /// From the next decision on.
    Now,
    /// Agents that run keep what they were started with.
    ToNewStarts,
    /// Not before the daemon is started again.
    AfterRestart,
}

impl Applies {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::ToNewStarts => "to new starts",
            Self::AfterRestart => "after a restart",
        }
    }
}

/// One setting that is different.
#[derive(
    Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct Change {
    /// As in the file: `session.max_timeout`.
    pub setting: String,
    /// Before and after, where both may be shown: never those of secrets, and of texts that variables were put into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<[String; 2]>,
    pub applies: Applies,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.values {
            Some([old, new]) => write!(f, "{}: {old} → {new}", self.setting),
            None => write!(f, "{}: changed", self.setting),
        }
    }
}

/// A setting as it is in use.
#[derive(
    Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Setting {
    /// As in the file: `session.max_timeout`.
    pub setting: String,
    /// Absent where it may not be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// It is what it would be without a file.
    pub is_default: bool,
    /// When a change of it would count.
    pub applies: Applies,
}

#[derive(Default)]
struct Changes {
    all: Vec<Change>,
    /// True if unchanged settings are listed, too.
    with_same: bool,
}

impl Changes {
    fn shown<T: PartialEq>(
        &mut self,
        applies: Applies,
        setting: impl Into<String>,
        (old, new): (&T, &T),
        show: impl Fn(&T) -> String,
    ) {
        if old != new || self.with_same {
            self.all.push(Change {
                setting: setting.into(),
                values: Some([show(old), show(new)]),
                applies,
            });
        }
    }

    fn hidden<T: PartialEq>(
        &mut self,
        applies: Applies,
        setting: impl Into<String>,
        (old, new): (&T, &T),
    ) {
        if old != new || self.with_same {
            self.all.push(Change { setting: setting.into(), values: None, applies });
        }
    }
}

/// Returns the settings that are different in `new`, in the order of the sections.
pub fn diff(old: &Config, new: &Config) -> Vec<Change> {
    compare(old, new, Changes::default())
}

/// Returns every setting in use, in the order of the sections. Secrets are listed without their
/// values.
pub fn settings(config: &Config) -> Vec<Setting> {
    let defaults = Config::with_state_dir(&config.state_dir);
    let different: BTreeSet<String> =
        diff(&defaults, config).into_iter().map(|change| change.setting).collect();
    let all = compare(&defaults, config, Changes { with_same: true, ..Changes::default() });
    all.into_iter()
        .map(|Change { setting, values, applies }| Setting {
            is_default: !different.contains(&setting),
            value: values.map(|[_, value]| value),
            setting,
            applies,
        })
        .collect()
}

fn compare(old: &Config, new: &Config, mut changes: Changes) -> Vec<Change> {
    use Applies::{AfterRestart, Now};
    let Config {
        polling_interval,
        max_concurrent,
        state_dir,
        mcp_socket,
        // These have no key of their own. They follow `state_dir`.
        control_socket: _,
        coordinator_socket: _,
        server,
        store,
        http,
        coordinator_token,
        providers: _,
        agents: _,
        limits,
        parking,
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
        retention,
        forges,
        language,
        manifest,
        // It has no key, because the values themselves are compared.
        secret_variables: _,
    } = old;
    let path = |path: &PathBuf| path.display().to_string();
    changes.shown(Now, "polling_interval", (polling_interval, &new.polling_interval), duration);
    changes.shown(Now, "max_concurrent", (max_concurrent, &new.max_concurrent), usize::to_string);
    changes.shown(AfterRestart, "state_dir", (state_dir, &new.state_dir), path);
    changes.shown(AfterRestart, "mcp_socket_path", (mcp_socket, &new.mcp_socket), path);
    changes.shown(AfterRestart, "server", (server, &new.server), ToString::to_string);
    changes.shown(AfterRestart, "store.url", (store, &new.store), ToString::to_string);
    let password = |store: &StoreUrl| match store {
        StoreUrl::Postgres(store) => store.password.clone(),
        StoreUrl::Sqlite(_) => None,
    };
    changes.hidden(AfterRestart, "store.password", (&password(store), &password(&new.store)));
    of_http(&mut changes, http, &new.http);
    changes.hidden(Now, "coordinator_token", (coordinator_token, &new.coordinator_token));
    of_providers(&mut changes, old, new);
    let passkeys = |config: &Config| config.agents.keys().cloned().collect::<BTreeSet<_>>();
    for agent in passkeys(old).union(&passkeys(new)) {
        let of = |config: &Config| -> Option<Secret> {
            config.agents.get(agent).map(|known| known.passkey.clone())
        };
        changes.hidden(Now, format!("agents.{agent}.passkey"), (&of(old), &of(new)));
    }
    of_limits(&mut changes, limits, &new.limits);
    of_parking(&mut changes, parking, &new.parking);
    of_sessions(&mut changes, session, &new.session);
    of_starts(&mut changes, (start, backoff), (&new.start, &new.backoff));
    of_ends(&mut changes, (stop, run, notice), (&new.stop, &new.run, &new.notice));
    of_chats(&mut changes, chat, &new.chat);
    of_shutdown(&mut changes, shutdown, &new.shutdown);
    of_log(&mut changes, log, &new.log);
    of_output(&mut changes, output, &new.output);
    of_retention(&mut changes, retention, &new.retention);
    forges::compare(&mut changes, (forges, state_dir), (&new.forges, &new.state_dir));
    changes.shown(Now, "language", (language, &new.language), Language::to_string);
    changes
        .shown(Now, "manifest", (manifest, &new.manifest), |file| optional_path(file.as_deref()));
    changes.all
}

/// Returns the part of `new` that a daemon started with `started` can use. Settings that take
/// effect only after a restart keep their old values.
pub fn without_restart(new: Config, started: &Config) -> Config {
    let started = started.clone();
    let state_dir = started.state_dir;
    Config {
        mcp_socket: started.mcp_socket,
        control_socket: started.control_socket,
        coordinator_socket: started.coordinator_socket,
        server: started.server,
        store: started.store,
        http: Http { agents: new.http.agents, ..started.http },
        log: LogConfig { level: new.log.level, ..started.log },
        providers: providers_without_restart(&new.providers, &started.providers),
        forges: new.forges.moved(&new.state_dir, &state_dir),
        state_dir,
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
        let (old, new) = (in_use(started, name), new.get(name));
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

fn of_http(changes: &mut Changes, old: &Http, new: &Http) {
    let Http { listen, is_listen_default: _, allowed_hosts, public_url, agents } = old;
    let address = |address: &Option<SocketAddr>| {
        address.map_or_else(|| "off".to_owned(), |it| it.to_string())
    };
    changes.shown(Applies::AfterRestart, "http.listen", (listen, &new.listen), address);
    changes.shown(
        Applies::AfterRestart,
        "http.allowed_hosts",
        (allowed_hosts, &new.allowed_hosts),
        |hosts| {
            let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
            format!("[{}]", hosts.join(", "))
        },
    );
    changes.shown(Applies::AfterRestart, "http.public_url", (public_url, &new.public_url), |url| {
        url.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)
    });
    let switch = |is_on: &bool| if *is_on { "on" } else { "off" }.to_owned();
    changes.shown(Applies::Now, "http.agents", (agents, &new.agents), switch);
}

fn of_providers(changes: &mut Changes, old: &Config, new: &Config) {
    let names: BTreeSet<&String> = old.providers.keys().chain(new.providers.keys()).collect();
    for name in names {
        let setting = format!("ai_providers.{name}");
        let (old, new) = (in_use(&old.providers, name), in_use(&new.providers, name));
        let applies =
            if user_of(old) == user_of(new) { Applies::ToNewStarts } else { Applies::AfterRestart };
        match (old, new) {
            (Some(old), Some(new)) => of_provider(changes, applies, &setting, old, new),
            (old, new) => {
                let is_there = (&old.is_some(), &new.is_some());
                let word =
                    |is_there: &bool| if *is_there { "an entry" } else { "no entry" }.to_owned();
                changes.shown(applies, setting, is_there, word);
            }
        }
    }
}

fn of_provider(
    changes: &mut Changes,
    applies: Applies,
    setting: &str,
    old: &ProviderConfig,
    new: &ProviderConfig,
) {
    let ProviderConfig {
        command_line,
        cli_args,
        environment,
        pass_environment,
        wrap,
        run_as,
        waits_for_restart: _,
    } = old;
    for ((key, old), (_, new)) in words_of(command_line).iter().zip(&words_of(&new.command_line)) {
        let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "none".to_owned());
        changes.shown(applies, format!("{setting}.{key}"), (old, new), word);
    }
    changes.hidden(applies, format!("{setting}.cli_args"), (cli_args, &new.cli_args));
    changes.hidden(applies, format!("{setting}.environment"), (environment, &new.environment));
    let passed = (pass_environment, &new.pass_environment);
    changes.hidden(applies, format!("{setting}.pass_environment"), passed);
    changes.hidden(applies, format!("{setting}.wrap"), (wrap, &new.wrap));
    let user = |user: &Option<String>| user.clone().unwrap_or_else(|| "none".to_owned());
    changes.shown(applies, format!("{setting}.run_as"), (run_as, &new.run_as), user);
}

/// Returns the keys of a command line with their values, as the file has them.
fn words_of(command_line: &CommandLine) -> [(&'static str, Option<String>); 7] {
    let (preset, program, model, permissions, telemetry, prompt, passkey_in_prompt) =
        match command_line {
            CommandLine::Own { program, prompt, passkey_in_prompt } => {
                let prompt = match prompt {
                    PromptVia::Argument => "argument",
                    PromptVia::Stdin => "stdin",
                };
                (
                    None,
                    Some(program.clone()),
                    None,
                    None,
                    None,
                    Some(prompt),
                    Some(passkey_in_prompt.to_string()),
                )
            }
            CommandLine::Preset { preset, program, model, permissions, telemetry } => {
                let name =
                    Preset::ALL.iter().find(|(_, each)| each == preset).map(|(name, _)| *name);
                let permissions = match permissions {
                    Permissions::Project => "project",
                    Permissions::Bypass => "bypass",
                };
                let telemetry = match telemetry {
                    Telemetry::Off => "off",
                    Telemetry::On => "on",
                };
                (
                    name,
                    program.clone(),
                    model.clone(),
                    Some(permissions),
                    Some(telemetry),
                    None,
                    None,
                )
            }
        };
    [
        ("preset", preset.map(str::to_owned)),
        ("cli_command", program),
        ("model", model),
        ("permissions", permissions.map(str::to_owned)),
        ("telemetry", telemetry.map(str::to_owned)),
        ("prompt", prompt.map(str::to_owned)),
        ("passkey_in_prompt", passkey_in_prompt),
    ]
}

fn of_limits(changes: &mut Changes, old: &Limits, new: &Limits) {
    let Limits {
        per_project,
        per_agent,
        per_provider,
        chat_reserve,
        min_free_disk,
        min_free_memory,
        agent,
        creation,
    } = old;
    let AgentLimits { memory, processes } = agent;
    let size = |bytes: &Option<u64>| bytes.map_or_else(|| "none".to_owned(), units::show_size);
    let number = |number: &Option<usize>| {
        number.map_or_else(|| "none".to_owned(), |number| number.to_string())
    };
    changes.shown(Applies::Now, "limits.per_project", (per_project, &new.per_project), number);
    changes.shown(Applies::Now, "limits.per_agent", (per_agent, &new.per_agent), number);
    changes.shown(Applies::Now, "limits.per_provider", (per_provider, &new.per_provider), number);
    changes.shown(
        Applies::Now,
        "limits.chat_reserve",
        (chat_reserve, &new.chat_reserve),
        usize::to_string,
    );
    changes.shown(Applies::Now, "limits.min_free_disk", (min_free_disk, &new.min_free_disk), size);
    changes.shown(
        Applies::Now,
        "limits.min_free_memory",
        (min_free_memory, &new.min_free_memory),
        size,
    );
    changes.shown(
        Applies::ToNewStarts,
        "limits.memory_per_agent",
        (memory, &new.agent.memory),
        size,
    );
    let number = |number: &Option<u64>| {
        number.map_or_else(|| "none".to_owned(), |number| number.to_string())
    };
    changes.shown(
        Applies::ToNewStarts,
        "limits.processes_per_agent",
        (processes, &new.agent.processes),
        number,
    );
    let CreationLimits { tasks_per_launch, subtasks_per_task, messages_per_launch } = creation;
    let new = &new.creation;
    for (name, before, after) in [
        ("limits.tasks_per_launch", tasks_per_launch, &new.tasks_per_launch),
        ("limits.subtasks_per_task", subtasks_per_task, &new.subtasks_per_task),
        ("limits.messages_per_launch", messages_per_launch, &new.messages_per_launch),
    ] {
        changes.shown(Applies::Now, name, (before, after), usize::to_string);
    }
}

fn of_parking(changes: &mut Changes, old: &Parking, new: &Parking) {
    let Parking { initial, max } = old;
    changes.shown(Applies::Now, "parking.initial", (initial, &new.initial), duration);
    changes.shown(Applies::Now, "parking.max", (max, &new.max), duration);
}

fn of_sessions(changes: &mut Changes, old: &Session, new: &Session) {
    let Session { default_timeout, max_timeout, cleanup_interval } = old;
    changes.shown(
        Applies::Now,
        "session.default_timeout",
        (default_timeout, &new.default_timeout),
        duration,
    );
    changes.shown(Applies::Now, "session.max_timeout", (max_timeout, &new.max_timeout), duration);
    changes.shown(
        Applies::Now,
        "session.cleanup_interval",
        (cleanup_interval, &new.cleanup_interval),
        duration,
    );
}

fn of_starts(changes: &mut Changes, old: (&Start, &Backoff), new: (&Start, &Backoff)) {
    let Start { timeout, limit, interval } = old.0;
    changes.shown(Applies::ToNewStarts, "start.timeout", (timeout, &new.0.timeout), duration);
    changes.shown(Applies::Now, "start.limit", (limit, &new.0.limit), usize::to_string);
    changes.shown(Applies::Now, "start.interval", (interval, &new.0.interval), duration);
    let Backoff { initial, max } = old.1;
    changes.shown(Applies::Now, "backoff.initial", (initial, &new.1.initial), duration);
    changes.shown(Applies::Now, "backoff.max", (max, &new.1.max), duration);
}

fn of_ends(changes: &mut Changes, old: (&Stop, &Run, &Notice), new: (&Stop, &Run, &Notice)) {
    let Stop { timeout, leak_grace } = old.0;
    changes.shown(Applies::Now, "stop.timeout", (timeout, &new.0.timeout), duration);
    // The keeper gets this value at the start of its agent.
    changes.shown(
        Applies::ToNewStarts,
        "stop.leak_grace",
        (leak_grace, &new.0.leak_grace),
        duration,
    );
    let Run { linger, max_runtime, silence_timeout } = old.1;
    let most = |most: &Option<Duration>| most.as_ref().map_or_else(|| "none".to_owned(), duration);
    let silence = |limits: &SilenceLimits| match (limits.streams, limits.others) {
        (Some(streams), None) => format!("{} for presets", duration(&streams)),
        (limit, _) => most(&limit),
    };
    changes.shown(Applies::Now, "run.linger", (linger, &new.1.linger), duration);
    changes.shown(Applies::Now, "run.max_runtime", (max_runtime, &new.1.max_runtime), most);
    changes.shown(
        Applies::Now,
        "run.silence_timeout",
        (silence_timeout, &new.1.silence_timeout),
        silence,
    );
    let Notice { grace } = old.2;
    changes.shown(Applies::Now, "notice.grace", (grace, &new.2.grace), duration);
}

fn of_retention(changes: &mut Changes, old: &Retention, new: &Retention) {
    let Retention { history, events, max_events, chats, output, output_size } = old;
    let size = |bytes: &u64| units::show_size(*bytes);
    changes.shown(Applies::Now, "retention.history", (history, &new.history), duration);
    changes.shown(Applies::Now, "retention.events", (events, &new.events), duration);
    changes.shown(
        Applies::Now,
        "retention.max_events",
        (max_events, &new.max_events),
        u64::to_string,
    );
    changes.shown(Applies::Now, "retention.chats", (chats, &new.chats), |chats| {
        chats.as_ref().map_or_else(|| "off".to_owned(), duration)
    });
    changes.shown(Applies::Now, "retention.output", (output, &new.output), duration);
    changes.shown(Applies::Now, "retention.output_size", (output_size, &new.output_size), size);
}

fn of_chats(changes: &mut Changes, old: &Chat, new: &Chat) {
    let Chat { poll_hold, idle_timeout } = old;
    changes.shown(Applies::Now, "chat.poll_hold", (poll_hold, &new.poll_hold), duration);
    changes.shown(Applies::Now, "chat.idle_timeout", (idle_timeout, &new.idle_timeout), duration);
}

fn of_shutdown(changes: &mut Changes, old: &Shutdown, new: &Shutdown) {
    let Shutdown { sigterm, sigint } = old;
    let word = |policy: &AtShutdown| {
        match policy {
            AtShutdown::Keep => "keep",
            AtShutdown::Stop => "stop",
        }
        .to_owned()
    };
    changes.shown(Applies::Now, "shutdown.sigterm", (sigterm, &new.sigterm), word);
    changes.shown(Applies::Now, "shutdown.sigint", (sigint, &new.sigint), word);
}

fn of_log(changes: &mut Changes, old: &LogConfig, new: &LogConfig) {
    let LogConfig { level, format, file } = old;
    changes.shown(Applies::Now, "log.level", (level, &new.level), Clone::clone);
    let word = |format: &LogFormat| {
        match format {
            LogFormat::Auto => "auto",
            LogFormat::Json => "json",
            LogFormat::Text => "text",
        }
        .to_owned()
    };
    changes.shown(Applies::AfterRestart, "log.format", (format, &new.format), word);
    changes.shown(Applies::AfterRestart, "log.file", (file, &new.file), |file| {
        optional_path(file.as_deref())
    });
}

fn of_output(changes: &mut Changes, old: &Output, new: &Output) {
    let Output { max_file, files } = old;
    let size = |bytes: &u64| units::show_size(*bytes);
    changes.shown(Applies::ToNewStarts, "output.max_file", (max_file, &new.max_file), size);
    changes.shown(Applies::ToNewStarts, "output.files", (files, &new.files), usize::to_string);
}

fn duration(duration: &Duration) -> String {
    units::show_duration(*duration)
}

fn optional_path(file: Option<&Path>) -> String {
    file.map_or_else(|| "none".to_owned(), |file| file.display().to_string())
}
