//! The store on PostgreSQL.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;

use domain::Secret;
use postgres_url::PostgresUrl;
use store::postgres::open::{self, OpenError, OpenErrorKind, Options};
use store::postgres::{Sharing, look};

use crate::postgres::{Database, GUARDED, USER, database, own, shared};
use crate::postgres_pooler::Pooler;
use crate::support::until;

use super::old::{KEYS, SHORT_IDS, WITHOUT_KEYS};
use super::statements;

mod connections;
mod faults;
mod listener;

/// Returns the options of a server that is alone.
pub fn options(name: &str) -> Options {
    let id = uuid::Uuid::now_v7().simple().to_string();
    Options { name: name.to_owned(), id, sharing: Sharing::OneServer, ..Options::default() }
}

/// Opens a database that must be refused, and returns the reason.
#[track_caller]
fn refused(url: &str) -> OpenError {
    open::database(&url.parse().unwrap(), options("refused")).map(drop).unwrap_err()
}

#[test]
fn each_statement_of_the_program_is_prepared() {
    let Some(database) = database() else { return };
    open::database(&database.parsed_url(), options("first")).unwrap();
    let all: Vec<_> = statements::all().into_iter().collect();
    assert!(all.len() > 100);
    // The script is an argument of a command, whose length is limited.
    for some in all.chunks(100) {
        let mut script = String::new();
        for (n, statement) in some.iter().enumerate() {
            let sql = statement.sql.replace('?', "$");
            writeln!(script, "PREPARE s{n} AS {sql};").unwrap();
        }
        database.run_sql(&script);
    }
}

#[test]
fn all_texts_are_in_the_order_of_their_bytes() {
    let Some(database) = database() else { return };
    open::database(&database.parsed_url(), options("first")).unwrap();
    let others = database.run_sql(
        "SELECT table_name || '.' || column_name FROM information_schema.columns \
         WHERE table_schema = 'public' AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'",
    );
    assert_eq!(others, "");
    let n_texts = database
        .run_sql("SELECT COUNT(*) FROM information_schema.columns WHERE collation_name = 'C'");
    assert!(n_texts.parse::<u32>().unwrap() > 50, "{n_texts}");
}

#[test]
fn an_older_database_gets_keys_and_numbers() {
    let Some(database) = database() else { return };
    open::database(&database.parsed_url(), options("first")).unwrap();
    // This is the schema before the migration.
    database.run_sql(&format!(
        "DELETE FROM _sqlx_migrations WHERE version = 12; DROP TABLE project_keys;
         ALTER TABLE projects DROP COLUMN project_key, DROP COLUMN is_key_edited;
         ALTER TABLE tasks DROP COLUMN project_key, DROP COLUMN number;
         CREATE INDEX tasks_of_project ON tasks (project_id); {WITHOUT_KEYS}"
    ));
    open::database(&database.parsed_url(), options("second")).unwrap();
    let keys = database.run_sql(
        "SELECT p.id || ' ' || p.project_key || ' ' || k.next_number FROM projects AS p \
         JOIN project_keys AS k ON k.key = p.project_key AND k.project_id = p.id ORDER BY p.id",
    );
    // Here, no other project has the key PRJ.
    assert_eq!(keys.lines().collect::<Vec<_>>(), KEYS.map(|key| key.replace("PRJ3", "PRJ")));
    let short_ids =
        database.run_sql("SELECT id || ' ' || project_key || '-' || number FROM tasks ORDER BY id");
    assert_eq!(short_ids.lines().collect::<Vec<_>>(), SHORT_IDS);
}

#[test]
fn a_deletion_that_waits_for_its_undo_is_finished() {
    let Some(database) = database() else { return };
    open::database(&database.parsed_url(), options("first")).unwrap();
    // This is schema 28, as far as the fixture needs it.
    database.run_sql(
        "DELETE FROM _sqlx_migrations WHERE version > 28 AND version < 32;
         CREATE TABLE samples (minute BIGINT PRIMARY KEY NOT NULL, running BIGINT NOT NULL,
            waiting BIGINT NOT NULL, tokens BIGINT NOT NULL, cost_usd_micros BIGINT NOT NULL);
         ALTER TABLE pauses DROP COLUMN file;
         ALTER TABLE deleted_names DROP COLUMN has_launches;
         CREATE TABLE deletions (kind TEXT NOT NULL, object_id TEXT NOT NULL,
            deleted_at BIGINT NOT NULL, undo_until BIGINT NOT NULL, content TEXT NOT NULL,
            PRIMARY KEY (kind, object_id))",
    );
    database.run_sql(include_str!("../../fixtures/store/deletion_28.sql"));
    open::database(&database.parsed_url(), options("second")).unwrap();
    for answer in include_str!("../../fixtures/store/deletion_28.expected").split("\n\n") {
        let (sql, rows) = answer.split_once('\n').unwrap();
        assert_eq!(database.run_sql(sql), rows.trim_end(), "{sql}");
    }
    let old = "SELECT COUNT(*) FROM pg_tables WHERE tablename IN ('deletions', 'samples')";
    assert_eq!(database.run_sql(old), "0");
}

