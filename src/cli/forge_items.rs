//! Tables of forges and their items, for `status` and `forge list`.

use super::client::Client;
use super::error::CliError;
use super::output::{ListForm, ago, now, or_dash, print_json, print_line};
use super::screen::{Rows, Screen, Width};
use api::forge::{ForgeBody, ForgeItemBody};
use domain::{Language, Timestamp};

/// Returns a line for each host, and one for each repository with a problem; `None` if there are no
/// lines.
pub(super) fn of_hosts(hosts: &[ForgeBody], now: Timestamp) -> Option<String> {
    let mut told = Vec::new();
    for host in hosts {
        let until = host
            .limited_until
            .map_or_else(String::new, |until| format!(" for {}", ago(now, until)));
        let error = host.last_error.as_ref().filter(|_| host.health != "ok");
        let error = error.map_or_else(String::new, |error| format!(": {error}"));
        let writes = writes_of(host, now);
        let is_dry = if host.dry_run { ", dry run" } else { "" };
        let n_items: usize = host.repositories.iter().map(|repository| repository.n_assigned).sum();
        let n_waiting: usize =
            host.repositories.iter().map(|repository| repository.n_waiting).sum();
        let waiting =
            if n_waiting == 0 { String::new() } else { format!(" ({n_waiting} waiting)") };
        told.push(format!(
            "{} {}: {}{until}{writes}{is_dry}, {n_items} items{waiting} in {} repositories{error}",
            host.forge,
            host.host,
            host.health,
            host.repositories.len()
        ));
        let problems = host.repositories.iter().filter_map(|repository| {
            let problem = repository.problem.as_ref()?;
            Some(format!("  {}: {problem}", repository.name))
        });
        told.extend(problems);
    }
    (!told.is_empty()).then(|| told.join("\n"))
}

/// Returns why the writes of a host wait, and until when.
fn writes_of(host: &ForgeBody, now: Timestamp) -> String {
    let what = if host.writes_reserved { "reserved for items at work" } else { "used up" };
    let until = match host.writes_held_until {
        Some(until) => format!("and are renewed in {}", ago(now, until)),
        None if host.writes_reserved => "until one of them ends".to_owned(),
        None => return String::new(),
    };
    format!(", the writes of this hour are {what}, {until} (forge.writes_per_hour)")
}

/// Returns a row for each item. With all columns, it also has the whole id and the address.
pub(super) fn item_rows(items: &[ForgeItemBody], now: Timestamp, is_wide: bool) -> Rows {
    Rows::of_width(
        items,
        is_wide,
        &[
            (Width::Any, "ITEM", &|item| item.item.clone()),
            (Width::Any, "STATE", &state_of),
            (Width::Any, "AGENT", &|item| or_dash(item.agent_id.as_ref())),
            (Width::Any, "TASK", &|item| or_dash(item.task_short_id.as_ref())),
            (Width::Any, "SINCE", &|item| ago(item.ended_at.unwrap_or(item.created_at), now)),
            (Width::Any, "OWED", &|item| owed_of(item, now)),
            (Width::Wide, "TASK ID", &|item| or_dash(item.task_id.as_ref())),
            (Width::Wide, "URL", &|item| item.url.clone()),
        ],
    )
}

fn state_of(item: &ForgeItemBody) -> String {
    let state = item.blocked_text(Language::English).unwrap_or_else(|| item.state.clone());
    let cause = item.cause.map_or_else(String::new, |cause| format!(" ({cause})"));
    let position = item.position.map_or_else(String::new, |it| format!(", position {it}"));
    format!("{state}{cause}{position}")
}

fn owed_of(item: &ForgeItemBody, now: Timestamp) -> String {
    let mut owed = item.owed.join(", ");
    if let Some(error) = &item.last_error {
        // An item whose time has come is tried now.
        let again = item.retry_at.filter(|at| *at > now);
        let again = again.map_or_else(String::new, |at| format!(", again in {}", ago(now, at)));
        let sign = if owed.is_empty() { "" } else { ": " };
        owed = format!("{owed}{sign}{error}{again}");
    }
    owed.push_str(&item.blockers.join(", "));
    or_dash(Some(owed).filter(|owed| !owed.is_empty()))
}

/// Lists items: either those that are worked on and those that wait, or those that are over.
pub(super) async fn list(
    client: &Client,
    ended: bool,
    limit: usize,
    form: ListForm,
) -> Result<(), CliError> {
    let items: Vec<ForgeItemBody> =
        client.get(&format!("/forge/items?ended={ended}&limit={limit}")).await?;
    if form.json {
        return print_json(&items);
    }
    form.print(&item_rows(&items, now(), form.wide), "No items.")?;
    let waiting: Vec<ForgeBody> = client.get("/forge/hosts").await?;
    let waiting: Vec<ForgeBody> = waiting
        .into_iter()
        .filter(|host| {
            host.limited_until.or(host.writes_held_until).is_some() || host.writes_reserved
        })
        .collect();
    match of_hosts(&waiting, now()).filter(|_| !ended) {
        Some(told) => print_line(&Screen::of_output().wrapped(&told)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_that_the_items_at_work_owe_are_shown_without_a_time() {
        let now = Timestamp::from_millis(0);
        for (is_reserved, held_until, expected) in [
            (false, None, ""),
            (false, Some(60_000), ", the writes of this hour are used up, and are renewed in 1m"),
            (true, Some(60_000), "are reserved for items at work, and are renewed in 1m"),
            (true, None, "are reserved for items at work, until one of them ends"),
        ] {
            let mut host: ForgeBody = serde_json::from_value(serde_json::json!({
                "forge": "github", "host": "api.github.com", "health": "ok", "repositories": [],
            }))
            .unwrap();
            host.writes_reserved = is_reserved;
            host.writes_held_until = held_until.map(Timestamp::from_millis);
            let text = writes_of(&host, now);
            assert!(text.contains(expected) && text.is_empty() == expected.is_empty(), "{text}");
        }
    }
}
