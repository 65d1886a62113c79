//! From rows to values of the domain. A row that this program can't have written is named, not guessed at.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::value::{BorrowedStrDeserializer, Error as WordError};
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Row, Sqlite, Type};

use super::BoxError;
use crate::domain::account::{Parked, Probe};
use crate::domain::agent::Assignment;
use crate::domain::event::Event;
use crate::domain::id::{ItemId, LaunchId};
use crate::domain::launch::ExitStatus;
use crate::domain::pair::OpenLaunch;
use crate::domain::retention::{PastLaunch, PastWork};
use crate::domain::secret::{PasskeyHash, TokenHash};
use crate::domain::totals::{Total, TotalKey};
use crate::domain::{
    Account, Activity, Agent, Credential, Execution, Failure, ForgeItem, InstanceKey, ItemKey,
    Launch, LaunchState, Message, Notice, Outcome, PairFacts, PairRecord, Project, Session, Task,
    TaskId, Timestamp, Usage,
};
use crate::store::StoreError;

/// The columns of one row.
struct Columns<'r>(&'r SqliteRow);

impl<'r> Columns<'r> {
    fn get<T: Decode<'r, Sqlite> + Type<Sqlite>>(&self, column: &str) -> Result<T, BoxError> {
        Ok(self.0.try_get(column)?)
    }

    fn time(&self, column: &str) -> Result<Timestamp, BoxError> {
        self.get(column).map(Timestamp::from_millis)
    }

    fn optional_time(&self, column: &str) -> Result<Option<Timestamp>, BoxError> {
        Ok(self.get::<Option<i64>>(column)?.map(Timestamp::from_millis))
    }

    /// Ids and other texts with a grammar of their own.
    fn parsed<T: FromStr<Err: Into<BoxError>>>(&self, column: &str) -> Result<T, BoxError> {
        self.get::<&str>(column)?.parse().map_err(Into::into)
    }

    fn optional<T: FromStr<Err: Into<BoxError>>>(
        &self,
        column: &str,
    ) -> Result<Option<T>, BoxError> {
        self.get::<Option<&str>>(column)?.map(str::parse).transpose().map_err(Into::into)
    }

    fn word<T: Deserialize<'r>>(&self, column: &str) -> Result<T, BoxError> {
        word(self.get(column)?)
    }

    fn optional_word<T: Deserialize<'r>>(&self, column: &str) -> Result<Option<T>, BoxError> {
        self.get::<Option<&str>>(column)?.map(word).transpose()
    }

    fn number<T: TryFrom<i64, Error: Into<BoxError>>>(&self, column: &str) -> Result<T, BoxError> {
        self.get::<i64>(column)?.try_into().map_err(Into::into)
    }

    fn optional_number<T: TryFrom<i64, Error: Into<BoxError>>>(
        &self,
        column: &str,
    ) -> Result<Option<T>, BoxError> {
        self.get::<Option<i64>>(column)?.map(T::try_from).transpose().map_err(Into::into)
    }

    fn key(&self) -> Result<InstanceKey, BoxError> {
        Ok(InstanceKey {
            agent: self.parsed("agent_id")?,
            project: self.parsed("project_id")?,
            purpose: self.parsed("purpose")?,
        })
    }

    fn state(&self) -> Result<LaunchState, BoxError> {
        match self.get("state")? {
            "starting" => Ok(LaunchState::Starting { deadline: self.time("deadline")? }),
            "running" => Ok(LaunchState::Running { session: self.parsed("session_id")? }),
            "stopping" => Ok(LaunchState::Stopping {
                reason: self.word("stopping_reason")?,
                ladder_at: self.time("ladder_at")?,
            }),
            "ending" => Ok(LaunchState::Ending),
            "ended" => {
                let outcome = self.outcome()?.ok_or("an ended launch without an outcome")?;
                Ok(LaunchState::Ended { outcome, at: self.time("ended_at")? })
            }
            other => Err(format!("`{other}` is no state of a launch").into()),
        }
    }

    fn outcome(&self) -> Result<Option<Outcome>, BoxError> {
        let Some(outcome) = self.get::<Option<&str>>("outcome")? else {
            return Ok(None);
        };
        Ok(Some(match outcome {
            "completed" => Outcome::Completed,
            "blocked" => Outcome::Blocked,
            "failed" => Outcome::Failed,
            "stopped" => Outcome::Stopped(self.word("outcome_reason")?),
            "exited_without_report" => Outcome::ExitedWithoutReport,
            "never_authenticated" => Outcome::NeverAuthenticated,
            "start_failed" => Outcome::StartFailed(self.get("outcome_reason")?),
            "timed_out" => Outcome::TimedOut(self.word("outcome_reason")?),
            "lost" => Outcome::Lost,
            other => return Err(format!("`{other}` is no outcome").into()),
        }))
    }

    fn usage(&self) -> Result<Usage, BoxError> {
        Ok(Usage {
            input_tokens: self.number("input_tokens")?,
            output_tokens: self.number("output_tokens")?,
            cache_read_tokens: self.number("cache_read_tokens")?,
            cache_write_tokens: self.number("cache_write_tokens")?,
            cost_usd_micros: self.number("cost_usd_micros")?,
            turns: self.number("turns")?,
        })
    }

    fn failure(&self) -> Result<Option<Failure>, BoxError> {
        let resets_at = self.optional_time("failure_resets_at")?;
        Ok(self.optional_word("failure")?.map(|class| Failure { class, resets_at }))
    }

    fn open_launch(&self) -> Result<Option<OpenLaunch>, BoxError> {
        let id: Option<LaunchId> = self.optional("launch_id")?;
        id.map(|id| Ok(OpenLaunch { id, state: self.state()? })).transpose()
    }

    fn facts(&self, key: InstanceKey) -> Result<PairFacts, BoxError> {
        let agent = match self.optional_word("agent_status")? {
            Some(status) => Some((status, self.get("ai_type")?)),
            None => None,
        };
        let project = match self.optional_word("project_status")? {
            Some(status) => Some((status, PathBuf::from(self.get::<String>("working_directory")?))),
            None => None,
        };
        let ai_type = agent.as_ref().map_or("", |(_, ai_type): &(_, String)| ai_type).to_owned();
        let account = match self.get::<Option<i64>>("account_revision")? {
            Some(_) => self.account(ai_type)?,
            None => Account::new(ai_type),
        };
        let record = match self.get::<Option<i64>>("revision")? {
            Some(_) => self.record(key.clone())?,
            None => PairRecord::new(key.clone()),
        };
        Ok(PairFacts {
            key,
            agent,
            project,
            is_assigned: self.get("is_assigned")?,
            waiting_since: self.optional_time("waiting_since")?,
            open: self.open_launch()?,
            record,
            account,
            is_paused: self.get("is_paused")?,
        })
    }

    fn account(&self, ai_type: String) -> Result<Account, BoxError> {
        let probe = match self.optional("probe_launch_id")? {
            Some(launch) => Some(Probe { launch, at: self.time("probe_at")? }),
            None => None,
        };
        let parked = match self.optional_word("parked_class")? {
            Some(class) => Some(Parked {
                class,
                since: self.time("parked_since")?,
                until: self.time("parked_until")?,
                n_failures: self.number("n_parked")?,
                probe,
            }),
            None => None,
        };
        Ok(Account { ai_type, parked, revision: self.get("account_revision")? })
    }

    fn record(&self, key: InstanceKey) -> Result<PairRecord, BoxError> {
        Ok(PairRecord {
            key,
            held_since: self.optional_time("held_since")?,
            n_failures: self.number("n_failures")?,
            last_end_at: self.optional_time("last_end_at")?,
            failed_at: serde_json::from_str::<Vec<i64>>(self.get("failed_at")?)?
                .into_iter()
                .map(Timestamp::from_millis)
                .collect(),
            suspended_since: self.optional_time("suspended_since")?,
            is_misconfigured: self.get("is_misconfigured")?,
            wanted_since: self.optional_time("wanted_since")?,
            read_up_to: self.get("read_up_to")?,
            revision: self.get("revision")?,
        })
    }
}

