//! One commit, applied inside the transaction of the writing task: expectations first, then each row by its revision.
//!
//! It neither begins nor ends anything: what is to be undone after a failure is the caller's to undo.

use std::sync::LazyLock;

use sqlx::{Row, SqliteConnection};

use super::{BoxError, SqlQuery, bind_item, bind_key};
use crate::domain::agent::Assignment;
use crate::domain::event::NewEvent;
use crate::domain::{
    Account, Agent, Credential, Execution, ForgeItem, InstanceKey, ItemKey, Launch, LaunchState, Message, Notice,
    Outcome, PairRecord, Project, Session, Task, Timestamp, Usage,
};
use crate::store::{Change, Commit, CommitError, Expect, MAX_OUTPUT_TAILS, StoreError};

/// Why a commit was not applied.
pub(super) enum Failure {
    /// This commit can't be made; others can.
    Refused(CommitError),
    /// The database failed.
    Broken(sqlx::Error),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            // What a constraint keeps out is a bug in this commit, and the others of its group shall not suffer for it.
            sqlx::Error::Database(cause) if cause.kind() != sqlx::error::ErrorKind::Other => {
                Self::Refused(StoreError::Unavailable { action: "write to", source: error.into() }.into())
            }
            _ => Self::Broken(error),
        }
    }
}

/// A table whose rows are written by key and revision.
struct Table {
    what: &'static str,
    insert: String,
    update: String,
}

impl Table {
    /// `columns` begin with the `n_key` of the key; parameters are bound in their order, then the revision.
    fn new(what: &'static str, name: &str, n_key: usize, columns: &str) -> Self {
        let names: Vec<&str> = columns.split(", ").collect();
        let key = names[..n_key].join(", ");
        let parameters: Vec<String> = (1..=names.len()).map(|n| format!("${n}")).collect();
        let pairs: Vec<String> =
            names.iter().zip(&parameters).map(|(name, value)| format!("{name} = {value}")).collect();
        let (is_it, sets) = (pairs[..n_key].join(" AND "), pairs[n_key..].join(", "));
        let (values, revision) = (parameters.join(", "), names.len() + 1);
        Self {
            what,
            insert: format!(
                "INSERT INTO {name} ({columns}, revision) VALUES ({values}, ${revision} + 1) ON CONFLICT ({key}) DO NOTHING"
            ),
            update: format!(
                "UPDATE {name} SET {sets}, revision = ${revision} + 1 WHERE {is_it} AND revision = ${revision}"
            ),
        }
    }

    /// The statement that writes a row with this revision; 0 is that of a row that doesn't exist.
    fn query<'q>(&'static self, revision: i64) -> SqlQuery<'q> {
        sqlx::query(if revision == 0 { self.insert.as_str() } else { self.update.as_str() })
    }

    /// Runs `query`, to which all columns are bound, if the row still has `revision`.
    async fn write(
        &self,
        connection: &mut SqliteConnection,
        query: SqlQuery<'_>,
        id: &(impl ToString + Sync),
        revision: i64,
    ) -> Result<(), Failure> {
        let done = query.bind(revision).execute(connection).await?;
        if done.rows_affected() == 1 { Ok(()) } else { Err(outdated(self.what, id)) }
    }
}

fn outdated(what: &'static str, id: &impl ToString) -> Failure {
    Failure::Refused(CommitError::Outdated { what, id: id.to_string() })
}

