//! A PostgreSQL server of the tests: in a temporary folder, on a Unix socket, as an unprivileged
//! user. It starts with the first test that needs it and ends with the process of the tests.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use postgres_url::PostgresUrl;
use tempfile::TempDir;

use crate::support::{is_gone, skip, until_some};

/// The superuser of the servers.
pub const USER: &str = "ac";
/// Set to run the daemons of all tests on PostgreSQL.
pub const VARIABLE: &str = "AGENT_COORDINATOR_TEST_POSTGRES";

/// The users who log in with a password. Each has one test.
pub const GUARDED: [&str; 2] = ["guarded", "guarded_daemon"];

/// The fate of the data of a server that ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Data {
    Kept,
    Removed,
}

/// A running server.
pub struct Cluster {
    folder: TempDir,
    bin: PathBuf,
    user: Option<u32>,
    /// The port in the names of its sockets. `None` is PostgreSQL's own.
    port: Option<u16>,
    /// A shell that ends the server when its standard input is closed.
    guard: Option<Child>,
}

/// A database that is dropped with this value.
pub struct Database<'c> {
    cluster: &'c Cluster,
    pub name: String,
}

/// Returns the server that tests share, or `None` if PostgreSQL is not installed. It keeps nothing
/// safe from a crash of the machine, so it is fast.
pub fn shared() -> Option<&'static Cluster> {
    static CLUSTER: OnceLock<Option<Cluster>> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| Cluster::start(&["fsync=off", "full_page_writes=off"]));
    or_skip(cluster.as_ref())
}

/// Returns a server of this test alone, or `None` if PostgreSQL is not installed.
pub fn own() -> Option<Cluster> {
    or_skip(Cluster::start(&[]))
}

fn or_skip<T>(cluster: Option<T>) -> Option<T> {
    if cluster.is_none() {
        skip("PostgreSQL's programs are not installed (Debian: postgresql)");
    }
    cluster
}

/// Returns an empty database of the shared server.
pub fn database() -> Option<Database<'static>> {
    Some(shared()?.database())
}

/// Returns an empty database if the daemons of tests run on PostgreSQL.
pub fn database_of_daemon() -> Option<Database<'static>> {
    std::env::var_os(VARIABLE)?;
    Some(shared().expect("PostgreSQL is installed").database())
}

/// Returns the kind of the database of the daemons of tests, as `status` names it.
pub fn kind_of_daemon() -> &'static str {
    if std::env::var_os(VARIABLE).is_some() { "postgres" } else { "sqlite" }
}

/// Returns the folder with the programs of the newest installed version.
fn programs() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .filter(|bin| bin.join("initdb").exists())
        .collect();
    found.sort();
    let in_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find(|bin| bin.join("initdb").exists())
    };
    found.pop().or_else(in_path)
}

impl Cluster {
    /// Starts a server with `settings`, or returns `None` if PostgreSQL is not installed.
    pub fn start(settings: &[&str]) -> Option<Self> {
        let mut cluster = Self::without_data(programs()?);
        // The order of texts of this locale differs from the order of their bytes.
        cluster.make("initdb", |initdb| {
            initdb.args(["--pgdata=data", "--username", USER, "--auth=trust", "--encoding=UTF8"]);
            initdb.args(["--locale=C", "--locale-provider=icu", "--icu-locale=en-US"]);
            initdb.arg("--no-sync")
        });
        let rules = cluster.folder().join("data/pg_hba.conf");
        let text = std::fs::read_to_string(&rules).unwrap();
        let guarded = format!("local all {} scram-sha-256", GUARDED.join(","));
        std::fs::write(&rules, format!("{guarded}\n{text}")).unwrap();
        cluster.run(settings);
        Some(cluster)
    }

