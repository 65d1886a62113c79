//! One history: a fleet, its script, and the result.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use domain::plan::{Limits, StartLimits};
use domain::{Guidance, Language};
use supervisor::coordinator::{Coordinator, CoordinatorConfig, Mode};
use supervisor::provider::{self, Providers};
use tokio::sync::watch;
use tokio::time::Sleep;

use super::host::Host;
use super::invariants::{self, Watch};
use super::net::{Net, Way, Weather};
use super::script::{Caps, Deed, Script};
use super::world::{Slumber, Telling, pass};
use super::{LINGER, Mutant, Sim, people};

pub const POLLING_INTERVAL: Duration = Duration::from_secs(10);
/// The time after which everything has ended that ends by itself. The lapse of a claim takes
/// longest.
const LONG: Duration = Duration::from_secs(150);

/// The result of a history.
pub struct Told {
    pub violations: Vec<String>,
    pub lines: Vec<String>,
    /// The number of polls of the first coordinator during the script. They are the places where it
    /// can die.
    pub n_polls: u64,
}

/// Lives a history through to its first violation, or to its end.
pub fn live(script: &Script, mutant: Option<Mutant>, telling: Telling) -> Told {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let sim = Sim::new(script.seed, mutant, telling);
        let n_polls = play(&sim, script).await;
        let (violations, lines) = (sim.chronicle.violations(), sim.chronicle.lines());
        Told { violations, lines, n_polls }
    })
}

/// A coordinator with its machine, its connection to the server, and the way in which it ends.
struct Post {
    host: Arc<Host>,
    net: Arc<Net>,
    fate: Arc<Mutex<Fate>>,
    mode: watch::Sender<Mode>,
}

/// The poll at which a coordinator dies, and the time that it is away then.
#[derive(Default)]
struct Fate {
    n_polls: u64,
    dies_at: Option<u64>,
    down_for: Duration,
}

/// The number of polls that no history needs. If it is reached, the loop spins.
const TOO_MANY_POLLS: u64 = 3_000_000;

/// A future that dies at the poll of its fate, wherever it waits then. It stands still while its
/// machine sleeps.
struct Mortal<F> {
    future: Option<Pin<Box<F>>>,
    fate: Arc<Mutex<Fate>>,
    /// The sleep of its machine.
    slumber: Arc<Slumber>,
    waking: Option<Pin<Box<Sleep>>>,
}

impl<F: Future<Output = ()>> Future for Mortal<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        while self.slumber.is_on() {
            let mut waking = Box::pin(tokio::time::sleep_until(self.slumber.until()));
            if waking.as_mut().poll(context).is_pending() {
                self.waking = Some(waking);
                return Poll::Pending;
            }
        }
        {
            let mut fate = self.fate.lock().unwrap();
            fate.n_polls += 1;
            assert!(fate.n_polls < TOO_MANY_POLLS, "a coordinator spins");
            if fate.dies_at.is_some_and(|at| fate.n_polls >= at) {
                fate.dies_at = None;
                drop(fate);
                self.future = None;
                return Poll::Ready(());
            }
        }
        self.future.as_mut().expect("who is dead isn't polled").as_mut().poll(context)
    }
}

impl Post {
    /// Runs one coordinator after the other.
    async fn staff(self: Arc<Self>, sim: Arc<Sim>, config: CoordinatorConfig) {
        loop {
            self.host.slumber.over().await;
            self.mode.send_replace(Mode::Running);
            let table = self.host.begin();
            sim.chronicle.note(|| format!("{} begins", config.id));
            let way = Way(self.net.clone());
            let coordinator = Coordinator::new(
                config.clone(),
                way,
                table,
                self.host.nudge.listen(),
                self.mode.subscribe(),
            );
            let (future, fate) = (Some(Box::pin(coordinator.run())), self.fate.clone());
            Mortal { future, fate, slumber: self.host.slumber.clone(), waking: None }.await;
            self.host.end();
            let down_for = std::mem::take(&mut self.fate.lock().unwrap().down_for);
            sim.chronicle.note(|| format!("{} is gone for {down_for:?}", config.id));
            pass(down_for).await;
        }
    }

    fn set_weather(&self, weather: Weather) {
        self.net.set_weather(weather);
        self.host.note_weather(weather);
    }

    fn doom(&self, after_polls: u64, down_for: Duration) {
        {
            let mut fate = self.fate.lock().unwrap();
            fate.dies_at = Some(fate.n_polls + after_polls + 1);
            fate.down_for = down_for;
        }
        self.host.nudge.wake();
    }
}

