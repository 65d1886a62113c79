//! A writer makes calls of random kinds, each at a random server, and notes the answers.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use domain::launch::{ExitStatus, ProcessEnd};
use domain::plan::ProcessReport;
use domain::session::Presenter;
use domain::start_history::OpenLaunch;
use domain::{
    AgentId, CoordinatorId, InstanceKey, LaunchId, LaunchState, MessageId, Purpose, Refusal,
    Secret, Timestamp,
};
use service::world::{SystemWorld, World};
use service::{Force, ProjectEdit, Service, ServiceError, StopTarget};

use crate::questions::Questions as _;
use crate::sim::Dice;

use super::check::{Call, Fact, Phase, STOP};
use super::mutants::{self, Claimed};
use super::{Mutant, Server};

tokio::task_local! {
    /// The times that the current call has taken from the clock.
    static TICKS: RefCell<Vec<i64>>;
}

/// The clock of all servers and writers. It never shows the same time twice.
#[derive(Clone)]
pub struct Clock(Arc<AtomicI64>);

impl Clock {
    pub fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_000_000)))
    }

    fn tick(&self) -> i64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    /// Makes a call, and notes its times.
    pub async fn time<T>(&self, name: &'static str, work: impl Future<Output = T>) -> (T, Call) {
        let began = self.tick();
        let work = async {
            let answer = work.await;
            (answer, self.tick(), TICKS.with(RefCell::take))
        };
        let (answer, answered, ticks) = TICKS.scope(RefCell::default(), work).await;
        (answer, Call { name, began, answered, ticks, facts: Vec::new() })
    }
}

impl World for Clock {
    fn now(&self) -> Timestamp {
        let tick = self.tick();
        let _ = TICKS.try_with(|ticks| ticks.borrow_mut().push(tick));
        Timestamp::from_millis(tick)
    }

    fn fill(&self, bytes: &mut [u8]) {
        SystemWorld.fill(bytes);
    }

    fn unique(&self) -> String {
        SystemWorld.unique()
    }
}

/// An open launch of a writer.
struct Own {
    key: InstanceKey,
    launch: LaunchId,
    ticket: Option<Secret>,
    was_tried: bool,
}

/// A writer.
pub struct Writer {
    pub servers: Arc<[Server]>,
    pub clock: Clock,
    pub dice: Dice,
    pub keys: Arc<[InstanceKey]>,
    /// The coordinator whose launches the writer keeps. No other writer has it.
    pub coordinator: CoordinatorId,
    pub mutant: Option<Mutant>,
    own: Vec<Own>,
    n_commits: usize,
    told: Told,
}

/// The calls of a writer, and the errors that no call may return.
#[derive(Default)]
pub struct Told {
    pub calls: Vec<Call>,
    pub errors: Vec<String>,
}

impl Writer {
    pub fn new(
        servers: Arc<[Server]>,
        clock: Clock,
        keys: Arc<[InstanceKey]>,
        seed: u64,
        mutant: Option<Mutant>,
    ) -> Self {
        let coordinator = format!("crd_{seed}").parse().unwrap();
        let dice = Dice::new(seed, 7);
        let (own, n_commits, told) = (Vec::new(), 0, Told::default());
        Self { servers, clock, dice, keys, coordinator, mutant, own, n_commits, told }
    }

    /// Makes calls until this number of them has changed something.
    pub async fn run(mut self, n_commits: usize) -> Told {
        let purpose = self.keys[0].purpose;
        while self.n_commits < n_commits && self.told.errors.is_empty() {
            match purpose {
                Purpose::Task => self.start_or_stop().await,
                Purpose::Chat => self.chat().await,
                Purpose::Check => unreachable!("these keys have no checks"),
            }
        }
        self.told
    }

    /// Makes a call about starts. All gates are open for about a third of the time.
    async fn start_or_stop(&mut self) {
        match self.dice.below(100) {
            0..45 => self.claim().await,
            45..65 => self.end_process().await,
            65..67 => self.pause().await,
            67..70 => self.stop(None).await,
            70..80 => self.resume(None).await,
            80..84 => {
                let key = self.any_key();
                self.stop(Some(key)).await;
            }
            84..91 => {
                let key = self.any_key();
                self.resume(Some(key)).await;
            }
            91..93 => self.unassign().await,
            93..97 => self.assign().await,
            _ => self.list().await,
        }
    }

    /// Makes a call about chats.
    async fn chat(&mut self) {
        match self.dice.below(100) {
            0..30 => self.say().await,
            30..42 => self.end_chat().await,
            42..62 => self.claim().await,
            62..76 => self.authenticate().await,
            76..90 => self.end_process().await,
            _ => {
                let key = self.any_key();
                self.look(key).await;
            }
        }
    }