/// Enums are stored as the word that serde also knows them by.
fn word<'r, T: Deserialize<'r>>(text: &'r str) -> Result<T, BoxError> {
    Ok(T::deserialize(BorrowedStrDeserializer::<WordError>::new(text))?)
}

/// `read` the columns; a failure names the `what` that can't be read.
fn read<'r, T>(
    what: &'static str,
    row: &'r SqliteRow,
    read: impl FnOnce(&Columns<'r>) -> Result<T, BoxError>,
) -> Result<T, StoreError> {
    read(&Columns(row)).map_err(|source| StoreError::Unreadable { what, id: name_of(row), source })
}

/// The columns that name a row, as far as they can be read.
fn name_of(row: &SqliteRow) -> String {
    let columns = ["id", "seq", "agent_id", "project_id", "purpose"];
    let texts =
        columns.iter().filter_map(|column| row.try_get_unchecked::<String, _>(*column).ok());
    if row.try_get_raw("id").is_ok() {
        texts.take(1).collect()
    } else {
        texts.collect::<Vec<_>>().join("/")
    }
}

pub(super) fn agent(row: &SqliteRow) -> Result<Agent, StoreError> {
    read("agent", row, |row| {
        Ok(Agent {
            id: row.parsed("id")?,
            name: row.get("name")?,
            ai_type: row.get("ai_type")?,
            system_prompt: row.get("system_prompt")?,
            passkey: row.get::<Option<String>>("passkey_hash")?.map(PasskeyHash::from_stored),
            status: row.word("status")?,
            created_at: row.time("created_at")?,
            revision: row.get("revision")?,
        })
    })
}