/// Applies `commit`. After a failure some of it may have been made.
pub(super) async fn apply(connection: &mut SqliteConnection, commit: &Commit) -> Result<(), Failure> {
    for expect in &commit.expect {
        check(connection, expect).await?;
    }
    for change in &commit.changes {
        match change {
            Change::Agent(agent) => write_agent(connection, agent).await?,
            Change::Project(project) => write_project(connection, project).await?,
            Change::Assign(assignment) => {
                let sql = "INSERT INTO assignments (project_id, agent_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";
                execute(connection, bind_assignment(sqlx::query(sql), assignment)).await?;
            }
            Change::Unassign(assignment) => {
                let sql = "DELETE FROM assignments WHERE project_id = $1 AND agent_id = $2";
                execute(connection, bind_assignment(sqlx::query(sql), assignment)).await?;
            }
            Change::Task(task) => write_task(connection, task).await?,
            Change::Launch(launch) => write_launch(connection, launch).await?,
            Change::Session(session) => write_session(connection, session).await?,
            Change::Execution(execution) => write_execution(connection, execution).await?,
            Change::Notice(notice) => write_notice(connection, notice).await?,
            Change::Message(message) => append_message(connection, message).await?,
            Change::OutputTail(launch, tail) => {
                let sql = "INSERT INTO output_tails (launch_id, tail) VALUES ($1, $2) \
                    ON CONFLICT (launch_id) DO UPDATE SET tail = excluded.tail";
                execute(connection, sqlx::query(sql).bind(launch.as_str()).bind(tail)).await?;
                let sql = "DELETE FROM output_tails WHERE launch_id IN \
                    (SELECT launch_id FROM output_tails ORDER BY launch_id DESC LIMIT -1 OFFSET $1)";
                execute(connection, sqlx::query(sql).bind(super::limit(MAX_OUTPUT_TAILS))).await?;
            }
            Change::Pair(pair) => write_pair(connection, pair).await?,
            Change::Account(account) => write_account(connection, account).await?,
            Change::Credential(credential) => write_credential(connection, credential).await?,
            Change::ForgeItem(item) => write_item(connection, item).await?,
            Change::ForgetItem(id) => {
                let sql = "DELETE FROM forge_items WHERE id = $1 AND ended_at IS NOT NULL";
                execute(connection, sqlx::query(sql).bind(id.as_str())).await?;
            }
            Change::ForgetCredential(id) => {
                let sql = "DELETE FROM credentials WHERE id = $1";
                execute(connection, sqlx::query(sql).bind(id.as_str())).await?;
            }
            Change::Pause(since) => write_pause(connection, *since).await?,
            Change::Event(event) => append_event(connection, event).await?,
            Change::ForgetLaunch(id) => forget_launch(connection, id).await?,
            Change::ForgetEvents(up_to) => {
                execute(connection, sqlx::query("DELETE FROM events WHERE seq <= $1").bind(up_to)).await?;
            }
            Change::ForgetMessages(chat, up_to) => {
                let sql = "DELETE FROM messages WHERE project_id = $1 AND agent_id = $2 AND seq <= $3";
                execute(connection, bind_assignment(sqlx::query(sql), chat).bind(up_to)).await?;
            }
        }
    }
    Ok(())
}

async fn execute(connection: &mut SqliteConnection, query: SqlQuery<'_>) -> Result<(), Failure> {
    query.execute(connection).await?;
    Ok(())
}

async fn check(connection: &mut SqliteConnection, expect: &Expect) -> Result<(), Failure> {
    match expect {
        Expect::NoOpenLaunch(key) => {
            let sql = "SELECT id FROM launches \
                WHERE agent_id = $1 AND project_id = $2 AND purpose = $3 AND state <> 'ended'";
            match bind_key(sqlx::query(sql), key).fetch_optional(connection).await? {
                Some(_) => Err(open_launch(key)),
                None => Ok(()),
            }
        }
        Expect::TaskAt(id, revision) => {
            let query = sqlx::query("SELECT revision FROM tasks WHERE id = $1").bind(id.as_str());
            check_revision(connection, query, *revision).await?.then_some(()).ok_or_else(|| outdated("task", id))
        }
        Expect::LaunchAt(id, revision) => {
            let query = sqlx::query("SELECT revision FROM launches WHERE id = $1").bind(id.as_str());
            check_revision(connection, query, *revision).await?.then_some(()).ok_or_else(|| outdated("launch", id))
        }
        Expect::PairAt(key, revision) => {
            let sql = "SELECT revision FROM pairs WHERE agent_id = $1 AND project_id = $2 AND purpose = $3";
            let is_same = check_revision(connection, bind_key(sqlx::query(sql), key), *revision).await?;
            is_same.then_some(()).ok_or_else(|| outdated("pair", key))
        }
        Expect::NoMessageAfter(chat, seq) => {
            let sql =
                "SELECT id FROM messages WHERE project_id = $1 AND agent_id = $2 AND seq > $3 ORDER BY seq LIMIT 1";
            let newer = bind_assignment(sqlx::query(sql), chat).bind(seq).fetch_optional(connection).await?;
            match newer.map(|row| row.try_get::<String, _>("id")).transpose()? {
                Some(id) => Err(outdated("chat", &id)),
                None => Ok(()),
            }
        }
        Expect::NoOpenItem(key) => check_no_open_item(connection, key, "").await,
        Expect::NotPaused => {
            let pause = sqlx::query("SELECT since FROM pauses").fetch_optional(connection).await?;
            if pause.is_none() { Ok(()) } else { Err(outdated("pause", &"")) }
        }
    }
}

