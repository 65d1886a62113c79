//! `ai_providers`: how to start each kind of agent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::domain::Secret;

use super::reader::{Field, Section};
use super::report::Problem;

/// Variables that every agent gets from the daemon; a `*` at the end stands for any rest. What is not here and not named in
/// the configuration stays with the daemon: its environment may hold other programs' secrets.
const ALWAYS_PASSED: [&str; 25] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TZDIR",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// How the prompt travels to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptVia {
    /// `-p <prompt>` behind the other arguments (seed 004).
    Argument,
    /// On standard input.
    Stdin,
}

/// How agents of one `ai_type` are started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderConfig {
    /// Name of a program on the `PATH`, or a path.
    pub cli_command: String,
    /// Complete: variables and `~/` are replaced.
    pub cli_args: Vec<String>,
    /// How the prompt travels.
    pub prompt: PromptVia,
    /// Set in the agent, over whatever is passed on.
    pub environment: BTreeMap<String, Secret>,
    /// Which of the daemon's variables it gets.
    pub pass_environment: PassEnvironment,
    /// Puts the passkey into a prompt that travels by argument, where every user of the machine can read it (seed 004).
    pub passkey_in_prompt: bool,
}

impl ProviderConfig {
    /// What an entry with nothing but `cli_command` means.
    pub fn new(cli_command: impl Into<String>) -> Self {
        Self {
            cli_command: cli_command.into(),
            cli_args: Vec::new(),
            prompt: PromptVia::Argument,
            environment: BTreeMap::new(),
            pass_environment: PassEnvironment::default(),
            passkey_in_prompt: false,
        }
    }

    fn read(mut section: Section<'_, '_>) -> Option<Self> {
        let command = section.required("cli_command").and_then(|field| read_command(&field));
        let default = Self::new(command.clone().unwrap_or_default());
        let texts = |field: Field<'_, '_>| field.list().iter().filter_map(Field::text).collect();
        let prompts = [("argument", PromptVia::Argument), ("stdin", PromptVia::Stdin)];
        let provider = Self {
            cli_args: section.field("cli_args").map(texts).unwrap_or_default(),
            prompt: section.one_of("prompt", default.prompt, &prompts),
            environment: section.field("environment").map(read_environment).unwrap_or_default(),
            pass_environment: section.field("pass_environment").map(PassEnvironment::read).unwrap_or_default(),
            passkey_in_prompt: section
                .field("passkey_in_prompt")
                .and_then(|field| field.boolean())
                .unwrap_or(default.passkey_in_prompt),
            ..default
        };
        command.map(|_| provider)
    }
}

pub(super) fn read(top: &mut Section<'_, '_>) -> BTreeMap<String, ProviderConfig> {
    top.named_sections("ai_providers")
        .into_iter()
        .filter_map(|(name, section)| Some((name.text, ProviderConfig::read(section)?)))
        .collect()
}

/// Which variables of the daemon an agent gets, beside the usual ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PassEnvironment {
    /// Names; a `*` at the end stands for any rest, alone for everything.
    names: BTreeSet<String>,
}

impl PassEnvironment {
    /// Whether the daemon's variable `name` is passed on.
    pub fn passes(&self, name: &str) -> bool {
        let mut patterns = ALWAYS_PASSED.into_iter().chain(self.names.iter().map(String::as_str));
        patterns.any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        })
    }

    fn read(field: Field<'_, '_>) -> Self {
        let what = "the name of an environment variable, or `*`";
        let name = |item: &Field<'_, '_>| {
            item.parsed(what, |text| is_variable_name(text.trim_end_matches('*')).then(|| text.to_owned()))
        };
        Self { names: field.list().iter().filter_map(name).collect() }
    }
}

fn read_environment(field: Field<'_, '_>) -> BTreeMap<String, Secret> {
    field
        .named()
        .into_iter()
        .filter_map(|(name, value)| {
            if name.text.is_empty() || !is_variable_name(&name.text) {
                let message = "not the name of an environment variable: expected a text without `=`";
                value.note(Problem::new(message, name.span));
            }
            Some((name.text, Secret::new(value.text()?)))
        })
        .collect()
}

fn is_variable_name(text: &str) -> bool {
    !text.contains(['=', '*', '\0'])
}

/// A bare name is looked up in the `PATH`; a relative path starts at the folder of the file, like all others in it.
fn read_command(field: &Field<'_, '_>) -> Option<String> {
    let command = field.word()?;
    if !command.contains('/') || Path::new(&command).is_absolute() {
        return Some(command);
    }
    field.path()?.into_os_string().into_string().ok()
}