pub(super) fn project(row: &SqliteRow) -> Result<Project, StoreError> {
    read("project", row, |row| {
        Ok(Project {
            id: row.parsed("id")?,
            name: row.get("name")?,
            working_directory: PathBuf::from(row.get::<String>("working_directory")?),
            status: row.word("status")?,
            created_at: row.time("created_at")?,
            revision: row.get("revision")?,
        })
    })
}

pub(super) fn assignment(row: &SqliteRow) -> Result<Assignment, StoreError> {
    read("assignment", row, |row| {
        Ok(Assignment { project: row.parsed("project_id")?, agent: row.parsed("agent_id")? })
    })
}

pub(super) fn credential(row: &SqliteRow) -> Result<Credential, StoreError> {
    read("credential", row, |row| {
        Ok(Credential {
            id: row.parsed("id")?,
            kind: row.word("kind")?,
            name: row.get("name")?,
            role: row.word("role")?,
            secret: TokenHash::from_stored(row.get("secret_hash")?),
            created_at: row.time("created_at")?,
            expires_at: row.optional_time("expires_at")?,
            last_used_at: row.optional_time("last_used_at")?,
            revoked_at: row.optional_time("revoked_at")?,
            revision: row.get("revision")?,
        })
    })
}

pub(super) fn forge_item(row: &SqliteRow) -> Result<ForgeItem, StoreError> {
    read("forge item", row, |row| {
        Ok(ForgeItem {
            id: row.parsed("id")?,
            key: ItemKey {
                forge: row.word("forge")?,
                host: row.get("host")?,
                repository: row.get("repository")?,
                kind: row.word("kind")?,
                number: row.number("number")?,
            },
            agent: row.parsed("agent_id")?,
            project: row.parsed("project_id")?,
            task: row.parsed("task_id")?,
            title: row.get("title")?,
            url: row.get("url")?,
            state: serde_json::from_str(row.get("state")?)?,
            owed: serde_json::from_str(row.get("owed")?)?,
            n_attempts: row.number("n_attempts")?,
            n_refusals: row.number("n_refusals")?,
            retry_at: row.optional_time("retry_at")?,
            last_error: row.get("last_error")?,
            n_comments: row.number("n_comments")?,
            is_missing: row.get("is_missing")?,
            n_resumed: row.number("n_resumed")?,
            created_at: row.time("created_at")?,
            ended_at: row.optional_time("ended_at")?,
            revision: row.get("revision")?,
        })
    })
}

