//! `spend`: sums of what agents used.

use super::activity::used;
use super::client::Client;
use super::error::CliError;
use super::output::{ListForm, or_dash, print_json};
use super::screen::Rows;
use api::spend::SpendBody;
use domain::spend::{Day, SpendBy};

#[derive(Debug, clap::Args)]
pub(super) struct SpendArguments {
    /// Sum by task, agent, project, provider, day or month
    #[arg(long, value_name = "WHAT")]
    by: SpendBy,
    /// Count from this day on, in UTC, such as 2026-11-30
    #[arg(long, value_name = "DATE")]
    since: Option<Day>,
    #[command(flatten)]
    form: ListForm,
}

impl SpendArguments {
    pub(super) async fn print(self, client: &Client) -> Result<(), CliError> {
        let Self { by, since, form } = self;
        let since = since.map(|since| format!("&since={since}")).unwrap_or_default();
        let sums: Vec<SpendBody> = client.get(&format!("/spend?by={by}{since}")).await?;
        if form.json {
            return print_json(&sums);
        }
        let rows = Rows::of(
            &sums,
            &[("KEY", &|sum| or_dash(sum.key.as_ref())), ("USED", &|sum| used(Some(&sum.usage)))],
        );
        form.print(&rows, "No agent used anything.")
    }
}
