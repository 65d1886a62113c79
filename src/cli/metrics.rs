//! `metrics` prints the metrics for monitoring that the daemon's control socket returns.

use std::io::{self, Write as _};

use super::client::Client;
use super::error::CliError;

pub(super) async fn metrics(client: &Client) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    client.stream("/metrics", |piece| stdout.write_all(piece)).await?;
    Ok(())
}
