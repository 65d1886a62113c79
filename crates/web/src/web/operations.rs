//! Operations: the load of the whole fleet, the starts that wait with their reasons, accounts,
//! hosts and forges, and the switches for all of them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{Redirect, Response};
use axum::routing::{get, post};

use super::banners::Banner;
use super::buttons::{Button, ButtonAction};
use super::layout::{Frame, NavSection, page_and_part, rendered};
use super::names::{Names, isolated};
use super::shown::{
    AvatarRing, Count, Elapsed, Face, Faces, LastEnd, Short, Since, When, cost_text, task_of,
};
use super::today::Today;
use super::waits::{About, WhyLine};
use super::words::Words;
use crate::routes::forge::{blocked_items, waiting_body};
use crate::routes::operate::{pause, refresh};
use crate::routes::status::{not_installed, status_body};
use crate::{Problem, RestState};
use api::forge::{ForgeBody, ForgeItemBody};
use api::status::{CoordinatorBody, DeferredBody, LimitsBody, NotInstalledBody, ParkedBody};
use api::store::StoreBody;
use domain::counters::Counters;
use domain::load::LastHour;
use domain::plan::shared::{Crowd, CrowdMember, FailedSnapshot};
use domain::{
    Agent, FailureClass, InstanceKey, Launch, Purpose, ShortId, TaskId, Timestamp, Usage,
};
use service::{Force, StatusView, StopTarget};

/// The number of ended launches that are shown.
const MAX_ENDED: usize = 8;
/// The greatest number of slots that are drawn.
const MAX_SLOTS: usize = 24;

// The worst banner is the first.
page_and_part! {
    OperationsPage "operations.html", OperationsPart "parts/operations.html" {
        names: Names,
        banners: Vec<Banner>,
        overview: Overview,
    }
}

/// The question before all agents are stopped or drained.
#[derive(Template)]
#[template(path = "parts/operations_question.html")]
struct QuestionPart {
    frame: Frame,
    heading: &'static str,
    explains: &'static str,
    path: &'static str,
    button: String,
    /// The agents that it affects.
    affected: Vec<String>,
}

/// A start that waits.
struct WaitingStart {
    key: InstanceKey,
    face: Option<Face>,
    task: Option<(ShortId, String)>,
    since: Option<Timestamp>,
    why: WhyLine,
    button: Option<Button>,
}

impl WaitingStart {
    /// Returns the rows of waiting starts, without those that do not wait any more.
    async fn read(
        frame: &Frame,
        state: &RestState,
        faces: &Faces,
        starts: Vec<DeferredBody>,
    ) -> Result<Vec<Self>, Problem> {
        let key =
            |start: DeferredBody| InstanceKey::new(start.agent_id, start.project_id, start.purpose);
        let keys = starts.into_iter().map(key).collect();
        let all = state.service.launches.why_of(keys).await?;
        let tasks: BTreeSet<TaskId> = all.iter().filter_map(|why| why.task.clone()).collect();
        let titles = state.service.tasks.titles(tasks).await?;
        let all = all.into_iter().filter_map(|why| {
            let key = why.key.clone();
            let since = why.waiting_since;
            let task = why.task.as_ref().and_then(|task| titles.get(task).cloned());
            let waiting = why.waiting()?;
            let about = About { agent: Some(&key.agent), project: Some(&key.project), task: None };
            let why = WhyLine::of(frame.w, &waiting, about);
            let button = why.action.clone().map(Button::from);
            // Each of them waits, whatever else its agent does.
            let ring = if why.tone == "bad" { AvatarRing::NeedsPerson } else { AvatarRing::Waits };
            let face = faces.of(&key.agent).map(|face| Face { ring, ..face });
            Some(Self { key, face, task, since, why, button })
        });
        Ok(all.collect())
    }
}

/// An account of a provider.
struct AccountRow {
    provider: String,
    n_running: usize,
    parked: Option<ParkedBody>,
    not_installed: Option<NotInstalledBody>,
}

