//! One commit, applied inside the transaction of the writing task: expectations first, then each row by its revision.
//!
//! What is to be undone after a failure is the caller's to undo.

use std::sync::LazyLock;

use sqlx::SqliteConnection;

use super::batch::{Batch, Failure, Wanted};
use super::{Binds, BoxError, bind_item, bind_key};
use crate::domain::agent::Assignment;
use crate::domain::event::NewEvent;
use crate::domain::{
    Account, Agent, Credential, Execution, ForgeItem, InstanceKey, ItemKey, Launch, LaunchState,
    Message, Notice, Outcome, PairRecord, Project, Session, Task, Timestamp, Usage,
};
use crate::store::{Change, Commit, CommitError, Expect, MAX_OUTPUT_TAILS, StoreError};

/// A table whose rows are written by key and revision.
struct Table {
    what: &'static str,
    insert: String,
    update: String,
}

impl Table {
    /// `columns` begin with the `n_key` of the key. The revision is the first parameter; they are the next, in their order.
    fn new(what: &'static str, name: &str, n_key: usize, columns: &str) -> Self {
        let names: Vec<&str> = columns.split(", ").collect();
        let key = names[..n_key].join(", ");
        let parameters: Vec<String> = (2..).take(names.len()).map(|n| format!("${n}")).collect();
        let pairs: Vec<String> = names
            .iter()
            .zip(&parameters)
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        let (is_it, sets) = (pairs[..n_key].join(" AND "), pairs[n_key..].join(", "));
        let values = parameters.join(", ");
        Self {
            what,
            insert: format!(
                "INSERT INTO {name} ({columns}, revision) VALUES ({values}, $1 + 1) ON CONFLICT ({key}) DO NOTHING"
            ),
            update: format!(
                "UPDATE {name} SET {sets}, revision = $1 + 1 WHERE {is_it} AND revision = $1"
            ),
        }
    }

    /// Adds what writes the row `id`, whose columns are bound next, if it still has `revision`; 0 is that of one that doesn't
    /// exist.
    fn write<'b>(&self, batch: &'b mut Batch, id: &impl ToString, revision: i64) -> &'b mut Batch {
        self.write_if(batch, revision, Wanted::OneChange(outdated(self.what, id)))
    }

    fn write_if<'b>(&self, batch: &'b mut Batch, revision: i64, wanted: Wanted) -> &'b mut Batch {
        let sql = if revision == 0 { &self.insert } else { &self.update };
        batch.add(sql, wanted).bind(revision)
    }
}

fn outdated(what: &'static str, id: &impl ToString) -> CommitError {
    CommitError::Outdated { what, id: id.to_string() }
}

/// Begins a transaction and applies `commit` in it.
pub(super) async fn begin_with(
    connection: &mut SqliteConnection,
    commit: &Commit,
) -> Result<(), Failure> {
    let mut batch = Batch::default();
    batch.add("BEGIN IMMEDIATE", Wanted::Anything);
    finish(batch, connection, commit).await
}

/// Applies `commit` in the open transaction. After a failure some of it may have been made.
pub(super) async fn apply(
    connection: &mut SqliteConnection,
    commit: &Commit,
) -> Result<(), Failure> {
    finish(Batch::default(), connection, commit).await
}

async fn finish(
    mut batch: Batch,
    connection: &mut SqliteConnection,
    commit: &Commit,
) -> Result<(), Failure> {
    for expect in &commit.expect {
        if batch.is_full() {
            batch.run(connection).await?;
        }
        add_expect(&mut batch, expect);
    }
    for change in &commit.changes {
        if batch.is_full() {
            batch.run(connection).await?;
        }
        if let Err(failure) = add_change(&mut batch, change) {
            // What comes before it is asked first.
            batch.run(connection).await?;
            return Err(failure);
        }
    }
    batch.run(connection).await
}

