//! The table of processes: a coordinator's view of its machine, and its actions there. A
//! coordinator can die before and after each part of an action.

use std::sync::Arc;
use std::time::Duration;

use domain::{Condition, Instance, LaunchId, StopReason};
use supervisor::coordinator::ProcessLayer;
use supervisor::process::{BootInstant, StartError, StartRequest};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::{Character, Folder, Host, STOP_TIMEOUT, Trouble, What};
use crate::sim::world::Dice;

/// The table of one incarnation of the coordinator.
pub struct Table(pub Arc<Host>);

impl ProcessLayer for Table {
    fn instances(&self) -> Arc<[Instance]> {
        let state = self.0.state.lock().unwrap();
        let instance = |(launch, folder): (&LaunchId, &Folder)| Instance {
            launch: launch.clone(),
            key: folder.key.clone(),
            phase: folder.phase(),
            adopted: folder.is_adopted,
            stop: folder.stop.map(|(reason, _)| reason),
            is_marked_authenticated: folder.is_marked,
            condition: Condition::default(),
            shim: None,
        };
        state.folders.iter().map(instance).collect()
    }

    fn boot_now(&self) -> BootInstant {
        self.0.sim.world.boot_now()
    }

    fn steady_now(&self) -> Instant {
        self.0.slumber.steady_now()
    }

    async fn start(&self, request: StartRequest) -> Result<(), StartError> {
        let host = &self.0;
        let StartRequest { launch, key, command, start_deadline } = request;
        yield_now().await;
        {
            let mut state = host.state.lock().unwrap();
            if state.folders.contains_key(&launch) {
                return Err(StartError::Exists { launch });
            }
            let twin = state
                .folders
                .iter()
                .find(|(_, folder)| folder.key == key && folder.ended.is_none());
            if let Some((twin, _)) = twin {
                return Err(StartError::KeyIsLive { key, launch: twin.clone() });
            }
            state.n_launches += 1;
            let mut dice = Dice::new(host.sim.seed ^ host.name as u64, 1000 + state.n_launches);
            let character = Character::of(&mut dice);
            if character.trouble == Some(Trouble::NoShim) {
                return Err(StartError::ProgramNotFound { program: "agent".to_owned() });
            }
            host.note(&launch, || format!("folder of {key}"));
            state.folders.insert(launch.clone(), Folder::new(key, character));
        }
        // A coordinator that dies here leaves a folder without a shim.
        yield_now().await;
        {
            let mut state = host.state.lock().unwrap();
            let shim = state.spawn(What::EventLoop(launch.clone()));
            let ticket = command
                .environment
                .iter()
                .find(|(name, _)| name == "AGENT_PASSKEY")
                .unwrap()
                .1
                .clone();
            let kept = host.clone().keep(
                launch.clone(),
                host.sim.world.instant_of(start_deadline),
                ticket,
            );
            let task = host.sim.spawn(kept);
            let folder = state.folder(&launch);
            folder.shim = Some(shim);
            folder.shim_task = Some(task);
            host.check_caps_in(&state);
            host.nudge.wake();
        }
        yield_now().await;
        Ok(())
    }

    async fn request_stop(&self, launch: &LaunchId, reason: StopReason, timeout: Option<Duration>) {
        yield_now().await;
        {
            let mut state = self.0.state.lock().unwrap();
            let timeout = timeout.unwrap_or(STOP_TIMEOUT);
            let Some(folder) =
                state.folders.get_mut(launch).filter(|folder| folder.ended.is_none())
            else {
                return;
            };
            let first = folder.stop.unwrap_or((reason, timeout));
            self.0.note(launch, || format!("is told to stop: {reason}"));
            folder.stop = Some((first.0, first.1.min(timeout)));
            self.0.signal_shim(&mut state, launch);
            self.0.nudge.wake();
        }
        yield_now().await;
    }

    async fn mark_authenticated(&self, launch: &LaunchId) {
        yield_now().await;
        if let Some(folder) = self.0.state.lock().unwrap().folders.get_mut(launch) {
            folder.is_marked = true;
            self.0.nudge.wake();
        }
        yield_now().await;
    }

    async fn forget(&self, launch: &LaunchId) {
        yield_now().await;
        {
            let mut state = self.0.state.lock().unwrap();
            if state.folders.get(launch).is_some_and(|folder| folder.ended.is_some()) {
                self.0.note(launch, || "forgotten".to_owned());
                if let Some(Folder { ended: Some((end, _)), .. }) = state.folders.remove(launch) {
                    self.0.sim.is_forgotten(launch, end);
                }
                self.0.nudge.wake();
            }
        }
        yield_now().await;
    }
}
