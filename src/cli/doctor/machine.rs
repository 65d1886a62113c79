//! The findings of `doctor` about this machine: folders, disks, sockets, the clock, the service
//! manager.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::barrier::Barrier;
use super::{Finding, State};
use crate::app::{self, Upgrade};
use crate::cli::output;
use config::{Config, Environment, StoreUrl};

/// The longest path of a socket that every system takes, in bytes.
const MAX_SOCKET_PATH: usize = 103;
/// A file that is this much newer than the clock shows that the clock was set back.
const TOLERANCE: Duration = Duration::from_mins(1);

/// Returns the nearest folder above that exists, or the path itself.
fn existing(path: &Path) -> PathBuf {
    path.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/")).to_owned()
}

fn is_writable(folder: &Path) -> bool {
    accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

pub(super) fn state_dir(config: &Config) -> Finding {
    let subject = "state directory";
    let path = &config.paths.state_dir;
    // A check that saw nothing does not pass.
    if let Some(barrier) = Barrier::to_use_of(path) {
        let remedy = barrier.remedy();
        let remedy = format!("{remedy}; if the daemon runs as this user, give it the folder");
        return Finding::new(State::Problem, subject, barrier.found(), &remedy);
    }
    let place = existing(path);
    if !is_writable(&place) {
        let found = format!("`{}` can't be written by this user", place.display());
        let remedy = "give it to the user of the daemon, or set `state_dir`";
        return Finding::new(State::Problem, subject, found, remedy);
    }
    match app::check_state_dir(path) {
        Err(error) => Finding::new(State::Problem, subject, error.to_string(), ""),
        Ok(Some(warning)) => Finding::new(State::Warning, subject, warning, ""),
        Ok(None) if place != *path => {
            Finding::ok(subject, format!("the first start makes `{}`", path.display()))
        }
        Ok(None) => Finding::ok(subject, path.display().to_string()),
    }
}

pub(super) fn sockets(config: &Config) -> Vec<Finding> {
    let paths = [config.paths.control_socket(), config.paths.mcp_socket_path.clone()];
    let look = |path: PathBuf| {
        let subject = format!("socket {}", path.display());
        if path.as_os_str().len() > MAX_SOCKET_PATH {
            let found = format!("the path has more than {MAX_SOCKET_PATH} bytes");
            let remedy = "set `state_dir` or `mcp_socket_path` to a shorter path";
            return Finding::new(State::Problem, &subject, found, remedy);
        }
        if let Some(barrier) = Barrier::before(&path) {
            return Finding::hidden(&subject, &barrier);
        }
        if !path.exists() {
            return Finding::ok(&subject, "the daemon makes it when it starts");
        }
        match UnixStream::connect(&path) {
            Ok(_) => Finding::ok(&subject, "it is open"),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                Finding::ok(&subject, "no daemon listens; the next start makes it again")
            }
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let found = format!("could not look: {error}");
                Finding::new(State::Unknown, &subject, found, "run this as the user of the daemon")
            }
            Err(error) => {
                let remedy = "run this as the user of the daemon";
                Finding::new(State::Problem, &subject, error.to_string(), remedy)
            }
        }
    };
    paths.into_iter().map(look).collect()
}

/// Looks at the file of the database without opening it, because a daemon may use it.
pub(super) fn sqlite(config: &Config) -> Finding {
    let subject = "store";
    let StoreUrl::Sqlite(path) = &config.store.url else {
        return Finding::ok(subject, config.store.url.to_string());
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    if let Some(barrier) = Barrier::to_use_of(folder) {
        return Finding::hidden(subject, &barrier);
    }
    let Ok(found) = fs::metadata(path) else {
        let text = format!("the first start makes `{}`", path.display());
        return Finding::ok(subject, text);
    };
    if !is_writable(&existing(folder)) {
        let text = format!("the folder of `{}` can't be written by this user", path.display());
        let remedy = "give the file and its folder to the user of the daemon";
        return Finding::new(State::Problem, subject, text, remedy);
    }
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let text = format!("other users may read `{}` (mode {mode:04o})", path.display());
        let remedy = format!("chmod 600 '{}'", path.display());
        return Finding::new(State::Warning, subject, text, &remedy);
    }
    Finding::ok(subject, format!("{} ({} MiB)", path.display(), found.len() >> 20))
}