    fn any_key(&mut self) -> InstanceKey {
        self.keys[self.dice.index(self.keys.len())].clone()
    }

    fn any_server(&mut self) -> Server {
        self.servers[self.dice.index(self.servers.len())].clone()
    }

    fn any_service(&mut self) -> Arc<Service> {
        self.any_server().service
    }

    /// Notes a call. One that succeeded states these facts.
    fn note<T>(
        &mut self,
        made: (Result<T, ServiceError>, Call),
        facts: impl FnOnce(T) -> Vec<Fact>,
    ) {
        let (answer, mut call) = made;
        match answer {
            Ok(answer) => {
                call.facts = facts(answer);
                self.told.calls.push(call);
            }
            Err(error) => self.told.errors.push(format!("{call} failed: {error:?}")),
        }
    }

    /// Notes a call that changes something.
    fn note_commit<T>(
        &mut self,
        made: (Result<T, ServiceError>, Call),
        facts: impl FnOnce(T) -> Vec<Fact>,
    ) {
        self.n_commits += 1;
        self.note(made, facts);
    }

    async fn claim(&mut self) {
        let (server, key, by) = (self.any_server(), self.any_key(), self.coordinator.clone());
        let made = if self.mutant == Some(Mutant::ClaimLooksBefore) {
            self.clock.time("claim", mutants::claim(&server, &self.clock, &key, &by)).await
        } else {
            let asked = async {
                let answer = server.service.launches.should_start(&key, Some(&by)).await?;
                let claim = answer.claim.map(|claim| (claim.launch, claim.ticket));
                Ok::<Claimed, ServiceError>(claim.ok_or(answer.reason))
            };
            self.clock.time("claim", asked).await
        };
        if let (Ok(Ok((launch, ticket))), _) = &made
            && !self.own.iter().any(|own| own.launch == *launch)
        {
            self.n_commits += 1;
            let (key, launch, ticket) = (key.clone(), launch.clone(), ticket.clone());
            self.own.push(Own { key, launch, ticket, was_tried: false });
        }
        self.note(made, |answer| match answer {
            Ok((launch, _)) => vec![Fact::Phase(key, launch, Phase::Starting)],
            Err(reason) => vec![Fact::MayNotStart(key, reason)],
        });
    }

    async fn end_process(&mut self) {
        if self.own.is_empty() {
            return;
        }
        let (service, own) = (self.any_service(), self.dice.index(self.own.len()));
        let Own { key, launch, .. } = self.own.swap_remove(own);
        let end = ProcessEnd::Exited(ExitStatus::default());
        let report = [ProcessReport::Ended { end, at: Timestamp::from_millis(1) }];
        let asked = service.launches.report_process(&launch, &report);
        let made = self.clock.time("end of a process", asked).await;
        self.note_commit(made, |()| vec![Fact::Ended(key, launch)]);
    }

    async fn pause(&mut self) {
        let service = self.any_service();
        let made = self.clock.time("pause", service.launches.pause()).await;
        self.note_commit(made, |()| vec![Fact::Paused(true)]);
    }

    /// Stops the pair of a key, or all.
    async fn stop(&mut self, key: Option<InstanceKey>) {
        let (server, target) = (self.any_server(), target(key.as_ref()));
        let made = if self.mutant == Some(Mutant::StopListsBefore) {
            self.clock.time(STOP, mutants::stop(&server, key.as_ref(), &target)).await
        } else {
            let asked = async {
                let stopped = server.service.launches.stop(&target, Force::No).await?;
                let listed = stopped.launches.into_iter().chain(stopped.abandoned).collect();
                Ok::<BTreeSet<LaunchId>, ServiceError>(listed)
            };
            self.clock.time(STOP, asked).await
        };
        self.note_commit(made, |listed| {
            let is_held = match &key {
                Some(key) => Fact::Held(key.clone(), true),
                None => Fact::Paused(true),
            };
            vec![is_held, Fact::Open(key, listed.clone()), Fact::AllLeave(listed)]
        });
    }

    async fn resume(&mut self, key: Option<InstanceKey>) {
        let (service, target) = (self.any_service(), target(key.as_ref()));
        let made = self.clock.time("resume", service.launches.resume(&target)).await;
        self.note_commit(made, |()| match key {
            Some(key) => vec![Fact::Held(key, false)],
            None => vec![Fact::Paused(false)],
        });
    }

