//! The common arguments of the lists of the past: the filter and the number of entries.

use serde::de::DeserializeOwned;

use super::client::Client;
use super::error::CliError;
use super::named::{Named, id_of};
use domain::{AgentId, LaunchId, ProjectId};

/// The selection of a history.
#[derive(Debug, clap::Args)]
pub(super) struct Whose {
    /// Select this agent
    #[arg(long)]
    pub(super) agent: Option<Named<AgentId>>,
    /// Select this project
    #[arg(long)]
    pub(super) project: Option<Named<ProjectId>>,
    /// Select this launch
    #[arg(long)]
    pub(super) launch: Option<LaunchId>,
    /// The largest number of rows: 1 to 1000
    #[arg(long, default_value_t = 100)]
    pub(super) limit: usize,
}

impl Whose {
    /// Returns the filter as a query, with the further conditions `more`.
    ///
    /// # Errors
    /// The errors of [`Named::id`].
    pub(super) async fn query(
        &self,
        client: &Client,
        more: impl IntoIterator<Item = String>,
    ) -> Result<String, CliError> {
        let Self { agent, project, launch, limit: _ } = self;
        let agent = id_of(agent.as_ref(), client).await?;
        let project = id_of(project.as_ref(), client).await?;
        let own = [
            agent.as_ref().map(|agent| format!("agent={agent}")),
            project.as_ref().map(|project| format!("project={project}")),
            launch.as_ref().map(|launch| format!("launch={launch}")),
        ];
        Ok(own.into_iter().flatten().chain(more).collect::<Vec<_>>().join("&"))
    }
}

/// Returns the first part of a list.
pub(super) async fn parts<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    query: String,
    limit: usize,
) -> Result<Vec<T>, CliError> {
    let query = if query.is_empty() { query } else { format!("&{query}") };
    client.get(&format!("{path}?limit={limit}{query}")).await
}
