//! `ai_providers`: the ways to start each kind of agent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::domain::Secret;

use super::reader::{Field, Section};
use super::report::Problem;
use super::templates::{self, Template};

/// The variables that every agent gets from the daemon. A `*` at the end stands for any rest. All
/// other variables stay with the daemon unless the configuration names them, because they may be
/// other programs' secrets.
const ALWAYS_PASSED: [&str; 24] = [
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

const PRESET_PROMPT: &str = "the prompt of a preset travels on standard input";

/// The way of the prompt to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptVia {
    /// The prompt follows the other arguments as `-p <prompt>`, unless one of them contains
    /// `{prompt}`.
    Argument,
    /// The prompt goes to standard input.
    Stdin,
}

/// The built-in ways to start an agent CLI. `provider` knows their details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    Claude,
    Codex,
    Gemini,
    Qwen,
    Opencode,
    Copilot,
}

impl Preset {
    /// All presets with their names. A name is also the `ai_type` for which the preset is used
    /// without an entry.
    pub const ALL: [(&'static str, Self); 6] = [
        ("claude", Self::Claude),
        ("codex", Self::Codex),
        ("gemini", Self::Gemini),
        ("qwen", Self::Qwen),
        ("opencode", Self::Opencode),
        ("copilot", Self::Copilot),
    ];
}

/// The permissions of an agent. It can't ask for more, because no person watches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permissions {
    /// The agent may edit files and run commands in its project.
    Project,
    /// The agent may do anything that its user may.
    Bypass,
}

/// The telemetry of an agent CLI and its search for updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telemetry {
    /// The preset turns both off, as far as the CLI has settings for them.
    Off,
    /// The preset sets neither, so that the CLI's own settings decide.
    On,
}

/// The command line of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandLine {
    /// A program of the entry's own.
    Own {
        /// The name of a program on the `PATH`, or a path.
        program: String,
        prompt: PromptVia,
        /// Puts the passkey into a prompt that travels as an argument. Every user of the machine
        /// can read it there.
        passkey_in_prompt: bool,
    },
    /// A built-in command line.
    Preset {
        preset: Preset,
        /// The program in place of the preset's own.
        program: Option<String>,
        /// The model in place of the CLI's default.
        model: Option<String>,
        permissions: Permissions,
        telemetry: Telemetry,
    },
}

/// The settings for starting agents of one `ai_type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderConfig {
    pub command_line: CommandLine,
    /// The arguments, with variables and `~/` replaced, but not yet the templates. They follow
    /// those of a preset.
    pub cli_args: Vec<String>,
    /// The variables that are set in the agent. They override passed variables and may contain
    /// templates.
    pub environment: BTreeMap<String, Secret>,
    /// The daemon's variables that the agent gets.
    pub pass_environment: PassEnvironment,
    /// A program and its arguments that start the command line, with templates not replaced yet. If
    /// empty, there is no such program.
    pub wrap: Vec<String>,
    /// The user of this machine that its agents run as. Without it, they run as the daemon's own
    /// user.
    pub run_as: Option<String>,
    /// True if the entry waits for a restart of the daemon. Such an entry was added to a running
    /// daemon for another user, whom the daemon admits only after a restart. Until then no agent of
    /// this name is started, neither by it nor by another entry.
    pub waits_for_restart: bool,
}

impl ProviderConfig {
    /// Returns the settings of an entry with only `cli_command`.
    pub fn new(cli_command: impl Into<String>) -> Self {
        let program = cli_command.into();
        Self::of(CommandLine::Own {
            program,
            prompt: PromptVia::Argument,
            passkey_in_prompt: false,
        })
    }

    /// Returns the settings of an entry with only `preset`.
    pub fn of_preset(preset: Preset) -> Self {
        Self::of(CommandLine::Preset {
            preset,
            program: None,
            model: None,
            permissions: Permissions::Project,
            telemetry: Telemetry::Off,
        })
    }

    fn of(command_line: CommandLine) -> Self {
        let (environment, pass_environment) = (BTreeMap::new(), PassEnvironment::default());
        Self {
            command_line,
            cli_args: Vec::new(),
            environment,
            pass_environment,
            wrap: Vec::new(),
            run_as: None,
            waits_for_restart: false,
        }
    }

    fn read(mut section: Section<'_, '_>) -> Option<Self> {
        let command_line = match section.field("preset") {
            Some(field) => read_preset(&mut section, field.one_of(&Preset::ALL)),
            None => read_own(&mut section),
        };
        let is_preset = matches!(command_line, Some(CommandLine::Preset { .. }));
        let arguments = section.field("cli_args").map(Field::list).unwrap_or_default();
        let cli_args =
            arguments.iter().filter_map(|argument| read_argument(argument, is_preset)).collect();
        let environment = section.field("environment").map(read_environment).unwrap_or_default();
        let pass_environment =
            section.field("pass_environment").map(PassEnvironment::read).unwrap_or_default();
        let wrap = section.field("wrap").map(read_wrap).unwrap_or_default();
        let run_as = section.optional("run_as").and_then(|field| field.word());
        Some(Self {
            command_line: command_line?,
            cli_args,
            environment,
            pass_environment,
            wrap,
            run_as,
            waits_for_restart: false,
        })
    }
}