fn add_change(batch: &mut Batch, change: &Change) -> Result<(), Failure> {
    match change {
        Change::Agent(agent) => write_agent(batch, agent),
        Change::Project(project) => write_project(batch, project)?,
        Change::Assign(assignment) => {
            let sql = "INSERT INTO assignments (project_id, agent_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";
            bind_assignment(batch.add(sql, Wanted::Anything), assignment);
        }
        Change::Unassign(assignment) => {
            let sql = "DELETE FROM assignments WHERE project_id = $1 AND agent_id = $2";
            bind_assignment(batch.add(sql, Wanted::Anything), assignment);
        }
        Change::Task(task) => write_task(batch, task),
        Change::Launch(launch) => write_launch(batch, launch),
        Change::Session(session) => write_session(batch, session),
        Change::Execution(execution) => write_execution(batch, execution),
        Change::Notice(notice) => write_notice(batch, notice),
        Change::Message(message) => append_message(batch, message),
        Change::OutputTail(launch, tail) => {
            let sql = "INSERT INTO output_tails (launch_id, tail) VALUES ($1, $2) \
                ON CONFLICT (launch_id) DO UPDATE SET tail = excluded.tail";
            batch.add(sql, Wanted::Anything).bind(launch.as_str()).bind(tail);
            let sql = "DELETE FROM output_tails WHERE launch_id IN \
                (SELECT launch_id FROM output_tails ORDER BY launch_id DESC LIMIT -1 OFFSET $1)";
            batch.add(sql, Wanted::Anything).bind(super::limit(MAX_OUTPUT_TAILS));
        }
        Change::Pair(pair) => write_pair(batch, pair),
        Change::Account(account) => write_account(batch, account),
        Change::Credential(credential) => write_credential(batch, credential),
        Change::ForgeItem(item) => write_item(batch, item),
        Change::ForgetItem(id) => {
            let sql = "DELETE FROM forge_items WHERE id = $1 AND ended_at IS NOT NULL";
            batch.add(sql, Wanted::Anything).bind(id.as_str());
        }
        Change::ForgetCredential(id) => {
            batch.add("DELETE FROM credentials WHERE id = $1", Wanted::Anything).bind(id.as_str());
        }
        Change::Pause(since) => write_pause(batch, *since),
        Change::Event(event) => append_event(batch, event),
        Change::ForgetLaunch(id) => forget_launch(batch, id),
        Change::ForgetEvents(up_to) => {
            batch.add("DELETE FROM events WHERE seq <= $1", Wanted::Anything).bind(up_to);
        }
        Change::ForgetMessages(chat, up_to) => {
            let sql = "DELETE FROM messages WHERE project_id = $1 AND agent_id = $2 AND seq <= $3";
            bind_assignment(batch.add(sql, Wanted::Anything), chat).bind(up_to);
        }
    }
    Ok(())
}

fn add_expect(batch: &mut Batch, expect: &Expect) {
    match expect {
        Expect::NoOpenLaunch(key) => {
            let sql = "SELECT revision FROM launches \
                WHERE agent_id = $1 AND project_id = $2 AND purpose = $3 AND state <> 'ended'";
            bind_key(batch.add(sql, Wanted::NoRow(open_launch(key))), key);
        }
        Expect::TaskAt(id, revision) => {
            let wanted = Wanted::Revision(*revision, outdated("task", id));
            batch.add("SELECT revision FROM tasks WHERE id = $1", wanted).bind(id.as_str());
        }
        Expect::LaunchAt(id, revision) => {
            let wanted = Wanted::Revision(*revision, outdated("launch", id));
            batch.add("SELECT revision FROM launches WHERE id = $1", wanted).bind(id.as_str());
        }
        Expect::PairAt(key, revision) => {
            let sql = "SELECT revision FROM pairs WHERE agent_id = $1 AND project_id = $2 AND purpose = $3";
            bind_key(batch.add(sql, Wanted::Revision(*revision, outdated("pair", key))), key);
        }
        Expect::NoMessageAfter(chat, seq) => {
            let sql = "SELECT seq FROM messages WHERE project_id = $1 AND agent_id = $2 AND seq > $3 LIMIT 1";
            bind_assignment(batch.add(sql, Wanted::NoRow(outdated("chat", chat))), chat).bind(seq);
        }
        Expect::NoOpenItem(key) => expect_no_open_item(batch, key, ""),
        Expect::NotPaused => {
            batch.add("SELECT since FROM pauses", Wanted::NoRow(outdated("pause", &"")));
        }
    }
}

