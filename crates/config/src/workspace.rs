//! `workspace`: the clones in which tasks of projects with `workspace: clone` are worked on.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::declaration::keys;
use super::kinds::{
    DAY, GIB, Kind, MIB, MINUTE, SECOND, TIB, YEAR, durations, list, numbers, sizes, text, truth,
    words,
};
use super::reader::Field;
use super::report::Problem;
use domain::ProjectId;
use domain::workspace::{
    DEFAULT_PATTERN, GitLimits, LfsFiles, MergeHooks, PublishResults, check_base, check_pattern,
};

keys! {
    /// The clones of tasks. A project has them if it was created with `workspace: clone`.
    pub struct Workspace in "workspace" {
        /// The folder of all clones, as an absolute path. Without it, the folder `workspaces` of the
        /// state directory is used. A folder on the file system of the projects saves time and
        /// space. It must not be a link, and not be in the repository of a project. Agents with
        /// `run_as` need one that their user may enter.
        pub root: Option<PathBuf> = None, root().or_none(), AfterRestart;

        /// The time from the end of a task to the removal of its clone. Everything in the clone is
        /// kept in a repository of the coordinator before that. `off` keeps clones until `max_disk`
        /// is used up.
        pub keep: Option<Duration> = Some(7 * DAY), durations(SECOND..=YEAR).or_off(), Now;

        /// The branch, the tag or the commit that the work on a task begins at. Without it, that is
        /// what `HEAD` of the project's repository names. `working_tree` also takes the files of
        /// the project's directory that are in no commit and are not ignored.
        pub base: Option<String> = None, text().checked(|base| check_base(base)).or_none(), Now;

        /// The branch of the result of a task. It must have `{task_id}`, and may have `{agent_id}`
        /// and `{project_id}`. The ids are written in lower case.
        pub branch: String = DEFAULT_PATTERN.to_owned(), branch(), Now;

        /// Whether new clones have the files of submodules, too. A submodule must be at the host of
        /// the project's repository, or in the folder beside it. Clones for pull and merge requests
        /// of forks have none.
        pub submodules: bool = false, truth(), Now;

        /// The files of Git LFS in new clones. With `auto`, clones have those that the project's
        /// repository has on this machine, if git-lfs is installed. Other files, and all with
        /// `pointers`, are pointers.
        pub lfs: LfsFiles = LfsFiles::Auto, lfs(), Now;

        /// The destination of the results of tasks that are done, in projects with clones. With
        /// `branch`, the project's repository gets a branch with the result. No branch that people
        /// have moved or checked out is changed.
        pub publish: PublishResults = PublishResults::Nothing, publish(), Now;

        /// The hooks of your repository that judge the commit of a merge. They run with the result
        /// in the work tree, so they may run files of the result. With `ask`, such a merge is
        /// refused until a person says whether they run. See docs/workspaces.md.
        pub merge_hooks: MergeHooks = MergeHooks::Ask, words(hook_words()), Now;

        /// The treatment of these hooks in single projects, by the ids of the projects, in place of
        /// `merge_hooks`.
        pub merge_hooks_in: BTreeMap<ProjectId, MergeHooks> = BTreeMap::new(), hooks_in(), Now;

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

        /// The disk space for all clones of this host and the work that is kept of them. When it is
        /// used up, the clones of closed tasks are removed before `keep` is over, the oldest first.
        /// Then tasks wait (`workspace_disk`) before they get a clone.
        pub max_disk: u64 = 20 * GIB, sizes(64 * MIB..=1024 * TIB), Now;

        /// The names of ignored folders that are never kept, because they can be built again.
        pub rebuildable: Vec<String> = rebuildable(), names(), AfterRestart;
    }
}

