//! `login` prints a link that logs a browser in, once.

use super::client::Client;
use super::error::CliError;
use super::output::{Form, print_json, print_line};
use api::credentials::{LoginBody, LoginRequest};
use config::Environment;
use domain::credential::Role;

#[derive(Debug, clap::Args)]
pub(super) struct LoginArguments {
    /// The role: operator or viewer; a viewer cannot change anything
    #[arg(long, default_value = "operator")]
    role: Role,
    /// The name of the person in the log [default: $USER]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    form: Form,
}

impl LoginArguments {
    pub(super) async fn run(
        self,
        client: &Client,
        environment: &Environment,
    ) -> Result<(), CliError> {
        let name = self.name.or_else(|| user_of(environment));
        let login: LoginBody =
            client.post("/logins", &LoginRequest { name, role: Some(self.role) }).await?;
        // The link stands alone, so that it can be opened, copied and piped.
        if self.form.json { print_json(&login) } else { print_line(&login.url) }
    }
}

/// Returns the name of the user who is logged in at this terminal.
pub(super) fn user_of(environment: &Environment) -> Option<String> {
    environment.variable("USER").filter(|user| !user.is_empty()).map(Into::into)
}
