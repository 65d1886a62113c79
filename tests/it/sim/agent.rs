//! Agents with their characters and their lives. They call the service like the MCP tools, and
//! their calls and answers can get lost, too.

mod chat;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use domain::launch::ReportResult;
use domain::session::Presenter;
use domain::{InstanceKey, LaunchId, Purpose, Refusal, Secret};
use service::{Report, Service, ServiceError};

use super::world::{Dice, Slumber, pass};
use super::{START_TIMEOUT, Sim};
use chat::Manner;

/// The way in which an agent ends its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Reports(ReportResult),
    LogsOut,
    /// Exits without a report.
    Exits,
    /// Works until it is ended from outside.
    Never,
}

/// The obstacle to its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// No shim starts.
    NoShim,
    /// The shim starts, but not the agent.
    NoProgram,
    /// The record of its start can't be written.
    FullDisk,
}

/// The character of an agent, which is decided before its start.
#[derive(Debug, Clone)]
pub struct Character {
    pub trouble: Option<Trouble>,
    pub executed_after: Duration,
    pub n_descendants: u32,
    /// The time from TERM to its end; `None` if only KILL ends it.
    pub heeds_term_after: Option<Duration>,
    /// The time until it authenticates; `None` if it never does.
    authenticates_after: Option<Duration>,
    authenticates_again: bool,
    asks_for_its_task: bool,
    works_for: Duration,
    ending: Ending,
    /// True if it follows notices and next actions.
    is_obedient: bool,
    /// The time that it stays after its last call; `None` until it is ended.
    lingers: Option<Duration>,
    seed: u64,
    in_chats: Manner,
}

impl Character {
    pub fn of(dice: &mut Dice) -> Self {
        let late = u64::try_from(START_TIMEOUT.as_millis()).unwrap();
        let authenticates_after = match dice.below(20) {
            0 => None,
            // This is close to the deadline.
            1 | 2 => Some(dice.millis(late - 1500, late + 3000)),
            _ => Some(dice.millis(1, 2000)),
        };
        let ending = match dice.below(10) {
            0 => Ending::Reports(ReportResult::Failed),
            1 => Ending::Reports(ReportResult::Blocked),
            2 => Ending::LogsOut,
            3 => Ending::Exits,
            4 => Ending::Never,
            _ => Ending::Reports(ReportResult::Success),
        };
        Self {
            trouble: match dice.below(100) {
                0..2 => Some(Trouble::NoShim),
                2..4 => Some(Trouble::NoProgram),
                4..7 => Some(Trouble::FullDisk),
                _ => None,
            },
            executed_after: if dice.percent(5) {
                dice.millis(0, 30_000)
            } else {
                dice.millis(0, 20)
            },
            n_descendants: if dice.percent(20) { 2 } else { 0 },
            heeds_term_after: (!dice.percent(20)).then(|| dice.millis(0, 1500)),
            authenticates_after,
            authenticates_again: dice.percent(10),
            asks_for_its_task: !dice.percent(5),
            works_for: dice.millis(50, 40_000),
            ending,
            is_obedient: !dice.percent(20),
            lingers: (!dice.percent(20)).then(|| dice.millis(0, 3000)),
            seed: dice.next(),
            in_chats: Manner::of(dice),
        }
    }
}

/// The reason why an agent stops calling.
enum Over {
    /// The server refused a call.
    Refused,
}

/// The place where an agent runs.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Its millisecond of the round. No other living agent has the same.
    pub turn: u64,
    /// The sleep of its machine.
    pub slumber: &'a Slumber,
}

struct Life<'a> {
    sim: &'a Arc<Sim>,
    key: &'a InstanceKey,
    launch: &'a LaunchId,
    ticket: Secret,
    place: Place<'a>,
    dice: Dice,
}

/// The length of a round in milliseconds. Each living agent has its own millisecond in it.
const ROUND: u64 = 64;

/// Lives a whole life and returns the exit code.
pub async fn live(
    sim: &Arc<Sim>,
    (key, launch): (&InstanceKey, &LaunchId),
    ticket: Secret,
    character: &Character,
    place: Place<'_>,
) -> i32 {
    let life = Life { sim, key, launch, ticket, place, dice: Dice::new(character.seed, 0) };
    match life.work(character).await {
        Ok(()) => 0,
        Err(Over::Refused) => 3,
    }
}

