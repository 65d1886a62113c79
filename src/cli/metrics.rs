//! `metrics`: numbers for monitoring, as the daemon's control socket gives them.

use std::io::{self, Write as _};

use super::client::Client;
use super::error::CliError;

pub(super) async fn metrics(client: &Client) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    client.stream("/metrics", |piece| stdout.write_all(piece)).await?;
    Ok(())
}
