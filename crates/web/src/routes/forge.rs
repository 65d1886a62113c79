//! `/forge`: the watched forges, and the items that are worked on, with the writes that are still
//! pending for them.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{RawQuery, State};

use crate::extract::InQuery;
use crate::openapi::{Api, about};
use crate::page::{Page, limit_of};
use crate::{Problem, RestState};
use api::forge::{ForgeBody, ForgeItemBody, ForgeItemQuery, RepositoryBody};
use domain::AgentId;
use domain::forge::ItemKey;
use service::{ForgeHealth, ForgeStatus, RepositoryStatus, Service, WaitingItem};

/// Describes a host.
pub(super) fn host_body(status: ForgeStatus) -> ForgeBody {
    ForgeBody {
        health: status.health.as_str().to_owned(),
        limited_until: match status.health {
            ForgeHealth::Limited(until) => Some(until),
            _ => None,
        },
        forge: status.forge,
        host: status.host,
        writes_held_until: status.writes_held_until,
        writes_reserved: status.are_writes_reserved,
        last_error: status.last_error,
        dry_run: status.is_dry_run,
        repositories: status.repositories.into_iter().map(repository_body).collect(),
    }
}

/// Returns the agent of a repository that has only one.
fn only(agents: &[AgentId]) -> Option<AgentId> {
    match agents {
        [only] => Some(only.clone()),
        _ => None,
    }
}

fn repository_body(status: RepositoryStatus) -> RepositoryBody {
    let RepositoryStatus {
        name,
        project,
        agents,
        seen_at,
        n_assigned,
        n_elsewhere,
        n_waiting,
        problem,
    } = status;
    RepositoryBody {
        name,
        project_id: project,
        agent_id: only(&agents),
        agent_ids: agents,
        seen_at,
        n_assigned,
        n_elsewhere,
        n_waiting,
        problem,
    }
}

/// Describes a waiting item, without its position.
pub(crate) fn waiting_body(item: WaitingItem) -> ForgeItemBody {
    let WaitingItem { key, title, url, since, project, agents, is_preparing, .. } = item;
    let WaitingItem { n_blockers, blockers, .. } = item;
    ForgeItemBody {
        id: None,
        item: key.to_string(),
        forge: key.forge,
        host: key.host,
        kind: key.kind,
        url,
        title,
        agent_id: only(&agents),
        project_id: project,
        task_id: None,
        task_short_id: None,
        state: if is_preparing { "preparing" } else { "waiting" }.to_owned(),
        position: None,
        n_blockers,
        blockers,
        cause: None,
        owed: Vec::new(),
        n_attempts: 0,
        retry_at: None,
        last_error: None,
        branch: None,
        request_url: None,
        created_at: since,
        ended_at: None,
    }
}

pub(super) fn routes() -> Api {
    Api::new()
        .get(
            "/forge/hosts",
            hosts,
            about("The watched forges and their state").gives::<Vec<ForgeBody>>(),
        )
        .get(
            "/forge/items",
            items,
            about("The items of forges that are worked on, and those that wait")
                .query::<ForgeItemQuery>()
                .gives::<Vec<ForgeItemBody>>(),
        )
}

async fn hosts(State(state): State<RestState>) -> Json<Vec<ForgeBody>> {
    Json(state.service.forges.all().into_iter().map(host_body).collect())
}

async fn items(
    State(state): State<RestState>,
    InQuery(query): InQuery<ForgeItemQuery>,
    raw: RawQuery,
) -> Result<Page<ForgeItemBody>, Problem> {
    let limit = limit_of(query.limit)?;
    let body = ForgeItemBody::from;
    let mut items: Vec<ForgeItemBody> = if query.ended {
        state.service.forge_items.past(limit).await?.into_iter().map(body).collect()
    } else {
        open_items(&state.service).await?
    };
    items.truncate(limit);
    let tasks = items.iter().filter_map(|item| item.task_id.clone()).collect();
    let short_ids = state.service.tasks.short_ids(tasks).await?;
    for item in &mut items {
        item.add_short_id(&short_ids);
    }
    let cursor = |item: &ForgeItemBody| {
        item.id.as_ref().map_or_else(|| item.item.clone(), ToString::to_string)
    };
    Ok(Page::of(items, limit, raw, cursor))
}

/// Returns the items that wait because open issues block them.
pub(crate) fn blocked_items(service: &Service) -> Vec<WaitingItem> {
    let mut waiting = service.forges.waiting_items();
    waiting.retain(|item| item.n_blockers > 0);
    waiting
}

/// Returns the items that are worked on, then the waiting ones in the order of their turns.
async fn open_items(service: &Service) -> Result<Vec<ForgeItemBody>, Problem> {
    // The waiting items are read first. An item that is claimed meanwhile is shown once, as a
    // claimed one.
    let waiting = service.forges.waiting_items();
    let open = service.forge_items.open().await?;
    let claimed: BTreeSet<ItemKey> = open.iter().map(|item| item.key.clone()).collect();
    let waiting = waiting.into_iter().filter(|item| !claimed.contains(&item.key));
    // Blocked items come last, and have no position.
    let waiting = waiting.zip(1..).map(|(item, position)| ForgeItemBody {
        position: (item.n_blockers == 0).then_some(position),
        ..waiting_body(item)
    });
    Ok(open.into_iter().map(ForgeItemBody::from).chain(waiting).collect())
}
