//! Agents, projects and assignments, as people edit them. Each call is one transaction.

pub(super) mod active_projects;
mod keys;
pub(super) mod manifest;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use config::built_in_names;
use domain::agent::{AgentEdit, AiTypes, ProjectEdit};
use domain::id::{AgentId, ProjectId};
use domain::notice::WorkChange;
use domain::repeat::Content;
use domain::secret::PasskeyHash;
use domain::workspace::{Folder, WorkspaceMode};
use domain::{
    Agent, Assignment, MadeByForm, Project, ProjectKey, Refusal, Removable, Secret, Sent,
};
use runtime::telemetry::ErrorChain;
use store::rows::{Transaction, agents, assignments, creation_digests, project_keys, projects};
use store::{Read, StoreError};

use super::coordinators::board::CoordinatorBoard;
use super::core::Core;
use super::removals::{check_archive, check_id};
use super::repeats::check_repeats;
use super::revision::check_seen;
use super::workspaces::OwnCheckouts;
use super::{Heard, ServiceError, Shared};

/// The origin of the id of a new agent or project.
enum Origin<T> {
    /// The client chose it, so that the request can be repeated.
    Client,
    Server,
    Form(MadeByForm<T>),
}

/// Agents, projects and assignments.
pub struct Catalog {
    core: Arc<Core>,
    heard: Heard,
    checkouts: OwnCheckouts,
    board: Arc<CoordinatorBoard>,
}

impl Catalog {
    pub(super) fn new(shared: Shared) -> Self {
        let Shared { core, heard, checkouts, coordinators, .. } = shared;
        Self { core, heard, checkouts, board: coordinators }
    }

    pub async fn agents(&self) -> Result<Vec<Agent>, ServiceError> {
        self.core.read(|tx| Ok(agents::list(tx)?)).await
    }

    /// # Errors
    /// `AgentNotFound`.
    pub async fn agent(&self, id: &AgentId) -> Result<Agent, ServiceError> {
        let id = id.clone();
        self.core.read(move |tx| agent(tx, &id)).await
    }

    /// Creates an agent. Without a passkey, here and in the configuration, the agent can
    /// authenticate only with launch tickets. With an id that the client chose, the call can be
    /// repeated.
    ///
    /// # Errors
    /// `AlreadyExists` if other content created the agent with the id; `UnknownAiType`; the
    /// refusals of [`limits`](domain::limits).
    pub async fn add_agent(
        &self,
        id: Option<AgentId>,
        edit: &AgentEdit,
    ) -> Result<Sent<Agent>, ServiceError> {
        let origin = if id.is_some() { Origin::Client } else { Origin::Server };
        let id = id.unwrap_or_else(|| self.core.world.new_id(AgentId::PREFIX));
        self.create_agent(id, origin, edit).await
    }

    /// Creates the agent of a form, or returns the one that the form created before.
    ///
    /// # Errors
    /// `FormRefused` if the form created an agent with other content; those of
    /// [`Catalog::add_agent`].
    pub async fn add_agent_by_form(
        &self,
        form: &MadeByForm<AgentId>,
        edit: &AgentEdit,
    ) -> Result<Sent<Agent>, ServiceError> {
        self.create_agent(form.id.clone(), Origin::Form(form.clone()), edit).await
    }

    async fn create_agent(
        &self,
        id: AgentId,
        origin: Origin<AgentId>,
        edit: &AgentEdit,
    ) -> Result<Sent<Agent>, ServiceError> {
        let new = self.new_agent(id);
        let edit = edit.clone();
        let ai_types = self.ai_types();
        let salt = self.core.world.new_salt();
        self.core
            .write(move |tx| {
                if let Origin::Form(form) = &origin {
                    let made = agents::find_with_prefix(tx, &form.stem)?;
                    if form.has_made(made.iter().map(|(id, name)| (id, name.as_str())))? {
                        return Ok(Sent::Again(agent(tx, &form.id)?));
                    }
                }
                let of = Removable::Agent(new.id.clone());
                let agent = edit.apply(new.clone(), salt)?;
                let asked = Content::of_new_agent(&agent, &edit);
                if let Some(known) = agents::get(tx, &new.id)? {
                    check_repeats(tx, &of, &asked, || Content::of_known_agent(&known, &edit))?;
                    return Ok(Sent::Again(known));
                }
                check_id(tx, &of)?;
                ai_types.check(None, &agent)?;
                write_agent(tx, None, &agent)?;
                if matches!(origin, Origin::Client) {
                    creation_digests::add(tx, &of, &asked.digest(salt))?;
                }
                Ok(Sent::First(agent))
            })
            .await
    }