#[test]
fn usage_of_an_older_database_moves_to_the_days_of_launches() {
    let Some(database) = database() else { return };
    open::database(&database.parsed_url(), options("first")).unwrap();
    // This is schema 31, as far as the fixture needs it.
    let columns = [
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "cost_usd_micros",
        "turns",
    ];
    let columns = columns.map(|name| format!("ADD COLUMN {name} BIGINT NOT NULL DEFAULT 0"));
    let columns = columns.join(", ");
    database.run_sql(&format!(
        "DELETE FROM _sqlx_migrations WHERE version = 32; DROP TABLE launch_spend;
         ALTER TABLE launches {columns}; ALTER TABLE executions {columns}"
    ));
    database.run_sql(include_str!("../../fixtures/store/usage_31.sql"));
    open::database(&database.parsed_url(), options("second")).unwrap();
    for answer in include_str!("../../fixtures/store/usage_31.expected").split("\n\n") {
        let (sql, rows) = answer.split_once('\n').unwrap();
        assert_eq!(database.run_sql(sql), rows.trim_end(), "{sql}");
    }
    let old = "SELECT COUNT(*) FROM information_schema.columns \
        WHERE column_name IN ('turns', 'input_tokens') AND table_name <> 'launch_spend'";
    assert_eq!(database.run_sql(old), "0");
}

#[test]
fn a_database_is_opened_again_without_a_change() {
    let Some(database) = database() else { return };
    for _ in 0..2 {
        open::database(&database.parsed_url(), options("first")).unwrap();
    }
    let versions = database.run_sql("SELECT COUNT(*), MAX(version) FROM _sqlx_migrations");
    let newest = std::fs::read_dir("crates/store/src/migrations").unwrap().count() - 1;
    assert_eq!(versions, format!("{newest}|{newest}"));
}

/// Creates a user in the shared server. Only one test uses each name.
fn user(database: &Database<'_>, name: &str) -> String {
    database.run_sql(&format!("CREATE USER {name}"));
    shared().unwrap().url(name, &database.name)
}

#[test]
fn a_database_that_cannot_be_used_is_named_with_the_remedy() {
    let Some(database) = database() else { return };
    let cluster = shared().unwrap();

    let missing = refused(&cluster.url(USER, "no_such_database"));
    assert_eq!(missing.kind, OpenErrorKind::NoDatabase, "{missing:?}");
    assert!(missing.to_string().contains("CREATE DATABASE"), "{missing}");

    let unreachable = refused("postgres://u@%2Fno-such-folder/d");
    assert_eq!(unreachable.kind, OpenErrorKind::Unreachable, "{unreachable:?}");
    assert!(unreachable.to_string().contains("start PostgreSQL"), "{unreachable}");

    let url = user(&database, "without_rights");
    let not_allowed = refused(&url);
    assert_eq!(not_allowed.kind, OpenErrorKind::NotAllowed, "{not_allowed:?}");
    assert!(not_allowed.to_string().contains("`without_rights` may not create tables"));
    assert_eq!(database.run_sql("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'"), "0");

    database.run_sql("CREATE TABLE accounts_of_another_program (id TEXT)");
    let foreign = refused(&database.url());
    assert_eq!(foreign.kind, OpenErrorKind::Foreign, "{foreign:?}");

    let latin = "CREATE DATABASE test_latin1 TEMPLATE template0 ENCODING 'LATIN1' \
        LOCALE_PROVIDER libc LOCALE 'C'";
    cluster.run_sql("postgres", latin);
    let not_utf8 = refused(&cluster.url(USER, "test_latin1"));
    assert_eq!(not_utf8.kind, OpenErrorKind::NotUtf8 { found: "LATIN1".to_owned() });
}

