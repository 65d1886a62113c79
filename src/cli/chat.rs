//! `chat`: people talk with an agent in a project.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{self, IsTerminal as _, Write as _};

use clap::Subcommand;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::client::Client;
use super::error::CliError;
use super::named::Named;
use super::output::{Form, plain, print_json, print_json_line, print_line};
use api::chat::{ChatBody, MessageBody, MessageRequest, MessagesBody};
use api::why::WhyBody;
use domain::printable::is_unprintable;
use domain::start_history::StartReason;
use domain::{AgentId, MessageId, ProjectId, Purpose};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct ChatArguments {
    #[command(subcommand)]
    command: Option<ChatCommand>,
    #[command(flatten)]
    chat: Option<NamedChat>,
}

/// The arguments that name a chat.
#[derive(Debug, Clone, clap::Args)]
struct NamedChat {
    /// Agent: its id, its name, or the beginning of its id
    agent: Named<AgentId>,
    /// Project: its id, its key, its name, or the beginning of its id
    project: Named<ProjectId>,
}

/// The two sides of a chat.
#[derive(Debug, Clone)]
struct Chat {
    agent: AgentId,
    project: ProjectId,
}

impl NamedChat {
    async fn find(&self, client: &Client) -> Result<Chat, CliError> {
        let agent = self.agent.id(client).await?;
        Ok(Chat { agent, project: self.project.id(client).await? })
    }
}

#[derive(Debug, Subcommand)]
enum ChatCommand {
    /// Open a chat, and start its agent if it does not run
    Start {
        #[command(flatten)]
        chat: NamedChat,
        #[command(flatten)]
        form: Form,
    },
    /// End a chat together with its agent
    End {
        #[command(flatten)]
        chat: NamedChat,
        #[command(flatten)]
        form: Form,
    },
    /// Send a message, and start the agent if it does not run
    Send {
        #[command(flatten)]
        chat: NamedChat,
        /// The message; `-` reads it from standard input
        #[arg(allow_hyphen_values = true)]
        content: String,
        /// Wait for the answer and print it; then the chat ends, unless others view it
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        form: Form,
    },
    /// Print the messages
    Show {
        #[command(flatten)]
        chat: NamedChat,
        /// Print only messages after this one
        #[arg(long, value_name = "ID")]
        after: Option<MessageId>,
        /// The largest number of messages: 1 to 200
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=200))]
        limit: u16,
        #[command(flatten)]
        form: Form,
    },
    /// Print messages as they arrive, until interrupted; with --json, one line for each message
    Follow {
        #[command(flatten)]
        chat: NamedChat,
        /// Begin after this message instead of after the newest
        #[arg(long, value_name = "ID")]
        after: Option<MessageId>,
        #[command(flatten)]
        form: Form,
    },
}

/// The time that the daemon holds a request for new messages, in seconds.
const HOLD: u64 = 30;

/// The way in which a request reads messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// It is answered at once.
    Now,
    /// It waits for a message.
    Held,
    /// It waits for a message, and is an open view of the chat, which ends after its last view.
    Attending,
}

/// The state of a chat after its next messages were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The agent has answered all messages.
    Answered,
    /// There are more messages, or the agent has still to answer.
    Open,
    /// The chat has ended before the agent answered.
    Over,
}

impl Standing {
    const fn of(found: &MessagesBody) -> Self {
        match (found.next_cursor.is_some(), found.is_answered, found.is_over) {
            (false, true, _) => Self::Answered,
            (false, false, true) => Self::Over,
            (true, ..) | (false, false, false) => Self::Open,
        }
    }
}

/// The number of earlier messages that are shown when a chat is opened.
const N_EARLIER: u16 = 10;

impl ChatArguments {
    pub(super) async fn run(self, client: &Client) -> Result<(), CliError> {
        match (self.command, self.chat) {
            (Some(command), _) => command.run(client).await,
            (None, Some(chat)) => chat.find(client).await?.talk(client).await,
            (None, None) => {
                Err(CliError::Usage("expected AGENT and PROJECT, or a command".to_owned()))
            }
        }
    }
}

