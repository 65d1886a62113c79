//! One machine: processes with pids that are used again, and shims and folders that outlive their
//! coordinator. Each coordinator makes a table of instances of them anew. The machine is the
//! `ProcessLayer` of its coordinator.
//!
//! A folder is the content of the disk; `procs` is the knowledge of the kernel. The table reads its
//! answers from the folders, like the real one.

mod shim;
mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::launch::{ExitStatus, ProcessEnd};
use domain::plan::{Limits, StartLimits};
use domain::{
    AgentId, CoordinatorId, InstanceKey, LaunchId, Phase, ProjectId, Purpose, Secret, StopReason,
    Timestamp,
};
use runtime::nudge::Nudge;
use service::world::World as _;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::agent::{self, Character, Place, Trouble};
use super::net::Weather;
use super::world::{Slumber, pass};
use super::{Mutant, Sim};
pub use table::Table;

/// The time from TERM to KILL.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(5);
pub const LEAK_GRACE: Duration = Duration::from_secs(2);
const KILLED: ExitStatus = ExitStatus { exit_code: None, signal: Some(9) };
const TERMINATED: ExitStatus = ExitStatus { exit_code: None, signal: Some(15) };
const FIRST_PID: i32 = 100;
pub const MOST_HOSTS: u64 = 3;

/// The identity of a process. Pids are used again, but these pairs are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    pid: i32,
    ticks: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    EventLoop(LaunchId),
    Leader(LaunchId),
    Descendant(LaunchId),
    /// A process of another program.
    Foreign,
}

/// An instance folder, with facts about the launch that only this simulation knows.
struct Folder {
    key: InstanceKey,
    /// The holder of the lock, as noted in the folder.
    shim: Option<Identity>,
    /// The record of the start. It is missing if the disk was full.
    started: Option<(i32, Timestamp)>,
    exited: Option<ExitStatus>,
    ended: Option<(ProcessEnd, Timestamp)>,
    stop: Option<(StopReason, Duration)>,
    is_marked: bool,
    is_adopted: bool,
    character: Character,
    /// The exit of the leader, while it is a zombie.
    went: Option<ExitStatus>,
    shim_task: Option<AbortHandle>,
    agent_task: Option<AbortHandle>,
    /// Tells the shim to look.
    news: Arc<Notify>,
}

#[derive(Default)]
struct State {
    procs: BTreeMap<i32, (u64, What)>,
    n_processes: u64,
    folders: BTreeMap<LaunchId, Folder>,
    is_up: bool,
    /// The time since which its coordinator runs.
    up_since: Timestamp,
    /// The time since which nothing is lost between its coordinator and the server.
    fair_since: Option<Timestamp>,
    incarnation: u32,
    n_launches: u64,
}

pub struct Host {
    sim: Arc<Sim>,
    pub name: usize,
    pub limits: Limits,
    /// Wakes the coordinator of this machine.
    pub nudge: Nudge,
    pub slumber: Arc<Slumber>,
    state: Mutex<State>,
}

impl State {
    fn spawn(&mut self, what: What) -> Identity {
        let pid = (FIRST_PID..i32::MAX).find(|pid| !self.procs.contains_key(pid)).unwrap();
        self.n_processes += 1;
        self.procs.insert(pid, (self.n_processes, what));
        Identity { pid, ticks: self.n_processes }
    }

    /// Returns whether the process lives. The mutant looks at its pid alone.
    fn lives(&self, identity: Identity, mutant: Option<Mutant>) -> bool {
        let found = self.procs.get(&identity.pid);
        found.is_some_and(|(ticks, _)| {
            *ticks == identity.ticks || mutant == Some(Mutant::PidTrusted)
        })
    }

    fn pids(&self, is_wanted: impl Fn(&What) -> bool) -> Vec<i32> {
        self.procs.iter().filter(|(_, (_, what))| is_wanted(what)).map(|(pid, _)| *pid).collect()
    }

    fn tree(&self, launch: &LaunchId) -> Vec<i32> {
        self.pids(|what| matches!(what, What::Leader(of) | What::Descendant(of) if of == launch))
    }

    fn has_shim(&self, launch: &LaunchId) -> bool {
        self.procs.values().any(|(_, what)| matches!(what, What::EventLoop(of) if of == launch))
    }

    fn is_live(&self, launch: &LaunchId) -> bool {
        self.has_shim(launch) || !self.tree(launch).is_empty()
    }

