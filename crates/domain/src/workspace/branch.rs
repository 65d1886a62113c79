//! The names of the branches that results are committed on.

/// The pattern of a branch without another setting.
pub const DEFAULT_PATTERN: &str = "agents/{task_id}";
/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 100;
/// The end of a name that git refuses.
const LOCK: &str = ".lock";
/// The number of characters of the id of an agent or a project that a name has.
const MAX_ID: usize = 40;

/// The ids that a name may have.
#[derive(Debug, Clone, Copy)]
pub struct BranchIds<'a> {
    /// The short id of the task.
    pub task: &'a str,
    pub agent: &'a str,
    pub project: &'a str,
}

/// Returns the branch of a task. The ids in it are in lower case, and the characters in them that
/// git refuses in the name of a branch are replaced.
pub fn branch_of(pattern: &str, ids: BranchIds<'_>) -> String {
    let BranchIds { task, agent, project } = ids;
    pattern
        .replace("{task_id}", &safe(task))
        .replace("{agent_id}", &safe(agent))
        .replace("{project_id}", &safe(project))
}

fn safe(id: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let safe = |c: char| if is_safe(c) { c.to_ascii_lowercase() } else { '-' };
    id.chars().take(MAX_ID).map(safe).collect()
}

/// Checks that a pattern gives each task a branch of its own, which git allows.
///
/// # Errors
/// The reason why it does not.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    if !pattern.contains("{task_id}") {
        return Err("without `{task_id}`, two tasks would have one branch".to_owned());
    }
    if pattern.len() > MAX_PATTERN {
        return Err(format!("it is longer than {MAX_PATTERN} bytes"));
    }
    let name = branch_of(pattern, BranchIds { task: "x-1", agent: "x", project: "x" });
    if name.contains(['{', '}']) {
        return Err("only {task_id}, {agent_id} and {project_id} are replaced".to_owned());
    }
    let is_known = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if let Some(other) = name.chars().find(|c| !is_known(*c)) {
        return Err(format!("`{}` is not allowed in it", other.escape_default()));
    }
    let is_refused = |part: &str| {
        part.is_empty()
            || part.starts_with(['.', '-'])
            || part.ends_with('.')
            || part.to_ascii_lowercase().ends_with(LOCK)
            || part.contains("..")
    };
    if name.starts_with("refs/") || name.split('/').any(is_refused) {
        return Err("git allows no such name of a branch".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pattern: &str, task: &str) -> String {
        branch_of(pattern, BranchIds { task, agent: "Agt.One", project: "prj_1" })
    }

    #[test]
    fn a_branch_has_a_name_that_git_allows() {
        assert_eq!(of(DEFAULT_PATTERN, "SHOP-12"), "agents/shop-12");
        assert_eq!(of(DEFAULT_PATTERN, "a..b.lock"), "agents/a--b-lock");
        assert_eq!(of("{project_id}/{agent_id}.{task_id}", "S-1"), "prj_1/agt-one.s-1");
        let long = branch_of("{agent_id}-{task_id}", BranchIds { agent: &"a".repeat(300), ..IDS });
        assert_eq!(long, format!("{}-s-1", "a".repeat(40)));
    }

    const IDS: BranchIds<'_> = BranchIds { task: "S-1", agent: "a", project: "p" };

    #[test]
    fn a_pattern_gives_each_task_a_valid_branch_of_its_own() {
        for good in [DEFAULT_PATTERN, "{task_id}", "work/{project_id}/{agent_id}-{task_id}_x.y"] {
            assert_eq!(check_pattern(good), Ok(()), "{good}");
        }
        for (bad, reason) in [
            ("agents/{agent_id}", "two tasks would have one branch"),
            ("agents/{task}-{task_id}", "are replaced"),
            ("{task_id}/", "no such name"),
            ("/{task_id}", "no such name"),
            ("a//{task_id}", "no such name"),
            ("a..{task_id}", "no such name"),
            ("-{task_id}", "no such name"),
            (".a/{task_id}", "no such name"),
            ("{task_id}.lock", "no such name"),
            ("refs/heads/{task_id}", "no such name"),
            ("a b/{task_id}", "` ` is not allowed"),
            ("é/{task_id}", "is not allowed"),
            ("~{task_id}", "`~` is not allowed"),
        ] {
            let refused = check_pattern(bad).expect_err(bad);
            assert!(refused.contains(reason), "{bad}: {refused}");
        }
        assert!(check_pattern(&format!("{}{{task_id}}", "a".repeat(300))).is_err());
    }
}