    /// # Errors
    /// `AgentNotFound`, `UnknownAiType`, the refusals of [`limits`](domain::limits);
    /// `NotRemovable` for an agent at work that is to be archived.
    pub async fn set_agent(&self, id: &AgentId, edit: &AgentEdit) -> Result<Agent, ServiceError> {
        let id = id.clone();
        let edit = edit.clone();
        let ai_types = self.ai_types();
        let inputs = self.heard.inputs(&self.core);
        let salt = self.core.world.new_salt();
        self.core
            .write(move |tx| {
                let before = agent(tx, &id)?;
                check_seen("Agent", &id, edit.seen, before.revision)?;
                let after = edit.apply(before.clone(), salt)?;
                ai_types.check(Some(&before), &after)?;
                if after.is_archived() && !before.is_archived() {
                    check_archive(tx, &Removable::Agent(id.clone()))?;
                }
                let news = write_agent(tx, Some(&before), &after)?;
                inputs.tell_agents(tx, news.as_slice(), None)?;
                // The row has the new revision.
                agent(tx, &id)
            })
            .await
    }

    /// Returns the `ai_type`s that new agents may get: the built-in ones and the entries of
    /// `ai_providers`. All are allowed while a coordinator elsewhere may start the agents, because
    /// it has providers of its own.
    pub fn ai_types(&self) -> AiTypes {
        if self.checkouts.get().is_none() || self.board.has_others(self.core.now()) {
            return AiTypes::Any;
        }
        AiTypes::Of(self.provider_names())
    }

    /// Returns the built-in `ai_type`s and the names of the entries of `ai_providers`.
    pub fn provider_names(&self) -> BTreeSet<String> {
        let mut names = self.core.settings().providers.clone();
        names.extend(built_in_names().into_iter().map(str::to_owned));
        names
    }

