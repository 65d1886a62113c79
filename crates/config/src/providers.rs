//! `ai_providers`: the ways to start each kind of agent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use domain::Secret;
use machine::sys::user_names::uid_of;

use super::declaration::{Keys, keys};
use super::kinds::{Kind, list, switch, text, truth, words};
use super::reader::{Field, Section};
use super::report::Problem;
use super::templates::{self, Template};

/// The account that is reserved for the daemon's repositories. The Debian package creates it, or a
/// person does with `systemd/system/sysusers.conf`.
pub const KEEPER: &str = "agent-coordinator-keep";

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

const PRESET_CONVERSATION: &str = "a preset knows how its CLI continues a conversation";

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

/// The `ai_type` of the bundled agent: a shell script that does the work of an agent in its
/// smallest form. It needs no account.
pub const EXAMPLE: &str = "example";

/// Its script.
const EXAMPLE_SCRIPT: &str = include_str!("../../../examples/quickstart/agent.sh");

/// Returns the `ai_type`s that can be started without an entry: the names of the presets and
/// [`EXAMPLE`].
pub fn built_in_names() -> Vec<&'static str> {
    Preset::ALL.into_iter().map(|(name, _)| name).chain([EXAMPLE]).collect()
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

keys! {
    /// How to start each kind of agent, by the `ai_type` of the agents. Without an entry, an
    /// `ai_type` with the name of a preset uses that preset, and `example` starts the bundled
    /// script, which needs no account. `run` refuses any other one for a new agent. An agent that
    /// has one already starts as `claude` does. A change of `run_as` makes the whole entry wait for
    /// a restart.
    pub struct ProviderKeys in "ai_providers.*" {
        /// A built-in way to start an agent CLI. It knows the command line, how to give the agent
        /// the server's tools, and which login variables to pass on. Its prompt travels on standard
        /// input. See docs/providers.md.
        pub preset: Option<Preset> = None, preset(), ToNewStarts;

        /// A program on the PATH, or a path. Required without a preset. With a preset, it replaces
        /// the preset's program.
        pub cli_command: Option<String> = None, command().if_set().for_example("my-agent"), ToNewStarts;

        /// The model, in the CLI's own words. Only with a preset. Default: the model that the CLI
        /// takes by itself.
        pub model: Option<String> = None, text().if_set().for_example("opus"), ToNewStarts;

        /// The actions that the agent may take without asking. `project` lets it edit files and run commands in
        /// its project. `bypass` turns the CLI's own checks off, so that it may do anything; claude
        /// refuses that as root. Only with a preset.
        pub permissions: Option<Permissions> = None, permissions(), ToNewStarts;

        /// With `off`, the preset turns off the CLI's telemetry and its search for updates, as far
        /// as the CLI has settings for them. With `on`, the CLI's own settings decide.
        /// docs/providers.md says what is turned off, and which hosts each CLI contacts. Only with
        /// a preset.
        pub telemetry: Option<Telemetry> = None, telemetry(), ToNewStarts;

        /// The way of the prompt to the agent. `argument` (or `flag`) puts `-p PROMPT` behind
        /// `cli_args`, unless they contain {prompt}. `stdin` writes it to standard input. Not with
        /// a preset.
        pub prompt: Option<PromptVia> = None, prompt(), ToNewStarts;

        /// `true` puts the passkey into a prompt that travels as an argument, where all users of
        /// this machine can read it. Not with a preset.
        pub passkey_in_prompt: Option<bool> = None, truth().if_set().written_as("false"), ToNewStarts;

        /// The arguments of the program. The prompt follows them. With a preset, they follow the
        /// preset's arguments. They may contain {mcp_url} {mcp_socket} {bridge} {agent_id}
        /// {project_id} {working_directory} {workspace} {keep} {launch_id} {prompt} {conversation}. {bridge} is
        /// this program, which `mcp` makes a bridge from standard input and output to the server.
        /// An example: `[--ask, "{prompt}"]`.
        pub cli_args: Vec<String> = Vec::new(), list(template()).hidden(), ToNewStarts;

        /// The arguments that begin a conversation with an id, which `{conversation}` stands for. They
        /// follow `cli_args`. With them and `resume_args`, the next launch of a task continues the
        /// conversation, in the same directory. An example: `[--session-id, "{conversation}"]`. Not
        /// with a preset.
        pub begin_args: Vec<String> = Vec::new(), list(template()).hidden(), ToNewStarts;

        /// The arguments that continue a conversation. An example: `[--resume, "{conversation}"]`. If
        /// `cli_args` contain {conversation}, these two are not needed. Not with a preset.
        pub resume_args: Vec<String> = Vec::new(), list(template()).hidden(), ToNewStarts;

        /// `off` begins each launch with a conversation of its own.
        pub r#continue: bool = true, switch(), ToNewStarts;

        /// Variables that are set for the agent. They override those that are passed on. The words
        /// in braces are replaced here, too. An example: `{MCP_SERVER: "{mcp_socket}"}`. If TMPDIR
        /// is set here, the launch gets no folder of its own for temporary files.
        pub environment: BTreeMap<String, Secret> = BTreeMap::new(), environment(), ToNewStarts;

        /// Variables of the daemon that are passed on beside the usual ones (PATH, HOME, LANG,
        /// LC_*, TZ, TERM and the like, and a preset's login). A name may end with `*`. `"*"` alone
        /// passes everything. More names give the agent more, also the secrets of other programs.
        /// The secrets of this configuration are never passed on. An example: `[NPM_TOKEN]`.
        pub pass_environment: PassEnvironment = PassEnvironment::default(), passed(), ToNewStarts;

        /// A program that starts the agent, with its arguments. The agent's own program (its full
        /// path) and arguments follow. The words in braces are replaced, except {prompt}. The
        /// program must end when the agent does, with its exit code. An example: `[bwrap,
        /// --die-with-parent, --ro-bind, /, /, --bind, "{workspace}", "{workspace}"]`. {workspace}
        /// is the clone of the task, and {keep} the repository that it borrows from. Without a
        /// clone, both are the directory of the project.
        pub wrap: Vec<String> = Vec::new(), wrap(), ToNewStarts;

        /// The user of this machine that these agents run as, for a daemon of root. It needs
        /// `mcp_socket_path` in a folder that this user may enter. One user for each entry keeps
        /// agents apart. Default: the daemon's own user.
        pub run_as: Option<String> = None, user(), AfterRestart;
    }
}

