//! `complete`: what a word of a command line may become, for the scripts that `completions` prints.
//! It asks the daemon where the word names an agent, a project, a task, or has an id. It never
//! prints an error: its output would stand in the prompt of a shell.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, Command};
use serde::de::DeserializeOwned;

use super::client::{Client, encoded};
use super::error::CliError;
use super::named::Named;
use super::output::plain;
use super::{exit_codes, find_daemon};
use api::attention::AttentionBody;
use api::credentials::CredentialBody;
use api::launches::LaunchBody;
use api::lookup::CompletionBody;
use api::sessions::SessionBody;
use config::Environment;
use domain::lookup::LookupKind;
use domain::{AgentId, AttentionId, CredentialId, LaunchId, ProjectId, SessionId, TaskId};

/// The time that a shell waits for names. A person notices a longer one.
const PATIENCE: Duration = Duration::from_millis(200);
/// The exit code if the word names nothing of the daemon. The script then completes it by itself.
const EXIT_OTHER: u8 = 1;

/// The shells whose scripts ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum AskingShell {
    /// Prints the words as bash writes them, quoted
    Bash,
    /// Prints the words with descriptions; the shell quotes them
    Zsh,
    /// Prints the words with descriptions; the shell quotes them
    Fish,
}

#[derive(Debug, clap::Args)]
pub(super) struct CompleteArguments {
    /// The shell
    shell: AskingShell,
    /// The place of the word in the command line; the program has the place 0
    place: usize,
    /// The words of the command line, as they were typed
    #[arg(last = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl CompleteArguments {
    /// Prints the words.
    ///
    /// # Errors
    /// `Result` if the word names nothing of the daemon.
    pub(super) fn print(self, environment: &Environment) -> Result<(), CliError> {
        let line = Line::new(self.words, self.place);
        let Some(typed) = Typed::of(&exit_codes::command(), &line) else {
            return Err(CliError::Result(EXIT_OTHER));
        };
        let found = find(&typed, environment).unwrap_or_default();
        let lines = typed.subcommands.iter().map(|name| (name.as_str(), ""));
        let lines = lines.chain(found.iter().map(|each| (each.text.as_str(), each.name.as_str())));
        // Fish completes the value of `--option=value` by itself.
        let before = if self.shell == AskingShell::Fish { "" } else { typed.before.as_str() };
        for (text, name) in lines {
            let word = format!("{before}{text}");
            let line = match self.shell {
                AskingShell::Bash => quoted(&word, typed.quote),
                AskingShell::Zsh | AskingShell::Fish if name.is_empty() || name == text => word,
                AskingShell::Zsh | AskingShell::Fish => format!("{word}\t{}", plain(name)),
            };
            writeln!(io::stdout(), "{line}")?;
        }
        Ok(())
    }
}

/// Asks the daemon. Returns `None` if no daemon answers in time.
fn find(typed: &Typed, environment: &Environment) -> Option<Vec<CompletionBody>> {
    let paths = find_daemon(typed.config.as_deref(), environment).ok()?;
    let client = Client::new(paths.control_socket(), paths.coordinator_socket());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let asked = typed.kind.find(&client, &typed.text);
    runtime.block_on(async { tokio::time::timeout(PATIENCE, asked).await.ok()?.ok() })
}

/// The kinds of things that a word may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A thing with a name or a short id, which the daemon looks up.
    Named(LookupKind),
    Launch,
    Session,
    Token,
    /// An entry of the inbox.
    Entry,
}

impl Kind {
    /// Returns what `text` may become.
    async fn find(self, client: &Client, text: &str) -> Result<Vec<CompletionBody>, CliError> {
        let mut found = match self {
            Self::Named(kind) => {
                let path = format!("/completions?kind={kind}&text={}", encoded(text));
                return client.get(&path).await;
            }
            Self::Launch => {
                let name = |each: &LaunchBody| pair(&each.agent_id, &each.project_id);
                ids_of(client, "/launches?limit=100", |each| &each.launch_id, name).await?
            }
            Self::Session => {
                let name = |each: &SessionBody| pair(&each.agent_id, &each.project_id);
                ids_of(client, "/sessions", |each| &each.id, name).await?
            }
            Self::Token => {
                let name = |each: &CredentialBody| each.name.clone();
                ids_of(client, "/tokens", |each| &each.id, name).await?
            }
            Self::Entry => {
                let name = |each: &AttentionBody| each.title.clone();
                ids_of(client, "/attention", |each| &each.id, name).await?
            }
        };
        found.retain(|each| each.text.starts_with(text));
        Ok(found)
    }
}