    /// Gives agents their passkeys of the configuration. Returns the ids for which there is no
    /// agent. Repeating it changes nothing.
    pub async fn learn_passkeys<'a>(
        &self,
        passkeys: impl IntoIterator<Item = (&'a AgentId, &'a Secret)> + Send,
    ) -> Result<Vec<AgentId>, ServiceError> {
        let passkeys: Vec<_> = passkeys.into_iter().collect();
        let mut unknown = Vec::new();
        for (id, passkey) in passkeys {
            let edit = AgentEdit { passkey: Some(passkey.clone()), ..AgentEdit::default() };
            match self.set_agent(id, &edit).await {
                Ok(_) => {}
                Err(ServiceError::Refused(Refusal::AgentNotFound { agent })) => unknown.push(agent),
                Err(error) => return Err(error),
            }
        }
        Ok(unknown)
    }

    /// Returns a random passkey for an agent. The passkey is shown once and stored as a hash.
    pub fn new_passkey(&self) -> Secret {
        self.core.world.new_token("")
    }

    /// Returns an agent with the defaults, and with its passkey of the configuration.
    pub(super) fn new_agent(&self, id: AgentId) -> Agent {
        let settings = self.core.settings();
        let passkey = settings
            .passkeys
            .get(&id)
            .map(|passkey| PasskeyHash::new(passkey, self.core.world.new_salt()));
        Agent::new(id, passkey, self.core.now())
    }

    pub async fn projects(&self) -> Result<Vec<(Project, Vec<AgentId>)>, ServiceError> {
        self.core
            .read(|tx| {
                let projects = projects::list(tx)?;
                let assignments = assignments::list(tx)?;
                let projects = projects.into_iter();
                Ok(projects.map(|project| with_members(project, &assignments)).collect())
            })
            .await
    }

    /// Returns the keys that projects have or had.
    pub async fn project_keys(&self) -> Result<BTreeSet<ProjectKey>, ServiceError> {
        self.core
            .read(|tx| Ok(project_keys::list(tx)?.into_iter().map(|record| record.key).collect()))
            .await
    }

    /// Returns the project that has or had a key, if it exists.
    pub async fn project_of_key(&self, key: &ProjectKey) -> Result<Option<Project>, ServiceError> {
        let key = key.clone();
        let read = self.core.read(move |tx| match project_keys::get(tx, &key)? {
            Some(record) => Ok(projects::get(tx, &record.project)?),
            None => Ok(None),
        });
        read.await
    }

    /// # Errors
    /// `ProjectNotFound`.
    pub async fn project(&self, id: &ProjectId) -> Result<(Project, Vec<AgentId>), ServiceError> {
        let id = id.clone();
        self.core.read(move |tx| Ok(with_members(project(tx, &id)?, &assignments::list(tx)?))).await
    }

    /// Creates a project. Without a key in `edit`, its name suggests one. With an id that the
    /// client chose, the call can be repeated.
    ///
    /// # Errors
    /// `AlreadyExists` if other content created the project with the id; `NotAbsolute` for the
    /// working directory, also for a missing one; `CannotClone` if it is to be cloned and is in no
    /// repository; `KeyTaken`; `AgentNotFound`.
    pub async fn add_project(
        &self,
        id: Option<ProjectId>,
        edit: &ProjectEdit,
    ) -> Result<Sent<ProjectId>, ServiceError> {
        let origin = if id.is_some() { Origin::Client } else { Origin::Server };
        let id = id.unwrap_or_else(|| self.core.world.new_id(ProjectId::PREFIX));
        self.create_project(id, origin, edit).await
    }

    /// Creates the project of a form, or returns the one that the form created before.
    ///
    /// # Errors
    /// `FormRefused` if the form created a project with other content; those of
    /// [`Catalog::add_project`].
    pub async fn add_project_by_form(
        &self,
        form: &MadeByForm<ProjectId>,
        edit: &ProjectEdit,
    ) -> Result<Sent<ProjectId>, ServiceError> {
        self.create_project(form.id.clone(), Origin::Form(form.clone()), edit).await
    }

    async fn create_project(
        &self,
        id: ProjectId,
        origin: Origin<ProjectId>,
        edit: &ProjectEdit,
    ) -> Result<Sent<ProjectId>, ServiceError> {
        let edit = edit.clone();
        let salt = self.core.world.new_salt();
        if edit.workspace == Some(WorkspaceMode::Clone)
            && let Some(directory) = &edit.working_directory
            && directory.is_absolute()
            && !self.has_project(&id).await?
        {
            self.check_source(directory).await?;
        }
        self.core
            .write(move |tx| {
                if let Origin::Form(form) = &origin {
                    let made = projects::find_with_prefix(tx, &form.stem)?;
                    if form.has_made(made.iter().map(|(id, name)| (id, name.as_str())))? {
                        return Ok(Sent::Again(form.id.clone()));
                    }
                }
                let of = Removable::Project(id.clone());
                let project = edit.apply(Project::new(id.clone(), tx.now()))?;
                let asked = Content::of_project(&project, &edit, &edit.assign);
                if let Some(known) = projects::get(tx, &id)? {
                    let (known, agents) = with_members(known, &assignments::list(tx)?);
                    let now = || Content::of_project(&known, &edit, &agents);
                    check_repeats(tx, &of, &asked, now)?;
                    return Ok(Sent::Again(id.clone()));
                }
                check_id(tx, &of)?;
                let key = keys::claim_first(tx, &project, edit.key.as_ref())?;
                write_project(tx, None, &Project { key, ..project })?;
                assign(tx, &edit, &id)?;
                if matches!(origin, Origin::Client) {
                    creation_digests::add(tx, &of, &asked.digest(salt))?;
                }
                Ok(Sent::First(id.clone()))
            })
            .await
    }

    async fn has_project(&self, id: &ProjectId) -> Result<bool, ServiceError> {
        let id = id.clone();
        self.core.read(move |tx| Ok(projects::get(tx, &id)?.is_some())).await
    }

    /// Looks at a folder that is to become the directory of a project, without git. Returns `None`
    /// if agents work on other machines, too, which have folders of their own.
    pub async fn look_at_path(&self, directory: &Path) -> Option<Folder> {
        let checkouts = self.checkouts.get()?;
        if self.board.has_others(self.core.now()) {
            return None;
        }
        Some(checkouts.clones.look_at_path(directory).await)
    }

    /// Looks at a folder that is to become the directory of a project, and at its repository.
    /// Returns `None` if no agents work on this machine.
    pub async fn look_at(&self, directory: &Path) -> Option<Folder> {
        let checkouts = self.checkouts.get()?;
        Some(checkouts.clones.look_at(directory).await)
    }

    /// Checks that tasks can have clones of the repository in `directory`.
    ///
    /// # Errors
    /// `CannotClone`.
    async fn check_source(&self, directory: &Path) -> Result<(), Refusal> {
        let Some(checkouts) = self.checkouts.get() else {
            let reason = "`workspace: clone` needs the coordinator in the server's process: start the daemon with `run`, or use `shared`";
            return Err(Refusal::CannotClone { reason: reason.to_owned() });
        };
        let checked = checkouts.clones.check_source(directory).await;
        checked.map_err(|error| Refusal::CannotClone { reason: ErrorChain(&error).to_string() })
    }

    /// Changes a project. A new key changes the short ids of its tasks; the old ones stay valid.
    ///
    /// # Errors
    /// `ProjectNotFound`, `AgentNotFound`, `NotAbsolute` for the working directory;
    /// `WorkspaceModeFixed`, `KeyEdited`, `KeyTaken`; `NotRemovable` for a project that has not
    /// ended and is to be archived.
    pub async fn set_project(
        &self,
        id: &ProjectId,
        edit: &ProjectEdit,
    ) -> Result<(), ServiceError> {
        let id = id.clone();
        let edit = edit.clone();
        let inputs = self.heard.inputs(&self.core);
        self.core
            .write(move |tx| {
                let before = project(tx, &id)?;
                check_seen("Project", &id, edit.seen, before.revision)?;
                let after = edit.apply(before.clone())?;
                if after.is_archived() && !before.is_archived() {
                    check_archive(tx, &Removable::Project(id.clone()))?;
                }
                keys::change(tx, &before, &after)?;
                let mut news = assign(tx, &edit, &id)?;
                news.extend(write_project(tx, Some(&before), &after)?);
                Ok(inputs.tell_agents(tx, &news, None)?)
            })
            .await
    }

    /// Returns all assignments, by project, then agent.
    pub async fn assignments(&self) -> Result<Vec<Assignment>, ServiceError> {
        self.core.read(|tx| Ok(assignments::list(tx)?)).await
    }
}

