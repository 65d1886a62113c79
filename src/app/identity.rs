//! The identity of a daemon in its state directory: the coordinator's name, and its token.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::str::FromStr;

use anyhow::Context as _;

use super::lock::RoleLock;
use config::Config;
use domain::secret::COORDINATOR_TOKEN_PREFIX;
use domain::{CoordinatorId, Incarnation, Secret};
use machine::instance_dir;
use machine::sys::regular_file;
use runtime::telemetry::ErrorChain;
use service::world::{SystemWorld, World};
use supervisor::coordinator::Token;

/// Files in the state directory: the name, the machine and folder in which it was given, its last
/// start, and the token.
const COORDINATOR_ID: &str = "coordinator_id";
const PLACE: &str = "coordinator_place";
const INCARNATION: &str = "coordinator_incarnation";
pub(super) const COORDINATOR_TOKEN: &str = "coordinator_token";

/// Returns the name of this coordinator. It is the same after each restart.
fn coordinator_id(state_dir: &Path) -> anyhow::Result<CoordinatorId> {
    let path = state_dir.join(COORDINATOR_ID);
    let text = read_or_make(&path, || {
        let world: &dyn World = &SystemWorld;
        world.new_id::<CoordinatorId>(CoordinatorId::PREFIX).to_string()
    })?;
    CoordinatorId::from_str(&text).with_context(|| {
        format!("`{}` holds no coordinator id; remove it to get a new one", path.display())
    })
}

/// Returns the name of a coordinator whose server is remote. A copy of a state directory gets
/// another name. With the same name, two coordinators would each take the other's agents for lost,
/// and start them again. The instances in a copy belong to the original and are set aside.
pub(super) async fn place_bound_coordinator_id(state_dir: &Path) -> anyhow::Result<CoordinatorId> {
    // The lock makes two daemons that start for the first time use one name.
    let _lock = RoleLock::take(&state_dir.join("coordinator_id.lock")).await?;
    let file = state_dir.join(PLACE);
    let here = place_of(state_dir)?;
    let place = read_or_make(&file, || here.clone())?;
    if place != here {
        let id_file = state_dir.join(COORDINATOR_ID);
        let former = regular_file::read_small_text(&id_file).unwrap_or_default();
        tracing::warn!(
            former = former.trim(),
            "the state directory is a copy of another: this coordinator takes a new id; launches of the former id \
             end by `stop AGENT PROJECT --force`"
        );
        let copied = instance_dir::instances(state_dir);
        let aside = copied.with_extension(format!("copied-{}", SystemWorld.now().as_millis()));
        match fs::rename(&copied, &aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error)
                    .with_context(|| format!("could not set `{}` aside", copied.display()));
            }
            _ => {}
        }
        // The place comes last: after a crash in between, the next start repeats this.
        for stale in [&id_file, &file] {
            match fs::remove_file(stale) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error)
                        .with_context(|| format!("could not remove `{}`", stale.display()));
                }
                _ => {}
            }
        }
        read_or_make(&file, || here)?;
    }
    coordinator_id(state_dir)
}

/// Returns the name of a coordinator in one process with its server, and notes its place. A copy of
/// the directory that works for that server is then another coordinator. If the whole directory was
/// copied, the server's state was copied, too, and there are two separate installations.
pub(super) fn coordinator_id_with_server(state_dir: &Path) -> anyhow::Result<CoordinatorId> {
    let here = place_of(state_dir)?;
    read_or_make(&state_dir.join(PLACE), || here)?;
    coordinator_id(state_dir)
}

/// Returns the name of the coordinator of this directory, if it has one.
pub(super) fn find_coordinator_id(state_dir: &Path) -> Option<String> {
    let text = regular_file::read_small_text(&state_dir.join(COORDINATOR_ID)).ok()?;
    let id = text.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

/// Returns the name of the coordinator that continues after the restore of a backup, which the
/// coordinator `former` made at `place`. A coordinator at another place takes another name, because
/// the former one may still run.
pub(super) fn coordinator_id_after_restore(
    state_dir: &Path,
    former: &str,
    place: &str,
) -> anyhow::Result<String> {
    let here = place_of(state_dir)?;
    let is_former = find_coordinator_id(state_dir).is_some_and(|own| own == former);
    if is_former && here != place {
        give_up_coordinator_id(state_dir)?;
        write_line(&state_dir.join(PLACE), &here)?;
    }
    Ok(coordinator_id_with_server(state_dir)?.to_string())
}

/// Returns a text that differs in a copy of the directory, as far as that can be seen.
pub(super) fn place_of(state_dir: &Path) -> anyhow::Result<String> {
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let folder = fs::metadata(state_dir)
        .with_context(|| format!("could not look at `{}`", state_dir.display()))?;
    Ok(format!("{} {}", folder.ino(), machine.trim()).trim().to_owned())
}

/// Returns the incarnation of this start of a coordinator with a remote server. It is later than
/// all before it.
pub(super) fn next_incarnation(state_dir: &Path) -> Incarnation {
    let world: &dyn World = &SystemWorld;
    let path = state_dir.join(INCARNATION);
    // An unreadable incarnation counts as lost: the clock makes the next one later.
    let previous =
        regular_file::read_small_text(&path).ok().and_then(|text| text.trim().parse().ok());
    let mut mark = [0; 8];
    world.fill(&mut mark);
    let incarnation = Incarnation::after(previous, world.now(), u64::from_ne_bytes(mark));
    if let Err(error) = write_line(&path, &incarnation.to_string()) {
        // A full disk must not keep the coordinator from managing live agents. The clock makes the
        // next start later all the same.
        tracing::warn!(error = %ErrorChain(error.as_ref()), "could not record this start of the coordinator");
    }
    incarnation
}

/// Leaves the name to a later start of this coordinator elsewhere. This state directory is a copy
/// of that one, or its original. The next start here takes a new name.
pub(super) fn give_up_coordinator_id(state_dir: &Path) -> anyhow::Result<()> {
    let path = state_dir.join(COORDINATOR_ID);
    fs::remove_file(&path)
        .with_context(|| format!("could not remove `{}`; do it by hand", path.display()))
}

/// Returns the token that remote coordinators present to this server.
pub(super) fn coordinator_token(state_dir: &Path) -> anyhow::Result<Secret> {
    let world: &dyn World = &SystemWorld;
    let token = read_or_make(&state_dir.join(COORDINATOR_TOKEN), || {
        world.new_token(COORDINATOR_TOKEN_PREFIX).reveal().to_owned()
    })?;
    Ok(Secret::new(token))
}

/// Returns the token that this coordinator presents to its server: the configured one, or else that
/// of a server that shares the state directory.
pub(super) fn token_for_server(config: &Config) -> Token {
    config
        .general
        .coordinator_token
        .clone()
        .map_or_else(|| Token::File(config.paths.state_dir.join(COORDINATOR_TOKEN)), Token::Given)
}

/// Returns the line of a private file, and makes the file if there is none. A file that a full disk
/// left empty counts as none.
fn read_or_make(path: &Path, make: impl FnOnce() -> String) -> anyhow::Result<String> {
    match regular_file::read_small_text(path) {
        Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(error).with_context(|| format!("could not read `{}`", path.display()));
        }
    }
    let text = make();
    write_line(path, &text)?;
    Ok(text)
}

/// Makes a private file of one line, or replaces it.
fn write_line(path: &Path, text: &str) -> anyhow::Result<()> {
    let draft = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = regular_file::make_anew(&draft)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        // A power cut must not bring the old file back.
        path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
    };
    write().with_context(|| format!("could not write `{}`", path.display()))
}