impl ChatCommand {
    async fn run(self, client: &Client) -> Result<(), CliError> {
        match self {
            Self::Start { chat, form } => {
                let chat = chat.find(client).await?;
                let opened: ChatBody = client.post(&chat.path("start"), &()).await?;
                if form.json {
                    print_json(&opened)
                } else {
                    print_line(&format!("the chat with {} in {} is open", chat.agent, chat.project))
                }
            }
            Self::End { chat, form } => {
                let chat = chat.find(client).await?;
                let closed: ChatBody = client.post(&chat.path("end"), &()).await?;
                if form.json {
                    print_json(&closed)
                } else {
                    print_line(&format!(
                        "the chat with {} in {} is closed",
                        chat.agent, chat.project
                    ))
                }
            }
            Self::Send { chat, content, wait, form } => {
                let chat = chat.find(client).await?;
                let content =
                    if content == "-" { io::read_to_string(io::stdin())? } else { content };
                let said = chat.say(client, new_id(), content).await?;
                if wait {
                    let mut answers = Vec::new();
                    let waited = chat.wait_for_answers(client, said.id, &mut answers).await;
                    if waited.is_ok() || !answers.is_empty() {
                        if form.json {
                            print_json(&answers)?;
                        } else {
                            answers.iter().try_for_each(print_message)?;
                        }
                    }
                    return waited;
                }
                if form.json { print_json(&said) } else { print_line(said.id.as_str()) }
            }
            Self::Show { chat, after, limit, form } => {
                let chat = chat.find(client).await?;
                let found = chat.read(client, after.as_ref(), limit, Reading::Now).await?;
                if form.json {
                    return print_json(&found);
                }
                found.messages.iter().try_for_each(print_message)
            }
            Self::Follow { chat, after, form } => {
                let chat = chat.find(client).await?;
                let after = match after {
                    Some(after) => Some(after),
                    None => chat
                        .read(client, None, 1, Reading::Now)
                        .await?
                        .messages
                        .pop()
                        .map(|message| message.id),
                };
                let print = if form.json {
                    |message: &MessageBody| print_json_line(message)
                } else {
                    print_message
                };
                chat.follow(client, after, print).await
            }
        }
    }
}

impl Chat {
    fn path(&self, what: &str) -> String {
        format!("/projects/{}/agents/{}/chat/{what}", self.project, self.agent)
    }

    async fn say(
        &self,
        client: &Client,
        id: MessageId,
        content: String,
    ) -> Result<MessageBody, CliError> {
        client.post(&self.path("messages"), &MessageRequest { id: Some(id), content }).await
    }

    /// Returns the messages after one, or the newest.
    async fn read(
        &self,
        client: &Client,
        after: Option<&MessageId>,
        limit: u16,
        reading: Reading,
    ) -> Result<MessagesBody, CliError> {
        let after = after.map(|after| format!("&after={after}")).unwrap_or_default();
        let wait = if reading == Reading::Now { 0 } else { HOLD };
        let attend = if reading == Reading::Attending { "&attend=true" } else { "" };
        client.get(&self.path(&format!("messages?limit={limit}&wait={wait}{attend}{after}"))).await
    }

    /// Waits until the agent has answered all messages, and views the chat until then. `answers`
    /// gets the messages of the agent after one message, also those before an error.
    async fn wait_for_answers(
        &self,
        client: &Client,
        said: MessageId,
        answers: &mut Vec<MessageBody>,
    ) -> Result<(), CliError> {
        let mut after = said;
        loop {
            let found = self.read(client, Some(&after), 200, Reading::Attending).await?;
            if let Some(newest) = found.messages.last() {
                after = newest.id.clone();
            }
            let standing = Standing::of(&found);
            let is_answer = |message: &MessageBody| message.sender_id == self.agent.as_str();
            answers.extend(found.messages.into_iter().filter(is_answer));
            if standing == Standing::Answered {
                return Ok(());
            }
            self.check_goes_on(client, standing).await?;
        }
    }

