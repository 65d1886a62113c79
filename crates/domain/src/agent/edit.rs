//! New agents and projects, and the changes that people make to them.

use std::path::PathBuf;

use super::{Agent, AgentStatus, DEFAULT_AI_TYPE, Project, ProjectStatus};
use crate::id::{AgentId, ProjectId};
use crate::limits;
use crate::printable::excerpt;
use crate::refusal::Refusal;
use crate::secret::{PasskeyHash, Secret};
use crate::short_id::ProjectKey;
use crate::time::Timestamp;
use crate::workspace::{WorkspaceMode, WorkspaceOverrides};

/// The changes of an agent. A field that is `None` stays as it is.
#[derive(Debug, Clone, Default)]
pub struct AgentEdit {
    pub name: Option<String>,
    pub ai_type: Option<String>,
    pub system_prompt: Option<String>,
    pub passkey: Option<Secret>,
    /// The passkey was generated for this request. The same request has another one next time.
    pub generates_passkey: bool,
    pub status: Option<AgentStatus>,
    /// The revision on which the edit is based; `None` edits any revision.
    pub seen: Option<i64>,
}

/// The changes of a project. A field that is `None` stays as it is.
#[derive(Debug, Clone, Default)]
pub struct ProjectEdit {
    pub name: Option<String>,
    /// A new project without a key gets one that its name suggests.
    pub key: Option<ProjectKey>,
    pub working_directory: Option<PathBuf>,
    pub status: Option<ProjectStatus>,
    pub workspace: Option<WorkspaceMode>,
    /// An empty text gives way to that of the configuration.
    pub workspace_base: Option<String>,
    /// An empty text gives way to that of the configuration.
    pub workspace_branch: Option<String>,
    /// `off`; an empty text gives way to that of the configuration.
    pub merge_hooks: Option<String>,
    pub assign: Vec<AgentId>,
    pub unassign: Vec<AgentId>,
    /// The revision on which the edit is based; `None` edits any revision.
    pub seen: Option<i64>,
}

impl Agent {
    /// Returns an agent with the defaults. Without a passkey it can authenticate only with launch
    /// tickets.
    pub fn new(id: AgentId, passkey: Option<PasskeyHash>, now: Timestamp) -> Self {
        Self {
            name: id.to_string(),
            id,
            ai_type: DEFAULT_AI_TYPE.to_owned(),
            system_prompt: String::new(),
            passkey,
            status: AgentStatus::Active,
            archived_from: None,
            created_at: now,
            revision: 0,
        }
    }

    pub fn is_archived(&self) -> bool {
        self.status == AgentStatus::Archived
    }

    /// Returns the agent with another status. An archived one remembers the status before.
    #[must_use]
    pub fn with_status(self, status: AgentStatus) -> Self {
        let before = (self.status, self.archived_from);
        let archived_from = archived_from(AgentStatus::Archived, before, status);
        Self { status, archived_from, ..self }
    }

    /// Returns an archived agent with the status that it had before.
    #[must_use]
    pub fn unarchived(self) -> Self {
        let status = self.archived_from.unwrap_or(AgentStatus::Active);
        self.with_status(status)
    }
}

/// Returns the status that an agent or a project had before it was archived, after a change to
/// `after`. `before` has the current status, and the one from before an archiving.
fn archived_from<S: Copy + PartialEq>(archived: S, before: (S, Option<S>), after: S) -> Option<S> {
    let (status, former) = before;
    if after != archived {
        None
    } else if status == archived {
        former
    } else {
        Some(status)
    }
}