keys! {
    /// The limits of git and of what the daemon takes from a clone. What a clone has beyond them
    /// stays there, and `workspace show` names it. docs/workspaces.md has the fixed limits.
    impl GitLimits in "workspace.limits" {
        /// The memory that each git process allocates. The packs that it maps do not count. With
        /// too little, work on large repositories fails, and the message names the limit. A smaller
        /// size protects the machine from hostile content.
        git_memory: sizes(128 * MIB..=TIB), AfterRestart;

        /// The time of a call of git that transfers objects or writes many files. It may use twice
        /// this processor time. Slow disks and large repositories need more.
        git_time: durations(MINUTE..=DAY), AfterRestart;

        /// The files and folders of a commit. One with more is not used: no task begins there, and
        /// it is not taken as a result.
        files: numbers(1_000..=10_000_000), AfterRestart;

        /// The objects of git that are taken from one repository in a clone. If there are more,
        /// none of them is taken.
        objects: numbers(1_000..=4_000_000), AfterRestart;
    }
}

fn root() -> Kind<PathBuf> {
    let read = |field: Field<'_, '_>, what: &str| {
        let root = field.parsed(what, |text| {
            let path = Path::new(text);
            let is_whole = text.starts_with('/') && !text.starts_with("//");
            let leads_up = path.components().any(|part| part == Component::ParentDir);
            let has_name = path.file_name().is_some();
            (is_whole && has_name && !leads_up).then(|| path.components().collect::<PathBuf>())
        })?;
        let Ok(to) = std::fs::read_link(&root) else {
            return Some(root);
        };
        let message = format!(
            "`{}` is not valid: `{}` is a symbolic link to `{}`",
            field.path_in_file(),
            root.display(),
            to.display()
        );
        let problem = Problem::new(message, field.span()).label("here");
        field.note(problem.help("name the folder that it leads to"));
        None
    };
    let expected = "an absolute path below `/`, such as `/srv/clones`";
    Kind::new(expected, read, |path: &PathBuf| path.display().to_string())
}

fn branch() -> Kind<String> {
    text().checked(|pattern| check_pattern(pattern)).written_as("\"agents/{task_id}\"")
}

fn numbers_or_any() -> Kind<Option<usize>> {
    let shown = |n: &Option<usize>| n.map_or_else(|| "any".to_owned(), |n| n.to_string());
    numbers(1..=100_000).or_word("any", None, Some, shown)
}

fn names() -> Kind<Vec<String>> {
    list(text()).written_as("[target, node_modules, .venv, dist, build, __pycache__]")
}

fn publish() -> Kind<PublishResults> {
    words(PublishResults::ALL.iter().map(|word| (word.as_str(), *word)).collect::<Vec<_>>())
}

fn hook_words() -> Vec<(&'static str, MergeHooks)> {
    MergeHooks::ALL.iter().map(|word| (word.as_str(), *word)).collect()
}

fn hooks_in() -> Kind<BTreeMap<ProjectId, MergeHooks>> {
    let read = |field: Field<'_, '_>, _: &str| {
        let entries = field.named().into_iter();
        // All entries are read, so that every mistake is noted.
        let read = entries.filter_map(|(name, value)| {
            let id = name.id(value.reader());
            id.zip(value.one_of(&hook_words()))
        });
        Some(read.collect())
    };
    let show = |hooks: &BTreeMap<ProjectId, MergeHooks>| {
        let shown: Vec<_> = hooks.iter().map(|(id, hooks)| format!("{id}: {hooks}")).collect();
        if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
    };
    let expected = "a mapping of ids of projects to `ask`, `run` or `off`";
    Kind::new(expected, read, show).written_as("{}")
}

fn lfs() -> Kind<LfsFiles> {
    words(LfsFiles::ALL.iter().map(|word| (word.as_str(), *word)).collect::<Vec<_>>())
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

    /// Returns the treatment of hooks at merges into the repository of a project.
    pub fn merge_hooks_of(&self, project: &ProjectId) -> MergeHooks {
        self.merge_hooks_in.get(project).copied().unwrap_or(self.merge_hooks)
    }
}