/// Whether nobody but `id` works on the item.
async fn check_no_open_item(connection: &mut SqliteConnection, key: &ItemKey, id: &str) -> Result<(), Failure> {
    let sql = "SELECT id FROM forge_items WHERE forge = $1 AND host = $2 AND repository = $3 AND kind = $4 AND number = $5 \
        AND ended_at IS NULL AND id <> $6";
    let query = bind_item(sqlx::query(sql), key).bind(id);
    match query.fetch_optional(connection).await? {
        Some(_) => Err(outdated("forge item", key)),
        None => Ok(()),
    }
}

async fn check_revision(
    connection: &mut SqliteConnection,
    query: SqlQuery<'_>,
    revision: i64,
) -> Result<bool, sqlx::Error> {
    let row = query.fetch_optional(connection).await?;
    let found: i64 = row.map(|row| row.try_get("revision")).transpose()?.unwrap_or(0);
    Ok(found == revision)
}

fn open_launch(key: &InstanceKey) -> Failure {
    Failure::Refused(CommitError::OpenLaunch { key: key.clone() })
}

fn bind_assignment<'q>(query: SqlQuery<'q>, assignment: &'q Assignment) -> SqlQuery<'q> {
    query.bind(assignment.project.as_str()).bind(assignment.agent.as_str())
}

async fn write_agent(connection: &mut SqliteConnection, agent: &Agent) -> Result<(), Failure> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("agent", "agents", 1, "id, name, ai_type, system_prompt, passkey_hash, status, created_at")
    });
    let query = TABLE
        .query(agent.revision)
        .bind(agent.id.as_str())
        .bind(&agent.name)
        .bind(&agent.ai_type)
        .bind(&agent.system_prompt)
        .bind(agent.passkey.as_ref().map(crate::domain::secret::PasskeyHash::as_str))
        .bind(agent.status.as_str())
        .bind(agent.created_at.as_millis());
    TABLE.write(connection, query, &agent.id, agent.revision).await
}

async fn write_project(connection: &mut SqliteConnection, project: &Project) -> Result<(), Failure> {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| Table::new("project", "projects", 1, "id, name, working_directory, status, created_at"));
    let Some(working_directory) = project.working_directory.to_str() else {
        let source = BoxError::from(format!("the working directory of project `{}` is not UTF-8", project.id));
        return Err(Failure::Refused(StoreError::Unavailable { action: "write to", source }.into()));
    };
    let query = TABLE
        .query(project.revision)
        .bind(project.id.as_str())
        .bind(&project.name)
        .bind(working_directory)
        .bind(project.status.as_str())
        .bind(project.created_at.as_millis());
    TABLE.write(connection, query, &project.id, project.revision).await
}

async fn write_task(connection: &mut SqliteConnection, task: &Task) -> Result<(), Failure> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns = "id, project_id, parent_id, title, description, status, priority, assignee_id, dependencies, \
            blocked_reason, created_at, status_since";
        Table::new("task", "tasks", 1, columns)
    });
    let dependencies = serde_json::to_string(&task.dependencies).expect("a list of texts is JSON");
    let query = TABLE
        .query(task.revision)
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
    TABLE.write(connection, query, &task.id, task.revision).await
}