/// Plays the script. Returns the number of polls of the first coordinator before the end of the
/// script.
async fn play(sim: &Arc<Sim>, script: &Script) -> u64 {
    people::found(sim, &script.fleet).await;
    sim.begin_server();
    let posts = open_posts(sim, script);
    let hosts: Vec<Arc<Host>> = posts.iter().map(|post| post.host.clone()).collect();
    let n_polls = || posts[0].fate.lock().unwrap().n_polls;
    let mut watch = Watch::default();
    for (n, step) in script.steps.iter().enumerate() {
        sim.chronicle.note(|| format!("-- {n}: {:?}, then {:?}", step.deed, step.then_wait));
        let has_released = take_step(sim, script, &posts, &step.deed).await;
        pass(step.then_wait).await;
        watch.look(sim, &hosts, has_released).await;
        for host in &hosts {
            host.check_caps();
        }
        if !sim.chronicle.is_clean() {
            return n_polls();
        }
    }
    let n_polls = n_polls();
    sim.chronicle.note(|| "-- nothing goes wrong any more".to_owned());
    sim.set_agents_loss(0);
    sim.health.recover();
    for post in &posts {
        post.set_weather(Weather::default());
        post.fate.lock().unwrap().dies_at = None;
    }
    for host in &hosts {
        host.slumber.over().await;
    }
    // Coordinators that are away come back first.
    pass(Duration::from_secs(100)).await;
    watch.look(sim, &hosts, false).await;
    let before = invariants::on_the_way(sim).await;
    pass(LONG).await;
    watch.look(sim, &hosts, false).await;
    invariants::check_progress(sim, &before).await;
    invariants::check_starts(sim, &hosts).await;
    if !sim.chronicle.is_clean() {
        return n_polls;
    }
    sim.chronicle.note(|| "-- everything is told to stop".to_owned());
    people::do_it(sim, &script.fleet, &Deed::StopAll).await;
    pass(Duration::from_mins(1)).await;
    watch.look(sim, &hosts, false).await;
    invariants::check_rest(sim, &hosts).await;
    n_polls
}

fn open_posts(sim: &Arc<Sim>, script: &Script) -> Vec<Arc<Post>> {
    let posts = script.fleet.max_concurrent.iter().enumerate().map(|(n, max_concurrent)| {
        let chat_reserve = script.fleet.chat_reserve.min(max_concurrent - 1);
        let start = StartLimits { chat_reserve, ..StartLimits::NONE };
        let without_caps = Limits { start, ..Limits::of(*max_concurrent, LINGER) };
        let Caps { per_project, per_agent, per_provider } = script.fleet.caps;
        let start = StartLimits { per_project, per_agent, per_provider, ..start };
        let limits = Limits { start, ..without_caps };
        let host = Host::new(sim.clone(), n, limits);
        let config = CoordinatorConfig {
            id: host.coordinator(),
            polling_interval: POLLING_INTERVAL,
            limits: if sim.mutant == Some(Mutant::CapsForgotten) { without_caps } else { limits },
            providers: providers(),
            state_dir: "/state".into(),
        };
        let is_remote = n > 0 || !script.fleet.has_local;
        let post = Arc::new(Post {
            host,
            net: Net::new(sim.clone(), config.id.clone(), is_remote, 10 + n as u64),
            fate: Arc::default(),
            mode: watch::Sender::new(Mode::Running),
        });
        sim.spawn(announce(sim.clone(), post.clone()));
        sim.spawn(post.clone().staff(sim.clone(), config));
        post
    });
    posts.collect()
}

/// Passes the server's wake-ups to a coordinator, unless nothing reaches it.
async fn announce(sim: Arc<Sim>, post: Arc<Post>) {
    let mut wakeups = sim.nudge.listen();
    loop {
        wakeups.woken().await;
        // The coordinators are woken in a fixed order.
        pass(Duration::from_millis(1 + post.host.name as u64)).await;
        if post.net.weather() != Weather::STORM {
            post.host.nudge.wake();
        }
    }
}

fn providers() -> Providers {
    Providers {
        entries: std::collections::BTreeMap::new(),
        guidance: Guidance::new(Language::English),
        environment: std::collections::BTreeMap::new(),
        mcp_socket: Some("/run/mcp.sock".into()),
        mcp_url: None,
        program: "/bin/agent-coordinator".into(),
        state_dir: "/state".into(),
        users: std::collections::BTreeMap::new(),
        withheld: Vec::new(),
        withheld_variables: std::collections::BTreeSet::new(),
        redacted: Vec::new(),
        users_files: "/run/files".into(),
        host: provider::Host::BLIND,
    }
}

/// Takes a step. Returns whether it let pairs start again.
async fn take_step(sim: &Arc<Sim>, script: &Script, posts: &[Arc<Post>], deed: &Deed) -> bool {
    let post = |n: usize| &posts[n % posts.len()];
    match deed {
        Deed::Nothing => {}
        Deed::Crash { coordinator, after_polls, down_for } => {
            post(*coordinator).doom(*after_polls, *down_for);
        }
        Deed::Restart { coordinator, mode, down_for } => {
            let post = post(*coordinator);
            post.fate.lock().unwrap().down_for = *down_for;
            post.mode.send_replace(*mode);
        }
        Deed::RestartServer => sim.begin_server(),
        Deed::KillShim { host, which } => post(*host).host.kill_shim(*which),
        Deed::KillAgent { host, which } => post(*host).host.kill_agent(*which),
        Deed::BeginForeign { host } => post(*host).host.begin_foreign(),
        Deed::Suspend { host, lasts } => {
            let Post { host, net, .. } = &**post(*host);
            if net.is_remote() {
                host.suspend(*lasts);
            }
        }
        Deed::SetWeather { coordinator, weather } => post(*coordinator).set_weather(*weather),
        Deed::IllStore { illness, lasts } => sim.health.fall_ill(*illness, *lasts),
        Deed::LoseClaimAnswer { coordinator } => post(*coordinator).net.lose_claim_answer(),
        Deed::SetClock(ahead) => sim.world.set_clock(*ahead),
        Deed::SetLossOfAgents(percent) => sim.set_agents_loss(*percent),
        _ => return people::do_it(sim, &script.fleet, deed).await,
    }
    false
}