/// Nobody but `id` works on the item.
fn expect_no_open_item(batch: &mut Batch, key: &ItemKey, id: &str) {
    let sql = "SELECT revision FROM forge_items WHERE forge = $1 AND host = $2 AND repository = $3 AND kind = $4 \
        AND number = $5 AND ended_at IS NULL AND id <> $6";
    bind_item(batch.add(sql, Wanted::NoRow(outdated("forge item", key))), key).bind(id);
}

fn open_launch(key: &InstanceKey) -> CommitError {
    CommitError::OpenLaunch { key: key.clone() }
}

fn bind_assignment<B: Binds>(query: B, assignment: &Assignment) -> B {
    query.bind(assignment.project.as_str()).bind(assignment.agent.as_str())
}

fn write_agent(batch: &mut Batch, agent: &Agent) {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new(
            "agent",
            "agents",
            1,
            "id, name, ai_type, system_prompt, passkey_hash, status, created_at",
        )
    });
    TABLE
        .write(batch, &agent.id, agent.revision)
        .bind(agent.id.as_str())
        .bind(&agent.name)
        .bind(&agent.ai_type)
        .bind(&agent.system_prompt)
        .bind(agent.passkey.as_ref().map(crate::domain::secret::PasskeyHash::as_str))
        .bind(agent.status.as_str())
        .bind(agent.created_at.as_millis());
}

fn write_project(batch: &mut Batch, project: &Project) -> Result<(), Failure> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("project", "projects", 1, "id, name, working_directory, status, created_at")
    });
    let Some(working_directory) = project.working_directory.to_str() else {
        let source = BoxError::from(format!(
            "the working directory of project `{}` is not UTF-8",
            project.id
        ));
        return Err(Failure::Refused(
            StoreError::Unavailable { action: "write to", source }.into(),
        ));
    };
    TABLE
        .write(batch, &project.id, project.revision)
        .bind(project.id.as_str())
        .bind(&project.name)
        .bind(working_directory)
        .bind(project.status.as_str())
        .bind(project.created_at.as_millis());
    Ok(())
}

fn write_task(batch: &mut Batch, task: &Task) {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns = "id, project_id, parent_id, title, description, status, priority, assignee_id, dependencies, \
            blocked_reason, created_at, status_since";
        Table::new("task", "tasks", 1, columns)
    });
    let dependencies = serde_json::to_string(&task.dependencies).expect("a list of texts is JSON");
    TABLE
        .write(batch, &task.id, task.revision)
        .bind(task.id.as_str())
        .bind(task.project.as_str())
        .bind(task.parent.as_ref().map(crate::domain::id::TaskId::as_str))
        .bind(&task.title)
        .bind(&task.description)
        .bind(task.status.as_str())
        .bind(task.priority.as_str())
        .bind(task.assignee.as_ref().map(crate::domain::id::AgentId::as_str))
        .bind(dependencies)
        .bind(&task.blocked_reason)
        .bind(task.created_at.as_millis())
        .bind(task.status_since.as_millis());
}