/// Returns the ids of the things that a path lists, with their names.
async fn ids_of<T: DeserializeOwned, Id: ToString>(
    client: &Client,
    path: &str,
    id: impl Fn(&T) -> &Id,
    name: impl Fn(&T) -> String,
) -> Result<Vec<CompletionBody>, CliError> {
    let all: Vec<T> = client.get(path).await?;
    Ok(all
        .iter()
        .map(|each| CompletionBody { text: id(each).to_string(), name: name(each) })
        .collect())
}

fn pair(agent: &AgentId, project: &ProjectId) -> String {
    format!("{agent} in {project}")
}

/// A command line up to the word that is completed.
#[derive(Debug)]
struct Line {
    /// The words as they were typed. The last one is completed.
    words: Vec<String>,
    /// The shell takes the value of `--option=value` for a word of its own, as bash does.
    is_divided: bool,
}

impl Line {
    fn new(words: Vec<String>, place: usize) -> Self {
        let mut line = Self { words: Vec::with_capacity(words.len()), is_divided: false };
        let mut follows_equals = false;
        for word in words.into_iter().take(place.saturating_add(1)) {
            let is_equals = word == "=" && line.words.last().is_some_and(|it| it.starts_with("--"));
            line.is_divided = is_equals || follows_equals;
            match line.words.last_mut().filter(|_| is_equals || follows_equals) {
                Some(option) => option.push_str(&word),
                None => line.words.push(word),
            }
            follows_equals = is_equals;
        }
        line
    }
}

/// A word that names something of the daemon.
#[derive(Debug, PartialEq, Eq)]
struct Typed {
    kind: Kind,
    /// The beginning of the name, without its quotes.
    text: String,
    /// The quotation mark that is open.
    quote: Option<char>,
    /// The part of the word before the name, such as `--project=`.
    before: String,
    /// The subcommands that the word may be instead.
    subcommands: Vec<String>,
    /// The configuration that names the daemon.
    config: Option<PathBuf>,
}

impl Typed {
    /// Returns the last word of a command line, if it names something of the daemon.
    fn of(root: &Command, line: &Line) -> Option<Self> {
        let (last, earlier) = line.words.split_last()?;
        let mut reader = Reader::new(root);
        for word in earlier.iter().skip(1) {
            reader.read(&unquoted(word).0);
        }
        let (text, quote) = unquoted(last);
        let mut typed = Self {
            kind: Kind::Named(LookupKind::Task),
            text,
            quote,
            before: String::new(),
            subcommands: Vec::new(),
            config: reader.config.clone(),
        };
        let arg = if let Some(option) = reader.open_option {
            option
        } else if typed.text.starts_with("--") && !reader.is_after_options {
            let (name, value) = typed.text.split_once('=')?;
            let option = reader.option(|arg| arg.get_long() == Some(&name[2..]))?;
            let value = value.to_owned();
            if !line.is_divided {
                typed.before = format!("{name}=");
            }
            typed.text = value;
            option
        } else if typed.text.starts_with('-') && !reader.is_after_options {
            return None;
        } else {
            if reader.n_positionals == 0 {
                let names = reader.command.get_subcommands().filter(|it| !it.is_hide_set());
                let names = names.map(|command| command.get_name().to_owned());
                typed.subcommands = names.filter(|name| name.starts_with(&typed.text)).collect();
            }
            reader.positional()?
        };
        typed.kind = kind_of(arg)?;
        Some(typed)
    }
}

