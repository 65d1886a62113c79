//! Looks at a PostgreSQL database without a change, for `check`.

use std::time::Duration;

use domain::store_state::Spread;
use postgres_url::PostgresUrl;
use runtime::clock;

use super::super::schema;
use super::Role;
use super::client::{Client, Connector};
use super::open::{
    LONGEST_SILENCE, OpenError, OpenErrorKind, Problem, applied, check_server, holder, is_ours,
    newest, options, refused,
};

/// The number of statements by which a look measures the time of one.
const N_ROUND_TRIPS: usize = 5;

/// The result of a look at a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseFacts {
    /// The version of the PostgreSQL server.
    pub version: String,
    /// The time of a statement without work.
    pub round_trip: Duration,
    pub schema: Schema,
    /// The name of the server that uses the database now.
    pub used_by: Option<String>,
}

/// The tables of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    /// The first start of a server creates them.
    Missing,
    /// The next start of a server brings them to version `next`.
    Older {
        version: i64,
        next: i64,
    },
    Current {
        version: i64,
    },
}

/// Checks all that a server checks when it opens the database, and changes nothing. Blocks.
///
/// # Errors
/// [`OpenError`] names the problem and the remedy. A server that uses the database is no problem.
pub fn look(url: &PostgresUrl) -> Result<DatabaseFacts, OpenError> {
    look_at(url).map_err(|problem| problem.of(url))
}

fn look_at(url: &PostgresUrl) -> Result<DatabaseFacts, Problem> {
    let connector = Connector {
        url: url.clone(),
        name: "agent-coordinator check".to_owned(),
        longest_silence: LONGEST_SILENCE,
    };
    let mut client = Client::connect(connector, &options(Role::Writer))
        .map_err(|error| refused(error, url.tls()))?;
    let version = check_server(&mut client)?;
    let mut round_trips = Vec::new();
    for _ in 0..N_ROUND_TRIPS {
        let began_at = clock::unpaused();
        client.batch_execute("SELECT 1")?;
        round_trips.push(began_at.elapsed());
    }
    let round_trip = Spread::of(round_trips).map_or(Duration::ZERO, |spread| spread.median);
    client.batch_execute("BEGIN READ ONLY")?;
    let schema = if is_ours(&mut client)? {
        let applied = applied(&mut client)?;
        let version = newest(&applied);
        let next = schema::newest_version();
        let is_current = schema::missing(&applied)?.next().is_none();
        if is_current { Schema::Current { version } } else { Schema::Older { version, next } }
    } else {
        Schema::Missing
    };
    let sql = "SELECT COALESCE(has_schema_privilege(current_schema(), 'CREATE'), FALSE)";
    let may_create: bool = client.query_one(sql, &[])?.get(0);
    if !may_create && !matches!(schema, Schema::Current { .. }) {
        return Err(Problem::new(OpenErrorKind::NotAllowed));
    }
    let used_by = holder(&mut client)?;
    Ok(DatabaseFacts { version, round_trip, schema, used_by })
}