    fn folder(&mut self, launch: &LaunchId) -> &mut Folder {
        self.folders.get_mut(launch).expect("a launch that was started has a folder")
    }
}

impl Host {
    pub fn new(sim: Arc<Sim>, name: usize, limits: Limits) -> Arc<Self> {
        let state = State { fair_since: Some(sim.world.now()), ..State::default() };
        Arc::new(Self {
            sim,
            name,
            limits,
            nudge: Nudge::new(),
            slumber: Arc::default(),
            state: Mutex::new(state),
        })
    }

    pub fn coordinator(&self) -> CoordinatorId {
        format!("crd_{}", self.name).parse().unwrap()
    }

    fn note(&self, launch: &LaunchId, what: impl FnOnce() -> String) {
        self.sim.chronicle.note(|| format!("host {}  {launch}  {}", self.name, what()));
    }

    /// Begins a coordinator. It adopts the instances that it finds, and clears those without a
    /// shim.
    pub fn begin(self: &Arc<Self>) -> Table {
        let mut lost = Vec::new();
        {
            let mut state = self.state.lock().unwrap();
            state.is_up = true;
            state.up_since = self.sim.world.now();
            state.incarnation += 1;
            let launches: Vec<LaunchId> = state.folders.keys().cloned().collect();
            for launch in launches {
                let folder = state.folder(&launch);
                folder.is_adopted = true;
                let (shim, is_over) = (folder.shim, folder.ended.is_some());
                let is_kept = shim.is_some_and(|shim| state.lives(shim, self.sim.mutant));
                self.note(&launch, || format!("adopted; kept {is_kept}, over {is_over}"));
                if !is_kept && !is_over {
                    lost.push(launch);
                }
            }
        }
        for launch in lost {
            self.clear(launch);
        }
        Table(self.clone())
    }

    /// Ends the coordinator. Everything else stays.
    pub fn end(&self) {
        self.state.lock().unwrap().is_up = false;
    }

    /// Notes the quality of the connection between its coordinator and the server from now on.
    pub fn note_weather(&self, weather: Weather) {
        let mut state = self.state.lock().unwrap();
        state.fair_since = (weather == Weather::default())
            .then(|| state.fair_since.unwrap_or_else(|| self.sim.world.now()));
    }

    /// Returns the time since which a coordinator runs, awake and connected; `None` if it is not.
    pub fn looked_after_since(&self) -> Option<Timestamp> {
        let state = self.state.lock().unwrap();
        let is_there = state.is_up && !self.slumber.is_on();
        let awake_for = i64::try_from(self.slumber.until().elapsed().as_millis()).unwrap();
        let awake_since = Timestamp::from_millis(self.sim.world.now().as_millis() - awake_for);
        state
            .fair_since
            .filter(|_| is_there)
            .map(|fair_since| fair_since.max(state.up_since).max(awake_since))
    }

    /// Makes the machine sleep. After it wakes, no process may run whose place another launch was
    /// given.
    pub fn suspend(self: &Arc<Self>, lasts: Duration) {
        self.slumber.begin(lasts);
        let host = self.clone();
        self.sim.spawn(async move {
            host.slumber.over().await;
            // All processes act when they wake, in any order.
            pass(Duration::from_millis(1)).await;
            if !host.slumber.is_on() {
                for (launch, key) in host.sim.alive() {
                    host.sim.check_not_freed(&launch, &key).await;
                }
            }
        });
    }

    /// Ends the processes that an instance without a shim left behind.
    fn clear(self: &Arc<Self>, launch: LaunchId) {
        let (host, incarnation) = (self.clone(), self.state.lock().unwrap().incarnation);
        self.sim.spawn(async move {
            pass(Duration::from_millis(50)).await;
            host.slumber.over().await;
            {
                let mut state = host.state.lock().unwrap();
                if !state.is_up || state.incarnation != incarnation {
                    return;
                }
                for pid in state.tree(&launch) {
                    state.procs.remove(&pid);
                }
                let folder = state.folder(&launch);
                let end = match (folder.exited, folder.shim) {
                    (Some(exit), _) => ProcessEnd::Exited(exit),
                    (None, None) => ProcessEnd::StartFailed("its shim never was".to_owned()),
                    (None, Some(_)) => ProcessEnd::Lost,
                };
                host.write_end(folder, &launch, end);
            }
            host.tree_is_empty(&launch);
        });
    }

