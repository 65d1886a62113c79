//! The settings of workspaces that a project has of its own.

use crate::refusal::Refusal;

use super::branch::check_pattern;
use super::merge_hooks::MergeHooks;

/// The longest name of a base, in bytes.
const MAX_BASE: usize = 250;

/// The settings that a project has in place of those of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspaceOverrides {
    /// The branch, tag or commit that the work on its tasks begins at, or `working_tree`.
    pub base: Option<String>,
    /// The pattern for the branches of its tasks.
    pub branch: Option<String>,
    /// A person has decided that merges run no hooks of its repository.
    pub skips_merge_hooks: bool,
}

impl WorkspaceOverrides {
    /// Returns the settings after a change. A text that is `None` stays, and an empty one gives
    /// way to that of the configuration.
    ///
    /// # Errors
    /// `BadWorkspaceSetting`.
    pub fn edit(
        self,
        base: Option<&str>,
        branch: Option<&str>,
        merge_hooks: Option<&str>,
    ) -> Result<Self, Refusal> {
        let own_hooks = self.own_merge_hooks().map(|hooks| hooks.to_string());
        let own_hooks = edited("merge_hooks", merge_hooks, own_hooks, check_own_merge_hooks)?;
        Ok(Self {
            base: edited("base", base, self.base, check_base)?,
            branch: edited("branch", branch, self.branch, check_pattern)?,
            skips_merge_hooks: own_hooks.is_some(),
        })
    }

    /// Returns the treatment of hooks at merges that is stored for the project.
    pub fn own_merge_hooks(&self) -> Option<MergeHooks> {
        self.skips_merge_hooks.then_some(MergeHooks::Off)
    }
}

fn edited(
    key: &'static str,
    new: Option<&str>,
    old: Option<String>,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<Option<String>, Refusal> {
    match new.map(str::trim) {
        None => Ok(old),
        Some("") => Ok(None),
        Some(text) => match check(text) {
            Ok(()) => Ok(Some(text.to_owned())),
            Err(problem) => Err(Refusal::BadWorkspaceSetting { key, problem }),
        },
    }
}

/// Checks the treatment of hooks at merges that a project is to have of its own. Only the
/// configuration file can allow that hooks run.
///
/// # Errors
/// It is another word than `off`.
pub fn check_own_merge_hooks(hooks: &str) -> Result<(), String> {
    if hooks == MergeHooks::Off.as_str() {
        return Ok(());
    }
    Err("expected `off`, or an empty text for the configuration; only the configuration file can \
         say `run` or `ask` (`workspace.merge_hooks_in`)"
        .to_owned())
}

/// Checks the name of a base.
///
/// # Errors
/// The reason why nothing in a repository has such a name.
pub fn check_base(base: &str) -> Result<(), String> {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || "~^:?*[\\".contains(c);
    if base.starts_with('-') || base.contains("..") || base.contains(is_bad) {
        return Err("name a branch, a tag, a commit or `working_tree`".to_owned());
    }
    if base.len() > MAX_BASE {
        return Err(format!("it is longer than {MAX_BASE} bytes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_stays_changes_or_gives_way() {
        let own = WorkspaceOverrides::default().edit(Some("develop"), None, None).unwrap();
        assert_eq!((own.base.as_deref(), own.branch.as_deref()), (Some("develop"), None));
        let own = own.edit(None, Some(" work/{task_id} "), None).unwrap();
        assert_eq!(own.base.as_deref(), Some("develop"));
        assert_eq!(own.branch.as_deref(), Some("work/{task_id}"));
        let own = own.edit(Some(""), None, None).unwrap();
        assert_eq!((own.base.as_deref(), own.branch.is_some()), (None, true));
    }

    #[test]
    fn a_setting_that_git_cannot_use_is_refused() {
        for base in ["-x", "a..b", "a b", "a:b", "a~1", "a\nb", &"a".repeat(251)] {
            let refused = WorkspaceOverrides::default().edit(Some(base), None, None).unwrap_err();
            assert!(refused.to_string().contains("`base`"), "{base}: {refused}");
        }
        for branch in ["agents/x", "{task_id}/", "a..{task_id}", "{task_id}.lock"] {
            let refused = WorkspaceOverrides::default().edit(None, Some(branch), None).unwrap_err();
            assert_eq!(refused.code(), "bad_workspace_setting", "{branch}");
        }
    }
    #[test]
    fn only_that_no_hooks_run_is_stored_for_a_project() {
        let edit = |own: WorkspaceOverrides, hooks| own.edit(None, None, hooks);
        let off = edit(WorkspaceOverrides::default(), Some(" off ")).unwrap();
        assert_eq!(off.own_merge_hooks(), Some(MergeHooks::Off));
        assert_eq!(edit(off.clone(), None), Ok(off.clone()));
        for hooks in ["run", "ask", "OFF"] {
            let refused = edit(off.clone(), Some(hooks)).unwrap_err().to_string();
            assert!(refused.contains("only the configuration file"), "{hooks}: {refused}");
        }
        assert_eq!(edit(off, Some("")), Ok(WorkspaceOverrides::default()));
    }
}
