//! `token` creates, lists and revokes access tokens for scripts.

use std::time::Duration;

use clap::Subcommand;

use super::client::Client;
use super::error::CliError;
use super::login::user_of;
use super::output::{Form, ListForm, ago, now, or_dash, plain, print_json, print_line};
use super::screen::Rows;
use api::credentials::{CredentialBody, TokenRequest};
use config::Environment;
use domain::credential::Role;
use domain::{CredentialId, Timestamp};

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Create a token for a script and print it; it is never shown again
    Create {
        /// Its name in the log [default: $USER]
        #[arg(long)]
        name: Option<String>,
        /// The role: operator or viewer; a viewer cannot change anything
        #[arg(long, default_value = "operator")]
        role: Role,
        /// Its lifetime, such as `90d` [default: until it is revoked]
        #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
        expires_in: Option<Duration>,
        #[command(flatten)]
        form: Form,
    },
    /// List tokens, browsers that are logged in, and unused login links
    List {
        #[command(flatten)]
        form: ListForm,
    },
    /// Revoke a token, a login or a link at once
    Revoke {
        /// Its id, as `token list` shows it
        id: CredentialId,
    },
}

impl TokenCommand {
    pub(super) async fn run(
        self,
        client: &Client,
        environment: &Environment,
    ) -> Result<(), CliError> {
        match self {
            Self::Create { name, role, expires_in, form } => {
                let name = name.or_else(|| user_of(environment));
                let expires_in = expires_in.map(|life| life.as_secs());
                let request = TokenRequest { name, role: Some(role), expires_in };
                let made: CredentialBody = client.post("/tokens", &request).await?;
                if form.json {
                    print_json(&made)
                } else {
                    print_line(made.token.as_deref().unwrap_or_default())
                }
            }
            Self::List { form } => {
                let all: Vec<CredentialBody> = client.get("/tokens").await?;
                if form.json { print_json(&all) } else { print_credentials(&all, form) }
            }
            Self::Revoke { id } => client.delete(&format!("/tokens/{id}")).await,
        }
    }
}

fn print_credentials(all: &[CredentialBody], form: ListForm) -> Result<(), CliError> {
    let now = now();
    let before = |at: Timestamp| format!("{} ago", ago(at, now));
    let rows = Rows::of(
        all,
        &[
            ("ID", &|credential| credential.id.to_string()),
            ("KIND", &|credential| credential.kind.to_string()),
            ("NAME", &|credential| plain(&credential.name)),
            ("ROLE", &|credential| credential.role.to_string()),
            ("MADE", &|credential| before(credential.created_at)),
            ("USED", &|credential| or_dash(credential.last_used_at.map(before))),
            ("EXPIRES", &|credential| {
                or_dash(credential.expires_at.map(|at| format!("in {}", ago(now, at))))
            }),
        ],
    );
    form.print(
        &rows,
        "No browser or script can log in over the network. `agent-coordinator login` prints a link for a browser.",
    )
}
