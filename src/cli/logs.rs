//! `logs` prints the output of an agent. On a terminal it puts an agent CLI's machine-readable
//! output into words. Elsewhere, and with `--raw`, it prints the output unchanged.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use super::Pair;
use super::activity::used;
use super::client::Client;
use super::error::CliError;
use super::follow::{Following, say};
use super::status::in_words as hint_in_words;
use api::activity::UsageBody;
use api::launches::{LaunchBody, OUTPUT_IS, TAIL};
use domain::{Failure, LaunchId, OutputFact, printable};
use supervisor::provider::output::{Lines, recognise};

#[derive(Debug, clap::Args)]
pub(super) struct LogsArguments {
    #[command(flatten)]
    pair: Pair,
    /// Follow the output until the agent has ended, also after a restart of the daemon
    #[arg(short, long)]
    follow: bool,
    /// Print this launch instead of the newest
    #[arg(long, value_name = "ID")]
    launch: Option<LaunchId>,
    /// Print the output unchanged, also on a terminal
    #[arg(long)]
    raw: bool,
    /// Put the JSON of agent CLIs into words, also if the output is not a terminal
    #[arg(long, conflicts_with = "raw")]
    readable: bool,
}

impl LogsArguments {
    pub(super) async fn print(&self, client: &Client) -> Result<(), CliError> {
        let Pair { agent, project, purpose } = &self.pair;
        let agent = &agent.id(client).await?;
        let project = &project.id(client).await?;
        let launch = if let Some(launch) = &self.launch {
            let found: LaunchBody = client.get(&format!("/launches/{launch}")).await?;
            if found.agent_id != *agent || found.project_id != *project {
                let agent = found.agent_id;
                let project = found.project_id;
                return Err(CliError::Failed(format!(
                    "launch {launch} is one of {agent} in {project}"
                )));
            }
            launch.clone()
        } else {
            let purpose = purpose.map(|purpose| format!("&purpose={purpose}")).unwrap_or_default();
            let query = format!("/launches?agent={agent}&project={project}&limit=1{purpose}");
            let newest: Vec<LaunchBody> = client.get(&query).await?;
            let newest = newest.into_iter().next();
            newest
                .ok_or_else(|| {
                    CliError::Failed(format!("{agent} has not been started in {project}"))
                })?
                .launch_id
        };
        let printer = Printer::new(self.raw, self.readable);
        let is_tail = Output { launch: &launch, printer }.print(client, self.follow).await?;
        // The hints go to standard error, because the output may go into a program.
        let launch: LaunchBody = client.get(&format!("/launches/{launch}")).await?;
        for hint in launch.exit_hints {
            say(&format!("the last output of this agent: {}", hint_in_words(hint)));
        }
        if is_tail {
            say("this is the end of it; the whole output is on its coordinator's host");
        }
        Ok(())
    }
}

/// Prints the output of a launch until it has ended.
pub(super) async fn follow(client: &Client, launch: &LaunchId) -> Result<(), CliError> {
    let printer = Printer::new(false, false);
    Output { launch, printer }.print(client, true).await.map(drop)
}

/// The output of one launch, and how it is printed.
struct Output<'a> {
    launch: &'a LaunchId,
    printer: Printer,
}