    /// Returns a copy of this running server that is not started. It is a standby.
    pub fn standby(&self) -> Self {
        let copy = Self::without_data(self.bin.clone());
        copy.make("pg_basebackup", |backup| {
            backup.args(["--pgdata=data", "--username", USER, "--write-recovery-conf"]);
            backup.args(["--checkpoint=fast", "--no-sync", "--host"]).arg(self.folder())
        });
        copy
    }

    fn without_data(bin: PathBuf) -> Self {
        // PostgreSQL refuses to run as root.
        let user = rustix::process::geteuid().is_root().then_some(65_534);
        Self { folder: folder_of(user), bin, user, port: None, guard: None }
    }

    /// Returns the user of the server, if that isn't the user of the tests.
    pub fn user(&self) -> Option<u32> {
        self.user
    }

    /// Returns an empty folder that belongs to the user of the server.
    pub fn folder_of_its_user(&self) -> TempDir {
        folder_of(self.user)
    }

    /// Returns the arguments of `setpriv` for a program of the same user.
    pub fn privileges(&self) -> Vec<String> {
        let user = self.user.map(|user| user.to_string());
        user.map_or_else(Vec::new, |user| {
            let options = ["--clear-groups", "--reuid", &user, "--regid", &user];
            options.map(str::to_owned).to_vec()
        })
    }

    /// Runs a command that must succeed.
    fn make(&self, program: &str, with_arguments: impl FnOnce(&mut Command) -> &mut Command) {
        let made = with_arguments(&mut self.command(program)).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// Returns a command of PostgreSQL in the folder of the server.
    pub fn command(&self, program: &str) -> Command {
        let program = self.bin.join(program);
        let mut command = if self.user.is_some() {
            let mut command = Command::new("setpriv");
            command.args(self.privileges()).arg("--").arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(self.folder.path()).env("LC_ALL", "C").stdin(Stdio::null());
        command.envs(self.port.map(|port| ("PGPORT", port.to_string())));
        command
    }

    /// Takes a free port of the loopback interface for the next start, and returns it. A setting of
    /// that start must name an address.
    pub fn listen_on_loopback(&mut self) -> u16 {
        // The kernel gives ports of this range to nobody who asks for any port.
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let first = 20_000 + (std::process::id() % 10_000) as u16;
        let port = (first..32_000).find(is_free).unwrap();
        self.port = Some(port);
        port
    }

    /// Starts the server process and waits until it accepts connections.
    pub fn run(&mut self, settings: &[&str]) {
        let mut guard = self.spawn(settings);
        until_some("PostgreSQL is ready", || {
            let mut asked = self.command("pg_isready");
            if asked.arg("-h").arg(self.folder.path()).output().unwrap().status.success() {
                return Some(());
            }
            // The processes of a postmaster that was killed may not have ended yet.
            if is_gone(guard.1) {
                end(std::mem::replace(&mut guard, self.spawn(settings)).0, Data::Kept);
            }
            None
        });
        self.guard = Some(guard.0);
    }

    /// Starts a shell with the server, and returns the pid of the server as well.
    fn spawn(&self, settings: &[&str]) -> (Child, i32) {
        let mut server = self.command("postgres");
        server.args(["-D", "data", "-c", "listen_addresses=", "-k"]).arg(self.folder.path());
        server.args(["-c", "max_connections=300", "-c", "unix_socket_permissions=0777"]);
        for setting in settings {
            server.args(["-c", setting]);
        }
        // An immediate stop needs no goodbye of sessions. Without a word, also because the process
        // of the tests has died, nothing is kept.
        let script = r#"folder=$1; shift; "$@" 2>>"$folder/log" </dev/null & pid=$!; echo $pid
            read word; kill -QUIT $pid 2>/dev/null; wait $pid
            [ "$word" = keep ] || rm -rf "$folder""#;
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "guard"]).arg(self.folder.path());
        shell.arg(server.get_program()).args(server.get_args());
        shell.current_dir(self.folder.path()).env("LC_ALL", "C");
        shell.envs(self.port.map(|port| ("PGPORT", port.to_string())));
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (shell, line.trim().parse().unwrap())
    }