async fn write_launch(connection: &mut SqliteConnection, launch: &Launch) -> Result<(), Failure> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns = "id, agent_id, project_id, purpose, coordinator_id, ai_type, ticket_hash, claimed_at, pid, \
            started_at, authenticated_at, task_id, report, stop_reason, is_chat_over, exit_code, signal, n_notices, state, \
            deadline, session_id, stopping_reason, ladder_at, outcome, outcome_reason, ended_at";
        Table::new("launch", "launches", 1, &format!("{columns}, {USAGE}, progress"))
    });
    let query = bind_key(TABLE.query(launch.revision).bind(launch.id.as_str()), &launch.key)
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
    let query = bind_usage(bind_state(query, &launch.state), launch.activity.usage, launch.activity.failure);
    let query = query.bind(&launch.activity.progress);
    match TABLE.write(connection, query, &launch.id, launch.revision).await {
        // The id and the open key are all that is unique, and a known id is no error for this statement.
        Err(Failure::Refused(CommitError::Store(StoreError::Unavailable { source, .. })))
            if is_unique_violation(&source) =>
        {
            Err(open_launch(&launch.key))
        }
        result => result,
    }
}

fn is_unique_violation(error: &BoxError) -> bool {
    error
        .downcast_ref::<sqlx::Error>()
        .and_then(sqlx::Error::as_database_error)
        .is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}

/// The state and what exists only in it; what belongs to other states becomes NULL.
fn bind_state<'q>(query: SqlQuery<'q>, state: &'q LaunchState) -> SqlQuery<'q> {
    let (mut deadline, mut session, mut reason, mut ladder_at, mut end) = (None, None, None, None, None);
    match state {
        LaunchState::Starting { deadline: at } => deadline = Some(at.as_millis()),
        LaunchState::Running { session: id } => session = Some(id.as_str()),
        LaunchState::Stopping { reason: why, ladder_at: at } => {
            (reason, ladder_at) = (Some(why.as_str()), Some(at.as_millis()));
        }
        LaunchState::Ending => {}
        LaunchState::Ended { outcome, at } => end = Some((outcome, at.as_millis())),
    }
    let query = query.bind(state.as_str()).bind(deadline).bind(session).bind(reason).bind(ladder_at);
    bind_outcome(query, end.map(|(outcome, _)| outcome)).bind(end.map(|(_, at)| at))
}

fn bind_outcome<'q>(query: SqlQuery<'q>, outcome: Option<&'q Outcome>) -> SqlQuery<'q> {
    query.bind(outcome.map(Outcome::as_str)).bind(outcome.and_then(Outcome::reason))
}

const USAGE: &str = "input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd_micros, turns, \
    failure, failure_resets_at";

fn bind_usage(query: SqlQuery<'_>, usage: Usage, failure: Option<crate::domain::Failure>) -> SqlQuery<'_> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    query
        .bind(number(usage.input_tokens))
        .bind(number(usage.output_tokens))
        .bind(number(usage.cache_read_tokens))
        .bind(number(usage.cache_write_tokens))
        .bind(number(usage.cost_usd_micros))
        .bind(number(usage.turns))
        .bind(failure.map(|failure| failure.class.as_str()))
        .bind(millis(failure.and_then(|failure| failure.resets_at)))
}

async fn write_session(connection: &mut SqliteConnection, session: &Session) -> Result<(), Failure> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns = "id, launch_id, agent_id, project_id, purpose, token_hash, created_at, last_seen_at, ended_at, \
            end_reason, handed_out";
        Table::new("session", "sessions", 1, columns)
    });
    let query =
        bind_key(TABLE.query(session.revision).bind(session.id.as_str()).bind(session.launch.as_str()), &session.key)
            .bind(session.token.as_str())
            .bind(session.created_at.as_millis())
            .bind(session.last_seen_at.as_millis())
            .bind(session.ended.map(|(at, _)| at.as_millis()))
            .bind(session.ended.map(|(_, reason)| reason.as_str()))
            .bind(session.handed_out);
    TABLE.write(connection, query, &session.id, session.revision).await
}