impl AccountRow {
    /// Returns the accounts of the providers that agents have, and all that are parked.
    fn all(
        agents: &[Agent],
        open: &[Launch],
        parked: Vec<ParkedBody>,
        not_installed: Vec<NotInstalledBody>,
    ) -> Vec<Self> {
        let shown = agents.iter().filter(|agent| !agent.is_archived());
        let mut rows: BTreeMap<String, Self> = BTreeMap::new();
        let row = |provider: &str| Self {
            provider: provider.to_owned(),
            n_running: open
                .iter()
                .filter(|launch| launch.pid.is_some() && launch.ai_type == provider)
                .count(),
            parked: None,
            not_installed: None,
        };
        for agent in shown {
            rows.entry(agent.ai_type.clone()).or_insert_with(|| row(&agent.ai_type));
        }
        for account in parked {
            let of = rows.entry(account.provider.clone()).or_insert_with(|| row(&account.provider));
            of.parked = Some(account);
        }
        for missing in not_installed {
            if let Some(of) = rows.get_mut(&missing.provider) {
                of.not_installed = Some(missing);
            }
        }
        rows.into_values().collect()
    }

    fn tone(&self) -> &'static str {
        if self.not_installed.is_some() {
            return "bad";
        }
        match &self.parked {
            None => "live",
            Some(parked) if parked.reason == FailureClass::Auth => "bad",
            Some(_) => "wait",
        }
    }
}

/// The slots of all coordinators that are there.
struct Slots {
    n_tasks: usize,
    n_chats: usize,
    /// The slots that tasks never take.
    n_kept: usize,
    n_all: usize,
}

impl Slots {
    fn of(view: &StatusView, limits: &LimitsBody) -> Self {
        let kept = view.coordinators.iter().filter(|each| each.is_there);
        let n_chats = view
            .open
            .iter()
            .filter(|launch| launch.is_kept() && launch.key.purpose == Purpose::Chat)
            .count();
        Self {
            n_tasks: limits.running.saturating_sub(n_chats),
            n_chats,
            n_kept: kept.map(|each| each.status.limits.start.chat_reserve).sum(),
            n_all: limits.max_concurrent,
        }
    }

    /// Returns the class of each slot, in the order in which they are drawn. A large number of
    /// slots is not drawn.
    fn classes(&self) -> Vec<&'static str> {
        if self.n_all > MAX_SLOTS {
            return Vec::new();
        }
        let n_free = self.n_all.saturating_sub(self.n_tasks + self.n_chats);
        let n_kept = self.n_kept.saturating_sub(self.n_chats).min(n_free);
        [(" task", self.n_tasks), (" chat", self.n_chats), ("", n_free - n_kept), (" kept", n_kept)]
            .into_iter()
            .flat_map(|(class, n)| std::iter::repeat_n(class, n))
            .collect()
    }
}

/// The changes of the figures in an hour. Each text is empty if the daemon has not run for an hour.
#[derive(Default)]
struct Changes {
    running: String,
    waiting: String,
    spent: String,
    tokens: String,
}

impl Changes {
    fn of(w: &'static Words, n_running: usize, n_waiting: usize, hour: Option<LastHour>) -> Self {
        let Some(hour) = hour else { return Self::default() };
        let used = Usage { cost_usd_micros: hour.cost_usd_micros, ..Usage::default() };
        Self {
            running: w.in_last_hour(&difference(n_running, hour.running)),
            waiting: w.in_last_hour(&difference(n_waiting, hour.waiting)),
            spent: w.in_last_hour(&format!("+{}", cost_text(used))),
            tokens: w.in_last_hour(&format!("+{}", Short(hour.tokens))),
        }
    }
}

/// Returns how much greater a number is than it was, such as `+2`, `−1` or `±0`.
fn difference(now: usize, before: usize) -> String {
    let sign = match now.cmp(&before) {
        Ordering::Greater => '+',
        Ordering::Less => '−',
        Ordering::Equal => '±',
    };
    format!("{sign}{}", now.abs_diff(before))
}