/// Follows a command line word by word.
struct Reader<'a> {
    root: &'a Command,
    command: &'a Command,
    /// The option whose value is the next word.
    open_option: Option<&'a Arg>,
    /// `--` was read, and no option follows.
    is_after_options: bool,
    n_positionals: usize,
    config: Option<PathBuf>,
}

impl<'a> Reader<'a> {
    fn new(root: &'a Command) -> Self {
        Self {
            root,
            command: root,
            open_option: None,
            is_after_options: false,
            n_positionals: 0,
            config: None,
        }
    }

    fn read(&mut self, word: &str) {
        if let Some(option) = self.open_option.take() {
            self.note(option, word);
        } else if self.is_after_options {
            self.n_positionals += 1;
        } else if word == "--" {
            self.is_after_options = true;
        } else if let Some(long) = word.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
            let option = self.option(|arg| arg.get_long() == Some(name));
            match (option, value) {
                (Some(option), Some(value)) => self.note(option, value),
                (option, None) => self.open_option = option,
                (None, Some(_)) => {}
            }
        } else if word.starts_with('-') && word.len() > 1 {
            // In `-fx VALUE`, the last letter may have the value.
            self.open_option = self.option(|arg| arg.get_short() == word.chars().last());
        } else if let Some(command) =
            self.command.find_subcommand(word).filter(|_| self.n_positionals == 0)
        {
            self.command = command;
        } else {
            self.n_positionals += 1;
        }
    }

    fn note(&mut self, option: &Arg, value: &str) {
        if option.get_long() == Some("config") {
            self.config = Some(PathBuf::from(value));
        }
    }

    /// Returns the option with a value that fits. The options of the program are also those of each
    /// command.
    fn option(&self, fits: impl Fn(&Arg) -> bool) -> Option<&'a Arg> {
        let options = self.command.get_opts().chain(self.root.get_opts());
        options.filter(|arg| arg.get_action().takes_values()).find(|arg| fits(arg))
    }

    /// Returns the next argument without a name.
    fn positional(&self) -> Option<&'a Arg> {
        let mut positionals = self.command.get_positionals();
        let is_repeated = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Append);
        let next = positionals.nth(self.n_positionals);
        next.or_else(|| self.command.get_positionals().last().filter(is_repeated))
    }
}

/// Returns what the value of an argument names, by its type.
fn kind_of(arg: &Arg) -> Option<Kind> {
    let kinds: [(ValueParser, Kind); 7] = [
        (clap::value_parser!(Named<AgentId>).into(), Kind::Named(LookupKind::Agent)),
        (clap::value_parser!(Named<ProjectId>).into(), Kind::Named(LookupKind::Project)),
        (clap::value_parser!(Named<TaskId>).into(), Kind::Named(LookupKind::Task)),
        (clap::value_parser!(LaunchId).into(), Kind::Launch),
        (clap::value_parser!(SessionId).into(), Kind::Session),
        (clap::value_parser!(CredentialId).into(), Kind::Token),
        (clap::value_parser!(AttentionId).into(), Kind::Entry),
    ];
    let wanted = arg.get_value_parser().type_id();
    kinds.into_iter().find(|(parser, _)| parser.type_id() == wanted).map(|(_, kind)| kind)
}

/// Returns a word without the quotes of the shell, and the quotation mark that is still open.
fn unquoted(word: &str) -> (String, Option<char>) {
    let mut text = String::with_capacity(word.len());
    let mut open = None;
    let mut letters = word.chars();
    while let Some(letter) = letters.next() {
        match (open, letter) {
            (None, '\'' | '"') => open = Some(letter),
            (Some(quote), _) if letter == quote => open = None,
            (None | Some('"'), '\\') => text.extend(letters.next()),
            _ => text.push(letter),
        }
    }
    (text, open)
}

