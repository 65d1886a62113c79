//! The network between a coordinator and its server. Requests and answers are lost, late, or come
//! twice, and views are old when they arrive. It is the `ControlPlane` of its coordinator.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::conversation::Entry;
use domain::launch::ProcessEnd;
use domain::plan::ProcessReport;
use domain::{
    Activity, Attempt, CoordinatorId, Instance, InstanceKey, LaunchId, Secret, StopReason,
    Timestamp,
};
use service::world::World as _;
use service::{Claim, CoordinatorStatus, ServerView};
use supervisor::coordinator::{ControlError, ControlPlane, LocalControlPlane};
use tokio::task::yield_now;

use super::world::{Dice, pass};
use super::{Mutant, START_TIMEOUT, Sim};

/// The share of faulty calls, in percent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weather {
    /// The request is lost.
    pub lost: u64,
    /// The call is carried out, but the answer is lost.
    pub unanswered: u64,
    /// The caller gives up, and the call is carried out some time later.
    pub late: u64,
    pub twice: u64,
    pub slow: u64,
}

impl Weather {
    pub const STORM: Self = Self { lost: 100, unanswered: 0, late: 0, twice: 0, slow: 0 };
}

/// The longest time that a caller waits for an answer, in milliseconds.
const TIMEOUT: u64 = 10_000;
/// The longest time that a request is on its way, in milliseconds.
const LATEST: u64 = 40_000;

const CLAIM: &str = "claim";

/// The connection of one coordinator to the server.
pub struct Net {
    sim: Arc<Sim>,
    id: CoordinatorId,
    is_remote: bool,
    weather: Mutex<Weather>,
    loses_claim_answer: AtomicBool,
    dice: Mutex<Dice>,
}

/// The point where a call fails.
enum Fate {
    Fine,
    Lost,
    Unanswered,
    Late(Duration),
    Twice,
}

impl Net {
    pub fn new(sim: Arc<Sim>, id: CoordinatorId, is_remote: bool, purpose: u64) -> Arc<Self> {
        let dice = Mutex::new(Dice::new(sim.seed, purpose));
        Arc::new(Self {
            sim,
            id,
            is_remote,
            weather: Mutex::default(),
            loses_claim_answer: AtomicBool::new(false),
            dice,
        })
    }

    pub fn set_weather(&self, weather: Weather) {
        *self.weather.lock().unwrap() = weather;
    }

    /// Returns whether the server is on another machine.
    pub const fn is_remote(&self) -> bool {
        self.is_remote
    }

    pub fn weather(&self) -> Weather {
        *self.weather.lock().unwrap()
    }

    /// Loses the answer to the next claim in any weather.
    pub fn lose_claim_answer(&self) {
        self.loses_claim_answer.store(true, Ordering::Relaxed);
    }

    fn cast(&self, what: &str) -> (Fate, Duration, Duration) {
        if what == CLAIM && self.loses_claim_answer.swap(false, Ordering::Relaxed) {
            return (Fate::Unanswered, Duration::ZERO, Duration::ZERO);
        }
        let weather = self.weather();
        let mut dice = self.dice.lock().unwrap();
        let mut pause = || {
            if dice.percent(weather.slow) { dice.millis(1, TIMEOUT / 2) } else { Duration::ZERO }
        };
        let (there, back) = (pause(), pause());
        let fate = if dice.percent(weather.lost) {
            Fate::Lost
        } else if dice.percent(weather.unanswered) {
            Fate::Unanswered
        } else if dice.percent(weather.late) {
            Fate::Late(dice.millis(1, LATEST))
        } else if dice.percent(weather.twice) {
            Fate::Twice
        } else {
            Fate::Fine
        };
        (fate, there, back)
    }