    /// Returns the pid of the postmaster.
    pub fn pid(&self) -> i32 {
        let text = std::fs::read_to_string(self.folder.path().join("data/postmaster.pid")).unwrap();
        text.lines().next().unwrap().trim().parse().unwrap()
    }

    /// Ends the server at once, as a crash does, and starts it again.
    pub fn start_again(&mut self, settings: &[&str]) {
        self.stop(Data::Kept);
        self.run(settings);
    }

    /// Ends the server at once, as a crash does.
    pub fn stop(&mut self, data: Data) {
        if let Some(guard) = self.guard.take() {
            end(guard, data);
        }
    }

    /// Returns the folder with the socket and the data.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs statements as the superuser in a database.
    pub fn run_sql(&self, database: &str, sql: &str) -> String {
        let mut psql = self.command("psql");
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", database]);
        psql.arg("-h").arg(self.folder.path());
        let ran = psql.args(["-c", sql]).output().unwrap();
        let (out, err) = (&ran.stdout, &ran.stderr);
        assert!(ran.status.success(), "{sql}: {}", String::from_utf8_lossy(err));
        String::from_utf8_lossy(out).trim_end().to_owned()
    }

    /// Creates an empty database.
    pub fn database(&self) -> Database<'_> {
        Database { cluster: self, name: self.create_database("") }
    }

    /// Creates an empty database with `options`, and returns its name. It goes with the server.
    pub fn create_database(&self, options: &str) -> String {
        static N: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", N.fetch_add(1, Ordering::Relaxed));
        self.run_sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE template0 {options}"));
        name
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        assert_eq!(self.run_sql("postgres", "SELECT pg_promote(TRUE, 20)"), "t");
    }

    /// Returns the URL of a database for `user`.
    pub fn url(&self, user: &str, database: &str) -> String {
        url(&[self.folder()], user, database)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop(Data::Removed);
    }
}

/// Returns an empty folder that belongs to `user`.
fn folder_of(user: Option<u32>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    chown(folder.path(), user, user).unwrap();
    folder
}

/// Returns the URL of a database on one of the servers with their sockets in these folders.
pub fn url(folders: &[&Path], user: &str, database: &str) -> String {
    let encoded = |folder: &&Path| folder.display().to_string().replace('/', "%2F");
    let hosts: Vec<String> = folders.iter().map(encoded).collect();
    format!("postgres://{user}@{}/{database}", hosts.join(","))
}

/// Returns the socket of a server in its folder.
pub fn socket(folder: &Path) -> PathBuf {
    folder.join(".s.PGSQL.5432")
}

/// Ends the server of a shell, and the shell.
fn end(mut guard: Child, data: Data) {
    let mut input = guard.stdin.take().unwrap();
    if data == Data::Kept {
        input.write_all(b"keep\n").unwrap();
    }
    drop(input);
    guard.wait().unwrap();
}

impl Database<'_> {
    pub fn url(&self) -> String {
        self.cluster.url(USER, &self.name)
    }

    /// Returns the line of a configuration that names the database.
    pub fn setting(&self) -> String {
        format!("store: {{ url: '{}' }}\n", self.url())
    }

    pub fn parsed_url(&self) -> PostgresUrl {
        self.url().parse().unwrap()
    }

    /// Runs statements as the superuser.
    pub fn run_sql(&self, sql: &str) -> String {
        self.cluster.run_sql(&self.name, sql)
    }

    /// Returns every row of every table, except the number of the last transaction.
    pub fn dump(&self) -> String {
        let tables = self.run_sql(
            "SELECT tablename FROM pg_tables \
             WHERE schemaname = 'public' AND tablename <> 'servers' ORDER BY tablename",
        );
        let rows =
            |table| self.run_sql(&format!("SELECT '{table}', t FROM {table} AS t ORDER BY 2"));
        tables.lines().map(rows).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        self.cluster.run_sql("postgres", &sql);
    }
}