/// Quotes a word for bash, inside of the quotation mark that is open.
fn quoted(word: &str, open: Option<char>) -> String {
    let mut quoted = String::with_capacity(word.len());
    for letter in word.chars() {
        let is_special = match open {
            Some('\'') => {
                quoted.push_str(if letter == '\'' { "'\\'" } else { "" });
                false
            }
            Some(_) => "\"\\$`!".contains(letter),
            // Bash begins a word after `:` and `=`.
            None => {
                letter.is_ascii() && !letter.is_ascii_alphanumeric() && !"-_./@%+,".contains(letter)
            }
        };
        if is_special {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the last word of a line that is divided at blanks.
    fn typed(line: &str) -> Option<Typed> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let place = words.len() - 1;
        Typed::of(&exit_codes::command(), &Line::new(words, place))
    }

    impl From<LookupKind> for Kind {
        fn from(kind: LookupKind) -> Self {
            Self::Named(kind)
        }
    }

    #[track_caller]
    fn check(line: &str, kind: impl Into<Kind>, text: &str) -> Typed {
        let typed = typed(line).unwrap_or_else(|| panic!("`{line}` names nothing"));
        let kind = kind.into();
        assert_eq!((typed.kind, typed.text.as_str()), (kind, text), "{line}");
        typed
    }

    #[test]
    fn arguments_that_name_things_are_found() {
        check("ac why ", LookupKind::Agent, "");
        check("ac why ada ", LookupKind::Project, "");
        check("ac --config f why --purpose task ada sh", LookupKind::Project, "sh");
        check("ac logs -f a", LookupKind::Agent, "a");
        check("ac task wait SHOP-1 SHOP-2 S", LookupKind::Task, "S");
        check("ac task add --title t --project ", LookupKind::Project, "");
        check("ac task add --depends-on SHOP-1 --depends-on S", LookupKind::Task, "S");
        check("ac why -- a", LookupKind::Agent, "a");
        check("ac logs ada shop --launch lch", Kind::Launch, "lch");
        check("ac inbox done ", Kind::Entry, "");
        check("ac session end ses", Kind::Session, "ses");
        check("ac token revoke ", Kind::Token, "");
        check("ac why \"Ada", LookupKind::Agent, "Ada");
        for other in ["ac ", "ac why a b ", "ac task add --title ", "ac why -", "ac init --agent "]
        {
            assert_eq!(typed(other), None, "{other}");
        }
        let config = check("ac task show --config dir/c.yaml ", LookupKind::Task, "").config;
        assert_eq!(config, Some(PathBuf::from("dir/c.yaml")));
    }

    #[test]
    fn a_value_after_an_equals_sign_is_found_in_each_shell() {
        let whole = check("ac status --project=Sh", LookupKind::Project, "Sh");
        assert_eq!(whole.before, "--project=");
        let divided = check("ac status --project = Sh", LookupKind::Project, "Sh");
        assert_eq!(divided.before, "");
        assert_eq!(check("ac status --project =", LookupKind::Project, "").before, "");
        let earlier = check("ac task list --project = Shop --assignee ", LookupKind::Agent, "");
        assert_eq!(earlier.before, "");
    }

    #[test]
    fn a_word_may_be_a_subcommand_as_well() {
        let chat = check("ac chat s", LookupKind::Agent, "s");
        assert_eq!(chat.subcommands, ["start", "send", "show"]);
        assert!(check("ac chat ada s", LookupKind::Project, "s").subcommands.is_empty());
    }

    #[test]
    fn words_are_quoted_as_bash_reads_them() {
        assert_eq!(quoted("Ada Lovelace 決済 $x", None), r"Ada\ Lovelace\ 決済\ \$x");
        assert_eq!(quoted("a:b=c", None), r"a\:b\=c");
        assert_eq!(quoted("Ada \"$x\"", Some('"')), r#"Ada \"\$x\""#);
        assert_eq!(quoted("it's", Some('\'')), r"it'\''s");
        for (word, text, open) in [
            (r"Ada\ Lo", "Ada Lo", None),
            ("\"Ada Lo", "Ada Lo", Some('"')),
            ("'it", "it", Some('\'')),
            ("'it'\\''s'", "it's", None),
        ] {
            assert_eq!(unquoted(word), (text.to_owned(), open), "{word}");
        }
    }
}