/// The content of the overview.
struct Overview {
    changes: Changes,
    slots: Slots,
    spent_today: String,
    tokens_today: Short,
    /// The part of the tokens of the day that models read from a cache, in percent.
    from_cache: Option<String>,
    paused_since: Option<Since>,
    pause_file: bool,
    /// The configuration file has mistakes.
    is_file_rejected: bool,
    has_coordinator: bool,
    waiting: Vec<WaitingStart>,
    accounts: Vec<AccountRow>,
    coordinators: Vec<CoordinatorBody>,
    store: Option<StoreBody>,
    crowds: Vec<Crowd>,
    failed_snapshots: Vec<FailedSnapshot>,
    forges: Vec<ForgeBody>,
    forge_items: Vec<ForgeItemBody>,
    ended: Vec<LastEnd>,
    counters: Counters,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/operations", get(show))
        // Its address in earlier versions.
        .route("/ui/coordinator", get(async || Redirect::permanent("/ui/operations")))
        .route("/ui/parts/operations", get(show))
        .route("/ui/parts/operations/drain", get(ask_drain))
        .route("/ui/parts/operations/stop-all", get(ask_stop_all))
        .route("/ui/do/operations/pause", post(pause))
        .route("/ui/do/operations/resume", post(resume))
        .route("/ui/do/operations/drain", post(drain))
        .route("/ui/do/operations/refresh", post(refresh))
        .route("/ui/do/operations/stop-all", post(stop_all))
}

async fn show(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    let overview = Overview::read(&frame, &state).await?;
    let names = Names::read(&state).await?;
    let banners = overview.banners(frame.w, &names);
    let frame = frame.at(NavSection::Operations);
    Ok(OperationsPage { frame, names, banners, overview }.shown())
}

impl Overview {
    async fn read(frame: &Frame, state: &RestState) -> Result<Self, Problem> {
        let w = frame.w;
        let view = state.service.status().await?;
        let agents = state.service.catalog.agents().await?;
        let today = Today::read(state, &[]).await?;
        let ended: Vec<Launch> = view.ended.iter().take(MAX_ENDED).cloned().collect();
        let tasks = ended.iter().filter_map(task_of).cloned().collect();
        let titles = state.service.tasks.titles(tasks).await?;
        let open = view.open.clone();
        let status = status_body(view.clone());
        let faces = Faces::new(agents.clone(), &open, None);
        let blocked = blocked_items(&state.service).into_iter().map(waiting_body);
        let waiting = WaitingStart::read(frame, state, &faces, status.deferred).await?;
        let hour = state.service.maintenance.last_hour();
        Ok(Self {
            changes: Changes::of(w, status.limits.running, waiting.len(), hour),
            slots: Slots::of(&view, &status.limits),
            spent_today: cost_text(today.total()),
            tokens_today: Short(today.total().tokens()),
            from_cache: today.total().cached_percent().map(|percent| w.of_cached(percent)),
            paused_since: status.paused_since.map(Since),
            has_coordinator: status.coordinators.iter().any(|each| each.is_there),
            waiting,
            accounts: AccountRow::all(
                &agents,
                &open,
                status.parked,
                not_installed(&state.programs, &agents, &status.coordinators).await,
            ),
            coordinators: status.coordinators,
            store: status.store,
            pause_file: status.pause_file,
            is_file_rejected: state.configuration.configuration_state().rejected.is_some(),
            crowds: status.crowds,
            failed_snapshots: status.failed_snapshots,
            forges: status.forges,
            forge_items: status.forge_items.into_iter().chain(blocked).collect(),
            ended: LastEnd::of_all(w, &ended, &titles),
            counters: status.counters,
        })
    }

    /// Returns the banners, the worst first.
    fn banners(&self, w: &'static Words, names: &Names) -> Vec<Banner> {
        let mut banners = Vec::new();
        if !self.has_coordinator {
            banners.push(Banner::bad(w.no_coordinator));
        }
        if let Some((store, problem)) =
            self.store.as_ref().and_then(|store| Some((store, store.problem.as_ref()?)))
        {
            banners.push(Banner {
                detail_in_english: (!w.is_english()).then(|| problem.clone()),
                ..Banner::bad(w.of_store_problem(store.health.as_str(), problem))
            });
        }
        let away = self.coordinators.iter().filter(|each| self.has_coordinator && !each.is_there);
        banners.extend(away.map(|each| Banner {
            since: Some(Since(each.heard_at)),
            ..Banner::bad(w.of_host_away(each))
        }));
        banners.extend(self.paused_since.map(|since| Banner::paused(w.paused_since, since)));
        if self.pause_file {
            banners.push(Banner::pause_file(w.pause_file));
        }
        if self.is_file_rejected {
            let href = Some("/ui/settings#configuration_state");
            banners.push(Banner { href, ..Banner::bad(w.file_rejected()) });
        }
        banners.extend(self.crowds.iter().map(|crowd| {
            let name = |launch: &CrowdMember| isolated(names.agent(&launch.agent_id));
            let agents = crowd.launches.iter().map(name).collect::<Vec<_>>().join(", ");
            let work_tree = isolated(&crowd.work_tree.to_string_lossy());
            Banner::note(format!("{}: {work_tree} ({agents})", w.crowd))
        }));
        banners.extend(self.failed_snapshots.iter().map(|failed| Banner {
            detail_in_english: Some(failed.reason.clone()),
            ..Banner::note(format!(
                "{}: {}",
                isolated(names.project(&failed.project_id)),
                w.failed_snapshot
            ))
        }));
        banners
    }

