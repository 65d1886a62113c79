//! Creations that a client repeats because the answer to the first request was lost.
//!
//! Digests of the fields of the request are stored with the object, so that a client that chose its
//! id can tell its own success from another object with this id. A request with the same content is
//! a repetition, also after the object was changed. An object without digests has come from a
//! manifest, an import or an earlier version. It is compared as it is now.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::agent::{Agent, AgentEdit, Project, ProjectEdit};
use super::id::AgentId;
use super::secret::{Secret, hex};
use super::task::Task;

/// The content of a creation: the fields of the object that it makes, by their names in the API.
/// Fields without a value are left out, so that a later version can add fields.
///
/// It may have a passkey, so it has no `Debug`.
pub struct Content(BTreeMap<&'static str, Value>);

/// The digests of the fields of a creation. Each has the salt, because a person may have chosen the
/// passkey.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentDigest {
    salt: String,
    fields: BTreeMap<String, String>,
}

impl Content {
    fn of<const N: usize>(fields: [(&'static str, Value); N]) -> Self {
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            _ => false,
        };
        Self(fields.into_iter().filter(|(_, value)| !is_empty(value)).collect())
    }

    /// Returns the content of a task: of a new one, or of one as it is now.
    pub fn of_task(task: &Task) -> Self {
        Self::of(task.requested())
    }

    /// Returns the content of an agent that `edit` makes.
    pub fn of_new_agent(agent: &Agent, edit: &AgentEdit) -> Self {
        let passkey = edit.passkey.as_ref().filter(|_| !edit.generates_passkey);
        Self::of([
            ("name", json!(agent.name)),
            ("aiType", json!(agent.ai_type)),
            ("systemPrompt", json!(agent.system_prompt)),
            ("status", json!(agent.status)),
            ("passkey", json!(passkey.map(Secret::reveal))),
            ("generatePasskey", json!(edit.generates_passkey.then_some(true))),
        ])
    }

    /// Returns the content of an agent as it is now, for a request with `edit`. The agent counts as
    /// one with the passkey of the request if it can be: only the hash of its passkey is known.
    pub fn of_known_agent(agent: &Agent, edit: &AgentEdit) -> Self {
        let hash = agent.passkey.as_ref();
        let fits = match &edit.passkey {
            Some(_) if edit.generates_passkey => hash.is_some(),
            Some(passkey) => hash.is_some_and(|hash| hash.is_of(passkey)),
            None => true,
        };
        let without = AgentEdit::default();
        Self::of_new_agent(agent, if fits { edit } else { &without })
    }

    /// Returns the content of a project with these agents, for a request with `edit`. Without a key
    /// in the request, the key of the project says nothing about the request.
    pub fn of_project(project: &Project, edit: &ProjectEdit, agents: &[AgentId]) -> Self {
        let agents: BTreeSet<_> = agents.iter().collect();
        Self::of([
            ("name", json!(project.name)),
            ("key", json!(edit.key.as_ref().map(|_| &project.key))),
            ("workingDirectory", json!(project.working_directory.to_string_lossy())),
            ("status", json!(project.status)),
            ("workspace", json!(project.workspace)),
            ("workspaceBase", json!(project.overrides.base)),
            ("workspaceBranch", json!(project.overrides.branch)),
            ("mergeHooks", json!(project.overrides.own_merge_hooks())),
            ("assign", json!(agents)),
        ])
    }

    /// Returns the digests that are stored.
    pub fn digest(&self, salt: [u8; 16]) -> ContentDigest {
        let salt = hex(&salt);
        ContentDigest { fields: self.digests(&salt), salt }
    }

    /// Returns the first field in which a request differs from the one that created the object;
    /// `None` if it repeats that.
    pub fn difference_from_request(&self, made: &ContentDigest) -> Option<String> {
        first_difference(&self.digests(&made.salt), &made.fields)
    }

    /// Returns the first field in which a request differs from the object as it is now.
    pub fn difference_from_object(&self, now: &Self) -> Option<String> {
        first_difference(&self.0, &now.0)
    }

    fn digests(&self, salt: &str) -> BTreeMap<String, String> {
        let digest = |value: &Value| {
            hex(&Sha256::new().chain_update(salt).chain_update(value.to_string()).finalize())
        };
        self.0.iter().map(|(name, value)| ((*name).to_owned(), digest(value))).collect()
    }
}

fn first_difference<K: Ord + ToString, V: PartialEq>(
    one: &BTreeMap<K, V>,
    other: &BTreeMap<K, V>,
) -> Option<String> {
    let names: BTreeSet<&K> = one.keys().chain(other.keys()).collect();
    names.into_iter().find(|name| one.get(*name) != other.get(*name)).map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::ProjectStatus;
    use crate::secret::PasskeyHash;
    use crate::task::{NewTask, Priority, TaskStatus};
    use crate::time::Timestamp;

    const NOW: Timestamp = Timestamp::from_millis(0);

    fn new_task() -> NewTask {
        NewTask {
            dependencies: vec!["b".parse().unwrap(), "a".parse().unwrap()],
            ..NewTask::new("prj".parse().unwrap(), "Login")
        }
    }

    fn task(new: &NewTask) -> Task {
        new.to_task("tsk".parse().unwrap(), "PRJ-1".parse().unwrap(), NOW).unwrap()
    }

    fn agent(edit: &AgentEdit) -> Agent {
        edit.apply(Agent::new("agt".parse().unwrap(), None, NOW), [1; 16]).unwrap()
    }

    fn project(edit: &ProjectEdit) -> Project {
        edit.apply(Project::new("prj".parse().unwrap(), NOW)).unwrap()
    }

    /// Returns the difference from the request that made an object.
    fn from_request(asked: &Content, made: &Content) -> Option<String> {
        let stored = serde_json::to_string(&made.digest([7; 16])).unwrap();
        asked.difference_from_request(&serde_json::from_str(&stored).unwrap())
    }

    /// A change of a new task, and the field that differs then.
    type Change = (fn(&mut NewTask), Option<&'static str>);

    #[test]
    fn the_same_task_is_a_repetition_and_another_one_differs_in_a_field() {
        let made = Content::of_task(&task(&new_task()));
        let other = |change: fn(&mut NewTask)| {
            let mut new = new_task();
            change(&mut new);
            Content::of_task(&task(&new))
        };
        let table: [Change; 11] = [
            (|_| {}, None),
            (|new| new.dependencies.reverse(), None),
            (|new| new.title = "Log\u{202e}in".to_owned(), None),
            (|new| new.title = "Logout".to_owned(), Some("title")),
            (|new| new.description = "x".to_owned(), Some("description")),
            (|new| new.status = TaskStatus::Backlog, Some("status")),
            (|new| new.priority = Priority::High, Some("priority")),
            (|new| new.project = "other".parse().unwrap(), Some("projectId")),
            (|new| new.assignee = Some("ann".parse().unwrap()), Some("assigneeId")),
            (|new| new.parent = Some("up".parse().unwrap()), Some("parentId")),
            (|new| new.dependencies.clear(), Some("dependencies")),
        ];
        for (n, (change, expected)) in table.into_iter().enumerate() {
            let asked = other(change);
            assert_eq!(from_request(&asked, &made).as_deref(), expected, "{n}");
            assert_eq!(from_request(&made, &asked).as_deref(), expected, "{n} the other way");
            let as_it_is = asked.difference_from_object(&made);
            assert_eq!(as_it_is.as_deref(), expected, "{n} as it is");
        }
        // A wish for a start is the status that was asked for.
        let waits = Task { start_wanted_since: Some(NOW), ..task(&new_task()) };
        let asked = other(|new| new.status = TaskStatus::InProgress);
        assert_eq!(asked.difference_from_object(&Content::of_task(&waits)), None);
    }

    #[test]
    fn the_passkey_of_an_agent_is_compared_and_never_stored() {
        let given = |passkey: &str| AgentEdit {
            passkey: Some(Secret::new(passkey)),
            ..AgentEdit::default()
        };
        let generated = |passkey| AgentEdit { generates_passkey: true, ..given(passkey) };
        let plain = AgentEdit::default();
        let of = |edit: &AgentEdit| Content::of_new_agent(&agent(edit), edit);
        for (asked, made, expected) in [
            (&plain, &plain, None),
            (&given("one"), &given("one"), None),
            (&given("one"), &given("two"), Some("passkey")),
            (&given("one"), &plain, Some("passkey")),
            (&plain, &given("one"), Some("passkey")),
            (&generated("one"), &generated("two"), None),
            (&generated("one"), &plain, Some("generatePasskey")),
            (&given("one"), &generated("one"), Some("generatePasskey")),
        ] {
            assert_eq!(from_request(&of(asked), &of(made)).as_deref(), expected);
        }
        let stored = serde_json::to_string(&of(&given("sesame")).digest([7; 16])).unwrap();
        assert!(!stored.contains("sesame"), "{stored}");
        assert_ne!(of(&given("a")).digest([7; 16]), of(&given("a")).digest([8; 16]));

        let known = |passkey: Option<&str>| Agent {
            passkey: passkey.map(|passkey| PasskeyHash::new(&Secret::new(passkey), [1; 16])),
            ..agent(&plain)
        };
        for (asked, passkey, expected) in [
            (&plain, None, None),
            (&plain, Some("of the configuration"), None),
            (&given("one"), Some("one"), None),
            (&given("one"), Some("two"), Some("passkey")),
            (&given("one"), None, Some("passkey")),
            (&generated("new"), Some("old"), None),
            (&generated("new"), None, Some("generatePasskey")),
        ] {
            let now = Content::of_known_agent(&known(passkey), asked);
            let difference = of(asked).difference_from_object(&now);
            assert_eq!(difference.as_deref(), expected, "{passkey:?}");
        }
        let named = AgentEdit { name: Some("Ann".to_owned()), ..AgentEdit::default() };
        let default = AgentEdit { name: Some("agt".to_owned()), ..AgentEdit::default() };
        assert_eq!(from_request(&of(&named), &of(&plain)).as_deref(), Some("name"));
        assert_eq!(from_request(&of(&default), &of(&plain)), None);
    }

    #[test]
    fn the_key_of_a_project_counts_only_if_it_was_asked_for() {
        let ids = |ids: &[&str]| ids.iter().map(|id| id.parse().unwrap()).collect::<Vec<AgentId>>();
        let plain = || ProjectEdit {
            working_directory: Some("/shop".into()),
            assign: ids(&["ann", "ben"]),
            ..ProjectEdit::default()
        };
        let keyed = |key: &str| ProjectEdit { key: Some(key.parse().unwrap()), ..plain() };
        let inactive = ProjectEdit { status: Some(ProjectStatus::Inactive), ..plain() };
        let turned = ProjectEdit { assign: ids(&["ben", "ann"]), ..plain() };
        let alone = ProjectEdit { assign: ids(&["ann"]), ..plain() };
        let of = |edit: &ProjectEdit| Content::of_project(&project(edit), edit, &edit.assign);
        for (asked, made, expected) in [
            (&plain(), &plain(), None),
            (&turned, &plain(), None),
            (&alone, &plain(), Some("assign")),
            (&inactive, &plain(), Some("status")),
            (&keyed("SHOP"), &keyed("shop"), None),
            (&keyed("SHOP"), &keyed("STORE"), Some("key")),
            (&keyed("SHOP"), &plain(), Some("key")),
            (&plain(), &keyed("SHOP"), Some("key")),
        ] {
            assert_eq!(from_request(&of(asked), &of(made)).as_deref(), expected);
        }
        for (asked, key, expected) in [
            (&plain(), "ANY", None),
            (&keyed("ANY"), "ANY", None),
            (&keyed("SHOP"), "ANY", Some("key")),
        ] {
            let now = Project { key: key.parse().unwrap(), ..project(&plain()) };
            let now = Content::of_project(&now, asked, &asked.assign);
            let difference = of(asked).difference_from_object(&now);
            assert_eq!(difference.as_deref(), expected, "{key}");
        }
    }
}
