//! `workspace.hooks`: commands of the operator that run in the clones of tasks.

use std::time::Duration;

use super::declaration::keys;
use super::kinds::{HOUR, Kind, MINUTE, SECOND, durations, list, text};
use domain::workspace::Hook;

keys! {
    /// Commands of the operator that run in the clones of tasks, as the user of the agent and in
    /// the wrapper of its provider. Each is a program with its arguments. No shell reads it. See
    /// docs/workspaces.md.
    pub struct WorkspaceHooks in "workspace.hooks" {
        /// Runs when a clone was made, before an agent uses it. If it fails, the task waits
        /// (`hook_failed`), and the next attempt makes the clone anew.
        pub after_create: Option<Vec<String>> = None, command(), Now;

        /// Runs before each agent and each check in a clone. If it fails, the start waits
        /// (`hook_failed`), and the hook is tried again.
        pub before_run: Option<Vec<String>> = None, command(), Now;

        /// Runs when all processes of an agent or a check have ended, before the content of the
        /// clone is kept. A failure is only recorded.
        pub after_run: Option<Vec<String>> = None, command(), Now;

        /// Runs before the files of a clone are removed. If it fails, they stay, and the hook is
        /// tried again.
        pub before_remove: Option<Vec<String>> = None, command(), Now;

        /// The time after which a hook is ended, with all its processes. It has failed then.
        pub timeout: Duration = MINUTE, durations(SECOND..=HOUR), Now;
    }
}

fn command() -> Kind<Option<Vec<String>>> {
    // The command may contain the value of a secret variable.
    let command = list(text()).hidden().checked(|command: &Vec<String>| {
        if command.is_empty() {
            Err("it has no program; remove the key if there is no hook".to_owned())
        } else {
            Ok(())
        }
    });
    command.or_none().written_as("null")
}

impl WorkspaceHooks {
    /// Returns the command of a hook, if there is one.
    pub fn command(&self, hook: Hook) -> Option<&[String]> {
        let command = match hook {
            Hook::AfterCreate => &self.after_create,
            Hook::BeforeRun => &self.before_run,
            Hook::AfterRun => &self.after_run,
            Hook::BeforeRemove => &self.before_remove,
        };
        command.as_deref()
    }
}