impl AgentEdit {
    /// Returns the agent with the changes of this edit. A new passkey is hashed with `salt`. The
    /// passkey that the agent has already keeps its hash.
    ///
    /// # Errors
    /// The refusals of [`limits`].
    pub fn apply(&self, agent: Agent, salt: [u8; 16]) -> Result<Agent, Refusal> {
        limits::PASSKEY.take_optional(self.passkey.as_ref().map(Secret::reveal))?;
        let passkey = match (&self.passkey, agent.passkey) {
            (Some(new), Some(old)) if old.is_of(new) => Some(old),
            (Some(new), _) => Some(PasskeyHash::new(new, salt)),
            (None, old) => old,
        };
        let status = self.status.unwrap_or(agent.status);
        Ok(Agent {
            name: limits::NAME.edit(self.name.as_deref(), agent.name)?,
            ai_type: limits::AI_TYPE.edit(self.ai_type.as_deref(), agent.ai_type)?,
            system_prompt: limits::SYSTEM_PROMPT
                .edit(self.system_prompt.as_deref(), agent.system_prompt)?,
            passkey,
            ..agent
        }
        .with_status(status))
    }
}

impl Project {
    /// Returns a project with the defaults. It has no working directory yet, and its key is the
    /// best one for its id.
    pub fn new(id: ProjectId, now: Timestamp) -> Self {
        let key = ProjectKey::candidates(id.as_str(), &id).next();
        Self {
            name: id.to_string(),
            key: key.expect("the candidates do not end"),
            is_key_edited: false,
            id,
            working_directory: PathBuf::new(),
            status: ProjectStatus::Active,
            archived_from: None,
            workspace: WorkspaceMode::Shared,
            overrides: WorkspaceOverrides::default(),
            created_at: now,
            revision: 0,
        }
    }

    pub fn is_archived(&self) -> bool {
        self.status == ProjectStatus::Archived
    }

    /// Returns the project with another status. An archived one remembers the status before.
    #[must_use]
    pub fn with_status(self, status: ProjectStatus) -> Self {
        let before = (self.status, self.archived_from);
        let archived_from = archived_from(ProjectStatus::Archived, before, status);
        Self { status, archived_from, ..self }
    }

    /// Returns an archived project with the status that it had before.
    #[must_use]
    pub fn unarchived(self) -> Self {
        let status = self.archived_from.unwrap_or(ProjectStatus::Active);
        self.with_status(status)
    }
}