async fn write_execution(connection: &mut SqliteConnection, execution: &Execution) -> Result<(), Failure> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns = "id, launch_id, task_id, agent_id, project_id, purpose, started_at, ended_at, result, summary, \
            next_steps, progress, findings, outcome, outcome_reason";
        Table::new("execution", "executions", 1, &format!("{columns}, {USAGE}"))
    });
    let query = TABLE
        .query(execution.revision)
        .bind(execution.id.as_str())
        .bind(execution.launch.as_str())
        .bind(execution.task.as_str());
    let query = bind_key(query, &execution.key)
        .bind(execution.started_at.as_millis())
        .bind(millis(execution.ended_at))
        .bind(execution.result.map(crate::domain::launch::ReportResult::as_str))
        .bind(&execution.summary)
        .bind(&execution.next_steps)
        .bind(&execution.progress)
        .bind(&execution.findings);
    let query = bind_outcome(query, execution.outcome.as_ref());
    let query = bind_usage(query, execution.usage, execution.failure);
    TABLE.write(connection, query, &execution.id, execution.revision).await
}

async fn write_pair(connection: &mut SqliteConnection, pair: &PairRecord) -> Result<(), Failure> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns = "agent_id, project_id, purpose, held_since, n_failures, last_end_at, failed_at, suspended_since, \
            is_misconfigured, wanted_since, read_up_to";
        Table::new("pair", "pairs", 3, columns)
    });
    let failed_at: Vec<i64> = pair.failed_at.iter().map(|at| at.as_millis()).collect();
    let failed_at = serde_json::to_string(&failed_at).expect("a list of numbers is JSON");
    let query = bind_key(TABLE.query(pair.revision), &pair.key)
        .bind(millis(pair.held_since))
        .bind(i64::from(pair.n_failures))
        .bind(millis(pair.last_end_at))
        .bind(failed_at)
        .bind(millis(pair.suspended_since))
        .bind(pair.is_misconfigured)
        .bind(millis(pair.wanted_since))
        .bind(pair.read_up_to);
    TABLE.write(connection, query, &pair.key, pair.revision).await
}

async fn write_account(connection: &mut SqliteConnection, account: &Account) -> Result<(), Failure> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns = "ai_type, parked_class, parked_since, parked_until, n_parked, probe_launch_id, probe_at";
        Table::new("account", "accounts", 1, columns)
    });
    let parked = account.parked.as_ref();
    let probe = parked.and_then(|parked| parked.probe.as_ref());
    let query = TABLE
        .query(account.revision)
        .bind(&account.ai_type)
        .bind(parked.map(|parked| parked.class.as_str()))
        .bind(parked.map(|parked| parked.since.as_millis()))
        .bind(parked.map(|parked| parked.until.as_millis()))
        .bind(parked.map(|parked| i64::from(parked.n_failures)))
        .bind(probe.map(|probe| probe.launch.as_str()))
        .bind(probe.map(|probe| probe.at.as_millis()));
    TABLE.write(connection, query, &account.ai_type, account.revision).await
}

async fn write_credential(connection: &mut SqliteConnection, credential: &Credential) -> Result<(), Failure> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns = "id, kind, name, role, secret_hash, created_at, expires_at, last_used_at, revoked_at";
        Table::new("credential", "credentials", 1, columns)
    });
    let query = TABLE
        .query(credential.revision)
        .bind(credential.id.as_str())
        .bind(credential.kind.as_str())
        .bind(&credential.name)
        .bind(credential.role.as_str())
        .bind(credential.secret.as_str())
        .bind(credential.created_at.as_millis())
        .bind(millis(credential.expires_at))
        .bind(millis(credential.last_used_at))
        .bind(millis(credential.revoked_at));
    TABLE.write(connection, query, &credential.id, credential.revision).await
}