/// A user of this machine as whom agents run. No agent may be the keeper, under any of its names.
fn user() -> Kind<Option<String>> {
    let find = |name: &str| uid_of(name).ok().flatten();
    let check = move |name: &String| {
        if !is_keeper(name, find) {
            return Ok(());
        }
        Err(format!(
            "the user `{KEEPER}` is reserved for the daemon's repositories, and no agent may be \
             that user; name another one"
        ))
    };
    text().checked(check).or_none()
}

/// Returns whether a user is the keeper. `find` returns the id of the user with a name.
fn is_keeper(name: &str, find: impl Fn(&str) -> Option<u32>) -> bool {
    name == KEEPER || find(name).is_some_and(|uid| find(KEEPER) == Some(uid))
}

fn preset() -> Kind<Option<Preset>> {
    words(Preset::ALL).if_set().for_example("claude")
}

fn permissions() -> Kind<Option<Permissions>> {
    let permissions = [("project", Permissions::Project), ("bypass", Permissions::Bypass)];
    words(permissions).if_set().written_as("project")
}

fn telemetry() -> Kind<Option<Telemetry>> {
    words([("off", Telemetry::Off), ("on", Telemetry::On)]).if_set().written_as("off")
}

fn prompt() -> Kind<Option<PromptVia>> {
    let prompts = [
        ("argument", PromptVia::Argument),
        ("flag", PromptVia::Argument),
        ("stdin", PromptVia::Stdin),
    ];
    words(prompts).if_set().written_as("argument")
}