impl Life<'_> {
    async fn work(mut self, character: &Character) -> Result<(), Over> {
        let Some(after) = character.authenticates_after else { std::future::pending().await };
        pass(after).await;
        let mut token = self.authenticate().await?;
        if character.authenticates_again {
            pass(self.dice.millis(1, 3000)).await;
            token = self.authenticate().await?;
        }
        if self.key.purpose == Purpose::Task && character.asks_for_its_task {
            let (token, launch) = (&token, self.launch);
            self.say(|service| async move {
                let caller =
                    service.sessions.identify(token, Presenter::on_socket(Some(launch))).await?;
                service.tasks.mine(&caller).await
            })
            .await?;
        }
        let ending = match self.key.purpose {
            Purpose::Task => self.follow(character, &token).await?,
            Purpose::Chat => self.chat(character, &token).await?,
            Purpose::Check => unreachable!("the simulation has no checks"),
        };
        self.end(ending, &token).await?;
        match character.lingers {
            Some(lingers) if ending != Ending::Never => pass(lingers).await,
            _ => std::future::pending().await,
        }
        Ok(())
    }

    async fn authenticate(&mut self) -> Result<Secret, Over> {
        let (key, launch, ticket) = (self.key, self.launch, self.ticket.clone());
        let ticket = &ticket;
        let opened = self
            .say(|service| async move {
                service
                    .sessions
                    .authenticate(
                        &key.agent,
                        ticket,
                        &key.project,
                        Presenter::on_socket(Some(launch)),
                    )
                    .await
            })
            .await?;
        self.sim.chronicle.note(|| format!("{launch}  authenticated"));
        Ok(opened.session_token)
    }

    /// Works, and asks for the next action now and then. Returns the way in which it wants to end.
    async fn follow(&mut self, character: &Character, token: &Secret) -> Result<Ending, Over> {
        let launch = self.launch;
        let done_at = tokio::time::Instant::now() + character.works_for;
        loop {
            let next = self
                .say(|service| async move {
                    let caller = service
                        .sessions
                        .identify(token, Presenter::on_socket(Some(launch)))
                        .await?;
                    service.sessions.next_action(&caller, Some(Duration::from_secs(3))).await
                })
                .await?;
            if character.is_obedient {
                match next.action {
                    "get_notifications" => {
                        let told = self.read_notices(token).await?;
                        self.sim.chronicle.note(|| format!("{}  was told {told}", self.launch));
                        continue;
                    }
                    "report_completed" => return Ok(Ending::Reports(ReportResult::Blocked)),
                    "logout" => return Ok(Ending::LogsOut),
                    "exit" => return Ok(Ending::Exits),
                    _ => {}
                }
            }
            if tokio::time::Instant::now() >= done_at && character.ending != Ending::Never {
                return Ok(character.ending);
            }
            pass(self.dice.millis(500, 4000)).await;
        }
    }

    async fn read_notices(&mut self, token: &Secret) -> Result<usize, Over> {
        let launch = self.launch;
        let told = self
            .say(|service| async move {
                let caller =
                    service.sessions.identify(token, Presenter::on_socket(Some(launch))).await?;
                service.sessions.notifications(&caller).await
            })
            .await?;
        Ok(told.len())
    }

    async fn end(&mut self, ending: Ending, token: &Secret) -> Result<(), Over> {
        let launch = self.launch;
        match ending {
            Ending::Reports(result) => {
                let summary = Some("what it did");
                self.sim.chronicle.note(|| format!("{launch}  reports {result:?}"));
                self.say(|service| async move {
                    let caller = service
                        .sessions
                        .identify_reporter(token, Presenter::on_socket(Some(launch)))
                        .await?;
                    service
                        .sessions
                        .report(&caller, Report { result, summary, next_steps: None })
                        .await
                })
                .await?;
            }
            Ending::LogsOut => {
                self.say(|service| async move {
                    let caller = service
                        .sessions
                        .identify(token, Presenter::on_socket(Some(launch)))
                        .await?;
                    service.sessions.logout(&caller).await
                })
                .await?;
            }
            Ending::Exits | Ending::Never => {}
        }
        Ok(())
    }

    /// Waits for its turn, with its machine awake. Agents that are woken together continue one
    /// after the other, in the same order in each replay.
    async fn turn(&self) {
        loop {
            self.place.slumber.over().await;
            let now = u64::try_from(self.sim.world.elapsed().as_millis()).unwrap() + 1;
            let wait = (self.place.turn % ROUND + ROUND - now % ROUND) % ROUND;
            pass(Duration::from_millis(wait + 1)).await;
            if !self.place.slumber.is_on() {
                return;
            }
        }
    }

    /// Makes a call and repeats it until there is an answer. Requests and answers get lost while
    /// the weather is bad, and with each run of the server.
    async fn say<T, F, C>(&mut self, call: C) -> Result<T, Over>
    where
        C: Fn(Arc<Service>) -> F,
        F: Future<Output = Result<T, ServiceError>>,
    {
        loop {
            self.turn().await;
            let loss = self.sim.agents_loss();
            if self.dice.percent(loss) {
                pass(self.dice.millis(100, 2000)).await;
                continue;
            }
            let (service, mut run) = self.sim.service_and_run();
            let answer = tokio::select! {
                biased;
                answer = call(service) => answer,
                _ = run.changed() => continue,
            };
            self.turn().await;
            if self.dice.percent(loss) {
                continue;
            }
            match answer {
                Ok(answer) => return Ok(answer),
                // After a lost answer the session may be over already.
                Err(ServiceError::Refused(
                    Refusal::InvalidSession | Refusal::SessionEnded | Refusal::LaunchEnded,
                )) => {
                    return Err(Over::Refused);
                }
                Err(ServiceError::Refused(refusal)) => {
                    self.sim.chronicle.note(|| format!("{}  refused: {refusal}", self.launch));
                    return Err(Over::Refused);
                }
                Err(ServiceError::Store(_)) => {}
            }
        }
    }
}