fn write_launch(batch: &mut Batch, launch: &Launch) {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns = "id, agent_id, project_id, purpose, coordinator_id, ai_type, ticket_hash, claimed_at, pid, \
            started_at, authenticated_at, task_id, report, stop_reason, is_chat_over, exit_code, signal, n_notices, state, \
            deadline, session_id, stopping_reason, ladder_at, outcome, outcome_reason, ended_at";
        Table::new("launch", "launches", 1, &format!("{columns}, {USAGE}, progress"))
    });
    // The id and the open key are all that is unique, and a known id is no error for this statement.
    let wanted = Wanted::OneChangeOnly {
        outdated: outdated(TABLE.what, &launch.id),
        taken: open_launch(&launch.key),
    };
    let row = TABLE.write_if(batch, launch.revision, wanted).bind(launch.id.as_str());
    let row = bind_key(row, &launch.key)
        .bind(launch.coordinator.as_ref().map(crate::domain::id::CoordinatorId::as_str))
        .bind(&launch.ai_type)
        .bind(launch.ticket.as_ref().map(crate::domain::secret::TokenHash::as_str))
        .bind(launch.claimed_at.as_millis())
        .bind(launch.pid)
        .bind(millis(launch.started_at))
        .bind(millis(launch.authenticated_at))
        .bind(launch.task.as_ref().map(crate::domain::id::TaskId::as_str))
        .bind(launch.report.map(crate::domain::launch::ReportResult::as_str))
        .bind(launch.stop_reason.map(crate::domain::launch::StopReason::as_str))
        .bind(launch.is_chat_over)
        .bind(launch.exit.exit_code)
        .bind(launch.exit.signal)
        .bind(i64::from(launch.n_notices));
    let row =
        bind_usage(bind_state(row, &launch.state), launch.activity.usage, launch.activity.failure);
    row.bind(&launch.activity.progress);
}

/// The state and what exists only in it; what belongs to other states becomes NULL.
fn bind_state<'b>(row: &'b mut Batch, state: &LaunchState) -> &'b mut Batch {
    let (mut deadline, mut session, mut reason, mut ladder_at, mut end) =
        (None, None, None, None, None);
    match state {
        LaunchState::Starting { deadline: at } => deadline = Some(at.as_millis()),
        LaunchState::Running { session: id } => session = Some(id.as_str()),
        LaunchState::Stopping { reason: why, ladder_at: at } => {
            (reason, ladder_at) = (Some(why.as_str()), Some(at.as_millis()));
        }
        LaunchState::Ending => {}
        LaunchState::Ended { outcome, at } => end = Some((outcome, at.as_millis())),
    }
    let row = row.bind(state.as_str()).bind(deadline).bind(session).bind(reason).bind(ladder_at);
    bind_outcome(row, end.map(|(outcome, _)| outcome)).bind(end.map(|(_, at)| at))
}

fn bind_outcome<'b>(row: &'b mut Batch, outcome: Option<&Outcome>) -> &'b mut Batch {
    row.bind(outcome.map(Outcome::as_str)).bind(outcome.and_then(Outcome::reason))
}

const USAGE: &str = "input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd_micros, turns, \
    failure, failure_resets_at";

fn bind_usage(
    row: &mut Batch,
    usage: Usage,
    failure: Option<crate::domain::Failure>,
) -> &mut Batch {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    row.bind(number(usage.input_tokens))
        .bind(number(usage.output_tokens))
        .bind(number(usage.cache_read_tokens))
        .bind(number(usage.cache_write_tokens))
        .bind(number(usage.cost_usd_micros))
        .bind(number(usage.turns))
        .bind(failure.map(|failure| failure.class.as_str()))
        .bind(millis(failure.and_then(|failure| failure.resets_at)))
}

fn write_session(batch: &mut Batch, session: &Session) {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns = "id, launch_id, agent_id, project_id, purpose, token_hash, created_at, last_seen_at, ended_at, \
            end_reason, handed_out";
        Table::new("session", "sessions", 1, columns)
    });
    let row = TABLE.write(batch, &session.id, session.revision);
    bind_key(row.bind(session.id.as_str()).bind(session.launch.as_str()), &session.key)
        .bind(session.token.as_str())
        .bind(session.created_at.as_millis())
        .bind(session.last_seen_at.as_millis())
        .bind(session.ended.map(|(at, _)| at.as_millis()))
        .bind(session.ended.map(|(_, reason)| reason.as_str()))
        .bind(session.handed_out);
}