pub(super) fn item_id(row: &SqliteRow) -> Result<ItemId, StoreError> {
    read("forge item", row, |row| row.parsed("id"))
}

pub(super) fn output_tail(row: &SqliteRow) -> Result<String, StoreError> {
    read("output tail", row, |row| row.get("tail"))
}

pub(super) fn task(row: &SqliteRow) -> Result<Task, StoreError> {
    read("task", row, |row| {
        let dependencies: Vec<TaskId> = serde_json::from_str(row.get("dependencies")?)?;
        Ok(Task {
            id: row.parsed("id")?,
            project: row.parsed("project_id")?,
            parent: row.optional("parent_id")?,
            title: row.get("title")?,
            description: row.get("description")?,
            status: row.word("status")?,
            priority: row.word("priority")?,
            assignee: row.optional("assignee_id")?,
            dependencies,
            blocked_reason: row.get("blocked_reason")?,
            created_at: row.time("created_at")?,
            status_since: row.time("status_since")?,
            revision: row.get("revision")?,
        })
    })
}

pub(super) fn launch(row: &SqliteRow) -> Result<Launch, StoreError> {
    read("launch", row, |row| {
        Ok(Launch {
            id: row.parsed("id")?,
            key: row.key()?,
            coordinator: row.optional("coordinator_id")?,
            ai_type: row.get("ai_type")?,
            ticket: row.get::<Option<String>>("ticket_hash")?.map(TokenHash::from_stored),
            claimed_at: row.time("claimed_at")?,
            state: row.state()?,
            pid: row.optional_number("pid")?,
            started_at: row.optional_time("started_at")?,
            authenticated_at: row.optional_time("authenticated_at")?,
            task: row.optional("task_id")?,
            report: row.optional_word("report")?,
            stop_reason: row.optional_word("stop_reason")?,
            is_chat_over: row.get("is_chat_over")?,
            exit: ExitStatus {
                exit_code: row.optional_number("exit_code")?,
                signal: row.optional_number("signal")?,
            },
            activity: Activity {
                usage: row.usage()?,
                progress: row.get("progress")?,
                failure: row.failure()?,
            },
            n_notices: row.number("n_notices")?,
            revision: row.get("revision")?,
        })
    })
}

/// Without the tasks, which are rows of their own.
pub(super) fn past_launch(row: &SqliteRow) -> Result<PastLaunch, StoreError> {
    read("launch", row, |row| {
        Ok(PastLaunch {
            id: row.parsed("id")?,
            ended_at: row.time("ended_at")?,
            has_open_parts: row.get("has_open_parts")?,
            is_probe: row.get("is_probe")?,
            newest_of: Vec::new(),
        })
    })
}

pub(super) fn total(row: &SqliteRow) -> Result<(TotalKey, Total), StoreError> {
    read("launch", row, |row| {
        let key = TotalKey {
            ai_type: row.get("ai_type")?,
            agent: row.parsed("agent_id")?,
            project: row.parsed("project_id")?,
            outcome: row.get("outcome")?,
        };
        let total = Total {
            n_launches: row.number("n_launches")?,
            run_time: Duration::from_millis(row.number("run_time_ms")?),
            usage: row.usage()?,
            n_with_usage: row.number("n_with_usage")?,
        };
        Ok((key, total))
    })
}

pub(super) fn past_work(row: &SqliteRow) -> Result<PastWork, StoreError> {
    read("execution", row, |row| {
        Ok(PastWork {
            task: row.parsed("task_id")?,
            revision: row.get("revision")?,
            is_open: row.get("is_open")?,
        })
    })
}