pub(super) fn disks(config: &Config) -> Vec<Finding> {
    let state_dir = config.paths.state_dir.clone();
    let mut folders = vec![state_dir.clone(), config.workspace.root_in(&state_dir)];
    if let StoreUrl::Sqlite(path) = &config.store.url {
        folders.extend(path.parent().map(Path::to_owned));
    }
    let hidden = folders.iter().find_map(|folder| Some((folder.clone(), Barrier::before(folder)?)));
    let hidden = hidden.map(|(folder, barrier)| {
        Finding::hidden(&format!("disk of {}", folder.display()), &barrier)
    });
    folders.retain(|folder| Barrier::before(folder).is_none());
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| existing(folder)).collect();
    folders.sort();
    folders.dedup();
    let needed = config.limits.min_free_disk.unwrap_or(64 << 20);
    let look = |folder: PathBuf| {
        let subject = format!("disk of {}", folder.display());
        match rustix::fs::statvfs(&folder) {
            Err(error) => Finding::new(State::Unknown, &subject, error.to_string(), ""),
            Ok(disk) => {
                let free = disk.f_bavail.saturating_mul(disk.f_frsize);
                let found = format!("{} MiB are free", free >> 20);
                if free < needed {
                    let remedy = format!(
                        "free some space: agents need {} MiB (`limits.min_free_disk`)",
                        needed >> 20
                    );
                    Finding::new(State::Problem, &subject, found, &remedy)
                } else if disk.f_files > 0 && disk.f_favail == 0 {
                    let remedy = "remove files: there is no room for another one";
                    Finding::new(State::Problem, &subject, "no inodes are free", remedy)
                } else {
                    Finding::ok(&subject, found)
                }
            }
        }
    };
    hidden.into_iter().chain(folders.into_iter().map(look)).collect()
}

/// Returns what the upgrade of projects from version 0.1.0 needs, and what it left to a person.
pub(super) fn upgrades(config: &Config) -> Vec<Finding> {
    let root = existing(&config.workspace.root_in(&config.paths.state_dir));
    let free = rustix::fs::statvfs(&root)
        .map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    let mut findings = Vec::new();
    for Upgrade { project, n_bytes, owner, left } in app::list_upgrades(config) {
        let subject = format!("upgrade of {project}");
        findings.extend((n_bytes > 0).then(|| room_for_copies(&subject, n_bytes, free)));
        if !left.is_empty() {
            let quoted = |path: &String| format!("'{}'", path.replace('\'', r"'\''"));
            let left: Vec<String> = left.iter().map(quoted).collect();
            let left = left.join(" ");
            let found = format!("entries of root stay in its repository: {left}");
            let remedy =
                format!("look at each; if it belongs to the project, run: chown -h {owner} {left}");
            let remedy = output::plain(&remedy);
            findings.push(Finding::new(State::Warning, &subject, found, &remedy));
        }
    }
    findings
}

/// Returns the finding about the room for the copies of an upgrade, which may need less.
fn room_for_copies(subject: &str, n_bytes: u64, free: u64) -> Finding {
    let found = format!("its first use copies up to {n_bytes} bytes; {} MiB are free", free >> 20);
    if n_bytes <= free {
        return Finding::ok(subject, found);
    }
    let mib = n_bytes.div_ceil(1 << 20);
    let remedy = format!("free {mib} MiB; without room, the tasks of the project wait");
    Finding::new(State::Warning, subject, found, &remedy)
}

/// Compares the clock with the last changes in the state directory.
#[allow(clippy::disallowed_methods, reason = "a command looks at the clock once")]
pub(super) fn clock(config: &Config) -> Finding {
    let subject = "clock";
    if let Some(barrier) = Barrier::to_list_of(&config.paths.state_dir) {
        return Finding::hidden(subject, &barrier);
    }
    let now = SystemTime::now();
    let files = fs::read_dir(&config.paths.state_dir).into_iter().flatten().flatten();
    let changed = files.filter_map(|file| file.metadata().ok()?.modified().ok());
    let newest = changed.max();
    let ahead = newest.and_then(|newest| newest.duration_since(now).ok()).unwrap_or_default();
    if ahead > TOLERANCE {
        let found = format!("it was set back: the state is {} s newer", ahead.as_secs());
        let remedy = "set the clock, for example with `timedatectl set-ntp true`";
        return Finding::new(State::Problem, subject, found, remedy);
    }
    if Path::new("/run/systemd/timesync/synchronized").exists() {
        return Finding::ok(subject, "it is synchronized (systemd-timesyncd)");
    }
    Finding::ok(subject, "it is not behind the state; whether it is synchronized is unknown")
}