fn write_execution(batch: &mut Batch, execution: &Execution) {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns = "id, launch_id, task_id, agent_id, project_id, purpose, started_at, ended_at, result, summary, \
            next_steps, progress, findings, outcome, outcome_reason";
        Table::new("execution", "executions", 1, &format!("{columns}, {USAGE}"))
    });
    let row = TABLE
        .write(batch, &execution.id, execution.revision)
        .bind(execution.id.as_str())
        .bind(execution.launch.as_str())
        .bind(execution.task.as_str());
    let row = bind_key(row, &execution.key)
        .bind(execution.started_at.as_millis())
        .bind(millis(execution.ended_at))
        .bind(execution.result.map(crate::domain::launch::ReportResult::as_str))
        .bind(&execution.summary)
        .bind(&execution.next_steps)
        .bind(&execution.progress)
        .bind(&execution.findings);
    bind_usage(bind_outcome(row, execution.outcome.as_ref()), execution.usage, execution.failure);
}

fn write_pair(batch: &mut Batch, pair: &PairRecord) {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns = "agent_id, project_id, purpose, held_since, n_failures, last_end_at, failed_at, suspended_since, \
            is_misconfigured, wanted_since, read_up_to";
        Table::new("pair", "pairs", 3, columns)
    });
    let failed_at: Vec<i64> = pair.failed_at.iter().map(|at| at.as_millis()).collect();
    let failed_at = serde_json::to_string(&failed_at).expect("a list of numbers is JSON");
    bind_key(TABLE.write(batch, &pair.key, pair.revision), &pair.key)
        .bind(millis(pair.held_since))
        .bind(i64::from(pair.n_failures))
        .bind(millis(pair.last_end_at))
        .bind(failed_at)
        .bind(millis(pair.suspended_since))
        .bind(pair.is_misconfigured)
        .bind(millis(pair.wanted_since))
        .bind(pair.read_up_to);
}

fn write_account(batch: &mut Batch, account: &Account) {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns = "ai_type, parked_class, parked_since, parked_until, n_parked, probe_launch_id, probe_at";
        Table::new("account", "accounts", 1, columns)
    });
    let parked = account.parked.as_ref();
    let probe = parked.and_then(|parked| parked.probe.as_ref());
    TABLE
        .write(batch, &account.ai_type, account.revision)
        .bind(&account.ai_type)
        .bind(parked.map(|parked| parked.class.as_str()))
        .bind(parked.map(|parked| parked.since.as_millis()))
        .bind(parked.map(|parked| parked.until.as_millis()))
        .bind(parked.map(|parked| i64::from(parked.n_failures)))
        .bind(probe.map(|probe| probe.launch.as_str()))
        .bind(probe.map(|probe| probe.at.as_millis()));
}

fn write_credential(batch: &mut Batch, credential: &Credential) {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns =
            "id, kind, name, role, secret_hash, created_at, expires_at, last_used_at, revoked_at";
        Table::new("credential", "credentials", 1, columns)
    });
    TABLE
        .write(batch, &credential.id, credential.revision)
        .bind(credential.id.as_str())
        .bind(credential.kind.as_str())
        .bind(&credential.name)
        .bind(credential.role.as_str())
        .bind(credential.secret.as_str())
        .bind(credential.created_at.as_millis())
        .bind(millis(credential.expires_at))
        .bind(millis(credential.last_used_at))
        .bind(millis(credential.revoked_at));
}