    /// Returns the colour and the text of the mark beside the heading.
    fn state(&self, w: &'static Words) -> (&'static str, &'static str) {
        if !self.has_coordinator {
            ("bad", w.nothing_starts)
        } else if self.paused_since.is_some() || self.pause_file {
            ("wait", w.paused)
        } else {
            ("good", w.starting_agents)
        }
    }

    /// Returns since when the oldest start waits.
    fn longest_wait(&self) -> Option<Elapsed> {
        self.waiting.iter().filter_map(|start| start.since).min().map(Elapsed)
    }
}

/// Returns the names of the agents that run, each with its project.
async fn running(state: &RestState) -> Result<Vec<String>, Problem> {
    let names = Names::read(state).await?;
    let open = state.service.launches.open().await?;
    let open = open.iter().filter(|launch| launch.is_kept());
    let name = |launch: &Launch| {
        let InstanceKey { agent, project, .. } = &launch.key;
        format!("{} · {}", names.agent(agent), names.project(project))
    };
    Ok(open.map(name).collect())
}

async fn ask_stop_all(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    let affected = running(&state).await?;
    Ok(rendered(&QuestionPart {
        heading: frame.w.stop_all_question,
        explains: frame.w.stop_all_explains,
        path: "/ui/do/operations/stop-all",
        button: frame.w.of_stop_n(affected.len()),
        affected,
        frame,
    }))
}

async fn ask_drain(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    Ok(rendered(&QuestionPart {
        heading: frame.w.drain_question,
        explains: frame.w.drain_explains,
        path: "/ui/do/operations/drain",
        button: frame.w.drain.to_owned(),
        affected: running(&state).await?,
        frame,
    }))
}

async fn resume(State(state): State<RestState>) -> Result<StatusCode, Problem> {
    state.service.launches.resume(&StopTarget::All).await?;
    tracing::info!("a person resumed agents");
    Ok(StatusCode::NO_CONTENT)
}

async fn drain(State(state): State<RestState>) -> Result<StatusCode, Problem> {
    let open = state.service.launches.drain().await?;
    tracing::info!(n_launches = open.len(), "a person started a drain");
    Ok(StatusCode::NO_CONTENT)
}

async fn stop_all(State(state): State<RestState>) -> Result<StatusCode, Problem> {
    let stopped = state.service.launches.stop(&StopTarget::All, Force::No).await?;
    tracing::info!(n_launches = stopped.launches.len(), "a person stopped agents");
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Language;

    #[test]
    fn figures_are_compared_with_those_an_hour_ago() {
        let w = Words::of(Language::English);
        let hour = LastHour { running: 1, waiting: 3, tokens: 61_200, cost_usd_micros: 420_000 };
        let changes = Changes::of(w, 3, 2, Some(hour));
        assert_eq!(changes.running, "+2 in the last hour");
        assert_eq!(changes.waiting, "−1 in the last hour");
        assert_eq!(changes.spent, "+$0.42 in the last hour");
        assert_eq!(changes.tokens, "+61k in the last hour");
        let changes = Changes::of(Words::of(Language::Japanese), 1, 3, Some(hour));
        assert_eq!(changes.running, "1 時間で ±0");
        assert_eq!(Changes::of(w, 1, 1, None).running, "");
    }
}