#[test]
fn a_database_of_a_newer_version_is_left_as_it_is() {
    let Some(database) = database() else { return };
    drop(open::database(&database.parsed_url(), options("first")).unwrap());
    database.run_sql(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (999, 'later', TRUE, '', 0)",
    );
    let newer = refused(&database.url());
    assert!(matches!(newer.kind, OpenErrorKind::Newer { found: 999, .. }), "{newer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_is_refused_with_the_name_of_the_first() {
    let Some(database) = database() else { return };
    let url = database.parsed_url();
    let opened = tokio::task::spawn_blocking(move || {
        let first = open::database(&url, options("a first server")).unwrap();
        let second = open::database(&url, options("a second server")).map(drop).unwrap_err();
        (first, second)
    });
    let (first, second) = opened.await.unwrap();
    let by = "`a first server`".to_owned();
    assert_eq!(second.kind, OpenErrorKind::InUse { by }, "{second:?}");
    assert!(second.to_string().contains("used by another server, `a first server`"), "{second}");
    first.close().await;
    let url = database.parsed_url();
    let third = move || open::database(&url, options("a third server")).map(drop);
    tokio::task::spawn_blocking(third).await.unwrap().unwrap();
}

#[test]
fn a_copy_that_uses_the_database_is_named_also_beside_the_row_of_a_former_server() {
    let Some(database) = database() else { return };
    drop(open::database(&database.parsed_url(), options("a former server")).unwrap());
    let there = "INSERT INTO servers (id, name, last_number) VALUES ('f', 'a former server', 1)";
    until("the former server has ended", || {
        database.run_sql("SELECT COUNT(*) FROM servers") == "0"
    });
    database.run_sql(there);
    let config = database.parsed_url().hosts()[0].clone();
    let config =
        ::postgres::Config::from(config).application_name("agent-coordinator a copy").clone();
    let mut copy = config.connect(::postgres::NoTls).unwrap();
    // The lock that only one server has.
    copy.execute("SELECT pg_advisory_lock($1)", &[&0x6163_6f72_i64]).unwrap();
    let refused = refused(&database.url());
    assert_eq!(refused.kind, OpenErrorKind::InUse { by: "`a copy`".to_owned() });
    let found = look(&database.parsed_url()).unwrap();
    assert_eq!(found.used_by.as_deref(), Some("a copy"));
}

#[test]
fn a_database_in_use_is_not_brought_up_to_date_by_a_second_server() {
    let Some(database) = database() else { return };
    let first = open::database(&database.parsed_url(), options("an older server")).unwrap();
    let newest = "SELECT MAX(version) FROM _sqlx_migrations";
    database.run_sql(&format!("DELETE FROM _sqlx_migrations WHERE version = ({newest})"));
    let before = database.run_sql(newest);
    let second = refused(&database.url());
    assert_eq!(second.kind, OpenErrorKind::InUse { by: "`an older server`".to_owned() });
    assert_eq!(database.run_sql(newest), before);
    drop(first);
}

#[test]
fn a_wrong_password_is_told_without_the_password() {
    let Some(database) = database() else { return };
    let guarded = GUARDED[0];
    database.run_sql(&format!("CREATE USER {guarded} PASSWORD 'right'"));
    database.run_sql(&format!("ALTER DATABASE {} OWNER TO {guarded}", database.name));
    let url: PostgresUrl = shared().unwrap().url(guarded, &database.name).parse().unwrap();
    let with = |password: &str| {
        let url = url.clone().with_password(&Secret::new(password));
        open::database(&url, options(guarded)).map(drop)
    };
    for error in [with("hunter2").unwrap_err(), refused(&url.to_string())] {
        assert_eq!(error.kind, OpenErrorKind::WrongPassword, "{error:?}");
        let text = format!("{error} {error:?}");
        assert!(text.contains("`store.password`") && !text.contains("hunter2"), "{text}");
    }
    with("right").unwrap();
}

#[test]
fn a_standby_is_refused_and_its_primary_is_found() {
    let Some(primary) = own() else { return };
    let name = primary.create_database("");
    let mut standby = primary.standby();
    standby.run(&[]);
    let [of_standby, of_primary] = [standby.folder(), primary.folder()];
    for hosts in [&[of_standby][..], &[of_standby, of_standby]] {
        let refused = refused(&crate::postgres::url(hosts, USER, &name));
        assert_eq!(refused.kind, OpenErrorKind::Standby, "{refused:?}");
        assert!(refused.to_string().contains("name the primary in the URL"), "{refused}");
    }
    let both = crate::postgres::url(&[of_standby, of_primary], USER, &name);
    open::database(&both.parse().unwrap(), options("first")).unwrap();
}

#[test]
fn a_pooler_is_refused() {
    let Some(database) = database() else { return };
    // A pooler either refuses the options of a session, or ignores them.
    for settings in ["", "ignore_startup_parameters = options, extra_float_digits"] {
        let Some(pooler) = Pooler::before(shared().unwrap(), settings) else { return };
        let refused = refused(&pooler.url(&database.name));
        assert_eq!(refused.kind, OpenErrorKind::Pooled, "{settings}: {refused:?}");
        assert!(refused.to_string().contains("name PostgreSQL itself"), "{refused}");
    }
    assert_eq!(database.run_sql("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'"), "0");
}