impl ProjectEdit {
    /// Returns the project with the changes of this edit, except for its assignments. The caller
    /// makes sure that no other project has had a new key.
    ///
    /// # Errors
    /// `NotAbsolute`, also for a missing directory; `WorkspaceModeFixed` for another workspace of
    /// a project that exists; `BadWorkspaceSetting`; `KeyEdited` for a second change of the key;
    /// the refusals of [`limits`].
    pub fn apply(&self, project: Project) -> Result<Project, Refusal> {
        let working_directory = self.working_directory.clone().unwrap_or(project.working_directory);
        if !working_directory.is_absolute() {
            let given = working_directory.to_string_lossy();
            return Err(Refusal::NotAbsolute { given: excerpt(&given, 80).to_string() });
        }
        limits::WORKING_DIRECTORY.take(&working_directory.to_string_lossy())?;
        let key = self.key.clone().unwrap_or_else(|| project.key.clone());
        let is_other_key = project.revision > 0 && key != project.key;
        if is_other_key && project.is_key_edited {
            return Err(Refusal::KeyEdited { project: project.id, key: project.key });
        }
        let workspace = self.workspace.unwrap_or(project.workspace);
        if project.revision > 0 && workspace != project.workspace {
            return Err(Refusal::WorkspaceModeFixed {
                project: project.id,
                mode: project.workspace,
            });
        }
        let base = self.workspace_base.as_deref();
        let branch = self.workspace_branch.as_deref();
        let hooks = self.merge_hooks.as_deref();
        let status = self.status.unwrap_or(project.status);
        Ok(Project {
            workspace,
            overrides: project.overrides.edit(base, branch, hooks)?,
            name: limits::NAME.edit(self.name.as_deref(), project.name)?,
            is_key_edited: project.is_key_edited || is_other_key,
            key,
            working_directory,
            ..project
        }
        .with_status(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(0);

    fn agent() -> Agent {
        let passkey = PasskeyHash::new(&Secret::new("old"), [1; 16]);
        Agent::new("agt".parse().unwrap(), Some(passkey), NOW)
    }

    fn with_passkey(passkey: &str) -> AgentEdit {
        AgentEdit { passkey: Some(Secret::new(passkey)), ..AgentEdit::default() }
    }

    #[test]
    fn an_edit_changes_only_its_own_fields() {
        assert_eq!(AgentEdit::default().apply(agent(), [2; 16]), Ok(agent()));
        let edit = AgentEdit { status: Some(AgentStatus::Inactive), ..AgentEdit::default() };
        let inactive = Agent { status: AgentStatus::Inactive, ..agent() };
        assert_eq!(edit.apply(agent(), [2; 16]), Ok(inactive));
        let long = AgentEdit { name: Some("x".repeat(1_000)), ..AgentEdit::default() };
        assert!(matches!(long.apply(agent(), [2; 16]), Err(Refusal::TooLong { .. })));
    }

    #[test]
    fn what_is_unarchived_has_its_former_status() {
        for status in [AgentStatus::Active, AgentStatus::Inactive] {
            let before = agent().with_status(status);
            let archived = before.clone().with_status(AgentStatus::Archived);
            assert_eq!(archived.clone().with_status(AgentStatus::Archived), archived);
            assert_eq!(archived.unarchived(), before);
        }
        let project =
            Project::new("prj".parse().unwrap(), NOW).with_status(ProjectStatus::Inactive);
        let archived = project.clone().with_status(ProjectStatus::Archived);
        assert_eq!(archived.unarchived(), project);
        // A version that did not remember the status has archived it.
        let old = Agent { status: AgentStatus::Archived, ..agent() };
        assert_eq!(old.unarchived().status, AgentStatus::Active);
    }

    #[test]
    fn the_same_passkey_keeps_its_hash_and_another_one_replaces_it() {
        assert_eq!(with_passkey("old").apply(agent(), [2; 16]), Ok(agent()));
        let changed = with_passkey("new").apply(agent(), [2; 16]).unwrap();
        let passkey = changed.passkey.unwrap();
        assert!(passkey.is_of(&Secret::new("new")) && !passkey.is_of(&Secret::new("old")));
    }

    #[test]
    fn a_project_needs_an_absolute_working_directory() {
        let project = Project::new("prj".parse().unwrap(), NOW);
        let apply = |directory: &str| {
            let working_directory = Some(PathBuf::from(directory));
            ProjectEdit { working_directory, ..ProjectEdit::default() }.apply(project.clone())
        };
        let refusal = ProjectEdit::default().apply(project.clone()).unwrap_err();
        assert!(matches!(refusal, Refusal::NotAbsolute { .. }), "{refusal}");
        assert!(matches!(apply("a/b"), Err(Refusal::NotAbsolute { .. })));
        assert_eq!(apply("/a/b").unwrap().working_directory, PathBuf::from("/a/b"));
    }

    #[test]
    fn the_key_of_a_project_is_changed_once() {
        let edit = |key: &str| ProjectEdit {
            key: Some(key.parse().unwrap()),
            working_directory: Some(PathBuf::from("/a")),
            ..ProjectEdit::default()
        };
        let new = edit("SHOP").apply(Project::new("prj".parse().unwrap(), NOW)).unwrap();
        assert_eq!((new.key.as_str(), new.is_key_edited), ("SHOP", false));
        let stored = Project { revision: 1, ..new };
        let same = edit("shop").apply(stored.clone()).unwrap();
        assert_eq!((same.key.as_str(), same.is_key_edited), ("SHOP", false));
        let edited = edit("STORE").apply(stored).unwrap();
        assert_eq!((edited.key.as_str(), edited.is_key_edited), ("STORE", true));
        assert_eq!(edit("STORE").apply(edited.clone()), Ok(edited.clone()));
        let refusal = edit("SHOP").apply(edited).unwrap_err();
        assert_eq!(refusal.code(), "key_edited");
    }
}
