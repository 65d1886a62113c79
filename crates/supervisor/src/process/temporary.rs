//! Gives each launch a folder for temporary files (`TMPDIR`), and removes it when nothing of the
//! launch lives.
//!
//! The folders of an installation lie in a common folder. It has an unpredictable name, and only
//! the daemon's user can change it. A file in the state directory names the common folders, so that
//! the next daemon finds what a crash left. Shims know nothing of all this: agents outlive
//! daemons, and the next daemon removes the folder of an agent that ended meanwhile.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::CString;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once};
use std::thread;
use std::time::Duration;

use nix::libc;
use rustix::fs::{AtFlags, Dir, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use tracing::warn;

use super::removal;
use super::threads::Threads;
use domain::{LaunchId, RunAs};
use machine::instance_dir;
use machine::instance_dir::record::{self, KeptReport, Record as _};
use machine::locks::lock;
use machine::sys::users;
use runtime::clock;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The variable that names the folder to the agent.
pub const VARIABLE: &str = "TMPDIR";
/// The longest path of such a folder, in bytes. Sockets below it need the rest of the 104 bytes
/// that their paths may have.
const MAX_PATH: usize = 60;
const PREFIX: &str = "ac-";
/// The number of random digits in the names of common folders.
const RANDOM_DIGITS: usize = 10;
/// The number of names that are tried for a common folder.
const N_ATTEMPTS: u32 = 16;
/// The name of a file in the state directory: the installation, and then the common folders, one
/// per line.
const FILE: &str = "temporary_folders";
const MAX_FILE: u64 = 16 * 1024;
/// The longest time for the removal of one folder. The next start of the daemon goes on with the
/// rest.
const LONGEST_REMOVAL: Duration = Duration::from_mins(30);

/// The possible places of the common folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemporaryConfig {
    /// The first suitable one is used. Without one, agents get no folder of their own.
    pub bases: Vec<PathBuf>,
    /// Agents run as other users, who must be able to enter it.
    pub is_for_others: bool,
}

/// All folders of an installation.
pub struct TemporaryFolders {
    config: TemporaryConfig,
    state_dir: PathBuf,
    installation_id: String,
    /// The common folders; the newest is the last one.
    parents: Mutex<Vec<Arc<CommonFolder>>>,
    remover: Arc<Remover>,
    /// It was logged that no base is suitable.
    without_base: Once,
}

impl TemporaryFolders {
    /// Finds the common folders of earlier daemons. Blocking.
    pub fn open(config: TemporaryConfig, state_dir: &Path, installation_id: &str) -> Self {
        let mut parents = Vec::new();
        for path in read_list(state_dir, installation_id) {
            match CommonFolder::open(path.clone()) {
                Ok(parent) => parents.push(Arc::new(parent)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let path = path.display();
                    let error = &error as &dyn std::error::Error;
                    warn!(%path, error, "a folder for temporary files is not usable any more; its files stay");
                }
            }
        }
        Self {
            config,
            state_dir: state_dir.to_owned(),
            installation_id: installation_id.to_owned(),
            parents: Mutex::new(parents),
            remover: Arc::default(),
            without_base: Once::new(),
        }
    }