/// Writes an agent if it differs from `before`. Returns the change that agents at work must learn.
fn write_agent(
    tx: &mut Transaction<'_>,
    before: Option<&Agent>,
    after: &Agent,
) -> Result<Option<WorkChange>, StoreError> {
    if before == Some(after) {
        return Ok(None);
    }
    agents::put(tx, after)?;
    Ok(before.and_then(|before| WorkChange::of_agent(before, after)))
}

/// Writes a project if it differs from `before`. Returns the change that agents at work must learn.
fn write_project(
    tx: &mut Transaction<'_>,
    before: Option<&Project>,
    after: &Project,
) -> Result<Option<WorkChange>, StoreError> {
    if before == Some(after) {
        return Ok(None);
    }
    projects::put(tx, after)?;
    Ok(before.and_then(|before| WorkChange::of_project(before, after)))
}

/// Adds and removes the agents of a project. Returns the resulting changes for agents at work.
///
/// # Errors
/// `AgentNotFound`.
fn assign(
    tx: &mut Transaction<'_>,
    edit: &ProjectEdit,
    project: &ProjectId,
) -> Result<Vec<WorkChange>, ServiceError> {
    let assignment = |id: &AgentId| Assignment { project: project.clone(), agent: id.clone() };
    for id in &edit.assign {
        agent(tx, id)?;
        assignments::add(tx, &assignment(id))?;
    }
    for id in &edit.unassign {
        assignments::remove(tx, &assignment(id))?;
    }
    Ok(edit.unassign.iter().map(|id| WorkChange::Unassigned(assignment(id))).collect())
}

/// # Errors
/// `AgentNotFound`.
pub(super) fn agent(tx: &mut Read<'_>, id: &AgentId) -> Result<Agent, ServiceError> {
    let agent = agents::get(tx, id)?;
    Ok(agent.ok_or_else(|| Refusal::AgentNotFound { agent: id.clone() })?)
}

/// # Errors
/// `ProjectNotFound`.
pub(super) fn project(tx: &mut Read<'_>, id: &ProjectId) -> Result<Project, ServiceError> {
    let project = projects::get(tx, id)?;
    Ok(project.ok_or_else(|| Refusal::ProjectNotFound { project: id.clone() })?)
}

/// Writes that merges run no hooks of the repository of a project from now on.
pub(super) fn skip_merge_hooks(tx: &mut Transaction<'_>, id: &ProjectId) -> Result<(), StoreError> {
    match projects::get(tx, id)? {
        Some(mut project) if !project.overrides.skips_merge_hooks => {
            project.overrides.skips_merge_hooks = true;
            projects::put(tx, &project)
        }
        _ => Ok(()),
    }
}

/// # Errors
/// `AgentNotFound`, `ProjectNotFound`, and `NotAssigned` for an agent that does not belong to the
/// project.
pub(super) fn check_assignable(
    tx: &mut Read<'_>,
    assignee: Option<&AgentId>,
    id: &ProjectId,
) -> Result<(), ServiceError> {
    let Some(assignee) = assignee else { return Ok(()) };
    agent(tx, assignee)?;
    project(tx, id)?;
    let assignment = Assignment { project: id.clone(), agent: assignee.clone() };
    if assignments::exists(tx, &assignment)? {
        Ok(())
    } else {
        Err(Refusal::NotAssigned { agent: assignee.clone(), project: id.clone() }.into())
    }
}

fn with_members(project: Project, assignments: &[Assignment]) -> (Project, Vec<AgentId>) {
    let members = assignments
        .iter()
        .filter(|assignment| assignment.project == project.id)
        .map(|assignment| assignment.agent.clone())
        .collect();
    (project, members)
}
