//! `ai_providers`: how to start each kind of agent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::domain::Secret;

use super::reader::{Field, Section};
use super::report::Problem;
use super::templates::{self, Template};

/// Variables that every agent gets from the daemon; a `*` at the end stands for any rest. What is not here and not named in
/// the configuration stays with the daemon: its environment may hold other programs' secrets.
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

/// How the prompt travels to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptVia {
    /// `-p <prompt>` behind the other arguments (seed 004), unless one of them holds `{prompt}`.
    Argument,
    /// On standard input.
    Stdin,
}

/// Built-in ways to start an agent CLI; `provider` knows what each of them is.
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
    /// Each with its name, which is also the `ai_type` it stands for without an entry.
    pub const ALL: [(&'static str, Self); 6] = [
        ("claude", Self::Claude),
        ("codex", Self::Codex),
        ("gemini", Self::Gemini),
        ("qwen", Self::Qwen),
        ("opencode", Self::Opencode),
        ("copilot", Self::Copilot),
    ];
}

/// What an agent may do without asking; nobody is there to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permissions {
    /// Edit and run commands in its project.
    Project,
    /// Anything its user may.
    Bypass,
}

/// Whether an agent CLI reports on its use and looks for updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telemetry {
    /// The preset turns both off, as far as the CLI can be told.
    Off,
    /// The preset says nothing about it: the CLI's own settings decide.
    On,
}

/// What is executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandLine {
    /// The entry's own program, in seed 004's shape.
    Own {
        /// Name of a program on the `PATH`, or a path.
        program: String,
        prompt: PromptVia,
        /// Puts the passkey into a prompt that travels by argument, where every user of the machine can read it (seed 004).
        passkey_in_prompt: bool,
    },
    /// A built-in one.
    Preset {
        preset: Preset,
        /// Instead of the preset's own program.
        program: Option<String>,
        /// Instead of the model that the CLI takes by itself.
        model: Option<String>,
        permissions: Permissions,
        telemetry: Telemetry,
    },
}

/// How agents of one `ai_type` are started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderConfig {
    pub command_line: CommandLine,
    /// Complete but for templates: variables and `~/` are replaced. Behind those of a preset.
    pub cli_args: Vec<String>,
    /// Set in the agent, over whatever is passed on. May hold templates.
    pub environment: BTreeMap<String, Secret>,
    /// Which of the daemon's variables it gets.
    pub pass_environment: PassEnvironment,
    /// A program and its arguments that start the command line; templates are not replaced yet. Empty: nothing does.
    pub wrap: Vec<String>,
    /// The user of this machine that its agents run as; the daemon's own without it.
    pub run_as: Option<String>,
    /// It was added to a daemon that runs, for another user, whom nothing lets in before a restart. Until then nobody is started
    /// by it, and by nothing else in its place.
    pub waits_for_restart: bool,
}

impl ProviderConfig {
    /// What an entry with nothing but `cli_command` means.
    pub fn new(cli_command: impl Into<String>) -> Self {
        let program = cli_command.into();
        Self::of(CommandLine::Own {
            program,
            prompt: PromptVia::Argument,
            passkey_in_prompt: false,
        })
    }

    /// What an entry with nothing but `preset` means.
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

/// The first is a program; none of them may hold the prompt, which is not for others to read.
fn read_wrap(field: Field<'_, '_>) -> Vec<String> {
    let items = field.list();
    let read_one = |(i, item): (usize, &Field<'_, '_>)| match i {
        0 => read_command(item),
        _ => read_argument(item, true),
    };
    items.iter().enumerate().filter_map(read_one).collect()
}

/// A text in which templates may stand.
fn read_template(field: &Field<'_, '_>) -> Option<String> {
    // As it is written: what a variable holds is nobody's misspelling.
    let written = field.verbatim()?;
    if let Some((word, meant)) = templates::find_misspelt(&written) {
        let problem = Problem::new(format!("unknown template `{{{word}}}`"), field.span());
        field.note(problem.label(format!("did you mean `{{{meant}}}`?")));
    }
    field.text()
}

/// A bare name is looked up in the `PATH`; a relative path starts at the folder of the file, like all others in it.
fn read_command(field: &Field<'_, '_>) -> Option<String> {
    let command = field.word()?;
    if !command.contains('/') || Path::new(&command).is_absolute() {
        return Some(command);
    }
    field.path()?.into_os_string().into_string().ok()
}