    /// Checks that an unanswered chat goes on.
    ///
    /// # Errors
    /// It was ended, or its agent cannot be started before a person does something.
    async fn check_goes_on(&self, client: &Client, standing: Standing) -> Result<(), CliError> {
        let Self { agent, project } = self;
        let mut all: Vec<WhyBody> =
            client.get(&format!("/projects/{project}/agents/{agent}/why")).await?;
        all.retain(|why| why.purpose == Purpose::Chat);
        let text = match all.pop() {
            _ if standing == Standing::Over => "the chat has ended".to_owned(),
            Some(WhyBody { waiting: Some(waiting), .. }) if waiting.needs_person => waiting.text,
            Some(WhyBody { reason: StartReason::NoWork, .. }) => "the chat has ended".to_owned(),
            _ => return Ok(()),
        };
        Err(CliError::Failed(format!("{agent} in {project} does not answer: {text}")))
    }

    /// Prints new messages after one message, without end.
    async fn follow(
        &self,
        client: &Client,
        mut after: Option<MessageId>,
        mut print: impl FnMut(&MessageBody) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        loop {
            let found = self.read(client, after.as_ref(), 200, Reading::Held).await?;
            found.messages.iter().try_for_each(&mut print)?;
            after = found.messages.into_iter().next_back().map(|message| message.id).or(after);
        }
    }

    /// Holds a conversation. It sends lines from standard input and prints the messages of others.
    /// After the end of the input it stays until the agent has answered. Then the chat ends, unless
    /// another person views it.
    async fn talk(&self, client: &Client) -> Result<(), CliError> {
        let _: ChatBody = client.post(&self.path("start"), &()).await?;
        let earlier = self.read(client, None, N_EARLIER, Reading::Now).await?;
        earlier.messages.iter().try_for_each(print_message)?;
        if io::stdin().is_terminal() {
            eprintln!(
                "The agent is being started. Each line is a message; Ctrl-D leaves, and ends the \
                 chat after the answer."
            );
        }
        let after = RefCell::new(earlier.messages.into_iter().next_back().map(|it| it.id));
        let own = RefCell::new(HashSet::new());
        // Prints the next messages of others.
        let show = async |reading| {
            let seen = after.borrow().clone();
            let found = self.read(client, seen.as_ref(), 200, reading).await?;
            let of_others = found.messages.iter().filter(|it| !own.borrow().contains(&it.id));
            of_others.into_iter().try_for_each(print_message)?;
            if let Some(newest) = found.messages.last() {
                after.replace(Some(newest.id.clone()));
            }
            Ok::<Standing, CliError>(Standing::of(&found))
        };
        let say_all = async {
            let mut lines = BufReader::new(tokio::io::stdin()).lines();
            while let Some(line) = lines.next_line().await? {
                if !line.trim().is_empty() {
                    let id = new_id();
                    own.borrow_mut().insert(id.clone());
                    self.say(client, id, line).await?;
                }
            }
            Ok::<(), CliError>(())
        };
        let mut say_all = std::pin::pin!(say_all);
        let mut reading = Reading::Attending;
        loop {
            tokio::select! {
                said = &mut say_all => break said?,
                // The next line opens a chat that is over again.
                shown = show(reading) => match shown? {
                    Standing::Over => reading = Reading::Held,
                    Standing::Answered | Standing::Open => reading = Reading::Attending,
                },
            }
        }
        let mut standing = show(Reading::Now).await?;
        if standing == Standing::Answered {
            return Ok(());
        }
        eprintln!("Waiting for the answer of {}; Ctrl-C leaves.", self.agent);
        while standing != Standing::Answered {
            self.check_goes_on(client, standing).await?;
            standing = show(Reading::Attending).await?;
        }
        Ok(())
    }
}

/// Returns a new message id. It is chosen here, so that the own messages can be told from those of
/// others.
fn new_id() -> MessageId {
    let text = format!("{}{}", MessageId::PREFIX, uuid::Uuid::now_v7().simple());
    text.parse().expect("a prefix and a number are an id")
}

/// Prints time, sender and text. Further lines are indented, so that no text looks like the
/// beginning of another message.
fn print_message(message: &MessageBody) -> Result<(), CliError> {
    let content: String = message
        .content
        .chars()
        .filter(|letter| matches!(letter, '\n' | '\t') || !is_unprintable(*letter))
        .collect();
    print_line(&format!(
        "{} {}: {}",
        message.created_at,
        message.author.as_deref().map_or_else(|| message.sender_id.clone(), plain),
        content.trim_end().replace('\n', "\n    ")
    ))?;
    Ok(io::stdout().flush()?)
}