    /// Makes the folder of a launch, for `user` or the daemon's own user. Blocking.
    ///
    /// Returns `None` if no base is suitable.
    pub fn make(&self, launch: &LaunchId, user: Option<&RunAs>) -> io::Result<Option<PathBuf>> {
        let Some(parent) = self.parent()? else {
            let bases = || {
                self.config
                    .bases
                    .iter()
                    .map(|base| base.display().to_string())
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            self.without_base.call_once(|| {
                warn!(
                    bases = bases(),
                    "no folder is suitable for temporary files; agents share the one of the system"
                );
            });
            return Ok(None);
        };
        parent.make(&name_of(launch), user).map(Some)
    }

    /// Moves the report that the agent of a launch has left into `dir`, the folder of its instance.
    /// The report is removed there when the server has taken or refused it.
    pub fn keep_report(&self, launch: &LaunchId, dir: &Path) {
        for parent in self.known() {
            let folder = parent.path.join(instance_dir::temporary_name(launch));
            let kept = match record::read::<KeptReport>(&folder) {
                Ok(Some(report)) => record::write(dir, &report).map_err(BoxError::from),
                Ok(None) => continue,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = kept {
                warn!(
                    launch_id = %launch, error = &*error,
                    "could not keep the report that the agent left"
                );
                continue;
            }
            if let Err(error) = std::fs::remove_file(folder.join(KeptReport::FILE)) {
                let error = &error as &dyn std::error::Error;
                warn!(launch_id = %launch, error, "could not remove the report that was kept");
            }
        }
    }

    /// Removes the folder of a launch of which nothing lives, if it has one. Returns at once.
    pub fn remove(&self, launch: &LaunchId) {
        self.remover.add(self.known().into_iter().map(|parent| (parent, name_of(launch))));
    }

    /// Removes the folders of all launches except `live` ones. No launch may be started meanwhile.
    /// Blocks while it lists the folders.
    pub fn sweep<'a>(&self, live: impl Iterator<Item = &'a LaunchId>) {
        let live: BTreeSet<CString> = live.map(name_of).collect();
        for parent in &self.known() {
            match parent.names() {
                Ok(names) => {
                    let old = names.into_iter().filter(|name| !live.contains(name));
                    self.remover.add(old.map(|name| (Arc::clone(parent), name)));
                }
                Err(error) => {
                    let path = parent.path.display();
                    let error = &error as &dyn std::error::Error;
                    warn!(%path, error, "could not look for old temporary files");
                }
            }
        }
    }

    /// Waits for removals, at most for this time, and removes empty common folders. Blocking.
    pub fn finish(&self, timeout: Duration) {
        self.remover.until_idle(timeout);
        for parent in self.known() {
            // Common folders with folders of living agents stay, and so does one that is no longer
            // ours.
            if parent.is_in_place() {
                let _ = std::fs::remove_dir(&parent.path);
            }
        }
    }

    fn known(&self) -> Vec<Arc<CommonFolder>> {
        self.parents().clone()
    }

    fn parents(&self) -> MutexGuard<'_, Vec<Arc<CommonFolder>>> {
        lock(&self.parents)
    }

    /// Returns the common folder for new launches.
    fn parent(&self) -> io::Result<Option<Arc<CommonFolder>>> {
        let mut parents = self.parents();
        let is_for_others = self.config.is_for_others;
        let newest = parents.last().filter(|parent| parent.is_for_others || !is_for_others);
        // A common folder that a cleaner of temporary files has removed cannot be used.
        if let Some(newest) = newest.filter(|parent| parent.is_in_place()) {
            return Ok(Some(Arc::clone(newest)));
        }
        let Some(made) = CommonFolder::create(&self.config)? else {
            return Ok(None);
        };
        parents.retain(|parent| parent.is_in_place());
        let made = Arc::new(made);
        let all = parents.iter().chain([&made]).map(|parent| parent.path.as_path());
        if let Err(error) = write_list(&self.state_dir, &self.installation_id, all) {
            let _ = std::fs::remove_dir(&made.path);
            return Err(error);
        }
        parents.push(Arc::clone(&made));
        Ok(Some(made))
    }
}

/// A common folder.
struct CommonFolder {
    path: PathBuf,
    folder: OwnedFd,
    is_for_others: bool,
}

