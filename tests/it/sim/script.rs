//! The events that hit a fleet from outside: a list of steps that is made from a seed. Any step can
//! be left out.

use std::time::Duration;

use domain::TaskStatus;
use domain::agent::{AgentStatus, ProjectStatus};
use supervisor::coordinator::Mode;

use super::illness::Illness;
use super::net::Weather;
use super::world::Dice;

/// The size of a fleet. All coordinators serve the same projects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    pub n_agents: usize,
    pub n_projects: usize,
    pub n_tasks: usize,
    /// The limits of the coordinators.
    pub max_concurrent: Vec<usize>,
    /// The number of slots that every coordinator with more than one keeps for chats.
    pub chat_reserve: usize,
    /// The limits of every coordinator.
    pub caps: Caps,
    /// The number of providers, which the agents use in turn.
    pub n_providers: usize,
    /// True if the first coordinator is in one process with the server.
    pub has_local: bool,
}

/// The limits on one machine at the same time; `None` allows any number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caps {
    pub per_project: Option<usize>,
    pub per_agent: Option<usize>,
    pub per_provider: Option<usize>,
}

impl Caps {
    /// Returns the limits, which half of all fleets do not have.
    fn of(dice: &mut Dice) -> Self {
        let is_capped = dice.percent(50);
        let mut cap = || (dice.percent(50) && is_capped).then(|| 1 + dice.index(2));
        Self { per_project: cap(), per_agent: cap(), per_provider: cap() }
    }
}

/// One event, and the time that passes after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub deed: Deed,
    pub then_wait: Duration,
}

/// An event. A number that is too large wraps around.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    Nothing,
    /// The coordinator dies after this number of further polls, and is back some time later.
    Crash {
        coordinator: usize,
        after_polls: u64,
        down_for: Duration,
    },
    /// The coordinator is told to end, and comes back when it has ended.
    Restart {
        coordinator: usize,
        mode: Mode,
        down_for: Duration,
    },
    RestartServer,
    KillShim {
        host: usize,
        which: usize,
    },
    KillAgent {
        host: usize,
        which: usize,
    },
    BeginForeign {
        host: usize,
    },
    /// The machine sleeps, unless the server is on it. All others go on.
    Suspend {
        host: usize,
        lasts: Duration,
    },
    SetWeather {
        coordinator: usize,
        weather: Weather,
    },
    /// Writes of the store fail for this time.
    IllStore {
        illness: Illness,
        lasts: Duration,
    },
    /// The next claim of the coordinator is granted, but the answer does not arrive.
    LoseClaimAnswer {
        coordinator: usize,
    },
    /// The wall clock of all machines differs from the true time by this number of milliseconds
    /// from now on.
    SetClock(i64),
    /// This percentage of the agents' requests and answers is lost.
    SetLossOfAgents(u64),
    SetTask {
        task: usize,
        status: TaskStatus,
    },
    GiveTask {
        task: usize,
        agent: usize,
    },
    Assign {
        agent: usize,
        project: usize,
    },
    Unassign {
        agent: usize,
        project: usize,
    },
    SetProject {
        project: usize,
        status: ProjectStatus,
    },
    SetAgent {
        agent: usize,
        status: AgentStatus,
    },
    StopPair {
        agent: usize,
        project: usize,
    },
    ResumePair {
        agent: usize,
        project: usize,
    },
    StopAll,
    ResumeAll,
    OpenChat {
        agent: usize,
        project: usize,
    },
    EndChat {
        agent: usize,
        project: usize,
    },
    /// A person writes a message of this length, once more for each lost answer.
    Say {
        agent: usize,
        project: usize,
        n_bytes: usize,
        times: usize,
    },
}

/// A fleet with its events.
#[derive(Debug, Clone)]
pub struct Script {
    pub seed: u64,
    pub fleet: Fleet,
    pub steps: Vec<Step>,
}

impl Script {
    pub fn of_seed(seed: u64, n_steps: usize) -> Self {
        let mut dice = Dice::new(seed, 0);
        // The limits have dice of their own, so that the rest of a seed's script stays the same.
        let mut dice_of_caps = Dice::new(seed, 2);
        let n_coordinators = 1 + dice.index(3);
        let fleet = Fleet {
            n_agents: 1 + dice.index(3),
            n_projects: 1 + dice.index(2),
            n_tasks: 2 + dice.index(4),
            max_concurrent: (0..n_coordinators).map(|_| 1 + dice.index(3)).collect(),
            chat_reserve: dice.index(2),
            caps: Caps::of(&mut dice_of_caps),
            n_providers: 1 + dice_of_caps.index(2),
            has_local: dice.percent(50),
        };
        let mut steps = Vec::with_capacity(n_steps);
        while steps.len() < n_steps {
            misfortune_or_deed(&mut dice, &mut steps);
        }
        steps.truncate(n_steps);
        // Rules about the wall clock are checked only in histories in which it is right.
        if !seed.is_multiple_of(3) {
            for step in &mut steps {
                if matches!(step.deed, Deed::SetClock(_)) {
                    step.deed = Deed::Nothing;
                }
            }
        }
        let steps = with_illnesses(&mut Dice::new(seed, 3), steps);
        Self { seed, fleet, steps }
    }
}

