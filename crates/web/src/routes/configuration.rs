//! `/reload`: the configuration is read again, and its state is returned.

use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use tokio::sync::{mpsc, oneshot, watch};

use crate::Problem;
use crate::openapi::{Api, about};
use api::configuration::INVALID_CONFIGURATION;
use domain::configuration::{ConfigurationState, Reloaded};
use service::audit;

/// The number of requests that are queued. Further ones wait for a place.
const INBOX: usize = 8;

/// A request to the owner of the configuration, which answers it when the reload is done.
pub type ReloadRequest = oneshot::Sender<Result<Reloaded, ReloadRefused>>;

/// The reason why the file on disk is not in use.
#[derive(Debug, Clone)]
pub struct ReloadRefused {
    /// All problems, as `check` reports them.
    pub report: String,
    /// True if the file must be corrected.
    pub is_about_file: bool,
}

/// A handle to the owner of the configuration.
#[derive(Debug, Clone)]
pub struct ConfigurationHandle {
    configuration_state: watch::Receiver<ConfigurationState>,
    requests: mpsc::Sender<ReloadRequest>,
}

impl ConfigurationHandle {
    /// Makes a handle, with the sender and the receiver of the owner.
    pub fn new(
        configuration_state: ConfigurationState,
    ) -> (Self, watch::Sender<ConfigurationState>, mpsc::Receiver<ReloadRequest>) {
        let (tells, configuration_state) = watch::channel(configuration_state);
        let (requests, hears) = mpsc::channel(INBOX);
        (Self { configuration_state, requests }, tells, hears)
    }

    /// Returns the relation of the file to the configuration in use.
    pub fn configuration_state(&self) -> ConfigurationState {
        self.configuration_state.borrow().clone()
    }
}

pub(crate) fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    ConfigurationHandle: FromRef<S>,
{
    Router::new().route("/reload", post(reload))
}

/// Returns the same routes for the server, with descriptions.
pub(super) fn described_routes() -> Api {
    Api::new().post("/reload", reload, about("Reads the configuration again").gives::<Reloaded>())
}

async fn reload(State(handle): State<ConfigurationHandle>) -> Result<Json<Reloaded>, Problem> {
    let gone =
        || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the daemon is stopping");
    let (reply, answer) = oneshot::channel();
    handle.requests.send(reply).await.map_err(|_| gone())?;
    match answer.await.map_err(|_| gone())? {
        Ok(reloaded) => {
            audit::note("reload", "configuration", "all");
            Ok(Json(reloaded))
        }
        Err(ReloadRefused { report, is_about_file: true }) => {
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, INVALID_CONFIGURATION, report))
        }
        Err(ReloadRefused { report, is_about_file: false }) => {
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", report))
        }
    }
}
