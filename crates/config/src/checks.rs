//! `checks`: the commands that a task must pass after its agent reported success.

use std::time::Duration;

use domain::ProjectId;
use domain::check::check_pattern;

use super::declaration::{Keys, keys};
use super::kinds::{DAY, Kind, MINUTE, SECOND, durations, id, list, text, truth};
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

        /// Runs it in a fresh clone of the reported commit, which is removed afterwards, in place
        /// of the clone of the task. Ignored files, such as packages that were installed, are not
        /// there.
        pub clean: bool = false, truth(), Now;

        /// Patterns of paths that an agent must not influence, such as `ci/**`. A check with any
        /// runs in a fresh clone, too, in which these paths are as in the commit that the work
        /// began at. `*` matches within one folder, and `**` also below it.
        pub protected: Vec<String> = Vec::new(), patterns(), Now;

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

fn patterns() -> Kind<Vec<String>> {
    list(text()).for_example("['ci/**']").checked(|patterns: &Vec<String>| {
        patterns.iter().try_for_each(|pattern| {
            check_pattern(pattern)
                .map_err(|problem| format!("`{}` {problem}", pattern.escape_debug()))
        })
    })
}

/// A check with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCheck {
    pub name: String,
    pub keys: CheckKeys,
}

impl NamedCheck {
    /// Returns whether it runs in a fresh clone.
    pub const fn is_clean(&self) -> bool {
        self.keys.clean || !self.keys.protected.is_empty()
    }

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