    fn write_end(&self, folder: &mut Folder, launch: &LaunchId, end: ProcessEnd) {
        self.note(launch, || format!("ended: {end:?}"));
        folder.ended = Some((end, self.sim.world.now()));
        self.nudge.wake();
    }

    fn tree_is_empty(&self, launch: &LaunchId) {
        self.sim.is_dead(launch);
    }

    /// Executes the agent, as its shim does.
    fn exec(self: &Arc<Self>, launch: &LaunchId, ticket: Secret) {
        let mut state = self.state.lock().unwrap();
        let leader = state.spawn(What::Leader(launch.clone()));
        let n_descendants = state.folder(launch).character.n_descendants;
        for _ in 0..n_descendants {
            state.spawn(What::Descendant(launch.clone()));
        }
        let folder = state.folder(launch);
        folder.started = Some((leader.pid, self.sim.world.now()));
        self.note(launch, || {
            format!("{} executed as {}, {:?}", folder.key, leader.pid, folder.character)
        });
        self.sim.is_alive(launch, &folder.key, &self.slumber);
        let (host, key, character) = (self.clone(), folder.key.clone(), folder.character.clone());
        let of = launch.clone();
        let turn = u64::try_from(leader.pid - FIRST_PID).unwrap() * MOST_HOSTS + self.name as u64;
        let agent = self.sim.spawn(async move {
            let place = Place { turn, slumber: &host.slumber };
            let exit_code = agent::live(&host.sim, (&key, &of), ticket, &character, place).await;
            host.slumber.over().await;
            host.die(&of, ExitStatus { exit_code: Some(exit_code), signal: None });
        });
        folder.agent_task = Some(agent);
        self.nudge.wake();
    }

    /// Ends the leader.
    fn die(&self, launch: &LaunchId, exit: ExitStatus) {
        let mut state = self.state.lock().unwrap();
        for pid in state.pids(|what| matches!(what, What::Leader(of) if of == launch)) {
            state.procs.remove(&pid);
            self.note(launch, || format!("exits {exit:?}"));
            let folder = state.folder(launch);
            folder.went = Some(exit);
            folder.news.notify_one();
            if let Some(agent) = folder.agent_task.take() {
                agent.abort();
            }
        }
        let is_empty = state.tree(launch).is_empty();
        drop(state);
        if is_empty {
            self.tree_is_empty(launch);
        }
    }

    fn end_descendants(&self, launch: &LaunchId) {
        let mut state = self.state.lock().unwrap();
        for pid in state.pids(|what| matches!(what, What::Descendant(of) if of == launch)) {
            state.procs.remove(&pid);
        }
        let is_empty = state.tree(launch).is_empty();
        drop(state);
        if is_empty {
            self.tree_is_empty(launch);
        }
    }

    /// Kills a shim with SIGKILL. The kernel ends its agent, and the processes that the agent
    /// started live on.
    pub fn kill_shim(self: &Arc<Self>, which: usize) {
        if self.slumber.is_on() {
            return;
        }
        let killed = {
            let mut state = self.state.lock().unwrap();
            let shims = state.pids(|what| matches!(what, What::EventLoop(_)));
            if shims.is_empty() {
                return;
            }
            let pid = shims[which % shims.len()];
            let Some((_, What::EventLoop(launch))) = state.procs.remove(&pid) else {
                return;
            };
            if let Some(shim) = state.folder(&launch).shim_task.take() {
                shim.abort();
            }
            (launch, state.is_up)
        };
        let (launch, is_up) = killed;
        self.note(&launch, || "its shim is killed".to_owned());
        self.sim.is_without_shim(&launch);
        self.die(&launch, KILLED);
        if is_up {
            self.clear(launch);
        }
    }

    /// Ends an agent by its own fault.
    pub fn kill_agent(&self, which: usize) {
        if self.slumber.is_on() {
            return;
        }
        let launch = {
            let state = self.state.lock().unwrap();
            let leaders = state.pids(|what| matches!(what, What::Leader(_)));
            if leaders.is_empty() {
                return;
            }
            match &state.procs[&leaders[which % leaders.len()]].1 {
                What::Leader(launch) => launch.clone(),
                _ => return,
            }
        };
        self.die(&launch, ExitStatus { exit_code: None, signal: Some(11) });
    }

