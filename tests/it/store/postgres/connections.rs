//! The ways to a PostgreSQL server: several hosts, and TLS.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use domain::store_state::DatabaseKind;
use store::postgres::look;
use store::postgres::open::{self, OpenErrorKind};
use store::{Engine, Read, StoreError, Write, cell};

use crate::postgres::{Cluster, USER};
use crate::support::skip;

use super::{options, refused};

#[tokio::test(flavor = "multi_thread")]
async fn the_host_that_can_be_written_is_used() {
    let read_only = ["default_transaction_read_only=on"];
    let Some(standby) = Cluster::start(&read_only) else { return };
    let primary = Cluster::start(&[]).unwrap();
    let host = |cluster: &Cluster| cluster.folder().display().to_string().replace('/', "%2F");
    let (standby_host, primary_host) = (host(&standby), host(&primary));
    let hosts = format!("%2Fno-such-folder,{standby_host},{primary_host}");
    let url = format!("postgres://{USER}@{hosts}/postgres").parse().unwrap();
    let engine = tokio::task::spawn_blocking(move || open::database(&url, options("one")).unwrap());
    let engine = engine.await.unwrap();
    let database = engine.state().database;
    assert_eq!(database.kind, DatabaseKind::Postgres);
    assert_eq!(database.version, primary.run_sql("postgres", "SHOW server_version"));
    assert_eq!(database.url, format!("postgres://{USER}@{hosts}/postgres"));
    let sql = "SELECT COUNT(*) FROM pg_tables WHERE tablename = 'launches'";
    assert_eq!(primary.run_sql("postgres", sql), "1");
    assert_eq!(standby.run_sql("postgres", sql), "0");
    engine.close().await;

    let url = format!("postgres://{USER}@%2Fno-such-folder,{standby_host}/postgres");
    let alone = tokio::task::spawn_blocking(move || refused(&url)).await.unwrap();
    assert_eq!(alone.kind, OpenErrorKind::Standby, "{alone:?}");
    assert!(alone.to_string().contains("name the primary in the URL"), "{alone}");
}

#[test]
fn the_certificate_of_the_server_must_have_its_name_and_a_known_authority() {
    if Command::new("openssl").arg("version").output().is_err() {
        return skip("openssl is not installed");
    }
    let Some(mut cluster) = Cluster::start(&[]) else { return };
    let folder = cluster.folder().to_owned();
    let (known, unknown) = (authority(&folder, "known"), authority(&folder, "unknown"));
    certificate(&folder, "known", "localhost");
    let port = cluster.listen_on_loopback();
    cluster.start_again(&[
        "listen_addresses=localhost",
        "ssl=on",
        "ssl_cert_file=../server.pem",
        "ssl_key_file=../server.key",
    ]);
    // Without this, the superuser may log in without TLS.
    let rules =
        "hostssl all all 127.0.0.1/32 trust\nhostssl all all ::1/128 trust\nlocal all all trust\n";
    fs::write(folder.join("data/pg_hba.conf"), rules).unwrap();
    cluster.run_sql("postgres", "SELECT pg_reload_conf()");
    let url = |host: &str, root: &Path| {
        let root = root.display();
        format!("postgres://{USER}@{host}:{port}/postgres?sslmode=verify-full&sslrootcert={root}")
    };

    let engine = open::database(&url("localhost", &known).parse().unwrap(), options("one"));
    check_limits(&engine.unwrap());
    let found = look(&url("localhost", &known).parse().unwrap()).unwrap();
    assert_eq!(found.version, cluster.run_sql("postgres", "SHOW server_version"));

    for (url, cause) in [
        // The certificate has no address.
        (url("127.0.0.1", &known), "not valid for name"),
        (url("localhost", &unknown), "UnknownIssuer"),
        (url("localhost", &folder.join("missing.pem")), "could not read the certificates"),
    ] {
        let error = refused(&url);
        assert_eq!(error.kind, OpenErrorKind::Tls, "{url}: {error:?}");
        assert!(error.to_string().contains("`sslrootcert=FILE` names its authority"), "{error}");
        let found = error.source.as_ref().unwrap().to_string();
        assert!(found.contains(cause), "{url}: {found}");
    }
    let clear = format!("postgres://{USER}@localhost:{port}/postgres?sslmode=disable");
    let error = refused(&clear);
    assert_eq!(error.kind, OpenErrorKind::WrongPassword, "{error:?}");
    let found = error.source.as_ref().unwrap().to_string();
    assert!(found.contains("no encryption"), "{found}");
}

/// Checks that a connection over TCP ends if the other side is gone.
fn check_limits(engine: &Engine) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let sql = "SELECT setting FROM pg_catalog.pg_settings WHERE name = ?1";
    for (name, expected) in [
        ("idle_in_transaction_session_timeout", "5000"),
        ("lock_timeout", "15000"),
        ("tcp_keepalives_idle", "10"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
        ("tcp_user_timeout", "10000"),
    ] {
        let found = |tx: &mut Read<'_>| tx.row("setting", sql, &[name.into()], cell::<String>);
        let read: Result<_, StoreError> = runtime.block_on(engine.read(found));
        assert_eq!(read.unwrap().as_deref(), Some(expected), "{name}");
        let write = engine.write(move |tx: &mut Write<'_>| {
            tx.row("setting", sql, &[name.into()], cell::<String>)
        });
        let written: Result<_, StoreError> = runtime.block_on(write);
        assert_eq!(written.unwrap().as_deref(), Some(expected), "{name}");
    }
}

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    let made = command.args(arguments.split(' ')).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{arguments}: {}", String::from_utf8_lossy(&made.stderr));
}

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

/// Makes an authority and returns the path of its certificate.
fn authority(folder: &Path, name: &str) -> PathBuf {
    let files = format!("-keyout {name}.key -out {name}.pem -subj /CN={name}");
    openssl(folder, &format!("req -x509 {NEW_KEY} {files} -days 2"));
    folder.join(format!("{name}.pem"))
}

/// Makes the certificate of the server for one host name.
fn certificate(folder: &Path, authority: &str, host: &str) {
    let key = folder.join("server.key");
    openssl(folder, &format!("req {NEW_KEY} -keyout server.key -out server.csr -subj /CN={host}"));
    fs::write(folder.join("names"), format!("subjectAltName=DNS:{host}\n")).unwrap();
    let signer = format!("-CA {authority}.pem -CAkey {authority}.key -CAcreateserial");
    openssl(
        folder,
        &format!("x509 -req -in server.csr {signer} -out server.pem -days 2 -extfile names"),
    );
    // PostgreSQL takes only a key that no other user can read.
    let owner = fs::metadata(folder).unwrap();
    chown(&key, Some(owner.uid()), Some(owner.gid())).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
}
