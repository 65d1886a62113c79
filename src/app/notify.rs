//! Reports the daemon's state to the service manager (sd_notify(3)). Without `NOTIFY_SOCKET`, it
//! reports nothing.
//!
//! The coordinator's loop itself feeds the watchdog ([`LoopWatch`]), so that a loop that hangs is
//! noticed. If the daemon has no coordinator, the loop that waits for reloads feeds it.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use config::Environment;
use domain::Phase;
use domain::configuration::ConfigurationState;
use machine::locks::lock;
use machine::sys;
use runtime::clock;
use service::CoordinatorStatus;
use supervisor::coordinator::LoopObserver;

/// The timeout for a manager that does not read. A report that is lost is sent with the next
/// change.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The number of pings per watchdog timeout: a turn of the loop may take the rest.
const PINGS: u32 = 4;

/// Returns whether a variable is between the service manager and this process. An agent that got
/// these variables could speak for the daemon.
pub(super) fn is_for_the_daemon(name: &str) -> bool {
    matches!(name, "NOTIFY_SOCKET" | "WATCHDOG_USEC" | "WATCHDOG_PID")
        || name.starts_with("LISTEN_")
}

/// The service manager that started the daemon and wants its state.
pub(super) struct ServiceManager {
    address: Option<SocketAddr>,
    /// The time without a ping after which the manager restarts the daemon, because it seems to
    /// hang.
    watchdog: Option<Duration>,
    said: Mutex<Said>,
    is_deaf: AtomicBool,
}

/// The parts of the line that `systemctl status` shows.
#[derive(Default)]
struct Said {
    stage: DaemonStage,
    agents: Option<String>,
    configuration: Option<String>,
    line: String,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum DaemonStage {
    #[default]
    Starting,
    Running,
    Stopping,
}

impl ServiceManager {
    /// Reads the service manager's variables, as they apply to the process `pid`.
    pub(super) fn of(environment: &Environment, pid: u32) -> Arc<Self> {
        let address = environment.variable("NOTIFY_SOCKET").and_then(|name| {
            let made = address_of(name);
            made.inspect_err(
                |error| tracing::warn!(%error, "NOTIFY_SOCKET is not a usable socket; the service manager is not notified"),
            )
            .ok()
        });
        let watchdog = watchdog_of(environment, pid).filter(|_| address.is_some());
        Arc::new(Self {
            address,
            watchdog,
            said: Mutex::default(),
            is_deaf: AtomicBool::new(false),
        })
    }

    /// Reports that the daemon serves: units that wait for it may start.
    pub(super) fn ready(&self) {
        let mut said = self.said();
        said.stage = DaemonStage::Running;
        said.line = said.status();
        self.tell(&["READY=1", &said.line]);
    }

    /// Reports that the configuration is being read again.
    pub(super) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.tell(&["RELOADING=1", &format!("MONOTONIC_USEC={micros}")]);
    }

    /// Reports that the reload has ended, also if the configuration cannot be used.
    pub(super) fn reloaded(&self, configuration_state: &ConfigurationState) {
        let mut said = self.said();
        said.configuration = of_configuration(configuration_state);
        said.line = said.status();
        self.tell(&["READY=1", &said.line]);
    }

    /// Reports that the daemon is ending.
    pub(super) fn stopping(&self) {
        self.said().stage = DaemonStage::Stopping;
        self.tell(&["STOPPING=1", "STATUS=stopping"]);
    }

    /// Returns the observer for the loop that feeds the watchdog.
    pub(super) fn watch(self: &Arc<Self>) -> LoopWatch {
        LoopWatch { manager: Arc::clone(self), last_ping: None }
    }

    fn agents(&self, status: &CoordinatorStatus) {
        let mut said = self.said();
        said.agents = Some(of_agents(status));
        let line = said.status();
        if said.stage == DaemonStage::Running && line != said.line {
            self.tell(&[&line]);
            said.line = line;
        }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        lock(&self.said)
    }

    fn tell(&self, assignments: &[&str]) {
        let Some(address) = &self.address else { return };
        let told = UnixDatagram::unbound().and_then(|socket| {
            socket.set_write_timeout(Some(TIMEOUT))?;
            socket.send_to_addr(assignments.join("\n").as_bytes(), address)
        });
        match told {
            Ok(_) => self.is_deaf.store(false, Ordering::Relaxed),
            Err(error) if !self.is_deaf.swap(true, Ordering::Relaxed) => {
                tracing::warn!(%error, "could not notify the service manager");
            }
            Err(_) => {}
        }
    }
}

impl Said {
    fn status(&self) -> String {
        let agents = self.agents.as_deref().unwrap_or("running");
        let parts: Vec<&str> =
            [Some(agents), self.configuration.as_deref()].into_iter().flatten().collect();
        // Each line of a message is an assignment.
        format!("STATUS={}", parts.join("; ").replace(char::is_control, " "))
    }
}

/// Feeds the watchdog each time its loop turns, and in no other way.
pub(super) struct LoopWatch {
    manager: Arc<ServiceManager>,
    last_ping: Option<Instant>,
}

