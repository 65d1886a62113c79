//! Collects every secret that the configuration names, including secrets in files.

use std::path::Path;

use super::{identity, store};
use config::manifest::Manifest;
use config::{Config, Secrets};

/// Returns the secrets of `config` and of the manifest that it names. Blocks while it reads a few
/// small files. It skips a file that cannot be read: the code that needs its secret reports the
/// error.
pub fn secrets(config: &Config, manifest: Option<&Manifest>) -> Secrets {
    let mut secrets = Secrets::of(config);
    if let Some(manifest) = manifest {
        secrets.add_manifest(manifest);
    }
    if let Some(path) = &config.store.password_file
        && let Ok(password) = store::read_password(path)
    {
        secrets.add("store.password_file", password);
    }
    let mut add = |path: &Path| {
        if let Ok(token) = forge::read_token(path) {
            secrets.add(path.display().to_string(), token);
        }
    };
    for host in &config.forges.hosts {
        if let Some(path) = &host.account.token_file {
            add(path);
        }
    }
    // The server makes this token if the configuration has none.
    add(&config.paths.state_dir.join(identity::COORDINATOR_TOKEN));
    secrets
}