pub(super) fn service_manager(environment: &Environment) -> Finding {
    let subject = "service manager";
    if !Path::new("/run/systemd/system").exists() {
        let remedy = "start the daemon at each boot by the means of this system (docs/install.md)";
        return Finding::new(State::Unknown, subject, "systemd does not run here", remedy);
    }
    let name = "agent-coordinator.service";
    let user = environment.variable("USER").unwrap_or_default();
    let of_machine = ["/etc/systemd/system", "/usr/lib/systemd/system"]
        .map(|folder| Path::new(folder).join(name))
        .into_iter()
        .find(|unit| fs::read_to_string(unit).is_ok_and(|text| runs_as(&text, user)));
    if let Some(unit) = of_machine {
        return Finding::ok(subject, unit.display().to_string());
    }
    let home = environment.variable("HOME").map(PathBuf::from);
    let of_user = home.iter().flat_map(|home| {
        [".config/systemd/user", ".local/share/systemd/user"].map(|folder| home.join(folder))
    });
    let of_system = ["/etc/systemd/user", "/usr/lib/systemd/user"];
    let folders: Vec<PathBuf> = of_user.chain(of_system.map(PathBuf::from)).collect();
    let Some(unit) = folders.iter().map(|folder| folder.join(name)).find(|unit| unit.exists())
    else {
        let remedy = "docs/install.md has the steps";
        return Finding::new(State::Warning, subject, format!("systemd has no `{name}`"), remedy);
    };
    let lingers = Path::new("/var/lib/systemd/linger").join(user);
    if user.is_empty() || !lingers.exists() {
        let found = format!("{} ends when its user logs out", unit.display());
        let remedy = "loginctl enable-linger";
        return Finding::new(State::Warning, subject, found, remedy);
    }
    Finding::ok(subject, unit.display().to_string())
}

/// Returns whether a unit of the machine starts the daemon as this user. Without `User=`, that is
/// root.
fn runs_as(unit: &str, user: &str) -> bool {
    let mut named = unit.lines().filter_map(|line| line.trim().strip_prefix("User="));
    named.next_back().unwrap_or("root").trim() == user
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upgrade_of_a_project_is_told_before_and_after() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::with_state_dir(folder.path());
        let keep = folder.path().join("workspaces/prj/keep.git");
        let packs = keep.join("objects/pack");
        fs::create_dir_all(&packs).unwrap();
        fs::write(packs.join("own.pack"), "own").unwrap();
        assert_eq!(upgrades(&config).len(), 0);
        fs::write(packs.join("one.pack"), "12345").unwrap();
        fs::hard_link(packs.join("one.pack"), folder.path().join("theirs.pack")).unwrap();
        let found = upgrades(&config);
        let [before] = &found[..] else { panic!("{found:?}") };
        assert_eq!((before.state, before.subject.as_str()), (State::Ok, "upgrade of prj"));
        assert!(before.found.starts_with("its first use copies up to 5 bytes; "), "{before:?}");
        // Afterwards, only what is root's still is named. There are files of root everywhere.
        let mine = folder.path().join("it's mine");
        fs::write(&mine, "").unwrap();
        let left = serde_json::json!({ "owner": "7:8", "entries": ["/usr", mine, "/missing"] });
        fs::write(keep.join("mended"), left.to_string()).unwrap();
        let found = upgrades(&config);
        let [after] = &found[..] else { panic!("{found:?}") };
        let named = if rustix::process::geteuid().is_root() {
            format!("'/usr' '{}/it'\\''s mine'", folder.path().display())
        } else {
            "'/usr'".to_owned()
        };
        assert_eq!(after.state, State::Warning);
        assert_eq!(after.found, format!("entries of root stay in its repository: {named}"));
        assert!(after.remedy.ends_with(&format!("run: chown -h 7:8 {named}")), "{after:?}");
        fs::write(keep.join("mended"), "").unwrap();
        assert_eq!(upgrades(&config).len(), 0);
    }

    #[test]
    fn a_disk_that_may_have_no_room_for_copies_is_a_warning() {
        assert_eq!(room_for_copies("prj", 5 << 20, 5 << 20).state, State::Ok);
        let short = room_for_copies("prj", (5 << 20) + 1, 5 << 20);
        assert_eq!(short.state, State::Warning);
        assert_eq!(short.found, "its first use copies up to 5242881 bytes; 5 MiB are free");
        assert!(short.remedy.starts_with("free 6 MiB; "), "{short:?}");
    }

    #[test]
    fn a_unit_of_the_machine_is_for_one_user() {
        let shipped = include_str!("../../../systemd/system/agent-coordinator.service");
        assert!(runs_as(shipped, "agent-coordinator") && !runs_as(shipped, "me"));
        assert!(runs_as("[Service]\nType=notify\n", "root"));
        assert!(!runs_as("[Service]\nType=notify\n", ""));
    }
}