    async fn unassign(&mut self) {
        let (service, key) = (self.any_service(), self.any_key());
        let edit = ProjectEdit { unassign: vec![key.agent.clone()], ..ProjectEdit::default() };
        let asked = service.catalog.set_project(&key.project, &edit);
        let made = self.clock.time("unassign", asked).await;
        self.note_commit(made, |()| vec![Fact::Assigned(key, false)]);
    }

    async fn assign(&mut self) {
        let (service, key) = (self.any_service(), self.any_key());
        // The second form fails after it has written. Its group runs again, which leaves gaps
        // between the numbers of events.
        let is_undone = self.dice.percent(20);
        let unknown: AgentId = "agt_unknown".parse().unwrap();
        let others = is_undone.then_some(unknown);
        let assign = std::iter::once(key.agent.clone()).chain(others).collect();
        let edit = ProjectEdit { assign, ..ProjectEdit::default() };
        let asked = service.catalog.set_project(&key.project, &edit);
        match self.clock.time("assign", asked).await {
            (Err(ServiceError::Refused(Refusal::AgentNotFound { .. })), call) if is_undone => {
                self.note((Ok(()), call), |()| Vec::new());
            }
            made => self.note_commit(made, |()| vec![Fact::Assigned(key, true)]),
        }
    }

    async fn list(&mut self) {
        let service = self.any_service();
        let made = self.clock.time("list of open launches", service.launches.open()).await;
        self.note(made, |open| {
            vec![Fact::Open(None, open.into_iter().map(|launch| launch.id).collect())]
        });
    }

    async fn say(&mut self) {
        let (server, key) = (self.any_server(), self.any_key());
        let made = if self.mutant == Some(Mutant::MessageLooksBefore) {
            self.clock.time("message", mutants::say(&server, &self.clock, &key)).await
        } else {
            let asked = async {
                let chats = &server.service.chats;
                let said = chats.say(&key.agent, &key.project, None, "a message").await?;
                Ok::<MessageId, ServiceError>(said.id)
            };
            self.clock.time("message", asked).await
        };
        self.note_commit(made, |id| vec![Fact::Newest(key, id)]);
    }

    async fn end_chat(&mut self) {
        let (service, key) = (self.any_service(), self.any_key());
        let asked = service.chats.end(&key.agent, &key.project);
        let made = self.clock.time("end of a chat", asked).await;
        self.note_commit(made, |()| vec![Fact::Over(key)]);
    }

    /// Opens the session of an own launch.
    async fn authenticate(&mut self) {
        let service = self.any_service();
        let Some(own) = self.own.iter_mut().find(|own| !own.was_tried) else { return };
        own.was_tried = true;
        let (key, launch, ticket) = (own.key.clone(), own.launch.clone(), own.ticket.clone());
        let (ticket, presenter) = (ticket.unwrap(), Presenter::on_socket(None));
        let asked = service.sessions.authenticate(&key.agent, &ticket, &key.project, presenter);
        match self.clock.time("authentication", asked).await {
            (Err(ServiceError::Refused(Refusal::LaunchEnded)), call) => {
                self.note((Ok(()), call), |()| vec![Fact::Leaves(key, launch)]);
            }
            made => self.note_commit(made, |_| vec![Fact::Phase(key, launch, Phase::Running)]),
        }
    }

    /// Looks at all keys.
    pub async fn look_at_all(&mut self) {
        self.list().await;
        let keys = self.keys.clone();
        for key in keys.iter().filter(|key| key.purpose == Purpose::Chat) {
            self.look(key.clone()).await;
        }
    }

    /// Reads the state of a chat.
    async fn look(&mut self, key: InstanceKey) {
        let server = self.any_server();
        let asked = async { Ok::<_, ServiceError>(server.store.pair_facts(&key).await?) };
        let made = self.clock.time("look at a chat", asked).await;
        self.note(made, |facts| {
            let open = facts.open.map(|OpenLaunch { id, state }| (id, phase(&state)));
            vec![Fact::Chat { key, is_wanted: facts.record.wanted_since.is_some(), open }]
        });
    }
}

fn target(key: Option<&InstanceKey>) -> StopTarget {
    match key.cloned() {
        Some(InstanceKey { agent, project, .. }) => {
            StopTarget::Pair { agent, project, purpose: None }
        }
        None => StopTarget::All,
    }
}

fn phase(state: &LaunchState) -> Phase {
    match state {
        LaunchState::Starting { .. } => Phase::Starting,
        LaunchState::Running { .. } => Phase::Running,
        LaunchState::Stopping { .. } | LaunchState::Ending | LaunchState::Ended { .. } => {
            Phase::Leaving
        }
    }
}
