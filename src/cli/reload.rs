//! `reload`: the daemon reads its configuration again and lists the changes.

use super::client::Client;
use super::error::CliError;
use super::output::{Form, ago, print_json, print_line};
use api::configuration::INVALID_CONFIGURATION;
use domain::configuration::{Applies, Reloaded};

pub(super) async fn reload(client: &Client, form: Form) -> Result<(), CliError> {
    let reloaded: Reloaded = match client.post_or_problem("/reload", &()).await? {
        Ok(reloaded) => reloaded,
        Err(problem) if problem.code == INVALID_CONFIGURATION => {
            let report = problem.detail.trim_end();
            return Err(CliError::File(format!(
                "{report}\nThe daemon goes on with the last good one."
            )));
        }
        Err(problem) => return Err(problem.into()),
    };
    if form.json {
        return print_json(&reloaded);
    }
    let read = reloaded
        .file
        .as_ref()
        .map_or_else(|| "no file".to_owned(), |file| file.display().to_string());
    let n_changes = reloaded.changes.len();
    let settings = if n_changes == 1 { "setting" } else { "settings" };
    print_line(&match n_changes {
        0 => format!("{read}: nothing is different"),
        n if reloaded.is_news() => format!("{read}: {n} {settings} changed"),
        n => {
            let since = ago(reloaded.since, reloaded.at);
            format!(
                "{read}: nothing is different since it was read {since} ago, when {n} {settings} had changed"
            )
        }
    })?;
    for change in &reloaded.changes {
        print_line(&format!("  {change} ({})", change.applies.as_str()))?;
    }
    let is_told = |waiting| reloaded.changes.contains(waiting);
    for waiting in reloaded.waiting.iter().filter(|waiting| !is_told(waiting)) {
        print_line(&format!("  {waiting} ({}, since earlier)", Applies::AfterRestart.as_str()))?;
    }
    Ok(())
}