fn write_item(batch: &mut Batch, item: &ForgeItem) {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns = "id, forge, host, repository, kind, number, agent_id, project_id, task_id, title, url, state, owed, \
            n_attempts, n_refusals, retry_at, last_error, n_comments, is_missing, n_resumed, created_at, ended_at";
        Table::new("forge item", "forge_items", 1, columns)
    });
    if item.is_open() {
        expect_no_open_item(batch, &item.key, item.id.as_str());
    }
    let json =
        |value: Result<String, serde_json::Error>| value.expect("a state has text keys only");
    let row = TABLE.write(batch, &item.id, item.revision).bind(item.id.as_str());
    bind_item(row, &item.key)
        .bind(item.agent.as_str())
        .bind(item.project.as_str())
        .bind(item.task.as_str())
        .bind(&item.title)
        .bind(&item.url)
        .bind(json(serde_json::to_string(&item.state)))
        .bind(json(serde_json::to_string(&item.owed)))
        .bind(i64::from(item.n_attempts))
        .bind(i64::from(item.n_refusals))
        .bind(millis(item.retry_at))
        .bind(&item.last_error)
        .bind(i64::from(item.n_comments))
        .bind(item.is_missing)
        .bind(i64::from(item.n_resumed))
        .bind(item.created_at.as_millis())
        .bind(millis(item.ended_at));
}

fn write_notice(batch: &mut Batch, notice: &Notice) {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new(
            "notice",
            "notices",
            1,
            "id, launch_id, task_id, action, demand, created_at, read_at, settled_at",
        )
    });
    TABLE
        .write(batch, &notice.id, notice.revision)
        .bind(notice.id.as_str())
        .bind(notice.launch.as_str())
        .bind(notice.task.as_ref().map(crate::domain::id::TaskId::as_str))
        .bind(notice.action.as_str())
        .bind(notice.demand.as_str())
        .bind(notice.created_at.as_millis())
        .bind(millis(notice.read_at))
        .bind(millis(notice.settled_at));
}

fn append_message(batch: &mut Batch, message: &Message) {
    let sql = "INSERT INTO messages (id, agent_id, project_id, sender, content, created_at, is_visible) \
        VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING";
    batch
        .add(sql, Wanted::OneChange(outdated("message", &message.id)))
        .bind(message.id.as_str())
        .bind(message.agent.as_str())
        .bind(message.project.as_str())
        .bind(message.sender.as_str())
        .bind(&message.content)
        .bind(message.created_at.as_millis())
        .bind(message.is_visible);
}

fn write_pause(batch: &mut Batch, since: Option<Timestamp>) {
    batch.add("DELETE FROM pauses", Wanted::Anything);
    if let Some(since) = since {
        batch
            .add("INSERT INTO pauses (since) VALUES ($1)", Wanted::Anything)
            .bind(since.as_millis());
    }
}

fn forget_launch(batch: &mut Batch, id: &crate::domain::LaunchId) {
    const IT: &str = "FROM launches WHERE id = $1 AND state = 'ended'";
    // What belongs to it first: of one that is still open nothing goes.
    for table in ["sessions", "notices", "executions", "output_tails"] {
        let sql = format!("DELETE FROM {table} WHERE launch_id = $1 AND EXISTS (SELECT 1 {IT})");
        batch.add(&sql, Wanted::Anything).bind(id.as_str());
    }
    batch.add(&format!("DELETE {IT}"), Wanted::Anything).bind(id.as_str());
}

fn append_event(batch: &mut Batch, event: &NewEvent) {
    let sql = "INSERT INTO events (at, kind, agent_id, project_id, launch_id, task_id, detail) \
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    batch
        .add(sql, Wanted::Anything)
        .bind(event.at.as_millis())
        .bind(event.kind)
        .bind(event.agent.as_ref().map(crate::domain::id::AgentId::as_str))
        .bind(event.project.as_ref().map(crate::domain::id::ProjectId::as_str))
        .bind(event.launch.as_ref().map(crate::domain::id::LaunchId::as_str))
        .bind(event.task.as_ref().map(crate::domain::id::TaskId::as_str))
        .bind(&event.detail);
}

fn millis(at: Option<Timestamp>) -> Option<i64> {
    at.map(Timestamp::as_millis)
}
