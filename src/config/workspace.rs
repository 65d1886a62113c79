//! `workspace`: the clones in which tasks of projects with `workspace: clone` are worked on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::declaration::keys;
use super::kinds::{
    DAY, Kind, MIB, SECOND, TIB, YEAR, durations, list, numbers, path, sizes, text, truth,
};

keys! {
    /// The clones of tasks. A project has them if it was created with `workspace: clone`.
    pub struct Workspace in "workspace" {
        /// The folder of all clones. Without it, the folder `workspaces` of the state directory is
        /// used. A folder on the file system of the projects saves time and space.
        pub root: Option<PathBuf> = None, path().or_none(), AfterRestart;

        /// The time from the end of a task to the removal of its clone. Everything in the clone is
        /// kept in a repository of the coordinator before that. `off` keeps clones for ever.
        pub keep: Option<Duration> = Some(7 * DAY), durations(SECOND..=YEAR).or_off(), Now;

        /// The number of agents that work on tasks in one git work tree at the same time, in
        /// projects without clones. Further agents wait. With 1, no agent overwrites the files of
        /// another one.
        pub shared_at_once: Option<usize> = None, numbers_or_any(), Now;

        /// Whether a snapshot of the git work tree is taken before and after each agent that works
        /// on a task in a project without clones. `false` saves space and time.
        pub snapshots: bool = true, truth(), AfterRestart;

        /// The size of the ignored files that are kept with a clone or a snapshot. A clone with
        /// more is not removed.
        pub ignored_max: u64 = 64 * MIB, sizes(0..=TIB), AfterRestart;

        /// The names of ignored folders that are never kept, because they can be built again.
        pub rebuildable: Vec<String> = rebuildable(), names(), AfterRestart;
    }
}

fn numbers_or_any() -> Kind<Option<usize>> {
    let shown = |n: &Option<usize>| n.map_or_else(|| "any".to_owned(), |n| n.to_string());
    numbers(1..=100_000).or_word("any", None, Some, shown)
}

fn names() -> Kind<Vec<String>> {
    list(text()).written_as("[target, node_modules, .venv, dist, build, __pycache__]")
}

fn rebuildable() -> Vec<String> {
    let names = ["target", "node_modules", ".venv", "dist", "build", "__pycache__"];
    names.map(str::to_owned).to_vec()
}

impl Workspace {
    /// Returns the folder of all clones.
    pub fn root_in(&self, state_dir: &Path) -> PathBuf {
        self.root.clone().unwrap_or_else(|| state_dir.join("workspaces"))
    }
}
