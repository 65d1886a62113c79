//! `session`: list, end.

use clap::Subcommand;

use super::client::Client;
use super::error::CliError;
use super::history::{Whose, parts};
use super::output::{Form, ListForm, ago, now, or_dash, print_json, print_line};
use super::screen::Rows;
use api::sessions::SessionBody;
use domain::SessionId;

#[derive(Debug, Subcommand)]
pub(super) enum SessionCommand {
    /// List sessions, the newest first
    List {
        #[command(flatten)]
        whose: Whose,
        /// Include sessions that have ended
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        form: ListForm,
    },
    /// End a session and its process. The agent may start again; use `stop` to prevent that
    End {
        /// Session id
        session: SessionId,
        #[command(flatten)]
        form: Form,
    },
}

impl SessionCommand {
    pub(super) async fn run(self, client: &Client) -> Result<(), CliError> {
        match self {
            Self::List { whose, all, form } => {
                let open = (!all).then(|| "open=true".to_owned());
                let query = whose.query(client, open).await?;
                let sessions: Vec<SessionBody> =
                    parts(client, "/sessions", query, whose.limit).await?;
                if form.json { print_json(&sessions) } else { print_sessions(&sessions, form) }
            }
            Self::End { session, form } => {
                let ended: SessionBody =
                    client.post(&format!("/sessions/{session}"), &serde_json::Map::new()).await?;
                if form.json {
                    return print_json(&ended);
                }
                let word = if ended.ended_at.is_some() { "has ended" } else { "is being ended" };
                print_line(&format!("{session} {word}"))
            }
        }
    }
}

fn print_sessions(sessions: &[SessionBody], form: ListForm) -> Result<(), CliError> {
    let now = now();
    let ended = |session: &SessionBody| {
        let reason = session.end_reason.map(|reason| format!("{reason}, ")).unwrap_or_default();
        session.ended_at.map(|at| format!("{reason}{}", ago(at, now)))
    };
    let rows = Rows::of(
        sessions,
        &[
            ("SESSION", &|session| session.id.to_string()),
            ("AGENT", &|session| session.agent_id.to_string()),
            ("PROJECT", &|session| session.project_id.to_string()),
            ("PURPOSE", &|session| session.purpose.to_string()),
            ("SINCE", &|session| ago(session.created_at, now)),
            ("SEEN", &|session| ago(session.last_seen_at, now)),
            ("ENDED", &|session| or_dash(ended(session))),
        ],
    );
    form.print(&rows, "No sessions.")
}
