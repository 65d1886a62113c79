//! Ends agents by facts of this machine alone: those that run for too long while the server does
//! not answer, and all of them when the daemon ends.

use std::time::Duration;

use super::act::log_stops;
use super::clocks::Observation;
use super::{ControlPlane, Coordinator, Mode, ProcessLayer, SeenLast};
use domain::StopReason;
use domain::plan::{Action, Limits, Plan, RunLimits, Snapshot, plan};
use runtime::telemetry::ErrorChain;

/// The time that an agent that is to end waits until the server is told why.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl<C: ControlPlane, P: ProcessLayer> Coordinator<C, P> {
    /// Ends agents that run for too long while the server does not answer. It uses the launches and
    /// limits that the server reported last. The server is told when it answers again.
    pub(super) async fn end_overlong(&mut self) {
        let Some(SeenLast { launches, limits }) = self.server.seen.clone() else {
            return;
        };
        let max_runtime = self.config.limits.run.max_runtime;
        let limits = Limits { run: RunLimits { max_runtime, ..limits.run }, ..limits };
        let instances = self.processes.instances();
        let now = self.control.now();
        let seen = Observation {
            now: self.processes.steady_now(),
            at: now,
            instances: &instances,
            launches: &launches,
            limits: &limits,
            providers: &self.config.providers,
            state_dir: &self.config.state_dir,
        };
        let elapsed = self.clocks.measure(&seen, &self.output_watcher);
        let snapshot = Snapshot {
            launches,
            instances: instances.to_vec(),
            elapsed,
            ..Snapshot::empty(self.config.id.clone(), limits, now)
        };
        let is_over = |action: &Action| {
            matches!(
                action,
                Action::Stop { reason: StopReason::RunMaximum | StopReason::SessionMaximum, .. }
            )
        };
        let overlong = Plan {
            actions: plan(&snapshot).actions.into_iter().filter(is_over).collect(),
            ..Plan::default()
        };
        log_stops(&overlong);
        for action in overlong.actions {
            if let Action::Stop { launch, reason } = action {
                self.processes.request_stop(&launch, reason, None).await;
            }
        }
    }

    /// Ends all agents on shutdown: tells the server why, within `LAST_WORDS`, and then tells the
    /// shims.
    pub(super) async fn end_agents(&self, mode: Mode) {
        let timeout = match mode {
            Mode::Running | Mode::LeavingAgents => return,
            Mode::StoppingAgents => None,
            Mode::StoppingAgentsNow => Some(Duration::ZERO),
        };
        let instances = self.processes.instances();
        let to_end = instances.iter().filter(|instance| {
            instance.is_live() && (instance.stop.is_none() || timeout.is_some())
        });
        let ends = to_end.map(|instance| async move {
            let told = self.control.want_stop(&instance.launch, StopReason::Shutdown);
            match tokio::time::timeout(LAST_WORDS, told).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(
                        launch_id = %instance.launch, error = %ErrorChain(&error),
                        "could not tell the server about a stop"
                    );
                }
                Err(_) => tracing::debug!(
                    launch_id = %instance.launch,
                    "the server did not answer in time to the report of a stop"
                ),
            }
            self.processes.request_stop(&instance.launch, StopReason::Shutdown, timeout).await;
        });
        futures::future::join_all(ends).await;
    }
}