impl Output<'_> {
    /// Prints the output; with `follow`, until the launch has ended, also after restarts of the
    /// daemon. Returns whether the output is only the end of it.
    async fn print(mut self, client: &Client, follow: bool) -> Result<bool, CliError> {
        let path = format!("/launches/{}/output?follow={follow}", self.launch);
        let mut following = Following::new();
        let is_tail = loop {
            match self.print_once(client, &path, &mut following).await {
                Ok(is_tail) if is_tail || !follow || self.has_ended(client).await? => {
                    break is_tail;
                }
                // The launch may end a moment after its output. The next attempt finds out whether
                // the daemon is away.
                Ok(_) => tokio::time::sleep(LOOK_AGAIN).await,
                Err(error) => {
                    if !follow {
                        return Err(error);
                    }
                    following.lost(error).await?;
                }
            }
        };
        self.printer.finish()?;
        Ok(is_tail)
    }

    /// Prints the part of the output that is not printed yet, until the stream ends. Each stream
    /// begins with the oldest output that is kept.
    async fn print_once(
        &mut self,
        client: &Client,
        path: &str,
        following: &mut Following,
    ) -> Result<bool, CliError> {
        let mut n_skipped = 0;
        if self.printer.printed.n > 0 {
            let kept = format!("/launches/{}/output", self.launch);
            let mut text = Vec::new();
            client
                .stream(&kept, |piece| {
                    text.extend_from_slice(piece);
                    Ok(())
                })
                .await?;
            n_skipped = self.printer.printed.position_in(&text).unwrap_or_else(|| {
                say("the output was rotated; printing all that is kept");
                0
            });
        }
        let mut stream = client.open(path).await?;
        following.connected();
        let is_tail = stream.headers.get(OUTPUT_IS).is_some_and(|what| what == TAIL);
        while let Some(piece) = stream.next().await? {
            let n = n_skipped.min(piece.len());
            n_skipped -= n;
            self.printer.print(&piece[n..])?;
        }
        Ok(is_tail)
    }

    /// Returns whether the launch has ended. A daemon that is away does not know.
    async fn has_ended(&self, client: &Client) -> Result<bool, CliError> {
        match client.get::<LaunchBody>(&format!("/launches/{}", self.launch)).await {
            Ok(launch) => Ok(launch.ended_at.is_some()),
            Err(error) if error.is_absence() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The number of bytes by which a follower finds its place again.
const N_REMEMBERED: usize = 4096;
/// The time between the end of the output and a look whether its launch has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The output that a follower has printed.
#[derive(Debug, Default)]
struct Printed {
    n: usize,
    /// The last [`N_REMEMBERED`] bytes.
    end: Vec<u8>,
}

impl Printed {
    fn add(&mut self, piece: &[u8]) {
        self.n += piece.len();
        self.end.extend_from_slice(piece);
        let n_old = self.end.len().saturating_sub(N_REMEMBERED);
        self.end.drain(..n_old);
    }

    /// Returns the number of bytes of `kept` that are printed already. If its beginning was rotated
    /// away, the last printed bytes show the place. Returns `None` if they are not kept either.
    fn position_in(&self, kept: &[u8]) -> Option<usize> {
        if kept.get(..self.n).is_some_and(|printed| printed.ends_with(&self.end)) {
            return Some(self.n);
        }
        let mut places = kept.windows(self.end.len().max(1));
        places.position(|place| place == self.end).map(|begin| begin + self.end.len())
    }
}

/// Prints output in its form.
struct Printer {
    shown: OutputForm,
    printed: Printed,
}

impl Printer {
    fn new(raw: bool, readable: bool) -> Self {
        let shown = match (io::stdout().is_terminal(), raw, readable) {
            (_, _, true) | (true, false, _) => OutputForm::InWords(Lines::default()),
            (true, true, false) => OutputForm::Printable(ForTerminal::default()),
            (false, _, false) => OutputForm::AsPrinted,
        };
        Self { shown, printed: Printed::default() }
    }

    fn print(&mut self, piece: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        match &mut self.shown {
            OutputForm::InWords(lines) => {
                stdout.write_all(in_words(|words| lines.push(piece, words)).as_bytes())?;
            }
            OutputForm::Printable(for_terminal) => {
                stdout.write_all(for_terminal.shown(piece).as_bytes())?;
            }
            OutputForm::AsPrinted => stdout.write_all(piece)?,
        }
        self.printed.add(piece);
        stdout.flush()
    }

    /// Prints a last line that has no end.
    fn finish(self) -> io::Result<()> {
        match self.shown {
            OutputForm::InWords(mut lines) => {
                io::stdout().write_all(in_words(|words| lines.finish(words)).as_bytes())
            }
            OutputForm::Printable(_) | OutputForm::AsPrinted => Ok(()),
        }
    }
}

/// The form in which output is printed.
enum OutputForm {
    /// Puts the machine-readable output of agent CLIs into words.
    InWords(Lines),
    /// Prints the output without the characters that a terminal must not get.
    Printable(ForTerminal),
    AsPrinted,
}

/// Returns the lines that `read` hands over, in words.
fn in_words(read: impl FnOnce(&mut dyn FnMut(&str))) -> String {
    let mut text = String::new();
    read(&mut |line| {
        text.push_str(&readable(line));
    });
    text
}

/// Returns a line of an agent CLI as lines for a person, perhaps none. Any other line is unchanged.
fn readable(line: &str) -> String {
    let Some(facts) = recognise(line, None) else {
        return printable::line(line).into_owned() + "\n";
    };
    facts.into_iter().filter_map(words).fold(String::new(), |text, words| text + &words + "\n")
}

fn words(fact: OutputFact) -> Option<String> {
    match fact {
        OutputFact::Did(text) => Some(text),
        OutputFact::Got(text) => Some(format!("  > {text}")),
        OutputFact::Failed(Failure { class, resets_at: Some(at) }) => {
            Some(format!("! {class} until {at}"))
        }
        OutputFact::Failed(Failure { class, resets_at: None }) => Some(format!("! {class}")),
        OutputFact::Total { totals, .. } => {
            Some(format!("= {}", used(UsageBody::of(totals.of_new_conversation()).as_ref())))
        }
        OutputFact::Conversation(_)
        | OutputFact::Printed(_)
        | OutputFact::Step { .. }
        | OutputFact::LoginRefused
        | OutputFact::Recovered => None,
    }
}

/// Cleans output for a terminal. The shim has cleaned it already, but the agent could write to
/// the file.
#[derive(Default)]
struct ForTerminal {
    /// The first bytes of a character whose end is in the next piece.
    incomplete: Vec<u8>,
}

impl ForTerminal {
    fn shown(&mut self, piece: &[u8]) -> String {
        self.incomplete.extend_from_slice(piece);
        let n_complete = match std::str::from_utf8(&self.incomplete) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Ok(_) | Err(_) => self.incomplete.len(),
        };
        let complete: Vec<u8> = self.incomplete.drain(..n_complete).collect();
        printable::lines(&String::from_utf8_lossy(&complete)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_cli_is_put_into_words_and_others_are_left() {
        let call = r#"{"type":"assistant","session_id":"s","message":{"id":"m","content":[
            {"type":"text","text":"Now the\n tests."},{"type":"tool_use","name":"Bash","input":{"command":"cargo test"}}]}}"#;
        assert_eq!(readable(&call.replace('\n', "")), "Now the tests.\nBash: cargo test\n");
        assert_eq!(readable(r#"{"type":"thread.started","thread_id":"t"}"#), "");
        for other in ["", "plain", r#"{"a":1}"#, r#"{"type":"other"}"#] {
            assert_eq!(readable(other), format!("{other}\n"));
        }
    }

    #[test]
    fn a_follower_finds_its_place_again() {
        let mut printed = Printed::default();
        assert_eq!(printed.position_in(b"all"), Some(0));
        printed.add(b"one\ntwo\n");
        assert_eq!(printed.position_in(b"one\ntwo\nthree\n"), Some(8));
        assert_eq!(printed.position_in(b"one\ntwo\n"), Some(8));
        assert_eq!(printed.position_in(b"three\n"), None);
        let many = (0..2000).fold(String::new(), |text, n| text + &format!("{n}\n"));
        printed.add(many.as_bytes());
        assert_eq!(printed.end.len(), N_REMEMBERED);
        let kept = &many.as_bytes()[many.len() - 5000..];
        assert_eq!(printed.position_in(kept), Some(5000));
        assert_eq!(printed.position_in(&kept[1500..]), None);
    }

    #[test]
    fn a_character_between_two_pieces_is_shown_and_a_sequence_is_not() {
        let text = "日\u{1b}[31m\n\u{202e}é".as_bytes();
        for at in 0..text.len() {
            let mut for_terminal = ForTerminal::default();
            let shown = for_terminal.shown(&text[..at]) + &for_terminal.shown(&text[at..]);
            assert_eq!(shown, "日 [31m\n é");
        }
    }
}