impl CommonFolder {
    /// Makes a common folder in the first suitable base.
    fn create(config: &TemporaryConfig) -> io::Result<Option<Self>> {
        let mut failed = None;
        for base in &config.bases {
            let Ok(base) = base.canonicalize() else {
                continue;
            };
            if !is_suitable(&base, config.is_for_others) {
                continue;
            }
            match Self::create_in(&base, config.is_for_others) {
                Ok(parent) => return Ok(Some(parent)),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    fn create_in(base: &Path, is_for_others: bool) -> io::Result<Self> {
        let mut n_attempts = 0;
        let path = loop {
            // An entry that another user has put there, such as a link, only blocks this name.
            let path = base.join(random_name());
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => break path,
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists && n_attempts < N_ATTEMPTS =>
                {
                    n_attempts += 1;
                }
                Err(error) => return Err(error),
            }
        };
        let parent = Self::open(path)?;
        // Others may enter it but not list it, for any umask.
        let mode = if is_for_others { Mode::RWXU | Mode::XGRP | Mode::XOTH } else { Mode::RWXU };
        rustix::fs::fchmod(&parent.folder, mode)?;
        Ok(Self { is_for_others, ..parent })
    }

    /// Opens an existing common folder. It must be a folder of this user that no other user can
    /// change.
    fn open(path: PathBuf) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&path, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&folder)?;
        let mode = Mode::from_raw_mode(found.st_mode);
        if found.st_uid != rustix::process::geteuid().as_raw()
            || mode.intersects(Mode::WGRP | Mode::WOTH)
        {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Self { path, folder, is_for_others: mode.contains(Mode::XOTH) })
    }

    /// Returns whether its path still leads to it.
    fn is_in_place(&self) -> bool {
        let found = rustix::fs::fstat(&self.folder);
        let named = rustix::fs::lstat(&self.path);
        found.is_ok_and(|found| {
            named.is_ok_and(|named| (found.st_dev, found.st_ino) == (named.st_dev, named.st_ino))
        })
    }

    fn make(&self, name: &CString, user: Option<&RunAs>) -> io::Result<PathBuf> {
        rustix::fs::mkdirat(&self.folder, name, Mode::RWXU)?;
        let given = removal::open(self.folder.as_fd(), name).and_then(|folder| {
            rustix::fs::fchmod(&folder, Mode::RWXU)?;
            if let Some(user) = user {
                rustix::fs::fchown(
                    &folder,
                    Some(Uid::from_raw(user.uid)),
                    Some(Gid::from_raw(user.gid)),
                )?;
            }
            Ok(())
        });
        if let Err(error) = given {
            let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::REMOVEDIR);
            return Err(error);
        }
        Ok(self.path.join(&*name.to_string_lossy()))
    }

    fn names(&self) -> io::Result<Vec<CString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            let name = entry?.file_name().to_owned();
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Removes the entry of this name, as the user that it belongs to.
    fn remove(&self, name: &CString) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        let folder = removal::open(self.folder.as_fd(), name)?;
        let owner = rustix::fs::fstat(&folder)?;
        let give_up_at = clock::unpaused() + LONGEST_REMOVAL;
        if owner.st_uid == rustix::process::geteuid().as_raw() {
            removal::empty(folder.as_fd(), give_up_at)?;
        } else {
            // The removal runs in a thread of its own, which does not become this user again.
            let as_owner = || {
                users::take_file_rights(owner.st_uid, owner.st_gid, &[])?;
                removal::empty(folder.as_fd(), give_up_at)
            };
            thread::scope(|scope| {
                let thread = thread::Builder::new()
                    .name("tmp-remover".to_owned())
                    .spawn_scoped(scope, as_owner)?;
                thread.join().unwrap_or_else(|_| {
                    Err(io::Error::other("the thread that removes files panicked"))
                })
            })?;
        }
        Ok(rustix::fs::unlinkat(&self.folder, name, AtFlags::REMOVEDIR)?)
    }
}

/// Removes folders one after the other, in a thread that lives little longer than there are some.
#[derive(Default)]
struct Remover {
    queue: Mutex<Queue>,
    idle: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Arc<CommonFolder>, CString)>,
    is_running: bool,
}

impl Remover {
    fn add(self: &Arc<Self>, folders: impl Iterator<Item = (Arc<CommonFolder>, CString)>) {
        // Each table has one removal at a time; a process of tests has several tables.
        static REMOVING: Threads = Threads::new("tmp-remover", 4);
        let mut queue = self.queue();
        queue.waiting.extend(folders);
        if !queue.is_running && !queue.waiting.is_empty() {
            let remover = Arc::clone(self);
            // Without a thread, the folders wait for the next removal or for the next daemon.
            queue.is_running = REMOVING.run(move || remover.run()).is_ok();
        }
    }

