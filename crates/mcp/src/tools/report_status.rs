//! `report_status`: a coordinator reports its state, which the server shows to people.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{Done, Effect, ToolSpec};
use crate::envelope::NamedCoordinator;
use domain::Instance;
use domain::counters::Counters;
use domain::machine::Machine;
use domain::plan::{Deferred, Limits};
use service::{CoordinatorStatus, Service, ServiceError};

pub(crate) struct ReportStatus;

/// Any object, for a schema.
type Object = BTreeMap<String, serde_json::Value>;

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    /// The largest number of agents that it keeps alive at once.
    #[schemars(with = "u32")]
    max_concurrent: usize,
    /// Its processes. Each has launch_id, agent_id, project_id, purpose, phase, pid, …
    #[serde(default)]
    #[schemars(with = "Vec<Object>")]
    instances: Vec<Instance>,
    /// The starts that wait. Each has agent_id, project_id, purpose, reason, until.
    #[serde(default)]
    #[schemars(with = "Vec<Object>")]
    deferred: Vec<Deferred>,
    /// Its machine: the name, and the free and the whole memory and disk in bytes.
    #[serde(default)]
    #[schemars(with = "Object")]
    machine: Option<Machine>,
    /// Its counters since its start: cycles, starts, adoptions, leaked, found_by_poll_only.
    #[serde(default, deserialize_with = "counted")]
    #[schemars(with = "Object")]
    counters: Counted,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Counted {
    cycles: u64,
    starts: u64,
    adoptions: u64,
    leaked: u64,
    found_by_poll_only: u64,
}

/// Reads the counters from an object only. Serde would also take a list of the fields for a struct.
fn counted<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Counted, D::Error> {
    let object = serde_json::Map::deserialize(deserializer)?;
    Counted::deserialize(serde_json::Value::Object(object)).map_err(D::Error::custom)
}

impl From<Counted> for Counters {
    fn from(counted: Counted) -> Self {
        let Counted { cycles, starts, adoptions, leaked, found_by_poll_only } = counted;
        Self { cycles, starts, adoptions, leaked, found_by_poll_only }
    }
}

impl ToolSpec for ReportStatus {
    const NAME: &'static str = "report_status";
    const TEXT: &'static str = "For coordinators: reports which agents the coordinator runs, \
                                which starts wait and why.";
    const EFFECT: Effect = Effect::ChangesOnce;
    type Who = NamedCoordinator;
    type Input = Input;
    type Output = Done;

    async fn call(
        service: &Service,
        who: NamedCoordinator,
        input: Input,
    ) -> Result<Done, ServiceError> {
        service.coordinators.report(CoordinatorStatus {
            coordinator: who.0,
            at: service.time(),
            // Only the coordinator needs to know how long agents may linger.
            limits: Limits::of(input.max_concurrent, Duration::ZERO),
            instances: input.instances,
            deferred: input.deferred,
            crowds: Vec::new(),
            failed_snapshots: Vec::new(),
            machine: input.machine,
            counters: input.counters.into(),
        });
        Ok(Done::DONE)
    }
}