fn read_own(section: &mut Section<'_, '_>) -> Option<CommandLine> {
    let in_arguments = "say it in cli_args, in the words of the program";
    let in_own_words = "say it in cli_args or environment, in the words of the program";
    for (key, help) in
        [("model", in_arguments), ("permissions", in_arguments), ("telemetry", in_own_words)]
    {
        if let Some(field) = section.field(key) {
            let problem =
                Problem::new(format!("`{key}` has no meaning without `preset`"), field.span());
            field.note(problem.help(help));
        }
    }
    let program = section.required("cli_command").and_then(|field| read_command(&field));
    let prompts = [
        ("argument", PromptVia::Argument),
        ("flag", PromptVia::Argument),
        ("stdin", PromptVia::Stdin),
    ];
    let prompt = section.one_of("prompt", PromptVia::Argument, &prompts);
    let passkey_in_prompt =
        section.field("passkey_in_prompt").and_then(|field| field.boolean()).unwrap_or(false);
    Some(CommandLine::Own { program: program?, prompt, passkey_in_prompt })
}

fn read_preset(section: &mut Section<'_, '_>, preset: Option<Preset>) -> Option<CommandLine> {
    for key in ["prompt", "passkey_in_prompt"] {
        if let Some(field) = section.field(key) {
            let problem =
                Problem::new(format!("`{key}` has no meaning beside `preset`"), field.span());
            field.note(problem.help(PRESET_PROMPT));
        }
    }
    let program = section.field("cli_command").and_then(|field| read_command(&field));
    let model = section.field("model").and_then(|field| field.word());
    let permissions = [("project", Permissions::Project), ("bypass", Permissions::Bypass)];
    let permissions = section.one_of("permissions", Permissions::Project, &permissions);
    let telemetry = [("off", Telemetry::Off), ("on", Telemetry::On)];
    let telemetry = section.one_of("telemetry", Telemetry::Off, &telemetry);
    Some(CommandLine::Preset { preset: preset?, program, model, permissions, telemetry })
}

pub(super) fn read(top: &mut Section<'_, '_>) -> BTreeMap<String, ProviderConfig> {
    top.named_sections("ai_providers")
        .into_iter()
        .filter_map(|(name, section)| Some((name.text, ProviderConfig::read(section)?)))
        .collect()
}

/// The variables of the daemon that an agent gets beside the usual ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PassEnvironment {
    /// The names. A `*` at the end stands for any rest, and alone for everything.
    names: BTreeSet<String>,
}

impl PassEnvironment {
    /// Returns whether the daemon's variable `name` is passed on.
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
            item.parsed(what, |text| {
                is_variable_name(text.trim_end_matches('*')).then(|| text.to_owned())
            })
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
                let message =
                    "not the name of an environment variable: expected a text without `=`";
                value.note(Problem::new(message, name.span));
            }
            Some((name.text, Secret::new(read_template(&value)?)))
        })
        .collect()
}

fn is_variable_name(text: &str) -> bool {
    !text.contains(['=', '*', '\0'])
}

fn read_argument(field: &Field<'_, '_>, is_preset: bool) -> Option<String> {
    let argument = read_template(field)?;
    if is_preset && Template::Prompt.is_in(&argument) {
        field.note(
            Problem::new("`{prompt}` has no meaning beside `preset`", field.span())
                .help(PRESET_PROMPT),
        );
    }
    Some(argument)
}

/// Reads `wrap`. The first item is a program. No item may contain the prompt, because other users
/// can read arguments.
fn read_wrap(field: Field<'_, '_>) -> Vec<String> {
    let items = field.list();
    let read_one = |(i, item): (usize, &Field<'_, '_>)| match i {
        0 => read_command(item),
        _ => read_argument(item, true),
    };
    items.iter().enumerate().filter_map(read_one).collect()
}

/// Reads a text that may contain templates.
fn read_template(field: &Field<'_, '_>) -> Option<String> {
    // The check uses the text of the file, because a value of a variable is not a misspelt
    // template.
    let written = field.verbatim()?;
    if let Some((word, meant)) = templates::find_misspelt(&written) {
        let problem = Problem::new(format!("unknown template `{{{word}}}`"), field.span());
        field.note(problem.label(format!("did you mean `{{{meant}}}`?")));
    }
    field.text()
}

/// Reads a command. A bare name is looked up in the `PATH`. A relative path starts at the folder of
/// the file, like all paths in it.
fn read_command(field: &Field<'_, '_>) -> Option<String> {
    let command = field.word()?;
    if !command.contains('/') || Path::new(&command).is_absolute() {
        return Some(command);
    }
    field.path()?.into_os_string().into_string().ok()
}