    fn run(&self) {
        while let Some((parent, name)) = self.next() {
            if let Err(error) = parent.remove(&name) {
                let path = parent.path.join(&*name.to_string_lossy());
                let path = path.display();
                let error = &error as &dyn std::error::Error;
                warn!(%path, error, "could not remove temporary files of a launch; the next start of the daemon tries it again");
            }
        }
    }

    fn next(&self) -> Option<(Arc<CommonFolder>, CString)> {
        let mut queue = self.queue();
        let next = queue.waiting.pop_front();
        if next.is_none() {
            queue.is_running = false;
            self.idle.notify_all();
        }
        next
    }

    fn until_idle(&self, timeout: Duration) {
        drop(self.idle.wait_timeout_while(self.queue(), timeout, |queue| queue.is_running));
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}

/// Returns whether paths below `base` are short enough, and no other user can replace what is made
/// there.
fn is_suitable(base: &Path, is_for_others: bool) -> bool {
    const OTHERS_WRITE: u32 = 0o022;
    const OTHERS_ENTER: u32 = 0o001;
    const STICKY: u32 = 0o1000;
    let own = rustix::process::geteuid().as_raw();
    let is_safe = |folder: &Path| {
        std::fs::metadata(folder).is_ok_and(|found| {
            let is_ours = found.uid() == 0 || found.uid() == own;
            let is_kept = found.mode() & OTHERS_WRITE == 0 || found.mode() & STICKY != 0;
            is_ours && is_kept && (!is_for_others || found.mode() & OTHERS_ENTER != 0)
        })
    };
    let longest = base.as_os_str().len()
        + "/".len()
        + PREFIX.len()
        + RANDOM_DIGITS
        + "/".len()
        + instance_dir::TEMPORARY_DIGITS;
    longest <= MAX_PATH && base.is_absolute() && base.ancestors().all(is_safe)
}

fn random_name() -> String {
    // The end of such an id is random.
    let id = uuid::Uuid::now_v7().simple().to_string();
    format!("{PREFIX}{}", &id[id.len() - RANDOM_DIGITS..])
}

/// Returns the name of a launch's folder.
fn name_of(launch: &LaunchId) -> CString {
    CString::new(instance_dir::temporary_name(launch)).unwrap_or_default()
}

/// Returns the common folders of this installation; those of a copied state directory belong to its
/// original.
fn read_list(state_dir: &Path, installation_id: &str) -> Vec<PathBuf> {
    let mut text = String::new();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let read = options.open(state_dir.join(FILE)).and_then(|file| {
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        file.take(MAX_FILE).read_to_string(&mut text)
    });
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            let path = state_dir.join(FILE);
            let error = &error as &dyn std::error::Error;
            warn!(path = %path.display(), error, "could not read the list of temporary folders; old temporary files stay");
            return Vec::new();
        }
    }
    let mut lines = text.lines();
    let is_ours = lines.next() == Some(installation_id);
    lines.filter(|line| is_ours && line.starts_with('/')).map(PathBuf::from).collect()
}

