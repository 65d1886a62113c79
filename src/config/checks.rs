//! `checks`: the commands that a task must pass after its agent reported success.

use std::time::Duration;

use crate::domain::ProjectId;

use super::declaration::{Keys, keys};
use super::kinds::{DAY, Kind, MINUTE, SECOND, durations, id, list, text};
use super::reader::Section;

keys! {
    /// The commands that a task must pass after its agent reported success, by their names. They
    /// run in the clone of the task, one after the other in the order of the file. Only projects
    /// with `workspace: clone` have checks. An agent can change neither the commands nor their
    /// verdict. See docs/workspaces.md.
    pub struct CheckKeys in "checks.*" {
        /// Required. The program with its arguments. No shell reads it. The exit status 0 passes.
        pub command: Vec<String> = Vec::new(), command(), Now;

        /// The time after which the command is ended. That is no verdict: the check is tried again.
        pub timeout: Duration = 20 * MINUTE, durations(SECOND..=DAY), Now;

        /// The projects whose tasks must pass it. An empty list means all projects.
        pub projects: Vec<ProjectId> = Vec::new(), list(id()), Now;
    }
}

fn command() -> Kind<Vec<String>> {
    // The command may contain the value of a secret variable.
    let command = list(text()).required().hidden().for_example("[cargo, test]");
    command.checked(
        |command: &Vec<String>| {
            if command.is_empty() { Err("it has no program".to_owned()) } else { Ok(()) }
        },
    )
}

/// A check with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCheck {
    pub name: String,
    pub keys: CheckKeys,
}

impl NamedCheck {
    /// Returns whether the tasks of a project must pass it.
    pub fn is_for(&self, project: &ProjectId) -> bool {
        self.keys.projects.is_empty() || self.keys.projects.contains(project)
    }
}

pub(super) fn read(top: &mut Section<'_, '_>) -> Vec<NamedCheck> {
    let sections = top.named_sections("checks").into_iter();
    let checks = sections.map(|(name, mut section)| NamedCheck {
        name: name.text,
        keys: CheckKeys::read(&mut section),
    });
    checks.collect()
}
