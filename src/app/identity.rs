//! What a state directory says of its daemon: the folder itself, the coordinator's name, its token.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::str::FromStr;

use anyhow::Context as _;

use crate::config::Config;
use crate::domain::secret::COORDINATOR_TOKEN_PREFIX;
use crate::domain::{CoordinatorId, Secret};
use crate::service::world::{SystemWorld, World};

/// In the state directory.
const COORDINATOR_TOKEN: &str = "coordinator_token";

/// Makes the state directory, for its owner only, with the folders above it.
pub(super) fn create_state_dir(path: &Path) -> anyhow::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("could not create the state directory `{}`; set state_dir", path.display()))?;
    let probe = path.join(".writable");
    fs::write(&probe, b"")
        .and_then(|()| fs::remove_file(&probe))
        .with_context(|| format!("the state directory `{}` is not writable; set state_dir", path.display()))
}

/// The name of this coordinator, the same after each restart.
pub(super) fn coordinator_id(state_dir: &Path) -> anyhow::Result<CoordinatorId> {
    let path = state_dir.join("coordinator_id");
    let text = read_or_make(&path, || {
        let world: &dyn World = &SystemWorld;
        world.new_id::<CoordinatorId>(CoordinatorId::PREFIX).to_string()
    })?;
    CoordinatorId::from_str(&text)
        .with_context(|| format!("`{}` holds no coordinator id; remove it to get a new one", path.display()))
}

/// What coordinators elsewhere show to this server.
pub(super) fn coordinator_token(state_dir: &Path) -> anyhow::Result<Secret> {
    let world: &dyn World = &SystemWorld;
    let token = read_or_make(&state_dir.join(COORDINATOR_TOKEN), || {
        world.new_token(COORDINATOR_TOKEN_PREFIX).reveal().to_owned()
    })?;
    Ok(Secret::new(token))
}

/// What this coordinator shows to its server: the configured token, else that of a server that shares the state directory.
pub(super) fn known_coordinator_token(config: &Config) -> anyhow::Result<Option<Secret>> {
    if let Some(token) = &config.coordinator_token {
        return Ok(Some(token.clone()));
    }
    let path = config.state_dir.join(COORDINATOR_TOKEN);
    match fs::read_to_string(&path) {
        Ok(token) => Ok(Some(token.trim()).filter(|token| !token.is_empty()).map(Secret::new)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("could not read `{}`", path.display())),
    }
}

/// The line in a private file; made if there is none. A file that a full disk left empty counts as none.
fn read_or_make(path: &Path, make: impl FnOnce() -> String) -> anyhow::Result<String> {
    match fs::read_to_string(path) {
        Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("could not read `{}`", path.display())),
    }
    let text = make();
    let draft = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write().with_context(|| format!("could not write `{}`", path.display()))?;
    Ok(text)
}