/// The settings for starting agents of one `ai_type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderConfig {
    pub command_line: CommandLine,
    /// The arguments, with variables and `~/` replaced, but not yet the templates. They follow
    /// those of a preset.
    pub cli_args: Vec<String>,
    /// The arguments behind them that begin a conversation, and those that continue one.
    pub begin_args: Vec<String>,
    pub resume_args: Vec<String>,
    /// True if conversations are to be continued.
    pub continues: bool,
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

    /// Returns the settings of an `ai_type` without an entry; `None` if it is not built in.
    pub fn built_in(ai_type: &str) -> Option<Self> {
        if ai_type == EXAMPLE {
            return Some(Self::of_example());
        }
        let (_, preset) = Preset::ALL.into_iter().find(|(name, _)| *name == ai_type)?;
        Some(Self::of_preset(preset))
    }

    /// Returns the settings of the bundled agent. The shell gets the script as an argument, so that
    /// no file of it is needed.
    fn of_example() -> Self {
        let cli_args = ["-c", EXAMPLE_SCRIPT, EXAMPLE].map(str::to_owned).to_vec();
        Self { cli_args, ..Self::new("/bin/sh") }
    }

    fn of(command_line: CommandLine) -> Self {
        Self {
            command_line,
            cli_args: Vec::new(),
            begin_args: Vec::new(),
            resume_args: Vec::new(),
            continues: true,
            environment: BTreeMap::new(),
            pass_environment: PassEnvironment::default(),
            wrap: Vec::new(),
            run_as: None,
            waits_for_restart: false,
        }
    }

    fn read(mut section: Section<'_, '_>) -> Option<Self> {
        let is_preset = section.has("preset");
        if is_preset {
            section.items_of("cli_args").iter().for_each(refuse_prompt);
        } else {
            section.demand("cli_command");
        }
        let keys = ProviderKeys::read(&mut section);
        let useless: &[(&str, &str)] = if is_preset {
            &[
                ("prompt", PRESET_PROMPT),
                ("passkey_in_prompt", PRESET_PROMPT),
                ("begin_args", PRESET_CONVERSATION),
                ("resume_args", PRESET_CONVERSATION),
            ]
        } else {
            &[
                ("model", "say it in cli_args, in the words of the program"),
                ("permissions", "say it in cli_args, in the words of the program"),
                ("telemetry", "say it in cli_args or environment, in the words of the program"),
            ]
        };
        for (key, help) in useless {
            if section.span_of(key).is_some() {
                let place = if is_preset { "beside" } else { "without" };
                section.refuse(key, format!("`{key}` has no meaning {place} `preset`"), help);
            }
        }
        if !is_preset {
            check_conversation(&section, &keys);
        }
        let command_line = if is_preset {
            CommandLine::Preset {
                preset: keys.preset?,
                program: keys.cli_command,
                model: keys.model,
                permissions: keys.permissions.unwrap_or(Permissions::Project),
                telemetry: keys.telemetry.unwrap_or(Telemetry::Off),
            }
        } else {
            CommandLine::Own {
                program: keys.cli_command?,
                prompt: keys.prompt.unwrap_or(PromptVia::Argument),
                passkey_in_prompt: keys.passkey_in_prompt.unwrap_or(false),
            }
        };
        Some(Self {
            command_line,
            cli_args: keys.cli_args,
            begin_args: keys.begin_args,
            resume_args: keys.resume_args,
            continues: keys.r#continue,
            environment: keys.environment,
            pass_environment: keys.pass_environment,
            wrap: keys.wrap,
            run_as: keys.run_as,
            waits_for_restart: false,
        })
    }

    /// Returns the keys that say the same, for a comparison.
    pub(super) fn keys(&self) -> ProviderKeys {
        let keys = ProviderKeys {
            cli_args: self.cli_args.clone(),
            begin_args: self.begin_args.clone(),
            resume_args: self.resume_args.clone(),
            r#continue: self.continues,
            environment: self.environment.clone(),
            pass_environment: self.pass_environment.clone(),
            wrap: self.wrap.clone(),
            run_as: self.run_as.clone(),
            ..ProviderKeys::default()
        };
        match self.command_line.clone() {
            CommandLine::Own { program, prompt, passkey_in_prompt } => ProviderKeys {
                cli_command: Some(program),
                prompt: Some(prompt),
                passkey_in_prompt: Some(passkey_in_prompt),
                ..keys
            },
            CommandLine::Preset { preset, program, model, permissions, telemetry } => {
                ProviderKeys {
                    preset: Some(preset),
                    cli_command: program,
                    model,
                    permissions: Some(permissions),
                    telemetry: Some(telemetry),
                    ..keys
                }
            }
        }
    }
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
}

