//! The usage of launches by day. Nothing else stores usage, and only [`raise`] writes it.

use crate::{BoxError, Cells, Read, StoreError, Value};
use domain::spend::{Day, Register, Spender};
use domain::totals::{Total, TotalKey, Totals};
use domain::{ExecutionId, LaunchId, ProjectId, TaskId, Timestamp, Usage};

use super::Transaction;
use super::filter::{Filter, pages_of_ids};

/// The columns that [`read_usage`] reads, after others.
pub(super) const USAGE_AFTER_OTHERS: &str = ", s.input_tokens, s.output_tokens, \
    s.cache_read_tokens, s.cache_write_tokens, s.cost_usd_micros, s.responses, s.is_estimated";

/// Joins the register of the newest day, which has all that a launch used. A launch without usage
/// has no register.
macro_rules! newest_of {
    ($launch:literal) => {
        concat!(
            "LEFT JOIN launch_spend AS s ON s.launch_id = ",
            $launch,
            " AND s.day = (SELECT MAX(n.day) FROM launch_spend AS n WHERE n.launch_id = ",
            $launch,
            ") ",
        )
    };
}
pub(super) use newest_of;

/// Reads usage that may be missing.
pub(super) fn read_usage(cells: &mut Cells<'_>) -> Result<Usage, BoxError> {
    let number = |cells: &mut Cells<'_>| -> Result<u64, BoxError> {
        Ok(cells.get::<Option<u64>>()?.unwrap_or_default())
    };
    Ok(Usage {
        input_tokens: number(cells)?,
        output_tokens: number(cells)?,
        cache_read_tokens: number(cells)?,
        cache_write_tokens: number(cells)?,
        cost_usd_micros: number(cells)?,
        turns: number(cells)?,
        is_estimated: cells.get::<Option<bool>>()?.unwrap_or_default(),
    })
}

fn read_register(cells: &mut Cells<'_>) -> Result<Register, BoxError> {
    Ok(Register { day: Day::from_number(cells.get()?), usage: read_usage(cells)? })
}

/// Returns the registers of a launch, the oldest day first.
pub fn list_of_launch(tx: &mut Read<'_>, launch: &LaunchId) -> Result<Vec<Register>, StoreError> {
    let sql = format!(
        "SELECT s.day{USAGE_AFTER_OTHERS} FROM launch_spend AS s \
        WHERE s.launch_id = ?1 ORDER BY s.day"
    );
    let read = tx.rows("spend", &sql, &[launch.into()], read_register);
    read.map_err(|error| error.named(|| launch.to_string()))
}

/// Raises the register of a launch to a report. A report that adds nothing changes nothing, also on
/// another day.
pub fn raise(
    tx: &mut Transaction<'_>,
    launch: &LaunchId,
    report: Register,
) -> Result<(), StoreError> {
    let newest = list_of_launch(tx, launch)?.pop();
    let Some(Register { day, usage }) = Register::after(newest, report) else {
        return Ok(());
    };
    let sql = "INSERT INTO launch_spend (launch_id, day, input_tokens, output_tokens, \
            cache_read_tokens, cache_write_tokens, cost_usd_micros, responses, is_estimated) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
        ON CONFLICT (launch_id, day) DO UPDATE SET input_tokens = excluded.input_tokens, \
            output_tokens = excluded.output_tokens, \
            cache_read_tokens = excluded.cache_read_tokens, \
            cache_write_tokens = excluded.cache_write_tokens, \
            cost_usd_micros = excluded.cost_usd_micros, responses = excluded.responses, \
            is_estimated = excluded.is_estimated";
    let args: [Value<'_>; 9] = [
        launch.into(),
        day.number().into(),
        usage.input_tokens.into(),
        usage.output_tokens.into(),
        usage.cache_read_tokens.into(),
        usage.cache_write_tokens.into(),
        usage.cost_usd_micros.into(),
        usage.turns.into(),
        usage.is_estimated.into(),
    ];
    tx.execute(sql, &args).map(drop)
}