    /// Starts another program, with the lowest free pid.
    pub fn begin_foreign(&self) {
        self.state.lock().unwrap().spawn(What::Foreign);
    }

    /// Signals the shim, if the process is that shim.
    fn signal_shim(&self, state: &mut State, launch: &LaunchId) {
        let folder = state.folder(launch);
        folder.news.notify_one();
        let Some(shim) = folder.shim else { return };
        if !state.lives(shim, self.sim.mutant) {
            return;
        }
        if let Some((_, what)) = state.procs.get(&shim.pid)
            && !matches!(what, What::EventLoop(of) if of == launch)
        {
            self.sim.chronicle.violation(format!(
                "host {}: a signal for the shim of {launch} went to {what:?}",
                self.name
            ));
        }
    }

    /// Returns the live instances. They have a shim, or any process of their tree.
    pub fn live(&self) -> Vec<(LaunchId, InstanceKey)> {
        let state = self.state.lock().unwrap();
        let live = state.folders.iter().filter(|(launch, _)| state.is_live(launch));
        live.map(|(launch, folder)| (launch.clone(), folder.key.clone())).collect()
    }

    /// Returns the folders that the server has not acknowledged.
    pub fn unforgotten(&self) -> Vec<LaunchId> {
        self.state.lock().unwrap().folders.keys().cloned().collect()
    }

    /// Returns the limits that apply to this key.
    pub fn limits_on<'a>(
        &self,
        key: &'a InstanceKey,
    ) -> impl Iterator<Item = (Cap<'a>, usize)> + use<'a> {
        let Limits { max_concurrent, start, .. } = self.limits;
        let StartLimits { chat_reserve, per_project, per_agent, per_provider, .. } = start;
        let of_tasks = (key.purpose == Purpose::Task).then_some(max_concurrent - chat_reserve);
        let all = [
            (Cap::Instances, Some(max_concurrent)),
            (Cap::Tasks, of_tasks),
            (Cap::Project(&key.project), per_project),
            (Cap::Agent(&key.agent), per_agent),
            (Cap::Provider(self.sim.ai_type(&key.agent)), per_provider),
        ];
        all.into_iter().filter_map(|(cap, most)| Some((cap, most?)))
    }

    /// Checks that the living agents exceed no limit.
    pub fn check_caps(&self) {
        self.check_caps_in(&self.state.lock().unwrap());
    }

    fn check_caps_in(&self, state: &State) {
        let live = state.folders.iter().filter(|(launch, _)| state.is_live(launch));
        let mut n_live: BTreeMap<Cap<'_>, usize> = BTreeMap::new();
        for (cap, most) in live.flat_map(|(_, folder)| self.limits_on(&folder.key)) {
            let n = n_live.entry(cap).or_default();
            *n += 1;
            if *n == most + 1 {
                let (name, of_what) = (self.name, cap.as_str());
                self.sim
                    .chronicle
                    .violation(format!("host {name}: more live {of_what} than {most}"));
            }
        }
    }
}

/// The group of agents to which a limit applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cap<'a> {
    Instances,
    Tasks,
    Project(&'a ProjectId),
    Agent(&'a AgentId),
    Provider(&'static str),
}

impl Cap<'_> {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Instances => "instances",
            Self::Tasks => "tasks",
            Self::Project(_) => "instances of a project",
            Self::Agent(_) => "instances of an agent",
            Self::Provider(_) => "instances of a provider",
        }
    }
}

impl Folder {
    fn new(key: InstanceKey, character: Character) -> Self {
        Self {
            key,
            shim: None,
            started: None,
            exited: None,
            ended: None,
            stop: None,
            is_marked: false,
            is_adopted: false,
            character,
            went: None,
            shim_task: None,
            agent_task: None,
            news: Arc::default(),
        }
    }

    fn phase(&self) -> Phase {
        match (&self.ended, self.exited, self.started) {
            (Some((end, at)), _, started) => Phase::Ended {
                pid: started.map(|(pid, _)| pid),
                started_at: started.map(|(_, at)| at),
                end: end.clone(),
                at: *at,
                n_leaked: 0,
            },
            (None, Some(exit), Some((pid, started_at))) => Phase::Exited { pid, started_at, exit },
            (None, None, Some((pid, started_at)))
                if self.character.trouble != Some(Trouble::FullDisk) =>
            {
                Phase::Running { pid, started_at }
            }
            _ => Phase::Starting,
        }
    }
}