    /// Makes a call, with the faults of the weather. The death of a coordinator does not take back
    /// a request that is on its way.
    async fn call<T, F>(
        self: &Arc<Self>,
        what: &'static str,
        call: impl Fn(LocalControlPlane) -> F,
    ) -> Result<T, ControlError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ControlError>> + Send + 'static,
    {
        yield_now().await;
        let server = || LocalControlPlane::new(self.sim.service(), self.id.clone());
        let answer = if self.is_remote {
            let (fate, there, back) = self.cast(what);
            pass(there).await;
            let exit_grace = || pass(Duration::from_millis(TIMEOUT));
            match fate {
                Fate::Fine | Fate::Twice => {
                    let first = self.sim.spawn_for(call(server())).await;
                    let answer = if matches!(fate, Fate::Twice) {
                        self.sim.chronicle.note(|| format!("{}: {what} comes twice", self.id));
                        self.sim.spawn_for(call(server())).await
                    } else {
                        first
                    };
                    pass(back).await;
                    answer.unwrap_or_else(|| Err(lost(what)))
                }
                Fate::Lost => {
                    exit_grace().await;
                    Err(lost(what))
                }
                Fate::Unanswered => {
                    self.sim
                        .chronicle
                        .note(|| format!("{}: the answer to {what} is lost", self.id));
                    self.sim.spawn_for(call(server())).await;
                    exit_grace().await;
                    Err(lost(what))
                }
                Fate::Late(after) => {
                    self.sim.chronicle.note(|| format!("{}: {what} is late by {after:?}", self.id));
                    let late = call(server());
                    self.sim.spawn(async move {
                        pass(after).await;
                        let _ = late.await;
                    });
                    exit_grace().await;
                    Err(lost(what))
                }
            }
        } else {
            // The coordinator is in one process with its server. Both die together, and committed
            // changes stay.
            call(server()).await
        };
        yield_now().await;
        answer
    }
}

fn lost(action: &'static str) -> ControlError {
    ControlError { action, source: "no answer".into() }
}

/// The connection of one incarnation of the coordinator.
pub struct Way(pub Arc<Net>);

impl ControlPlane for Way {
    fn now(&self) -> Timestamp {
        self.0.sim.world.now()
    }

    async fn observe(&self, _: &[Instance]) -> Result<ServerView, ControlError> {
        let mut view =
            self.0.call("observe", |server| async move { server.observe(&[]).await }).await?;
        if self.0.is_remote {
            view.launches.retain(|launch| launch.coordinator.as_ref() == Some(&self.0.id));
        }
        Ok(view)
    }

    async fn claim(&self, key: &InstanceKey, entry: &Entry) -> Result<Option<Claim>, ControlError> {
        if self.0.sim.mutant == Some(Mutant::ClaimSkipped) {
            yield_now().await;
            let world: &dyn service::world::World = &*self.0.sim.world;
            return Ok(Some(Claim {
                clone: None,
                launch: world.new_id(LaunchId::PREFIX),
                ai_type: "claude".to_owned(),
                deadline: self.now() + START_TIMEOUT,
                ticket: Some(Secret::new("tkt_of_nobody")),
                attempt: Attempt::FIRST,
                check: None,
                conversation: None,
            }));
        }
        let (key, entry) = (key.clone(), entry.clone());
        self.0
            .call(CLAIM, move |server| {
                let (key, entry) = (key.clone(), entry.clone());
                async move { server.claim(&key, &entry).await }
            })
            .await
    }

    async fn report(
        &self,
        launch: &LaunchId,
        reports: &[ProcessReport],
    ) -> Result<(), ControlError> {
        let (launch, reports) = (launch.clone(), reports.to_vec());
        self.0.sim.chronicle.note(|| format!("{}: reports {launch} {reports:?}", self.0.id));
        self.0
            .call("report", move |server| {
                let (launch, reports) = (launch.clone(), reports.clone());
                async move { server.report(&launch, &reports).await }
            })
            .await
    }

    async fn want_stop(&self, launch: &LaunchId, reason: StopReason) -> Result<(), ControlError> {
        if self.0.sim.mutant == Some(Mutant::FreedAtDeadline) && reason == StopReason::StartTimeout
        {
            let end = ProcessEnd::StartFailed("its deadline has passed".to_owned());
            return self.report(launch, &[ProcessReport::Ended { end, at: self.now() }]).await;
        }
        let launch = launch.clone();
        self.0
            .call("want_stop", move |server| {
                let launch = launch.clone();
                async move { server.want_stop(&launch, reason).await }
            })
            .await
    }

    async fn report_activity(
        &self,
        launch: &LaunchId,
        activity: &Activity,
    ) -> Result<(), ControlError> {
        let (launch, activity) = (launch.clone(), activity.clone());
        self.0
            .call("report_activity", move |server| {
                let (launch, activity) = (launch.clone(), activity.clone());
                async move { server.report_activity(&launch, &activity).await }
            })
            .await
    }

    async fn report_status(&self, status: CoordinatorStatus) -> Result<(), ControlError> {
        yield_now().await;
        self.0.sim.service().coordinators.report(status);
        Ok(())
    }
}