fn passed() -> Kind<PassEnvironment> {
    let name = Kind::parsed(
        "the name of an environment variable, or `*`",
        |text| is_variable_name(text.trim_end_matches('*')).then(|| text.to_owned()),
        Clone::clone,
    );
    let names = list(name).hidden();
    names.map(|names| PassEnvironment { names })
}

fn environment() -> Kind<BTreeMap<String, Secret>> {
    let read = |field: Field<'_, '_>, _: &str| Some(read_environment(field));
    Kind::new("a mapping of names to texts", read, |_| String::new()).hidden().written_as("{}")
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

/// Notes `begin_args` or `resume_args` that would never be used, because the other ones do not name
/// the conversation.
fn check_conversation(section: &Section<'_, '_>, keys: &ProviderKeys) {
    let names_it = |args: &[String]| args.iter().any(|arg| Template::Conversation.is_in(arg));
    if !keys.r#continue || names_it(&keys.cli_args) {
        return;
    }
    let begin = ("begin_args", &keys.begin_args, "[--session-id, \"{conversation}\"]");
    let resume = ("resume_args", &keys.resume_args, "[--resume, \"{conversation}\"]");
    for ((key, args, _), (other, others, example)) in [(begin, resume), (resume, begin)] {
        if !args.is_empty() && !names_it(others) {
            let message = format!("`{key}` needs `{other}` with `{{conversation}}`");
            let help = format!("add `{other}` in the words of the program, such as `{example}`");
            section.refuse(key, message, &help);
        }
    }
}

/// Notes an argument that contains the prompt although the prompt travels another way.
fn refuse_prompt(argument: &Field<'_, '_>) {
    if argument.completed().is_some_and(|text| Template::Prompt.is_in(&text)) {
        let message = "`{prompt}` has no meaning beside `preset`";
        argument.note(Problem::new(message, argument.span()).help(PRESET_PROMPT));
    }
}

/// A program and its arguments. None of them may contain the prompt, because other users can read
/// arguments.
fn wrap() -> Kind<Vec<String>> {
    let read_one = |(i, item): (usize, &Field<'_, '_>)| {
        if i == 0 {
            return read_command(item);
        }
        refuse_prompt(item);
        read_template(item)
    };
    let read = move |field: Field<'_, '_>, _: &str| {
        let items: Vec<_> = field.list()?.iter().enumerate().map(read_one).collect();
        items.into_iter().collect()
    };
    Kind::new("a list of a program and its arguments", read, |_| String::new())
        .hidden()
        .written_as("[]")
}

fn template() -> Kind<String> {
    Kind::new("a text", |field, _| read_template(&field), Clone::clone)
}

fn command() -> Kind<String> {
    Kind::new("the name or the path of a program", |field, _| read_command(&field), Clone::clone)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keeper_is_known_by_all_its_names() {
        let find = |name: &str| match name {
            KEEPER | "alias" => Some(990),
            "ann" => Some(1000),
            _ => None,
        };
        assert!(is_keeper("alias", find) && !is_keeper("ann", find) && !is_keeper("bob", find));
        // Without the account, its name is reserved, too.
        let find = |name: &str| (name == "ann").then_some(1000);
        assert!(is_keeper(KEEPER, find) && !is_keeper("ann", find) && !is_keeper("bob", find));
    }
}