/// Adds faults of the store to half of the histories.
fn with_illnesses(dice: &mut Dice, steps: Vec<Step>) -> Vec<Step> {
    if dice.percent(50) {
        return steps;
    }
    let mut with = Vec::new();
    for step in steps {
        if dice.percent(6) {
            let illness = illness(dice);
            let lasts =
                if dice.percent(70) { dice.millis(1, 5_000) } else { dice.millis(5_000, 30_000) };
            let deed = Deed::IllStore { illness, lasts };
            with.push(Step { deed, then_wait: Duration::ZERO });
        }
        with.push(step);
    }
    with
}

fn illness(dice: &mut Dice) -> Illness {
    let well = Illness::default();
    let percent = dice.pick(&[10, 50, 100]);
    match dice.below(5) {
        0 => Illness { fails: percent, ..well },
        1 => Illness { unanswered: percent, ..well },
        2 => Illness { slow: percent, ..well },
        3 => Illness { is_full: true, ..well },
        _ => Illness { fails: 20, unanswered: 20, slow: 20, is_full: false },
    }
}

fn wait(dice: &mut Dice) -> Duration {
    match dice.below(10) {
        0..4 => dice.millis(0, 50),
        4..8 => dice.millis(50, 3_000),
        _ => dice.millis(3_000, 30_000),
    }
}

fn misfortune_or_deed(dice: &mut Dice, steps: &mut Vec<Step>) {
    // These faults come together. Alone, each is too rare to meet the others.
    if dice.percent(3) {
        let host = dice.index(3);
        let deeds = [
            Deed::Crash {
                coordinator: host,
                after_polls: dice.below(30),
                down_for: dice.millis(5_000, 60_000),
            },
            Deed::KillShim { host, which: dice.index(4) },
            Deed::BeginForeign { host },
        ];
        steps.extend(deeds.into_iter().map(|deed| Step { deed, then_wait: dice.millis(0, 500) }));
        return;
    }
    let deed = deed(dice);
    let then_wait = wait(dice);
    steps.push(Step { deed, then_wait });
}

const HOUR: i64 = 3_600_000;
const YEAR: i64 = 365 * 24 * HOUR;

fn deed(dice: &mut Dice) -> Deed {
    let (coordinator, which) = (dice.index(3), dice.index(4));
    let (agent, project, task) = (dice.index(3), dice.index(2), dice.index(6));
    match dice.below(100) {
        0..2 => Deed::Nothing,
        2..4 => {
            let lasts = if dice.percent(40) {
                dice.millis(100, 20_000)
            } else {
                dice.millis(20_000, 150_000)
            };
            Deed::Suspend { host: coordinator, lasts }
        }
        4..6 => Deed::SetClock(dice.pick(&[0, HOUR, -HOUR, YEAR, -YEAR])),
        6..16 => {
            let after_polls = if dice.percent(70) { dice.below(40) } else { dice.below(400) };
            let down_for =
                if dice.percent(70) { dice.millis(0, 3_000) } else { dice.millis(3_000, 90_000) };
            Deed::Crash { coordinator, after_polls, down_for }
        }
        16..19 => {
            let mode =
                dice.pick(&[Mode::LeavingAgents, Mode::StoppingAgents, Mode::StoppingAgentsNow]);
            Deed::Restart { coordinator, mode, down_for: dice.millis(0, 20_000) }
        }
        19..22 => Deed::RestartServer,
        22..26 => Deed::KillShim { host: coordinator, which },
        26..31 => Deed::KillAgent { host: coordinator, which },
        31..33 => Deed::BeginForeign { host: coordinator },
        33..41 => Deed::SetWeather { coordinator, weather: weather(dice) },
        41..44 => Deed::SetLossOfAgents(dice.pick(&[0, 0, 5, 30])),
        44..56 => Deed::Say {
            agent,
            project,
            n_bytes: if dice.percent(20) { 7_000 } else { 10 },
            times: if dice.percent(20) { 2 } else { 1 },
        },
        56..58 => Deed::OpenChat { agent, project },
        58..60 => Deed::EndChat { agent, project },
        60..74 => Deed::SetTask { task, status: TaskStatus::InProgress },
        74..78 => {
            let status = dice.pick(&[
                TaskStatus::Blocked,
                TaskStatus::Cancelled,
                TaskStatus::Todo,
                TaskStatus::Done,
            ]);
            Deed::SetTask { task, status }
        }
        78..80 => Deed::GiveTask { task, agent },
        80..82 => Deed::Unassign { agent, project },
        82..86 => Deed::Assign { agent, project },
        86..87 => Deed::SetProject {
            project,
            status: dice.pick(&[ProjectStatus::Inactive, ProjectStatus::Archived]),
        },
        87..90 => Deed::SetProject { project, status: ProjectStatus::Active },
        90..91 => Deed::SetAgent { agent, status: AgentStatus::Inactive },
        91..93 => Deed::SetAgent { agent, status: AgentStatus::Active },
        93..95 => Deed::StopPair { agent, project },
        95..97 => Deed::ResumePair { agent, project },
        97 if dice.percent(50) => Deed::StopAll,
        _ => Deed::ResumeAll,
    }
}

fn weather(dice: &mut Dice) -> Weather {
    let mut some = |most| {
        if dice.percent(50) { dice.below(most) } else { 0 }
    };
    match some(20) {
        0..4 => Weather::default(),
        4..7 => Weather::STORM,
        _ => Weather {
            lost: some(30),
            unanswered: some(30),
            late: some(30),
            twice: some(30),
            slow: some(40),
        },
    }
}