impl LoopObserver for LoopWatch {
    fn turned(&mut self) -> Option<Duration> {
        let period = self.manager.watchdog? / PINGS;
        let now = clock::now();
        let since = self.last_ping.map(|at| now - at);
        if is_due(since, period) {
            self.last_ping = Some(now);
            self.manager.tell(&["WATCHDOG=1"]);
            return Some(period);
        }
        Some(period.saturating_sub(since.unwrap_or_default()))
    }

    fn changed(&mut self, status: &CoordinatorStatus) {
        self.manager.agents(status);
    }
}

/// Returns whether a ping is due. A loop that turns a thousand times a second pings no more often
/// than necessary.
fn is_due(since_last: Option<Duration>, period: Duration) -> bool {
    since_last.is_none_or(|since| since >= period)
}

/// Parses a path, or with `@` a name in the abstract namespace.
fn address_of(name: &str) -> io::Result<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => sys::sockets::abstract_address(name.as_bytes()),
        None if name.starts_with('/') => {
            SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name.as_bytes()))
        }
        None => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "expected an absolute path, or `@` and a name",
        )),
    }
}

/// Returns the watchdog timeout only if it is meant for this process: a child of a watched process
/// inherits the variables.
fn watchdog_of(environment: &Environment, pid: u32) -> Option<Duration> {
    let is_for = |watched: &str| watched.parse() == Ok(pid);
    if !environment.variable("WATCHDOG_PID").is_none_or(is_for) {
        return None;
    }
    let micros: u64 = environment.variable("WATCHDOG_USEC")?.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

fn of_agents(status: &CoordinatorStatus) -> String {
    let mut running = 0;
    let mut starting = 0;
    let mut stopping = 0;
    for instance in &status.instances {
        match instance.phase {
            Phase::Starting => starting += 1,
            Phase::Running { .. } if instance.stop.is_none() => running += 1,
            Phase::Running { .. } | Phase::Exited { .. } => stopping += 1,
            Phase::Ended { .. } => {}
        }
    }
    let agents = if running == 1 { "agent" } else { "agents" };
    let others =
        [(starting, "starting"), (stopping, "stopping"), (status.deferred.len(), "waiting")];
    let others =
        others.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!(", {n} {what}"));
    format!("{running} {agents} running{}", others.collect::<String>())
}

fn of_configuration(configuration_state: &ConfigurationState) -> Option<String> {
    if let Some(rejected) = &configuration_state.rejected {
        return Some(format!("the configuration on disk is not in use: {}", rejected.problem));
    }
    let n_waiting = configuration_state.waiting.len();
    let settings = if n_waiting == 1 { "setting waits" } else { "settings wait" };
    (n_waiting > 0).then(|| format!("{n_waiting} changed {settings} for a restart"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::os::linux::net::SocketAddrExt as _;

    use super::*;

    #[test]
    fn the_watchdog_is_fed_by_turns_that_are_due_and_by_nothing_else() {
        let period = Duration::from_secs(10);
        let since = |seconds| Some(Duration::from_secs(seconds));
        assert!(is_due(None, period) && is_due(since(10), period) && is_due(since(3_600), period));
        assert!(!is_due(since(0), period) && !is_due(since(9), period));
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_is_told_to_come_round_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let heard = || {
            let mut bytes = [0; 64];
            let n = socket.recv(&mut bytes).ok()?;
            Some(String::from_utf8_lossy(&bytes[..n]).into_owned())
        };
        let variables = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "40000000")];
        let mut watch = ServiceManager::of(&Environment::new("/", variables), 1).watch();
        let seconds = Duration::from_secs;
        assert_eq!((watch.turned(), heard()), (Some(seconds(10)), Some("WATCHDOG=1".to_owned())));
        tokio::time::advance(seconds(4)).await;
        assert_eq!((watch.turned(), heard()), (Some(seconds(6)), None));
        tokio::time::advance(seconds(6)).await;
        assert_eq!((watch.turned(), heard()), (Some(seconds(10)), Some("WATCHDOG=1".to_owned())));
        // A loop that hangs does not feed the watchdog.
        tokio::time::advance(seconds(3_600)).await;
        assert_eq!(heard(), None);
    }

    #[test]
    fn a_watchdog_is_for_the_process_that_it_names() {
        let watchdog = |variables: &[(&str, &str)]| {
            watchdog_of(&Environment::new("/", variables.iter().copied()), 7)
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "1000000")]), second);
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "1000000"), ("WATCHDOG_PID", "7")]), second);
        for other in [
            &[("WATCHDOG_USEC", "1000000"), ("WATCHDOG_PID", "8")][..],
            &[("WATCHDOG_USEC", "1000000"), ("WATCHDOG_PID", "")],
            &[("WATCHDOG_USEC", "0")],
            &[("WATCHDOG_USEC", "soon")],
            &[],
        ] {
            assert_eq!(watchdog(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_socket_has_a_path_or_a_name() {
        assert_eq!(address_of("@a/b").unwrap().as_abstract_name(), Some(&b"a/b"[..]));
        assert!(address_of("/run/notify").unwrap().as_pathname().is_some());
        assert!(
            address_of("notify").is_err()
                && address_of("").is_err()
                && address_of(&"@n".repeat(100)).is_err()
        );
    }
}