async fn write_item(connection: &mut SqliteConnection, item: &ForgeItem) -> Result<(), Failure> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let columns = "id, forge, host, repository, kind, number, agent_id, project_id, task_id, title, url, state, owed, \
            n_attempts, n_refusals, retry_at, last_error, n_comments, is_missing, n_resumed, created_at, ended_at";
        Table::new("forge item", "forge_items", 1, columns)
    });
    if item.is_open() {
        check_no_open_item(connection, &item.key, item.id.as_str()).await?;
    }
    let json = |value: Result<String, serde_json::Error>| value.expect("a state has text keys only");
    let query = bind_item(TABLE.query(item.revision).bind(item.id.as_str()), &item.key)
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
    TABLE.write(connection, query, &item.id, item.revision).await
}

async fn write_notice(connection: &mut SqliteConnection, notice: &Notice) -> Result<(), Failure> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("notice", "notices", 1, "id, launch_id, task_id, action, demand, created_at, read_at, settled_at")
    });
    let query = TABLE
        .query(notice.revision)
        .bind(notice.id.as_str())
        .bind(notice.launch.as_str())
        .bind(notice.task.as_ref().map(crate::domain::id::TaskId::as_str))
        .bind(notice.action.as_str())
        .bind(notice.demand.as_str())
        .bind(notice.created_at.as_millis())
        .bind(millis(notice.read_at))
        .bind(millis(notice.settled_at));
    TABLE.write(connection, query, &notice.id, notice.revision).await
}

async fn append_message(connection: &mut SqliteConnection, message: &Message) -> Result<(), Failure> {
    let sql = "INSERT INTO messages (id, agent_id, project_id, sender, content, created_at, is_visible) \
        VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING";
    let query = sqlx::query(sql)
        .bind(message.id.as_str())
        .bind(message.agent.as_str())
        .bind(message.project.as_str())
        .bind(message.sender.as_str())
        .bind(&message.content)
        .bind(message.created_at.as_millis())
        .bind(message.is_visible);
    let done = query.execute(connection).await?;
    if done.rows_affected() == 1 { Ok(()) } else { Err(outdated("message", &message.id)) }
}

async fn write_pause(connection: &mut SqliteConnection, since: Option<Timestamp>) -> Result<(), Failure> {
    execute(connection, sqlx::query("DELETE FROM pauses")).await?;
    match since {
        Some(since) => {
            execute(connection, sqlx::query("INSERT INTO pauses (since) VALUES ($1)").bind(since.as_millis())).await
        }
        None => Ok(()),
    }
}

async fn forget_launch(connection: &mut SqliteConnection, id: &crate::domain::LaunchId) -> Result<(), Failure> {
    let sql = "DELETE FROM launches WHERE id = $1 AND state = 'ended'";
    let done = sqlx::query(sql).bind(id.as_str()).execute(&mut *connection).await?;
    if done.rows_affected() == 0 {
        return Ok(());
    }
    for sql in [
        "DELETE FROM sessions WHERE launch_id = $1",
        "DELETE FROM notices WHERE launch_id = $1",
        "DELETE FROM executions WHERE launch_id = $1",
        "DELETE FROM output_tails WHERE launch_id = $1",
    ] {
        execute(connection, sqlx::query(sql).bind(id.as_str())).await?;
    }
    Ok(())
}

async fn append_event(connection: &mut SqliteConnection, event: &NewEvent) -> Result<(), Failure> {
    let sql = "INSERT INTO events (at, kind, agent_id, project_id, launch_id, task_id, detail) \
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let query = sqlx::query(sql)
        .bind(event.at.as_millis())
        .bind(event.kind)
        .bind(event.agent.as_ref().map(crate::domain::id::AgentId::as_str))
        .bind(event.project.as_ref().map(crate::domain::id::ProjectId::as_str))
        .bind(event.launch.as_ref().map(crate::domain::id::LaunchId::as_str))
        .bind(event.task.as_ref().map(crate::domain::id::TaskId::as_str))
        .bind(&event.detail);
    execute(connection, query).await
}

fn millis(at: Option<Timestamp>) -> Option<i64> {
    at.map(Timestamp::as_millis)
}