fn write_list<'a>(
    state_dir: &Path,
    installation_id: &str,
    paths: impl Iterator<Item = &'a Path>,
) -> io::Result<()> {
    let draft = state_dir.join(format!(".{FILE}"));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    writeln!(file, "{installation_id}")?;
    for path in paths {
        writeln!(file, "{}", path.display())?;
    }
    std::fs::rename(draft, state_dir.join(FILE))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use domain::launch::ReportResult;

    fn launch(n: u32) -> LaunchId {
        format!("lch_{n}_{}", "x".repeat(50)).parse().unwrap()
    }

    /// Returns the folders of a state directory whose common folder is made in `base`.
    fn folders(state: &Path, base: &Path) -> TemporaryFolders {
        let config = TemporaryConfig { bases: vec![base.to_owned()], is_for_others: false };
        TemporaryFolders::open(config, state, "installation")
    }

    #[test]
    fn a_folder_is_short_and_its_owners_alone_and_goes_with_what_is_in_it() {
        let state = tempfile::tempdir().unwrap();
        let base = tempfile::tempdir().unwrap();
        let folders = folders(state.path(), base.path());
        let made = folders.make(&launch(1), None).unwrap().unwrap();
        assert!(made.as_os_str().len() <= MAX_PATH, "{}", made.display());
        for folder in [made.as_path(), made.parent().unwrap()] {
            let mode = std::fs::metadata(folder).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o700, "{}", folder.display());
        }
        std::fs::create_dir_all(made.join("a/b")).unwrap();
        std::fs::write(made.join("a/b/c"), "x").unwrap();
        folders.remove(&launch(1));
        folders.finish(Duration::from_mins(1));
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_report_that_was_delivered_is_not_kept_again() {
        let state = tempfile::tempdir().unwrap();
        let base = tempfile::tempdir().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let folders = folders(state.path(), base.path());
        let made = folders.make(&launch(1), None).unwrap().unwrap();
        let report = KeptReport {
            session_token: "sess_1".to_owned(),
            result: ReportResult::Success,
            summary: None,
            next_steps: None,
        };
        record::write(&made, &report).unwrap();
        folders.keep_report(&launch(1), dir.path());
        let kept = dir.path().join(KeptReport::FILE);
        std::fs::remove_file(&kept).unwrap();
        folders.keep_report(&launch(1), dir.path());
        assert!(!kept.exists());
    }

    #[test]
    fn a_later_daemon_sweeps_what_is_not_live() {
        let state = tempfile::tempdir().unwrap();
        let base = tempfile::tempdir().unwrap();
        let first = folders(state.path(), base.path());
        let [kept, old] = [1, 2].map(|n| first.make(&launch(n), None).unwrap().unwrap());
        drop(first);
        // A copy of the state directory, whose id is another one.
        let config = TemporaryConfig { bases: Vec::new(), is_for_others: false };
        let copy = TemporaryFolders::open(config, state.path(), "copy");
        copy.sweep([].iter());
        copy.finish(Duration::from_mins(1));
        assert!(kept.exists() && old.exists());
        let second = folders(state.path(), base.path());
        second.sweep([launch(1)].iter());
        second.finish(Duration::from_mins(1));
        assert!(kept.exists() && !old.exists());
        let another = second.make(&launch(3), None).unwrap().unwrap();
        assert_eq!(another.parent(), kept.parent());
    }

    #[test]
    fn a_common_folder_that_is_another_one_now_is_left_alone() {
        let state = tempfile::tempdir().unwrap();
        let base = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let first = folders(state.path(), base.path());
        let made = first.make(&launch(1), None).unwrap().unwrap();
        let parent = made.parent().unwrap();
        std::fs::write(outside.path().join("kept"), "x").unwrap();
        std::fs::rename(parent, base.path().join("moved")).unwrap();
        symlink(outside.path(), parent).unwrap();
        // This daemon still knows its folder by the descriptor, and gives new launches another one.
        let again = first.make(&launch(2), None).unwrap().unwrap();
        assert_ne!(again.parent(), Some(parent));
        let second = folders(state.path(), base.path());
        second.sweep([].iter());
        second.finish(Duration::from_mins(1));
        assert!(outside.path().join("kept").exists());
        assert!(base.path().join("moved").exists() && !again.exists());
    }

    #[test]
    fn bases_that_are_long_open_or_closed_are_not_used() {
        let base = tempfile::tempdir().unwrap();
        let check = |path: &Path, is_for_others: bool, expected: bool| {
            assert_eq!(is_suitable(path, is_for_others), expected, "{}", path.display());
        };
        std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        check(base.path(), false, true);
        // Others may not enter it.
        check(base.path(), true, false);
        let long = base.path().join("x".repeat(40));
        std::fs::create_dir(&long).unwrap();
        check(&long, false, false);
        std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        check(base.path(), false, false);
        std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        check(base.path(), false, true);
        check(&base.path().join("none"), false, false);
        check(Path::new("relative"), false, false);
    }
}