/// Calls `each` with the registers of launches, those of a launch one after the other and the
/// oldest day first. `since` leaves out launches that used nothing since then.
pub fn read_all(
    tx: &mut Read<'_>,
    since: Option<Day>,
    mut each: impl FnMut(&Spender, Register),
) -> Result<(), StoreError> {
    let mut filter = Filter::default();
    if let Some(since) = since {
        let since = filter.arg(since.number());
        let launches = format!("SELECT n.launch_id FROM launch_spend AS n WHERE n.day >= {since}");
        filter.also(format!("s.launch_id IN ({launches})"));
    }
    let sql = format!(
        "SELECT launches.id, task_id, agent_id, project_id, ai_type, s.day{USAGE_AFTER_OTHERS} \
        FROM launches JOIN launch_spend AS s ON s.launch_id = launches.id"
    );
    let read = |cells: &mut Cells<'_>| {
        let of = Spender {
            launch: cells.get()?,
            task: cells.get()?,
            agent: cells.get()?,
            project: cells.get()?,
            ai_type: cells.get()?,
        };
        each(&of, read_register(cells)?);
        Ok(())
    };
    filter.rows(tx, "spend", &sql, "ORDER BY s.launch_id, s.day", read).map(drop)
}

/// Returns the usage of the launches of a project that ended at this time or later.
pub fn of_project_since(
    tx: &mut Read<'_>,
    project: &ProjectId,
    since: Timestamp,
) -> Result<Usage, StoreError> {
    let sql = format!(
        "SELECT launches.id{USAGE_AFTER_OTHERS} FROM launches {}\
        WHERE state = 'ended' AND ended_at >= ?1 AND project_id = ?2",
        newest_of!("launches.id")
    );
    let all = tx.rows("launch", &sql, &[since.into(), project.into()], |cells| {
        cells.get::<LaunchId>()?;
        read_usage(cells)
    })?;
    Ok(all.into_iter().fold(Usage::default(), Usage::plus))
}

/// Returns the usage of the work on these tasks whose launch has ended.
pub fn of_tasks(tx: &mut Read<'_>, tasks: &[TaskId]) -> Result<Vec<(TaskId, Usage)>, StoreError> {
    let sql = format!(
        "SELECT executions.id, task_id{USAGE_AFTER_OTHERS} FROM executions {}",
        newest_of!("executions.launch_id")
    );
    let mut found = Vec::new();
    for page in pages_of_ids(tasks) {
        let mut filter = Filter::default();
        filter.among("task_id", page);
        filter.also("outcome IS NOT NULL");
        let read = |cells: &mut Cells<'_>| {
            cells.get::<ExecutionId>()?;
            Ok((cells.get()?, read_usage(cells)?))
        };
        found.extend(filter.rows(tx, "execution", &sql, "", read)?);
    }
    Ok(found)
}

/// Returns the sums over all ended launches. The statement selects single rows, because the engines
/// answer a sum beyond 64 bits with an error.
pub fn totals(tx: &mut Read<'_>) -> Result<Vec<(TotalKey, Total)>, StoreError> {
    let sql = format!(
        "SELECT ai_type, agent_id, project_id, outcome, started_at, ended_at{USAGE_AFTER_OTHERS} \
        FROM launches {}WHERE state = 'ended'",
        newest_of!("launches.id")
    );
    let mut totals = Totals::default();
    tx.rows("launch", &sql, &[], |cells| {
        let key = TotalKey {
            ai_type: cells.get()?,
            agent: cells.get()?,
            project: cells.get()?,
            outcome: cells.get()?,
        };
        let started_at = cells.get::<Option<_>>()?;
        let ended_at = cells.get()?;
        totals.add(key, Total::of_one(started_at, ended_at, read_usage(cells)?));
        Ok(())
    })?;
    Ok(totals.into_iter().collect())
}
