//! pgbouncer in transaction mode before a server of the tests.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::postgres::{Cluster, USER, socket, url};
use crate::support::{skip, until};

/// A running pooler.
pub struct Pooler {
    folder: TempDir,
    child: Child,
}

impl Pooler {
    /// Starts a pooler with `settings`, or returns `None` if pgbouncer is not installed.
    pub fn before(cluster: &Cluster, settings: &str) -> Option<Self> {
        let folders = ["/usr/sbin", "/usr/bin", "/usr/local/bin"];
        let mut programs = folders.iter().map(|folder| Path::new(folder).join("pgbouncer"));
        let Some(program) = programs.find(|program| program.exists()) else {
            skip("pgbouncer is not installed (Debian: pgbouncer)");
            return None;
        };
        Some(Self::start(&program, cluster, settings))
    }

    fn start(program: &PathBuf, cluster: &Cluster, settings: &str) -> Self {
        let folder = cluster.folder_of_its_user();
        let path = folder.path().display();
        std::fs::write(folder.path().join("users"), format!("\"{USER}\" \"\"\n")).unwrap();
        let configuration = format!(
            "[databases]\n* = host={} port=5432\n\
             [pgbouncer]\npool_mode = transaction\nlisten_addr =\nlisten_port = 5432\n\
             unix_socket_dir = {path}\nauth_type = trust\nauth_file = {path}/users\n{settings}\n",
            cluster.folder().display()
        );
        std::fs::write(folder.path().join("pgbouncer.ini"), configuration).unwrap();
        // It ends with the thread of the test, whatever ends that.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(cluster.privileges()).arg("--").arg(program);
        command.arg("pgbouncer.ini").current_dir(folder.path()).stdin(Stdio::null());
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        until("pgbouncer is ready", || {
            let died = child.try_wait().unwrap();
            let log = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            assert!(died.is_none(), "pgbouncer ended with {died:?}:\n{}", log());
            std::os::unix::net::UnixStream::connect(socket(folder.path())).is_ok()
        });
        Self { folder, child }
    }

    /// Returns the URL of a database behind the pooler.
    pub fn url(&self, database: &str) -> String {
        url(&[self.folder.path()], USER, database)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
