//! `/reload`: the configuration is read again, and how it stands is told.

use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::{Reloaded, Standing};
use crate::rest::Problem;
use crate::rest::api::{Api, about};
use crate::service::audit;

/// The code of the problem for a file that is wrong.
pub const INVALID_CONFIGURATION: &str = "invalid_configuration";
/// More than so many who ask at once wait at the door.
const INBOX: usize = 8;

/// Asked of the owner of the configuration, who answers when it is done.
pub type ReloadRequest = oneshot::Sender<Result<Reloaded, ReloadRefused>>;

/// Why what is on disk is not in use.
#[derive(Debug, Clone)]
pub struct ReloadRefused {
    /// All that is wrong, as `check` says it.
    pub report: String,
    /// What has to be mended is a file.
    pub is_about_file: bool,
}

/// Where the owner of the configuration is asked.
#[derive(Debug, Clone)]
pub struct ConfigurationDoor {
    standing: watch::Receiver<Standing>,
    requests: mpsc::Sender<ReloadRequest>,
}

impl ConfigurationDoor {
    /// With what its owner tells by, and hears by.
    pub fn new(
        standing: Standing,
    ) -> (Self, watch::Sender<Standing>, mpsc::Receiver<ReloadRequest>) {
        let (tells, standing) = watch::channel(standing);
        let (requests, hears) = mpsc::channel(INBOX);
        (Self { standing, requests }, tells, hears)
    }

    /// How the file stands to what is in use.
    pub fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }
}

pub(in crate::rest) fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    ConfigurationDoor: FromRef<S>,
{
    Router::new().route("/reload", post(reload))
}

/// The same of the server, described.
pub(super) fn described_routes() -> Api {
    Api::new().post("/reload", reload, about("Reads the configuration again").gives::<Reloaded>())
}

async fn reload(State(door): State<ConfigurationDoor>) -> Result<Json<Reloaded>, Problem> {
    let gone =
        || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the daemon is stopping");
    let (reply, answer) = oneshot::channel();
    door.requests.send(reply).await.map_err(|_| gone())?;
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