pub(super) fn session(row: &SqliteRow) -> Result<Session, StoreError> {
    read("session", row, |row| {
        let ended = match row.optional_time("ended_at")? {
            Some(at) => Some((at, row.word("end_reason")?)),
            None => None,
        };
        Ok(Session {
            id: row.parsed("id")?,
            launch: row.parsed("launch_id")?,
            key: row.key()?,
            token: TokenHash::from_stored(row.get("token_hash")?),
            created_at: row.time("created_at")?,
            last_seen_at: row.time("last_seen_at")?,
            ended,
            handed_out: row.get("handed_out")?,
            revision: row.get("revision")?,
        })
    })
}

pub(super) fn execution(row: &SqliteRow) -> Result<Execution, StoreError> {
    read("execution", row, |row| {
        Ok(Execution {
            id: row.parsed("id")?,
            launch: row.parsed("launch_id")?,
            task: row.parsed("task_id")?,
            key: row.key()?,
            started_at: row.time("started_at")?,
            ended_at: row.optional_time("ended_at")?,
            result: row.optional_word("result")?,
            summary: row.get("summary")?,
            next_steps: row.get("next_steps")?,
            progress: row.get("progress")?,
            findings: row.get("findings")?,
            outcome: row.outcome()?,
            usage: row.usage()?,
            failure: row.failure()?,
            revision: row.get("revision")?,
        })
    })
}

pub(super) fn notice(row: &SqliteRow) -> Result<Notice, StoreError> {
    read("notice", row, |row| {
        Ok(Notice {
            id: row.parsed("id")?,
            launch: row.parsed("launch_id")?,
            task: row.optional("task_id")?,
            action: row.word("action")?,
            demand: row.word("demand")?,
            created_at: row.time("created_at")?,
            read_at: row.optional_time("read_at")?,
            settled_at: row.optional_time("settled_at")?,
            revision: row.get("revision")?,
        })
    })
}

pub(super) fn message(row: &SqliteRow) -> Result<Message, StoreError> {
    read("message", row, |row| {
        Ok(Message {
            seq: row.get("seq")?,
            id: row.parsed("id")?,
            agent: row.parsed("agent_id")?,
            project: row.parsed("project_id")?,
            sender: row.word("sender")?,
            content: row.get("content")?,
            created_at: row.time("created_at")?,
            is_visible: row.get("is_visible")?,
        })
    })
}

pub(super) fn pair(row: &SqliteRow) -> Result<PairRecord, StoreError> {
    read("pair", row, |row| row.record(row.key()?))
}

pub(super) fn account(row: &SqliteRow) -> Result<Account, StoreError> {
    let ai_type = || Columns(row).get::<String>("ai_type");
    let account = ai_type().and_then(|ai_type| Columns(row).account(ai_type));
    account.map_err(|source| StoreError::Unreadable {
        what: "account",
        id: ai_type().unwrap_or_default(),
        source,
    })
}

/// A row of [`super::questions::PAIR_FACTS`].
pub(super) fn pair_facts(row: &SqliteRow, key: InstanceKey) -> Result<PairFacts, StoreError> {
    let id = key.to_string();
    Columns(row).facts(key).map_err(|source| StoreError::Unreadable { what: "pair", id, source })
}

/// A row of [`super::questions::STARTABLE`].
pub(super) fn startable(row: &SqliteRow) -> Result<PairFacts, StoreError> {
    read("pair", row, |row| row.facts(row.key()?))
}

pub(super) fn pause(row: &SqliteRow) -> Result<Timestamp, StoreError> {
    read("pause", row, |row| row.time("since"))
}

pub(super) fn event(row: &SqliteRow) -> Result<Event, StoreError> {
    read("event", row, |row| {
        Ok(Event {
            seq: row.get("seq")?,
            at: row.time("at")?,
            kind: row.get("kind")?,
            agent: row.optional("agent_id")?,
            project: row.optional("project_id")?,
            launch: row.optional("launch_id")?,
            task: row.optional("task_id")?,
            detail: row.get("detail")?,
        })
    })
}
